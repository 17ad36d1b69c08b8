"""Diagonal dominance K_ii >= Σ_{j≠i} |K_ij| of a mixture, row by row: how far each row is from it, and its cuts.

The condition of row i is piecewise linear in the weights α: with the signs σ_j of K_ij at some α it reads
Σ_p α_p (K_p,ii − Σ_{j≠i} σ_j K_p,ij) >= 0, one cut.  Printed as a linear program, the same condition takes n²/2
auxiliary variables.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from metricforge.kernels import RBF, Kernel, Mixture, Weak
from metricforge.rows import as_float64, blocks, count, draw, fold, gathered, is_dask, map_rows, take, width

from .bases import Projected

if TYPE_CHECKING:
    from .gaussian import Lines

Array = NDArray[Any]

DENSE_BYTES = 128 * 2**20
"""Gram matrices of all bases are kept while they take no more than this."""
CHUNK_ROWS = 2048
"""Rows in memory are passed over in chunks of so many: enough work for a thread, small results."""
PIECE_BYTES = 8 * 2**20
"""What one array of a pass may take; every thread holds a few of them."""
FUSED_VALUES = 2 * 10**7
"""Kernel values n² k of one full pass from which a compiled loop pays."""
SCOUT_COLUMNS = 1024
"""Columns on which all rows are judged before a full pass."""
JUDGES = 32
"""Rows that all others are compared with to see how large values of a base are."""
ROUNDING = 4 * np.finfo(np.float64).eps


class Dominance(Protocol):
    """What column generation asks of a dominance condition over n rows.

    Attributes
    ----------
    n : int
    cheap : bool
        Whether the slacks of all rows cost little beside solving a linear program.
    lift : (b,) array or None
        Weights whose matrix is the identity in the basis of the condition: adding t · lift raises every slack by t.
    """

    n: int
    cheap: bool
    lift: Array | None

    def slack(self, alpha: Array, rows: Array | None = None) -> tuple[Array, float]:
        """Return K_ii − Σ_{j≠i} |K_ij| of some or all rows, and a bound on the error."""

    def scout(self, alpha: Array, seed: int) -> Array:
        """Return an estimate of all slacks that costs a small part of them."""

    def cuts(self, alpha: Array, rows: Array) -> tuple[Array, Array]:
        """Return the slacks of some rows in float64, and their (len(rows), b) cuts at α."""

    def rounding(self, alpha: Array) -> float:
        """Return what a slack in float64 may be off by."""


# ------------------------------------------------------------------------------------------------- matrices in memory


class Dense:
    """Dominance of Σ_p α_p M_p for matrices that are all in memory.

    Cost: b n² numbers of memory; b n² flops for all slacks.

    Parameters
    ----------
    stack : (b, n, n) array
        Taken over: its diagonals are set to zero.
    lift : (b,) array or None
    """

    cheap = True

    def __init__(self, stack: Array, lift: Array | None) -> None:
        self.n, self.lift = stack.shape[1], lift
        here = np.arange(self.n)
        self.diagonal = stack[:, here, here].T.copy()  # (n, b)
        self.largest = np.maximum(stack.max(axis=(1, 2)), -stack.min(axis=(1, 2)))
        stack[:, here, here] = 0
        self.stack = stack

    def slack(self, alpha: Array, rows: Array | None = None) -> tuple[Array, float]:
        """Return the slacks of some or all rows."""
        K = self._mixture(alpha, rows)
        diagonal = self.diagonal if rows is None else self.diagonal[rows]
        return diagonal @ alpha - np.abs(K).sum(axis=1), self.rounding(alpha)

    def scout(self, alpha: Array, seed: int) -> Array:
        """Return the slacks themselves, which cost little here."""
        return self.slack(alpha)[0]

    def cuts(self, alpha: Array, rows: Array) -> tuple[Array, Array]:
        """Return the slacks of some rows and their cuts."""
        signs = np.sign(self._mixture(alpha, rows))
        cuts = self.diagonal[rows] - np.einsum("ij,pij->ip", signs, self.stack[:, rows])
        return cuts @ alpha, cuts

    def rounding(self, alpha: Array) -> float:
        """Return what n sums of b products may be off by."""
        return _rounding(self.n, np.abs(alpha), self.largest)

    def _mixture(self, alpha: Array, rows: Array | None) -> Array:
        part = self.stack if rows is None else self.stack[:, rows]
        b, r, n = part.shape
        return (alpha @ part.reshape(b, r * n)).reshape(r, n)


def gram_stack(kernels: Sequence[Kernel], sizes: Array, X: Any, *, white: bool) -> Array:
    """Return the (k, n, n) Gram matrices of normalised bases, and the identity behind them for white."""
    n = count(X)
    stack = np.empty((len(kernels) + int(white), n, n))
    for K, kernel, size in zip(stack, kernels, sizes, strict=False):
        np.divide(kernel.block(X, X), size, out=K)
    if white:
        stack[-1] = np.eye(n)
    return stack


def change_basis(stack: Array, alpha: Array) -> Array | None:
    """Return L⁻¹ M_p L⁻ᵀ for all p, where LL' = Σ α_p M_p; None where that sum is not positive definite."""
    from scipy.linalg import LinAlgError, cholesky, solve_triangular

    b, n = len(stack), stack.shape[1]
    K = (alpha @ stack.reshape(b, n * n)).reshape(n, n)
    try:
        L = cholesky((K + K.T) / 2, lower=True)
    except LinAlgError:
        return None
    inverse = solve_triangular(L, np.eye(n), lower=True)
    changed = np.empty_like(stack)
    for M, out in zip(stack, changed, strict=True):
        np.matmul(inverse @ M, inverse.T, out=out)
    return changed


