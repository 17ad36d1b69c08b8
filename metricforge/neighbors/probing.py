"""Search the rows of a few cells per query: the nearest of the rows in those cells, exactly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..rows import beat, is_sparse
from . import scanning
from .contract import Array, Found
from .scanning import (
    Lists,
    k_least,
    kept_share,
    left_operand,
    multiplies_dense,
    operands,
    pair_distances,
    right_operand,
    smallest,
    takes_single,
)

QUERIES = 2**15 - 1
"""Queries whose lists are filled at a time: less than 2**15."""
STAGE = 6
"""Each stage of a search ends at that many times as many cells as the stage before."""
COLUMNS = 2048
"""Rows of a cell compared at a time."""


@dataclass(frozen=True, eq=False)
class Members:
    """Rows in the order of their cells.

    Attributes
    ----------
    rows : (n, d) array or csr_array, or (n, words) uint64 array of packed bits
    numbers : (n,) int array
        The number of each row, ascending within a cell.
    starts : (C + 1,) int array
        The rows of cell c are ``starts[c]:starts[c + 1]``.
    """

    rows: Any
    numbers: Array
    starts: Array


def probe(Q: Any, probes: Array, members: Members, k: int, own: Array | None = None) -> Found:
    """Return the k rows nearest to each query among those in its cells, sorted by (distance, number).

    Parameters
    ----------
    Q : (q, d), of the same kind as the rows of members
    probes : (q, p) int array
        The cells to search for each query, each once; -1 for none.  The first should be the nearest.
    members : Members
    k : int
    own : (q,) int array, optional
        The number that a query may not find.

    Returns
    -------
    indices, distances : (q, k) arrays
        -1 and infinity where the cells of a query have fewer than k rows.

    Notes
    -----
    The answer for a query does not depend on the other queries, nor on the order of its cells.  Time: one product and
    one comparison per pair.  Memory: a tile, and 40 bytes per neighbour of 16384 queries.
    """
    if members.rows.dtype == np.uint64:
        return _probe_packed(Q, probes, members, k, own)
    q = Q.shape[0]
    indices, distances = np.full((q, k), -1, dtype=np.int64), np.full((q, k), np.inf)
    for start in range(0, q, QUERIES):
        part = slice(start, min(q, start + QUERIES))
        source = _CellDistances(Q[part], members.rows)
        lists = Lists(source, 0, indices[part], distances[part], members.numbers)
        mine = None if own is None else own[part]
        # The nearest cells of every query first: the distances found there keep most rows of the others out.
        first, stop = 0, 1
        while first < probes.shape[1]:
            _search_cells(lists, source, probes[part, first:stop], members, mine)
            lists.merge()
            first, stop = stop, STAGE * stop
    return indices, distances


def _probe_packed(Q: Array, probes: Array, members: Members, k: int, own: Array | None) -> Found:
    from .loops import nearest_in_cells

    indices, counts = nearest_in_cells(members.rows, members.numbers, members.starts, Q, probes, k, own)
    return indices, np.sqrt(np.where(counts < 0, np.inf, counts))


def visits(probes: Array) -> Iterator[tuple[int, Array]]:
    """Yield every cell that some query searches, ascending, with these queries."""
    flat = probes.ravel()
    order = np.argsort(flat, kind="stable")
    order = order[np.searchsorted(flat, 0, sorter=order) :]
    cells, first = np.unique(flat[order], return_index=True)
    queries = order // max(1, probes.shape[1])
    ends = [*first.tolist()[1:], len(order)]
    for cell, start, end in zip(cells.tolist(), first.tolist(), ends, strict=False):
        yield cell, queries[start:end]


def _search_cells(lists: Lists, source: _CellDistances, probes: Array, members: Members, own: Array | None) -> None:
    """Offer the rows of every cell to the queries that search it."""
    for cell, queries in visits(probes):
        stop = int(members.starts[cell + 1])
        for c0 in range(int(members.starts[cell]), stop, COLUMNS):
            c1 = min(stop, c0 + COLUMNS)
            # numbers ascend in a cell: k rows at distance 0 so far have smaller ones than the rest of this cell
            left = queries
            if c0 > members.starts[cell]:
                lists.merge()
                left = queries[lists.keys[queries, -1] > 0]
            step = max(1, scanning.TILE_BYTES // (4 * (c1 - c0)))
            for i in range(0, len(left), step):
                rows = left[i : i + step]
                beat(cell, len(members.starts))
                tile = source.tile_of(rows, c0, c1)
                if own is not None:
                    numbers = members.numbers[c0:c1]
                    at = np.searchsorted(numbers, own[rows])
                    inside = np.flatnonzero(numbers[np.minimum(at, c1 - c0 - 1)] == own[rows])
                    tile[inside, at[inside]] = np.inf
                lists.offer(rows, c0, tile)


class _CellDistances:
    """Lower bounds of squared distances, (1 - s)(|q|² + |x|²) - 2q'x about a row of the cell: see `kept_share`.

    Cells are small, so are the norms about one of their rows, and with them the error of the bounds.  CSR rows with
    few nonzeros are not centred.
    """

    exact = False

    def __init__(self, Q: Any, X: Any) -> None:
        self.Q, self.X = Q, X
        self.coarse = True
        self.multiplies_dense = multiplies_dense(X)
        d = X.shape[1]
        self.floor = smallest(d, np.float32)

    def tile_of(self, rows: Array, c0: int, c1: int) -> Array:
        """Return the bounds of some queries and the rows ``c0:c1``."""
        d = self.X.shape[1]
        Q, X = self.Q[rows], self.X[c0:c1]
        if not self.multiplies_dense:
            Q, X = Q.astype(np.float64), X.astype(np.float64)
            q, x = (np.asarray(part.multiply(part).sum(axis=1)).ravel() for part in (Q, X))
            tile: Array = (Q @ X.T).toarray()
            tile *= -2
            tile += kept_share(d, np.float64) * (q[:, None] + x)
            return tile
        if is_sparse(X):
            Q, X = Q.toarray(), X.toarray()
        centre = np.asarray(X[0], dtype=np.float64)
        Q, X = Q - centre, X - centre
        q, x = np.vecdot(Q, Q), np.vecdot(X, X)
        single = self.coarse and takes_single(d, float(q.max()), float(x.max()))
        dtype = np.float32 if single else np.float64
        left, right = operands(Q, X, q, x, dtype)
        return np.asarray(left @ right.T)

    def keys(self, rows: Array, cols: Array, values: Array) -> Array:
        """Return the distances."""
        return pair_distances(self.X, self.Q, rows, cols)

    def reach(self, rows: Array, keys: Array) -> Array:
        """Return the largest bound of a pair at these distances."""
        return keys**2 * (1 + 4 * np.finfo(np.float64).eps) + self.floor

    def refine(self) -> bool:
        """Use products in float64 from now on."""
        self.coarse, coarse = False, self.coarse
        return coarse

    def below(self, values: Array) -> Array:
        """Raise: bounds are not keys."""
        raise NotImplementedError

    def tile(self, q0: int, q1: int, c0: int, c1: int) -> Array:
        """Return the bounds of consecutive queries."""
        return self.tile_of(np.arange(q0, q1), c0, c1)


# --------------------------------------------------------------------------------------------- small batches of queries
# The answer is that of `probe`, which prepares the rows of a cell for each search: that pays where a cell is searched
# for many queries.  Here they are prepared once, with all rows about one centre, and propose candidates in float32.


FLOAT_STAGE = 16
"""Each stage of a search ends at that many times as many cells as the stage before."""
HEAD = 48
"""Rows of the nearest cell per neighbour, whose distances are the first limit for candidates."""
WIDE = 8
"""Up to this many candidates per neighbour are ordered in one table."""
FEW = 96
"""Up to this many queries a cell is multiplied by the queries, which takes BLAS half the time of the transpose."""
BINS = 128
"""Bins of a query's candidates, from which its limit is estimated before they are sorted."""
MOST_CANDIDATES = 2**22
"""Candidates of one batch: beyond that, `search_float` gives up."""


