"""Run dask graphs on the active ``dask.distributed`` client, or else on the threads of this process.

No cluster is started here.  Besides `allocation`, this is the only file that imports ``distributed``.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
import uuid
import warnings
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, TypeVar

from ..errors import InputError
from ..rows.memory import free_memory
from ..rows.threads import cores, one_thread

T = TypeVar("T")
Watch = Callable[[int, int], None]

TASK_SHARE = 8
"""A task may allocate at most 1/TASK_SHARE of the worker memory per thread: the rest is for results of other tasks."""
ANSWER_SECONDS = 10
"""Time limit for a scheduler to answer."""
POLL_SECONDS = 0.1
TURN_SECONDS = 0.01
"""How often to look whether tasks are finished while their progress is reported."""
LOSS_SECONDS = 2
"""How often to check that values which no task can compute again are still there."""
SHORT_SECONDS = 0.5
"""No progress is reported for work shorter than this: the requests to the scheduler would slow it down."""

_log = logging.getLogger(__name__)
_watch: ContextVar[Watch | None] = ContextVar("watch", default=None)


def client() -> Any | None:
    """Return the active client; None if there is none, or if this code runs inside a task.

    Raises
    ------
    InputError
        If the active client was closed, for instance by ``client.close()`` inside its ``with`` block.
    """
    if "distributed" not in sys.modules:
        return None
    if _in_task():
        return None  # a task that waits for other tasks occupies the thread that they need
    from distributed import default_client

    try:
        found = default_client()
    except ValueError:
        return None
    if found.asynchronous:
        return None
    if found.scheduler is None or found.status in ("closing", "closed"):
        raise InputError(
            "the active distributed.Client is closed; make a new one, or leave its `with` block to work without one"
        )
    return found


def check_sendable(component: Any, name: str) -> None:
    """Raise InputError if there is a client and a component cannot be pickled for its workers."""
    if client() is None:
        return
    import cloudpickle

    try:
        cloudpickle.dumps(component)
    except Exception as error:
        raise InputError(
            f"{name} {type(component).__name__} cannot be sent to the workers of the active client: {error}; keep only "
            "numbers, strings, arrays and other components in its fields"
        ) from error


def _in_task() -> bool:
    """Return whether this code runs inside a task of a worker."""
    if "distributed" not in sys.modules:
        return False
    from distributed import get_worker

    try:
        get_worker()
    except ValueError:
        return False
    return True


def threads() -> int:
    """Return the number of tasks that run at once."""
    at = client()
    return max(1, sum(at.nthreads().values())) if at is not None else cores()


def task_bytes() -> int:
    """Return the number of bytes that one task may allocate, by the memory of the smallest worker."""
    at = client()
    limits: list[int] = []
    if at is not None:
        workers = at.scheduler_info(n_workers=-1)["workers"].values()
        limits = [w["memory_limit"] // max(1, w["nthreads"]) for w in workers if w["memory_limit"]]
        if not workers:
            _log.warning("the cluster at %s has no workers: tasks wait until one joins", at.scheduler.address)
    return max(1, min(limits or [free_memory() // threads()]) // TASK_SHARE)


@contextmanager
def connected(address: str | None) -> Iterator[None]:
    """Run dask graphs on the scheduler at ``address`` inside the block; None means in this process."""
    if address is None:
        yield
        return
    from distributed import Client
    from distributed.comm import resolve_address

    try:
        resolve_address(address)  # an unknown scheme would make Client leave a dead default client behind
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
    """Call ``watch(finished, total)`` as tasks finish, for every `compute` inside the block."""
    token = _watch.set(watch)
    try:
        yield
    finally:
        _watch.reset(token)


def compute(*lazy: Any) -> tuple[Any, ...]:
    """Return the values of dask collections; chunks are fetched one by one, not joined on a worker.

    BLAS is limited to one thread in this process meanwhile, because the tasks themselves run in parallel.
    """
    import dask

    at = client()
    with one_thread():
        if at is None:
            return _here(dask.compute, lazy)
        computed = persisted(at, list(lazy))
        try:
            _wait(at, computed, _watch.get())
            with _named_cancellation(at):
                return tuple(_fetched(at, collection) for collection in computed)
        finally:
            _release(computed, keep=lazy)


def _here(run: Callable[..., tuple[Any, ...]], lazy: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return what ``dask.compute`` or ``dask.persist`` does in this process."""
    # inside a task dask would submit to the workers, and wait for the thread that this task occupies
    where = {"scheduler": "synchronous"} if _in_task() else {}
    with _counting(_watch.get()):
        return tuple(run(*lazy, **where))


