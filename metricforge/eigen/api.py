"""`top`, the entry point to all eigensolvers; ARPACK and LAPACK, and the choice among all of them."""

from __future__ import annotations

import inspect
import logging
import math
import time
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .. import names
from ..errors import ConvergenceWarning, InputError
from ..rows import check_memory, is_dask, is_sparse
from ..rows.memory import requested_budget
from ..validation import generator, number, whole_number
from .columns import columns_of
from .completeness import Piece, complete, joined, small_components
from .contract import (
    Eigenpairs,
    Eigensolver,
    Floats,
    Solved,
    Status,
    Stop,
    check_symmetric,
    checked_matrix,
    checked_start,
    tol_floor,
)
from .lanczos import SINGLE_TOL, lanczos_pairs
from .products import COLUMNS, Products, orthonormal, rayleigh_ritz

if TYPE_CHECKING:
    from scipy.sparse import csr_array
    from scipy.sparse.linalg import LinearOperator


VECTORS = 6
"""Vectors in memory per eigenpair, besides 80: basis, answer, its product, and their copies."""


def top(
    A: NDArray[Any] | csr_array | LinearOperator,
    k: int,
    *,
    solver: str | Eigensolver = "auto",
    tol: float = 1e-8,
    v0: NDArray[Any] | None = None,
    seed: int | np.random.Generator | None = None,
    max_iter: int | None = None,
    max_seconds: float | None = None,
) -> Eigenpairs:
    """Return the k algebraically largest eigenvalues of a symmetric A, descending, and their eigenvectors.

    Maximise tr(V'AV) over V (n, k) with V'V = I.  The columns are rotated so that V'AV is diagonal, and each is signed
    so that its entry of largest magnitude is positive.  Results are float64: a matrix of another type is converted
    once; the products of a float32 operator are assumed to have float32 precision.

    Parameters
    ----------
    A : ndarray, SciPy sparse matrix or array, LinearOperator, or dask array of CSR row blocks; shape (n, n)
        Real and symmetric.  Matrices are checked entry by entry for NaN, infinity and asymmetry; an operator is
        checked on the products it returns.  An exception raised by an operator is passed on unchanged.
    k : int
        1 <= k <= n.
    solver : {"auto", "lanczos", "arpack", "dense"}, the name of a registered eigensolver, or Eigensolver
        "auto" is dense for n up to 500 or 4k.  Above that it is block Lanczos for many pairs (k >= 100, or k >= 32 with
        a ``tol`` of at least 2e-5) and ARPACK for few; or a registered eigensolver that forecasts less time, as
        "primme" does for few pairs from a start ``v0`` and a ``tol`` of at least 1e-4.  Every iterative solver is
        replaced by LAPACK when n <= 20 or n <= 2k.
    tol : float
        Each residual ``|Av - wv|`` is at most ``tol`` times the largest absolute eigenvalue (estimated from below by
        a few Lanczos steps).  Eigenvalues then err by about ``tol`` squared over their gap.  Values below 1e-12 are
        raised to 1e-12.
    v0 : ndarray, shape (n, i), optional
        Approximate eigenvectors.  PRIMME starts from the first k of them, the others from a combination of all.
    seed : int or Generator, optional
        Seed of the starting vectors.  None is a fixed seed too: an eigenproblem has one answer.
    max_iter : int, optional
        Limit on the products of A with one vector; default 1000 (k + 20).  Returning k pairs and their residuals can
        take about 3k + 32 products more.
    max_seconds : float, optional
        Limit on the time, checked between products of at most 16 columns.  LAPACK cannot be interrupted.

    Returns
    -------
    Eigenpairs
        Unpacks as ``w, V``.  For a dask array A, V is a dask array with the row chunks of A.  If a limit stopped the
        solve, the best pairs so far, with ``status`` set and a ConvergenceWarning.  The status "iteration_limit" also
        covers a solver that gave up before ``tol``.

    Raises
    ------
    InputError
        A is not square, real, finite or symmetric; k, v0, tol, a limit or the solver is out of range.
    SolverError
        A backend failed, or returned something other than a set of finite vectors.

    Notes
    -----
    Memory besides A: LAPACK n^2; ARPACK max(2k + 1, 40) vectors; block Lanczos 2k + 32 in float32 (float64 below
    tol = 2e-5); PRIMME about max(2k, 30) + 40 vectors; the search for missed eigenvalues 40 (plus k in float32 from
    that tol on); the answer and its product 2k.  A sparse A is copied if it is not float64 CSR, and once more without
    its small connected components if it has any: these are solved densely, so that isolated rows neither cost
    iterations nor repeat eigenvalues.

    For a dask array A the iteration runs on the workers: only matrices of as many rows and columns as the basis has
    vectors are in this process, and the answer is that in memory, to rounding.  Its few row blocks should each have as
    many rows as a worker has memory for, because every step of the iteration is a round of a few tasks per block.  The
    solver is then "lanczos", or "dense" in this process for few rows.  A dask array is checked for NaN, infinity and
    asymmetry as an operator is.

    The search stops when its largest Ritz value plus residual is below the smallest returned value (plus tol).  It is
    cheap when the spectrum has a gap after k, and costs about as much as one more pair when it has none.
    """
    if is_dask(A):
        from ..distributed.eigen import top_on_dask

        return top_on_dask(A, k, solver, tol, v0, seed, max_iter, max_seconds)
    seconds = math.inf if max_seconds is None else number(max_seconds, "max_seconds", least=0)
    deadline = time.monotonic() + seconds
    matrix = checked_matrix(A)
    n = matrix.shape[0]
    k = whole_number(k, "k", most=n, most_is="the number of rows of A")
    if requested_budget() is not None:  # how much is needed depends on the solver; this is what the largest needs
        check_memory(8 * n * (VECTORS * k + 80), f"{k} eigenvectors of {n} rows", "ask for fewer")
    limit = 1000 * (k + 20) if max_iter is None else whole_number(max_iter, "max_iter")
    tol = max(number(tol, "tol", least=0), tol_floor(matrix))
    start = None if v0 is None else checked_start(v0, n)
    rng = generator(0 if seed is None else seed)
    requested = resolve(solver)
    backend = choose(requested, n, k, tol, start is not None)

    pieces: list[Piece] = []
    if backend is not None and is_sparse(matrix):
        pieces, rest = small_components(matrix, k)
    if not pieces:
        products = Products(matrix, limit, deadline)
        solved = solve(products, k, backend, tol, start, rng)
    else:
        products = Products(matrix[rest][:, rest], limit, deadline)
        large, k_rest, backend = None, min(k, len(rest)), None
        if k_rest:
            backend = choose(requested, len(rest), k_rest, tol, start is not None)
            large = solve(products, k_rest, backend, tol, None if start is None else start[rest], rng)
        solved = joined(pieces, large, rest, n, k)

    name = "dense" if backend is None else name_of(backend, solver)
    return concluded(solved, columns_of(solved.V).signed(solved.V), name, products)


