"""Run a benchmark: ``python -m benchmarks.run NAME [--quick]``; without a name, list them.

A benchmark is a module or package of this folder with ``run(quick) -> Table``; NAME is its name with dashes.  The table
is printed and written to ``benchmarks/results/NAME.md`` and ``.json``, except with ``--quick``, whose sizes are too
small to be meaningful.  ``benchmarks/README.md`` is then regenerated from all results (``--readme`` does only that).  A
module with ``add_options(parser)`` has its own options, which ``run`` receives as keywords.  ``--label WORD`` writes
the results to ``NAME-WORD`` instead, for instance to keep those of an earlier version.
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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
VERSIONS = ("metricforge", "numpy", "scipy", "scikit-learn", "dask", "numba")


@dataclass
class Table:
    """The result of a benchmark: rows of cells under column names, and notes below."""

    columns: Sequence[str]
    rows: list[Sequence[Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)  # written to the JSON file only

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


def names() -> list[str]:
    """Return the benchmarks: the modules and packages of this folder that define ``run``."""
    modules = (m.name.replace("_", "-") for m in pkgutil.iter_modules([str(HERE)]))
    return sorted(name for name in modules if "\ndef run(" in _source(name))


def _source(name: str) -> str:
    """Return the source code of a benchmark."""
    path = HERE / name.replace("-", "_")
    return (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text()


def machine() -> str:
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in VERSIONS)
    load = os.getloadavg()[0]
    return f"{os.cpu_count()} cores, load {load:.1f}, Python {platform.python_version()}, {versions}"


def readme() -> str:
    """Return all tables as last measured, each with its description, machine and versions."""
    lines = [
        "# Benchmarks",
        "",
        "`python -m benchmarks.run NAME` runs a benchmark; `--quick` runs it at small sizes, to test the code. Without "
        "a name, the command lists all benchmarks. The tables below are the latest results, each with its machine and "
        "versions; `results/` has them as JSON. `python -m benchmarks.run --readme` generates this page.",
    ]
    unmeasured = []
    for name in names():
        page = HERE / "results" / f"{name}.md"
        if not page.exists():
            unmeasured.append(f"`{name}`")
            continue
        about = (ast.get_docstring(ast.parse(_source(name))) or "").split("\n\n")[0].replace("\n", " ")
        lines += ["", f"## {name}", "", about, *page.read_text().rstrip().splitlines()[1:]]
    if unmeasured:
        lines += ["", f"Not measured yet: {', '.join(unmeasured)}."]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="?", help="name of a benchmark; without one, list them")
    parser.add_argument("--quick", action="store_true", help="small sizes, to test the code")
    parser.add_argument("--readme", action="store_true", help="write benchmarks/README.md from the stored results")
    parser.add_argument("--label", help="write the results to NAME-LABEL instead of NAME")
    args, rest = parser.parse_known_args()
    if args.readme:
        (HERE / "README.md").write_text(readme())
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
    about = machine()
    table: Table | None = module.run(quick=args.quick, **options)
    if table is None:  # the options asked for something else, such as one case of a campaign
        return 0
    command = " ".join(["python -m benchmarks.run", *sys.argv[1:]])
    text = "\n".join([table.markdown(), "", *(f"- {note}" for note in table.notes), f"- {about}", f"- `{command}`"])
    print(text)
    if not args.quick:
        out = HERE / "results"
        out.mkdir(exist_ok=True)
        saved = f"{args.name}-{args.label}" if args.label else args.name
        (out / f"{saved}.md").write_text(f"# {saved}\n\n{text}\n")
        rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
        content = {"name": saved, "rows": rows, "notes": table.notes, "machine": about, "command": command}
        if table.details:
            content["details"] = table.details
        (out / f"{saved}.json").write_text(json.dumps(content, indent=1, default=str) + "\n")
        (HERE / "README.md").write_text(readme())
    return 0


if __name__ == "__main__":
    sys.exit(main())
