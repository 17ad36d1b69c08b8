"""The first call of every method over a grid of rows and columns: CPU time against the forecast.

One warm process measures all points of a method.  It forecasts a fit before it runs it, and stops it only beyond
`PATIENCE` times the forecast, so that a fit that was stopped is known to be above twice the forecast.  Progress is
measured as well: the longest time without an event, from the call to its return.
"""

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
LEAST_LIMIT, PATIENCE = 12.0, 2.5
"""A fit is stopped after so many CPU seconds, or after so many times its forecast, whichever is more."""
LINES = (1000, 30)
"""Rows and columns near which the lines of the grid are measured first."""
SMALL, QUICK = (3000, 100), 5.0
"""No default fit on tables up to this size should take more CPU seconds than this."""
STILL = 2.0
"""CPU seconds without an event of progress that are too long."""

WORKER = """
import json, signal, sys, time, warnings
import numpy as np
import metricforge as mf
from metricforge import join
from metricforge.plans import resolve
from metricforge.registry import hookimpl
from metricforge.space import Size
warnings.simplefilter("ignore")
method, least, patience = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
plan = resolve(method, None)
kind = plan.method.constraint

class Stopped(Exception):
    pass

def stop(*_):
    raise Stopped

signal.signal(signal.SIGPROF, stop)  # after so many CPU seconds

class Silence:
    "The longest CPU time without an event."
    def start(self):
        self.last, self.longest = time.process_time(), 0.0

    @hookimpl
    def metricforge_step(self, event):
        self.heard()

    def heard(self):
        now = time.process_time()
        self.last, self.longest = now, max(self.longest, now - self.last)

silence = Silence()
silence.start()
mf.register(silence, name="silence")

def table(n, d):
    rng = np.random.default_rng(0)
    y = np.arange(n) % 4
    X = rng.normal(size=(n, d))
    X[np.arange(n), y] += 2
    labels = mf.Labels(y)
    if kind is mf.Targets:
        return X, mf.Targets(X[:, 0] + y)
    return X, labels if kind in (mf.Labels, mf.Chunklets) else labels.to(kind, seed=0)

def forecast(X, hints):
    usable = join.relations(hints, len(X), plan.solver.accepts, seed=0, kind=kind).usable
    space = join.make_space(plan.kernel, X, "auto", seed=0, method=plan.method, constraint=usable)
    size = Size(*X.shape, space.rank, usable.size, space.representation, type(usable))
    return space.representation, space.rank, plan.method.forecast(size)

def fit(X, hints, limit):
    signal.setitimer(signal.ITIMER_PROF, limit)
    started = time.process_time()
    silence.start()
    try:
        report = mf.learn(X, hints, method=method).report
        silence.heard()
    except Stopped:
        return "stopped", limit, silence.longest, 0
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return report.status, time.process_time() - started, silence.longest, report.n_iter

fit(*table(100, 4), 1e6)
fit(*table(300, 40), 1e6)
for line in sys.stdin:
    n, d = map(int, line.split())
    X, hints = table(n, d)
    representation, rank, expected = forecast(X, hints)
    found = fit(X, hints, max(least, patience * expected))
    if found[1] < 0.5 and found[1] > expected:  # a short time may be that of another process on the core
        found = min(found, fit(X, hints, least), key=lambda run: run[1])
    status, seconds, still, steps = found
    result = dict(n=n, d=d, representation=representation, rank=rank, status=status, steps=steps)
    print(json.dumps({**result, "seconds": seconds, "forecast": expected, "silence": still}), flush=True)
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
    return [*((n, d) for _, _, n, d in ordered), SMALL]


def swept(
    table: Table, kept: Measurements, *, step: float, methods: list[str] | None, quick: bool, points_each: int | None
) -> None:
    """Run the sweep and print a line a point; the notes get a summary of each method, the details all points."""
    grid = [(100, 4), (200, 8)] if quick else points(step)
    wanted = grid[:points_each]
    kept_points: list[dict[str, Any]] = []
    chosen = methods or sorted(entry.name for entry in mf.methods())
    for name in chosen:
        one_method(name, wanted, kept)
        found = [kept.get(key, dict) for n, d in sorted(grid) if (key := ["sweep", name, n, d]) in kept]
        kept_points += found
        columns = {key: [point[key] for point in found] for key in found[0]} if found else {}
        table.details.setdefault("sweep", {})[name] = columns
        table.notes.append(summary(name, found, len(grid)))
    table.notes.append(total(kept_points, len(grid) * len(chosen)))


def total(found: list[dict[str, Any]], wanted: int) -> str:
    """Return a sentence on the points of all methods."""
    beyond = sum(point["seconds"] > 2 * point["forecast"] for point in found)
    still = sum(point["silence"] > STILL for point in found)
    return (
        f"sweep, all methods: {len(found)} of {wanted} points of the grid were measured, in {_sum(found):.0f} CPU s; "
        f"{beyond} above twice the forecast, {still} without progress for more than {STILL:.0f} s"
    )


def _sum(found: list[dict[str, Any]]) -> float:
    return float(sum(point["seconds"] for point in found))


def summary(name: str, found: list[dict[str, Any]], wanted: int) -> str:
    """Return a sentence on the points of a method."""
    if not found:
        return f"sweep, {name}: not run"
    worst = max(found, key=lambda point: point["seconds"] / point["forecast"])
    beyond = sum(point["seconds"] > 2 * point["forecast"] for point in found)
    slowest = max(found, key=lambda point: point["seconds"])
    still = max(found, key=lambda point: point["silence"])
    long = sum(p["n"] <= SMALL[0] and p["d"] <= SMALL[1] and p["seconds"] > QUICK for p in found)
    stopped = sum(point["status"] == "stopped" for point in found)
    return (
        f"sweep, {name}: {len(found)} of {wanted} points{f', {stopped} stopped' if stopped else ''}; "
        f"{beyond} above twice the forecast, worst {worst['seconds'] / worst['forecast']:.2g} times at {_size(worst)}; "
        f"slowest {_took(slowest)}; {long} above {QUICK:.0f} s up to {SMALL[0]} × {SMALL[1]}; longest time without "
        f"progress {still['silence']:.2g} s at {_size(still)}"
    )


def _size(point: dict[str, Any]) -> str:
    return f"{point['n']} × {point['d']}"


def _took(point: dict[str, Any]) -> str:
    return f"{point['seconds']:.2g} s (forecast {point['forecast']:.2g}) at {_size(point)}"


def one_method(name: str, wanted: list[tuple[int, int]], kept: Measurements) -> None:
    """Measure the points of a method that are not kept, in one warm process."""
    missing = [(n, d) for n, d in wanted if ["sweep", name, n, d] not in kept]
    if missing and not kept.complete:
        for point in measured(name, missing):
            kept.add(["sweep", name, point["n"], point["d"]], point)
            print(_line(name, point), file=sys.stderr, flush=True)


def measured(name: str, wanted: list[tuple[int, int]]) -> Any:
    """Yield points of a method as they are measured, in one process."""
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    command = [sys.executable, "-P", "-c", WORKER, name, f"{LEAST_LIMIT}", f"{PATIENCE}"]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env={**os.environ, **threads}, **pipes) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        for n, d in wanted:
            worker.stdin.write(f"{n} {d}\n")
            worker.stdin.flush()
            yield json.loads(worker.stdout.readline())
        worker.stdin.close()


def _line(name: str, point: dict[str, Any]) -> str:
    ratio = point["seconds"] / point["forecast"]
    marks = " ABOVE" * (ratio > 2) + " STILL" * (point["silence"] > STILL)
    what = f"{name}  {_size(point)}  {point['representation']} {point['rank']}  {point['status']}"
    times = f"{point['seconds']:.3g} s  forecast {point['forecast']:.3g} s  ratio {ratio:.2g}"
    return f"{what}  {times}  silence {point['silence']:.2g} s{marks}"
