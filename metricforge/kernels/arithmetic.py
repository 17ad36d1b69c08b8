"""Inner products and distances of dense and CSR rows, in float64 and stored in the precision of the rows.

Squared distances of float32 rows are formed in float64: the expansion ‖x‖² + ‖y‖² − 2x'y loses half of the digits of
nearby rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .. import rows as _rows
from ..errors import InputError
from ..rows import Array

TILE_BYTES = 2**23
"""Bytes of distances computed at a time: few enough to stay in the cache, enough for GEMM (flat from 4 to 16 MB)."""
FEW = 2
"""Up to this many rows, differences are cheaper than a product."""
NARROW = 32
"""With fewer columns, a product is faster if the rows of its right factor are contiguous."""
NORMAL = 1e-100
"""Numbers from here to the inverse can be multiplied with rows before distances are formed."""
CANCELLED = 1e-9
"""A squared distance below this share of ‖x‖² + ‖y‖² has lost nine of its sixteen digits to cancellation."""


def inner(X: Any, Y: Any) -> Array:
    """Return X Y' as a dense array, for dense and CSR rows in any combination."""
    if _rows.is_sparse(X) and _rows.is_sparse(Y):
        # sparse × dense is several times faster than sparse × sparse when the result is dense; densify Y by slices
        out = np.empty((X.shape[0], Y.shape[0]), dtype=np.result_type(X.dtype, Y.dtype))
        for part in _rows.blocks(Y.shape[0], 8 * Y.shape[1]):
            out[:, part] = X @ Y[part].toarray().T
        return out
    if _rows.is_sparse(Y):
        return np.asarray((Y @ X.T).T)
    return np.asarray(X @ Y.T)


def paired_inner(X: Any, Y: Any) -> Array:
    """Return x_i'y_i for each i."""
    if _rows.is_sparse(X) or _rows.is_sparse(Y):
        product = X.multiply(Y) if _rows.is_sparse(X) else Y.multiply(X)
        return np.asarray(product.sum(axis=1)).ravel()
    return np.asarray(np.einsum("ij,ij->i", X, Y))


def squared_euclidean(X: Any, Y: Any, finish: Callable[[Array], Any] | None = None, *, times: float = 1.0) -> Array:
    """Return ‖x_i − y_j‖² times a number, formed in float64 and stored in the precision of the rows.

    Dense rows are centred on the mean of Y first: cancellation then costs digits of the spread, not of the offset.
    CSR rows are centred in the columns that every row stores.  Distances that are still lost to rounding are measured
    again from the difference of the two rows.  ``finish`` changes a tile of the result in place while it is in the
    cache.
    """
    sparse = _rows.is_sparse(X) or _rows.is_sparse(Y)
    dtype = _rows.float_dtype(X, Y)
    if sparse:
        out = np.empty((X.shape[0], Y.shape[0]), dtype=dtype)
        return _filled(out, _sparse_tiles(X, Y, times), finish, itself=X is Y)
    if Y.shape[0] <= FEW and X is not Y:
        return _to_few(X, Y, finish, times, dtype)
    return _to_many(X, Others(Y, times), finish)


def squared_euclidean_to(
    Y: Array, finish: Callable[[Array], Any] | None = None, *, times: float = 1.0
) -> Callable[[Any], Array]:
    """Return the function X ↦ `squared_euclidean` (X, Y) of dense rows Y, for many blocks of dense rows X."""
    if Y.shape[0] <= FEW:
        return lambda X: squared_euclidean(X, Y, finish, times=times)
    others = Others(Y, times)
    return lambda X: _to_many(X, others, finish)


def _to_many(X: Array, others: Others, finish: Callable[[Array], Any] | None) -> Array:
    out = np.empty((X.shape[0], others.rows.shape[0]), dtype=_rows.float_dtype(X, others.rows))
    return _filled(out, _dense_tiles(X, others, out), finish, itself=X is others.rows)


def _filled(
    out: Array, tiles: Iterator[tuple[slice, Array]], finish: Callable[[Array], Any] | None, *, itself: bool
) -> Array:
    """Write tiles to an array; the distance of a row from itself is 0 where both sides are the same."""
    with np.errstate(over="ignore", invalid="ignore"):  # whoever uses the numbers checks that they are finite
        for part, D in tiles:
            if itself:
                own = np.arange(part.start, part.stop)
                D[own - part.start, own] = 0
            if finish is not None:
                finish(D)
            if D.base is not out:
                out[part] = D
    return out


def paired_squared_euclidean(X: Any, Y: Any) -> Array:
    """Return ‖x_i − y_i‖² for each i, formed in float64 and stored in the precision of the rows."""
    Z = X - Y
    dtype = _rows.float_dtype(Z)
    Z = Z.astype(np.float64, copy=False)
    return paired_inner(Z, Z).astype(dtype, copy=False)


