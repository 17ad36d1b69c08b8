"""Row sums of |Σ_p w_p exp(−γ_p (z_i − z_j)²)| over many rows, in one fused loop; the only file here with numba.

Each base is a Gaussian on a line: a column of X, or x'v.  Values are float32 (sixteen exponentials at a time in a
vector register), their sums float64, and the error is bounded.  The loop is compiled on first use and kept on disk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numba.core import types
from numba.extending import intrinsic
from numpy.typing import NDArray

Array = NDArray[Any]

UNIT = 2.0**-24
"""Half a unit in the last place of float32."""
TILE = 1024
"""Columns handled at a time: their coordinates and sums stay in the first-level cache."""
_FAST = {"reassoc", "contract", "arcp", "nsz"}


@dataclass(frozen=True, eq=False)
class Lines:
    """Gaussians on lines: base p is exp(−rates[p] (z − z')²) with z the coordinate on line[p].

    Attributes
    ----------
    axes : (d, l) array
        The lines, one per column.
    centre, radius : (l,) arrays
        The middle and half the length of what the rows cover on each line; coordinates are taken from the middle.
    line : (k,) int array
    rates : (k,) array
    """

    axes: Array
    centre: Array
    radius: Array
    line: Array
    rates: Array

    def coordinates(self, X: Any) -> Array:
        """Return the (l, n) float32 coordinates of dense or CSR rows."""
        return np.ascontiguousarray((X @ self.axes - self.centre).T, dtype=np.float32)

    def sums(self, X: Any, Y: Any, weights: Array) -> tuple[Array, Array]:
        """Return Σ_j |K_ij| of the rows of X and Σ_i |K_ij| of the rows of Y."""
        active = np.flatnonzero(weights)
        rows, columns = _sums(
            self.coordinates(X),
            self.coordinates(Y),
            self.line[active],
            -self.rates[active].astype(np.float32),
            weights[active].astype(np.float32),
        )
        return rows, columns

    def error(self, weights: Array) -> float:
        """Return a bound on the error of one |K_ij|.

        A coordinate is off by UNIT · radius at the most, and the slope of a Gaussian is below 0.86 sqrt(γ); weight,
        rate, square, exponent and polynomial add less than 16 units, and the sum over bases one unit for each of them.
        """
        each = 1.72 * np.sqrt(self.rates) * self.radius[self.line] + 16 + np.count_nonzero(weights)
        return float(UNIT * (np.abs(weights) @ each))


@intrinsic  # type: ignore[untyped-decorator]
def _as_float(typing: Any, bits: Any) -> Any:  # pragma: no cover
    """Read the bits of an int32 as a float32."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], context.get_value_type(types.float32))

    return types.float32(types.int32), generate


@numba.njit(inline="always", fastmath=_FAST)  # type: ignore[untyped-decorator]
def _exponential(x: Any) -> Any:  # pragma: no cover
    """Return exp(x) for −86 <= x <= 0.

    With t = x / log 2 it is 2^floor(t), written into the exponent bits, times a minimax polynomial of the rest.
    """
    t = x * np.float32(1.44269504088896)
    whole = np.floor(t)
    r = t - whole
    p = np.float32(1.8775767e-3)
    p = p * r + np.float32(8.9893397e-3)
    p = p * r + np.float32(5.5826318e-2)
    p = p * r + np.float32(2.4015361e-1)
    p = p * r + np.float32(6.9315308e-1)
    p = p * r + np.float32(9.9999994e-1)
    return p * _as_float((np.int32(whole) + np.int32(127)) << np.int32(23))


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
                    K[j] += weight * _exponential(max(rate * d * d, np.float32(-86)))
            total = 0.0
            for j in range(width):
                value = np.float64(abs(K[j]))
                total += value
                columns[start + j] += value
            rows[i] += total
    return rows, columns
