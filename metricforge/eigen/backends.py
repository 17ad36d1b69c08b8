"""The eigensolvers, and the choice among them: ARPACK, LAPACK, block Lanczos from `lanczos`, and registered ones."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import names
from ..errors import InputError
from ..rows import is_sparse
from .contract import Eigensolver, Floats, Solved, check_symmetric
from .lanczos import SINGLE_TOL, lanczos_pairs
from .products import COLUMNS, Products, orthonormal, rayleigh_ritz

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator

log = logging.getLogger(__name__)

NAMES = ("auto", "lanczos", "arpack", "dense")
"""Names of the solvers in this package; plugins register further names."""

_DENSE_ROWS = 500
"""Up to this n dense LAPACK is faster than an iterative solve and its check (0.05 s)."""
_MANY_LOOSE, _MANY = 32, 100
"""From this many pairs on "auto" chooses block Lanczos: at a tol of at least 2e-5, and below."""


def check_name(name: Any, argument: str = "solver") -> None:
    """Raise unless ``name`` is "auto", an eigensolver of this package, or a registered one."""
    names.check("eigensolver", name, NAMES, argument)


def resolve(solver: str | Eigensolver) -> str | Eigensolver | None:
    """Return the eigensolver of a name; "auto" and callables are returned unchanged, and None stands for LAPACK."""
    if not isinstance(solver, str):
        if not callable(solver):
            raise InputError(f"solver must be a name or a callable, got {type(solver).__name__}")
        return solver
    if solver == "auto":
        return solver
    own: dict[str, Eigensolver | None] = {"lanczos": lanczos_pairs, "arpack": arpack_pairs, "dense": None}
    found: Eigensolver | None = own[solver] if solver in own else names.find("eigensolver", solver, NAMES, "solver")
    return found


def choose(solver: str | Eigensolver | None, n: int, k: int, tol: float, warm: bool) -> Eigensolver | None:
    """Return the function to run, given the result of `resolve`; None stands for LAPACK."""
    if isinstance(solver, str):  # "auto"
        if n <= max(_DENSE_ROWS, 4 * k):
            return None
        faster = names.fastest("eigensolver", NAMES, 1.0, n, k, tol, warm)
        if faster is not None:
            found: Eigensolver = faster.load()
            return found
        # Measured by the benchmark simplenpkl-eigen: at a loose tol the basis is float32, half as long to read.
        return lanczos_pairs if k >= (_MANY_LOOSE if tol >= 2 * SINGLE_TOL else _MANY) else arpack_pairs
    # Krylov spaces of 2k + 1 vectors would fill the whole space.
    return None if n <= max(20, 2 * k) else solver


def name_of(backend: Eigensolver, solver: str | Eigensolver) -> str:
    """Return the name of the backend that ran: the requested name, or that of the function."""
    if isinstance(solver, str) and solver != "auto":
        return solver
    name: str = getattr(backend, "__name__", type(backend).__name__)
    return name.removesuffix("_pairs")


def arpack_pairs(
    A: LinearOperator, k: int, *, tol: float, v0: Floats, stop: Callable[[], bool]
) -> tuple[Floats, Floats]:
    """Compute k eigenpairs by ARPACK's implicitly restarted Lanczos method.

    ARPACK requires residuals below its tol times each |eigenvalue|, which is out of reach near zero.  The spectrum of A
    lies in about [-1, 1], and that of A + 2I in [1, 3], where the requirement is the same for all pairs to a factor of
    three.  Lanczos is invariant under the shift.

    References
    ----------
    Lehoucq, Sorensen and Yang, ARPACK Users' Guide, SIAM 1998.
    """
    from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

    n = A.shape[0]

    def product(x: Floats) -> Floats:
        # Once a limit is passed, A acts like I / 2: every vector is an eigenvector below the spectrum, without a
        # residual.  ARPACK takes its basis for an invariant subspace and returns the best pairs in it, which would be
        # lost with an exception.
        return x / 2.0 if stop() else A @ x + 2.0 * x

    # A sum of earlier eigenvectors has no component in what they missed: a tenth of it is random.
    noise = np.random.default_rng(0).standard_normal(n)
    guess = v0.sum(axis=1) + 0.1 * noise / np.linalg.norm(noise)
    # From SciPy 1.17 on, vectors drawn at a breakdown have a seed of their own.
    seeded: dict[str, Any] = {"rng": np.random.default_rng(0)} if "rng" in inspect.signature(eigsh).parameters else {}
    try:
        w, V = eigsh(
            LinearOperator((n, n), matvec=product, dtype=np.float64),
            k,
            which="LA",
            v0=guess,
            ncv=min(n, max(2 * k + 1, 40)),
            tol=tol / 3.2,
            maxiter=10**9,
            **seeded,
        )
    except ArpackError as error:
        # "No shifts could be applied" occurs with few, highly repeated eigenvalues.  The search finds them all.
        log.warning("ARPACK broke down (%s); the search for missed eigenvalues computes all pairs instead", error)
        return np.empty(0), np.empty((n, 0))
    return w - 2.0, V


def dense(products: Products, k: int, rng: np.random.Generator) -> Solved:
    """Solve with LAPACK; an operator is first applied to the identity, which a limit can stop."""
    from scipy.linalg import eigh

    n = products.n
    A = products.A
    if is_sparse(A):
        A = A.toarray()
    elif not isinstance(A, np.ndarray):
        A = np.empty((n, n))
        for j in range(0, n, COLUMNS):
            if products.stop():
                random = orthonormal(products.columns.random(k, rng))
                return Solved(*rayleigh_ritz(products, random, k), complete=False)
            A[:, j : j + COLUMNS] = products(np.eye(n, min(COLUMNS, n - j), -j))
        check_symmetric(A, 1e-4)
    if 4 * k < n:
        w, V = eigh(A, subset_by_index=(n - k, n - 1), driver="evr", check_finite=False)
    else:
        w, V = eigh(A, driver="evd", check_finite=False)
        w, V = w[n - k :], V[:, n - k :]
    w, V = w[::-1].copy(), V[:, ::-1].copy()
    products.spare += k
    R = products(V) - V * w
    size = float(np.abs(R).max(initial=0)) or 1.0  # squares of entries beyond 1e154 overflow
    return Solved(w, V, size * np.linalg.norm(R / size, axis=0), True)
