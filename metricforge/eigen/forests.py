"""Connected components of a sparse matrix in row blocks: each block has a forest, and forests are merged over a tree.

A forest lists every row that has an entry, with the representative of its component: the smallest row number in it.
Merging two of them is a connected-components problem over at most twice as many edges as rows, so a task never has more
than 32 bytes per row of the whole matrix, and this process none.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..rows import FAN_IN, Value, evaluate
from .chunked import PerChunk
from .components import COMPONENT_ROWS, Piece, small_components

Ints = NDArray[np.int64]


class Forest(NamedTuple):
    """Rows, ascending, and the smallest row of the component of each."""

    rows: Ints
    roots: Ints


def forest_of(blocks: PerChunk, ranges: list[range]) -> Value:
    """Return the forest of the whole matrix."""
    forests = [Value(block_forest, block, rows.start) for block, rows in zip(blocks, ranges, strict=True)]
    while len(forests) > 1:
        forests = [Value(merged, forests[i : i + FAN_IN]) for i in range(0, len(forests), FAN_IN)]
    evaluate(forests, [])
    return forests[0]


def block_forest(A: Any, start: int) -> Forest:
    """Return the forest of the edges in a row block whose first row has the number ``start``."""
    here = np.repeat(np.arange(start, start + A.shape[0]), np.diff(A.indptr))
    return _forest(here, A.indices.astype(np.int64))


def merged(forests: list[Forest]) -> Forest:
    """Return the forest of all edges of several forests."""
    if len(forests) == 1:
        return forests[0]
    return _forest(*(np.concatenate(part) for part in zip(*forests, strict=True)))


def _forest(ends: Ints, others: Ints) -> Forest:
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    rows = np.union1d(ends, others)
    if not len(rows):
        return Forest(rows, rows)
    shape = (len(rows), len(rows))
    edges = np.searchsorted(rows, ends).astype(np.int32), np.searchsorted(rows, others).astype(np.int32)
    count, label = connected_components(coo_array((np.ones(len(ends), dtype=np.int8), edges), shape), directed=False)
    first = np.full(count, len(rows), dtype=np.int64)
    np.minimum.at(first, label, np.arange(len(rows)))
    return Forest(rows, rows[first[label]])


def reached(forest: Forest, seeds: Ints, rows: range) -> NDArray[np.bool_]:
    """Return which of some rows are in the component of a seed; a seed without entries is its own component."""
    roots = np.unique(np.concatenate([_roots(forest, seeds), seeds]))
    return np.isin(_roots(forest, np.arange(rows.start, rows.stop)), roots)


def _roots(forest: Forest, rows: Ints) -> Ints:
    """Return the representatives of rows; a row without entries is its own."""
    if not len(forest.rows):
        return rows
    where = np.minimum(np.searchsorted(forest.rows, rows), len(forest.rows) - 1)
    return np.where(forest.rows[where] == rows, forest.roots[where], rows)


def in_small(forest: Forest, rows: range) -> NDArray[np.bool_]:
    """Return which of some rows are in a component of at most COMPONENT_ROWS rows."""
    roots, sizes = np.unique(forest.roots, return_counts=True)
    mine = _roots(forest, np.arange(rows.start, rows.stop))
    if not len(roots):
        return np.ones(len(mine), dtype=bool)
    where = np.minimum(np.searchsorted(roots, mine), len(roots) - 1)
    return np.where(roots[where] == mine, sizes[where], 1) <= COMPONENT_ROWS


def small_entries(A: Any, small: NDArray[np.bool_], start: int) -> tuple[Ints, Ints, NDArray[Any], Ints]:
    """Return rows, columns and values of the entries in small components, and the numbers of their rows."""
    mine = np.flatnonzero(small)
    part = A[mine].tocoo()
    return mine[part.row] + start, part.col.astype(np.int64), part.data.astype(np.float64), mine + start


def best_pieces(entries: list[tuple[Ints, Ints, NDArray[Any], Ints]], k: int) -> list[Piece]:
    """Return the k best eigenpairs of the small components."""
    from scipy.sparse import coo_array

    rows, columns, data, numbers = (np.concatenate(part) for part in zip(*entries, strict=True))
    place = np.searchsorted(numbers, rows), np.searchsorted(numbers, columns)
    matrix = coo_array((data, place), shape=(len(numbers), len(numbers))).tocsr()
    found, _ = small_components(matrix, k)
    return [piece._replace(rows=numbers[piece.rows]) for piece in found]


def without(A: Any, small: NDArray[np.bool_], masks: list[NDArray[np.bool_]]) -> Any:
    """Return the rows of a block that are in large components, with columns numbered among such rows."""
    from scipy.sparse import csr_array

    number = np.cumsum(~np.concatenate(masks)) - 1
    rows = A[np.flatnonzero(~small)]
    columns = number[rows.indices].astype(np.int32 if len(number) < 2**31 else np.int64)
    return csr_array((rows.data, columns, rows.indptr), shape=(rows.shape[0], int(number[-1]) + 1))
