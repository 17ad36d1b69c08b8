"""Values that tasks compute and that stay on the workers: for iterations of many small rounds of tasks.

A round is one graph: the calls that are not computed yet, over values that are.  It costs a fraction of what lazy
arrays over as many chunks would, whose layers dask copies and orders in every round.

The scheduler keeps the calls behind every value that is referred to here, so a value lost with its worker is computed
again, and the answer is the same.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable
from typing import Any

from . import cluster
from .chunks import array_of, chunk_keys
from .containers import Array

_numbers = itertools.count()
_process = uuid.uuid4().hex


class Value:
    """The result of ``function(*args)``, where arguments may be values or lists of values."""

    __slots__ = ("key", "stored", "task")

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        # a new name for every call: arguments are not compared, so a result is never taken for another
        self.key = f"{function.__name__.strip('_')}-{_process}-{next(_numbers)}"
        self.task: tuple[Any, ...] | None = (function, *args)
        self.stored: Any = None  # a future, or the result itself where there is no client

    def __reduce__(self) -> Any:
        raise TypeError("a Value cannot be pickled; pass it as an argument of another Value")


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
    return array_of([value.stored for value in values], sizes, columns, meta)
