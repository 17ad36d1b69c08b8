"""Run a benchmark: ``python -m benchmarks.run NAME [--quick]``; without a name, list them.

A benchmark is a module or package of this folder with ``run(quick) -> Table``; NAME is its name with dashes.  The table
is printed and written to ``benchmarks/results/NAME.json``, except with ``--quick``, whose sizes are too small to be
meaningful.  ``NAME.md`` and ``benchmarks/README.md`` are then written from all results (``--readme`` does only that).
A module with ``add_options(parser)`` has its own options, which ``run`` receives as keywords.  ``--label WORD`` writes
the results to ``NAME-WORD`` instead, for instance those of a part of the benchmark that ran by itself.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.metadata
import json
import os
import pkgutil
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
BUSY = 2.0
"""Above this load, wall times are not shown where there are CPU times."""
ABOUT = (
    "`make bench` times a dozen everyday calls on this commit and on another one, and prints the ratios "
    "(`benchmarks/speed`, for [asv](https://asv.readthedocs.io)).\n\n"
    "The benchmarks below compare with named peers or with a paper. `python -m benchmarks.run NAME` runs one; "
    "`--quick` runs it at small sizes, to test the code. Each page has the machine, the versions and the load before "
    f"and after; where that was above {BUSY:g}, read CPU times. `python -m benchmarks.run --readme` generates the "
    "pages and this list."
)
STUDIES = (
    "Each chose or checked a default once, at version 0.1.0, with the seeds in its notes. The tables stay; the scripts "
    "are in the history of the project."
)
VERSIONS = ("metricforge", "numpy", "scipy", "scikit-learn", "dask", "numba")


@dataclass
class Table:
    """The result of a benchmark: rows of cells under column names, and notes below."""

    columns: Sequence[str]
    rows: list[Sequence[Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)  # written to the JSON file only

    def __post_init__(self) -> None:
        if len(set(self.columns)) != len(self.columns):
            raise ValueError(f"two columns have the same name, of which the JSON file would lose one: {self.columns}")

    def add(self, *cells: Any) -> None:
        if len(cells) != len(self.columns):
            raise ValueError(f"a row needs {len(self.columns)} cells, got {len(cells)}")
        self.rows.append(cells)

    def markdown(self) -> str:
        lines = [self.columns, ["---"] * len(self.columns), *([show(c) for c in row] for row in self.rows)]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def show(cell: Any) -> str:
    return f"{cell:.3g}" if isinstance(cell, float) else str(cell)


def best_of(call: Callable[[], Any], repeats: int = 3) -> float:
    """Return the shortest wall time of several calls, which is least affected by other processes."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def peak_bytes(code: str, *, env: dict[str, str] | None = None) -> tuple[float, int]:
    """Run Python ``code`` in a fresh process; return (seconds, peak resident bytes) of the whole process."""
    tail = "\nimport resource, sys\nprint('PEAK', resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code + tail],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **(env or {})},
    )
    seconds = time.perf_counter() - start
    if done.returncode:
        raise RuntimeError(done.stderr)
    peak = int(next(line.split()[1] for line in done.stdout.splitlines()[::-1] if line.startswith("PEAK")))
    return seconds, peak * (1 if sys.platform == "darwin" else 1024)


def stored(value: Any, indent: int = 0) -> str:
    """Return a value as JSON in which a list or mapping of plain values takes one line."""
    items = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list | tuple) else []
    if not any(isinstance(item, dict | list | tuple) for item in items):
        return json.dumps(value, default=str)
    lines = [stored(item, indent + 1) for item in items]
    if isinstance(value, dict):
        lines = [f"{json.dumps(str(key))}: {line}" for key, line in zip(value, lines, strict=True)]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    inside = ",\n".join(" " * (indent + 1) + line for line in lines)
    return f"{opening}\n{inside}\n{' ' * indent}{closing}"


def names() -> list[str]:
    """Return the benchmarks: the modules and packages of this folder that define ``run``."""
    modules = (m.name.replace("_", "-") for m in pkgutil.iter_modules([str(HERE)]))
    return sorted(name for name in modules if "\ndef run(" in _source(name))


def _source(name: str) -> str:
    """Return the source code of a benchmark."""
    path = HERE / name.replace("-", "_")
    return (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text()


def machine(load: Sequence[float]) -> str:
    """Return the machine and versions, with the load before a benchmark and after it."""
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in VERSIONS)
    loads = " to ".join(f"{value:.1f}" for value in load)
    return f"{os.cpu_count()} cores, load {loads}, Python {platform.python_version()}, {versions}"


