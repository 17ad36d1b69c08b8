"""Neighbour lists by cells: recall, and CPU time as the number of rows grows, against comparing all pairs.

k = 20 and recall=0.95.  The exhaustive time is that of 500 queries, scaled to all rows; the exponent is that of the CPU
time between this size and the previous one of the same rows.
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np

import metricforge as mf
from metricforge import neighbors

from .run import Table


def mixture(n: int, d: int) -> Any:
    """Return float32 rows of 100 Gaussian clusters whose centres have the spread of a cluster."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((100, d))
    return (centres[rng.integers(100, size=n)] + rng.standard_normal((n, d))).astype(np.float32)


def sets(quick: bool) -> Any:
    """Yield (name, rows)."""
    if quick:
        yield "mixture, 8 columns", mixture(6000, 8)
        return
    for name, loaded in (("MNIST", "mnist"), ("Adult, binary", "a9a")):
        try:
            X = mf.datasets.load(loaded)[0]
        except mf.errors.InputError:
            continue  # the data are not here
        yield name, np.asarray(X.toarray() if hasattr(X, "toarray") else X)
    for d in (16, 64):
        for n in (62_500, 250_000):
            yield f"mixture, {d} columns", mixture(n, d)


def run(quick: bool = False) -> Table:
    table = Table(["rows", "n", "d", "recall estimated", "recall measured", "CPU s", "all pairs / cells", "exponent"])
    before: dict[str, tuple[int, float]] = {}
    for name, X in sets(quick):
        n, d = X.shape
        start = time.process_time()
        (indices, _), estimate = neighbors.search_with_recall(X, 20, method="cells")
        spent = time.process_time() - start
        start = time.process_time()
        neighbors.search(X, 20, queries=X[:500], method="exact")
        full = (time.process_time() - start) * n / 500
        measured = neighbors.recall(indices, X, sample=500, seed=9)
        exponent = "-"
        if name in before:
            m, earlier = before[name]
            exponent = f"{math.log(spent / earlier) / math.log(n / m):.2f}"
        before[name] = n, spent
        table.add(name, n, d, estimate, measured, spent, full / spent, exponent)
    table.notes.append("one BLAS thread, CPU time; recall measured on 500 rows by comparing all")
    return table
