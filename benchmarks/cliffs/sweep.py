"""The first call of every method over a grid of rows and columns: CPU time against the forecast."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from typing import Any

import metricforge as mf

from ..run import Table
from .measurements import Measurements

ROWS, COLUMNS = (100, 10_000), (4, 4096)
LARGEST = 50e6
"""Cells of the largest table of the grid."""
LIMIT = 12.0
"""CPU seconds after which a fit is stopped; tables with no fewer rows and columns are then left out."""
LINES = (1000, 30)
"""Rows and columns near which the lines of the grid are measured first."""
SMALL, QUICK = (3000, 100), 5.0
"""No default fit on tables up to this size should take more CPU seconds than this."""

WORKER = """
import json, signal, sys, time, warnings
import numpy as np
import metricforge as mf
from metricforge.learning import find_method
from metricforge.space import Size
warnings.simplefilter("ignore")
method, limit = sys.argv[1], float(sys.argv[2])
kind = find_method(method).constraint

class Stopped(Exception):
    pass

def stop(*_):
    raise Stopped

signal.signal(signal.SIGPROF, stop)  # after so many CPU seconds

def fit(n, d):
    rng = np.random.default_rng(0)
    y = np.arange(n) % 4
    X = rng.normal(size=(n, d))
    X[np.arange(n), y] += 2
    labels = mf.Labels(y)
    if kind is mf.Targets:
        hints = mf.Targets(X[:, 0] + y)
    else:
        hints = labels if kind in (mf.Labels, mf.Chunklets) else labels.to(kind, seed=0)
    signal.setitimer(signal.ITIMER_PROF, limit)
    started = time.process_time()
    try:
        report = mf.learn(X, hints, method=method).report
        return report, time.process_time() - started, type(hints)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)

fit(100, 4)
for line in sys.stdin:
    n, d = map(int, line.split())
    try:
        report, seconds, kind_of = fit(n, d)
    except Stopped:
        print(json.dumps([n, d, "stopped", 0, limit, 0.0]), flush=True)
        continue
    size = Size(n, d, report.rank, report.relations, report.representation, kind_of)
    forecast = find_method(method).forecast(size)
    print(json.dumps([n, d, report.representation, report.rank, seconds, forecast]), flush=True)
"""


def grid(ends: tuple[int, int], step: float) -> list[int]:
    """Return sizes from one end to the other, each ``step`` times the last."""
    low, high = ends
    sizes = [low]
    while sizes[-1] < high:
        sizes.append(min(high, round(sizes[-1] * step)))
    return sizes


def points(step: float) -> list[tuple[int, int]]:
    """Return the grid, so ordered that a part of it covers all sizes.

    The corners, the largest table that should be quick, a line along the rows and one along the columns come first.
    """
    rows, columns = grid(ROWS, step), grid(COLUMNS, step)
    line = min(rows, key=lambda n: abs(n - LINES[0])), min(columns, key=lambda d: abs(d - LINES[1]))
    quick = max(n for n in rows if n <= SMALL[0]), max(d for d in columns if d <= SMALL[1])

    def level(i: int, j: int) -> int:
        n, d = rows[i], columns[j]
        if (n in ROWS and d in COLUMNS) or (n, d) == quick:
            return 0
        if n == line[0] or d == line[1]:
            return 1
        return 2 if i % 2 == 0 and j % 2 == 0 else 3

    numbered = itertools.product(enumerate(rows), enumerate(columns))
    ordered = sorted((level(i, j), n * d, n, d) for (i, n), (j, d) in numbered if n * d <= LARGEST)
    return [(n, d) for _, _, n, d in ordered]


def swept(
    table: Table, kept: Measurements, *, step: float, budget: float, methods: list[str] | None, quick: bool
) -> None:
    """Run the sweep and print a line a point; the notes get a summary of each method, the details all points."""
    wanted = [(100, 4), (200, 8)] if quick else points(step)
    for name in methods or sorted(entry.name for entry in mf.methods()):
        found = one_method(name, wanted, budget, kept)
        table.details.setdefault("sweep", {})[name] = found
        table.notes.append(summary(name, found, len(wanted)))


def summary(name: str, found: list[list[Any]], wanted: int) -> str:
    """Return a sentence on the points of a method."""
    ended = [point for point in found if point[2] != "stopped"]
    if not found:
        return f"sweep, {name}: not run"
    if not ended:
        return f"sweep, {name}: no point within {LIMIT:.0f} CPU s"
    ratio, n, d = max((seconds / forecast, n, d) for n, d, _, _, seconds, forecast in ended)
    beyond = sum(seconds > 2 * forecast for *_, seconds, forecast in ended)
    slowest = max(ended, key=lambda point: point[4])
    long = [point for point in found if point[0] <= SMALL[0] and point[1] <= SMALL[1] and point[4] > QUICK]
    return (
        f"sweep, {name}: {len(ended)} of {wanted} points, {len(found) - len(ended)} stopped after {LIMIT:.0f} CPU s; "
        f"{beyond} above twice the forecast, worst {ratio:.2g} times at {n} × {d}; slowest {slowest[4]:.2g} s at "
        f"{slowest[0]} × {slowest[1]}; {len(long)} above {QUICK:.0f} s up to {SMALL[0]} × {SMALL[1]}"
    )


def one_method(name: str, wanted: list[tuple[int, int]], budget: float, kept: Measurements) -> list[list[Any]]:
    """Return [n, d, representation, rank, CPU s, forecast s] of points measured in one warm process, or kept."""
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    found: list[list[Any]] = []
    if kept.complete:
        keys = (["sweep", name, n, d] for n, d in wanted)
        return sorted(kept.get(key, list) for key in keys if key in kept)
    worker = subprocess.Popen(
        [sys.executable, "-P", "-c", WORKER, name, f"{LIMIT:.1f}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **threads},
    )
    assert worker.stdin is not None
    assert worker.stdout is not None
    spent = 0.0
    for n, d in wanted:
        if any(point[2] == "stopped" and point[0] <= n and point[1] <= d for point in found):
            continue
        key = ["sweep", name, n, d]
        if key not in kept:
            if spent > budget:
                continue
            worker.stdin.write(f"{n} {d}\n")
            worker.stdin.flush()
            point = json.loads(worker.stdout.readline())
            kept.add(key, point)
            spent += point[4]
            _, _, representation, rank, seconds, forecast = point
            ratio = f"forecast {forecast:.3g} s  ratio {seconds / forecast:.2g}" if forecast else ""
            print(f"{name}  {n} × {d}  {representation} {rank}  {seconds:.3g} s  {ratio}", file=sys.stderr, flush=True)
        found.append(kept.get(key, list))
    worker.stdin.close()
    worker.wait()
    return sorted(found)
