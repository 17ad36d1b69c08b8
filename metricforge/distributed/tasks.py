"""Task graphs over chunks of rows: `Tasks` for one graph, and `Value` for iterations of many small rounds.

A round of values is one graph: the calls that are not computed yet, over values that are.  It costs a fraction of what
lazy arrays over as many chunks would, whose layers dask copies and orders in every round.

The scheduler keeps the calls behind every value that is referred to here, so a value lost with its worker is computed
again, and the answer is the same.  In a long iteration these calls would become ever more: `settle` ends their history
from time to time.  What was settled is lost with its worker; `LostValuesError` then tells the loop to start again.
"""

from __future__ import annotations

import itertools
import operator
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..rows.containers import Array, is_dask
from . import cluster
from .chunks import chunk_keys, readable, row_chunks, rows_label, with_note

FAN_IN = 8
"""How many partial results one task joins."""


class Tasks:
    """Calls of one object's steps as tasks, whose results stay on the workers until they are asked for.

    Built by hand, because `dask.delayed` drops the futures behind persisted rows, and with them the rows.

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

    def add(self, step: str, *args: Any) -> Any:
        """Add a call of a step and return its key; ``args`` are keys, lists of keys, or values."""
        return self._add(step, _step, self.steps.key, step, *args)

    def entry(self, key: Any, i: int) -> Any:
        """Add the i-th entry of what a task returns."""
        return self._add("entry", operator.getitem, key, i)

    def _graph(self) -> Any:
        from dask.highlevelgraph import HighLevelGraph

        return HighLevelGraph.from_collections(self.name, dict(self.tasks), dependencies=self.sources)

    def _values(self, keys: list[Any]) -> list[Any]:
        from dask.delayed import Delayed

        graph = self._graph()
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

        name, graph = f"{self.name}-array-{output}", self._graph()
        parts = {(name, i, 0): (operator.getitem, key, output) for i, key in enumerate(keys)}
        graph = HighLevelGraph({**graph.layers, name: parts}, {**graph.dependencies, name: {self.name}})
        return da.Array(graph, name, chunks=(sizes, (columns,)), dtype=dtype)


def _step(steps: Callable[..., Any], name: str, *args: Any) -> Any:
    return steps(name, *args)


@dataclass(frozen=True)
class _Tree:
    """Calls of one function, whose results are joined a few at a time."""

    function: Callable[..., Any]
    join: Callable[[list[Any]], Any]

    def __call__(self, step: str, *args: Any) -> Any:
        """Run a step: join results, or call the function; the first argument of a call is for error notes."""
        return self.join(args[0]) if isinstance(args[0], list) else with_note(self.function, *args)

    def over(self, tasks: Tasks, calls: list[tuple[Any, ...]]) -> Any:
        """Add calls, and the tree that joins their results; return its key."""
        name = readable(self.function)
        results = [tasks.add(name, *call) for call in calls]
        while len(results) > FAN_IN:
            results = [tasks.add(f"join-{name}", results[i : i + FAN_IN]) for i in range(0, len(results), FAN_IN)]
        return tasks.add(f"join-{name}", results)


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
    tree = _Tree(function, join)
    tasks, ends = Tasks(tree, X, Y), row_chunks(Y)
    made = [
        tree.over(tasks, [(rows_label(x_rows, y_rows), x, y, x_rows, y_rows) for y, y_rows in ends])
        for x, x_rows in row_chunks(X)
    ]
    return tuple(tasks.array(made, o, X.chunks[0], *shape) for o, shape in enumerate(outputs))


def folded(function: Callable[..., Any], join: Callable[[list[Any]], Any], X: Any, *along: Any) -> Any:
    """Return what `metricforge.rows.fold` does for dask rows."""
    along = tuple(a.rechunk({0: X.chunks[0]}) if is_dask(a) else a for a in along)
    tree = _Tree(function, join)
    tasks = Tasks(tree, X, *(a for a in along if is_dask(a)))
    keys = [chunk_keys(a) if is_dask(a) else None for a in along]
    calls = [
        (
            rows_label(part),
            block,
            *(a[part.start : part.stop] if k is None else k[c] for a, k in zip(along, keys, strict=True)),
        )
        for c, (block, part) in enumerate(row_chunks(X))
    ]
    return tasks.computed([tree.over(tasks, calls)])[0]


DEEPEST = 400
"""Calls behind a value, one after the other, from which `settle` ends their history."""

_numbers = itertools.count()
_process = uuid.uuid4().hex


class Value:
    """The result of ``function(*args)``, where arguments may be values or lists of values."""

    __slots__ = ("depth", "key", "stored", "task")

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        # a new name for every call: arguments are not compared, so a result is never taken for another
        self.key = _key(function.__name__.strip("_"))
        self.task: tuple[Any, ...] | None = (function, *args)
        self.stored: Any = None  # a future, or the result itself where there is no client
        self.depth: int = 1 + _deepest(args)  # calls behind it, one after the other

    def __reduce__(self) -> Any:
        raise TypeError("a Value cannot be pickled; pass it as an argument of another Value")


def _key(name: str) -> str:
    return f"{name}-{_process}-{next(_numbers)}"


def evaluate(keep: list[Value], fetch: list[Value]) -> list[Any]:
    """Compute values in one round: ``keep`` stays where it is computed, the results of ``fetch`` are returned."""
    graph: dict[str, Any] = {}
    wanted = [value for value in {id(v): v for v in [*keep, *fetch]}.values() if value.task is not None]
    pending = list(wanted)
    while pending:
        value = pending.pop()
        if value.key in graph:
            continue
        if value.task is None:
            graph[value.key] = value.stored
            continue
        function, *args = value.task
        graph[value.key] = (function, *(_named(a, pending) for a in args))
    for value, stored in zip(wanted, cluster.stored(graph, [value.key for value in wanted]), strict=True):
        value.stored, value.task = stored, None  # forget the arguments, which may be large
    return cluster.results([value.stored for value in fetch])


def _named(argument: Any, pending: list[Value]) -> Any:
    """Return an argument with values replaced by their names."""
    if isinstance(argument, Value):
        pending.append(argument)
        return argument.key
    return [_named(a, pending) for a in argument] if isinstance(argument, list) else argument


def _deepest(arguments: Any) -> int:
    depths = (a.depth if isinstance(a, Value) else _deepest(a) for a in arguments if isinstance(a, Value | list))
    return max(depths, default=0)


def settle(values: list[Value], *, always: bool = False) -> bool:
    """Compute values and let the scheduler forget the calls behind them, if these are many, or always.

    Returns whether it does.
    """
    if not always and max((value.depth for value in values), default=0) <= DEEPEST:
        return False
    evaluate(values, [])
    deep = [value for value in {id(v): v for v in values}.values() if value.depth or always]
    keys = [_key("settled") for _ in deep]
    copies = cluster.without_history([value.stored for value in deep], keys)
    for value, stored, key in zip(deep, copies, keys, strict=True):
        value.stored, value.key, value.depth = stored, key, 0
    return True


def chunk_values(X: Any) -> list[Value]:
    """Compute the chunks of a dask array of whole rows, which stay on the workers, and return them as values."""
    (done,) = cluster.kept(X)
    made = []
    for stored in cluster.stored_chunks(done, chunk_keys(done)):
        value = Value(_nothing)
        value.stored, value.task = stored, None
        made.append(value)
    return made


def _nothing() -> None:
    """Stand for the task of a value that was computed elsewhere."""


def as_array(values: list[Value], sizes: tuple[int, ...], columns: int | None, meta: Array) -> Any:
    """Return the dask array whose chunks are computed values.

    ``columns`` is None for values of one dimension; ``meta`` is an empty array of their type.
    """
    import dask.array as da

    name = f"computed-{uuid.uuid4().hex}"
    inner = () if columns is None else (0,)
    shape = (sizes,) if columns is None else (sizes, (columns,))
    return da.Array({(name, i, *inner): v.stored for i, v in enumerate(values)}, name, chunks=shape, meta=meta)
