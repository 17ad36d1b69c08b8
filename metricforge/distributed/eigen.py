"""`top` for a matrix whose row blocks are on dask: the iteration of `lanczos` on columns in chunks."""

from __future__ import annotations

import math
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..eigen.api import choose, concluded, name_of, resolve, solve, top
from ..eigen.columns import columns_of
from ..eigen.completeness import COMPONENT_ROWS, Piece, small_components
from ..eigen.contract import TOL_FLOOR, Eigenpairs, Eigensolver, Floats, Solved
from ..eigen.lanczos import lanczos_pairs
from ..eigen.products import Products
from ..errors import InputError, SolverError
from ..rows import gathered
from ..validation import first_rows, generator, number, whole_number
from . import cluster
from .chunks import whole_rows
from .columns import ChunkedColumns, PerChunk, RowChunks
from .tasks import FAN_IN, Value, as_array, chunk_values, evaluate

if TYPE_CHECKING:
    from scipy.sparse import csr_array


LOSSES = 3
"""How often a solve on dask starts again after the loss of a worker."""


def top_on_dask(
    A: Any,
    k: int,
    solver: str | Eigensolver,
    tol: float,
    v0: Any,
    seed: int | np.random.Generator | None,
    max_iter: int | None,
    max_seconds: float | None,
) -> Eigenpairs:
    """Solve on the workers, or in this process where n is small.

    Starts again if a worker is lost with what no task can compute again.
    """
    seconds = math.inf if max_seconds is None else number(max_seconds, "max_seconds", least=0)
    deadline = time.monotonic() + seconds
    tol = max(number(tol, "tol", least=0), TOL_FLOOR)

    def attempt() -> Eigenpairs:
        blocks = Chunked(A)
        n = blocks.columns.n
        m = whole_number(k, "k", most=n, most_is="the number of rows of A")
        limit = 1000 * (m + 20) if max_iter is None else whole_number(max_iter, "max_iter")
        requested = resolve(solver)
        if not (requested in ("auto", None) or requested is lanczos_pairs):
            shown = repr(solver) if isinstance(solver, str) else name_of(solver, solver)
            raise InputError(
                f"solver={shown} needs A in this process, and A is a dask array; pass 'lanczos', 'auto', or A in memory"
            )
        if requested is None or choose(requested, n, m, tol, v0 is not None) is None:
            start = None if v0 is None else gathered(v0)
            left = None if deadline == math.inf else max(0.0, deadline - time.monotonic())
            found = top(
                blocks.in_memory(), m, solver="dense", tol=tol, v0=start, seed=seed, max_iter=max_iter, max_seconds=left
            )
            return Eigenpairs((found[0], blocks.vectors(found[1])), **found.__dict__)
        pieces, masks = blocks.split(m)
        matrix = blocks.matrix(masks)
        products, large = None, None
        if matrix is not None:
            k_rest = min(m, matrix.shape[0])
            products = Products(matrix, limit, deadline)
            start = None if v0 is None else blocks.start(v0, masks, matrix.columns)
            large = solve(products, k_rest, lanczos_pairs, tol, start, generator(0 if seed is None else seed))
        solved = blocks.joined(pieces, large, masks, m)
        V = blocks.vectors(columns_of(solved.V).signed(solved.V))
        return concluded(solved, V, "lanczos", products, calls=4)

    return cluster.despite_losses(attempt, LOSSES, f"an eigenproblem of {A.shape[0]} rows starts again")


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


# ----------------------------------------------------------------------------------------------------------- row blocks

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


# -------------------------------------------------------------------------------------------------------------- forests

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
