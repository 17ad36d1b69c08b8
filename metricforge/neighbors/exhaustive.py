"""Exact searches: by blocked matrix products, by a KD tree, by lower bounds of any distance, and of packed bits."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..errors import InputError
from ..rows import beat, blocks, is_sparse
from . import scanning
from .contract import Array, Found
from .scanning import (
    TILE_BYTES,
    is_binary,
    is_whole,
    kept_share,
    largest,
    left_operand,
    multiplies_dense,
    operand,
    pair_distances,
    right_operand,
    scan,
    smallest,
    squared_norms,
    takes_single,
)

PREPARED_BYTES = 64 * 2**20
"""Up to this size the operand of the rows is kept for all queries."""


class SearchedRows:
    """Rows to search, and what exact searches need of them: computed when first needed, for all later queries."""

    def __init__(self, X: Any) -> None:
        self.X = X
        self.largest = largest(X)
        self.multiplies_dense = multiplies_dense(X)
        self._squares: dict[bool, tuple[Array, Array]] = {}
        self._operands: dict[tuple[bool, Any], Array] = {}

    @cached_property
    def whole(self) -> bool:
        """Whether all entries are whole numbers."""
        return is_whole(self.X)

    @cached_property
    def binary(self) -> bool:
        """Whether all entries are zeros and ones."""
        return is_binary(self.X)

    @cached_property
    def few_distinct(self) -> bool:
        """Whether rows repeat so often that a tree has huge leaves, and the exact scan ends early on duplicates."""
        sample = self.X[:: max(1, self.X.shape[0] // 1000)]
        return bool(sample.shape[0] >= 1000 and np.unique(sample, axis=0).shape[0] < 100)

    @cached_property
    def tree(self) -> Any:
        """The KD tree of dense rows."""
        from scipy.spatial import KDTree

        return KDTree(self.X)

    def squares(self, whole: bool) -> tuple[Array, Array]:
        """Return the centre of the rows, 0 for whole numbers, and their squared norms about it."""
        if whole not in self._squares:
            centred = not (whole or is_sparse(self.X))
            centre = self.X.mean(axis=0, dtype=np.float64) if centred else np.zeros(self.X.shape[1])
            self._squares[whole] = centre, squared_norms(self.X, centre)
        return self._squares[whole]

    def operand(self, whole: bool, dtype: Any, share: float, c0: int, c1: int) -> Array:
        """Return [-2x, (1 - s)|x|²] of rows ``c0:c1``, kept where those of all rows are small."""
        (n, d), (centre, squares) = self.X.shape, self.squares(whole)
        key = whole, dtype
        if key not in self._operands:
            if dtype().itemsize * n * (d + 1) > PREPARED_BYTES:
                return operand(self.X[c0:c1], centre, share * squares[c0:c1], dtype)
            made = np.empty((n, d + 1), dtype=dtype)
            for part in scanning.row_blocks(n, d + 1):
                made[part] = operand(self.X[part], centre, share * squares[part], dtype)
            self._operands[key] = made
        return self._operands[key][c0:c1]


def exact_search(X: Any, Q: Any, k: int, own: Array | None) -> Found:
    """Search by blocked products; ``own[i]`` is the row of X that query i may not find."""
    return search_rows(SearchedRows(X), Q, k, own)


def search_rows(searched: SearchedRows, Q: Any, k: int, own: Array | None) -> Found:
    """Search as `exact_search` does, in rows that may have been searched before."""
    X, q = searched.X, Q.shape[0]
    source = _Euclidean(searched, Q)
    width = X.shape[1] if source.multiplies_dense else 1 + X.nnz // X.shape[0]
    shape = scanning.tile_shape(q, width, k, *((4, scanning.SINGLE_SHARE) if source.single else (8, 1)))
    indices, keys = scan(source, X.shape[0], q, k, own, *shape)
    return indices, np.sqrt(keys, out=keys) if source.exact else keys


class _Euclidean:
    """Lower bounds of squared distances by products: the value of (q, x) is (1 - s)|x|² - 2q'x.

    With d features the products, norms and sums err by at most s(|q|² + |x|²) (`scanning.kept_share` has s and the
    proof), so that value + (1 - s)|q|² <= |q - x|².  Rows are centred first, because the error grows with the distance
    from the origin and the answer does not.  Keys are distances, computed by subtraction in float64.

    Products are in float32 at first.  Where so many rows are so close that the bounds admit too many candidates
    (clusters narrower than 1e-3 of the distance between them), those of later tiles are in float64.

    For whole numbers every product is exact: s = 0, rows are not centred, and the squared distance is the key.
    """

    def __init__(self, searched: SearchedRows, Q: Any) -> None:
        self.searched, self.X, self.Q = searched, searched.X, Q
        d, same = self.X.shape[1], Q is self.X
        largest_sum = 4 * d * max(searched.largest, 0.0 if same else largest(Q)) ** 2
        # Below 2**50 sums of squares are exact and their square roots distinct.
        self.exact = largest_sum < 2**50 and searched.whole and (same or is_whole(Q))
        self.multiplies_dense = searched.multiplies_dense
        self.centre, self.x_squares = searched.squares(self.exact)
        self.q_squares = self.x_squares if same else squared_norms(Q, self.centre)
        self.largest_query = float(self.q_squares.max(initial=0.0))
        if self.exact:
            self.single = self.multiplies_dense and largest_sum < 2**24
        else:
            self.single = self.multiplies_dense and takes_single(d, float(self.x_squares.max()), self.largest_query)
        self.buffer = np.empty(0, dtype=np.float32)
        self._set()

    def _set(self) -> None:
        """Set what depends on the precision of the products."""
        d = self.X.shape[1]
        dtype = np.float32 if self.single else np.float64
        share = 1.0 if self.exact else kept_share(d, dtype)
        self.dtype, self.share = dtype, share
        self.floor = 0.0 if self.exact else smallest(d, dtype, float(self.x_squares.max()), self.largest_query)

    def refine(self) -> bool:
        """Use products in float64 from now on."""
        if self.exact or not self.single:
            return False
        self.single = False
        self._set()
        return True

    def tile(self, q0: int, q1: int, c0: int, c1: int) -> Array:
        """Return the lower bounds."""
        if not self.multiplies_dense:
            Q, X = self.Q[q0:q1], self.X[c0:c1]
            product: Array = (Q.astype(np.float64) @ X.astype(np.float64).T).toarray()
            product *= -2
            product += self.share * self.x_squares[c0:c1]
            return product
        left = operand(self.Q[q0:q1], self.centre, None, self.dtype)
        right = self.searched.operand(self.exact, self.dtype, self.share, c0, c1)
        # One buffer for all tiles: in a dask worker malloc returns freed memory at once, and mapping it anew takes as
        # long as the product.
        size = len(left) * len(right)
        if self.buffer.size < size or self.buffer.dtype != self.dtype:
            self.buffer = np.empty(size, dtype=self.dtype)
        tile: Array = np.matmul(left, right.T, out=self.buffer[:size].reshape(len(left), len(right)))
        return tile

    def keys(self, rows: Array, cols: Array, values: Array) -> Array:
        """Return the distances; of whole numbers, their squares."""
        if self.exact:
            return np.add(values, self.q_squares[rows], dtype=np.float64)
        return pair_distances(self.X, self.Q, rows, cols)

    def reach(self, rows: Array, keys: Array) -> Array:
        """Return the largest lower bound of a pair at these distances."""
        squares = self.share * self.q_squares[rows]
        return np.subtract(keys if self.exact else keys**2 + self.floor, squares)

    def below(self, values: Array) -> Array:
        """Return numbers between the whole ``values`` and their predecessors."""
        return values - 0.5


# ------------------------------------------------------------------------------------------------- candidates and trees

_log = logging.getLogger(__name__)

_TREE_SPARE = 8
_TREE_GROWTH = (1, 4, 16)
"""The tree is queried for k + 8 rows, to see where a tie at the k-th place ends; then for 4 and 16 times as many."""


def ranked(X: Any, Q: Any, candidates: Array, own: Array | None) -> Found:
    """Sort each row of candidates by (distance, index).

    Missing (-1), repeated and own candidates go last, with index -1 and infinite distance.
    """
    indices = np.sort(candidates.astype(np.int64), axis=1)
    void = indices < 0
    void[:, 1:] |= indices[:, 1:] == indices[:, :-1]
    if own is not None:
        void |= indices == own[:, None]
    rows, places = np.nonzero(~void)
    distances = np.full(indices.shape, np.inf)
    distances[rows, places] = pair_distances(X, Q, rows, indices[rows, places])
    indices[void] = -1
    order = np.argsort(distances, axis=1, kind="stable")
    return np.take_along_axis(indices, order, axis=1), np.take_along_axis(distances, order, axis=1)


def rank_into(
    found: Found, X: Any, Q: Any, rows: Array, candidates: Array, outside: Array | float, own: Array | None
) -> Array:
    """Write the k best candidates of the queries ``rows`` into ``found``; return the queries whose answer may be wrong.

    ``outside`` is a lower bound on the distance of every row that is not a candidate.  The answer is certain if the
    k-th distance is finite and below that bound.
    """
    k = found[0].shape[1]
    indices, distances = ranked(X, Q[rows], candidates, None if own is None else own[rows])
    found[0][rows], found[1][rows] = indices[:, :k], distances[:, :k]
    return rows[distances[:, k - 1] >= outside]


def complete(found: Found, X: Any, Q: Any, rows: Array, own: Array | None, method: str) -> Found:
    """Replace the answers for the queries ``rows`` by those of the exact search."""
    if rows.size:
        _log.debug("%s left %d of %d queries to the exact search", method, rows.size, Q.shape[0])
        k = found[0].shape[1]
        found[0][rows], found[1][rows] = exact_search(X, Q[rows], k, None if own is None else own[rows])
    return found


def tree_search(searched: SearchedRows, Q: Any, k: int, own: Array | None) -> Found:
    """Search a KD tree; ``own[i]`` is the row of X that query i may not find.

    The tree is queried for a few more than k rows, and for more where a tie at the k-th place does not end there.
    """
    X = searched.X
    if is_sparse(X):
        raise InputError('method "tree" takes dense rows, and X is CSR; pass method="exact" or X.toarray()')
    (n, d), q = X.shape, Q.shape[0]
    found = np.empty((q, k), dtype=np.int64), np.empty((q, k))
    tree = searched.tree
    # The tree sums in another order: its distances differ from those of `pair_distances` by at most this factor.
    shrink = 1 - (d + 8) * np.finfo(np.float64).eps
    rows = np.arange(q)
    for growth in _TREE_GROWTH:
        requested = min(n, growth * (k + _TREE_SPARE))
        left = [rows[:0]]
        for part in scanning.row_blocks(rows.size, requested):
            distances, candidates = map(np.asarray, tree.query(Q[rows[part]], k=list(range(1, requested + 1))))
            outside = np.inf if requested == n else shrink * distances[:, -1]
            left.append(rank_into(found, X, Q, rows[part], candidates, outside, own))
        rows = np.concatenate(left)
    return complete(found, X, Q, rows, own, "tree")


# -------------------------------------------------------------------------------------- lower bounds of other distances

FIRST = 64
"""Rows with the smallest bounds, for each query, whose distances are computed first; or four for each neighbour."""
MOST_SHARE = 0.3
"""Share of the rows beyond which a query is compared with all of them, together with other such queries.  All queries
compute distances to as many rows as there are, at the most: comparing with all of them at once shares work."""
ROUNDING = 2e-7
"""Error of coordinates in float32, as a share of their norms."""


@dataclass(frozen=True, eq=False)
class LowerBounds:
    """Coordinates of rows whose Euclidean distances are at most the distances that a search is about.

    Attributes
    ----------
    right : (n, r + 2) float32 array
        See `right_operand`.
    centre : (r,) array
        What was subtracted from the coordinates.
    reach : float
        The largest norm of the coordinates about the centre.
    """

    right: Array
    centre: Array
    reach: float

    @classmethod
    def of(cls, coordinates: Array) -> LowerBounds:
        """Return the bounds from coordinates of the rows, (n, r) float32."""
        centre = coordinates.mean(axis=0, dtype=np.float64)
        Z = coordinates - centre.astype(np.float32)
        squares = np.vecdot(Z, Z, dtype=np.float64)
        return cls(right_operand(Z, squares, np.float32), centre, float(squares.max()) ** 0.5)

    def search(self, Q: Array, distance: Callable[[int, Array], Array], k: int) -> tuple[Found, Array]:
        """Return the k nearest rows of each query, and the queries for which the bounds do not help.

        Parameters
        ----------
        Q : (q, r) float array
            The coordinates of the queries.
        distance : callable
            ``distance(i, rows)`` returns the distances of query i to rows of these numbers.
        k : int

        Notes
        -----
        Time for each query: a product of r + 2 columns with all rows, and the distances to those rows whose bound is
        below the k-th distance.
        """
        n, (q, r) = len(self.right), Q.shape
        indices, distances = np.zeros((q, k), dtype=np.int64), np.zeros((q, k))
        Z = (Q - self.centre).astype(np.float32)
        squares = np.vecdot(Z, Z, dtype=np.float64)
        left = left_operand(Z, squares, np.float32)
        slack = ROUNDING * (self.reach + np.sqrt(squares))
        first, helped = min(n, max(FIRST, 4 * k)), np.ones(q, dtype=bool)
        floor, spent = smallest(r, np.float32), 0
        for part in blocks(q, 4 * n, TILE_BYTES):
            bounds = left[part] @ self.right.T  # (b, n)
            for i, row in zip(range(part.start, part.stop), bounds, strict=True):
                rows = np.argpartition(row, first - 1)[:first] if first < n else np.arange(n)
                D = distance(i, rows)
                if (row[rows] > (D + slack[i]) ** 2 + floor).any():
                    helped[i] = False  # no lower bounds: the kernel is not positive semidefinite
                    continue
                limit = (np.partition(D, k - 1)[k - 1] + slack[i]) ** 2 + floor
                row[rows] = np.inf
                more = np.flatnonzero(row <= limit)
                if len(more) > min(MOST_SHARE * n, n - spent):
                    helped[i] = False
                    continue
                spent += len(more)
                if len(more):
                    rows, D = np.append(rows, more), np.append(D, distance(i, more))
                order = np.lexsort((rows, D))[:k]
                indices[i], distances[i] = rows[order], D[order]
            beat(part.stop, q)
        return (indices, distances), np.flatnonzero(~helped)


# ----------------------------------------------------------------------------------------------- rows of zeros and ones

BLOCK_BYTES = 8 * 2**20


def packed_rows(X: Any) -> Array:
    """Return rows of zeros and ones, dense or CSR, as (n, words) uint64."""
    n, d = X.shape
    out = np.zeros((n, -(-d // 64)), dtype=np.uint64)
    for part in blocks(n, 8 * d, BLOCK_BYTES):
        rows = X[part].toarray() if is_sparse(X) else X[part]
        bits = np.zeros((rows.shape[0], 64 * out.shape[1]), dtype=bool)
        bits[:, :d] = rows != 0
        out[part] = np.packbits(bits, axis=1, bitorder="little").view(np.uint64)
    return out


def unpacked(rows: Array, d: int) -> Array:
    """Return the d columns of packed rows as float32."""
    bits = np.unpackbits(np.ascontiguousarray(rows).view(np.uint8), axis=1, count=d, bitorder="little")
    return np.asarray(bits.astype(np.float32))


def hamming_search(X: Any, Q: Any, k: int, own: Array | None) -> Found:
    """Search by counting the places in which rows differ; ``own[i]`` is the row of X that query i may not find."""
    from . import loops

    for name, rows in (("X", X), ("queries", Q)):
        if not is_binary(rows):
            raise InputError(
                f'method "hamming" takes rows of zeros and ones, and {name} has others; pass method="auto"'
            )
    packed = _by_word(X)
    indices, counts = loops.nearest(packed, packed if Q is X else _by_word(Q), k, own)
    return indices, np.sqrt(counts)


def _by_word(X: Any) -> Array:
    """Return packed rows as (words, n): each word of all rows is contiguous."""
    return np.ascontiguousarray(packed_rows(X).T)