def page(content: dict[str, Any]) -> str:
    """Return the page of a result from the content of its JSON file.

    Columns with "wall s" in their name are left out if the machine was busy and there are CPU times.
    """
    columns = list(content["rows"][0])
    wall = [name for name in columns if "wall s" in name]
    busy = max(content["load"]) > BUSY
    left_out = wall if busy and any("CPU s" in name for name in columns) else []
    shown = [name for name in columns if name not in left_out]
    table = Table(shown, [[row[name] for name in shown] for row in content["rows"]])
    warning = f"the load was above {BUSY:g}: wall times are {'left out' if left_out else 'those of a busy machine'}"
    notes = [*content["notes"], *([warning] if wall and busy else [])]
    notes += [content["machine"], f"`{content['command']}`"]
    return "\n".join([f"# {content['name']}", "", table.markdown(), "", *(f"- {note}" for note in notes)]) + "\n"


def write_pages() -> None:
    """Write the pages of all results from their JSON files, and the README from the pages."""
    for path in sorted((HERE / "results").glob("*.json")):
        path.with_suffix(".md").write_text(page(json.loads(path.read_text())))
    (HERE / "README.md").write_text(readme())


def readme() -> str:
    """Return the list of benchmarks and studies, each with a sentence and its page of results."""
    results = {path.stem: json.loads(path.read_text()) for path in sorted((HERE / "results").glob("*.json"))}
    parts = {stem: f"Part of {name}." for stem in results for name in names() if stem.startswith(f"{name}-")}
    measured = {**parts, **{name: _sentence(name) for name in names()}}
    studies = {stem: content["about"] for stem, content in results.items() if "about" in content}
    lines = ["# Benchmarks", "", ABOUT, "", *_listed(measured, results), "", "## Studies", "", STUDIES, ""]
    return "\n".join([*lines, *_listed(studies, results)]) + "\n"


def _sentence(name: str) -> str:
    """Return the first paragraph of a benchmark's docstring on one line."""
    return (ast.get_docstring(ast.parse(_source(name))) or "").split("\n\n")[0].replace("\n", " ")


def _listed(about: dict[str, str], results: Iterable[str]) -> list[str]:
    """Return a table of names, linked to their results where there are any, and sentences."""
    shown = {
        name: f"[{name}](results/{name}.md)" if name in results else f"{name} (not measured yet)" for name in about
    }
    return ["| name | what |", "|---|---|", *(f"| {shown[name]} | {about[name]} |" for name in sorted(about))]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="?", help="name of a benchmark; without one, list them")
    parser.add_argument("--quick", action="store_true", help="small sizes, to test the code")
    parser.add_argument("--readme", action="store_true", help="write the pages and README.md from the stored results")
    parser.add_argument("--label", help="write the results to NAME-LABEL instead of NAME")
    args, rest = parser.parse_known_args()
    if args.readme:
        write_pages()
        return 0
    if args.name is None:
        print("\n".join(names()))
        return 0
    if args.name not in names():
        print(f"unknown benchmark {args.name!r}; known: {', '.join(names())}", file=sys.stderr)
        return 2
    module = importlib.import_module(f"benchmarks.{args.name.replace('-', '_')}")
    own = argparse.ArgumentParser(prog=f"python -m benchmarks.run {args.name}")
    if hasattr(module, "add_options"):
        module.add_options(own)
    options = vars(own.parse_args(rest))
    before = round(os.getloadavg()[0], 1)
    table: Table = module.run(quick=args.quick, **options)
    load = [before, round(os.getloadavg()[0], 1)]
    content = {
        "name": f"{args.name}-{args.label}" if args.label else args.name,
        "rows": [dict(zip(table.columns, row, strict=True)) for row in table.rows],
        "notes": table.notes,
        "load": load,
        "machine": machine(load),
        "command": " ".join(["python -m benchmarks.run", *sys.argv[1:]]),
        **({"details": table.details} if table.details else {}),
    }
    print(page(content))
    if not args.quick:
        out = HERE / "results"
        out.mkdir(exist_ok=True)
        (out / f"{content['name']}.json").write_text(stored(content) + "\n")
        write_pages()
    return 0


if __name__ == "__main__":
    sys.exit(main())
