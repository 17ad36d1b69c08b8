"""Select the k least keys per query from tiles of values, with one tile and the lists in memory, never q × n."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from ..errors import InputError
from ..rows import beat
from ..validation import first_rows
from .contract import Array, DistanceBlock, Found

FIRST_COLUMNS = 512
"""Columns of the first tile, from which the first bounds are selected; of few queries it is wider."""
FIRST_ENTRIES = 16_384
FLOOD = 8
"""Candidates per neighbour wanted from which a source is asked for tighter values."""


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

    def below(self, values: Array) -> Array:
        """Return the largest values less than ``values``; called only if the source is exact."""

    def refine(self) -> bool:
        """Make later values tighter; return whether that is possible."""


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

    def below(self, values: Array) -> Array:
        """Return the next smaller floats."""
        return np.nextafter(values, -np.inf)

    def refine(self) -> bool:
        """Return False: distances are what they are."""
        return False


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
        for done in _scan_rows(source, q0, n, None if own is None else own[part], cols, indices[part], keys[part]):
            beat(q0 * n + (part.stop - q0) * done, q * n)
    return indices, keys


def _scan_rows(
    source: Source, q0: int, n: int, own: Array | None, cols: int, indices: Array, keys: Array
) -> Iterator[int]:
    """Fill the lists of the queries from q0 on, in place; yield how many rows they were compared with."""
    b = len(indices)
    lists = Lists(source, q0, indices, keys)
    everyone = np.arange(b)
    c1 = 0
    while c1 < n:
        # Tiles double: twice the columns yield as many candidates again, so one small selection at the start suffices.
        c0, c1 = c1, min(n, c1 + min(cols, max(FIRST_COLUMNS, FIRST_ENTRIES // b, c1)))
        tile = source.tile(q0, q0 + b, c0, c1)  # (b, c)
        if own is not None:
            inside = np.flatnonzero((own >= c0) & (own < c1))
            tile[inside, own[inside] - c0] = np.inf
        lists.offer(everyone, c0, tile)
        if c1 == n:
            lists.merge()
        yield c1
        if not keys[:, -1].any():
            return  # k rows at distance 0: later ones have larger indices


class Lists:
    """The nearest rows of a block of queries so far, and the candidates that are not yet merged into them.

    ``bound`` is the largest value with which a row can still enter the list of a query.  A comparison costs a fifth of
    a selection, so only the first tiles, and those with many candidates, are partitioned.

    Parameters
    ----------
    source : Source
    q0 : int
        Query i of the block is query ``q0 + i`` of the source.
    indices, keys : (b, k) arrays
        The lists, b < 2**15; filled in place and sorted by (key, index), the keys infinite at the start.
    numbers : (n,) int array, optional
        What to list for a row in place of its position.  Rows are then offered in any order; without numbers, in
        ascending order.
    """

    def __init__(self, source: Source, q0: int, indices: Array, keys: Array, numbers: Array | None = None) -> None:
        self.source, self.q0, self.indices, self.keys, self.numbers = source, q0, indices, keys, numbers
        # The largest float, not infinity: an own entry (infinite) must fail the comparison.
        self.bound = np.full(len(indices), np.finfo(np.float64).max)
        self.pending: list[tuple[Array, ...]] = []
        self.n_pending = self.measured = 0

    def offer(self, rows: Array, c0: int, tile: Array) -> None:
        """Add the candidates among the rows from c0 on, given their values (b', c) for the queries ``rows``."""
        b, k = self.indices.shape
        bound = _rounded_up(self.bound[rows], tile.dtype)
        hit = tile <= bound[:, None]
        tightened = np.empty(0, dtype=np.int64)
        if np.count_nonzero(hit) > 2 * k * len(rows) and tile.shape[1] > k:
            tightened = self._tighten(rows, c0, tile, hit)
        flat = np.flatnonzero(hit)
        where, columns = np.divmod(flat, tile.shape[1])
        self.pending.append((rows[where], columns + c0, tile.ravel()[flat]))
        if self.source.exact and self.numbers is None:
            # Among equal keys the smaller index wins, so later columns must be strictly less.
            self.bound[tightened] = self.source.below(self.bound[tightened])
        self.n_pending += flat.size
        if self.n_pending > k * b:
            self.merge()

    def merge(self) -> None:
        """Merge the candidates into the lists, and lower the bounds."""
        if not self.pending:
            return
        source, (b, k) = self.source, self.indices.shape
        rows, cols, values = (np.concatenate(part) for part in zip(*self.pending, strict=True))
        new = source.keys(self.q0 + rows, cols, values)
        near = np.flatnonzero(new <= self.keys[rows, -1])
        rows, cols, new = rows[near], cols[near], new[near]
        touched = _merge(self.indices, self.keys, rows, cols, new, self.numbers)
        self.pending, self.n_pending = [], 0
        self.measured += len(values)
        if self.measured > FLOOD * k * b and source.refine():
            touched = np.arange(b)
        full = touched[np.isfinite(self.keys[touched, -1])]
        self.bound[full] = source.reach(self.q0 + full, self.keys[full, -1])
        if source.exact and self.numbers is None:
            self.bound[full] = source.below(self.bound[full])

    def _tighten(self, rows: Array, c0: int, tile: Array, hit: Array) -> Array:
        """Lower the bounds of queries with many candidates to the k-th key in this tile; return these queries."""
        source, k = self.source, self.indices.shape[1]
        crowded = np.flatnonzero(hit.sum(axis=1) > 2 * k)
        who = np.repeat(crowded, k)
        near = np.argpartition(tile[crowded], k - 1, axis=1)[:, :k].ravel()
        values = tile[who, near]
        # an own row can be among the k nearest of a narrow tile; its query keeps its bound
        kth = np.full(len(who), np.inf)
        usable = np.flatnonzero(np.isfinite(values))
        kth[usable] = source.keys(self.q0 + rows[who[usable]], c0 + near[usable], values[usable])
        kth = kth.reshape(-1, k).max(axis=1)
        crowded, kth = crowded[np.isfinite(kth)], kth[np.isfinite(kth)]
        queries: Array = rows[crowded]
        self.bound[queries] = np.minimum(self.bound[queries], source.reach(self.q0 + queries, kth))
        hit[crowded] = tile[crowded] <= _rounded_up(self.bound[queries], tile.dtype)[:, None]
        if not source.exact:
            self._first_duplicates(rows, crowded[kth == 0], c0, tile, hit)
        return queries

    def _first_duplicates(self, rows: Array, places: Array, c0: int, tile: Array, hit: Array) -> None:
        """Drop all but the first candidates of queries that have k duplicates among these: columns ascend in number."""
        k = self.indices.shape[1]
        for part in np.array_split(places, -(-len(places) * hit.shape[1] // 2**20)) if len(places) else ():
            first: Array = hit[part] & (np.cumsum(hit[part], axis=1, dtype=np.int32) <= 2 * k)
            who, columns = np.nonzero(first)
            keys = self.source.keys(self.q0 + rows[part[who]], c0 + columns, tile[part[who], columns])
            enough = np.bincount(who[keys == 0], minlength=len(part)) >= k
            hit[part[enough]] = first[enough]


def _rounded_up(bound: Array, dtype: np.dtype[Any]) -> Array:
    """Return bounds in the precision of a tile, none of them lower and all finite."""
    if dtype == np.float64:
        return bound
    kind: Any = dtype.type
    most = np.nextafter(np.finfo(dtype).max, kind(0))
    return np.asarray(np.nextafter(np.minimum(bound, most).astype(dtype), kind(np.inf)))


def _merge(indices: Array, keys: Array, rows: Array, cols: Array, new: Array, numbers: Array | None) -> Array:
    """Merge pairs (rows, cols) with keys ``new`` into the sorted lists, in place; return the lists that changed."""
    b, k = indices.shape
    order = np.argsort(rows.astype(np.int16), kind="stable")  # a radix sort
    rows, new, cols = rows[order], new[order], cols[order]
    cols = cols if numbers is None else numbers[cols]
    counts = np.bincount(rows, minlength=b)
    place = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)  # of a pair among those of its list
    # At most k pairs of a list at a time: a list with many does not widen the table of all others.
    for first in range(0, int(counts.max(initial=0)), k):
        part = np.flatnonzero((place >= first) & (place < first + k)) if counts.max() > k else slice(None)
        lists = np.flatnonzero(counts > first)
        width = k + min(k, int(counts.max()) - first)
        all_keys = np.full((len(lists), width), np.inf)
        all_cols = np.full((len(lists), width), np.iinfo(np.int64).max)
        all_keys[:, :k], all_cols[:, :k] = keys[lists], indices[lists]
        at = np.searchsorted(lists, rows[part]), k + place[part] - first
        all_keys[at], all_cols[at] = new[part], cols[part]
        best = least(all_keys, all_cols, k)
        keys[lists] = np.take_along_axis(all_keys, best, axis=1)
        indices[lists] = np.take_along_axis(all_cols, best, axis=1)
    return np.flatnonzero(counts)


def least(keys: Array, cols: Array, k: int) -> Array:
    """Return the places of the k least entries of each row, sorted by (key, col)."""
    order = np.argsort(keys, axis=1)[:, : k + 1]
    found = np.take_along_axis(keys, order, axis=1)
    # an unstable sort is three times as fast, and ties are rare in real numbers
    tied = np.flatnonzero(((found[:, 1:] == found[:, :-1]) & np.isfinite(found[:, 1:])).any(axis=1))
    order = order[:, :k]
    if len(tied):
        order[tied] = np.lexsort((cols[tied], keys[tied]), axis=1)[:, :k]
    return order
