"""PRIMME as an eigensolver of `metricforge.eigen.top`.  This is the only file that imports primme."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from metricforge.eigen.completeness import block_width
from metricforge.eigen.contract import Floats
from metricforge.errors import SolverError

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator

LOOSE_TOL, FEW = 1e-4, 32
"""The least tol, and a number of pairs, between which PRIMME is faster than ARPACK from a start near the solution."""
SHARE = 0.9
"""Its time as a share of ARPACK's there: the median over graphs of 5,000 and 20,000 rows, 5 to 31 pairs, tol 1e-3 and
1e-4 (from 0.2 to 1.2)."""


def primme_pairs(
    A: LinearOperator, k: int, *, tol: float, v0: Floats, stop: Callable[[], bool]
) -> tuple[Floats, Floats]:
    """Compute k eigenpairs by PRIMME's block Davidson method with retained vectors (GD+k).

    Blocks have at least 8 vectors, because single vectors miss copies of repeated eigenvalues.  PRIMME's default method
    JDQMR is not used: when a block breaks down on such eigenvalues, it reads uninitialised memory and multiplies NaN.

    References
    ----------
    Stathopoulos and McCombs, ACM Trans. Math. Softw. 37(2), 2010.
    """
    import primme

    def converged(value: float | None, vector: object, residual: float | None) -> bool:
        # Once a limit is passed every pair counts as converged: PRIMME then returns its k best instead of an error.
        return stop() or (residual is not None and residual <= tol)

    try:
        w, V = primme.eigsh(
            A,
            k,
            which="LA",
            tol=tol,
            convtest=converged,
            v0=v0,
            method="PRIMME_DEFAULT_MIN_MATVECS",
            maxBlockSize=block_width(k),
            maxiter=2**31 - 1,
            return_unconverged=True,
        )
    except primme.PrimmeError as error:
        raise SolverError(f"PRIMME failed: {error}; try solver='arpack'") from error
    return w, V


def _forecast(n: int, k: int, tol: float, warm: bool) -> float:
    """Return the expected time as a share of that of the solver that "auto" takes otherwise."""
    return SHARE if warm and tol >= LOOSE_TOL and k < FEW else math.inf


primme_pairs.forecast = _forecast  # type: ignore[attr-defined]
