"""The index of a metric's rows: recall, time of one query and of 2,000, against comparing every pair.

Rows: 100 Gaussian clusters as wide as the distance of their centres, 1,000 clusters half as wide, and one Gaussian
without any structure, the worst case of every index.  All pairs: the exact search of the library, of the same rows and
queries in the same run.  FAISS: an inverted file of √n lists, of which the fewest are searched that reach the recall,
in an environment of its own, where it can be installed.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from metricforge import neighbors
from metricforge.neighbors.index import build, opened

from .graph_scale import mixture
from .retrieval_peers import environment
from .run import Table

QUERIES = 2000
ROWS = {"100 wide clusters": (100, 1.0), "1,000 clusters": (1000, 2.0), "no structure": (1, 0.0)}

FAISS = r"""
import json, sys, time
import faiss, numpy as np
faiss.omp_set_num_threads(1)
folder, k = sys.argv[1], 10
Z, Q, near = (np.load(f"{folder}/{name}.npy") for name in ("Z", "Q", "near"))
def spent(call):
    start = time.process_time()
    call()
    return time.process_time() - start
lists = int(len(Z) ** 0.5)
index = faiss.IndexIVFFlat(faiss.IndexFlatL2(Z.shape[1]), Z.shape[1], lists)
build = spent(lambda: (index.train(Z[: 64 * lists]), index.add(Z)))
probes, recall = 0, 0.0
while recall < 0.95 and probes < lists:
    probes = max(probes + 1, int(1.15 * probes))
    index.nprobe = min(probes, lists)
    found = index.search(Q[: len(near)], k)[1]
    recall = float(np.mean([len(set(a) & set(b)) for a, b in zip(found.tolist(), near.tolist())]) / k)
single = float(np.median([spent(lambda: index.search(q[None], k)) for q in Q[:100]]))
print(json.dumps([build, recall, 1e3 * single, min(spent(lambda: index.search(Q, k)) for _ in range(5))]))
"""


def run(quick: bool = False) -> Table:
    from threadpoolctl import threadpool_limits

    columns = ["rows", "n", "cells searched", "build s", "open ms", "recall@10", "one query ms", "2,000 queries s"]
    table = Table([*columns, "all pairs / index", *(f"FAISS {name}" for name in columns[3:] if name != "open ms")])
    n = 5000 if quick else 1_000_000
    with threadpool_limits(1), tempfile.TemporaryDirectory() as folder:
        for name, about in ROWS.items():
            table.add(name, n, *measure(n, about, Path(folder)))
    table.notes += [
        "target: recall@10 >= 0.95, one query <= 5 ms, 2,000 queries >= 50 times as fast as comparing every pair",
        "CPU time on one thread: median of 100 single queries, best of 5 batches, one exact search of all 2,000 "
        "queries; recall on these; 32 columns in float32, memory-mapped from a folder",
    ]
    return table


def measure(n: int, about: tuple[int, float], folder: Path) -> tuple[Any, ...]:
    """Return the cells of one set of rows for a table."""
    X = mixture(n + QUERIES, 32, *about)
    Z, Q, where = X[:n], X[n:], folder / "rows.index"
    made = best(lambda: build(Z, folder=where), 1)
    open_s = best(lambda: opened(where), 3)
    index = opened(where)[0]
    index.search(Q[:5], 10)
    single = float(np.median([best(lambda q=q: index.search(q[None], 10), 1) for q in Q[:100]]))
    many = best(lambda: index.search(Q, 10), 5)
    start = time.process_time()
    near = neighbors.search(Z, 10, queries=Q, method="exact")[0]
    full = time.process_time() - start
    found = index.search(Q, 10)[0]
    recall = float(np.mean([len(set(a) & set(b)) for a, b in zip(found.tolist(), near.tolist(), strict=True)]) / 10)
    probes = f"{index.probes} of {index.cells.count}"
    return probes, made, 1e3 * open_s, recall, 1e3 * single, many, full / many, *faiss(Z, Q, near, folder)


def faiss(Z: np.ndarray, Q: np.ndarray, near: np.ndarray, folder: Path) -> tuple[Any, ...]:
    """Return the cells of FAISS, dashes if it cannot be installed; its recall is measured on 500 queries."""
    python = environment("faiss", "faiss-cpu")
    if python is None:
        return ("-",) * 4
    for name, array in (("Z", Z), ("Q", Q), ("near", near[:500])):
        np.save(folder / f"{name}.npy", array)
    one = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([str(python), "-c", FAISS, str(folder)], capture_output=True, text=True, check=True, env=one)
    return tuple(json.loads(done.stdout))


def best(call: Any, repeats: int) -> float:
    """Return the shortest CPU time of several calls."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return min(times)
