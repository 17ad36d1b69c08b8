"""Apply a function to rows: in memory a block at a time, on dask a chunk per task; select rows.

Every function here takes all row containers.  The function applied sees plain NumPy or CSR blocks only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InputError
from ..validation import generator
from .containers import Array, count, is_dask, is_sparse, quiet, width
from .memory import check_memory, requested_budget

BLOCK_BYTES = 64 * 2**20
"""Memory that one block of a blocked loop may allocate; large enough for GEMM to run at full speed."""
WIDE_BYTES = 3 * 2**20
"""Memory of a block whose intermediate arrays are wider than rows and result: one of them fits the cache of a core."""
WIDE_ROWS = 128
"""Rows that such a block should have at least: a product with fewer takes longer for each."""
WIDE_ARRAYS = 3
"""Arrays of the widest intermediate that exist at the same time: the block of a kernel and its temporaries."""


def block_bytes(limit: int = BLOCK_BYTES) -> int:
    """Return the memory that a block may take: ``limit``, or less under a requested memory budget."""
    budget = requested_budget()
    return limit if budget is None else min(limit, budget // BLOCK_SHARE)


def blocks(n: int, row_bytes: int, limit: int = BLOCK_BYTES) -> Iterator[slice]:
    """Yield slices that cover ``range(n)``, each of one row or of at most ``limit`` bytes at ``row_bytes`` per row.

    A progress bar learns of every block that is done.
    """
    step = max(1, block_bytes(limit) // max(1, row_bytes))
    for start in range(0, n, step):
        stop = min(n, start + step)
        yield slice(start, stop)
        beat(stop, n)


BLOCK_SHARE = 4
"""A block may take at most 1/BLOCK_SHARE of the memory budget."""
MIRROR_TILE = 512
"""Side of the tiles of `mirror`: 2 MB each."""
PAIR_ARRAYS = 4
"""Arrays of the size of a block of pairs that a distance makes: products, masks of near rows, their differences."""
LEAST_TILE = 32
"""Rows of the smallest tile that `map_pairs` works with."""


def wide_blocks(n: int, widest: int) -> Iterator[slice]:
    """Yield slices that cover ``range(n)``, for functions that make float64 arrays of ``widest`` columns of them."""
    row_bytes = WIDE_ARRAYS * 8 * widest
    return blocks(n, row_bytes, min(max(WIDE_BYTES, WIDE_ROWS * row_bytes), BLOCK_BYTES))


def map_rows(
    function: Callable[..., Array],
    X: Any,
    columns: int | None,
    dtype: Any,
    *,
    widest: int | None = None,
    writes: bool = False,
) -> Any:
    """Apply ``function(block) -> (rows, columns)`` to every block of X and stack the results.

    Parameters
    ----------
    function : callable
        Picklable if X is a dask array; it enters the graph once, not once per task.
    X : rows
    columns : int or None
        None for functions that return one number per row.
    dtype : dtype of the result
    widest : int, optional
        The columns of the widest float64 array that the function makes of a block, for instance the number of
        landmarks.  Blocks are then so small that such arrays take at most WIDE_BYTES, or 64 MB where that is fewer
        than 128 rows.
    writes : bool
        Whether the function takes ``out=``, where it writes float64 results: no copy is made of them then.

    Returns
    -------
    ndarray, or for a dask array X a lazy dask array
        With the chunks of X, split where a chunk of the result would not fit a worker.
    """
    if is_dask(X):
        from ..distributed.chunks import mapped_rows

        return mapped_rows(function, X, columns, dtype, widest, writes)
    return _map_in_memory(function, X, None, columns, dtype, widest, writes)


def _map_in_memory(
    function: Callable[..., Array],
    X: Any,
    index: Array | None,
    columns: int | None,
    dtype: Any,
    widest: int | None,
    writes: bool,
) -> Array:
    """Do the same for rows in memory, or for those of them that ``index`` numbers, which are copied block by block."""
    n = count(X) if index is None else len(index)
    result = np.empty(n if columns is None else (n, columns), dtype=dtype)
    most = max(columns or 1, width(X) or 1)
    for rows in blocks(n, 8 * most) if widest is None else wide_blocks(n, max(most, widest)):
        block = X[rows if index is None else index[rows]]
        with quiet():
            if writes and result.dtype == np.float64:
                function(block, out=result[rows])
            else:
                result[rows] = function(block)
    return result


def map_taken(
    function: Callable[[Any], Array],
    X: Any,
    index: Array,
    columns: int | None,
    dtype: Any,
    *,
    widest: int | None = None,
    writes: bool = False,
) -> Array:
    """Return ``function`` of the rows ``X[index]``, in memory; on dask it runs on the workers that have the rows.

    The parameters are those of `map_rows`.
    """
    if not is_dask(X):
        everything = len(index) == count(X) and np.array_equal(index, np.arange(len(index)))
        return _map_in_memory(function, X, None if everything else index, columns, dtype, widest, writes)
    order = np.argsort(index, kind="stable")
    result = np.empty(len(index) if columns is None else (len(index), columns), dtype=dtype)
    from ..distributed.chunks import selected

    ascending = selected(X, np.asarray(index)[order])
    result[order] = gathered(map_rows(function, ascending, columns, dtype, widest=widest, writes=writes))
    return result


def map_pairs(function: Callable[[Any, Any], Array], X: Any, Y: Any, dtype: Any, *, widest: int = 0) -> Any:
    """Apply ``function(x_block, y_block) -> (rows, columns)`` to every pair of blocks: all rows of X with all of Y.

    In memory this is one call, because the result is dense anyway; under a memory budget that the temporaries of one
    call would exceed, it is several.  On dask the result is a lazy array with chunks along both axes, split where a
    block of the result would not fit a worker.  ``widest`` is that of `map_rows`.
    """
    if not (is_dask(X) or is_dask(Y)):
        return _tiled(function, X, Y, np.dtype(dtype), max(1, widest, width(X) or 1))
    from ..distributed.chunks import mapped_pairs

    return mapped_pairs(function, X, Y, dtype)


def _tiled(function: Callable[[Any, Any], Array], X: Any, Y: Any, dtype: np.dtype[Any], widest: int) -> Array:
    """Return ``function(X, Y)`` by as few calls as the budget allows; one where no budget was requested."""
    n, m, budget = count(X), count(Y), requested_budget()

    def temporaries(rows: int, others: int) -> int:
        return PAIR_ARRAYS * 8 * (rows * others + (rows + others) * widest)

    if budget is None or temporaries(n, m) <= budget:
        with quiet():
            return function(X, Y)
    size = dtype.itemsize * n * m
    least = size + temporaries(min(n, LEAST_TILE), min(m, LEAST_TILE))
    check_memory(least, f"a {n} × {m} matrix", "give fewer rows at a time, or dask arrays")
    # the largest s with temporaries(s, s) = 32 (s² + 2 s widest) within what the result leaves
    left = (budget - size) / (PAIR_ARRAYS * 8)
    side = max(LEAST_TILE, int((left + widest**2) ** 0.5) - widest)
    result = np.empty((n, m), dtype=dtype)
    with quiet():
        for i in range(0, n, side):
            for j in range(0, m, side):
                result[i : i + side, j : j + side] = function(X[i : i + side], Y[j : j + side])
    return result


def mirror(D: Array) -> None:
    """Copy the upper triangle of a square array to the lower one: rounding leaves them different."""
    n = len(D)
    for i in range(0, n, MIRROR_TILE):
        rows = slice(i, i + MIRROR_TILE)
        own = D[rows, rows]
        own[...] = np.triu(own) + np.triu(own, 1).T
        for j in range(i + MIRROR_TILE, n, MIRROR_TILE):
            D[j : j + MIRROR_TILE, rows] = D[rows, j : j + MIRROR_TILE].T


def map_paired(function: Callable[[Any, Any], Array], X: Any, Y: Any, dtype: Any, *, widest: int = 0) -> Any:
    """Apply ``function(x_block, y_block) -> (rows,)`` to equal slices of X and Y, which have as many rows.

    ``widest`` is that of `map_rows`.
    """
    if is_dask(X) or is_dask(Y):
        from ..distributed.chunks import mapped_paired

        return mapped_paired(function, X, Y, dtype)
    n = count(X)
    result = np.empty(n, dtype=dtype)
    for part in blocks(n, max(64 * (width(X) or 1), 2 * WIDE_ARRAYS * 8 * widest)):
        with quiet():
            result[part] = function(X[part], Y[part])
    return result


def map_relations(function: Callable[[Any, Any], Array], X: Any, pairs: Array, *, widest: int = 0) -> Array:
    """Return ``function(X[i], X[j])`` for a (p, 2) array of row numbers, a block of pairs at a time.

    ``widest`` is that of `map_rows`.
    """
    result = np.empty(len(pairs))
    for part in blocks(len(pairs), max(32 * (width(X) or 32), 2 * WIDE_ARRAYS * 8 * widest)):
        with quiet():
            result[part] = function(take(X, pairs[part, 0]), take(X, pairs[part, 1]))
    return result


def fold(function: Callable[..., Any], join: Callable[[list[Any]], Any], X: Any, *along: Any) -> Any:
    """Apply ``function(block, *parts)`` to every chunk of X, and ``join`` the list of results to one value.

    Parameters
    ----------
    function : callable
        In memory it gets X as one block, and splits it further as it likes.
    join : callable
        Reduces a list of results to one of the same kind; on dask it is applied over a tree.
    X : rows
    *along : arrays with one entry per row of X
        Each call gets the part that belongs to its block.  They may be dask arrays if X is one.

    Notes
    -----
    Only results move between workers, never rows.
    """
    if not is_dask(X):
        with quiet():
            return join([function(X, *along)])
    from ..distributed.tasks import folded

    return folded(function, join, X, *along)


def moments(X: Any) -> tuple[Array, Array]:
    """Return mean and standard deviation of every column, in one pass and without a copy of X."""
    _, mean, squares = fold(_block_moments, _joined_moments, X)
    return mean, np.sqrt(squares / count(X))


def column_range(X: Any) -> tuple[Array, Array]:
    """Return the smallest and the largest value of every column, in one pass."""
    low, high = fold(_block_range, _joined_ranges, X)
    return low, high


def _block_range(X: Any) -> tuple[Array, Array]:
    low, high = X.min(axis=0), X.max(axis=0)
    if is_sparse(X):
        low, high = low.toarray().ravel(), high.toarray().ravel()
    return low, high


def _joined_ranges(parts: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    lows, highs = zip(*parts, strict=True)
    return np.min(lows, axis=0), np.max(highs, axis=0)


def _block_moments(X: Any) -> tuple[int, Array, Array]:
    """Return number of rows, mean and sum of squared deviations of a chunk, computed a block at a time."""
    parts = []
    for part in blocks(count(X), 16 * max(1, width(X) or 1)):
        block = X[part].astype(np.float64)
        n = block.shape[0]
        mean = np.asarray(block.mean(axis=0)).ravel()
        if is_sparse(block):
            apart = np.square(block.data - mean[block.indices])
            squares = np.bincount(block.indices, weights=apart, minlength=len(mean)).astype(np.float64)
            squares += (n - np.bincount(block.indices, minlength=len(mean))) * mean**2
        else:
            squares = np.square(block - mean).sum(axis=0)
        parts.append((n, mean, squares))
    return _joined_moments(parts)


def _joined_moments(parts: list[tuple[int, Array, Array]]) -> tuple[int, Array, Array]:
    total, mean, squares = parts[0]
    for n, other, more in parts[1:]:
        shift = other - mean
        squares = squares + more + shift**2 * (total * n / (total + n))
        mean = mean + shift * (n / (total + n))
        total += n
    return total, mean, squares


# ------------------------------------------------------------------------------------------ progress inside long passes

INTERVAL = 0.5
"""Seconds between two signs, at the least."""


@dataclass(eq=False)
class _Listener:
    call: Callable[[int, int], None]
    last: float


_listener: ContextVar[_Listener | None] = ContextVar("listener", default=None)


@contextmanager
def listening(call: Callable[[int, int], None]) -> Iterator[None]:
    """Call ``call(done, total)`` about twice a second while blocks of rows are worked through inside the block."""
    token = _listener.set(_Listener(call, time.monotonic()))
    try:
        yield
    finally:
        _listener.reset(token)


def beat(done: int, total: int) -> None:
    """Report that ``done`` of ``total`` equal parts of a pass are finished; cheap enough for every block."""
    listener = _listener.get()
    if listener is None:
        return
    now = time.monotonic()
    if now - listener.last >= INTERVAL:
        listener.last = now
        listener.call(done, total)


# -------------------------------------------------------------------------------------------------------- selected rows

MANY_ROWS = 10**6
"""From this many rows on, drawing up to half of them makes no array of as many numbers."""


def draw(n: int, size: int, seed: int) -> Array:
    """Return ``min(n, size)`` distinct row numbers, sorted; they depend on n, size and seed only."""
    if size >= n:
        return np.arange(n)
    rng = generator(seed)
    if n < MANY_ROWS or 2 * size > n or 50 * size < n:
        return np.sort(rng.choice(n, size=size, replace=False))
    # to choose n/50 numbers or more, numpy shuffles all n of them
    found = np.unique(rng.integers(n, size=size))
    while len(found) < size:
        found = np.union1d(found, rng.integers(n, size=size // 8 + 8))
    return np.delete(found, rng.choice(len(found), size=len(found) - size, replace=False))


def take(X: Any, index: Array) -> Any:
    """Return the rows ``X[index]`` in memory; of a dask array only the chunks that contain them are computed."""
    if not is_dask(X):
        return X[index]
    from ..distributed import chunks, cluster

    index = np.asarray(index)
    if (index[1:] >= index[:-1]).all():
        return cluster.compute(chunks.selected(X, index))[0]
    order = np.argsort(index, kind="stable")
    (sorted_rows,) = cluster.compute(chunks.selected(X, index[order]))
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return sorted_rows[back]


def stack(X: Any, Y: Any) -> Any:
    """Return the rows of X followed by the rows of Y."""
    if is_dask(X) or is_dask(Y):
        from ..distributed.chunks import concatenated

        return concatenated([X, Y])
    if is_sparse(X) or is_sparse(Y):
        from scipy import sparse

        try:
            return sparse.vstack([X, Y], format="csr")
        except ValueError as error:
            raise InputError(f"X has rows of another kind than the metric ({error}); give rows like those") from None
    return np.concatenate([X, Y], axis=0)


def gathered(X: Any) -> Any:
    """Return rows or results in memory: a dask array computed, anything else unchanged."""
    if not is_dask(X):
        return X
    from ..distributed import cluster

    return cluster.compute(X)[0]


# -------------------------------------------------------------------------------------------------------- pairs of rows

MEDIAN_ROWS = 1024
"""Rows to draw for a median over pairs: half a million pairs determine it to a fraction of a per cent."""


def pair_values(D: Array) -> Array:
    """Return the entries D_ij with i < j of a symmetric matrix as float64: one value per pair of two different rows."""
    n = len(D)
    values = np.empty(n * (n - 1) // 2)
    end = 0
    for i in range(n - 1):  # np.triu_indices would take three times the memory of D
        start, end = end, end + n - 1 - i
        values[start:end] = D[i, i + 1 :]
    return values


def median_of_pairs(D: Array) -> float:
    """Return the median of the entries D_ij with i < j of a symmetric matrix."""
    return float(np.median(pair_values(D)))
