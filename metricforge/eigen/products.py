"""Products with the matrix: scaled, counted, timed and checked in one place; orthonormal bases; Rayleigh-Ritz.

Iterative solvers see ``A`` divided by an estimate of its largest absolute eigenvalue, so that ``tol`` means the same to
each of them.
"""

from __future__ import annotations

import math
import time
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..checks import first_rows
from ..errors import InputError, SolverError
from .contract import Floats, Stop

COLUMNS = 16
"""Columns of one product: bounds the temporaries, and the time between two checks of the limits."""


def is_sparse(A: object) -> bool:
    """Return whether A is a SciPy sparse matrix or array."""
    from scipy.sparse import issparse

    return bool(issparse(A))


class Products:
    """The operator X -> A X / unit, with its limits.

    Attributes
    ----------
    unit : float
        What products are divided by.
    n_products : int
        Vectors multiplied so far.
    reached : {"iteration_limit", "time_limit"} or None
        The limit that was passed.
    error : BaseException or None
        What a product of the user's operator raised.
    spare : int
        Products still granted after a limit was passed.
    """

    def __init__(self, A: Any, limit: int, deadline: float) -> None:
        self.A = A
        self.n: int = A.shape[0]
        self.unit = 1.0
        self.n_products = 0
        self.reached: Literal["iteration_limit", "time_limit"] | None = None
        self.error: BaseException | None = None
        self.spare = 0
        self._limit = limit
        self._deadline = deadline
        self._single: Any = None  # A / unit in float32

    def stop(self) -> bool:
        """Return whether a limit was passed; once true, it stays true."""
        if self.reached is None:
            if self.n_products >= self._limit:
                self.reached = "iteration_limit"
            elif time.monotonic() >= self._deadline:
                self.reached = "time_limit"
        return self.reached is not None

    def __call__(self, X: NDArray[Any]) -> NDArray[Any]:
        """Return A X / unit for one vector or a block, in the precision of X (float32 or float64)."""
        columns = X.shape[1] if X.ndim == 2 else 1
        if columns > COLUMNS:
            Y = np.empty(X.shape, dtype=X.dtype)
            for j in range(0, columns, COLUMNS):
                Y[:, j : j + COLUMNS] = self(X[:, j : j + COLUMNS])
            return Y
        if self.stop():
            self.spare -= columns
        if self.spare < 0 or self.error is not None:
            raise Stop(self.reached)
        single = X.dtype == np.float32
        A, unit = self._in_single() if single else (self.A, self.unit)
        try:
            Y = np.asarray(A @ X)
            _check_product(X, Y)
        except BaseException as error:
            # PRIMME would turn an exception into a number, and a KeyboardInterrupt into a line on stderr
            self.error = error
            raise Stop from error
        self.n_products += columns
        if single and self._single is not None:
            return Y
        return np.asarray(Y / unit, dtype=np.float32 if single else np.float64)

    def _in_single(self) -> tuple[Any, float]:
        """Return the matrix for float32 blocks, and the unit of its product.

        A sparse A is also stored in float32, which halves the memory traffic.  It is divided by the unit first, because
        its entries may exceed the range of float32.
        """
        if not is_sparse(self.A):
            return self.A, self.unit
        if self._single is None:
            data = (self.A.data / self.unit).astype(np.float32)
            self._single = type(self.A)((data, self.A.indices, self.A.indptr), shape=self.A.shape)
        return self._single, 1.0


def _check_product(X: Floats, Y: NDArray[Any]) -> None:
    if Y.dtype.kind not in "biuf":
        raise InputError(f"A: the operator returned entries of type {Y.dtype}; its products must be real")
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(Y.sum()):  # NaN and infinity would propagate to the sum
            return
    finite = np.isfinite(Y)
    if not finite.all():
        if not np.isfinite(X).all():
            raise SolverError("the eigensolver broke down: it multiplied a vector that is not finite; try another")
        raise InputError(
            f"A: the operator returned NaN or infinity in {first_rows(np.unique(np.nonzero(~finite)[0]))}; "
            "its products must be finite"
        )


