"""What an eigensolver receives and returns; validation of the arguments of `metricforge.eigen.top`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..rows import is_sparse
from ..validation import check_sparse_indices, first_rows

if TYPE_CHECKING:
    from scipy.sparse import csr_array
    from scipy.sparse.linalg import LinearOperator

Floats: TypeAlias = NDArray[np.float64]
Status: TypeAlias = Literal["converged", "iteration_limit", "time_limit"]


class Stop(Exception):  # noqa: N818 - not an error: it unwinds a backend
    """Raised by a product after a limit was passed or the operator failed; a backend must not suppress it."""


class Eigensolver(Protocol):
    """The interface of the argument ``solver`` of `top`, and of what a plugin registers as an ``eigensolver``.

    Parameters
    ----------
    A : LinearOperator, shape (n, n), float64
        Symmetric, scaled to a largest absolute eigenvalue of about 1.  ``A @ X`` takes one vector or a block; a float32
        block is multiplied in float32.
    k : int
        How many of the algebraically largest eigenpairs to compute; 2 k < n.
    tol : float
        The residual norm ``|Av - wv|`` to reach.
    v0 : ndarray, shape (n, i), i >= 1
        Orthonormal starting vectors, from the caller or from the seed.  Use no other source of randomness.
    stop : callable
        ``stop()`` turns true once a limit is passed.  The solver should then return its best pairs so far; it may still
        multiply about 2 k vectors before a product raises `Stop`.

    Returns
    -------
    w : ndarray, shape (j,)
    V : ndarray, shape (n, j)
        In any order and not necessarily orthogonal: `top` orthonormalises the columns and searches for eigenpairs that
        are missing.  Pairs that are missing or short of ``tol`` are found that way too, but more slowly.
    """

    def __call__(
        self, A: LinearOperator, k: int, *, tol: float, v0: Floats, stop: Callable[[], bool]
    ) -> tuple[Floats, Floats]:
        """Return eigenvalues and eigenvectors."""
        ...


class Eigenpairs(tuple[Floats, Floats]):
    """The pair ``(w, V)``, with a record of the solve.

    Attributes
    ----------
    status : {"converged", "iteration_limit", "time_limit"}
    solver : str
        The solver that ran.  It can differ from the one requested: small problems are solved densely.
    residuals : ndarray, shape (k,)
        ``|A v - w v|`` for each pair, from products with ``A`` itself.
    n_products : int
        Vectors multiplied by ``A``, including those of the checks.
    """

    status: Status
    solver: str
    residuals: Floats
    n_products: int

    def __new__(cls, pair: Iterable[Floats], **record: Any) -> Eigenpairs:
        """Take the pair as one argument, which pickling and copying a tuple require."""
        self = super().__new__(cls, tuple(pair))
        self.__dict__.update(record)
        return self


class Solved(NamedTuple):
    """Eigenpairs of an operator before signs are fixed."""

    w: Floats  # (k,) descending
    V: Any  # (n, k) orthonormal, in memory or in chunks
    residuals: Floats  # (k,)
    complete: bool  # every residual is within tol, and no larger eigenvalue is missing


# ----------------------------------------------------------------------------------------------------------- validation

TOL_FLOOR = 1e-12
"""Below this relative residual rounding decides."""
_LARGE = 1e100
"""Entries of a start above this are scaled, so that their squares do not overflow."""


def checked_matrix(A: Any) -> Any:
    """Return A as a float64 ndarray, a float64 CSR array, or an unchanged LinearOperator; raise if not symmetric."""
    from scipy.sparse import csr_array
    from scipy.sparse.linalg import LinearOperator

    sparse = is_sparse(A)
    if not (sparse or isinstance(A, np.ndarray | LinearOperator)):
        raise InputError(
            f"A must be an ndarray, a SciPy sparse matrix or a LinearOperator, got {type(A).__name__}; "
            "wrap its product in a LinearOperator"
        )
    if len(A.shape) != 2 or A.shape[0] != A.shape[1] or A.shape[0] == 0:
        raise InputError(f"A must be square with at least one row, got shape {A.shape}")
    dtype = np.dtype(A.dtype)
    if dtype.kind not in "biuf":
        raise InputError(f"A must be real, got entries of type {dtype}; pass a real symmetric matrix")
    if not sparse and not isinstance(A, np.ndarray):
        return A
    # Asymmetry up to the square root of eps counts as rounding.
    slack = float(np.sqrt(np.finfo(dtype if dtype.kind == "f" else np.float64).eps))
    if sparse:
        try:
            check_sparse_indices(A)
        except ValueError as error:
            raise InputError(f"A is a sparse matrix with invalid indices ({error}); build it anew") from None
        rows = csr_array(A, dtype=np.float64)
        _check_sparse(rows, slack)
        return rows
    dense = np.asarray(A, dtype=np.float64)
    _check_finite(dense)
    check_symmetric(dense, slack)
    return dense


def _check_finite(A: Floats) -> None:
    step = max(1, 2**20 // len(A))
    for i in range(0, len(A), step):
        bad = ~np.isfinite(A[i : i + step]).all(axis=1)
        if bad.any():
            raise _not_finite(i + np.flatnonzero(bad))


def check_symmetric(A: Floats, slack: float) -> None:
    """Raise if A differs from its transpose by more than ``slack`` times its largest entry.

    The two are compared a few rows at a time, without a second n x n array.
    """
    n = len(A)
    step = max(1, 2**20 // n)
    worst, where, largest = 0.0, (0, 0), 0.0
    for i in range(0, n, step):
        rows = A[i : i + step]
        largest = max(largest, float(np.abs(rows).max()))
        with np.errstate(over="ignore"):  # an infinite difference is the worst
            gap = np.abs(rows - A[:, i : i + step].T)
        if gap.max() > worst:
            r, c = divmod(int(gap.argmax()), n)
            worst, where = float(gap[r, c]), (i + r, c)
    if worst > slack * largest:
        raise _not_symmetric(*where, A[where], A[where[::-1]])


def _check_sparse(A: csr_array, slack: float) -> None:
    if A.nnz == 0:
        return
    bad = np.flatnonzero(~np.isfinite(A.data))
    if len(bad):
        raise _not_finite(np.unique(np.searchsorted(A.indptr, bad, side="right") - 1))
    with np.errstate(over="ignore"):
        gap = (A - A.T).tocoo()
    if gap.nnz and np.abs(gap.data).max() > slack * np.abs(A.data).max():
        worst = int(np.abs(gap.data).argmax())
        i, j = int(gap.row[worst]), int(gap.col[worst])
        raise _not_symmetric(i, j, A[i, j], A[j, i])


def _not_finite(rows: NDArray[np.intp]) -> InputError:
    return InputError(f"A contains NaN or infinity in {first_rows(rows)}; remove or impute it first")


def _not_symmetric(i: int, j: int, there: float, back: float) -> InputError:
    return InputError(
        f"A is not symmetric: A[{i}, {j}] = {there:.6g} but A[{j}, {i}] = {back:.6g}; "
        "pass (A + A.T) / 2 if you mean its symmetric part"
    )


def tol_floor(A: Any) -> float:
    """Return the smallest relative residual that the precision of A allows."""
    dtype = np.dtype(A.dtype)  # float64, unless A is an operator
    return max(TOL_FLOOR, 50.0 * float(np.finfo(dtype).eps)) if dtype.kind == "f" else TOL_FLOOR


def checked_start(v0: Any, n: int) -> Floats:
    """Return the starting vectors as an (n, i) float64 array."""
    try:
        start = np.asarray(v0, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"v0 must be an array of real numbers: {error}") from error
    if start.ndim != 2 or start.shape[0] != n or not 1 <= start.shape[1] <= n:
        raise InputError(f"v0 must have shape ({n}, i) with 1 <= i <= {n}, got {start.shape}")
    if not np.isfinite(start).all():
        bad = np.flatnonzero(~np.isfinite(start).all(axis=1))
        raise InputError(f"v0 contains NaN or infinity in {first_rows(bad)}; omit it or replace these values")
    size = max(start.max(), -start.min())
    return start / size if size > _LARGE else start
