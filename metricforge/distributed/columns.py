"""Columns in row chunks on dask: only matrices as small as the basis has vectors are in this process.

Chunks are computed when a small matrix that depends on them is: one product, one projection or one Gram matrix is one
round of tasks.

What the scheduler keeps is enough to compute a lost chunk again: the tasks of a chunk and of all its ancestors, back to
the rows of A and the seed.  In long iterations these would become ever more, so a restart of the basis may end their
history (`tasks.settle`); if a chunk of such a basis is lost, `metricforge.eigen.top` starts again.  A worker
that dies in mid-iteration therefore changes nothing but the time, by at most that of the iteration so far.  A round has
a few tasks per chunk, so few large chunks are best.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from operator import getitem
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..eigen.columns import (
    Basis,
    Block,
    Columns,
    column_maxima,
    combine,
    first_signs,
    inner_products,
    random_rows,
    rotate_rows,
)
from ..eigen.contract import Floats
from .tasks import Value, as_array, evaluate, settle


class PerChunk(list[Any]):
    """Values or other arguments of a step, one per chunk."""


class Group:
    """Adjacent columns of a block."""

    def __init__(self, values: list[Value], width: int) -> None:
        self.values, self.width = PerChunk(values), width


class RowChunks:
    """A matrix of n rows and few columns in chunks of rows; its columns are those of its groups."""

    def __init__(self, operations: ChunkedColumns, groups: list[Group], dtype: Any) -> None:
        self.operations, self.groups, self.dtype = operations, groups, np.dtype(dtype)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.operations.n, sum(group.width for group in self.groups)

    def values(self) -> list[Value]:
        """Return the chunks of all groups."""
        return [value for group in self.groups for value in group.values]


class ChunkedColumns(Columns):
    """The operations on `RowChunks` with given numbers of rows per chunk."""

    in_memory = False
    search_width = 8

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self.sizes = sizes
        self.n = sum(sizes)
        ends = np.cumsum(sizes).tolist()
        self.ranges = [range(end - size, end) for end, size in zip(ends, sizes, strict=True)]

    # -- rounds of tasks ---------------------------------------------------------------------------------------------

    def each(self, step: Callable[..., Any], *args: Any) -> PerChunk:
        """Return the results of a step, one per chunk; `ranges` also has one entry per chunk."""
        return PerChunk(Value(step, *(self._argument(a, c) for a in args)) for c in range(len(self.sizes)))

    def _argument(self, a: Any, c: int) -> Any:
        if isinstance(a, RowChunks):
            return [group.values[c] for group in a.groups]
        return a[c] if isinstance(a, PerChunk) or a is self.ranges else a

    def new(self, step: Callable[..., Any], columns: int, dtype: Any, *args: Any) -> RowChunks:
        """Return the block whose chunks a step returns; they are computed when needed."""
        return self.block(self.each(step, *args), columns, dtype)

    def block(self, values: list[Value], columns: int, dtype: Any = np.float64) -> RowChunks:
        """Return the block of these chunks."""
        return RowChunks(self, [Group(values, columns)], dtype)

    def fetched(self, step: Callable[..., Any], *args: Any) -> list[Any]:
        """Run a step for every chunk and return the results; blocks among the arguments are computed and stay."""
        blocks = [value for a in args if isinstance(a, RowChunks) for value in a.values()]
        return evaluate(blocks, self.each(step, *args))

    # -- the interface -----------------------------------------------------------------------------------------------

    def random(self, columns: int, rng: np.random.Generator) -> Block:
        """Return standard normal numbers."""
        return self.new(_random, columns, np.float64, int(rng.integers(2**63)), self.ranges, columns)

    def identity(self, columns: int) -> Block:
        """Return the first columns of the identity."""
        return self.new(_identity, columns, np.float64, self.ranges, columns)

    def inner(self, X: Block, Y: Block) -> NDArray[Any]:
        """Return X'Y."""
        return np.asarray(self.several(("inner", X, Y))[0])

    def gram(self, X: Block) -> Floats:
        """Return X'X in float64."""
        return np.asarray(self.several(("gram", X))[0])

    def times(self, X: Block, S: NDArray[Any]) -> Block:
        """Return XS."""
        return self._times(X, S, X.dtype)

    def _times(self, X: RowChunks, S: NDArray[Any], dtype: Any) -> RowChunks:
        return self.new(_times, S.shape[1], dtype, X, S, np.dtype(dtype).str)

    def minus(self, R: Block, X: Block, S: NDArray[Any]) -> Block:
        """Return R − XS."""
        return self.new(_minus, R.shape[1], R.dtype, R, X, S)

    def cast(self, X: Block, dtype: Any) -> Block:
        """Return X in another precision."""
        dtype = np.dtype(dtype)
        return X if X.dtype == dtype else self.new(_cast, X.shape[1], dtype, X, dtype.str)

    def select(self, X: Block, which: Any) -> Block:
        """Return some columns."""
        index = np.arange(X.shape[1])[which]
        return X if len(index) == X.shape[1] else self.new(_select, len(index), X.dtype, X, index)

    def beside(self, *blocks: Block) -> Block:
        """Return the columns of all blocks."""
        dtype = np.result_type(*(block.dtype for block in blocks))
        return RowChunks(self, [group for block in blocks for group in block.groups], dtype)

    def largest(self, X: Block) -> Floats:
        """Return the largest magnitude of every column."""
        return np.asarray(np.max(self.fetched(_largest, X), axis=0))

    def signed(self, V: Block) -> Block:
        """Return V with signs by its largest entries."""
        signs = np.array(self.fetched(_signs, V, self.largest(V)))  # (chunks, columns)
        first = np.argmax(signs != 0, axis=0)
        return self.times(V, np.diag(signs[first, np.arange(V.shape[1])]))

    def rotated(self, V: Block, AV: Block, S: Floats, w: Floats) -> tuple[Block, Floats]:
        """Return VS and the norms of AVS − VS diag(w)."""
        both = self.each(_rotated, V, AV, S, w)
        rows, squares = self.each(getitem, both, 0), self.each(getitem, both, 1)
        return self.block(rows, S.shape[1]), np.sqrt(np.sum(evaluate(rows, squares), axis=0))

    def rows(self, X: Block, index: NDArray[Any]) -> NDArray[Any]:
        """Return some rows."""
        return np.asarray(self.several(("rows", X, index))[0])

    def add_rows(self, X: Block, index: NDArray[Any], values: NDArray[Any]) -> Block:
        """Return X with values added to some rows."""
        mine, cuts = self._split(index)
        parts = [values[i:j] for i, j in pairwise(cuts)]
        return self.new(_add_rows, X.shape[1], X.dtype, X, PerChunk(mine), PerChunk(parts))

    def _split(self, index: NDArray[Any]) -> tuple[list[NDArray[Any]], NDArray[Any]]:
        """Return the rows of an ascending index in every chunk, by number within the chunk, and where they begin."""
        starts = [part.start for part in self.ranges]
        cuts = np.searchsorted(index, [*starts, self.n])
        return [index[i:j] - start for (i, j), start in zip(pairwise(cuts), starts, strict=True)], cuts

    def combined(self, blocks: Sequence[Block], weights: NDArray[Any]) -> Block:
        """Return a sum of multiples of blocks."""
        dtype = np.result_type(*(block.dtype for block in blocks))
        return self.new(_combined, blocks[0].shape[1], dtype, self._lists(blocks), weights)

    def dots(self, left: Sequence[Block], right: Sequence[Block]) -> Floats:
        """Return the inner products of blocks."""
        return np.asarray(self.several(("dots", left, right))[0])

    def several(self, *requests: tuple[Any, ...], keep: Sequence[Block] = ()) -> list[Any]:
        """Return the results of requests, in one round of tasks."""
        c = len(self.sizes)
        blocks = {id(value): value for block in keep for value in block.values()}
        values: list[Value] = []
        for name, *args in requests:
            if name == "rows":
                args[1] = PerChunk(self._split(args[1])[0])
            lists = [a if isinstance(a, list) else [a] for a in args]
            of = [block for each in lists for block in each if isinstance(block, RowChunks)]
            blocks |= {id(value): value for block in of for value in block.values()}
            parts = [self._lists(a) if isinstance(a, list) and not isinstance(a, PerChunk) else a for a in args]
            values += self.each(_REQUESTS[name], *parts)
        found = evaluate(list(blocks.values()), values)
        parts = [found[i * c : (i + 1) * c] for i in range(len(requests))]
        return [
            np.concatenate(part) if name == "rows" else np.asarray(sum(part))
            for (name, *_), part in zip(requests, parts, strict=True)
        ]

    def _lists(self, blocks: Sequence[Block]) -> PerChunk:
        """Return the chunks of several blocks, as lists of lists."""
        parts = [[[group.values[c] for group in block.groups] for block in blocks] for c in range(len(self.sizes))]
        return PerChunk(parts)

    def settle(self, *blocks: Block, always: bool = False) -> bool:
        """Let the scheduler forget the tasks behind blocks."""
        return settle([value for block in blocks for value in block.values()], always=always)

    def basis(self, size: int, dtype: Any, apart: Block | None) -> Basis:
        """Return an empty basis."""
        return _Grown(self, apart)

    def single(self, X: RowChunks) -> RowChunks:
        """Return the block with one group of columns."""
        return X if len(X.groups) == 1 else self.new(_beside, X.shape[1], X.dtype, X)

    def array(self, X: RowChunks) -> Any:
        """Return a block as a dask array, whose chunks are computed and stay on the workers."""
        values = self.single(X).groups[0].values
        evaluate(values, [])
        return as_array(values, self.sizes, X.shape[1], np.empty((0, 0), dtype=X.dtype))