def _rounding(n: int, weights: Array, largest: Array) -> float:
    return float(ROUNDING * (n + 1) * len(weights) * weights @ largest)


# --------------------------------------------------------------------------------------- rows whose Gram is never held


class Blocked:
    """Dominance of Σ_p α_p K_p (and α_b I with white) over rows whose Gram matrices are never held.

    A full pass visits every pair of chunks: in memory each pair once for both of its sides, on all cores; on dask every
    chunk against every other, in parallel over the chunks.  Gaussians on single features or directions run in a fused
    float32 loop once n is large, with a bound on its error; `cuts` are float64 always.

    Cost: n² k / 2 kernel values a full pass (n² k on dask), n k values a cut; memory for a few pieces of 8 MB.

    Parameters
    ----------
    kernels : sequence of Kernel
    sizes : (k,) array
        What each is divided by.
    rows : rows, or a dask array of them
    white : bool
    """

    cheap = False

    def __init__(self, kernels: Sequence[Kernel], sizes: Array, rows: Any, *, white: bool) -> None:
        self.kernels, self.sizes, self.rows, self.white = tuple(kernels), sizes, rows, white
        self.n = count(rows)
        self.lift = np.append(np.zeros(len(kernels)), 1.0) if white else None

    @cached_property
    def _lines(self) -> Lines | None:
        return gaussian_lines(self.kernels, self.rows) if self.n**2 * len(self.kernels) >= FUSED_VALUES else None

    def slack(self, alpha: Array, rows: Array | None = None) -> tuple[Array, float]:
        """Return the slacks of some or all rows: a full pass without ``rows``."""
        weights, sums = self._mixed(alpha)
        if rows is not None:
            off = total(_Against(sums, as_float64(take(self.rows, rows))), self.rows)
        elif is_dask(self.rows):
            off = _all_pairs_on_dask(sums, self.rows)
        else:
            off = _all_pairs(sums, self.rows)
        own = self._own(weights, rows)
        error = (self.n + 1) * self._lines.error(weights) if self._lines else self.rounding(alpha)
        return self._added(alpha) + own - (off - np.abs(own)), error

    def scout(self, alpha: Array, seed: int) -> Array:
        """Return the slacks as a random sample of columns shows them."""
        weights, sums = self._mixed(alpha)
        columns = draw(self.n, SCOUT_COLUMNS, seed)
        off = each_row(_Rows(sums, as_float64(take(self.rows, columns))), self.rows)
        return self._added(alpha) + self._own(weights, None) - off * (self.n / len(columns))

    def cuts(self, alpha: Array, rows: Array) -> tuple[Array, Array]:
        """Return the slacks of some rows and their cuts, in float64."""
        k = len(self.kernels)
        chosen = as_float64(take(self.rows, rows))
        signed = total(_SignedSums(self.kernels, self._lines, alpha[:k] / self.sizes, chosen), self.rows) / self.sizes
        own = np.column_stack([kernel.diag(chosen) for kernel in self.kernels]) / self.sizes
        signed -= np.sign(own @ alpha[:k])[:, None] * own  # the row itself is not off the diagonal
        cuts = own - signed
        if self.white:
            cuts = np.column_stack([cuts, np.ones(len(rows))])
        return cuts @ alpha, cuts

    def rounding(self, alpha: Array) -> float:
        """Return what n sums of k products may be off by; white, which is added last, is off by no more than they."""
        return _rounding(self.n, np.abs(alpha[: len(self.kernels)]) / self.sizes, self._largest)

    def _mixed(self, alpha: Array) -> tuple[Array, Sums]:
        weights = alpha[: len(self.kernels)] / self.sizes
        return weights, _FusedSums(self._lines, weights) if self._lines else _MixtureSums(self.kernels, weights)

    def _added(self, alpha: Array) -> float:
        return float(alpha[-1]) if self.white else 0.0

    @cached_property
    def _largest(self) -> Array:
        """The largest value of each base: a kernel has it on the diagonal, another base against some row or other."""
        judges = as_float64(take(self.rows, draw(self.n, JUDGES, 0)))
        return -reduced(_MinusLargest(self.kernels, judges), _least, self.rows)

    def _own(self, weights: Array, rows: Array | None) -> Array:
        diagonal = _MixtureDiagonal(self.kernels, weights)
        if rows is not None:
            return diagonal(take(self.rows, rows))
        return each_row(diagonal, self.rows)


