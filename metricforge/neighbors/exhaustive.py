"""Exact search by blocked matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..rows import is_sparse
from . import tiles
from .choice import multiplies_dense
from .contract import Array, Found
from .distances import is_whole, largest, pair_distances, squared_norms
from .scanning import scan


def exact_search(X: Any, Q: Any, k: int, own: Array | None) -> Found:
    """Search by blocked products; ``own[i]`` is the row of X that query i may not find."""
    source = _Euclidean(X, Q)
    width = X.shape[1] if source.multiplies_dense else 1 + X.nnz // X.shape[0]
    indices, keys = scan(source, X.shape[0], Q.shape[0], k, own, *tiles.tile_shape(width, k))
    return indices, np.sqrt(keys, out=keys) if source.exact else keys


class _Euclidean:
    """Lower bounds of squared distances by products: the value of (q, x) is (1 - s)|x|² - 2q'x.

    With d features the products, norms and sums err by at most s(|q|² + |x|²), where s = (2d + 16) 2**-52, so that
    value + (1 - s)|q|² <= |q - x|².  Rows are centred first, because the error grows with the distance from the origin
    and the answer does not.  Keys are distances, computed by subtraction.

    For whole numbers every product is exact: s = 0, rows are not centred, and the squared distance is the key.
    """

    def __init__(self, X: Any, Q: Any) -> None:
        self.X, self.Q = X, Q
        d = X.shape[1]
        # Below 2**50 sums of squares are exact and their square roots distinct.
        self.exact = 4 * d * max(largest(X), largest(Q)) ** 2 < 2**50 and (is_whole(X) and (Q is X or is_whole(Q)))
        self.multiplies_dense = multiplies_dense(X)
        centred = not is_sparse(X) and not self.exact
        self.centre = X.mean(axis=0, dtype=np.float64) if centred else np.zeros(d)
        share = 1.0 if self.exact else 1.0 - (2 * d + 16) * np.finfo(np.float64).eps
        self.x_norms = share * squared_norms(X, self.centre)
        self.q_norms = self.x_norms if Q is X else share * squared_norms(Q, self.centre)
        # Squares below the range of normal floats lose their relative accuracy.
        self.floor = 0.0 if self.exact else d * np.finfo(np.float64).tiny
        self.buffer = np.empty(0)

    def tile(self, q0: int, q1: int, c0: int, c1: int) -> Array:
        Q, X, norms = self.Q[q0:q1], self.X[c0:c1], self.x_norms[c0:c1]
        if not self.multiplies_dense:
            product: Array = (Q.astype(np.float64) @ X.astype(np.float64).T).toarray()
            product *= -2
            product += norms
            return product
        d = self.X.shape[1]
        # One product, [q, 1] · [-2x, |x|²], saves two passes over the tile.
        left, right = np.empty((q1 - q0, d + 1)), np.empty((c1 - c0, d + 1))
        left[:, :d] = Q.toarray() if is_sparse(Q) else Q
        right[:, :d] = X.toarray() if is_sparse(X) else X
        left[:, :d] -= self.centre
        right[:, :d] -= self.centre
        right[:, :d] *= -2
        left[:, d], right[:, d] = 1, norms
        # One buffer for all tiles: in a dask worker malloc returns freed memory at once, and mapping it anew takes as
        # long as the product.
        size = len(left) * len(right)
        if self.buffer.size < size:
            self.buffer = np.empty(size)
        tile: Array = np.matmul(left, right.T, out=self.buffer[:size].reshape(len(left), len(right)))
        return tile

    def keys(self, rows: Array, cols: Array, values: Array) -> Array:
        if self.exact:
            return np.add(values, self.q_norms[rows])
        return pair_distances(self.X, self.Q, rows, cols)

    def reach(self, rows: Array, keys: Array) -> Array:
        return np.subtract(keys if self.exact else keys**2 + self.floor, self.q_norms[rows])
