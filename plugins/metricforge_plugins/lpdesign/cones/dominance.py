"""Diagonal dominance K_ii >= Σ_{j≠i} |K_ij| of a mixture: the slack of each row, and its cuts.

The condition of row i is piecewise linear in the weights α: with the signs σ_j of K_ij at some α it implies the cut
Σ_p α_p (K_p,ii − Σ_{j≠i} σ_j K_p,ij) >= 0.  As a single linear program, as printed in the paper, it needs n²/2
auxiliary variables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from metricforge.kernels import RBF, Kernel, Mixture, Weak
from metricforge.rows import Array, as_float64, blocks, count, draw, gathered, is_dask, take, width
from metricforge.rows.threads import chunks_of, fold_chunks, in_threads, least, map_chunks, sum_chunks

from ..bases import Projected

if TYPE_CHECKING:
    from .gaussian import GaussianLines


DENSE_BYTES = 128 * 2**20
"""Gram matrices of all bases are stored if they take no more than this."""
PIECE_BYTES = 8 * 2**20
"""Maximal size of one array of a pass; every thread has a few of them."""
FUSED_VALUES = 2 * 10**7
"""From this many kernel values n² k per full pass on, the compiled loop is used."""
SCOUT_COLUMNS = 1024
"""Columns from which all slacks are estimated before a full pass."""
REFERENCES = 32
"""Rows that all others are compared with to find the largest value of a base."""
ROUNDING = 4 * np.finfo(np.float64).eps


class Dominance(Protocol):
    """What column generation needs of a dominance condition over n rows.

    Attributes
    ----------
    n : int
    cheap : bool
        Whether computing the slacks of all rows is cheap compared with solving a linear program.
    lift : (b,) array or None
        Weights whose matrix is the identity in the basis of the condition: adding t · lift raises every slack by t.
    """

    n: int
    cheap: bool
    lift: Array | None

    def slack(self, alpha: Array, rows: Array | None = None) -> tuple[Array, float]:
        """Return K_ii − Σ_{j≠i} |K_ij| of some or all rows, and a bound on the error."""

    def scout(self, alpha: Array, seed: int) -> Array:
        """Return an estimate of all slacks, at a small part of their cost."""

    def cuts(self, alpha: Array, rows: Array) -> tuple[Array, Array]:
        """Return the slacks of some rows in float64, and their (len(rows), b) cuts at α."""

    def rounding(self, alpha: Array) -> float:
        """Return a bound on the rounding error of a slack in float64."""


# ------------------------------------------------------------------------------------------------- matrices in memory


class DenseDominance:
    """Dominance of Σ_p α_p M_p for matrices in memory.

    Cost: b n² numbers of memory; b n² flops for all slacks.

    Parameters
    ----------
    stack : (b, n, n) array
        Modified in place: its diagonals are set to zero.
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
        """Return the slacks themselves, which are cheap here."""
        return self.slack(alpha)[0]

    def cuts(self, alpha: Array, rows: Array) -> tuple[Array, Array]:
        """Return the slacks of some rows and their cuts."""
        signs = np.sign(self._mixture(alpha, rows))
        cuts = self.diagonal[rows] - np.einsum("ij,pij->ip", signs, self.stack[:, rows])
        return cuts @ alpha, cuts

    def rounding(self, alpha: Array) -> float:
        """Return the rounding error of n sums of b products."""
        return _rounding(self.n, np.abs(alpha), self.largest)

    def _mixture(self, alpha: Array, rows: Array | None) -> Array:
        part = self.stack if rows is None else self.stack[:, rows]
        b, r, n = part.shape
        return (alpha @ part.reshape(b, r * n)).reshape(r, n)


def gram_stack(kernels: Sequence[Kernel], sizes: Array, X: Any, *, white: bool) -> Array:
    """Return the (k, n, n) Gram matrices of normalised bases, followed by the identity for white."""
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


