"""What the library weighs, and how long the way of a fit is: ``make size``.

Lines of Python, files, names that occur twice, numeric constants, and what one call of ``mf.learn`` visits.
"""

from __future__ import annotations

import ast
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
CORE, PLUGINS = ROOT / "metricforge", ROOT / "plugins"
PAPERS, CAMPAIGN = PLUGINS / "metricforge-papers", ROOT / "tests" / "campaign"
SPINE = ("__init__", "learning", "resolve", "auto", "evaluation", "fitting", "solver", "metric", "report")
INTERFACES = ("constraints/interface", "kernels/interface", "space/representation")


def sources(folder: Path, without: Path | None = None) -> list[Path]:
    return [path for path in sorted(folder.rglob("*.py")) if without is None or not path.is_relative_to(without)]


def lines(paths: list[Path]) -> int:
    return sum(len(path.read_text().splitlines()) for path in paths)


def numbers(tree: ast.Module) -> int:
    """Count the constants of a module whose value is a number, or a tuple of numbers."""
    found = 0
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        names = [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]
        value = getattr(node, "value", None)
        literals = [n for n in ast.walk(value) if isinstance(n, ast.Constant)] if value is not None else []
        plain = value is not None and not any(isinstance(n, ast.Call | ast.Name | ast.Dict) for n in ast.walk(value))
        if plain and literals and all(type(n.value) in (int, float) for n in literals):
            found += sum(name.strip("_").isupper() for name in names)
    return found


def twice(paths: list[Path]) -> Iterator[tuple[str, list[str]]]:
    """Yield what occurs in more than one file: stems, classes, public functions."""
    trees = [ast.parse(path.read_text()) for path in paths]
    stems = Counter(path.stem for path in paths)
    classes = Counter(n.name for tree in trees for n in tree.body if isinstance(n, ast.ClassDef))
    functions = Counter(n.name for tree in trees for n in tree.body if isinstance(n, ast.FunctionDef))
    public = Counter({name: times for name, times in functions.items() if not name.startswith("_")})
    for kind, counted in (("stems", stems), ("classes", classes), ("public functions", public)):
        yield kind, sorted(name for name, times in counted.items() if times > 1)


def walk(call: object) -> tuple[int, int]:
    """Return the calls inside metricforge of the second of two equal calls, and the files that they are in."""
    seen: Counter[str] = Counter()

    def profile(frame: object, event: str, _: object) -> None:
        name = frame.f_code.co_filename  # type: ignore[attr-defined]
        if event == "call" and name.startswith(str(CORE)):
            seen[name] += 1

    call()  # type: ignore[operator]
    sys.setprofile(profile)
    try:
        call()  # type: ignore[operator]
    finally:
        sys.setprofile(None)
    return sum(seen.values()), len(seen)


def report() -> Iterator[tuple[str, object]]:
    """Yield a line for each figure."""
    core, plugins = sources(CORE), sources(PLUGINS, PAPERS)
    for name, paths in (
        ("metricforge", core),
        ("plugins without papers", plugins),
        ("papers", sources(PAPERS)),
        ("tests without the campaign", sources(ROOT / "tests", CAMPAIGN)),
        ("the campaign", sources(CAMPAIGN)),
        ("benchmarks", sources(ROOT / "benchmarks")),
    ):
        longest = max(paths, key=lambda path: lines([path]))
        yield name, f"{lines(paths):,} lines, {len(paths)} files, the longest {longest.name} with {lines([longest])}"
    spine = [CORE / f"{name}.py" for name in (*SPINE, *INTERFACES)] + sources(CORE / "registry")
    yield "spine", f"{lines(spine):,} lines, {len(spine)} files"
    for name, paths in (("core", core), ("plugins", plugins)):
        yield f"numeric constants, {name}", sum(numbers(ast.parse(path.read_text())) for path in paths)
    named = [path for path in core if path.parent.name != "cli" and path.stem != "__init__"]
    for kind, names in twice(named):
        yield f"{kind} that occur twice", f"{len(names)}: {', '.join(names)}"
    import test_house

    yield "rows in the order of imports", len(test_house.LAYERS)

    import numpy as np

    import metricforge as mf

    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(178, 13)), rng.integers(0, 3, 178)
    pairs = mf.Pairs.from_labels(y, n_pairs=890, seed=0)
    yield "calls, files of mf.learn(X, pairs), the second time", "{:,} and {}".format(*walk(lambda: mf.learn(X, pairs)))
    yield (
        'calls, files of mf.learn(X, y, method="krca")',
        "{:,} and {}".format(*walk(lambda: mf.learn(X, y, method="krca"))),
    )


if __name__ == "__main__":
    for name, value in report():
        sys.stdout.write(f"{name}: {value}\n")