@dataclass(frozen=True, eq=False)
class Coarse:
    """Rows about a centre, such that one product with a query bounds the squared distance from below.

    Attributes
    ----------
    rows : (n, d + 2) float32 array
        ``[-2x, (1 - s)|x|², 1]`` with x about the centre; see `scanning.kept_share` for s.
    largest : float
        The largest |x|² about the centre.
    centre : (d,) array
    """

    rows: Array
    largest: float
    centre: Array

    def slack(self, squares: Array) -> Array:
        """Return the most by which a squared distance can exceed its bound, for queries of these squared norms."""
        d = len(self.centre)
        off: Array = 2 * (1 - kept_share(d, np.float32)) * (squares + self.largest) + 2 * smallest(d, np.float32)
        return off


def prepared(X: Array, centre: Array) -> tuple[Array, float]:
    """Return the ``rows`` of `Coarse` for some rows, and the largest squared norm."""
    apart = X - centre
    squares = np.vecdot(apart, apart)
    # where float32 overflows, the norm says so and `usable` is False
    with np.errstate(over="ignore"):
        return right_operand(apart, squares, np.float32), float(squares.max(initial=0.0))


def search_float(Q: Array, probes: Array, members: Members, coarse: Coarse, k: int) -> Found | None:
    """Return the k rows nearest to each query among those in its cells, as `probing.probe` does.

    Returns None if the bounds do not tell rows apart: if float32 does not hold the norms, or so many rows are within
    rounding of the k-th distance that they would not fit.

    Notes
    -----
    Time: one product and one comparison per pair, and some 50 µs per cell and stage.  Memory: a tile, and 16 bytes per
    candidate, at most 64 MB.
    """
    batch = _batch(Q, coarse, k)
    if batch is None:
        return None
    head = HEAD * k
    for cell, queries in visits(probes[:, :1]):
        c0, c1 = int(members.starts[cell]), int(members.starts[cell + 1])
        batch.limit(queries, coarse.rows[c0 : min(c1, c0 + head)])
        beat(cell, len(members.starts))
    first, stop = 0, FLOAT_STAGE
    while first < probes.shape[1]:
        for cell, queries in visits(probes[:, first:stop]):
            beat(cell, len(members.starts))
            c0, c1 = int(members.starts[cell]), int(members.starts[cell + 1])
            step = max(1, scanning.TILE_BYTES // (4 * max(1, c1 - c0)))
            for i in range(0, len(queries), step):
                batch.offer(queries[i : i + step], coarse.rows[c0:c1], c0)
            if batch.count > MOST_CANDIDATES:
                batch.reduce()
                if batch.count > MOST_CANDIDATES // 2:
                    return None
        batch.reduce()
        first, stop = stop, FLOAT_STAGE * stop
    return batch.ordered(Q, members)


def search_lists(Q: Array, which: Array, lists: Array, members: Members, coarse: Coarse, k: int) -> Found | None:
    """Return the k rows nearest to each query i among the rows ``lists[which[i]]``, or None, as `search_float` does."""
    batch = _batch(Q, coarse, k)
    if batch is None:
        return None
    for place, queries in visits(which[:, None]):
        right = coarse.rows[lists[place]]
        batch.limit(queries, right)
        batch.offer(queries, right, lists[place])
        if batch.count > MOST_CANDIDATES:
            return None
    batch.reduce()
    return batch.ordered(Q, members)


def _batch(Q: Array, coarse: Coarse, k: int) -> _Batch | None:
    """Return an empty batch of queries, or None if float32 does not hold the norms."""
    centred = Q - coarse.centre
    squares = np.vecdot(centred, centred)
    if not takes_single(Q.shape[1], float(squares.max(initial=0.0)), coarse.largest):
        return None
    return _Batch(left_operand(centred, squares, np.float32), coarse.slack(squares), k)


class _Batch:
    """The candidates of a batch of queries, and the bound below which a row becomes one."""

    def __init__(self, left: Array, slack: Array, k: int) -> None:
        self.left, self.k = left, k
        self.slack = np.nextafter(slack.astype(np.float32), np.float32(np.inf))
        self.bound = np.full(len(left), np.finfo(np.float32).max)
        self.parts: list[tuple[Array, Array, Array]] = []
        self.count = 0

    def limit(self, queries: Array, right: Array) -> None:
        """Set the limit of some queries to the k-th bound among some rows, if there are so many."""
        if len(right) >= self.k:
            left = self.left.take(queries, axis=0)
            tile = (right @ left.T).T.copy() if len(queries) <= FEW else left @ right.T
            tile.partition(self.k - 1, axis=1)
            self.bound[queries] = np.maximum(tile[:, self.k - 1], 0) + self.slack[queries]

    def offer(self, queries: Array, right: Array, numbers: int | Array) -> None:
        """Add those rows whose bounds are low enough; ``numbers`` are their places, or the first of them."""
        left, limits = self.left.take(queries, axis=0), self.bound.take(queries)
        if len(queries) <= FEW:
            tile = right @ left.T
            flat = (tile <= limits).ravel().nonzero()[0]
            rows = flat // len(queries)
            who = flat - rows * len(queries)
        else:
            tile = left @ right.T
            flat = (tile <= limits[:, None]).ravel().nonzero()[0]
            who = flat // len(right)
            rows = flat - who * len(right)
        if len(flat):
            places = rows + numbers if isinstance(numbers, int) else numbers.take(rows)
            self.parts.append((queries.take(who), places, tile.ravel().take(flat)))
            self.count += len(flat)

    def reduce(self) -> None:
        """Lower the limit of every query to its k-th bound so far plus the slack, and drop candidates beyond it.

        The candidates of a query are then together, the queries in ascending order.
        """
        if not self.parts:
            return
        who, cols, values = (np.concatenate(part) for part in zip(*self.parts, strict=True))
        np.maximum(values, 0, out=values)  # the bits of floats >= 0 ascend with them
        near = np.flatnonzero(values <= self._estimated(who, values).take(who))
        who, cols, values = who.take(near), cols.take(near), values.take(near)
        order = np.argsort((who.astype(np.uint64) << np.uint64(32)) | values.view(np.uint32))
        who, cols, values = who.take(order), cols.take(order), values.take(order)
        counts = np.bincount(who, minlength=len(self.bound))
        full = np.flatnonzero(counts >= self.k)
        last = (np.cumsum(counts) - counts)[full] + self.k - 1
        self.bound[full] = np.minimum(self.bound[full], values[last] + self.slack[full])
        left = np.flatnonzero(values <= self.bound.take(who))
        self.parts = [(who.take(left), cols.take(left), values.take(left))]
        self.count = len(left)

    def _estimated(self, who: Array, values: Array) -> Array:
        """Return a limit for each query that its k-th bound plus the slack does not exceed, from counts in bins.

        To sort all candidates would take several times as long.
        """
        widths = self.bound / np.float32(BINS)
        bins = np.minimum(values / np.maximum(widths, np.finfo(np.float32).tiny).take(who), BINS - 1).astype(np.int64)
        counts = np.bincount(who * BINS + bins, minlength=BINS * len(widths)).reshape(-1, BINS).cumsum(axis=1)
        enough = counts >= self.k
        # the k-th is in bin j, so below (j + 1) widths; one more for rounding
        found = (enough.argmax(axis=1) + 2).astype(np.float32) * widths + self.slack
        return np.where(enough[:, -1], np.minimum(found, self.bound), self.bound)

    def ordered(self, Q: Array, members: Members) -> Found:
        """Return the k nearest candidates of each query, after a last `reduce`."""
        none = np.empty(0, dtype=np.int64)
        who, cols = self.parts[0][:2] if self.parts else (none, none)
        return _ordered(who, members.numbers[cols], pair_distances(members.rows, Q, who, cols), len(Q), self.k)


def _ordered(who: Array, numbers: Array, distances: Array, q: int, k: int) -> Found:
    """Return the first k candidates of each query by (distance, number); -1 and infinity where there are fewer.

    Queries ascend in ``who``.
    """
    counts = np.bincount(who, minlength=q)
    place = np.arange(len(who)) - np.repeat(np.cumsum(counts) - counts, counts)
    widest = max(k, int(counts.max(initial=0)))
    if widest > WIDE * k:  # near ties of a few queries do not widen the table of all
        found = np.full((q, k), -1, dtype=np.int64), np.full((q, k), np.inf)
        order = np.lexsort((numbers, distances, who))[place < k]
        at = who[order], place[place < k]
        found[0][at], found[1][at] = numbers[order], distances[order]
        return found
    keys, cols = np.full((q, widest), np.inf), np.full((q, widest), -1, dtype=np.int64)
    keys[who, place], cols[who, place] = distances, numbers
    return k_least(cols, keys, k)
