"""Diagonal dominance K_ii >= Σ_{j≠i} |K_ij| of a mixture, row by row: how far each row is from it, and its cuts.

The condition of row i is piecewise linear in the weights α: with the signs σ_j of K_ij at some α it reads
Σ_p α_p (K_p,ii − Σ_{j≠i} σ_j K_p,ij) >= 0, one cut.  Printed as a linear program, the same condition takes n²/2
auxiliary variables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from metricforge.kernels import RBF, Kernel, Mixture, Weak
from metricforge.rows import as_float64, blocks, count, is_dask, is_sparse, take, width

from .bases import Projected
from .gaussian import Lines

Array = NDArray[Any]

DENSE_BYTES = 128 * 2**20
"""Gram matrices of all bases are kept while they take no more than this."""
CHUNK_ROWS = 2048
"""Rows in memory are passed over in chunks of so many: enough work for a task, small results."""
BLOCK_BYTES = 16 * 2**20
"""What one array of a pass may take; a pass holds a few of them on each core."""
FUSED_VALUES = 10**9
"""Kernel values n² k of one full pass from which compiling a fused loop pays."""
ROUNDING = 4 * np.finfo(np.float64).eps


class Dominance(Protocol):
    """What column generation asks of a dominance condition over n rows.

    Attributes
    ----------
    n : int
    cheap : bool
        Whether slacks of all rows cost little beside solving a linear program.
    lift : (b,) array or None
        Weights whose matrix is the identity in the basis of the condition: adding t · lift raises every slack by t.
    """

    n: int
    cheap: bool
    lift: Array | None

    def slack(self, alpha: Array, rows: Array | None = None) -> tuple[Array, float]:
        """Return K_ii − Σ_{j≠i} |K_ij| of some or all rows, and a bound on its error."""

    def cuts(self, alpha: Array, rows: Array) -> tuple[Array, Array]:
        """Return the exact slacks of some rows and their (len(rows), b) cuts at α."""


class Dense:
    """Dominance of Σ_p α_p M_p for matrices that are all in memory.

    Cost: b n² numbers of memory; b n² flops for all slacks.

    Parameters
    ----------
    stack : (b, n, n) array
        Overwritten: its diagonal is taken out.
    lift : (b,) array or None
    """

    cheap = True

    def __init__(self, stack: Array, lift: Array | None) -> None:
        self.n, self.lift = stack.shape[1], lift
        here = np.arange(self.n)
        self.diagonal = stack[:, here, here].T.copy()  # (n, b)
        stack[:, here, here] = 0
        self.stack = stack

    def slack(self, alpha: Array, rows: Array | None = None) -> tuple[Array, float]:
        """Return the slacks of some or all rows."""
        K = self._mixture(alpha, slice(None) if rows is None else rows)
        diagonal = self.diagonal if rows is None else self.diagonal[rows]
        off = np.abs(K).sum(axis=1)
        error = ROUNDING * len(alpha) * float((off + np.abs(diagonal) @ np.abs(alpha)).max())
        return diagonal @ alpha - off, error

    def cuts(self, alpha: Array, rows: Array) -> tuple[Array, Array]:
        """Return the slacks of some rows and their cuts."""
        K = self._mixture(alpha, rows)
        cuts = self.diagonal[rows] - np.einsum("ij,pij->ip", np.sign(K), self.stack[:, rows])
        return self.diagonal[rows] @ alpha - np.abs(K).sum(axis=1), cuts

    def _mixture(self, alpha: Array, rows: Any) -> Array:
        b, n = len(self.stack), self.n
        if isinstance(rows, slice):
            return (alpha @ self.stack.reshape(b, n * n)).reshape(n, n)
        return np.asarray(np.tensordot(alpha, self.stack[:, rows], axes=1))


class Blocked:
    """Dominance of Σ_p α_p K_p (+ α_b I with white) over rows whose Gram matrices are never held.

    A full pass visits every pair of chunks once, each pair for both of its sides: on all cores in memory, as tasks of
    the cluster for a dask array.  Gaussians on single features or directions run fused in float32 with a bounded error
    once n is large; `cuts` are float64 always.

    Cost: n² k / 2 kernel values a full pass, n k values a cut; memory for a few blocks.

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
    def _diagonal(self) -> Array:
        """(n, k) for kernels whose k(x, x) varies, (1, k) where it is the same for all rows."""
        parts = over_chunks(_Diagonals(self.kernels, self.sizes), self.rows)
        if all((part == parts[0][:1]).all() for part in parts):
            return parts[0][:1]
        return np.concatenate(parts)

    @cached_property
    def _lines(self) -> Lines | None:
        if self.n**2 * len(self.kernels) < FUSED_VALUES:
            return None
        return gaussian_lines(self.kernels, self.rows)

    def slack(self, alpha: Array, rows: Array | None = None) -> tuple[Array, float]:
        """Return the slacks of some or all rows: a full pass without ``rows``."""
        weights = alpha[: len(self.kernels)] / self.sizes
        total: _Sums = _FusedSums(self._lines, weights) if self._lines else _MixtureSums(self.kernels, weights)
        if rows is None:
            off = over_pairs(total, self.rows)
        else:
            chosen = as_float64(take(self.rows, rows))
            off = sum(part[0] for part in over_chunks(_Against(total, chosen), self.rows))
        own = self._own(rows) @ alpha[: len(self.kernels)]
        added = alpha[-1] if self.white else 0.0
        return own + added - (off - np.abs(own)), self.n * total.error()

    def cuts(self, alpha: Array, rows: Array) -> tuple[Array, Array]:
        """Return the slacks of some rows and their cuts, in float64."""
        k = len(self.kernels)
        chosen = as_float64(take(self.rows, rows))
        parts = over_chunks(_SignedSums(self.kernels, self.sizes, alpha[:k], chosen), self.rows)
        signed = sum(parts)  # (r, k), the row itself included
        own = self._own(rows) * np.ones((len(rows), 1))
        signed -= np.sign(own @ alpha[:k])[:, None] * own
        cuts = np.column_stack([own - signed, *([np.ones(len(rows))] if self.white else [])])
        return cuts @ alpha, cuts

    def _own(self, rows: Array | None) -> Array:
        return self._diagonal if rows is None or len(self._diagonal) == 1 else self._diagonal[rows]


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
    return np.stack([inverse @ M @ inverse.T for M in stack])


