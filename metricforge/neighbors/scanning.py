"""Select the k least keys per query from tiles of values, with one tile and the lists in memory, never q × n."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from ..checks import first_rows
from ..errors import InputError
from .contract import Array, DistanceBlock, Found

FIRST_COLUMNS = 256
"""Columns of the first tile, from which the first bounds are selected."""


class Source(Protocol):
    """The input of `scan`: tiles of values, and the keys by which pairs are ranked.

    Attributes
    ----------
    exact : bool
        Whether values determine keys.  Otherwise a value is a lower bound, and ``keys`` computes the distance.
    """

    exact: bool

    def tile(self, q0: int, q1: int, c0: int, c1: int) -> Array:
        """Return the (q1 - q0, c1 - c0) values of queries ``q0:q1`` and rows ``c0:c1``; `scan` may write to it."""

    def keys(self, rows: Array, cols: Array, values: Array) -> Array:
        """Return the keys of pairs (query, row), given their values."""

    def reach(self, rows: Array, keys: Array) -> Array:
        """Return for each query the largest value that a pair with a key of at most ``keys`` can have."""


class GivenDistances:
    """Distances computed by the user's function; value and key are the distance."""

    exact = True

    def __init__(self, distance_block: DistanceBlock) -> None:
        self.distance_block = distance_block

    def tile(self, q0: int, q1: int, c0: int, c1: int) -> Array:
        """Return a checked copy of the user's block."""
        tile = np.array(self.distance_block(q0, q1, c0, c1), dtype=np.float64, order="C")
        if tile.shape != (q1 - q0, c1 - c0):
            raise InputError(
                f"distance_block({q0}, {q1}, {c0}, {c1}) must have shape {(q1 - q0, c1 - c0)}, got {tile.shape}"
            )
        proper = (tile >= 0) & (tile < np.inf)
        if not proper.all():
            rows = np.flatnonzero(~proper.all(axis=1)) + q0
            raise InputError(
                f"distance_block returned negative, NaN or infinite distances of queries, in {first_rows(rows)}; "
                "distances must be finite and >= 0"
            )
        return tile

    def keys(self, rows: Array, cols: Array, values: Array) -> Array:
        """Return the values."""
        return values

    def reach(self, rows: Array, keys: Array) -> Array:
        """Return the keys."""
        return keys


def scan(source: Source, n: int, q: int, k: int, own: Array | None, rows: int, cols: int) -> Found:
    """Return indices and keys of the k least keys per query, sorted by (key, index).

    Parameters
    ----------
    source : Source
    n, q, k : int
        Numbers of rows, queries and neighbours.
    own : (q,) integers or None
        ``own[i]`` is the row that query i may not find.
    rows, cols : int
        Queries and rows of a tile.
    """
    indices = np.full((q, k), n, dtype=np.int64)
    keys = np.full((q, k), np.inf)
    for q0 in range(0, q, rows):
        part = slice(q0, min(q0 + rows, q))
        _scan_rows(source, q0, n, None if own is None else own[part], cols, indices[part], keys[part])
    return indices, keys


def _scan_rows(source: Source, q0: int, n: int, own: Array | None, cols: int, indices: Array, keys: Array) -> None:
    """Fill the lists of the queries from q0 on, in place.

    ``bound`` is the largest value with which a later column can still enter the list of a query.  A comparison costs a
    fifth of a selection, so only the first tiles, and those with many candidates, are partitioned.
    """
    b, k = indices.shape
    # The largest float, not infinity: an own entry (infinite) must fail the comparison.
    bound = np.full(b, np.finfo(np.float64).max)
    pending: list[tuple[Array, ...]] = []
    n_pending = 0
    c1 = 0
    while c1 < n:
        # Tiles double: twice the columns yield as many candidates again, so one small selection at the start suffices.
        c0, c1 = c1, min(n, c1 + min(cols, max(FIRST_COLUMNS, c1)))
        tile = source.tile(q0, q0 + b, c0, c1)  # (b, c)
        if own is not None:
            inside = np.flatnonzero((own >= c0) & (own < c1))
            tile[inside, own[inside] - c0] = np.inf
        hit = tile <= bound[:, None]
        tightened = np.empty(0, dtype=np.int64)
        if np.count_nonzero(hit) > 2 * k * b:
            tightened = _tighten(source, q0, c0, tile, hit, bound, k)
        flat = np.flatnonzero(hit)
        pending.append((flat // (c1 - c0), flat % (c1 - c0) + c0, tile.ravel()[flat]))
        if source.exact:
            # Among equal keys the smaller index wins, so later columns must be strictly less.
            bound[tightened] = np.nextafter(bound[tightened], -np.inf)
        n_pending += flat.size
        if n_pending > k * b or c1 == n:
            rows, columns, values = (np.concatenate(part) for part in zip(*pending, strict=True))
            _merge(indices, keys, rows, columns, source.keys(q0 + rows, columns, values))
            full = np.flatnonzero(np.isfinite(keys[:, -1]))
            bound[full] = source.reach(q0 + full, keys[full, -1])
            if source.exact:
                bound[full] = np.nextafter(bound[full], -np.inf)
            pending, n_pending = [], 0
            if not keys[:, -1].any():
                return  # k rows at distance 0: later ones have larger indices


def _tighten(source: Source, q0: int, c0: int, tile: Array, hit: Array, bound: Array, k: int) -> Array:
    """Lower the bounds of queries with many candidates to the k-th key in this tile; return these queries."""
    crowded = np.flatnonzero(hit.sum(axis=1) > 2 * k)
    rows = np.repeat(crowded, k)
    near = np.argpartition(tile[crowded], k - 1, axis=1)[:, :k].ravel()
    kth = source.keys(q0 + rows, c0 + near, tile[rows, near]).reshape(-1, k).max(axis=1)
    bound[crowded] = np.minimum(bound[crowded], source.reach(q0 + crowded, kth))
    hit[crowded] = tile[crowded] <= bound[crowded, None]
    return crowded


def _merge(indices: Array, keys: Array, rows: Array, cols: Array, new: Array) -> None:
    """Merge pairs (rows, cols) with keys ``new`` into the sorted lists, in place."""
    b, k = indices.shape
    # Lists first, then later columns in ascending order: a stable sort by (row, key) orders equal keys by index.
    all_rows = np.concatenate((np.repeat(np.arange(b), k), rows)).astype(np.int16)
    all_keys = np.concatenate((keys.ravel(), new))
    all_cols = np.concatenate((indices.ravel(), cols))
    order = np.lexsort((all_keys, all_rows))
    first = np.zeros(b, dtype=np.int64)
    np.cumsum(k + np.bincount(rows, minlength=b)[:-1], out=first[1:])
    best = order[first[:, None] + np.arange(k)]
    keys[:] = all_keys[best]
    indices[:] = all_cols[best]
