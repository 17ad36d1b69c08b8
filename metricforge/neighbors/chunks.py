"""Nearest neighbours of dask rows: each chunk is searched for each chunk of queries, and the lists are merged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..rows import FAN_IN, as_dask, cluster, count, cross, is_sparse, limit_chunks
from .approximate import without_itself
from .checking import check_k
from .contract import Found

JOINED_BYTES = 32 * 2**20
"""Chunks of the rows searched are joined up to this size: the search of a chunk has to find its own limits for
candidates, which takes a fifth of the time where a chunk has 10,000 rows."""
TASKS = 2
"""Chunks are joined as long as there remain so many searches per thread."""
BALANCED_TASKS = 4
"""Chunks of queries are split where there would be fewer searches per thread: one more on a worker takes long then."""
LEAST_QUERIES = 2048
"""Queries that a search should have."""


def across(
    find: Callable[..., Found], X: Any, k: int, *, queries: Any | None = None, join_chunks: bool = False
) -> Found:
    """Find the k nearest rows of dask rows X by searching each chunk for each chunk of the queries.

    Parameters
    ----------
    find : callable
        ``find(x, k, queries=q)`` returns what `search` returns for one chunk of X and one chunk of queries (None: the
        chunk itself, whose rows do not find themselves).  It must be picklable.
    X, k, queries
        As in `search`; at least one of X and queries is a dask array, the other may be in memory.
    join_chunks : bool
        Whether small chunks of dense rows may be searched together.

    Returns
    -------
    indices, distances : lazy (q, k) dask arrays
        With the chunks of the queries.

    Notes
    -----
    One task per pair of chunks; where these are few, the queries of a chunk are split among several.  Chunks of X and
    lists of k neighbours move between workers.
    """
    k = check_k(k, count(X), exclude_self=queries is None)
    X = as_dask(X)
    Q = X if queries is None else as_dask(queries)
    if X.numblocks[0] > 1:
        Q = limit_chunks(Q, 16 * k * FAN_IN)  # lists that one task merges
    if queries is None:
        X = Q  # a chunk of queries is then a chunk of rows, or inside one
    asked = Q
    if join_chunks and X.ndim == 2 and not is_sparse(X._meta):
        X = _joined(X, Q.numblocks[0])
        asked = _split(Q, X.numblocks[0])
    find_all = _Neighbors(find, k, itself=queries is None)
    indices, distances = cross(find_all, partial(_merged, k=k), asked, X, ((k, np.int64), (k, np.float64)))
    return indices.rechunk({0: Q.chunks[0]}), distances.rechunk({0: Q.chunks[0]})


@dataclass(frozen=True)
class _Neighbors:
    """The search of one chunk of rows for one chunk of queries; indices are row numbers of the whole array."""

    find: Callable[..., Found]
    k: int
    itself: bool

    def __call__(self, Q: Any, X: Any, q_rows: range, x_rows: range) -> Found:
        inside = self.itself and x_rows.start <= q_rows.start and q_rows.stop <= x_rows.stop
        k = min(self.k, count(X) - inside)
        if k == 0:
            return np.empty((count(Q), 0), dtype=np.int64), np.empty((count(Q), 0))
        if inside and q_rows != x_rows:  # one more, because each row finds itself
            own = np.arange(q_rows.start, q_rows.stop) - x_rows.start
            indices, distances = without_itself(*self.find(X, k + 1, queries=Q), own)
        else:
            indices, distances = self.find(X, k, queries=None if inside else Q)
        return indices + x_rows.start, distances


def _joined(X: Any, searches: int) -> Any:
    """Return X with neighbouring chunks joined, each of which is searched for ``searches`` chunks of queries."""
    n, d = X.shape
    least = -(-TASKS * cluster.threads() // searches)  # so many chunks must remain
    most = min(JOINED_BYTES // max(1, X.dtype.itemsize * d), -(-n // least))
    sizes: list[int] = []
    for size in X.chunks[0]:
        if sizes and sizes[-1] + size <= most:
            sizes[-1] += size
        else:
            sizes.append(size)
    return X if len(sizes) == X.numblocks[0] else X.rechunk({0: tuple(sizes)})


def _split(Q: Any, searches: int) -> Any:
    """Return queries with chunks split into equal parts, each of which is searched in ``searches`` chunks of rows."""
    parts = -(-BALANCED_TASKS * cluster.threads() // (searches * Q.numblocks[0]))
    sizes: list[int] = []
    for size in Q.chunks[0]:
        pieces = max(1, min(parts, size // LEAST_QUERIES))
        sizes += [size // pieces + (i < size % pieces) for i in range(pieces)]
    return Q if len(sizes) == Q.numblocks[0] else Q.rechunk({0: tuple(sizes)})


def _merged(found: list[Found], k: int) -> Found:
    """Merge lists of neighbours: the k least by (distance, index)."""
    indices, distances = (np.concatenate(parts, axis=1) for parts in zip(*found, strict=True))
    order = np.lexsort((indices, distances), axis=1)[:, :k]
    return np.take_along_axis(indices, order, axis=1), np.take_along_axis(distances, order, axis=1)