def manhattan(X: Any, Y: Any) -> Array:
    """Return ‖x_i − y_j‖₁, summed in float64 and stored in the precision of the rows."""
    dtype = _rows.float_dtype(X, Y)
    if _rows.is_sparse(X) or _rows.is_sparse(Y):
        return _sparse_manhattan(X, Y, dtype)
    from scipy.spatial.distance import cdist

    if dtype == np.float64:
        return np.asarray(cdist(X, Y, "cityblock"))
    out = np.empty((len(X), len(Y)), dtype=dtype)
    for part in _rows.blocks(len(X), 8 * max(len(Y), X.shape[1]), TILE_BYTES):
        out[part] = cdist(X[part], Y, "cityblock")
    return out


def paired_manhattan(X: Any, Y: Any) -> Array:
    """Return ‖x_i − y_i‖₁ for each i, summed in float64 and stored in the precision of the rows."""
    Z = X - Y
    dtype = _rows.float_dtype(Z)
    return np.asarray(abs(Z.astype(np.float64, copy=False)).sum(axis=1)).ravel().astype(dtype, copy=False)


def inverse_root(diagonal: Array) -> Array:
    """Return 1 / sqrt(d) for each d > 0, and 0 elsewhere."""
    scale = np.zeros_like(diagonal)
    np.divide(1, np.sqrt(np.maximum(diagonal, 0)), out=scale, where=diagonal > 0)
    return scale


class Others:
    """Rows y that others are compared with, as the right factor of ‖x‖² − 2x'y + ‖y‖² = [x, ‖x‖², 1] · [−2y, 1, ‖y‖²].

    One product takes three passes fewer over the distances.  The factor is multiplied by ``times``, which spares
    another one, except for numbers that leave the range of normal ones.

    Attributes
    ----------
    rows : (q, d) array
    centre : (d,) array
        The mean, which is subtracted first.
    norms : (q,) array
        ‖y‖² after that.
    factor : (d + 2, q) array
    times, folded : float
        The number wanted, and the one that the factor contains.
    """

    def __init__(self, Y: Array, times: float) -> None:
        d = Y.shape[1]
        self.rows, self.times = Y, times
        self.centre = Y.mean(axis=0, dtype=np.float64) if len(Y) else np.zeros(d)
        right = np.empty((len(Y), d + 2))
        np.subtract(Y, self.centre, out=right[:, :d])
        self.norms = paired_inner(right[:, :d], right[:, :d])
        self.most = float(self.norms.max(initial=0.0))
        right[:, d], right[:, d + 1] = 1, self.norms
        right[:, :d] *= -2
        fits = NORMAL <= abs(times) <= 1 / NORMAL and math.isfinite(times * self.most)
        self.folded = times if fits else 1.0
        if self.folded != 1:
            right *= self.folded
        self.factor = np.ascontiguousarray(right.T) if d < NARROW else right.T


def _dense_tiles(X: Array, others: Others, out: Array) -> Iterator[tuple[slice, Array]]:
    """Yield rows of the squared distances times a number."""
    d, times = X.shape[1], others.times
    for part in _rows.blocks(len(X), 8 * max(len(others.rows), d), TILE_BYTES):
        A = X[part]
        left = np.empty((len(A), d + 2))
        np.subtract(A, others.centre, out=left[:, :d])
        xx = paired_inner(left[:, :d], left[:, :d])
        left[:, d], left[:, d + 1] = xx, 1
        factor, folded = others.factor, others.folded
        if folded != 1 and not math.isfinite(folded * (float(xx.max(initial=0.0)) + others.most)):
            factor, folded = factor / folded, 1.0
        D: Array = np.matmul(left, factor, out=out[part]) if out.dtype == np.float64 else left @ factor
        _measure_cancelled_dense(D, A, others.rows, xx, others.norms, folded)
        if folded != times:
            D *= times
        yield part, D


def _to_few(X: Array, Y: Array, finish: Callable[[Array], Any] | None, times: float, dtype: np.dtype[Any]) -> Array:
    """Return the squared distances to one or two rows from the differences, which takes less and loses no digits."""
    from scipy.spatial.distance import cdist

    if X.dtype == np.float64:
        D = cdist(Y, X, "sqeuclidean")  # long rows: several times as fast as the transpose
    else:
        parts = _rows.blocks(len(X), 8 * max(1, X.shape[1]), TILE_BYTES)
        D = np.concatenate([cdist(Y, X[part], "sqeuclidean") for part in parts] or [np.empty((len(Y), 0))], axis=1)
    with np.errstate(over="ignore", invalid="ignore"):
        if times != 1:
            D *= times
        if finish is not None:
            finish(D)
        return np.asarray(D.T.astype(dtype, copy=False))


