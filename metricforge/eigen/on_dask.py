"""`top` for a matrix whose row blocks are on dask: the iteration of `lanczos` on columns in chunks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..rows import Value, as_array, chunk_values, evaluate, whole_rows
from .chunked import ChunkedColumns, PerChunk, RowChunks
from .components import Piece
from .contract import Floats, Solved
from .forests import best_pieces, forest_of, in_small, reached, small_entries, without
from .row_blocks import RowBlocks


class Chunked:
    """A symmetric matrix as a dask array of row blocks, which are computed and stay on the workers."""

    def __init__(self, A: Any) -> None:
        A = whole_rows(A, "A", 2)
        if A.shape[0] != A.shape[1]:
            raise InputError(f"A must be square with at least one row, got shape {A.shape}")
        if A.dtype.kind not in "biuf":
            raise InputError(f"A must be real, got entries of type {A.dtype}; pass a real symmetric matrix")
        self.array = A
        self.sizes: tuple[int, ...] = A.chunks[0]
        self.columns = ChunkedColumns(self.sizes)
        self.blocks = self.columns.each(_sparse, PerChunk(chunk_values(A)))
        evaluate(self.blocks, [])

    def split(self, k: int) -> tuple[list[Piece], PerChunk | None]:
        """Return the k best eigenpairs of the small components, and which rows these have; None if there are none."""
        on = self.columns
        forest = forest_of(self.blocks, on.ranges)
        masks = on.each(in_small, PerChunk([forest] * len(self.sizes)), on.ranges)
        self.small = [int(count) for count in evaluate(masks, on.each(_count, masks))]
        if not any(self.small):
            return [], None
        entries = on.each(small_entries, self.blocks, masks, PerChunk(Value(_start, rows) for rows in on.ranges))
        return evaluate([], [Value(best_pieces, list(entries), k)])[0], masks

    def matrix(self, masks: PerChunk | None) -> RowBlocks | None:
        """Return the matrix without small components; None if there is no other."""
        if masks is None:
            return RowBlocks(self.blocks, self.sizes)
        sizes = tuple(size - small for size, small in zip(self.sizes, self.small, strict=True))
        if not any(sizes):
            return None
        blocks = [Value(without, block, mask, list(masks)) for block, mask in zip(self.blocks, masks, strict=True)]
        return RowBlocks(PerChunk(blocks), sizes)

    def start(self, v0: Any, masks: PerChunk | None, on: ChunkedColumns) -> RowChunks:
        """Return starting vectors, a dask array, as a block of the rows in large components."""
        if v0.ndim != 2 or v0.shape[0] != self.array.shape[0]:
            raise InputError(f"v0 must have shape ({self.array.shape[0]}, i), got {v0.shape}")
        values = PerChunk(chunk_values(v0.rechunk({0: self.sizes, 1: -1})))
        if masks is not None:
            values = self.columns.each(_large_rows, values, masks)
        return on.block(values, v0.shape[1])

    def joined(self, pieces: list[Piece], large: Solved | None, masks: PerChunk | None, k: int) -> Solved:
        """Return the k best of the pairs of the small components and those of the other rows, as a dask array."""
        if masks is None:
            assert large is not None
            return large
        w = np.array([piece.value for piece in pieces] + ([] if large is None else list(large.w)))
        best = np.argsort(-w, kind="stable")[:k]
        residuals, own, other = np.empty(len(best)), [], np.zeros((0 if large is None else len(large.w), len(best)))
        for j, b in enumerate(best.tolist()):
            if b < len(pieces):
                residuals[j] = pieces[b].residual
                own.append((j, pieces[b].rows, pieces[b].vector))
            elif large is not None:
                other[b - len(pieces), j], residuals[j] = 1.0, large.residuals[b - len(pieces)]
        on, c = self.columns, range(len(self.sizes))
        parts = [[] if large is None else [group.values[i] for group in large.V.groups] for i in c]
        values = [Value(_placed, parts[i], masks[i], other, own, on.ranges[i]) for i in c]
        return Solved(w[best], on.block(values, len(best)), residuals, large is None or large.complete)

    def in_memory(self) -> Any:
        """Return the whole matrix in this process."""
        from scipy.sparse import csr_array, vstack

        return csr_array(vstack(evaluate([], self.blocks), format="csr"))

    def vectors(self, V: Any) -> Any:
        """Return eigenvectors, in chunks or in memory, as a dask array with the row chunks of A."""
        if isinstance(V, RowChunks):
            return self.columns.array(V)
        values = [Value(_own, V[rows.start : rows.stop]) for rows in self.columns.ranges]
        evaluate(values, [])
        return as_array(values, self.sizes, V.shape[1], np.empty((0, 0)))


def connected_rows(A: Any, rows: NDArray[Any]) -> Any:
    """Return which rows the entries of a matrix connect with some rows, as a dask array with the row chunks of A.

    Parameters
    ----------
    A : dask array of CSR row blocks, shape (n, n)
        Symmetric.
    rows : integers
        Row numbers; a row is connected with itself.

    Notes
    -----
    A task has at most 32 bytes per row, and those of its block; this process has none.
    """
    blocks = Chunked(A)
    on = blocks.columns
    forest = forest_of(blocks.blocks, on.ranges)
    seeds = np.asarray(rows, dtype=np.int64)
    values = on.each(reached, PerChunk([forest] * len(on.sizes)), seeds, on.ranges)
    evaluate(values, [])
    return as_array(values, on.sizes, None, np.empty(0, dtype=bool))


def _sparse(A: Any) -> Any:
    from scipy.sparse import csr_array

    return csr_array(A)


def _count(mask: NDArray[Any]) -> int:
    return int(np.count_nonzero(mask))


def _start(rows: range) -> int:
    return rows.start


def _own(V: Floats) -> Floats:
    return V


def _large_rows(V: Floats, small: NDArray[np.bool_]) -> Floats:
    return np.asarray(V[~small], dtype=np.float64)


def _placed(
    parts: list[Floats],
    small: NDArray[np.bool_],
    other: Floats,
    own: list[tuple[int, NDArray[np.intp], Floats]],
    rows: range,
) -> Floats:
    """Return the rows of a chunk: columns of large components by the selection ``other``, and those of pieces."""
    V = np.zeros((len(rows), other.shape[1]))
    if parts:
        V[~small] = np.hstack(parts) @ other
    for j, where, vector in own:
        mine = (where >= rows.start) & (where < rows.stop)
        V[where[mine] - rows.start, j] = vector[mine]
    return V
