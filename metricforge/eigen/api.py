"""`top`: the entry point to all eigensolvers."""

from __future__ import annotations

import math
import time
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ConvergenceWarning
from ..rows import check_memory, is_dask, is_sparse
from ..rows.memory import requested_budget
from ..validation import generator, number, whole_number
from .backends import choose, dense, name_of, resolve
from .columns import columns_of
from .completeness import Piece, complete, joined, small_components
from .contract import Eigenpairs, Eigensolver, Solved, Status, Stop, checked_matrix, checked_start, tol_floor
from .products import Products

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
