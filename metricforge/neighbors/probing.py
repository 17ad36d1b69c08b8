"""Search the rows of a few cells per query: the nearest of the rows in those cells, exactly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..rows import beat, is_sparse
from . import scanning
from .contract import Array, Found
from .scanning import Lists, kept_share, multiplies_dense, operands, pair_distances, smallest, takes_single

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
    """Lower bounds of squared distances, (1 - s)(|q|² + |x|²) - 2q'x about a row of the cell; see `single`.

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