class _Grown(Basis):
    """A basis of the blocks that were appended."""

    def __init__(self, on: ChunkedColumns, apart: RowChunks | None) -> None:
        self.on, self.apart = on, apart
        self.blocks: list[RowChunks] = []

    def append(self, new: Block) -> None:
        self.blocks.append(new)

    def project(self, R: Block, first: int) -> tuple[NDArray[Any], Block]:
        starts = np.cumsum([0, *(block.shape[1] for block in self.blocks)])
        Q = self.on.beside(*(block for block, start in zip(self.blocks, starts, strict=False) if start >= first))
        together = Q if self.apart is None else self.on.beside(Q, self.apart)
        overlap = self.on.inner(together, R)
        return overlap[: Q.shape[1]], self.on.minus(R, together, overlap)

    def project_again(self, R: Block) -> tuple[NDArray[Any], Block, Floats]:
        Q = self.on.beside(*self.blocks)
        together = Q if self.apart is None else self.on.beside(Q, self.apart)
        # both small matrices in one round: (R − Qo)'(R − Qo) = R'R − o'o for o = Q'R, which is small here
        parts = self.on.fetched(_inner_and_gram, together, R)
        overlap = np.asarray(sum(part for part, _ in parts))
        G = np.asarray(sum(part for _, part in parts)) - overlap.T.astype(np.float64) @ overlap
        return overlap[: Q.shape[1]], self.on.minus(R, together, overlap), (G + G.T) / 2

    def times(self, S: Floats) -> Block:
        return self.on._times(self.on.beside(*self.blocks), S, np.float64)

    def restart(self, S: Floats) -> None:
        self.blocks = [self.on.times(self.on.beside(*self.blocks), S)]

    def settle(self, new: Block) -> None:
        self.on.settle(*self.blocks, new)