def concluded(solved: Solved, V: Any, name: str, products: Products | None, calls: int = 1) -> Eigenpairs:
    """Return the eigenpairs with the record of the solve, and warn if a limit stopped it.

    ``calls`` is the number of calls from the user's to this one.
    """
    reached = None if products is None else products.reached
    count = 0 if products is None else products.n_products
    status: Status = "converged" if solved.complete else reached or "iteration_limit"
    if status != "converged":
        warnings.warn(
            f"the {name} eigensolver stopped early ({status}) after {count} products; the largest "
            f"residual is {solved.residuals.max():.1e} and larger eigenvalues may be missing: raise max_iter or "
            "max_seconds, or accept a larger tol",
            ConvergenceWarning,
            stacklevel=2 + calls,
        )
    return Eigenpairs((solved.w, V), status=status, solver=name, residuals=solved.residuals, n_products=count)


def solve(
    products: Products,
    k: int,
    backend: Eigensolver | None,
    tol: float,
    start: Any,
    rng: np.random.Generator,
) -> Solved:
    """Run LAPACK or the backend; an exception of the user's operator is raised unchanged."""
    products.spare = 2 * k + 32
    try:
        if backend is None:
            return dense(products, k, rng)
        return complete(products, k, backend, tol, start, rng)
    except Stop:
        pass
    # outside the handler, so that the exception keeps its own cause and context
    assert products.error is not None
    raise products.error


# ---------------------------------------------------------------------------------------------------------- the solvers

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