def _sparse_tiles(X: Any, Y: Any, times: float) -> Iterator[tuple[slice, Array]]:
    X, Y = _shifted(X, Y)
    yy = paired_inner(Y, Y)
    exact = _is_exact(X) and _is_exact(Y)
    for part in _rows.blocks(X.shape[0], 8 * max(Y.shape[0], X.shape[1])):
        A = X[part].astype(np.float64, copy=False)
        xx = paired_inner(A, A)
        D = inner(A, Y)
        D *= -2
        D += xx[:, None]
        D += yy
        if not exact:
            _measure_cancelled(D, A, Y, xx, yy)
        np.maximum(D, 0, out=D)
        yield part, D if times == 1 else np.multiply(D, times, out=D)


def _shifted(X: Any, Y: Any) -> tuple[Any, Any]:
    """Return X and Y in float64, both less the mean of Y in the columns that all rows of both store.

    Distances do not change, and the sparsity stays the same.
    """
    X, Y = _canonical(X), _canonical(Y)
    full = _stored_everywhere(X) & _stored_everywhere(Y)
    if not full.any() or not Y.shape[0]:
        return X, Y
    centre = np.where(full, np.asarray(Y.mean(axis=0)).ravel(), 0.0)
    return _less(X, centre), _less(Y, centre)


def _canonical(X: Any) -> Any:
    """Return X in float64, with one stored entry per cell where it is sparse."""
    X = X.astype(np.float64, copy=False)
    if _rows.is_sparse(X) and not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X


def _stored_everywhere(X: Any) -> Array:
    if not _rows.is_sparse(X):
        return np.ones(X.shape[1], dtype=bool)
    return np.asarray(np.bincount(X.indices, minlength=X.shape[1]) == X.shape[0])


def _less(X: Any, centre: Array) -> Any:
    if not _rows.is_sparse(X):
        return X - centre
    X = X.copy()
    X.data -= centre[X.indices]
    return X


def _is_exact(X: Any) -> bool:
    """Return whether sums of products of entries are exact in float64: small whole numbers."""
    values = X.data if _rows.is_sparse(X) else X
    if not values.size:
        return True
    largest = float(np.abs(values).max())
    return largest < (2.0**53 / (4 * X.shape[1])) ** 0.5 and bool((values == np.rint(values)).all())


def _measure_cancelled(D: Array, A: Any, Y: Any, xx: Array, yy: Array) -> None:
    """Replace in place the squared distances that cancellation spoils by those of the differences of the rows."""
    for i in range(len(D)):
        lost = np.flatnonzero(D[i] < CANCELLED * (xx[i] + yy))
        for part in _rows.blocks(len(lost), 64 * max(1, Y.shape[1])):
            some = lost[part]
            D[i, some] = paired_squared_euclidean(*_alike(A[np.full(len(some), i)], Y[some]))


def _measure_cancelled_dense(D: Array, A: Array, Y: Array, xx: Array, yy: Array, times: float) -> None:
    """Do the same for a tile of dense rows times a number, in one pass over it where no pair is near.

    No distance is negative then.
    """
    if not D.size:
        return
    # values are >= 0 or, where the number is negative, <= 0
    nearest, near = (D.min(), np.less) if times > 0 else (D.max(), np.greater)
    lost = CANCELLED * times
    limit = lost * (xx.max() + yy.max())
    if near(limit, nearest) or limit == nearest:  # not if a value is NaN
        return
    i, j = np.divmod(np.flatnonzero(near(D, limit)), D.shape[1])
    spoilt = near(D[i, j], lost * (xx[i] + yy[j]))
    i, j = i[spoilt], j[spoilt]
    for part in _rows.blocks(len(i), 3 * 8 * max(1, Y.shape[1]), TILE_BYTES):  # both rows and their difference
        apart = np.subtract(A[i[part]], Y[j[part]], dtype=np.float64)
        D[i[part], j[part]] = times * paired_inner(apart, apart)


def _alike(X: Any, Y: Any) -> tuple[Any, Any]:
    """Return both as CSR, or both dense if one is."""
    if _rows.is_sparse(X) == _rows.is_sparse(Y):
        return X, Y
    return (X.toarray(), Y) if _rows.is_sparse(X) else (X, Y.toarray())


def _sparse_manhattan(X: Any, Y: Any, dtype: Any) -> Array:
    from scipy.sparse import csr_matrix
    from sklearn.metrics.pairwise import manhattan_distances

    X, Y = _with_short_indices(csr_matrix(X)), _with_short_indices(csr_matrix(Y))
    out = np.empty((X.shape[0], Y.shape[0]), dtype=dtype)
    for part in _rows.blocks(X.shape[0], 8 * max(Y.shape[0], X.shape[1])):
        out[part] = manhattan_distances(X[part], Y)
    return out


def _with_short_indices(X: Any) -> Any:
    """Return a CSR matrix with 32-bit indices, which scikit-learn's compiled loop needs."""
    if X.indices.dtype == np.int32 and X.indptr.dtype == np.int32:
        return X
    if max(X.nnz, X.shape[1]) > np.iinfo(np.int32).max:
        raise InputError("X has more stored entries than the Manhattan distance of sparse rows can index (2³¹)")
    return type(X)((X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32)), shape=X.shape)
