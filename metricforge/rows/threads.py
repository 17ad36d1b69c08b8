"""The cores of this process: run a function on threads over chunks of rows, and limit BLAS to one thread."""

from __future__ import annotations

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any

import numpy as np

from .containers import Array, count, is_dask
from .mapping import blocks, fold, gathered, map_rows

CHUNK_ROWS = 2048
"""Rows of a chunk in memory: enough work for a thread, small results."""


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _BlasLimit:
    """The limit of BLAS to one thread, which belongs to the process and is shared by all who need it at the same time.

    Each of them saving and restoring the number of threads would restore a limit that another one had set.  So the
    first user sets the limit, and the last one restores what the first one found.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._before: dict[str, tuple[Any, int]] = {}

    def __enter__(self) -> None:
        import scipy.linalg  # noqa: F401 - SciPy has its own BLAS, which must be loaded for the limit to apply

        with self._lock:
            for library in _blas(len(sys.modules)):
                if library.filepath not in self._before:  # also one that was loaded after the first user came
                    threads = library.num_threads
                    self._before[library.filepath] = library, threads
                    if threads != 1:
                        _set_threads(library, 1)
            self._users += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                for library, threads in self._before.values():
                    if threads != 1:
                        _set_threads(library, threads)
                self._before.clear()


def _set_threads(library: Any, count: int) -> None:
    """Set the number of threads of a BLAS library, whichever thread set it last.

    threadpoolctl (3.7 and later) ignores the call while another thread that set it is alive; here the last user may
    restore what a thread that is still alive has limited.
    """
    if hasattr(library, "clear_controlling_thread"):
        library.clear_controlling_thread(force=True)
    library.set_num_threads(count)


_blas_limit = _BlasLimit()


def one_thread() -> AbstractContextManager[None]:
    """Limit BLAS to one thread inside the block, and until all other blocks that overlap it have ended.

    Solvers multiply blocks that fit the cache and factors of few columns, where a second thread mostly waits: on two
    cores it raised the CPU time of one solver on Adult from 7 to 17 s, and of another on 200,000 rows from 2.3 to 6 s.
    """
    return _blas_limit


@lru_cache(maxsize=1)
def _blas(modules: int) -> list[Any]:
    """Return the controllers of the BLAS libraries loaded so far, cached: finding them takes milliseconds."""
    from threadpoolctl import ThreadpoolController

    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


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
