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

ROWS, COLUMNS = (100, 10_000), (4, 4096)
LARGEST = 50e6
"""Cells of the largest table of the grid."""

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


def swept(table: Table, *, step: float, limit: float, methods: list[str] | None, quick: bool) -> None:
    """Run the sweep and print a line a point; the notes get a summary of each method, the details all points."""
    names = methods or sorted(entry.name for entry in mf.methods())
    rows, columns = (grid((100, 200), 2), grid((4, 8), 2)) if quick else (grid(ROWS, step), grid(COLUMNS, step))
    points = [(n, d) for n, d in itertools.product(rows, columns) if n * d <= LARGEST]
    for name in names:
        found = one_method(name, points, limit)
        table.details.setdefault("sweep", {})[name] = found
        ended = [point for point in found if point[2] != "stopped"]
        ratios = sorted((seconds / forecast, n, d) for n, d, _, _, seconds, forecast in ended)
        slowest = max(ended, key=lambda point: point[4], default=None)
        if not ratios or slowest is None:
            table.notes.append(f"sweep, {name}: no point within {limit:.0f} CPU s")
            continue
        beyond = sum(ratio > 2 for ratio, _, _ in ratios)
        worst, n, d = ratios[-1]
        table.notes.append(
            f"sweep, {name}: {len(ended)} of {len(points)} points within {limit:.0f} CPU s; {beyond} above twice the "
            f"forecast, worst {worst:.2g} times at {n} × {d}; slowest {slowest[4]:.2g} s at {slowest[0]} × {slowest[1]}"
        )


def one_method(name: str, points: list[tuple[int, int]], limit: float) -> list[list[Any]]:
    """Return [n, d, representation, rank, CPU s, forecast s] of every point, in one warm process."""
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    command = [sys.executable, "-P", "-c", WORKER, name, f"{limit:.1f}"]
    text = "".join(f"{n} {d}\n" for n, d in points)
    done = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **threads}
    )
    assert done.stdin is not None
    assert done.stdout is not None
    done.stdin.write(text)
    done.stdin.close()
    found = []
    for line in done.stdout:
        point = json.loads(line)
        found.append(point)
        n, d, representation, rank, seconds, forecast = point
        ratio = f"forecast {forecast:.3g} s  ratio {seconds / forecast:.2g}" if forecast else ""
        print(f"{name}  {n} × {d}  {representation} {rank}  {seconds:.3g} s  {ratio}", file=sys.stderr, flush=True)
    done.wait()
    return found