def orthonormal(W: NDArray[Any], *bases: NDArray[Any], floor: float = 0.0) -> NDArray[Any]:
    """Return an orthonormal basis of what the columns of W add to the orthonormal columns of ``bases``.

    Columns of norm at most ``floor`` are dropped, and so are columns that add less than the square root of rounding to
    ``bases``.  Inner products of columns are in float64, so one pass leaves an error of eps times their condition
    number.  A second pass follows if the columns are nearly dependent, or if much was subtracted.
    """
    W = np.asarray(W, dtype=np.float32 if W.dtype == np.float32 else np.float64)
    eps = float(np.finfo(W.dtype).eps)
    for _ in range(2):
        if bases:
            norms = _norms(W)
            W = W[:, norms > 0.0] / norms[norms > 0.0]
            for Q in bases:
                W = W - Q @ (Q.T @ W)
            floor = math.sqrt(eps)
        X = W.astype(np.float64, copy=False)
        G = X.T @ X
        norms = np.sqrt(G.diagonal())
        scale = np.where(norms > floor, norms, np.inf)
        s, U = np.linalg.eigh(G / scale[:, None] / scale)
        keep = s > 100 * eps
        W = W @ np.asarray(U[:, keep] / np.sqrt(s[keep]) / scale[:, None], dtype=W.dtype)
        if s.min(initial=1.0) > 1e-3 and not (bases and norms.min(initial=1.0) <= 0.7):
            break
        floor = 0.0
    return W


def _norms(W: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(np.sqrt(np.einsum("ij,ij->j", W, W)))  # np.linalg.norm allocates two arrays of this shape


def largest_magnitude(products: Products, rng: np.random.Generator, steps: int = 12) -> float:
    """Estimate the largest absolute eigenvalue from below by Lanczos, and raise if the operator is not symmetric.

    The estimate is within a few per cent, since the outermost Ritz value converges first; it is zero only if A is zero.
    """
    q = rng.standard_normal(products.n)
    Q = (q / np.linalg.norm(q))[:, None]
    AQ = products(Q)
    # Norms are taken of numbers near 1, or those of a tiny matrix would underflow to zero.
    unit = float(np.abs(AQ).max())
    if unit == 0.0:
        return 0.0
    AQ = AQ / unit
    while Q.shape[1] < steps and not products.stop():
        q = orthonormal(AQ[:, -1:], Q)
        if q.shape[1] == 0:
            break
        Q, AQ = np.hstack([Q, q]), np.hstack([AQ, products(q) / unit])
    H = Q.T @ AQ
    if np.abs(H - H.T).max() > 1e-4 * np.abs(H).max():
        raise InputError("A: the operator is not symmetric, x'(Ay) and y'(Ax) differ; pass a symmetric operator")
    # |Aq| is a lower bound too, and positive even if every Ritz value vanishes.
    return unit * float(max(np.abs(np.linalg.eigvalsh(H)).max(), np.linalg.norm(AQ, axis=0).max()))


def rayleigh_ritz(products: Products, V: Floats, k: int) -> tuple[Floats, Floats, Floats]:
    """Rotate orthonormal columns, in place, to the k best eigenpairs in their span; also return the residual norms."""
    products.spare = max(products.spare, 0) + V.shape[1]
    AV = products(V)
    H = V.T @ AV
    w, S = np.linalg.eigh((H + H.T) / 2)
    w, S = w[::-1][:k].copy(), S[:, ::-1][:, :k]
    squares = np.zeros(k)
    step = max(1, 2**20 // k)  # no further array of shape (n, k)
    for i in range(0, len(V), step):
        rows = V[i : i + step] @ S
        V[i : i + step, :k] = rows
        squares += np.square(AV[i : i + step] @ S - rows * w).sum(axis=0)
    return w, V[:, :k], np.sqrt(squares)
