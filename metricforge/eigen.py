"""The top eigenpairs of a symmetric matrix or operator: block Lanczos, PRIMME, ARPACK, LAPACK or one of your own.

A residual says that a pair is an eigenpair, not that it is one of the largest: on repeated eigenvalues (must-link
cliques, disconnected graphs) PRIMME and ARPACK both return too few copies without a word.  So whichever iterative
solver ran, its answer is searched for a larger eigenvalue in the orthogonal complement (:func:`_search_above`), and
what is found joins the answer before the next search.

The iterative solvers see ``A`` divided by an estimate of its largest absolute eigenvalue, so ``tol`` means the same
thing to each of them, and time, products, exceptions and infinities are watched in one place (:class:`_Operator`).
"""

from __future__ import annotations

import functools
import inspect
import logging
import math
import time
import warnings
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .errors import (
    ConvergenceWarning,
    InputError,
    SolverError,
    UnknownNameError,
    first_rows,
    nearest,
    whole_number,
)
from .lanczos import SINGLE_TOL, lanczos_pairs

if TYPE_CHECKING:
    from scipy.sparse import csr_array
    from scipy.sparse.linalg import LinearOperator

__all__ = ["Eigenpairs", "Eigensolver", "Stop", "top"]

Floats: TypeAlias = NDArray[np.float64]
Status: TypeAlias = Literal["converged", "iteration_limit", "time_limit"]

log = logging.getLogger(__name__)

# Dense LAPACK beats an iterative solve and its check up to here (measured: 0.05 s at n = 500).
_DENSE_ROWS = 500
# Connected components up to this size are solved densely, all of one size in one batch.
_COMPONENT_ROWS = 32
# Columns of one product: bounds the temporaries and the time between two looks at the clock.
_COLUMNS = 16
# The search for missed eigenvalues multiplies at least this many vectors before it believes that there are none.
_SEARCH_PRODUCTS = 40
# And looks at its Ritz values after so many.
_LOOK = 8
# A warm start to this tolerance is what "auto" prefers PRIMME for.
_LOOSE_TOL = 1e-4
# From so many pairs on "auto" takes block Lanczos, at a tol of 2e-5 and more and below it.
_MANY_LOOSE, _MANY = 32, 100
# Below this relative residual rounding decides.
_TOL_FLOOR = 1e-12


class Stop(Exception):  # noqa: N818 - not an error: it unwinds a backend
    """Raised by a product when a limit was passed or the operator failed; a backend lets it through."""


class Eigensolver(Protocol):
    """What ``solver`` may be instead of a name, and what a plugin registers as an ``eigensolver``.

    Parameters
    ----------
    A : LinearOperator, shape (n, n), float64
        Symmetric, its largest absolute eigenvalue about 1.  ``A @ X`` takes one vector or a block; a float32 block is
        multiplied in float32.
    k : int
        How many of the algebraically largest eigenpairs are wanted; 2 k < n.
    tol : float
        The residual norm ``|Av - wv|`` to reach.
    v0 : ndarray, shape (n, i), i >= 1
        Orthonormal starting vectors, from the caller or from the seed: the only source of randomness to use.
    stop : callable
        ``stop()`` turns true once a limit is passed.  The backend should then return what it has: it may still
        multiply about 2 k vectors before a product raises :class:`Stop`.

    Returns
    -------
    w : ndarray, shape (j,)
    V : ndarray, shape (n, j)
        In any order and not necessarily orthogonal; :func:`top` orthonormalises them and looks for what was missed.
        Pairs that are not there or short of ``tol`` are found that way too, but not fast.
    """

    def __call__(
        self, A: LinearOperator, k: int, *, tol: float, v0: Floats, stop: Callable[[], bool]
    ) -> tuple[Floats, Floats]:
        """Return eigenvalues and eigenvectors."""
        ...


