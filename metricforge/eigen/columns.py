"""Matrices of n rows and few columns: the operations that the iterations are made of, and their form in memory.

`thick_restart`, `orthonormal`, the search for missed eigenvalues and the Rayleigh-Ritz step use these operations only.
`metricforge.distributed.columns` implements them on dask, so one loop serves both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..rows import beat
from .contract import Floats

Block: TypeAlias = Any
"""A matrix of n rows and few columns: an ndarray, or a `RowChunks` on dask; both have ``shape`` and ``dtype``."""

RANDOM_ROWS = 4096
"""Rows that share one stream of random numbers."""
_ROTATED_ROWS = 4096
"""Rows of the basis rotated at a time: their part of the basis stays in the cache."""
_COMBINED = 2**14
"""Entries of a block combined at a time: 128 kB."""


def random_rows(entropy: int, rows: range, columns: int) -> Floats:
    """Return standard normal numbers of some rows; each RANDOM_ROWS rows have a generator of their own."""
    out = np.empty((len(rows), columns))
    for group in range(rows.start // RANDOM_ROWS, -(-rows.stop // RANDOM_ROWS)):
        start = group * RANDOM_ROWS
        low, high = max(rows.start, start), min(rows.stop, start + RANDOM_ROWS)
        drawn = np.random.default_rng([entropy, group]).standard_normal((high - start, columns))
        out[low - rows.start : high - rows.start] = drawn[low - start :]
    return out


def first_signs(V: Floats, largest: Floats) -> Floats:
    """Return the sign of the first entry of each column close to ``largest`` in magnitude; 0 where there is none."""
    signs = np.zeros(V.shape[1])
    for j, v in enumerate(V.T):
        near = np.abs(v) >= (1 - 1e-6) * largest[j]
        where = int(np.argmax(near))
        if len(v) and near[where]:
            signs[j] = -1.0 if v[where] < 0 else 1.0
    return signs


def combine(blocks: Sequence[NDArray[Any]], weights: NDArray[Any]) -> NDArray[Any]:
    """Return Σ w_i X_i, a few rows at a time, so that temporary arrays stay in the cache."""
    out = np.empty(blocks[0].shape, dtype=np.result_type(*blocks))
    step = max(1, _COMBINED // max(1, out.shape[1]))
    for i in range(0, len(out), step):
        rows = slice(i, i + step)
        total = np.multiply(blocks[0][rows], weights[0], out=out[rows])
        for X, w in zip(blocks[1:], weights[1:], strict=True):
            total += w * X[rows]
    return out


def inner_products(left: Sequence[NDArray[Any]], right: Sequence[NDArray[Any]]) -> Floats:
    """Return tr(X_i'Y_j), a few rows at a time, so that every block is read once."""
    n, columns = left[0].shape
    total = np.zeros((len(left), len(right)))
    step = max(1, _COMBINED // max(1, columns))
    for i in range(0, n, step):
        X = [np.ascontiguousarray(block[i : i + step]).ravel() for block in left]
        Y = [np.ascontiguousarray(block[i : i + step]).ravel() for block in right]
        total += [[x @ y for y in Y] for x in X]
    return total


def column_maxima(X: NDArray[Any]) -> Floats:
    """Return the largest magnitude of every column, without an array of the shape of X; 0 without rows."""
    return np.asarray(np.maximum(X.max(axis=0, initial=0.0), -X.min(axis=0, initial=0.0)), dtype=np.float64)


def rotate_rows(V: Floats, AV: Floats, S: Floats, w: Floats, out: Floats) -> Floats:
    """Write VS to the first columns of ``out``, which may be V; return the squared residuals, a few rows at a time."""
    k = S.shape[1]
    squares = np.zeros(k)
    step = max(1, 2**20 // k)  # no further array of shape (n, k)
    for i in range(0, len(V), step):
        rows = V[i : i + step] @ S
        out[i : i + step, :k] = rows
        squares += np.square(AV[i : i + step] @ S - rows * w).sum(axis=0)
        beat(min(i + step, len(V)), len(V))
    return squares


class Columns:
    """Operations on matrices of ``n`` rows and few columns, here NumPy arrays; small matrices always are.

    `metricforge.distributed.columns` has them for blocks in chunks.
    """

    in_memory: bool = True
    search_width: int = 1
    """Random vectors of the first search for missed eigenvalues: more where rounds of tasks cost more than products."""

    def __init__(self, n: int) -> None:
        self.n = n

    def random(self, columns: int, rng: np.random.Generator) -> Block:
        """Return standard normal numbers; row i depends on i and the state of rng only, not on chunks."""
        return random_rows(int(rng.integers(2**63)), range(self.n), columns)

    def identity(self, columns: int) -> Block:
        """Return the first columns of the identity."""
        return np.eye(self.n, columns)

    def inner(self, X: Block, Y: Block) -> NDArray[Any]:
        """Return X'Y."""
        return np.asarray(X.T @ Y)

    def gram(self, X: Block) -> Floats:
        """Return X'X, accumulated in float64."""
        X = X.astype(np.float64, copy=False)
        return np.asarray(X.T @ X)

    def times(self, X: Block, S: NDArray[Any]) -> Block:
        """Return XS in the precision of X."""
        return X @ S.astype(X.dtype, copy=False)

    def minus(self, R: Block, X: Block, S: NDArray[Any]) -> Block:
        """Return R − XS; R must not be used afterwards."""
        R -= X @ S.astype(X.dtype, copy=False)
        return R

    def cast(self, X: Block, dtype: Any) -> Block:
        """Return X in another precision."""
        return X.astype(dtype, copy=False)

    def select(self, X: Block, which: Any) -> Block:
        """Return the columns of a slice or a mask."""
        return X[:, which]

    def beside(self, *blocks: Block) -> Block:
        """Return the columns of all blocks."""
        return blocks[0] if len(blocks) == 1 else np.hstack(blocks)

    def largest(self, X: Block) -> Floats:
        """Return the largest magnitude of every column."""
        return column_maxima(X)

    def signed(self, V: Block) -> Block:
        """Flip columns so that the entry of largest magnitude is positive; among near ties the first."""
        V *= first_signs(V, column_maxima(V))
        return V

    def rotated(self, V: Block, AV: Block, S: Floats, w: Floats) -> tuple[Block, Floats]:
        """Return VS and the norms of the columns of AVS − VS diag(w); V must not be used afterwards."""
        squares = rotate_rows(V, AV, S, w, V)
        return V[:, : S.shape[1]], np.sqrt(squares)

    def rows(self, X: Block, index: NDArray[Any]) -> NDArray[Any]:
        """Return the rows of an ascending index, in this process."""
        return np.asarray(X[index])

    def add_rows(self, X: Block, index: NDArray[Any], values: NDArray[Any]) -> Block:
        """Return X with values added to the rows of an ascending index; X must not be used afterwards."""
        X[index] += values
        return X

    def combined(self, blocks: Sequence[Block], weights: NDArray[Any]) -> Block:
        """Return Σ w_i X_i."""
        return combine(blocks, weights)

    def dots(self, left: Sequence[Block], right: Sequence[Block]) -> Floats:
        """Return tr(X_i'Y_j) for all blocks X_i on the left and Y_j on the right."""
        return inner_products(left, right)

    def several(self, *requests: tuple[Any, ...], keep: Sequence[Block] = ()) -> list[Any]:
        """Return the results of requests such as ("inner", X, Y), in one round of tasks; also of gram, rows, dots.

        The blocks in requests are computed and stay on the workers, and so do those in ``keep``.  Others between them
        are computed again when they are needed again.
        """
        return [getattr(self, name)(*args) for name, *args in requests]

    def settle(self, *blocks: Block, always: bool = False) -> bool:
        """Let the scheduler forget the tasks behind blocks, if these are many, or always; return whether it does."""
        return False  # in memory there are none

    def basis(self, size: int, dtype: Any, apart: Block | None) -> Basis:
        """Return an empty basis for at most ``size`` columns, which are orthogonal to the orthonormal ``apart``."""
        return Basis(np.empty((self.n, size), dtype=dtype, order="F"), apart)


class Basis:
    """Orthonormal columns that grow by a block at a time, up to a given number; here one array, rotated in place."""

    def __init__(self, Q: NDArray[Any], apart: Block | None) -> None:
        self.Q, self.apart, self.used = Q, apart, 0

    def append(self, new: Block) -> None:
        """Add columns."""
        self.Q[:, self.used : self.used + new.shape[1]] = new
        self.used += new.shape[1]

    def project(self, R: Block, first: int) -> tuple[NDArray[Any], Block]:
        """Return Q'R for the columns Q from ``first`` on, and R − QQ'R, also without its part in known vectors.

        R must not be used afterwards.
        """
        if self.apart is not None:
            R -= self.apart @ (self.apart.T @ R)
        Q = self.Q[:, first : self.used]
        overlap = Q.T @ R
        R -= Q @ overlap
        return overlap, R

    def project_again(self, R: Block) -> tuple[NDArray[Any], Block, Floats]:
        """Return what `project` does for all columns, where little is left to subtract, and the Gram matrix of R."""
        overlap, R = self.project(R, 0)
        R64 = R.astype(np.float64, copy=False)
        return overlap, R, np.asarray(R64.T @ R64)

    def times(self, S: Floats) -> Block:
        """Return QS in float64."""
        return self._rotated(S, np.empty((len(self.Q), S.shape[1])))

    def restart(self, S: Floats) -> None:
        """Replace Q by QS."""
        self._rotated(S, self.Q)
        self.used = S.shape[1]

    def settle(self, new: Block) -> None:
        """Let the scheduler forget the tasks behind Q and the next block, if these are many."""

    def _rotated(self, S: Floats, out: NDArray[Any]) -> NDArray[Any]:
        """Write Q[:, :len(S)] S into the first columns of ``out``, which may be Q, a few rows at a time."""
        S = S.astype(self.Q.dtype)
        for i in range(0, len(out), _ROTATED_ROWS):
            rows = slice(i, i + _ROTATED_ROWS)
            out[rows, : S.shape[1]] = self.Q[rows, : len(S)] @ S
            beat(min(rows.stop, len(out)), len(out))
        return out


def columns_of(X: Block) -> Columns:
    """Return the operations for a block."""
    found: Columns | None = getattr(X, "operations", None)
    return Columns(len(X)) if found is None else found
