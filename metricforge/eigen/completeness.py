"""Complete the answer of an iterative solver: search its orthogonal complement for eigenvalues that it missed."""

from __future__ import annotations

import logging
import math

import numpy as np

from ..errors import SolverError
from .backends import primme_block
from .contract import Eigensolver, Floats, Solved, Stop
from .lanczos import SINGLE_TOL, thick_restart
from .products import COLUMNS, Products, largest_magnitude, orthonormal, rayleigh_ritz

log = logging.getLogger(__name__)

_SEARCH_PRODUCTS = 40
"""The search multiplies at least this many vectors before it concludes that nothing is missing."""
_EVERY = 8
"""A search from one vector computes its Ritz values after this many products."""


def complete(
    products: Products,
    k: int,
    backend: Eigensolver,
    tol: float,
    start: Floats | None,
    rng: np.random.Generator,
) -> Solved:
    """Solve with the backend, then search the complement of its answer until no larger eigenvalue is left."""
    n = products.n
    products.unit *= largest_magnitude(products, rng)
    if products.unit == 0.0:
        return Solved(np.zeros(k), np.eye(n, k), np.zeros(k), True)

    V = _run(backend, products, k, tol, start, rng)
    width, finished = 1, False
    while True:
        w, V, residuals = rayleigh_ritz(products, _filled(V, k, rng), k)
        if products.stop():
            break
        # Only converged eigenvectors are excluded from the search; the others are where it starts.
        good = residuals <= tol
        level, most = (w[-1], k) if good.all() else (-math.inf, k - int(good.sum()))
        guess = np.hstack([V[:, ~good][:, : COLUMNS - width], rng.standard_normal((n, width))])
        found, conclusive = search_above(products, V[:, good], guess, level, most, tol)
        if found.shape[1] == 0:
            finished = conclusive
            break
        log.info("%d eigenvectors added to those of %s", found.shape[1], backend)
        V = orthonormal(np.hstack([V, found]))
        width = min(4 * width, COLUMNS)
    return Solved(w * products.unit, V, residuals * products.unit, finished)


def _run(
    backend: Eigensolver,
    products: Products,
    k: int,
    tol: float,
    start: Floats | None,
    rng: np.random.Generator,
) -> Floats:
    """Return the columns of the backend, made orthonormal; its starting vectors if it was stopped."""
    from scipy.sparse.linalg import LinearOperator

    n = products.n
    v0 = orthonormal(rng.standard_normal((n, primme_block(k))) if start is None else start)
    if v0.shape[1] == 0:
        v0 = orthonormal(rng.standard_normal((n, 1)))
    A = LinearOperator((n, n), matvec=products, matmat=products, dtype=np.float64)
    try:
        # Half of tol, so that rounding in the rotation afterwards does not lift a residual above tol.
        _, V = backend(A, k, tol=tol / 2, v0=v0, stop=products.stop)
    except Exception:
        if products.error is None and products.spare >= 0:
            raise
        V = v0
    if products.error is not None:
        raise Stop
    V = np.asarray(V)
    if V.ndim != 2 or V.shape[0] != n or not np.isfinite(V).all():
        raise SolverError(f"eigensolver {backend!r} must return (w, V) with V of shape ({n}, j) and finite")
    return orthonormal(V)


def _filled(V: Floats, k: int, rng: np.random.Generator) -> Floats:
    """Return at least k orthonormal columns, adding random ones to V where needed."""
    if V.shape[1] >= k:
        return V
    return np.hstack([V, orthonormal(rng.standard_normal((len(V), k - V.shape[1])), V)])


def search_above(
    products: Products, V: Floats, guess: Floats, level: float, most: int, tol: float
) -> tuple[Floats, bool]:
    """Search for eigenvalues above ``level`` in the orthogonal complement of the eigenvectors V.

    Block Lanczos from ``guess``, some of whose columns are random.  With probability one these have a share in every
    eigenvector outside V (of a repeated eigenvalue, in as many copies as there are columns), and outer eigenvalues
    converge first.  Ritz values are lower bounds, so one above ``level + tol`` proves that an eigenvalue is missing.

    Returns
    -------
    found : ndarray, shape (n, j), j <= most
        Eigenvectors of eigenvalues above the level, orthonormal and orthogonal to V; j = 0 if there are none.
    finished : bool
        False if a limit ended the search; the vectors are then the best so far.
    """
    n, k = V.shape
    start = orthonormal(guess, V)
    if tol >= 2 * SINGLE_TOL:  # V and the basis are read most often, and then half as long
        start, V = start.astype(np.float32), V.astype(np.float32)
    width = start.shape[1]
    size = min(max(5 * width, 40, 2**21 // n), n - k)
    # From one vector a Ritz pair can converge only where the remainder is small.
    every = _EVERY if width == 1 else 1
    wanted = min(width, most)
    iteration = thick_restart(
        products,
        start,
        size,
        max(width, size // 3),
        wanted=max(1, wanted),
        stop=products.stop,
        apart=V,
        every=every,
        small=tol,
    )
    for ritz in iteration:
        theta, residuals = ritz.values, ritz.residuals
        above = theta[:wanted] > level + tol
        if above.any():
            finished = bool((residuals[: len(above)][above] <= tol / 2).all())
        else:
            finished = ritz.products >= _SEARCH_PRODUCTS and bool(theta[0] + residuals[0] <= level + tol)
        finished = finished or ritz.invariant
        if finished:
            break
    return ritz.vectors(above), finished
