"""Rows as dask arrays: chunks of whole rows, and task graphs over them.

Besides `cluster`, which runs the graphs, this is the only file of the package that imports dask.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..errors import InputError
from . import cluster
from .containers import Array, count, is_dask, quiet

FAN_IN = 8
"""How many partial results one task joins."""


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
    if max(X.chunks[0]) <= most:
        return X
    sizes: list[int] = []
    for size in X.chunks[0]:
        pieces = -(-size // most)
        sizes += [size // pieces + (i < size % pieces) for i in range(pieces)]
    return X.rechunk({0: tuple(sizes)})


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
    keys, chosen, sizes = _keys(X), *np.unique(owner, return_counts=True)
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
    return list(zip(_keys(X), chunk_ranges(X), strict=True))


def array_of(chunks: list[Any], sizes: tuple[int, ...], columns: int | None, meta: Any) -> Any:
    """Return the dask array of chunks that are computed: futures, or arrays; ``columns`` is None for one dimension."""
    import uuid

    import dask.array as da

    name = f"computed-{uuid.uuid4().hex}"
    inner = () if columns is None else (0,)
    shape = (sizes,) if columns is None else (sizes, (columns,))
    return da.Array({(name, i, *inner): chunk for i, chunk in enumerate(chunks)}, name, chunks=shape, meta=meta)


def chunk_keys(X: Any) -> list[Any]:
    """Return the keys of the chunks of a dask array of whole rows."""
    return _keys(X)


def _keys(X: Any) -> list[Any]:
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


def cross(
    function: Callable[..., tuple[Array, ...]],
    join: Callable[[list[Any]], tuple[Array, ...]],
    X: Any,
    Y: Any,
    outputs: tuple[tuple[int, Any], ...],
) -> tuple[Any, ...]:
    """Apply ``function(x, y, x_rows, y_rows)`` to every pair of chunks, and ``join`` the results over the chunks of Y.

    Parameters
    ----------
    function, join : callable
        Both return one array per entry of ``outputs``.
    X, Y : dask arrays
    outputs : tuple of (columns, dtype)

    Returns
    -------
    tuple of lazy dask arrays
        One per entry of ``outputs``, with the chunks of X.
    """
    graph = Graph(function, join, X, Y)
    ends = row_chunks(Y)
    made = [
        graph.joined([graph.call(rows_label(x_rows, y_rows), x, y, x_rows, y_rows) for y, y_rows in ends])
        for x, x_rows in row_chunks(X)
    ]
    return tuple(graph.array(made, o, X.chunks[0], *shape) for o, shape in enumerate(outputs))


class Graph:
    """Tasks over the chunks of dask arrays: calls of one function, and a tree of joins.

    Built by hand, because `dask.delayed` drops the futures behind persisted rows, and with them the rows.
    """

    def __init__(self, function: Callable[..., Any], join: Callable[[list[Any]], Any], *arrays: Any) -> None:
        import dask
        from dask.base import tokenize

        functions = dask.delayed((function, join), pure=True, traverse=False)
        self.name = f"{readable(function)}-{tokenize(functions.key, *(a.name for a in arrays))}"
        self.functions, self.sources = functions.key, [functions, *arrays]
        self.tasks: dict[Any, Any] = {}

    def _add(self, name: str, *task: Any) -> Any:
        key = (name, len(self.tasks))
        self.tasks[key] = task
        return key

    def call(self, label: str, *args: Any) -> Any:
        """Add a call of the function; ``args`` are keys of chunks, or values, and ``label`` is for error notes."""
        return self._add(self.name, _apply, self.functions, label, *args)

    def joined(self, results: list[Any]) -> Any:
        """Add the tree that joins results."""
        name = f"join-{self.name}"
        while len(results) > FAN_IN:
            starts = range(0, len(results), FAN_IN)
            results = [self._add(name, _join, self.functions, results[i : i + FAN_IN]) for i in starts]
        return self._add(name, _join, self.functions, results)

    def _high(self, name: str, tasks: dict[Any, Any]) -> Any:
        from dask.highlevelgraph import HighLevelGraph

        own = HighLevelGraph.from_collections(self.name, self.tasks, dependencies=self.sources)
        return HighLevelGraph({**own.layers, name: tasks}, {**own.dependencies, name: {self.name}})

    def value(self, key: Any) -> Any:
        """Return the delayed value of one task."""
        from dask.delayed import Delayed

        name = f"{self.name}-value"
        return Delayed(name, self._high(name, {name: (_identity, key)}))

    def array(self, keys: list[Any], output: int, sizes: tuple[int, ...], columns: int, dtype: Any) -> Any:
        """Return the lazy array whose chunks are entry ``output`` of what each of these tasks returns."""
        import dask.array as da

        name = f"{self.name}-array-{output}"
        parts = {(name, i, 0): (operator.getitem, key, output) for i, key in enumerate(keys)}
        return da.Array(self._high(name, parts), name, chunks=(sizes, (columns,)), dtype=dtype)


class Tasks:
    """Calls of one object's steps as tasks, whose results stay on the workers until they are asked for.

    Parameters
    ----------
    steps : callable
        ``steps(name, *args)`` runs a step; picklable.  It enters the graph once.
    *sources : dask arrays or what `kept` returned
        Whose chunks or values are arguments of steps.
    """

    def __init__(self, steps: Callable[..., Any], *sources: Any) -> None:
        import dask
        from dask.base import tokenize

        self.steps = dask.delayed(steps, pure=True, traverse=False)
        self.sources = [self.steps, *sources]
        self.token = tokenize(self.steps.key, [s.__dask_keys__() for s in sources])
        self.name = f"{readable(steps)}-{self.token}"
        self.tasks: dict[Any, Any] = {}

    def _add(self, name: str, *task: Any) -> Any:
        key = (f"{name}-{self.token}", len(self.tasks))
        self.tasks[key] = task
        return key

    def chunks(self, X: Any) -> list[Any]:
        """Return the keys of the chunks of a source."""
        return _keys(X)

    def add(self, step: str, *args: Any) -> Any:
        """Add a call of a step and return its key; ``args`` are keys, lists of keys, or values."""
        return self._add(step, _step, self.steps.key, step, *args)

    def entry(self, key: Any, i: int) -> Any:
        """Add the i-th entry of what a task returns."""
        return self._add("entry", operator.getitem, key, i)

    def _values(self, keys: list[Any]) -> list[Any]:
        from dask.delayed import Delayed
        from dask.highlevelgraph import HighLevelGraph

        graph = HighLevelGraph.from_collections(self.name, dict(self.tasks), dependencies=self.sources)
        return [Delayed(key, graph, layer=self.name) for key in keys]

    def kept(self, keys: list[Any]) -> list[Any]:
        """Run tasks and return their values as sources of further tasks; the values stay where they are."""
        return list(cluster.kept(*self._values(keys)))

    def computed(self, keys: list[Any]) -> tuple[Any, ...]:
        """Run tasks and return their values."""
        return cluster.compute(*self._values(keys))

    def array(self, keys: list[Any], output: int, sizes: tuple[int, ...], columns: int, dtype: Any) -> Any:
        """Return the lazy array whose chunks are entry ``output`` of what each of these tasks returns."""
        import dask.array as da
        from dask.highlevelgraph import HighLevelGraph

        name = f"{self.name}-array-{output}"
        parts = {(name, i, 0): (operator.getitem, key, output) for i, key in enumerate(keys)}
        own = HighLevelGraph.from_collections(self.name, dict(self.tasks), dependencies=self.sources)
        graph = HighLevelGraph({**own.layers, name: parts}, {**own.dependencies, name: {self.name}})
        return da.Array(graph, name, chunks=(sizes, (columns,)), dtype=dtype)


def _step(steps: Callable[..., Any], name: str, *args: Any) -> Any:
    return steps(name, *args)


def _apply(functions: tuple[Callable[..., Any], Any], label: str, *args: Any) -> Any:
    return with_note(functions[0], label, *args)


def _join(functions: tuple[Any, Callable[[list[Any]], Any]], results: list[Any]) -> Any:
    return functions[1](results)


def _identity(value: Any) -> Any:
    return value


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
