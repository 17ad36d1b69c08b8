"""What an eigensolver receives and returns, and what `metricforge.eigen.top` returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
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
