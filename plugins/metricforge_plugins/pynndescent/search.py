"""Approximate search by NN-descent.  This is the only file that imports pynndescent."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from metricforge.neighbors.contract import Array, Found
from metricforge.neighbors.exhaustive import complete, rank_into
from metricforge.neighbors.partition import PLAIN
from metricforge.neighbors.scanning import largest, row_blocks
from metricforge.rows import is_sparse

_LISTED = 16
"""Fewest neighbours in a list.  Descent follows its own lists: recall at k = 1 is 0.95 with 2 entries, 1.00 with 16."""
SECONDS = 45.0
"""Time on one core in a new process: 33 s to compile, 2 to import, 4 to 10 to run."""


def descent(X: Any, k: int, *, queries: Any | None = None, seed: int = 0) -> Found:
    """Search approximately by NN-descent; the parameters are those of `metricforge.neighbors.search`.

    Distances of the rows found are exact.  Queries with fewer than k neighbours are searched exactly.
    """
    import numba
    from pynndescent import NNDescent

    Q = X if queries is None else queries
    n, q = X.shape[0], Q.shape[0]
    own = np.arange(n) if queries is None else None
    centre = X.mean(axis=0, dtype=np.float64) if not is_sparse(X) else None
    scale = largest(X if centre is None else np.stack((X.max(axis=0), X.min(axis=0))) - centre) or 1.0
    listed = min(n, max(k + 1, _LISTED))
    threads = numba.get_num_threads()
    try:
        with warnings.catch_warnings():
            # The warning is about missing neighbours, which `complete` finds.
            warnings.filterwarnings("ignore", message="Failed to correctly find", category=UserWarning)
            index = NNDescent(
                _single(X, centre, scale),
                n_neighbors=listed,
                random_state=int(np.random.default_rng(seed).integers(2**31)),
                n_jobs=1,  # with more threads the answer depends on their timing
            )
            answer = index.neighbor_graph if own is not None else index.query(_single(Q, centre, scale), listed)
    finally:
        numba.set_num_threads(threads)
    candidates: Array = answer[0]
    found = np.empty((q, k), dtype=np.int64), np.empty((q, k))
    rows = np.arange(q)
    parts = row_blocks(q, candidates.shape[1])
    short = [rank_into(found, X, Q, rows[part], candidates[part], np.inf, own) for part in parts]
    return complete(found, X, Q, np.concatenate(short), own, "pynndescent")


def _single(X: Any, centre: Array | None, scale: float) -> Any:
    """Return (X - centre) / scale in float32; in rows far from 0, rounding would erase the differences otherwise."""
    if centre is None:
        return (X / scale).astype(np.float32)
    out = np.empty(X.shape, dtype=np.float32)
    for part in row_blocks(X.shape[0], X.shape[1]):
        out[part] = (X[part] - centre) / scale
    return out


def _forecast(X: Any, recall: float) -> float:
    """Return the expected seconds; only among wide sparse rows do cells tell rows apart less well."""
    return SECONDS if is_sparse(X) and X.shape[1] > PLAIN else np.inf


descent.forecast = _forecast  # type: ignore[attr-defined]
descent.whole_rows = True  # type: ignore[attr-defined]  # on dask all rows are in one chunk