def renamed(X: Any) -> Any:
    """Return lazy rows under keys of their own, and rows that an active client has computed unchanged.

    A user who computes the rows, or a result that needs them, has dask fuse tasks, and `persisted` does not: the tasks
    of one key would depend on others, and a scheduler that still has the one may fail on the other.
    """
    if client() is None:
        return X
    import dask.array as da
    from dask._task_spec import convert_legacy_graph  # dask.graph_manipulation.clone loses keys of sliced arrays
    from distributed import futures_of

    if not isinstance(X, da.Array) or futures_of(X):
        return X
    graph, suffix = convert_legacy_graph(dict(X.__dask_graph__())), uuid.uuid4().hex
    keys = {key: (f"{key[0]}-{suffix}", *key[1:]) if isinstance(key, tuple) else f"{key}-{suffix}" for key in graph}
    tasks = {keys[key]: task.substitute(keys, key=keys[key]) for key, task in graph.items()}
    return da.Array(tasks, f"{X.name}-{suffix}", chunks=X.chunks, meta=X._meta)


@contextmanager
def finishing() -> Iterator[ThreadPoolExecutor]:
    """Run the tasks of this process in a pool; tasks that run are finished before an exception leaves the block.

    Otherwise an interrupted writer could remove its files while tasks in other threads still write.
    """
    import dask
    from dask.system import CPU_COUNT

    threads = dask.config.get("num_workers", None) or CPU_COUNT
    with ThreadPoolExecutor(threads) as pool, dask.config.set(pool=dask.config.get("pool", None) or pool):
        yield pool


def kept(*lazy: Any) -> tuple[Any, ...]:
    """Compute collections and return them with their values, which stay on the workers of an active client."""
    import dask

    at = client()
    with one_thread():
        if at is None:
            return _here(dask.persist, lazy)
        computed = persisted(at, list(lazy))
        _wait(at, computed, _watch.get())
        return tuple(computed)


def stored(graph: dict[str, Any], keys: list[str]) -> list[Any]:
    """Compute keys of a graph; return futures, whose values stay on the workers, or the values without a client."""
    at = client()
    if not keys:
        return []
    with one_thread():
        if at is None:
            import dask
            from dask import threaded

            get = dask.get if _in_task() else threaded.get
            return list(get(graph, keys))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Sending large graph")
            return list(at.get(graph, keys, sync=False))


def results(values: list[Any]) -> list[Any]:
    """Return the values of what `stored` returned, in this process."""
    at = client()
    if at is None:
        return values
    with _named_cancellation(at):
        _wait_all(at, values)
        return list(at.gather(values))


def _wait_all(at: Any, futures: list[Any]) -> None:
    """Wait for futures; raise LostValuesError if what they may need is lost."""
    from distributed import wait

    if _settled:
        _check_settled(at)
        with suppress(TimeoutError):
            wait(futures, timeout=LOSS_SECONDS)
            return
        while not _done(futures, LOSS_SECONDS):
            _check_settled(at)
    wait(futures)


def _done(futures: list[Any], seconds: float) -> bool:
    """Return whether futures end within some seconds.

    Not by ``distributed.wait``: when its time is over, it leaves a listener for every future behind until that ends.
    Asked ten times a second, these took 0.5 MB a second for 40 futures.
    """
    until = time.monotonic() + seconds
    while not all(future.done() for future in futures):
        if time.monotonic() >= until:
            return False
        time.sleep(TURN_SECONDS)
    return True


