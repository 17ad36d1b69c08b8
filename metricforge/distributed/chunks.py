"""Rows as dask arrays in chunks of whole rows: the part of `metricforge.rows` that runs on dask."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..errors import InputError
from ..rows.containers import Array, count, is_dask, is_sparse, quiet, width
from ..rows.mapping import map_rows
from . import cluster


def whole_rows(X: Any, name: str, ndim: int | None) -> Any:
    """Return a dask array in non-empty chunks of whole rows, or raise InputError naming the argument.

    Empty chunks are what a filter leaves behind; they are dropped.
    """
    import dask.array as da

    if not isinstance(X, da.Array):
        frame = "convert with .to_dask_array(lengths=True)"
        how = frame if hasattr(type(X), "to_dask_array") else "see dask.array.from_delayed"
        raise InputError(f"{name} must be a dask array, got {type(X).__name__}; {how}")
    if ndim is not None and X.ndim != ndim:
        raise InputError(f"{name} must be {ndim}-d, got a dask array of shape {X.shape}")
    if any(np.isnan(size) for sizes in X.chunks for size in sizes):
        raise InputError(f"{name} is a dask array with unknown chunk sizes; call {name}.compute_chunk_sizes() first")
    if X.shape[0] == 0:
        raise InputError(f"{name} has 0 sample(s); give at least one row")
    if not all(X.chunks[0]) or any(blocks > 1 for blocks in X.numblocks[1:]):
        X = X.rechunk({0: tuple(size for size in X.chunks[0] if size), **dict.fromkeys(range(1, X.ndim), -1)})
    return X


def as_dask(X: Any, chunks: Any = None) -> Any:
    """Return X as a dask array with the given chunks; by default one chunk, whose data is a single graph node."""
    if is_dask(X):
        return X
    import dask
    import dask.array as da

    if chunks is not None:
        return da.from_array(X, chunks=chunks)
    meta = X[:0]
    return da.from_delayed(dask.delayed(X, pure=True, traverse=False), shape=X.shape, dtype=X.dtype, meta=meta)


def split(X: Any, step: int) -> Any:
    """Return rows in memory as a dask array with chunks of ``step`` rows."""
    return concatenated([X[start : start + step] for start in range(0, count(X), step)])


def concatenated(parts: list[Any]) -> Any:
    """Return the rows of all parts, in memory or on dask, as one dask array."""
    import dask.array as da

    return da.concatenate([as_dask(part) for part in parts], axis=0)


def limit_chunks(X: Any, row_bytes: int) -> Any:
    """Split the chunks of dask rows that are too large for a task that allocates ``row_bytes`` per row."""
    most = max(1, cluster.task_bytes() // max(1, row_bytes))
    return split_chunks(X, lambda size: max(1, -(-size // most)))


def split_chunks(X: Any, pieces: Callable[[int], int]) -> Any:
    """Return dask rows with each chunk split into equal parts; ``pieces`` returns how many, given its rows."""
    parts = [(size, pieces(size)) for size in X.chunks[0]]
    sizes = tuple(size // count + (i < size % count) for size, count in parts for i in range(count))
    return X if len(sizes) == X.numblocks[0] else X.rechunk({0: sizes})


def selected(X: Any, index: Array) -> Any:
    """Return the dask rows ``X[index]`` for an ascending index, by one task per chunk that contains some of them.

    dask's own indexing shuffles, with several tasks per chunk.
    """
    if not len(index):
        return X[:0]
    import dask.array as da
    from dask.base import tokenize
    from dask.highlevelgraph import HighLevelGraph

    X = X.rechunk(dict.fromkeys(range(1, X.ndim), -1))
    name = f"selected-{tokenize(X.name, index)}"
    ends = np.cumsum(X.chunks[0])
    owner = np.searchsorted(ends, index, side="right")
    keys, chosen, sizes = chunk_keys(X), *np.unique(owner, return_counts=True)
    inner = (0,) * (X.ndim - 1)
    tasks = {
        (name, i, *inner): (operator.getitem, keys[c], index[owner == c] - (ends[c] - X.chunks[0][c]))
        for i, c in enumerate(chosen)
    }
    graph = HighLevelGraph.from_collections(name, tasks, dependencies=[X])
    return da.Array(graph, name, chunks=(tuple(map(int, sizes)), *X.chunks[1:]), meta=X._meta)


def chunk_ranges(X: Any) -> list[range]:
    """Return the row numbers of each chunk of a dask array."""
    ends = np.cumsum(X.chunks[0])
    return [range(int(end - size), int(end)) for end, size in zip(ends, X.chunks[0], strict=True)]


def row_chunks(X: Any) -> list[tuple[Any, range]]:
    """Return (key, row numbers) of each chunk of a dask array of whole rows."""
    return list(zip(chunk_keys(X), chunk_ranges(X), strict=True))


def chunk_keys(X: Any) -> list[Any]:
    """Return the keys of the chunks of a dask array of whole rows."""
    from dask.core import flatten

    return list(flatten(X.__dask_keys__()))


def blockwise(call: Any, function: Any, out: str, ends: tuple[tuple[Any, str], ...], dtype: Any, **how: Any) -> Any:
    """Return the lazy array of ``call(slices, *blocks, function)``; ``slices`` are the row numbers of the blocks."""
    import dask
    import dask.array as da
    from dask.layers import ArraySliceDep

    node = dask.delayed(function, pure=True, traverse=False)
    rows = {index[0]: X.chunks[0] for X, index in ends}
    where = ArraySliceDep(tuple(rows.values()))
    meta = np.empty((0,) * len(out), dtype=dtype)
    joined = [part for end in ends for part in end]
    # concatenate=None, as in dask's own reductions: only then does dask fuse ``kernel(X).sum(axis=1)`` into one task
    # per block, which returns a few numbers instead of the block
    how |= {"function": node, "concatenate": None, "align_arrays": False, "dtype": dtype, "meta": meta}
    how["token"] = readable(function)
    return da.blockwise(call, out, where, "".join(rows), *joined, **how)


def readable(function: Any) -> str:
    """Return the name of a function, or of the class of a callable object, for the tasks on dask's dashboard."""
    while isinstance(function, partial):
        function = function.func
    name = getattr(function, "__name__", type(function).__name__).strip("_<>")
    return re.sub("(?<=[a-z])(?=[A-Z])", "-", name).replace("_", "-").lower()