# ------------------------------------------------------------------------------------------- without a matrix in memory


class BlockedDominance:
    """Dominance of Σ_p α_p K_p (and α_b I with white) over rows whose Gram matrices are never stored.

    A full pass visits every pair of chunks: in memory each pair once for both of its sides, on all cores; on dask every
    chunk with every other, in parallel over the chunks.  For large n, Gaussians on single features or directions use a
    fused float32 loop with a bound on its error; `cuts` are always computed in float64.

    Cost: n² k / 2 kernel values per full pass (n² k on dask), n k values per cut; memory for a few arrays of 8 MB.

    Parameters
    ----------
    kernels : sequence of Kernel
    sizes : (k,) array
        The number that each is divided by.
    rows : rows, or a dask array of them
    white : bool
    """

    cheap = False

    def __init__(self, kernels: Sequence[Kernel], sizes: Array, rows: Any, *, white: bool) -> None:
        self.kernels, self.sizes, self.rows, self.white = tuple(kernels), sizes, rows, white
        self.n = count(rows)
        self.lift = np.append(np.zeros(len(kernels)), 1.0) if white else None

    @cached_property
    def _lines(self) -> GaussianLines | None:
        return gaussian_lines(self.kernels, self.rows) if self.n**2 * len(self.kernels) >= FUSED_VALUES else None

    def slack(self, alpha: Array, rows: Array | None = None) -> tuple[Array, float]:
        """Return the slacks of some rows, or of all in a full pass."""
        weights, sums = self._mixed(alpha)
        if rows is not None:
            off = sum_chunks(_SumsOfRows(sums, as_float64(take(self.rows, rows))), self.rows)
        elif is_dask(self.rows):
            off = _all_pairs_on_dask(sums, self.rows)
        else:
            off = _all_pairs(sums, self.rows)
        own = self._own(weights, rows)
        error = (self.n + 1) * self._lines.error(weights) if self._lines else self.rounding(alpha)
        return self._added(alpha) + own - (off - np.abs(own)), error

    def scout(self, alpha: Array, seed: int) -> Array:
        """Return estimates of the slacks from a random sample of columns."""
        weights, sums = self._mixed(alpha)
        columns = draw(self.n, SCOUT_COLUMNS, seed)
        off = map_chunks(_SumsOverColumns(sums, as_float64(take(self.rows, columns))), self.rows)
        return self._added(alpha) + self._own(weights, None) - off * (self.n / len(columns))

    def cuts(self, alpha: Array, rows: Array) -> tuple[Array, Array]:
        """Return the slacks of some rows and their cuts, in float64."""
        k = len(self.kernels)
        chosen = as_float64(take(self.rows, rows))
        weights = alpha[:k] / self.sizes
        signed = sum_chunks(_SignedSums(self.kernels, self._lines, weights, chosen), self.rows) / self.sizes
        own = np.column_stack([kernel.diag(chosen) for kernel in self.kernels]) / self.sizes
        signed -= np.sign(own @ alpha[:k])[:, None] * own  # remove the diagonal entry
        cuts = own - signed
        if self.white:
            cuts = np.column_stack([cuts, np.ones(len(rows))])
        return cuts @ alpha, cuts

    def rounding(self, alpha: Array) -> float:
        """Return the rounding error of n sums of k products, which includes that of adding white."""
        return _rounding(self.n, np.abs(alpha[: len(self.kernels)]) / self.sizes, self._largest)

    def _mixed(self, alpha: Array) -> tuple[Array, Sums]:
        weights = alpha[: len(self.kernels)] / self.sizes
        return weights, _FusedSums(self._lines, weights) if self._lines else _MixtureSums(self.kernels, weights)

    def _added(self, alpha: Array) -> float:
        return float(alpha[-1]) if self.white else 0.0

    @cached_property
    def _largest(self) -> Array:
        """The largest value of each base: a kernel has it on the diagonal; other bases are compared with some rows."""
        references = as_float64(take(self.rows, draw(self.n, REFERENCES, 0)))
        return -fold_chunks(_MinusLargest(self.kernels, references), least, self.rows)

    def _own(self, weights: Array, rows: Array | None) -> Array:
        diagonal = _MixtureDiagonal(self.kernels, weights)
        if rows is not None:
            return diagonal(take(self.rows, rows))
        return map_chunks(diagonal, self.rows)


