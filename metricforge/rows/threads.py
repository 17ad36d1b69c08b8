"""Run a function on the threads of this process, over chunks of rows in memory; on dask the chunks are tasks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from .cluster import cores
from .containers import Array, count, is_dask
from .mapping import blocks, fold, map_rows
from .moving import gathered

CHUNK_ROWS = 2048
"""Rows of a chunk in memory: enough work for a thread, small results."""


def thread_pool(most: int | None = None) -> ThreadPoolExecutor:
    """Return a pool with a thread per core, at most ``most``."""
    return ThreadPoolExecutor(cores() if most is None else min(most, cores()))


def in_threads(
    function: Callable[[Any], Any], arguments: Iterable[Any], pool: ThreadPoolExecutor | None = None
) -> Iterator[Any]:
    """Yield ``function(argument)`` of each argument in order, computed in threads.

    At most two results per core wait to be consumed.  Without a ``pool`` one is made, and an interrupt drops the calls
    that have not begun.
    """
    threads = thread_pool() if pool is None else pool
    begun: deque[Future[Any]] = deque()
    try:
        for argument in arguments:
            begun.append(threads.submit(function, argument))
            if len(begun) > 2 * cores():
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()
    finally:
        if pool is None:
            threads.shutdown(cancel_futures=True)


def chunks_of(X: Any) -> list[slice]:
    """Return the chunks of rows in memory."""
    return list(blocks(count(X), 1, CHUNK_ROWS))


def fold_chunks(function: Callable[[Any], Array], join: Callable[[list[Array]], Array], X: Any) -> Array:
    """Return ``function(chunk)`` of all chunks of X joined to one array: threads in memory, tasks on dask."""
    if is_dask(X):
        return np.asarray(fold(function, join, X))
    return join(list(in_threads(lambda part: function(X[part]), chunks_of(X))))


def sum_chunks(function: Callable[[Any], Array], X: Any) -> Array:
    """Return the sum of ``function(chunk)`` over the chunks of X."""
    return fold_chunks(function, total, X)


def map_chunks(function: Callable[[Any], Array], X: Any) -> Array:
    """Return ``function(chunk) -> (rows,)`` of all chunks of X, one after the other."""
    if is_dask(X):
        return np.asarray(gathered(map_rows(function, X, None, np.float64)))
    return np.concatenate(list(in_threads(lambda part: function(X[part]), chunks_of(X))))


def total(parts: list[Array]) -> Array:
    """Return the sum of arrays."""
    return np.asarray(np.sum(parts, axis=0))


def least(parts: list[Array]) -> Array:
    """Return the smallest entries of arrays, entry by entry."""
    return np.asarray(np.min(parts, axis=0))
