"""Euclidean distances of pairs of rows, and the properties of rows on which their rounding depends."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..rows import is_sparse
from . import tiles
from .contract import Array

DENSE_SHARE = 1 / 16
"""Above this share of nonzeros a dense product is faster than a sparse one (measured at 100 to 10,000 features)."""


def pair_distances(X: Any, Q: Any, rows: Array, cols: Array) -> Array:
    """Return |Q[rows] - X[cols]|: the definition of a distance for every search on real numbers.

    The sum over features runs in an order that depends on d (or on the nonzeros of the pair), never on the block, so
    equal pairs of rows have equal distances wherever they are stored.
    """
    out = np.empty(rows.size)
    (_sparse_squares if is_sparse(X) else _dense_squares)(X, Q, rows, cols, out)
    return np.sqrt(out, out=out)


def _sparse_squares(X: Any, Q: Any, rows: Array, cols: Array, out: Array) -> None:
    for part in tiles.row_blocks(rows.size, 4 + 4 * X.nnz // X.shape[0], share=8):
        apart = Q[rows[part]].astype(np.float64) - X[cols[part]].astype(np.float64)
        out[part] = np.asarray(apart.multiply(apart).sum(axis=1)).ravel()


def _dense_squares(X: Array, Q: Array, rows: Array, cols: Array, out: Array) -> None:
    d = X.shape[1]
    # An eighth of a tile stays in the cache between the passes over the differences.
    size = max(1, min(rows.size, tiles.TILE_BYTES // 8 // (8 * d)))
    # One buffer for all parts: in a dask worker malloc returns freed memory to the system, and maps it anew each time.
    left, right = np.empty((size, d), dtype=Q.dtype), np.empty((size, d), dtype=X.dtype)
    apart = left if Q.dtype == np.float64 else np.empty((size, d))
    for start in range(0, rows.size, size):
        i, j = rows[start : start + size], cols[start : start + size]
        k = len(i)
        # The indices are valid; with mode="raise" take would write to a temporary array first.
        np.take(Q, i, axis=0, out=left[:k], mode="clip")
        np.take(X, j, axis=0, out=right[:k], mode="clip")
        np.subtract(left[:k], right[:k], dtype=np.float64, out=apart[:k])
        # Not einsum: beyond 8192 features it splits a sum where its buffer happens to end.
        np.vecdot(apart[:k], apart[:k], out=out[start : start + k])


def squared_norms(X: Any, centre: Array) -> Array:
    """Return |x - centre|² of every row; of CSR rows |x|²."""
    if is_sparse(X):
        X = X.astype(np.float64)
        return np.asarray(X.multiply(X).sum(axis=1)).ravel()
    out = np.empty(X.shape[0])
    for part in tiles.row_blocks(X.shape[0], X.shape[1]):
        block = X[part] - centre
        out[part] = np.vecdot(block, block)
    return out


def largest(X: Any) -> float:
    """Return max |X| without a temporary array."""
    values = X.data if is_sparse(X) else X
    return float(max(values.max(), -values.min())) if values.size else 0.0


def multiplies_dense(X: Any) -> bool:
    """Return whether tiles of distances are computed by dense products."""
    return not is_sparse(X) or bool(X.nnz > DENSE_SHARE * X.shape[0] * X.shape[1])


def is_whole(X: Any) -> bool:
    """Return whether all entries are whole numbers."""
    return _all_entries(X, lambda part: np.rint(part) == part)


def is_binary(X: Any) -> bool:
    """Return whether all entries are zeros and ones."""
    return _all_entries(X, lambda part: (part == 0) | (part == 1))


def _all_entries(X: Any, test: Any) -> bool:
    values = X.data[:, None] if is_sparse(X) else X
    return all(bool(test(values[part]).all()) for part in tiles.row_blocks(values.shape[0], values.shape[1]))
