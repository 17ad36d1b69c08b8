"""The index of a metric's rows: recall, time of one query and of 2,000, against comparing every pair.

Rows: 100 Gaussian clusters as wide as the distance of their centres, 1,000 clusters half as wide, and one Gaussian
without any structure, the worst case of every index.  All pairs: the exact search of the library, of the same rows and
queries in the same run.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from metricforge import neighbors
from metricforge.neighbors.index import build, opened

from .graph_scale import mixture
from .run import Table

QUERIES = 2000
ROWS = {"100 wide clusters": (100, 1.0), "1,000 clusters": (1000, 2.0), "no structure": (1, 0.0)}


def run(quick: bool = False) -> Table:
    from threadpoolctl import threadpool_limits

    columns = ["rows", "n", "cells searched", "build s", "open ms", "recall@10", "one query ms", "2,000 queries s"]
    table = Table([*columns, "all pairs / index"])
    n = 5000 if quick else 1_000_000
    with threadpool_limits(1), tempfile.TemporaryDirectory() as folder:
        for name, about in ROWS.items():
            table.add(name, n, *measure(n, about, Path(folder) / "rows.index"))
    table.notes += [
        "target: recall@10 >= 0.95, one query <= 5 ms, 2,000 queries >= 50 times as fast as comparing every pair",
        "CPU time on one thread: median of 100 single queries, best of 5 batches, one exact search of all 2,000 "
        "queries; 32 columns in float32, memory-mapped from a folder",
    ]
    return table


def measure(n: int, about: tuple[int, float], where: Path) -> tuple[Any, ...]:
    """Return the cells of one set of rows for a table."""
    X = mixture(n + QUERIES, 32, *about)
    Z, Q = X[:n], X[n:]
    where.parent.mkdir(exist_ok=True)
    made = best(lambda: build(Z, folder=where), 1)
    open_s = best(lambda: opened(where), 3)
    index = opened(where)[0]
    index.search(Q[:5], 10)
    single = float(np.median([best(lambda q=q: index.search(q[None], 10), 1) for q in Q[:100]]))
    many = best(lambda: index.search(Q, 10), 5)
    full = best(lambda: neighbors.search(Z, 10, queries=Q, method="exact"), 1)
    found = neighbors.recall(index.search(Q, 10)[0], Z, queries=Q, sample=500)
    probes = f"{index.probes} of {index.cells.count}"
    return probes, made, 1e3 * open_s, found, 1e3 * single, many, full / many


def best(call: Any, repeats: int) -> float:
    """Return the shortest CPU time of several calls."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times)
