"""Where lazy work runs: on the active ``dask.distributed`` client, or on the threads of this process.

A cluster is never started here, only used.  This is the only file that imports ``distributed``.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

from .errors import InputError

Watch = Callable[[int, int], None]

TASK_SHARE = 8
"""A task may fill one part in this many of its worker's memory for a thread: results of other tasks lie there too."""
ANSWER_SECONDS = 10
"""How long to wait for a scheduler to answer."""
POLL_SECONDS = 0.1
SHORT_SECONDS = 0.5
"""Work shorter than this is not counted: asking the scheduler would cost a part of it."""

_log = logging.getLogger(__name__)
_watch: ContextVar[Watch | None] = ContextVar("watch", default=None)


def client() -> Any | None:
    """Return the active client, or None where there is none or where this code is itself a task."""
    if "distributed" not in sys.modules:
        return None
    if _in_task():
        return None  # a task that waits for tasks holds the thread they need
    from distributed import default_client

    try:
        found = default_client()
    except ValueError:
        return None
    return None if found.asynchronous else found


def _in_task() -> bool:
    """Tell whether this code runs inside a task of a worker."""
    if "distributed" not in sys.modules:
        return False
    from distributed import get_worker

    try:
        get_worker()
    except ValueError:
        return False
    return True


def threads() -> int:
    """Return how many tasks run at once."""
    at = client()
    return max(1, sum(at.nthreads().values())) if at is not None else os.cpu_count() or 1