PIECE_BYTES = 4 * 2**20
"""Bytes of an array that pass through this process at a time when its history is ended."""


def without_history(values: list[Any], keys: list[str]) -> list[Any]:
    """Return copies of arrays that `stored` returned, under new keys, that depend on no task; without a client, these.

    The scheduler forgets the tasks behind them.  A copy goes through this process, a few rows at a time, back to the
    worker that it came from.  If that worker ends, the copy is lost: `LostValuesError` is raised where it is needed.
    """
    at = client()
    if at is None:
        return values
    made = []
    with _named_cancellation(at):
        _wait_all(at, values)
        where = at.who_has(values)
        for future, key in zip(values, keys, strict=True):
            held = [address for address in where[future.key] if address in at.nthreads()] or None
            made.append(_copied(at, future, key, held))
            _settled.add(made[-1])
    return made


def _copied(at: Any, future: Any, key: str, held: list[str] | None) -> Any:
    """Return a future of the same rows, joined from pieces that no task has made."""
    from distributed import wait

    there: dict[str, Any] = {"workers": held, "allow_other_workers": held is not None, "pure": False}
    rows, size = at.submit(_extent, future, **there).result()
    step = max(1, PIECE_BYTES * rows // max(1, size))
    pieces = []
    for start in range(0, max(1, rows), step):
        piece = at.submit(_piece, future, start, start + step, **there).result()
        pieces.append(at.scatter(piece, workers=held, hash=False))
    joined = at.submit(_joined_rows, pieces, key=key, **there)
    wait(joined)
    return joined  # the pieces are forgotten now, and with them how to compute it again


def _extent(rows: Any) -> tuple[int, int]:
    return len(rows), rows.nbytes


def _piece(rows: Any, start: int, stop: int) -> Any:
    return rows[start:stop]


def _joined_rows(pieces: list[Any]) -> Any:
    import numpy as np

    return np.concatenate(pieces)


_settled: weakref.WeakSet[Any] = weakref.WeakSet()
"""The futures that `without_history` returned."""


def _check_settled(at: Any) -> None:
    """Raise LostValuesError if a client's futures of `without_history` are lost: tasks that need them may wait forever.

    It is raised once for every loss, because the caller may refer to lost futures until it has begun anew.
    """
    lost = _forget_lost(at)
    if lost:
        raise LostValuesError(f"a worker was lost with {lost} value(s) that no task can compute again; run it again")


def _forget_lost(at: Any) -> int:
    """Remove the lost futures of a client from `_settled`; return how many there were."""
    lost = [future for future in _settled if future.client is at and future.status in ("lost", "cancelled")]
    _settled.difference_update(lost)
    return len(lost)


class LostValuesError(InputError):
    """Values that no task can compute again were lost with their worker: loops start again from what they have."""


def despite_losses(attempt: Callable[[], T], times: int, message: str) -> T:
    """Return what ``attempt`` returns; after a LostValuesError log the message and try again, at most so many times."""
    for _ in range(times):
        try:
            return attempt()
        except LostValuesError as error:
            _log.warning("%s: %s", message, str(error))
    return attempt()


@contextmanager
def _named_cancellation(at: Any) -> Iterator[None]:
    """Raise LostValuesError for a cancelled computation while the client still works, and else InputError."""
    try:
        yield
    except CancelledError as error:
        reason = " ".join(str(error).split())[:200]
        if at.status == "running":
            _forget_lost(at)  # this error reports them
            raise LostValuesError(
                f"the cluster cancelled the computation ({reason}): a worker was lost, or futures were cancelled; run "
                "it again"
            ) from error
        raise InputError(
            f"the cluster cancelled the computation ({reason}): its client was closed, or the scheduler has ended; "
            "connect a new client"
        ) from error


def stored_chunks(X: Any, keys: list[Any]) -> list[Any]:
    """Return the chunks of a collection that `kept` returned: futures, or values without a client."""
    if client() is None:
        graph = X.__dask_graph__()
        return [graph[key] for key in keys]
    from distributed import futures_of

    found = {future.key: future for future in futures_of(X)}
    return [found[key] for key in keys]


def _release(computed: list[Any], keep: tuple[Any, ...]) -> None:
    """Release the futures of ``computed``, except those of ``keep``.

    Explicitly, because a traceback may still refer to them.
    """
    from distributed import futures_of

    kept = {id(future) for future in futures_of(list(keep))}
    for future in futures_of(computed):
        if id(future) not in kept:
            future.release()


def _fetched(at: Any, collection: Any) -> Any:
    """Return the value of a persisted collection, assembled in this process.

    ``dask.compute`` would send a second graph to the scheduler.
    """
    from distributed import futures_of

    found = {future.key: future for future in futures_of(collection)}
    finish, extra = collection.__dask_postcompute__()
    return finish(at.gather(_looked_up(collection.__dask_keys__(), found)), *extra)


def _looked_up(keys: Any, found: dict[Any, Any]) -> Any:
    """Return the entries of ``found`` for nested lists of keys, nested alike."""
    return [_looked_up(key, found) for key in keys] if isinstance(keys, list) else found[keys]


def persisted(at: Any, lazy: Any) -> Any:
    """Start computing a collection, or a list of them, on the workers of a client, and keep the chunks there.

    Chains of tasks are not fused: a fused task has other dependencies than the task of the same name in a later graph,
    and a scheduler that still has the one may fail on the other.
    """
    import dask

    _prepare(at)
    many = lazy if isinstance(lazy, list) else [lazy]
    with warnings.catch_warnings(), dask.config.set({"optimization.fuse.active": False}):
        # labels and rows in memory are sent inside the graph, once
        warnings.filterwarnings("ignore", message="Sending large graph")
        futures = at.persist(list(dask.optimize(*many)), optimize_graph=False)
    return futures if isinstance(lazy, list) else futures[0]


def _prepare(at: Any) -> None:
    """Let the workers of a client keep freed memory, once per client."""
    if at in _prepared:
        return
    from .allocation import KeepFreed

    with suppress(OSError):  # a worker that dies just now; the scheduler tells the plugin to its successor
        at.register_plugin(KeepFreed())
    _prepared.add(at)


_prepared: weakref.WeakSet[Any] = weakref.WeakSet()
"""The clients whose workers are prepared."""


@contextmanager
def _counting(watch: Watch | None) -> Iterator[None]:
    """Report the progress of the schedulers of this process."""
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


def _wait(at: Any, computed: list[Any], watch: Watch | None) -> None:
    """Wait for persisted collections; after SHORT_SECONDS, report how many of their tasks are finished."""
    with _named_cancellation(at):
        _wait_for(at, computed, watch)


def _wait_for(at: Any, computed: list[Any], watch: Watch | None) -> None:
    from distributed import futures_of, wait

    futures = futures_of(computed)
    if watch is None or not futures:
        _wait_all(at, futures)
        return
    try:
        wait(futures, timeout=SHORT_SECONDS)
    except TimeoutError:
        count = _counter(futures)
        while not _done(futures, POLL_SECONDS):
            _check_settled(at)
            watch(*count.seen)
        wait(futures)  # raises an error if some were cancelled
        # the listener ends only while the scheduler still has the tasks
        count.ended.wait(SHORT_SECONDS)
        watch(count.seen[1], count.seen[1])
    else:
        watch(len(futures), len(futures))


def _counter(futures: list[Any]) -> Any:
    """Return an object whose ``seen`` is updated to (finished, total) of the tasks behind futures."""
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

    # dask names a listener by its arguments, and fits at once may count the same tasks; any true value means complete
    made = Counter(futures, interval=f"{POLL_SECONDS}s", complete=uuid.uuid4().hex)
    futures[0].client.loop.add_callback(made.follow)
    return made