def rows_label(*where: range | slice) -> str:
    """Return the text for the rows of one or several blocks in an error note."""
    return " and ".join(f"rows {part.start} to {part.stop - 1}" for part in where)


def with_note(function: Callable[..., Any], label: str, *args: Any) -> Any:
    """Call a function inside a task; an error keeps its type and gains a note with the row numbers."""
    try:
        with quiet():
            return function(*args)
    except Exception as error:
        error.add_note(f"in the block of {label}")
        raise


def mapped_rows(
    function: Callable[..., Array], X: Any, columns: int | None, dtype: Any, widest: int | None, writes: bool
) -> Any:
    """Return what `metricforge.rows.map_rows` does, as a lazy dask array."""
    X = limit_chunks(X, np.dtype(dtype).itemsize * (columns or 1))
    out = "i" if columns is None else "ic"
    shape = {} if columns is None else {"new_axes": {"c": columns}}
    call = _RowCall(columns, np.dtype(dtype), widest, writes)
    return blockwise(call, function, out, ((X, "ik"[: X.ndim]),), dtype, **shape)


def mapped_pairs(function: Callable[[Any, Any], Array], X: Any, Y: Any, dtype: Any) -> Any:
    """Return what `metricforge.rows.map_pairs` does, as a lazy dask array."""
    X, Y = as_dask(X), as_dask(Y)
    # the block itself and the temporaries of the usual kernel
    entry = 3 * np.dtype(dtype).itemsize
    if entry * max(X.chunks[0]) * max(Y.chunks[0]) > cluster.task_bytes():
        side = int((entry * cluster.task_bytes()) ** 0.5)
        X, Y = limit_chunks(X, side), limit_chunks(Y, side)
    # one chunk along features, so the contraction needs no sum
    ends = ((X, "ik"[: X.ndim]), (Y, "jk"[: Y.ndim]))
    return blockwise(_PairCall(np.dtype(dtype)), function, "ij", ends, dtype)


def mapped_paired(function: Callable[[Any, Any], Array], X: Any, Y: Any, dtype: Any) -> Any:
    """Return what `metricforge.rows.map_paired` does, as a lazy dask array."""
    X, Y = as_dask(X), as_dask(Y)
    Y = Y.rechunk({0: X.chunks[0]}) if X.numblocks[0] > 1 else Y
    X = X.rechunk({0: Y.chunks[0]})
    ends = ((X, "ik"[: X.ndim]), (Y, "ik"[: Y.ndim]))
    return blockwise(_PairCall(np.dtype(dtype)), function, "i", ends, dtype)


@dataclass(frozen=True)
class _RowCall:
    """One task of `map_rows`: the same loop over blocks as in memory, so that temporaries stay small."""

    columns: int | None
    dtype: np.dtype[Any]
    widest: int | None
    writes: bool

    def __call__(self, where: tuple[slice, ...], X: Any, function: Callable[[Any], Array]) -> Array:
        result: Array = with_note(self._mapped, rows_label(*where), function, _single(X))
        return result

    def _mapped(self, function: Callable[[Any], Array], X: Any) -> Any:
        return map_rows(function, X, self.columns, self.dtype, widest=self.widest, writes=self.writes)


@dataclass(frozen=True)
class _PairCall:
    """One task of `map_pairs` or `map_paired`."""

    dtype: np.dtype[Any]

    def __call__(self, where: tuple[slice, ...], X: Any, Y: Any, function: Callable[[Any, Any], Array]) -> Array:
        block: Array = with_note(function, rows_label(*where), _single(X), _single(Y))
        return block.astype(self.dtype, copy=False)


def _single(chunks: Any) -> Any:
    """Return the only chunk along features, which dask passes in a list."""
    return chunks[0] if isinstance(chunks, list) else chunks


def spread(X: Any) -> Any:
    """Return rows in memory as a dask array on the workers of the active client; without a client, X unchanged.

    The scheduler keeps the rows too, so they survive the loss of a worker.
    """
    at = cluster.client()
    if at is None or is_dask(X) or not (isinstance(X, np.ndarray) or is_sparse(X)):
        return X
    n = count(X)
    # two tasks per thread balance workers of unequal speed
    step = min(-(-n // (2 * cluster.threads())), max(1, cluster.task_bytes() // (8 * (width(X) or 1))))
    return cluster.persisted(at, split(X, step))
