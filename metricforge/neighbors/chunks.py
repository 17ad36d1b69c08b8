"""Nearest neighbours of dask rows: each chunk is searched for each chunk of queries, and the lists are merged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..rows import FAN_IN, as_dask, count, cross, limit_chunks
from .checking import check_k
from .contract import Found


def across(find: Callable[..., Found], X: Any, k: int, *, queries: Any | None = None) -> Found:
    """Find the k nearest rows of dask rows X by searching each chunk for each chunk of the queries.

    Parameters
    ----------
    find : callable
        ``find(x, k, queries=q)`` returns what `search` returns for one chunk of X and one chunk of queries (None: the
        chunk itself, whose rows do not find themselves).  It must be picklable.
    X, k, queries
        As in `search`; at least one of X and queries is a dask array, the other may be in memory.

    Returns
    -------
    indices, distances : lazy (q, k) dask arrays
        With the chunks of the queries.

    Notes
    -----
    One task per pair of chunks.  Chunks of X and lists of k neighbours move between workers.
    """
    k = check_k(k, count(X), exclude_self=queries is None)
    X = as_dask(X)
    Q = X if queries is None else as_dask(queries)
    if X.numblocks[0] > 1:
        Q = limit_chunks(Q, 16 * k * FAN_IN)  # lists that one task merges
    if queries is None:
        X = Q  # equal chunks, so that a row is compared with itself only where a chunk is compared with itself
    shard = _Shard(find, k, itself=queries is None)
    indices, distances = cross(shard, partial(_merged, k=k), Q, X, ((k, np.int64), (k, np.float64)))
    return indices, distances


@dataclass(frozen=True)
class _Shard:
    """The search of one chunk of rows for one chunk of queries; indices are row numbers of the whole array."""

    find: Callable[..., Found]
    k: int
    itself: bool

    def __call__(self, Q: Any, X: Any, q_rows: range, x_rows: range) -> Found:
        same = self.itself and q_rows == x_rows
        k = min(self.k, count(X) - same)
        if k == 0:
            return np.empty((count(Q), 0), dtype=np.int64), np.empty((count(Q), 0))
        indices, distances = self.find(X, k, queries=None if same else Q)
        return indices + x_rows.start, distances


def _merged(found: list[Found], k: int) -> Found:
    """Merge lists of neighbours: the k least by (distance, index)."""
    indices, distances = (np.concatenate(parts, axis=1) for parts in zip(*found, strict=True))
    order = np.lexsort((indices, distances), axis=1)[:, :k]
    return np.take_along_axis(indices, order, axis=1), np.take_along_axis(distances, order, axis=1)
