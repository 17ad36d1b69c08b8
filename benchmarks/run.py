"""Run a benchmark: ``python -m benchmarks.run NAME [--quick]``; without a name, list them.

A benchmark is a module of this folder with ``run(quick) -> Table``; NAME is its file name with dashes.  The table is
printed and, without ``--quick`` (whose sizes prove nothing), written to ``benchmarks/results/NAME.md`` and ``.json``;
``benchmarks/README.md`` is made anew from all of them (``--readme`` does that alone).
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
    """What a benchmark prints: rows of cells under column names, and sentences below."""

    columns: Sequence[str]
    rows: list[Sequence[Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

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
    """Return the shortest wall time of several calls: the one least disturbed by other work."""
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
    found = (m.name for m in pkgutil.iter_modules([str(HERE)]) if m.name not in ("run", "peers"))
    return sorted(name.replace("_", "-") for name in found)


def machine() -> str:
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in VERSIONS)
    load = os.getloadavg()[0]
    return f"{os.cpu_count()} cores, load {load:.1f}, Python {platform.python_version()}, {versions}"


def readme() -> str:
    """Return all tables as last measured, each with what it measures, its machine and its versions."""
    lines = [
        "# Benchmarks",
        "",
        "`python -m benchmarks.run NAME` runs one, `--quick` only to see that it runs; without a name, the list. Below "
        "are the tables as last measured, each with its machine and versions; the same as JSON are in `results/`. This "
        "page is written by `python -m benchmarks.run --readme`.",
    ]
    unmeasured = []
    for name in names():
        page = HERE / "results" / f"{name}.md"
        if not page.exists():
            unmeasured.append(f"`{name}`")
            continue
        source = (HERE / f"{name.replace('-', '_')}.py").read_text()
        about = (ast.get_docstring(ast.parse(source)) or "").split("\n\n")[0].replace("\n", " ")
        lines += ["", f"## {name}", "", about, *page.read_text().rstrip().splitlines()[1:]]
    if unmeasured:
        lines += ["", f"Not measured yet: {', '.join(unmeasured)}."]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__.splitlines()[0])
    parser.add_argument("name", nargs="?", help="which benchmark; none: list them")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--readme", action="store_true", help="write benchmarks/README.md from the results there are")
    args = parser.parse_args()
    if args.readme:
        (HERE / "README.md").write_text(readme())
        return 0
    if args.name is None:
        print("\n".join(names()))
        return 0
    if args.name not in names():
        print(f"unknown benchmark {args.name!r}; known: {', '.join(names())}", file=sys.stderr)
        return 2
    about = machine()
    table: Table = importlib.import_module(f"benchmarks.{args.name.replace('-', '_')}").run(quick=args.quick)
    command = f"python -m benchmarks.run {args.name}" + (" --quick" if args.quick else "")
    text = "\n".join([table.markdown(), "", *(f"- {note}" for note in table.notes), f"- {about}", f"- `{command}`"])
    print(text)
    if not args.quick:
        out = HERE / "results"
        out.mkdir(exist_ok=True)
        (out / f"{args.name}.md").write_text(f"# {args.name}\n\n{text}\n")
        rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
        content = {"name": args.name, "rows": rows, "notes": table.notes, "machine": about, "command": command}
        (out / f"{args.name}.json").write_text(json.dumps(content, indent=1, default=str) + "\n")
        (HERE / "README.md").write_text(readme())
    return 0


if __name__ == "__main__":
    sys.exit(main())