# --------------------------------------------------------------------------------------------- the steps, inside tasks

Parts = list[NDArray[Any]]
"""The groups of a block in one chunk."""


def _beside(X: Parts) -> NDArray[Any]:
    return X[0] if len(X) == 1 else np.hstack(X)


def _product(X: Parts, S: NDArray[Any]) -> NDArray[Any]:
    """Return XS without joining the groups."""
    starts = np.cumsum([0, *(part.shape[1] for part in X)])
    total: NDArray[Any] = X[0] @ S[: starts[1]].astype(X[0].dtype)
    for part, start in zip(X[1:], starts[1:], strict=False):
        total += part @ S[start : start + part.shape[1]].astype(part.dtype)
    return total


def _random(entropy: int, rows: range, columns: int) -> Floats:
    return random_rows(entropy, rows, columns)


def _identity(rows: range, columns: int) -> Floats:
    return np.eye(len(rows), columns, -rows.start)


def _inner(X: Parts, Y: Parts) -> NDArray[Any]:
    right = _beside(Y)
    return np.vstack([part.T @ right for part in X])


def _inner_and_gram(X: Parts, Y: Parts) -> tuple[NDArray[Any], Floats]:
    return _inner(X, Y), _gram(Y)


def _gram(X: Parts) -> Floats:
    wide = _beside(X).astype(np.float64, copy=False)
    return np.asarray(wide.T @ wide)


def _times(X: Parts, S: NDArray[Any], dtype: str) -> NDArray[Any]:
    return _product(X, S).astype(dtype, copy=False)


def _minus(R: Parts, X: Parts, S: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(_beside(R) - _product(X, S))


def _cast(X: Parts, dtype: str) -> NDArray[Any]:
    return _beside(X).astype(dtype)


def _select(X: Parts, index: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(_beside(X)[:, index])


def _rows_of(X: Parts, index: NDArray[Any]) -> NDArray[Any]:
    return np.hstack([part[index] for part in X])


def _add_rows(X: Parts, index: NDArray[Any], values: NDArray[Any]) -> NDArray[Any]:
    wide = np.hstack(X)  # a copy
    wide[index] += values
    return wide


def _combined(blocks: list[Parts], weights: NDArray[Any]) -> NDArray[Any]:
    return combine([_beside(block) for block in blocks], weights)


def _dots(left: list[Parts], right: list[Parts]) -> Floats:
    return inner_products([_beside(block) for block in left], [_beside(block) for block in right])


_REQUESTS: dict[str, Callable[..., Any]] = {"inner": _inner, "gram": _gram, "rows": _rows_of, "dots": _dots}


def _largest(X: Parts) -> Floats:
    return np.concatenate([column_maxima(part) for part in X])


def _signs(X: Parts, largest: Floats) -> Floats:
    return first_signs(_beside(X), largest)


def _rotated(V: Parts, AV: Parts, S: Floats, w: Floats) -> tuple[Floats, Floats]:
    wide = _beside(V)
    out = np.empty((len(wide), S.shape[1]))
    return out, rotate_rows(wide, _beside(AV), S, w, out)
