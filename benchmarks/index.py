"""The index of a metric's rows: recall, time of one query and of 2,000, against comparing every pair."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np

from metricforge import neighbors
from metricforge.neighbors.index import build, opened

from .graph_scale import mixture
from .run import Table


def run(quick: bool = False) -> Table:
    columns = ["rows", "d", "build s", "open ms", "recall@10", "one query ms", "2,000 queries s", "all pairs / index"]
    table = Table(columns)
    for n in (5000,) if quick else (100_000, 1_000_000):
        X = mixture(n + 2000, 32)
        Z, Q = X[:n], X[n:]
        with tempfile.TemporaryDirectory() as folder:
            where = Path(folder) / "rows.index"
            start = time.process_time()
            build(Z, folder=where)
            made = time.process_time() - start
            start = time.process_time()
            index = opened(where)[0]
            open_s = time.process_time() - start
            single = []
            for i in range(50):
                start = time.process_time()
                index.search(Q[i : i + 1], 10)
                single.append(time.process_time() - start)
            start = time.process_time()
            indices, _ = index.search(Q, 10)
            many = time.process_time() - start
            start = time.process_time()
            neighbors.search(Z, 10, queries=Q[:500], method="exact")
            full = 4 * (time.process_time() - start)
            found = neighbors.recall(indices, Z, queries=Q, sample=500)
            table.add(n, 32, made, 1e3 * open_s, found, 1e3 * float(np.median(single)), many, full / many)
    table.notes.append("target: recall@10 >= 0.95, one query <= 5 ms, 2,000 queries >= 50 times as fast as all pairs")
    table.notes.append(
        "CPU time on one thread; all pairs: the exact search of 500 queries, times 4; rows memory-mapped"
    )
    return table
