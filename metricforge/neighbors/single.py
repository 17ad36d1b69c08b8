"""Lower bounds of distances from products in float32 or float64, and what their rounding can be."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..rows import is_sparse
from .contract import Array

SINGLE_FEATURES = 4096
"""Up to this many features the bound of `kept_share` holds in float32."""
SINGLE_NORMS = (1e-8, 1e20)
"""The range of the largest squared norm in which float32 neither overflows nor loses small rows."""


def kept_share(d: int, dtype: Any) -> float:
    """Return 1 - s such that the computed (1 - s)|x|² - 2q'x is at most |q - x|² - (1 - s)|q|².

    Let u be the unit roundoff of dtype.  Rounding the entries of q and x to dtype changes q'x by at most
    (2u + u²) Σ|q_i x_i|, and the norm by u|x|².  A sum of d + 1 products errs, in any order and with or without fused
    operations, by at most γ times the sum of their magnitudes, γ = (d + 1)u/(1 - (d + 1)u).  As 2 Σ|q_i x_i| is at
    most |q|² + |x|², all this is at most (2d + 5)u(|q|² + |x|²) up to terms in u², which for d <= SINGLE_FEATURES are
    below 3u.  s = (2d + 16)u leaves room for those, for the rounding of norms and distances in float64, and for that of
    the comparison.
    """
    return 1.0 - (2 * d + 16) * float(np.finfo(dtype).eps) / (2 if dtype == np.float32 else 1)


def takes_single(d: int, *squares: float) -> bool:
    """Return whether bounds in float32 hold for rows of d features with these largest squared norms."""
    most = max(squares)
    return d <= SINGLE_FEATURES and bool(SINGLE_NORMS[0] < most < SINGLE_NORMS[1])


def smallest(d: int, dtype: Any, *squares: float) -> float:
    """Return the error of a bound from numbers below the range of normal floats, given the largest squared norms.

    Without norms, the largest for which float32 is used.
    """
    most: float = max(squares, default=SINGLE_NORMS[1])
    return float(4 * d * np.finfo(dtype).tiny * (1 + most**0.5))


def operand(X: Any, centre: Array, norms: Array | None, dtype: Any) -> Array:
    """Return [x - centre, 1], or [-2(x - centre), norm]: one product of the two saves two passes over the tile."""
    n, d = X.shape
    out = np.empty((n, d + 1), dtype=dtype)
    if is_sparse(X):
        out[:, :d] = X.toarray() - centre
    else:
        np.subtract(X, centre, out=out[:, :d], casting="same_kind")
    if norms is None:
        out[:, d] = 1
    else:
        out[:, :d] *= -2
        out[:, d] = norms
    return out


def operands(Q: Array, X: Array, q: Array, x: Array, dtype: Any) -> tuple[Array, Array]:
    """Return matrices whose product, left times right', is (1 - s)(|q|² + |x|²) - 2q'x: a bound of |q - x|² from below.

    The sum has one term more than that of `operand`, so its error is at most (2d + 7)u(|q|² + |x|²).
    """
    return left_operand(Q, q, dtype), right_operand(X, x, dtype)


def left_operand(Q: Array, squares: Array, dtype: Any) -> Array:
    """Return [q, 1, (1 - s)|q|²], given the rows and their squared norms."""
    d = Q.shape[1]
    out = np.empty((len(Q), d + 2), dtype=dtype)
    out[:, :d], out[:, d], out[:, d + 1] = Q, 1, kept_share(d, dtype) * squares
    return out


def right_operand(X: Array, squares: Array, dtype: Any) -> Array:
    """Return [-2x, (1 - s)|x|², 1], given the rows and their squared norms."""
    d = X.shape[1]
    out = np.empty((len(X), d + 2), dtype=dtype)
    np.multiply(X, -2, out=out[:, :d], casting="same_kind")
    out[:, d], out[:, d + 1] = kept_share(d, dtype) * squares, 1
    return out