def gaussian_lines(kernels: Sequence[Kernel], rows: Any) -> Lines | None:
    """Return the bases as Gaussians on lines, or None where one of them is something else."""
    axes: dict[Any, Array] = {}
    line, rates = [], []
    for kernel in kernels:
        if not (isinstance(kernel, Weak | Projected) and isinstance(kernel.kernel, RBF) and kernel.kernel.base is None):
            return None
        key: Any = kernel.feature if isinstance(kernel, Weak) else kernel.direction
        if key not in axes:
            axes[key] = np.asarray(key) if isinstance(kernel, Projected) else np.eye(1, width(rows), key).ravel()
        line.append(list(axes).index(key))
        rates.append(float(kernel.kernel.gamma))
    from .gaussian import Lines

    A = np.column_stack(list(axes.values()))
    low, minus_high = reduced(_Ends(A), _least, rows)
    return Lines(A, (low - minus_high) / 2, (-minus_high - low) / 2, np.asarray(line), np.asarray(rates))


# ------------------------------------------------------------------------------------------------- running over chunks


def reduced(function: Callable[[Any], Array], join: Callable[[list[Array]], Array], X: Any) -> Array:
    """Return ``function(chunk)`` of all chunks of X joined to one: threads in memory, tasks on dask."""
    if is_dask(X):
        return np.asarray(fold(function, join, X))
    return join(list(_in_threads(lambda part: function(X[part]), _chunks(X))))


def total(function: Callable[[Any], Array], X: Any) -> Array:
    """Return the sum of ``function(chunk)`` over the chunks of X."""
    return reduced(function, _add, X)


def each_row(function: Callable[[Any], Array], X: Any) -> Array:
    """Return ``function(chunk) -> (rows,)`` of all chunks, one after the other."""
    if is_dask(X):
        return np.asarray(gathered(map_rows(function, X, None, np.float64)))
    return np.concatenate(list(_in_threads(lambda part: function(X[part]), _chunks(X))))


def _all_pairs(sums: Sums, X: Any) -> Array:
    """Return Σ_j |K_ij| for all rows in memory, each pair of chunks once."""
    chunks = _chunks(X)
    pairs = [(a, b) for i, a in enumerate(chunks) for b in chunks[i:]]
    result = np.zeros(count(X))
    found = _in_threads(lambda pair: sums(X[pair[0]], X[pair[1]]), pairs)
    for (a, b), (rows, columns) in zip(pairs, found, strict=True):
        result[a] += rows
        if a != b:
            result[b] += columns
    return result


def _all_pairs_on_dask(sums: Sums, X: Any) -> Array:
    """Return Σ_j |K_ij| for all rows of a dask array: one of its chunks at a time against all of them."""
    result = np.zeros(count(X))
    for c in range(X.numblocks[0]):
        result += each_row(_Rows(sums, gathered(X.blocks[c])), X)
    return result


def _chunks(X: Any) -> list[slice]:
    return list(blocks(count(X), 1, CHUNK_ROWS))