def gaussian_lines(kernels: Sequence[Kernel], rows: Any) -> Lines | None:
    """Return the bases as Gaussians on lines, or None where one of them is something else."""
    axes: dict[Any, Array] = {}
    line, rates = [], []
    for kernel in kernels:
        if not isinstance(kernel, Weak | Projected):
            return None
        inner = kernel.kernel
        if not isinstance(inner, RBF) or inner.base is not None:
            return None
        key = kernel.feature if isinstance(kernel, Weak) else kernel.direction
        if key not in axes:
            axes[key] = np.eye(1, width(rows), key).ravel() if isinstance(kernel, Weak) else np.asarray(key)
        line.append(list(axes).index(key))
        rates.append(float(inner.gamma))
    A = np.column_stack(list(axes.values()))
    ends = over_chunks(_Ends(A), rows)
    low, high = np.min([a for a, _ in ends], axis=0), np.max([b for _, b in ends], axis=0)
    return Lines(A, (low + high) / 2, (high - low) / 2, np.asarray(line), np.asarray(rates))


# --------------------------------------------------------------------------------------------------- work on a chunk
# Objects rather than closures, so that they can be sent to a worker.


class _Sums(Protocol):
    def __call__(self, X: Any, Y: Any) -> tuple[Array, Array]: ...

    def error(self) -> float: ...


@dataclass(frozen=True, eq=False)
class _MixtureSums:
    """Σ_j |K_ij| and Σ_i |K_ij| of a block, for any kernels."""

    kernels: tuple[Kernel, ...]
    weights: Array

    def __call__(self, X: Any, Y: Any) -> tuple[Array, Array]:
        X, Y = as_float64(X), as_float64(Y)
        mixture = Mixture(self.kernels, tuple(self.weights))
        rows, columns = np.zeros(count(X)), np.zeros(count(Y))
        step = max(1, int(np.sqrt(BLOCK_BYTES / 8)))
        for part in blocks(count(X), 1, step):
            for other in blocks(count(Y), 1, step):
                K = np.abs(mixture.block(X[part], Y[other]))
                rows[part] += K.sum(axis=1)
                columns[other] += K.sum(axis=0)
        return rows, columns

    def error(self) -> float:
        return float(ROUNDING * len(self.weights) * np.abs(self.weights).sum())


@dataclass(frozen=True, eq=False)
class _FusedSums:
    """The same for Gaussians on lines."""

    lines: Lines
    weights: Array

    def __call__(self, X: Any, Y: Any) -> tuple[Array, Array]:
        return self.lines.sums(X, Y, self.weights)

    def error(self) -> float:
        return self.lines.error(self.weights)


@dataclass(frozen=True, eq=False)
class _Against:
    """Sums over a chunk for rows chosen before."""

    sums: _Sums
    chosen: Any

    def __call__(self, chunk: Any) -> tuple[Array, Array]:
        return self.sums(self.chosen, chunk)


@dataclass(frozen=True, eq=False)
class _SignedSums:
    """Σ_j sign(K_ij) K_p,ij over a chunk, for every base p and each chosen row i."""

    kernels: tuple[Kernel, ...]
    sizes: Array
    alpha: Array
    chosen: Any

    def __call__(self, chunk: Any) -> Array:
        r, k = count(self.chosen), len(self.kernels)
        total = np.zeros((r, k))
        chunk = as_float64(chunk)
        for part in blocks(count(chunk), 8 * r * k, BLOCK_BYTES):
            piece = chunk[part]
            values = np.stack([kernel.block(self.chosen, piece) for kernel in self.kernels])  # (k, r, piece)
            values /= self.sizes[:, None, None]
            signs = np.sign(np.tensordot(self.alpha, values, axes=1))
            total += np.einsum("ij,pij->ip", signs, values)
        return total


@dataclass(frozen=True, eq=False)
class _Diagonals:
    """k_p(x, x) of every base."""

    kernels: tuple[Kernel, ...]
    sizes: Array

    def __call__(self, chunk: Any) -> Array:
        chunk = as_float64(chunk)
        return np.column_stack([kernel.diag(chunk) for kernel in self.kernels]) / self.sizes


@dataclass(frozen=True, eq=False)
class _Ends:
    """The smallest and largest coordinate on each line."""

    axes: Array

    def __call__(self, chunk: Any) -> tuple[Array, Array]:
        Z = chunk @ self.axes
        return Z.min(axis=0), Z.max(axis=0)
