"""Exact search by blocked matrix products."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from ..rows import is_sparse
from . import tiles
from .contract import Array, Found
from .distances import is_binary, is_whole, largest, multiplies_dense, pair_distances, squared_norms
from .scanning import scan
from .single import kept_share, operand, smallest, takes_single

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
            for part in tiles.row_blocks(n, d + 1):
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
    shape = tiles.tile_shape(q, width, k, *((4, tiles.SINGLE_SHARE) if source.single else (8, 1)))
    indices, keys = scan(source, X.shape[0], q, k, own, *shape)
    return indices, np.sqrt(keys, out=keys) if source.exact else keys


class _Euclidean:
    """Lower bounds of squared distances by products: the value of (q, x) is (1 - s)|x|² - 2q'x.

    With d features the products, norms and sums err by at most s(|q|² + |x|²) (`single.kept_share` has s and the
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
