"""A symmetric sparse matrix in row blocks on dask, and its products with columns in chunks.

Block i multiplies the rows of X that its columns refer to.  From each chunk it receives those rows, or the whole chunk
where it needs much of it.  If rows are in random order, a neighbour graph refers to rows everywhere: a product with j
columns then moves up to n j numbers to every worker, or those of as many rows as the block has entries, if these are
fewer.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError, SolverError
from ..rows import Value, cluster, evaluate
from ..validation import first_rows
from .chunked import ChunkedColumns, PerChunk, RowChunks

if TYPE_CHECKING:
    from scipy.sparse import csr_array

PRODUCT_COLUMNS = 8
"""Columns of one product: a task has all rows that its block needs, of so many columns."""
WHOLE_SHARE = 0.5
"""A chunk is sent whole, instead of the rows that a block needs, if the blocks of a worker thread need more than this
share of it together: it is sent once, however many blocks the thread has, and by one task instead of one per block."""
NONE, SOME, WHOLE = 0, 1, 2
"""How much of a chunk a row block needs."""


class Prepared(NamedTuple):
    """A row block ready for products: its columns are numbered among the rows of X that it receives."""

    matrix: csr_array
    kinds: NDArray[np.int8]  # for each chunk NONE, SOME or WHOLE
    needed: list[NDArray[Any] | None]  # for each chunk the rows needed, where these are SOME


class RowBlocks:
    """The matrix of these row blocks, which stay on the workers.

    Attributes
    ----------
    shape : (n, n)
    dtype : float64
    columns : ChunkedColumns
        The operations on the blocks that it multiplies, whose chunks are its row blocks.
    """

    dtype = np.dtype(np.float64)

    def __init__(self, blocks: PerChunk, sizes: tuple[int, ...]) -> None:
        self.columns = on = ChunkedColumns(sizes)
        self.shape = on.n, on.n
        bounds = np.array([part.start for part in on.ranges] + [on.n])
        share = WHOLE_SHARE * min(1.0, cluster.threads() / len(sizes))
        self._blocks = on.each(prepare, blocks, bounds, share)
        self._kinds: list[NDArray[Any]] = evaluate(self._blocks, on.each(_kinds, self._blocks))
        where = [(i, j) for i, kinds in enumerate(self._kinds) for j in np.flatnonzero(kinds == SOME).tolist()]
        self._needed = {(i, j): Value(_needed, self._blocks[i], j) for i, j in where}
        evaluate(list(self._needed.values()), [])
        self._single: tuple[float, PerChunk] | None = None  # a unit, and the blocks over it in float32

    def product(self, X: RowChunks, unit: float) -> RowChunks:
        """Return A X / unit in the precision of X."""
        on, columns = self.columns, X.shape[1]
        if columns > PRODUCT_COLUMNS:
            starts = range(0, columns, PRODUCT_COLUMNS)
            made: RowChunks = on.beside(
                *(self.product(on.select(X, slice(i, i + PRODUCT_COLUMNS)), unit) for i in starts)
            )
            return made
        values = on.single(X).groups[0].values
        results = []
        blocks = self._blocks
        if X.dtype == np.float32:
            blocks, unit = self._in_single(unit), 1.0
        for i, (block, kinds) in enumerate(zip(blocks, self._kinds, strict=True)):
            parts = [
                values[j] if kinds[j] == WHOLE else Value(pick, values[j], self._needed[i, j])
                for j in np.flatnonzero(kinds).tolist()
            ]
            results.append(Value(multiply, block, parts or columns, unit))
        return on.block(results, columns, X.dtype)

    def _in_single(self, unit: float) -> PerChunk:
        """Return the blocks over the unit in float32; those in float64 may then be spilled to disk."""
        if self._single is None or self._single[0] != unit:
            self._single = unit, self.columns.each(in_single, self._blocks, unit)
            evaluate(self._single[1], [])
        return self._single[1]


def prepare(A: Any, bounds: NDArray[Any], share: float) -> Prepared:
    """Find the rows that a row block needs of every chunk, and number its columns among these.

    Of a chunk of which it needs more than ``share``, it receives all.
    """
    from scipy.sparse import csr_array

    A = csr_array(A, dtype=np.float64)
    bad = np.flatnonzero(~np.isfinite(A.data))
    if len(bad):
        rows = np.unique(np.searchsorted(A.indptr, bad, side="right") - 1)
        raise InputError(f"A contains NaN or infinity in {first_rows(rows)} of a row block; remove or impute it first")
    seen = np.zeros(A.shape[1], dtype=bool)
    seen[A.indices] = True
    number = np.empty(A.shape[1], dtype=np.int32)  # of a column among the rows received
    kinds, needed, received = np.zeros(len(bounds) - 1, dtype=np.int8), [], 0
    for j, (start, stop) in enumerate(pairwise(bounds.tolist())):
        mine = np.flatnonzero(seen[start:stop]).astype(np.int32)
        some = len(mine) <= share * (stop - start)
        kinds[j] = NONE if not len(mine) else SOME if some else WHOLE
        needed.append(mine if kinds[j] == SOME else None)
        if kinds[j] == WHOLE:
            number[start:stop] = np.arange(received, received + stop - start)
            received += int(stop - start)
        else:
            number[start + mine] = np.arange(received, received + len(mine))
            received += len(mine)
    matrix = csr_array((A.data, number[A.indices], A.indptr), shape=(A.shape[0], received))
    return Prepared(matrix, kinds, needed)


def in_single(block: Prepared, unit: float) -> Prepared:
    """Return a block over unit in float32; its other parts are shared."""
    from scipy.sparse import csr_array

    A = block.matrix
    data = (A.data / unit).astype(np.float32)
    return block._replace(matrix=csr_array((data, A.indices, A.indptr), shape=A.shape))


def multiply(block: Prepared, parts: list[NDArray[Any]] | int, unit: float) -> NDArray[Any]:
    """Return the row block times the rows received, over unit, in the precision of the rows.

    For a block without entries ``parts`` is the number of columns.
    """
    from scipy.sparse import csr_array

    A = block.matrix
    if isinstance(parts, int):
        return np.zeros((A.shape[0], parts), dtype=np.float32)
    X = np.concatenate(parts)
    if A.dtype != X.dtype or unit != 1.0:
        A = csr_array(((A.data / unit).astype(X.dtype, copy=False), A.indices, A.indptr), shape=A.shape)
    Y = np.asarray(A @ X)
    if not np.isfinite(Y.sum()):
        raise SolverError("the eigensolver broke down: a product is not finite; try another")
    return Y


def pick(X: NDArray[Any], rows: NDArray[Any]) -> NDArray[Any]:
    """Return some rows of a chunk."""
    return np.asarray(X[rows])


def _kinds(block: Prepared) -> NDArray[np.int8]:
    return block.kinds


def _needed(block: Prepared, j: int) -> NDArray[Any] | None:
    return block.needed[j]
