"""The neighbour graph in row blocks on the workers: nothing in this process has as many entries as there are rows."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from operator import getitem
from typing import TYPE_CHECKING, Any

import numpy as np

from metricforge import rows as _rows
from metricforge.distributed import cluster
from metricforge.distributed.columns import ChunkedColumns, PerChunk
from metricforge.distributed.eigen import RowBlocks, connected_rows
from metricforge.distributed.tasks import Value, as_array, chunk_values, evaluate
from metricforge.eigen import Block
from metricforge.kernels.arithmetic import inverse_root
from metricforge.rows import Array

from .laplacian import Laplacian
from .pairs import SignedPairs
from .unit import unit_rows

if TYPE_CHECKING:
    from scipy.sparse import csr_array

ROW_BYTES = 1500
"""Memory per row in a task of the eigenproblem: the graph, some columns of the basis, the rows that a block needs."""
SETTLED_COLUMNS = 8
"""Columns of eigenvectors that pass through this process at a time."""


@dataclass(frozen=True, eq=False)
class ChunkedGraph:
    """A graph on n rows, in row blocks.

    Attributes
    ----------
    blocks : list of Value
        The rows of the 0/1 matrix S, as (n_i, n) csr_array of int8.
    counts : list of Value
        The number of neighbours of every row.
    sizes : tuple of int
        Rows per block.
    edges, isolated : int
        The number of edges, and of rows without a neighbour.
    recall : float
        The estimated share of true neighbours in the lists behind the graph.
    """

    blocks: list[Value]
    counts: list[Value]
    sizes: tuple[int, ...]
    edges: int
    isolated: int
    recall: float

    def placed(self, pairs: SignedPairs) -> SignedPairs:
        """Return the pairs by position, which is the row number here."""
        return pairs

    @property
    def operator(self) -> ChunkedLaplacian:
        """The Laplacian, on the workers."""
        return ChunkedLaplacian(self)

    def embedded(self, V: Any, scale: Array, pairs: SignedPairs, normalize: bool) -> Any:
        """Return V diag(scale) as a dask array; rows that no path connects with a pair are 0."""
        A = self.operator.matrix(pairs, np.ones(pairs.p))
        there = connected_rows(A, np.unique([pairs.i, pairs.j]))
        parts = zip(chunk_values(V), chunk_values(there), strict=True)
        made = [Value(_embedded_block, rows, mask, scale, normalize) for rows, mask in parts]
        evaluate(made, [])
        return as_array(made, self.sizes, len(scale), np.empty((0, 0)))

    @property
    def degrees(self) -> Array:
        """The number of neighbours of every row, in this process."""
        return np.concatenate(evaluate([], self.counts)).astype(np.float64)

    def by_row(self, values: Any) -> Array:
        """Return values by row number, in this process."""
        return np.asarray(_rows.gathered(values))


class ChunkedLaplacian(Laplacian):
    """The Laplacian of a graph in row blocks."""

    here = False

    def __init__(self, graph: ChunkedGraph) -> None:
        self.graph = graph
        self.columns = self._chunks = ChunkedColumns(graph.sizes)
        self.trace = float(sum(graph.sizes) - graph.isolated)
        self._blocks: RowBlocks | None = None

    def times(self, X: Block) -> Block:
        """Return LX."""
        if self._blocks is None:
            counts = list(self.graph.counts)
            starts = [rows.start for rows in self._chunks.ranges]
            blocks = self._chunks.each(_laplacian_block, PerChunk(self.graph.blocks), PerChunk(starts), counts)
            self._blocks = RowBlocks(blocks, self.graph.sizes)
        return self._blocks.product(X, 1.0)

    def matrix(self, pairs: SignedPairs, alpha: Array) -> Any:
        """Return A(α) as a dask array of row blocks, which stay on the workers."""
        entries, counts = pairs.entries(alpha), list(self.graph.counts)
        made = []
        for block, rows in zip(self.graph.blocks, self._chunks.ranges, strict=True):
            mine = (entries[0] >= rows.start) & (entries[0] < rows.stop)
            own = tuple(part[mine] for part in entries)
            made.append(Value(_matrix_block, block, rows.start, counts, own))
        evaluate(made, [])
        return as_array(made, self.graph.sizes, self._chunks.n, _empty_matrix())

    def block(self, V: Any, r: int) -> Block:
        """Return the first r columns."""
        return self._chunks.select(self._chunks.block(chunk_values(V), V.shape[1]), slice(r))

    def array(self, X: Block) -> Any:
        """Return a block as a dask array."""
        return self._chunks.array(X)

    def settled(self, V: Any, r: int) -> Any:
        """Return the first r columns without their history, a few at a time: they pass through this process."""
        on, X = self._chunks, self.block(V, r)
        groups = [on.select(X, slice(i, i + SETTLED_COLUMNS)) for i in range(0, r, SETTLED_COLUMNS)]
        for group in groups:
            on.settle(group, always=True)
        return on.array(on.beside(*groups)) if groups else V[:, :r]


def block_sizes(n: int) -> tuple[int, ...]:
    """Return the rows of each block: one block per worker thread, or more if such a block is too large for a task."""
    blocks = max(cluster.threads(), -(-n * ROW_BYTES // cluster.task_bytes()))
    blocks = min(n, blocks)
    return tuple(n // blocks + (i < n % blocks) for i in range(blocks))


def chunked_graph(lists: Any, kind: str, recall: float) -> ChunkedGraph:
    """Return the graph of a lazy (n, k) dask array of neighbours.

    Every edge moves once, to the block of its other end.  A task has the lists of a block twice.
    """
    n = lists.shape[0]
    sizes = block_sizes(n)
    small = np.int32 if n < 2**31 else np.int64
    own = chunk_values(lists.astype(small).rechunk({0: sizes, 1: -1}))
    bounds = np.cumsum([0, *sizes])
    starts = bounds[:-1].tolist()
    sent = [Value(_ends_by_block, block, start, bounds) for block, start in zip(own, starts, strict=True)]
    evaluate(sent, [])
    made = [
        Value(_joined_block, block, start, [Value(getitem, part, b) for part in sent], n, kind)
        for b, (block, start) in enumerate(zip(own, starts, strict=True))
    ]
    counts = [Value(_counts, block) for block in made]
    sums = evaluate([*made, *counts], [Value(_totals, count) for count in counts])
    total, isolated = np.sum(sums, axis=0).tolist()
    return ChunkedGraph(made, counts, sizes, int(total) // 2, int(isolated), recall)


# --------------------------------------------------------------------------------------------- the steps, inside tasks


def _ends_by_block(lists: Array, start: int, bounds: Array) -> list[tuple[Array, Array]]:
    """Return for each block the neighbours that it has, by number within the block, and the rows that list them."""
    n, k = lists.shape
    rows = np.repeat(np.arange(start, start + n, dtype=lists.dtype), k)
    targets = lists.ravel()
    order = np.argsort(targets, kind="stable")
    targets = targets[order]
    cuts = np.searchsorted(targets, bounds)  # entries of -1, for none, come first
    return [(targets[i:j] - lo, rows[order[i:j]]) for (i, j), lo in zip(pairwise(cuts), bounds[:-1], strict=True)]


def _joined_block(lists: Array, start: int, received: list[tuple[Array, Array]], n: int, kind: str) -> csr_array:
    """Return the rows of the graph: neighbours listed here and there (mutual), or here or there (union)."""
    from scipy.sparse import csr_array

    size = len(lists)
    listed = (lists >= 0) & (lists != np.arange(start, start + size, dtype=lists.dtype)[:, None])
    starts = np.concatenate([[0], listed.sum(axis=1).cumsum()])
    here = csr_array((np.ones(starts[-1], dtype=np.int8), lists[listed], starts), shape=(size, n))
    here.sum_duplicates()
    here.data[:] = 1
    rows, columns = (np.concatenate(part) for part in zip(*received, strict=True))
    keep = rows + start != columns
    there = csr_array((np.ones(np.count_nonzero(keep), dtype=np.int8), (rows[keep], columns[keep])), shape=(size, n))
    there.data[:] = 1
    joined = here.multiply(there) if kind == "mutual" else here.maximum(there)
    made: csr_array = csr_array(joined)
    made.sort_indices()
    return made


def _counts(block: csr_array) -> Array:
    return np.asarray(np.diff(block.indptr), dtype=np.int32)


def _totals(counts: Array) -> tuple[int, int]:
    return int(counts.sum()), int(np.count_nonzero(counts == 0))


def _laplacian_block(block: csr_array, start: int, counts: list[Array]) -> csr_array:
    """Return rows of L = P − D^-1/2 S D^-1/2, eq. (3)."""
    from scipy.sparse import csr_array

    size, n = block.shape
    scale = np.concatenate([inverse_root(part.astype(np.float64)) for part in counts])
    mine = np.diff(block.indptr)
    data = np.repeat(scale[start : start + size], mine) * scale[block.indices]
    smooth = csr_array((data, block.indices, block.indptr), shape=block.shape)
    where = np.flatnonzero(mine)
    return csr_array(csr_array((np.ones(len(where)), (where, where + start)), shape=(size, n)) - smooth)


def _matrix_block(block: csr_array, start: int, counts: list[Array], entries: tuple[Array, Array, Array]) -> csr_array:
    """Return rows of the pairs minus those of L."""
    from scipy.sparse import csr_array

    rows, columns, values = entries
    return csr_array(
        csr_array((values, (rows - start, columns)), shape=block.shape) - _laplacian_block(block, start, counts)
    )


def _embedded_block(V: Array, there: Array, scale: Array, normalize: bool) -> Array:
    # eigenvectors vanish elsewhere up to rounding, which normalisation would turn into a direction
    E = V[:, : len(scale)] * scale * there[:, None]
    return unit_rows(E) if normalize else np.asarray(E)


def _empty_matrix() -> csr_array:
    from scipy.sparse import csr_array

    return csr_array((0, 0))
