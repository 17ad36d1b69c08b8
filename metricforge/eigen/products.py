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

from ..errors import InputError, SolverError
from ..rows import beat, is_sparse
from ..validation import first_rows
from .columns import Block, Columns, columns_of
from .contract import Floats, Stop

COLUMNS = 16
"""Columns of one product: bounds the temporaries, and the time between two checks of the limits."""


class Products:
    """The operator X -> A X / unit, with its limits.

    Attributes
    ----------
    columns : Columns
        The operations on the blocks that A multiplies.
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
        self.columns: Columns = getattr(A, "columns", None) or Columns(self.n)
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

    def __call__(self, X: Block) -> Block:
        """Return A X / unit for one vector or a block, in the precision of X (float32 or float64)."""
        columns = X.shape[1] if len(X.shape) == 2 else 1
        if columns > COLUMNS and isinstance(X, np.ndarray):
            Y = np.empty(X.shape, dtype=X.dtype)
            for j in range(0, columns, COLUMNS):
                Y[:, j : j + COLUMNS] = self(X[:, j : j + COLUMNS])
            return Y
        if self.stop():
            self.spare -= columns
        if self.spare < 0 or self.error is not None:
            raise Stop(self.reached)
        if not isinstance(X, np.ndarray):  # chunks: the matrix splits columns and checks products itself
            self.n_products += columns
            return self.A.product(X, self.unit)
        single = X.dtype == np.float32
        A, unit = self._in_single() if single else (self.A, self.unit)
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                Y = np.asarray(A @ X)
            _check_product(X, Y)
        except BaseException as error:
            # PRIMME would turn an exception into a number, and a KeyboardInterrupt into a line on stderr
            self.error = error
            raise Stop from error
        self.n_products += columns
        beat(self.n_products, max(self.n_products, self._limit))
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


def orthonormal(W: Block, *bases: Block, floor: float = 0.0, gram: Floats | None = None) -> Block:
    """Return an orthonormal basis of what the columns of W add to the orthonormal columns of ``bases``.

    Columns of norm at most ``floor`` are dropped, and so are columns that add less than the square root of rounding to
    ``bases``.  Inner products of columns are in float64, so one pass leaves an error of eps times their condition
    number.  A second pass follows if the columns are nearly dependent, or if much was subtracted.  ``gram`` is W'W, if
    it is known.
    """
    on = columns_of(W)
    W = on.cast(W, np.float32 if W.dtype == np.float32 else np.float64)
    eps = float(np.finfo(W.dtype).eps)
    for _ in range(2):
        if bases:
            norms = np.sqrt(on.gram(W).diagonal())
            W = on.times(W, np.diag(1 / np.where(norms > 0.0, norms, 1.0))[:, norms > 0.0])
            for Q in bases:
                W = on.minus(W, Q, on.inner(Q, W))
            floor, gram = math.sqrt(eps), None
        G = on.gram(W) if gram is None else gram
        norms = np.sqrt(np.maximum(0.0, G.diagonal()))
        scale = np.where(norms > floor, norms, np.inf)
        s, U = np.linalg.eigh(G / scale[:, None] / scale)
        keep = s > 100 * eps
        W = on.times(W, U[:, keep] / np.sqrt(s[keep]) / scale[:, None])
        if s.min(initial=1.0) > 1e-3 and not (bases and norms.min(initial=1.0) <= 0.7):
            break
        floor, gram = 0.0, None
    return W


def largest_magnitude(products: Products, rng: np.random.Generator, steps: int = 12) -> float:
    """Estimate the largest absolute eigenvalue from below by Lanczos, and raise if the operator is not symmetric.

    The estimate is within a few per cent, since the outermost Ritz value converges first; it is zero only if A is zero,
    or so tiny that its entries have lost digits.
    """
    on = products.columns
    Q = orthonormal(on.random(1, rng))
    AQ = products(Q)
    # Norms are taken of numbers near 1, or those of a tiny matrix would underflow to zero.
    unit = float(on.largest(AQ).max())
    if unit < np.finfo(np.float64).tiny:  # the inverse of a smaller number overflows
        return 0.0
    AQ = on.times(AQ, np.eye(1) / unit)
    while Q.shape[1] < steps and not products.stop():
        q = orthonormal(on.select(AQ, slice(-1, None)), Q)
        if q.shape[1] == 0:
            break
        Q, AQ = on.beside(Q, q), on.beside(AQ, on.times(products(q), np.eye(1) / unit))
    H = on.inner(Q, AQ)
    if np.abs(H - H.T).max() > 1e-4 * np.abs(H).max():
        raise InputError("A: the operator is not symmetric, x'(Ay) and y'(Ax) differ; pass a symmetric operator")
    # |Aq| is a lower bound too, and positive even if every Ritz value vanishes.
    norms = np.sqrt(on.gram(AQ).diagonal())
    return unit * float(max(np.abs(np.linalg.eigvalsh(H)).max(), norms.max()))


def rayleigh_ritz(products: Products, V: Block, k: int) -> tuple[Floats, Block, Floats]:
    """Rotate orthonormal columns, in place, to the k best eigenpairs in their span; also return the residual norms."""
    products.spare = max(products.spare, 0) + V.shape[1]
    on = products.columns
    AV = products(V)
    H = on.inner(V, AV)
    w, S = np.linalg.eigh((H + H.T) / 2)
    w, S = w[::-1][:k].copy(), S[:, ::-1][:, :k]
    V, residuals = on.rotated(V, AV, S, w)
    return w, V, residuals