def _in_threads(function: Callable[[Any], Any], arguments: Iterable[Any]) -> Iterator[Any]:
    """Yield the results in order, a few of which exist at a time; an interrupt drops what has not begun."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    pool = ThreadPoolExecutor(cores)
    begun: deque[Future[Any]] = deque()
    try:
        for each in arguments:
            begun.append(pool.submit(function, each))
            if len(begun) > 2 * cores:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def _add(parts: list[Array]) -> Array:
    return np.asarray(np.sum(parts, axis=0))


def _least(parts: list[Array]) -> Array:
    return np.asarray(np.min(parts, axis=0))


# ---------------------------------------------------------------------------------------------------- work on a chunk
# Objects rather than closures, so that they can be sent to a worker.


class Sums(Protocol):
    """Sums of |K_ij| over a block of X and Y."""

    def __call__(self, X: Any, Y: Any) -> tuple[Array, Array]:
        """Return Σ_j |K_ij| of the rows of X and Σ_i |K_ij| of the rows of Y."""


@dataclass(frozen=True, eq=False)
class _MixtureSums:
    """Sums for kernels of any kind, in float64."""

    kernels: tuple[Kernel, ...]
    weights: Array

    def __call__(self, X: Any, Y: Any) -> tuple[Array, Array]:
        X, Y = as_float64(X), as_float64(Y)
        mixture = Mixture(self.kernels, tuple(self.weights))
        rows, columns = np.zeros(count(X)), np.zeros(count(Y))
        step = int(np.sqrt(PIECE_BYTES / 8))
        for part in blocks(count(X), 1, step):
            for other in blocks(count(Y), 1, step):
                K = np.abs(mixture.block(X[part], Y[other]))
                rows[part] += K.sum(axis=1)
                columns[other] += K.sum(axis=0)
        return rows, columns


@dataclass(frozen=True, eq=False)
class _FusedSums:
    """Sums for Gaussians on lines."""

    lines: Lines
    weights: Array

    def __call__(self, X: Any, Y: Any) -> tuple[Array, Array]:
        return self.lines.sums(X, Y, self.weights)


@dataclass(frozen=True, eq=False)
class _Against:
    """Σ_j |K_ij| over a chunk, for rows chosen before."""

    sums: Sums
    chosen: Any

    def __call__(self, chunk: Any) -> Array:
        return self.sums(self.chosen, chunk)[0]


@dataclass(frozen=True, eq=False)
class _Rows:
    """Σ_j |K_ij| over other rows, for the rows of a chunk."""

    sums: Sums
    others: Any

    def __call__(self, chunk: Any) -> Array:
        return self.sums(chunk, self.others)[0]


@dataclass(frozen=True, eq=False)
class _SignedSums:
    """Σ_j sign(K_ij) K_p,ij over a chunk, for every base p and each row i chosen before."""

    kernels: tuple[Kernel, ...]
    lines: Lines | None
    weights: Array
    chosen: Any

    def __call__(self, chunk: Any) -> Array:
        if self.lines is not None:
            return self.lines.signed_sums(self.chosen, chunk, self.weights)
        r, k = count(self.chosen), len(self.kernels)
        result = np.zeros((r, k))
        chunk = as_float64(chunk)
        for part in blocks(count(chunk), 8 * r * k, PIECE_BYTES):
            piece = chunk[part]
            values = np.stack([kernel.block(self.chosen, piece) for kernel in self.kernels])  # (k, r, piece)
            signs = np.sign(np.tensordot(self.weights, values, axes=1))
            result += np.einsum("ij,pij->ip", signs, values)
        return result


@dataclass(frozen=True, eq=False)
class _MixtureDiagonal:
    """Σ_p w_p k_p(x, x)."""

    kernels: tuple[Kernel, ...]
    weights: Array

    def __call__(self, chunk: Any) -> Array:
        return Mixture(self.kernels, tuple(self.weights)).diag(as_float64(chunk))


@dataclass(frozen=True, eq=False)
class _MinusLargest:
    """Minus the largest |k_p(x, y)| of every base, where y is x or a judge."""

    kernels: tuple[Kernel, ...]
    judges: Any

    def __call__(self, chunk: Any) -> Array:
        chunk = as_float64(chunk)
        own = [np.abs(kernel.diag(chunk)).max() for kernel in self.kernels]
        others = [np.abs(kernel.block(chunk, self.judges)).max() for kernel in self.kernels]
        return -np.maximum(own, others)


@dataclass(frozen=True, eq=False)
class _Ends:
    """The smallest coordinate on each line, and minus the largest."""

    axes: Array

    def __call__(self, chunk: Any) -> Array:
        Z = chunk @ self.axes
        return np.stack([Z.min(axis=0), -Z.max(axis=0)])