class Eigenpairs(tuple[Floats, Floats]):
    """The pair ``(w, V)``, with how it came about.

    Attributes
    ----------
    status : {"converged", "iteration_limit", "time_limit"}
    solver : str
        The solver that ran, which is not always the one asked for: small problems are solved densely.
    residuals : ndarray, shape (k,)
        ``|A v - w v|`` for each pair, from products with ``A`` itself.
    n_products : int
        Vectors multiplied by ``A``, checks included.
    """

    status: Status
    solver: str
    residuals: Floats
    n_products: int

    def __new__(cls, pair: Iterable[Floats], **how: Any) -> Eigenpairs:
        """Take the pair as one argument, as pickling and copying a tuple need it."""
        self = super().__new__(cls, tuple(pair))
        self.__dict__.update(how)
        return self


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

    Maximise tr(V'AV) over V (n, k) with V'V = I; the columns are rotated so that V'AV is diagonal, and each is
    signed so that its entry of largest magnitude is positive.  All computation is in float64: a matrix in another
    type is converted once, a float32 operator is trusted to float32 precision only.

    Parameters
    ----------
    A : ndarray, SciPy sparse matrix or array, or LinearOperator; shape (n, n)
        Real and symmetric.  Matrices are checked entry by entry for NaN, infinity and asymmetry; an operator is
        checked on the products it returns.  An exception raised by an operator leaves as it is.
    k : int
        1 <= k <= n.
    solver : {"auto", "lanczos", "primme", "arpack", "dense"} or Eigensolver
        "auto" is dense for n up to 500 or 4k, above that block Lanczos for many pairs (k >= 100, or k >= 32 with a
        ``tol`` of at least 2e-5) and ARPACK for few; or PRIMME, where it is installed, for few pairs from a start
        ``v0`` and a ``tol`` of at least 1e-4.  Any iterative solver gives way to LAPACK when n <= 20 or n <= 2k.
    tol : float
        Each residual ``|Av - wv|`` is at most ``tol`` times the largest absolute eigenvalue (estimated from below by
        a few Lanczos steps); eigenvalues are then good to about ``tol`` squared over their gap.  Raised to 1e-12.
    v0 : ndarray, shape (n, i), optional
        Guesses of eigenvectors.  PRIMME starts from the first k of them, ARPACK from a combination of all.
    seed : int or Generator, optional
        Of the starting vectors.  None is a fixed seed too: an eigenproblem has one answer.
    max_iter : int, optional
        Products of A with one vector before the solve is stopped; default 1000 (k + 20).  Handing back k
        pairs and their residuals takes up to about 3k + 32 products more.
    max_seconds : float, optional
        As max_iter, in time; looked at between products of at most 16 columns.  LAPACK cannot be interrupted.

    Returns
    -------
    Eigenpairs
        Unpacks as ``w, V``.  When a limit stopped the solve, the best pairs so far, ``status`` saying so, and
        a ConvergenceWarning.  "iteration_limit" also covers a solver that gave up short of ``tol`` by itself.

    Raises
    ------
    InputError
        A not square, not real, not finite or not symmetric; k, v0, tol, a limit or the solver out of range.
    SolverError
        A backend failed or returned something that is not a set of vectors.

    Notes
    -----
    Memory beside A: LAPACK n^2; ARPACK max(2k + 1, 40) vectors; block Lanczos 2k + 32 in float32 (float64 below
    tol = 2e-5); PRIMME about max(2k, 30) + 40 vectors; the search 40 (and k in float32 from that tol on); the answer
    and its product 2k.  A sparse A is
    copied when it is not float64 CSR, and once more without its small components when it has any: those are solved
    densely, apart, so that isolated rows neither cost iterations nor repeat eigenvalues.

    The search stops when its largest Ritz value plus residual is below the smallest returned value (plus tol), so
    it costs little when the spectrum has a gap after k, and about as much as one more pair when it has none.
    """
    seconds = math.inf if max_seconds is None else _number("max_seconds", max_seconds)
    deadline = time.monotonic() + seconds
    matrix = _checked_matrix(A)
    n = matrix.shape[0]
    k = whole_number(k, "k")
    if k > n:
        raise InputError(f"k must be at most {n}, the rows of A, got {k}")
    limit = 1000 * (k + 20) if max_iter is None else whole_number(max_iter, "max_iter")
    tol = max(_number("tol", tol), _tol_floor(matrix))
    start = None if v0 is None else _checked_start(v0, n)
    rng = np.random.default_rng(0 if seed is None else seed)
    backend = _backend(solver, n, k, tol, start is not None)

    pieces: list[_Piece] = []
    if backend is not None and _is_sparse(matrix):
        pieces, rest = _small_components(matrix, k)
    if not pieces:
        operator = _Operator(matrix, limit, deadline)
        found = _solve(operator, k, backend, tol, start, rng)
    else:
        operator = _Operator(matrix[rest][:, rest], limit, deadline)
        large, k_rest, backend = None, min(k, len(rest)), None
        if k_rest:
            backend = _backend(solver, len(rest), k_rest, tol, start is not None)
            large = _solve(operator, k_rest, backend, tol, None if start is None else start[rest], rng)
        found = _joined(pieces, large, rest, n, k)

    name = "dense" if backend is None else getattr(backend, "__name__", type(backend).__name__).removesuffix("_pairs")
    status: Status = "converged" if found.complete else operator.reached or "iteration_limit"
    if status != "converged":
        warnings.warn(
            f"the {name} eigensolver stopped short ({status}) after {operator.n_products} products; the largest "
            f"residual is {found.residuals.max():.1e} and larger eigenvalues may be missing: raise max_iter or "
            "max_seconds, or accept a larger tol",
            ConvergenceWarning,
            stacklevel=2,
        )
    return Eigenpairs(
        (found.w, _signed(found.V)),
        status=status,
        solver=name,
        residuals=found.residuals,
        n_products=operator.n_products,
    )


class _Found(NamedTuple):
    w: Floats  # (k,) descending
    V: Floats  # (n, k) orthonormal
    residuals: Floats  # (k,)
    complete: bool  # every residual within tol, and nothing larger left out


class _Operator:
    """A divided by ``unit``, its products counted, timed and checked."""

    def __init__(self, A: Any, limit: int, deadline: float) -> None:
        self.A = A
        self.n: int = A.shape[0]
        self.unit = 1.0
        self.n_products = 0
        self.reached: Literal["iteration_limit", "time_limit"] | None = None
        self.error: BaseException | None = None
        self.spare = 0  # products still granted after a limit
        self._limit = limit
        self._deadline = deadline
        self._single: Any = None  # A / unit in float32

    def stop(self) -> bool:
        """Say whether a limit is passed; once it is, it stays so."""
        if self.reached is None:
            if self.n_products >= self._limit:
                self.reached = "iteration_limit"
            elif time.monotonic() >= self._deadline:
                self.reached = "time_limit"
        return self.reached is not None

    def __call__(self, X: Floats) -> Floats:
        columns = X.shape[1] if X.ndim == 2 else 1
        if columns > _COLUMNS:
            Y = np.empty(X.shape, dtype=X.dtype)
            for j in range(0, columns, _COLUMNS):
                Y[:, j : j + _COLUMNS] = self(X[:, j : j + _COLUMNS])
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
            # PRIMME would turn it into a number, and a KeyboardInterrupt into a line on stderr.
            self.error = error
            raise Stop from error
        self.n_products += columns
        if single and self._single is not None:
            return Y
        return np.asarray(Y / unit, dtype=np.float32 if single else np.float64)

    def _in_single(self) -> tuple[Any, float]:
        """Return what a float32 block is multiplied by, and the unit of the product.

        A sparse A is kept in float32 too, for half the memory traffic, and divided first: its range is that of float64.
        """
        if not _is_sparse(self.A):
            return self.A, self.unit
        if self._single is None:
            data = (self.A.data / self.unit).astype(np.float32)
            self._single = type(self.A)((data, self.A.indices, self.A.indptr), shape=self.A.shape)
        return self._single, 1.0


def _solve(
    operator: _Operator,
    k: int,
    backend: Eigensolver | None,
    tol: float,
    start: Floats | None,
    rng: np.random.Generator,
) -> _Found:
    """Run LAPACK or the backend, and let an exception of the user's operator out as it was."""
    operator.spare = 2 * k + 32
    try:
        if backend is None:
            return _dense(operator, k, rng)
        return _iterative(operator, k, backend, tol, start, rng)
    except Stop:
        pass
    # Outside the handler, so that the exception keeps its own cause and context.
    assert operator.error is not None
    raise operator.error


def _iterative(
    operator: _Operator,
    k: int,
    backend: Eigensolver,
    tol: float,
    start: Floats | None,
    rng: np.random.Generator,
) -> _Found:
    """Solve with the backend, then search the complement of its answer until nothing larger is left."""
    n = operator.n
    operator.unit *= _largest_magnitude(operator, rng)
    if operator.unit == 0.0:
        return _Found(np.zeros(k), np.eye(n, k), np.zeros(k), True)

    V = _run(backend, operator, k, tol, start, rng)
    width, complete = 1, False
    while True:
        w, V, residuals = _rayleigh_ritz(operator, _filled(V, k, rng), k)
        if operator.stop():
            break
        # Only eigenvectors are set aside in the search; what is not one yet is where it starts.
        good = residuals <= tol
        level, most = (w[-1], k) if good.all() else (-math.inf, k - int(good.sum()))
        guess = np.hstack([V[:, ~good][:, : _COLUMNS - width], rng.standard_normal((n, width))])
        found, finished = _search_above(operator, V[:, good], guess, level, most, tol)
        if found.shape[1] == 0:
            complete = finished
            break
        log.info("%d eigenvectors to add to those of %s", found.shape[1], backend)
        V = _orthonormal(np.hstack([V, found]))
        width = min(4 * width, _COLUMNS)
    return _Found(w * operator.unit, V, residuals * operator.unit, complete)


def _run(
    backend: Eigensolver,
    operator: _Operator,
    k: int,
    tol: float,
    start: Floats | None,
    rng: np.random.Generator,
) -> Floats:
    """Return the columns of the backend, or its start when it was stopped, made orthonormal."""
    from scipy.sparse.linalg import LinearOperator

    n = operator.n
    v0 = _orthonormal(rng.standard_normal((n, _block(k))) if start is None else start)
    if v0.shape[1] == 0:
        v0 = _orthonormal(rng.standard_normal((n, 1)))
    A = LinearOperator((n, n), matvec=operator, matmat=operator, dtype=np.float64)
    try:
        # Half of tol, so that rounding in the rotation afterwards does not lift a residual above tol.
        _, V = backend(A, k, tol=tol / 2, v0=v0, stop=operator.stop)
    except Exception:
        if operator.error is None and operator.spare >= 0:
            raise
        V = v0
    if operator.error is not None:
        raise Stop
    V = np.asarray(V)
    if V.ndim != 2 or V.shape[0] != n or not np.isfinite(V).all():
        raise SolverError(f"eigensolver {backend!r} must return (w, V) with V of shape ({n}, j) and finite")
    return _orthonormal(V)


def _filled(V: Floats, k: int, rng: np.random.Generator) -> Floats:
    """Return orthonormal columns, k at least: random ones make up for what is missing."""
    if V.shape[1] >= k:
        return V
    return np.hstack([V, _orthonormal(rng.standard_normal((len(V), k - V.shape[1])), V)])


def _largest_magnitude(operator: _Operator, rng: np.random.Generator, steps: int = 12) -> float:
    """Estimate the largest absolute eigenvalue from below by Lanczos, and refuse an asymmetric operator.

    Within a few per cent, since the outermost Ritz value converges first; zero only when A is zero.
    """
    q = rng.standard_normal(operator.n)
    Q = (q / np.linalg.norm(q))[:, None]
    AQ = operator(Q)
    # Norms are taken of numbers near 1, or tiny matrices would underflow to zero.
    unit = float(np.abs(AQ).max())
    if unit == 0.0:
        return 0.0
    AQ = AQ / unit
    while Q.shape[1] < steps and not operator.stop():
        q = _orthonormal(AQ[:, -1:], Q)
        if q.shape[1] == 0:
            break
        Q, AQ = np.hstack([Q, q]), np.hstack([AQ, operator(q) / unit])
    H = Q.T @ AQ
    if np.abs(H - H.T).max() > 1e-4 * np.abs(H).max():
        raise InputError("A: the operator is not symmetric, x'(Ay) and y'(Ax) differ; pass a symmetric operator")
    # |Aq| is a bound from below too, and positive where every Ritz value happens to vanish.
    return unit * float(max(np.abs(np.linalg.eigvalsh(H)).max(), np.linalg.norm(AQ, axis=0).max()))


def _rayleigh_ritz(operator: _Operator, V: Floats, k: int) -> tuple[Floats, Floats, Floats]:
    """Rotate orthonormal columns, in place, to the k best eigenpairs in their span; also return the residual norms."""
    operator.spare = max(operator.spare, 0) + V.shape[1]
    AV = operator(V)
    H = V.T @ AV
    w, S = np.linalg.eigh((H + H.T) / 2)
    w, S = w[::-1][:k].copy(), S[:, ::-1][:, :k]
    squares = np.zeros(k)
    step = max(1, 2**20 // k)  # so that nothing else of shape (n, k) is held
    for i in range(0, len(V), step):
        rows = V[i : i + step] @ S
        V[i : i + step, :k] = rows
        squares += np.square(AV[i : i + step] @ S - rows * w).sum(axis=0)
    return w, V[:, :k], np.sqrt(squares)


def _search_above(
    operator: _Operator, V: Floats, guess: Floats, level: float, most: int, tol: float
) -> tuple[Floats, bool]:
    """Look for eigenvalues above ``level`` in the orthogonal complement of the eigenvectors V.

    Thick-restart block Lanczos with full orthogonalisation from ``guess``, which has random columns: with probability
    one these meet every eigenvector that V left out, one copy of each eigenvalue for each of them, and outer
    eigenvalues appear first.  Ritz values are lower bounds, so one above ``level + tol`` proves a miss.

    Returns
    -------
    found : ndarray, shape (n, j), j <= most
        Eigenvectors of what lies above, orthonormal and orthogonal to V; none when nothing does.
    finished : bool
        False when a limit ended the search; the vectors are then the best so far.
    """
    n, k = V.shape
    new = _orthonormal(guess, V)
    if tol >= 2 * SINGLE_TOL:  # what is read most often, V and Q, is then half as long
        new, V = new.astype(np.float32), V.astype(np.float32)
    width = new.shape[1]
    size = min(max(5 * width, 40, 2**21 // n), n - k)
    Q = np.empty((n, size), dtype=V.dtype, order="F")
    H = np.zeros((size, size))  # Q'AQ, of which the upper triangle counts
    used = products = looked = 0
    while True:
        span = slice(used, used + new.shape[1])
        used, products = span.stop, products + new.shape[1]
        Q[:, span] = new
        R = operator(new)
        overlap = Q[:, :used].T @ R
        R = R - Q[:, :used] @ overlap - V @ (V.T @ R)
        H[:used, span] = overlap
        new = _orthonormal(R, V, Q[:, :used])
        invariant = new.shape[1] == 0  # the Ritz values are exact
        full = used + new.shape[1] > size
        # From one vector a Ritz pair converges only where R is small: there, and now and then, is what to look at.
        going = width == 1 and not invariant and bool(np.linalg.norm(R) > tol)
        if going and not full and products < looked + _LOOK and not operator.stop():
            continue
        looked = products
        theta, S = np.linalg.eigh(H[:used, :used], UPLO="U")
        theta, S = theta[::-1], S[:, ::-1]
        # Only the last block is not mapped into the span of Q: AQs - theta Qs = R s_last.
        r = np.sqrt(np.maximum(0.0, np.sum(S[span] * (R.T @ R @ S[span]), axis=0)))
        above = theta[:width][:most] > level + tol
        if above.any():
            finished = bool((r[: len(above)][above] <= tol / 2).all())
        else:
            finished = products >= _SEARCH_PRODUCTS and bool(theta[0] + r[0] <= level + tol)
        finished = finished or invariant
        if finished or operator.stop():
            return (Q[:, :used] @ S[:, : len(above)][:, above].astype(Q.dtype)).astype(np.float64), finished
        if full:
            keep = max(width, size // 3)
            Q[:, :keep] = Q[:, :used] @ S[:, :keep].astype(Q.dtype)
            H[:keep, :keep] = np.diag(theta[:keep])
            used = keep


def primme_pairs(
    A: LinearOperator, k: int, *, tol: float, v0: Floats, stop: Callable[[], bool]
) -> tuple[Floats, Floats]:
    """Block Davidson with retained vectors (GD+k).

    Blocks of 8 and more, since single vectors miss copies of repeated eigenvalues.  Not PRIMME's default method: its
    JDQMR reads memory that it never set when a block breaks down on such eigenvalues, and multiplies NaNs.

    Reference: Stathopoulos and McCombs, ACM Trans. Math. Softw. 37(2), 2010.
    """
    import primme

    def converged(value: float | None, vector: object, residual: float | None) -> bool:
        # Everything is good enough once a limit is passed: so PRIMME returns its k best instead of an error.
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
            maxBlockSize=_block(k),
            maxiter=2**31 - 1,
            return_unconverged=True,
        )
    except primme.PrimmeError as error:
        raise SolverError(f"PRIMME failed: {error}; try solver='arpack'") from error
    return w, V


def _block(k: int) -> int:
    """Return how many vectors PRIMME adds at a time (measured: 8 is fastest at k = 16, 16 at k = 64)."""
    return min(k, max(8, k // 4))


def arpack_pairs(
    A: LinearOperator, k: int, *, tol: float, v0: Floats, stop: Callable[[], bool]
) -> tuple[Floats, Floats]:
    """Implicitly restarted Lanczos.

    ARPACK asks for residuals below its tol times each |eigenvalue|, which near zero is out of reach.  The spectrum
    of A lies in about [-1, 1]; that of A + 2I in [1, 3], where the demand is the same for all to a factor of three,
    and Lanczos does not see the shift.

    Reference: Lehoucq, Sorensen and Yang, ARPACK Users' Guide, SIAM 1998.
    """
    from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

    n = A.shape[0]

    def product(x: Floats) -> Floats:
        # x / 2 is an eigenpair below the spectrum and leaves no residual: once a limit is passed ARPACK takes its
        # basis for an invariant subspace and returns the best pairs in it, which an exception would throw away.
        return x / 2.0 if stop() else A @ x + 2.0 * x

    # A sum of earlier eigenvectors has no share in what they missed: a tenth of it is random.
    noise = np.random.default_rng(0).standard_normal(n)
    guess = v0.sum(axis=1) + 0.1 * noise / np.linalg.norm(noise)
    # Vectors drawn at a breakdown follow a seed of their own from SciPy 1.17 on.
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
        # "No shifts could be applied": seen on few and highly repeated eigenvalues.  The search finds them all.
        log.warning("ARPACK broke down and the search for missed eigenvalues does its work: %s", error)
        return np.empty(0), np.empty((n, 0))
    return w - 2.0, V


def _dense(operator: _Operator, k: int, rng: np.random.Generator) -> _Found:
    """Solve with LAPACK; an operator is first multiplied out, which a limit can stop."""
    from scipy.linalg import eigh

    n = operator.n
    A = operator.A
    if _is_sparse(A):
        A = A.toarray()
    elif not isinstance(A, np.ndarray):
        A = np.empty((n, n))
        for j in range(0, n, _COLUMNS):
            if operator.stop():
                random = _orthonormal(rng.standard_normal((n, k)))
                return _Found(*_rayleigh_ritz(operator, random, k), complete=False)
            A[:, j : j + _COLUMNS] = operator(np.eye(n, min(_COLUMNS, n - j), -j))
        _check_symmetric(A, 1e-4)
    if 4 * k < n:
        w, V = eigh(A, subset_by_index=(n - k, n - 1), driver="evr", check_finite=False)
    else:
        w, V = eigh(A, driver="evd", check_finite=False)
        w, V = w[n - k :], V[:, n - k :]
    w, V = w[::-1].copy(), V[:, ::-1].copy()
    operator.spare += k
    return _Found(w, V, np.linalg.norm(operator(V) - V * w, axis=0), True)


class _Piece(NamedTuple):
    """An eigenpair that lives on a few rows."""

    value: float
    rows: NDArray[np.intp]
    vector: Floats
    residual: float


def _small_components(A: csr_array, k: int) -> tuple[list[_Piece], NDArray[np.intp]]:
    """Solve the small connected components of A densely: their k best eigenpairs, and the rows of the others."""
    from scipy.sparse.csgraph import connected_components

    n = A.shape[0]
    _, label = connected_components(A, directed=False)
    sizes = np.bincount(label)
    rest = np.flatnonzero(sizes[label] > _COMPONENT_ROWS)
    order = np.argsort(label, kind="stable")
    starts = np.cumsum(sizes) - sizes
    place = np.empty(n, dtype=np.intp)  # of a row within its component
    place[order] = np.arange(n) - starts[label[order]]
    number = np.empty(len(sizes), dtype=np.intp)  # of a component among those of its size
    entries = A.tocoo()
    entry_size = sizes[label[entries.row]]

    pieces: list[_Piece] = []
    for size in np.unique(sizes[sizes <= _COMPONENT_ROWS]).tolist():
        members = np.flatnonzero(sizes == size)
        number[members] = np.arange(len(members))
        mine = entry_size == size
        row, col = entries.row[mine], entries.col[mine]
        blocks = np.zeros((len(members), size, size))
        np.add.at(blocks, (number[label[row]], place[row], place[col]), entries.data[mine])
        w, U = np.linalg.eigh(blocks)  # (members, size), (members, size, size)
        for flat in np.argsort(-w, axis=None, kind="stable")[:k].tolist():
            c, i = divmod(flat, size)
            value, u = float(w[c, i]), U[c, :, i]
            rows = order[starts[members[c]] :][:size]
            pieces.append(_Piece(value, rows, u, float(np.linalg.norm(blocks[c] @ u - value * u))))
    return sorted(pieces, key=lambda piece: -piece.value)[:k], rest


def _joined(pieces: list[_Piece], large: _Found | None, rest: NDArray[np.intp], n: int, k: int) -> _Found:
    """Return the k best of the pairs of the small components and those of the other rows."""
    values = [piece.value for piece in pieces]
    w = np.array(values if large is None else [*values, *large.w])
    residuals, V = np.empty(k), np.zeros((n, k))
    best = np.argsort(-w, kind="stable")[:k]
    for j, b in enumerate(best.tolist()):
        if b < len(pieces):
            V[pieces[b].rows, j], residuals[j] = pieces[b].vector, pieces[b].residual
        elif large is not None:
            V[rest, j], residuals[j] = large.V[:, b - len(pieces)], large.residuals[b - len(pieces)]
    return _Found(w[best], V, residuals, large is None or large.complete)


def _orthonormal(W: NDArray[Any], *bases: NDArray[Any]) -> NDArray[Any]:
    """Return an orthonormal basis of what the columns of W add to the orthonormal columns of ``bases``.

    Columns that add less than the square root of rounding are dropped.  Orthonormal to rounding: everything is done
    twice, unless little was subtracted and the columns are far from dependent, when once is as good.
    """
    W = np.asarray(W, dtype=np.float32 if W.dtype == np.float32 else np.float64)
    eps = float(np.finfo(W.dtype).eps)
    for _ in range(2):
        norms = _norms(W)
        W = W[:, norms > 0.0] / norms[norms > 0.0]
        for Q in bases:
            W = W - Q @ (Q.T @ W)
        norms = _norms(W) if bases else np.ones(W.shape[1], dtype=W.dtype)
        there = norms > math.sqrt(eps)
        if bases:
            W = W[:, there] / norms[there]
        G = W.astype(np.float64, copy=False)
        s, U = np.linalg.eigh(G.T @ G)
        keep = s > 50 * eps
        W = W @ (U[:, keep] / np.sqrt(s[keep])).astype(W.dtype)
        if norms.min(initial=1.0) > 0.7 and s.min(initial=1.0) > 0.1:
            break
    return W


def _norms(W: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(np.sqrt(np.einsum("ij,ij->j", W, W)))  # np.linalg.norm would hold two more arrays of this shape


def _signed(V: Floats) -> Floats:
    """Turn each column, in place, so that its largest entry in magnitude is positive; of near ties the first."""
    signs = np.ones(V.shape[1])
    for j, v in enumerate(V.T):
        size = np.abs(v)
        if v[np.argmax(size >= (1 - 1e-6) * size.max())] < 0:
            signs[j] = -1.0
    V *= signs
    return V


@functools.cache
def _has_primme() -> bool:
    try:
        import primme  # noqa: F401
    except ImportError:
        return False
    return True


def _backend(solver: str | Eigensolver, n: int, k: int, tol: float, warm: bool) -> Eigensolver | None:
    """Return the function to run; None stands for LAPACK."""
    if solver == "auto":
        if n <= max(_DENSE_ROWS, 4 * k):
            return None
        # Measured by the benchmark simplenpkl-eigen: at a loose tol the basis is float32 and half as long to read.
        if k >= (_MANY_LOOSE if tol >= 2 * SINGLE_TOL else _MANY):
            return lanczos_pairs
        return primme_pairs if warm and tol >= _LOOSE_TOL and _has_primme() else arpack_pairs
    known: dict[str, Eigensolver | None] = {
        "lanczos": lanczos_pairs,
        "primme": primme_pairs,
        "arpack": arpack_pairs,
        "dense": None,
    }
    if isinstance(solver, str):
        if solver not in known:
            raise UnknownNameError(f"solver {solver!r} is unknown; {nearest(solver, ['auto', *known])}")
        if solver == "primme" and not _has_primme():
            raise InputError("solver 'primme' is not installed: pip install 'metricforge[primme]', or solver='auto'")
        backend = known[solver]
    elif callable(solver):
        backend = solver
    else:
        raise InputError(f"solver must be a name or a callable, got {type(solver).__name__}")
    # Krylov spaces of 2k + 1 vectors would fill the whole space.
    return None if n <= max(20, 2 * k) else backend


def _is_sparse(A: object) -> bool:
    from scipy.sparse import issparse

    return bool(issparse(A))


def _checked_matrix(A: Any) -> Any:
    """Return A as a float64 ndarray, a float64 CSR array or the LinearOperator it is; refuse what is not symmetric."""
    from scipy.sparse import csr_array
    from scipy.sparse.linalg import LinearOperator

    sparse = _is_sparse(A)
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
    # Asymmetry up to the square root of the rounding unit is taken for rounding.
    slack = float(np.sqrt(np.finfo(dtype if dtype.kind == "f" else np.float64).eps))
    if sparse:
        rows = csr_array(A, dtype=np.float64)
        _check_sparse(rows, slack)
        return rows
    dense = np.asarray(A, dtype=np.float64)
    _check_finite_rows(dense)
    _check_symmetric(dense, slack)
    return dense


def _check_finite_rows(A: Floats) -> None:
    step = max(1, 2**20 // len(A))
    for i in range(0, len(A), step):
        bad = ~np.isfinite(A[i : i + step]).all(axis=1)
        if bad.any():
            raise _not_finite(i + np.flatnonzero(bad))


def _check_symmetric(A: Floats, slack: float) -> None:
    """Compare A with its transpose a few rows at a time: no second n x n array."""
    n = len(A)
    step = max(1, 2**20 // n)
    worst, where, largest = 0.0, (0, 0), 0.0
    for i in range(0, n, step):
        rows = A[i : i + step]
        largest = max(largest, float(np.abs(rows).max()))
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
    gap = (A - A.T).tocoo()
    if gap.nnz and np.abs(gap.data).max() > slack * np.abs(A.data).max():
        worst = int(np.abs(gap.data).argmax())
        i, j = int(gap.row[worst]), int(gap.col[worst])
        raise _not_symmetric(i, j, A[i, j], A[j, i])


def _check_product(X: Floats, Y: NDArray[Any]) -> None:
    if Y.dtype.kind not in "biuf":
        raise InputError(f"A: the operator returned entries of type {Y.dtype}; its products must be real")
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(Y.sum()):  # a NaN or an infinity would be in the sum
            return
    finite = np.isfinite(Y)
    if not finite.all():
        if not np.isfinite(X).all():
            raise SolverError("the eigensolver broke down: it multiplied a vector that is not finite; try another")
        raise InputError(
            f"A: the operator returned a NaN or an infinity in {first_rows(np.unique(np.nonzero(~finite)[0]))}; "
            "its products must be finite"
        )


def _not_finite(rows: NDArray[np.intp]) -> InputError:
    return InputError(f"A holds a NaN or an infinity in {first_rows(rows)}; remove or impute it first")


def _not_symmetric(i: int, j: int, there: float, back: float) -> InputError:
    return InputError(
        f"A is not symmetric: A[{i}, {j}] = {there:.6g} but A[{j}, {i}] = {back:.6g}; "
        "pass (A + A.T) / 2 if that is what you mean"
    )


def _tol_floor(A: Any) -> float:
    """Return the smallest relative residual that products with A can show."""
    dtype = np.dtype(A.dtype)  # float64, unless A is an operator
    return max(_TOL_FLOOR, 50.0 * float(np.finfo(dtype).eps)) if dtype.kind == "f" else _TOL_FLOOR


def _checked_start(v0: Any, n: int) -> Floats:
    try:
        start = np.asarray(v0, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"v0 must be an array of real numbers: {error}") from error
    if start.ndim != 2 or start.shape[0] != n or not 1 <= start.shape[1] <= n:
        raise InputError(f"v0 must have shape ({n}, i) with 1 <= i <= {n}, got {start.shape}")
    if not np.isfinite(start).all():
        bad = np.flatnonzero(~np.isfinite(start).all(axis=1))
        raise InputError(f"v0 holds a NaN or an infinity in {first_rows(bad)}; leave it out or repair it")
    return start


def _number(name: str, value: Any) -> float:
    real = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not real or not value >= 0 or math.isinf(value):
        raise InputError(f"{name} must be a finite number, zero or above, got {value!r}")
    return float(value)
