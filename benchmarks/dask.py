"""The overhead and the gain of dask: one worker compared with plain NumPy, two workers with one.

Every row of the table does the same work three times, on one thread per process: a loop over blocks in this process,
one worker process, two worker processes.  The rows are on the workers before the clock starts, and the result is small,
as in a fit.  What two cores give at the most is measured by two processes of NumPy that do all of the work at once.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

from metricforge import neighbors
from metricforge.distributed import cluster
from metricforge.distributed.chunks import split
from metricforge.kernels import RBF
from metricforge.rows import blocks, fold, gathered
from metricforge.space import landmark_map

from .run import Table

KERNEL = RBF(0.05)


def run(quick: bool = False) -> Table:
    from threadpoolctl import threadpool_limits

    ratios = ("one worker / NumPy", "its CPU / NumPy's", "one worker / two workers", "gain of two processes of NumPy")
    table = Table(["pass", "rows", "NumPy s", *ratios, "dask's malloc / NumPy"])
    repeats = 1 if quick else 3
    with threadpool_limits(1):
        works = [
            gram(2000 if quick else 30_000),
            features(5000 if quick else 800_000),
            graph(2000 if quick else 40_000),
        ]
        both = [twice(here, repeats) for _, _, here, _ in works]  # before threads of clients are there: it forks
        for (name, n, here, prepare), limit in zip(works, both, strict=True):
            # in turn, so that other work on the machine disturbs all of them alike
            times = [(timed(here), best(1, prepare), best(2, prepare)) for _ in range(repeats)]
            with mock.patch.object(cluster, "_prepare"), workers(1, prepare) as plain:
                untouched = timed(plain)
            wall = np.min([[t.wall for t in turn] for turn in times], axis=0)
            cpu = np.min([[t.cpu for t in turn] for turn in times], axis=0)
            gains = wall[1] / wall[2], 2 * wall[0] / limit
            figures = wall[1] / wall[0], cpu[1] / cpu[0], *gains, untouched.wall / wall[0]
            table.add(name, n, float(wall[0]), *map(float, figures))
    table.notes += [
        "target: one worker <= 1.15 times NumPy, two workers >= 1.6 times one; nothing is exported or configured",
        "gain of two processes of NumPy: twice the time of one, over the time of two that do the whole work at "
        "once: what the cores can give, by another run than that of the workers",
        "last column: one run with the malloc settings of dask's nanny, which metricforge changes in the workers",
        f"best of {repeats} turns of NumPy, one worker and two workers, each cluster started anew and called twice; "
        f"wall time, and CPU time of the worker; one BLAS thread in every process, {os.cpu_count()} cores for client, "
        "scheduler and workers",
        "Gram: row sums of the n × n Gaussian Gram matrix, d = 32, a block of 50 MB at a time; features: column sums "
        "of 256 landmark features, d = 32, eight chunks; graph: exact 10 nearest neighbours, d = 32, four chunks",
    ]
    return table


class Timed(NamedTuple):
    """Seconds of one call."""

    wall: float
    cpu: float


def timed(call: Callable[[], Any]) -> Timed:
    """Return wall and CPU time of a call: of the workers if it runs there, else of this process."""
    spent = getattr(call, "spent", time.process_time)
    cpu, wall = spent(), time.perf_counter()
    call()
    return Timed(time.perf_counter() - wall, spent() - cpu)


def best(count: int, prepare: Callable[[Any], Callable[[], Any]]) -> Timed:
    """Return the shorter of two calls on workers that are started for them: a user has one cluster at a time."""
    with workers(count, prepare) as call:
        return min(timed(call), timed(call))


def twice(call: Callable[[], Any], repeats: int) -> float:
    """Return the wall time of two processes that make the call at the same time, the best of some repeats."""
    fork = multiprocessing.get_context("fork")
    times = []
    for _ in range(repeats):
        pair = [fork.Process(target=call) for _ in range(2)]
        started = time.perf_counter()
        for process in pair:
            process.start()
        for process in pair:
            process.join()
        times.append(time.perf_counter() - started)
    return min(times)


class OnWorkers:
    """A call on the workers of a client."""

    def __init__(self, client: Any, prepare: Callable[[Any], Callable[[], Any]]) -> None:
        self.client = client
        with client.as_current():
            self.call = prepare(client)
        self()  # the workers import what they need

    def __call__(self) -> None:
        with self.client.as_current():
            self.call()

    def spent(self) -> float:
        """Return the CPU time of the workers so far."""
        return float(sum(self.client.run(time.process_time).values()))


@contextmanager
def workers(count: int, prepare: Callable[[Any], Callable[[], Any]]) -> Iterator[OnWorkers]:
    """Start worker processes with one thread each, and place the work there."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=count, threads_per_worker=1, dashboard_address=":0") as local,
        Client(local) as client,
    ):
        yield OnWorkers(client, prepare)


def data(n: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(n, 32))


def placed(client: Any, X: np.ndarray, step: int) -> Any:
    from distributed import wait

    lazy = cluster.persisted(client, split(X, step))
    wait(lazy)
    return lazy


def gram(n: int) -> tuple[str, int, Callable[[], Any], Any]:
    X = data(n)
    step = min(n, 2500)

    def here() -> np.ndarray:
        total = np.zeros(n)
        for i in range(0, n, step):
            for j in range(0, n, step):
                total[i : i + step] += KERNEL.block(X[i : i + step], X[j : j + step]).sum(axis=1)
        return total

    def prepare(client: Any) -> Callable[[], Any]:
        lazy = placed(client, X, step)
        turns = count()
        # another kernel each time, or the workers would return the stored result
        return lambda: gathered(RBF(KERNEL.gamma * (1 + 1e-9 * next(turns)))(lazy).sum(axis=1))

    return "Gram", n, here, prepare


class ColumnSums:
    def __init__(self, map: Any, turn: int = 0) -> None:
        self.map, self.turn = map, turn

    def __call__(self, X: np.ndarray) -> np.ndarray:
        total = np.zeros(self.map.columns)
        for part in blocks(len(X), 8 * self.map.columns):
            total += self.map.block(X[part]).sum(axis=0)
        return total


def features(n: int) -> tuple[str, int, Callable[[], Any], Any]:
    X = data(n)
    map = landmark_map(KERNEL, X[:256])

    def prepare(client: Any) -> Callable[[], Any]:
        lazy = placed(client, X, n // 8)
        turns = count()
        return lambda: fold(ColumnSums(map, next(turns)), sum_of, lazy)

    return "features", n, lambda: ColumnSums(map)(X), prepare


def sum_of(parts: list[np.ndarray]) -> np.ndarray:
    return np.sum(parts, axis=0)


def graph(n: int) -> tuple[str, int, Callable[[], Any], Any]:
    X = data(n)

    def prepare(client: Any) -> Callable[[], Any]:
        lazy = placed(client, X, n // 4)
        turns = count()
        return lambda: gathered(neighbors.search(lazy, 10, method="exact", seed=next(turns))[0])

    return "kNN graph", n, lambda: neighbors.search(X, 10, method="exact"), prepare