def task_bytes() -> int:
    """Return how much one task may allocate, by the memory of the smallest worker."""
    at = client()
    limits: list[int] = []
    if at is not None:
        workers = at.scheduler_info(n_workers=-1)["workers"].values()
        limits = [w["memory_limit"] // max(1, w["nthreads"]) for w in workers if w["memory_limit"]]
        if not workers:
            _log.warning("the cluster at %s has no worker: work waits until one joins", at.scheduler.address)
    return max(1, min(limits or [free_memory() // threads()]) // TASK_SHARE)


def free_memory() -> int:
    """Return how many bytes this machine could still hand out."""
    import psutil

    return int(psutil.virtual_memory().available)


@contextmanager
def connected(address: str | None) -> Iterator[None]:
    """Have work run on the scheduler at ``address`` inside the block; None means in this process."""
    if address is None:
        yield
        return
    from distributed import Client
    from distributed.comm import resolve_address

    try:
        resolve_address(address)  # of a scheme that it does not know Client would leave a dead default behind
        at = Client(address, timeout=ANSWER_SECONDS)
    except (OSError, ValueError, TimeoutError) as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"no dask scheduler answers at {address!r} ({why[:120]}); give an address such as tcp://host:8786"
        ) from None
    with at:
        yield


@contextmanager
def watched(watch: Watch) -> Iterator[None]:
    """Have ``watch(finished, all)`` called as tasks finish, for every `compute` inside the block."""
    token = _watch.set(watch)
    try:
        yield
    finally:
        _watch.reset(token)


@contextmanager
def one_thread() -> Iterator[None]:
    """Have BLAS keep to one thread inside the block.

    Solvers multiply blocks that fit the cache and factors of few columns, where a second thread waits more than it
    works: on two cores it took kcr on Adult from 7 to 17 CPU seconds, and krca on 200,000 rows from 2.3 to 6.
    """
    import scipy.linalg  # noqa: F401 - brings a BLAS of its own, which the limit must find loaded

    with _libraries(len(sys.modules)).limit(limits=1, user_api="blas"):
        yield


@lru_cache(maxsize=1)
def _libraries(modules: int) -> Any:
    """Return what limits the threads of the libraries loaded by now; finding them takes milliseconds."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def compute(*lazy: Any) -> tuple[Any, ...]:
    """Return dask collections as what they stand for; chunks come to this process one by one, not joined on a worker.

    Meanwhile BLAS keeps to one thread in this process: the tasks are what runs in parallel.
    """
    import dask
    from threadpoolctl import threadpool_limits

    at, watch = client(), _watch.get()
    with threadpool_limits(1):
        if at is None:
            # in a task dask would hand the work to the workers, of which this is one
            where = {"scheduler": "synchronous"} if _in_task() else {}
            with _counting(watch):
                return tuple(dask.compute(*lazy, **where))
        held = persisted(at, list(lazy))
        try:
            _wait(held, watch)
            return tuple(_fetched(at, collection) for collection in held)
        finally:
            _release(held, but=lazy)


def _release(held: list[Any], but: tuple[Any, ...]) -> None:
    """Release what was computed now, not when the last traceback that knows of it is gone; what was given stays."""
    from distributed import futures_of

    given = {id(future) for future in futures_of(list(but))}
    for future in futures_of(held):
        if id(future) not in given:
            future.release()


def _fetched(at: Any, collection: Any) -> Any:
    """Return a persisted collection as what it stands for, put together in this process.

    Not by ``dask.compute``, which would send the scheduler a second graph, over what is there already.
    """
    from distributed import futures_of

    found = {future.key: future for future in futures_of(collection)}
    finish, extra = collection.__dask_postcompute__()
    return finish(at.gather(_in_place_of(collection.__dask_keys__(), found)), *extra)


def _in_place_of(keys: Any, found: dict[Any, Any]) -> Any:
    """Return what was found under keys, nested as they are."""
    return [_in_place_of(key, found) for key in keys] if isinstance(keys, list) else found[keys]


def persisted(at: Any, lazy: Any) -> Any:
    """Return collections (a list, or one) whose chunks are being computed on the workers of a client and stay there.

    Chains of tasks are not fused: a fused task has other dependencies than the task of that name in the next graph, and
    a scheduler that still knows the one may fail on the other.
    """
    import dask

    many = lazy if isinstance(lazy, list) else [lazy]
    with warnings.catch_warnings(), dask.config.set({"optimization.fuse.active": False}):
        # labels and rows in memory have no other way to go, and go once
        warnings.filterwarnings("ignore", message="Sending large graph")
        held = at.persist(list(dask.optimize(*many)), optimize_graph=False)
    return held if isinstance(lazy, list) else held[0]


@contextmanager
def _counting(watch: Watch | None) -> Iterator[None]:
    """Count the tasks of this process's own schedulers."""
    if watch is None:
        yield
        return
    from dask.callbacks import Callback

    total = 0

    def start(dsk: Any, state: Any) -> None:
        nonlocal total
        total = len(dsk)
        watch(0, total)

    def finished(key: Any, value: Any, dsk: Any, state: Any, worker: Any) -> None:
        watch(min(len(state["finished"]), total), total)

    with Callback(start_state=start, posttask=finished):
        yield


def _wait(held: list[Any], watch: Watch | None) -> None:
    """Wait for persisted collections; tell how many of all tasks behind them are done, once they take a while."""
    from distributed import futures_of, wait

    futures = futures_of(held)
    if watch is None or not futures:
        wait(futures)
        return
    try:
        wait(futures, timeout=SHORT_SECONDS)
    except TimeoutError:
        count = _counter(futures)
        while not all(future.done() for future in futures):
            try:
                wait(futures, timeout=POLL_SECONDS)
            except TimeoutError:
                watch(*count.seen)
        # the scheduler's side ends only while it can still see the tasks
        count.ended.wait(SHORT_SECONDS)
        watch(count.seen[1], count.seen[1])
    else:
        watch(len(futures), len(futures))


def _counter(futures: list[Any]) -> Any:
    """Return an object whose ``seen`` follows (finished, all) of the tasks behind futures."""
    from distributed.diagnostics.progressbar import ProgressBar

    class Counter(ProgressBar):  # type: ignore[misc]
        seen = (0, len(futures))
        ended = threading.Event()

        def _draw_bar(self, remaining: int, all: int, **_: Any) -> None:
            self.seen = all - remaining, all

        async def follow(self) -> None:
            try:
                await self.listen()
            finally:
                self.ended.set()

    made = Counter(futures, interval=f"{POLL_SECONDS}s")
    futures[0].client.loop.add_callback(made.follow)
    return made