def gaussian_lines(kernels: Sequence[Kernel], rows: Any) -> GaussianLines | None:
    """Return the bases as Gaussians on lines, or None if one of them is not."""
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
    from .gaussian import GaussianLines

    A = np.column_stack(list(axes.values()))
    low, minus_high = fold_chunks(_LineRanges(A), least, rows)
    return GaussianLines(A, (low - minus_high) / 2, (-minus_high - low) / 2, np.asarray(line), np.asarray(rates))


# ------------------------------------------------------------------------------------------------------- pairs of rows


def _all_pairs(sums: Sums, X: Any) -> Array:
    """Return Σ_j |K_ij| for all rows in memory, each pair of chunks once."""
    chunks = chunks_of(X)
    pairs = [(a, b) for i, a in enumerate(chunks) for b in chunks[i:]]
    result = np.zeros(count(X))
    found = in_threads(lambda pair: sums(X[pair[0]], X[pair[1]]), pairs)
    for (a, b), (rows, columns) in zip(pairs, found, strict=True):
        result[a] += rows
        if a != b:
            result[b] += columns
    return result


def _all_pairs_on_dask(sums: Sums, X: Any) -> Array:
    """Return Σ_j |K_ij| for all rows of a dask array: one of its chunks at a time against all of them."""
    result = np.zeros(count(X))
    for c in range(X.numblocks[0]):
        result += map_chunks(_SumsOverColumns(sums, gathered(X.blocks[c])), X)
    return result


# ---------------------------------------------------------------------------------------------------- work on a chunk
# Objects instead of closures, so that they can be sent to a worker.


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

    lines: GaussianLines
    weights: Array

    def __call__(self, X: Any, Y: Any) -> tuple[Array, Array]:
        return self.lines.sums(X, Y, self.weights)


@dataclass(frozen=True, eq=False)
class _SumsOfRows:
    """Σ_j |K_ij| over a chunk, for fixed rows i."""

    sums: Sums
    chosen: Any

    def __call__(self, chunk: Any) -> Array:
        return self.sums(self.chosen, chunk)[0]


@dataclass(frozen=True, eq=False)
class _SumsOverColumns:
    """Σ_j |K_ij| over fixed columns j, for the rows of a chunk."""

    sums: Sums
    others: Any

    def __call__(self, chunk: Any) -> Array:
        return self.sums(chunk, self.others)[0]


@dataclass(frozen=True, eq=False)
class _SignedSums:
    """Σ_j sign(K_ij) K_p,ij over a chunk, for every base p and fixed rows i."""

    kernels: tuple[Kernel, ...]
    lines: GaussianLines | None
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
    """Minus the largest |k_p(x, y)| of every base, where y is x or a reference row."""

    kernels: tuple[Kernel, ...]
    references: Any

    def __call__(self, chunk: Any) -> Array:
        chunk = as_float64(chunk)
        own = [np.abs(kernel.diag(chunk)).max() for kernel in self.kernels]
        others = [np.abs(kernel.block(chunk, self.references)).max() for kernel in self.kernels]
        return -np.maximum(own, others)


@dataclass(frozen=True, eq=False)
class _LineRanges:
    """The smallest coordinate on each line, and minus the largest one."""

    axes: Array

    def __call__(self, chunk: Any) -> Array:
        Z = chunk @ self.axes
        return np.stack([Z.min(axis=0), -Z.max(axis=0)])
