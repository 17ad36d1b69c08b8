"""Sums of mixtures of Gaussians on lines over many pairs of rows, in fused loops; the only file here with numba.

Each base is a Gaussian on a line: a column of X, or x'v.  Row sums of |K_ij| add float32 values (sixteen exponentials
per vector register) in float64, with a bound on their error; cuts are computed in float64.  The loops are compiled on
first use and cached on disk.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numba.core import types
from numba.extending import intrinsic

from metricforge.rows import Array

UNIT = 2.0**-24
"""Half a unit in the last place of float32."""
TILE, SIGNED_TILE = 1024, 256
"""Columns per tile, so that their intermediate values stay in the cache."""
_TAYLOR = tuple(1.0 / math.factorial(q) for q in range(13, -1, -1))
"""Taylor coefficients of exp(r), highest power first; the remainder is below 4e-18 for |r| < 0.35."""
_FAST = {"reassoc", "contract", "arcp", "nsz"}


@dataclass(frozen=True, eq=False)
class GaussianLines:
    """Gaussians on lines: base p is exp(−rates[p] (z − z')²) with z the coordinate on line[p].

    Attributes
    ----------
    axes : (d, l) array
        The lines, one per column.
    centre, radius : (l,) arrays
        Midpoint and half of the range of the rows on each line; coordinates are relative to the midpoint.
    line : (k,) int array
    rates : (k,) array
    """

    axes: Array
    centre: Array
    radius: Array
    line: Array
    rates: Array

    def coordinates(self, X: Any, dtype: Any) -> Array:
        """Return the (l, n) coordinates of dense or CSR rows."""
        return np.ascontiguousarray((X @ self.axes - self.centre).T, dtype=dtype)

    def sums(self, X: Any, Y: Any, weights: Array) -> tuple[Array, Array]:
        """Return Σ_j |K_ij| of the rows of X and Σ_i |K_ij| of the rows of Y."""
        active = np.flatnonzero(weights)
        rows, columns = _sums(
            self.coordinates(X, np.float32),
            self.coordinates(Y, np.float32),
            self.line[active],
            -self.rates[active].astype(np.float32),
            weights[active].astype(np.float32),
        )
        return rows, columns

    def signed_sums(self, X: Any, Y: Any, weights: Array) -> Array:
        """Return Σ_j sign(K_ij) K_p,ij, (len(X), k), for every base p."""
        A, B = self.coordinates(X, np.float64), self.coordinates(Y, np.float64)
        return np.asarray(_signed_sums(A, B, self.line, -self.rates, weights))

    def error(self, weights: Array) -> float:
        """Return a bound on the error of one |K_ij|.

        The error of a coordinate is at most UNIT · radius, and the slope of a Gaussian is below 0.86 sqrt(γ); weight,
        rate, square, exponent and polynomial add less than 16 units, and the sum over bases one unit per base.
        """
        each = 1.72 * np.sqrt(self.rates) * self.radius[self.line] + 16 + np.count_nonzero(weights)
        return float(UNIT * (np.abs(weights) @ each))


@intrinsic  # type: ignore[untyped-decorator]
def _as_float(typing: Any, bits: Any) -> Any:  # pragma: no cover
    """Read the bits of an int32 as a float32, or those of an int64 as a float64."""
    real = types.float32 if bits == types.int32 else types.float64

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], context.get_value_type(real))

    return real(bits), generate


# exp(x) for x <= 0: with t = x / log 2, 2^floor(t) is written into the exponent bits and multiplied by 2^r, r = t −
# floor(t), as a polynomial.  Only plain arithmetic is used, so that loops are vectorised.


@numba.njit(inline="always", fastmath=_FAST)  # type: ignore[untyped-decorator]
def _exp32(x: Any) -> Any:  # pragma: no cover
    t = max(x, np.float32(-86)) * np.float32(1.44269504088896)
    whole = np.floor(t)
    r = t - whole
    p = np.float32(1.8775767e-3)
    p = p * r + np.float32(8.9893397e-3)
    p = p * r + np.float32(5.5826318e-2)
    p = p * r + np.float32(2.4015361e-1)
    p = p * r + np.float32(6.9315308e-1)
    p = p * r + np.float32(9.9999994e-1)
    return p * _as_float(np.int32((np.int32(whole) + np.int32(127)) << np.int32(23)))


@numba.njit(inline="always", fastmath=_FAST)  # type: ignore[untyped-decorator]
def _exp64(x: Any) -> Any:  # pragma: no cover
    x = max(x, -700.0)
    whole = np.floor(x * 1.4426950408889634 + 0.5)
    r = (x - whole * 0.693145751953125) - whole * 1.42860682030941723212e-6  # log 2 in two parts: |r| < 0.35
    p = _TAYLOR[0]
    for q in range(1, 14):
        p = p * r + _TAYLOR[q]
    return p * _as_float((np.int64(whole) + np.int64(1023)) << np.int64(52))


@numba.njit(cache=True, nogil=True, fastmath=_FAST)  # type: ignore[untyped-decorator]
def _sums(A: Any, B: Any, line: Any, rates: Any, weights: Any) -> Any:  # pragma: no cover
    n, m = A.shape[1], B.shape[1]
    rows, columns = np.zeros(n), np.zeros(m)
    K = np.empty(TILE, dtype=np.float32)
    for start in range(0, m, TILE):
        width = min(TILE, m - start)
        for i in range(n):
            K[:width] = 0
            for p in range(len(line)):
                z, b = A[line[p], i], B[line[p], start : start + width]
                rate, weight = rates[p], weights[p]
                for j in range(width):
                    d = z - b[j]
                    K[j] += weight * _exp32(rate * d * d)
            total = 0.0
            for j in range(width):
                value = np.float64(abs(K[j]))
                total += value
                columns[start + j] += value
            rows[i] += total
    return rows, columns


@numba.njit(cache=True, nogil=True, fastmath=_FAST)  # type: ignore[untyped-decorator]
def _signed_sums(A: Any, B: Any, line: Any, rates: Any, weights: Any) -> Any:  # pragma: no cover
    n, m, k = A.shape[1], B.shape[1], len(line)
    result = np.zeros((n, k))
    values, K = np.empty((k, SIGNED_TILE)), np.empty(SIGNED_TILE)
    for start in range(0, m, SIGNED_TILE):
        width = min(SIGNED_TILE, m - start)
        for i in range(n):
            K[:width] = 0
            for p in range(k):
                z, b, e = A[line[p], i], B[line[p], start : start + width], values[p]
                rate, weight = rates[p], weights[p]
                for j in range(width):
                    d = z - b[j]
                    e[j] = _exp64(rate * d * d)
                    K[j] += weight * e[j]
            for p in range(k):
                e, total = values[p], 0.0
                for j in range(width):
                    total += e[j] if K[j] > 0 else (-e[j] if K[j] < 0 else 0.0)
                result[i, p] += total
    return result
