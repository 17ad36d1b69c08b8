"""Values that tasks compute and that stay on the workers: for iterations of many small rounds of tasks.

A round is one graph: the calls that are not computed yet, over values that are.  It costs a fraction of what lazy
arrays over as many chunks would, whose layers dask copies and orders in every round.

The scheduler keeps the calls behind every value that is referred to here, so a value lost with its worker is computed
again, and the answer is the same.  In a long iteration these calls would become ever more: `settle` ends their history
from time to time.  What was settled is lost with its worker; `LostValuesError` then tells the loop to start again.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable
from typing import Any

from . import cluster
from .chunks import array_of, chunk_keys
from .containers import Array

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
    return array_of([value.stored for value in values], sizes, columns, meta)
