"""The overhead and the gain of dask: one worker compared with plain NumPy, two workers with one.

Every row of the table does the same work three times, on one thread per process: a loop over blocks in this process,
one worker process, two worker processes.  The rows are on the workers before the clock starts, and the result is small,
as in a fit.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import count
from typing import Any
from unittest import mock

import numpy as np

from metricforge import neighbors
from metricforge.kernels import RBF
from metricforge.rows import blocks, cluster, fold, gathered, split
from metricforge.space import landmark_map

from .run import Table, best_of

KERNEL = RBF(0.05)
MALLOC = {"MALLOC_TRIM_THRESHOLD_": str(2**28), "MALLOC_MMAP_THRESHOLD_": str(2**26)}
"""Settings for workers from docs/guides/dask.md: with those of dask itself, malloc returns freed memory at once."""


def run(quick: bool = False) -> Table:
    from threadpoolctl import threadpool_limits

    ratios = ("one worker / NumPy", "one worker / two workers", "one worker, dask's malloc / NumPy")
    table = Table(["pass", "rows", "NumPy s", *ratios])
    repeats = 1 if quick else 3
    with threadpool_limits(1):
        works = [
            gram(2000 if quick else 30_000),
            features(5000 if quick else 800_000),
            graph(2000 if quick else 40_000),
        ]
        for name, n, here, prepare in works:
            seconds = best_of(here, repeats)
            one, two = (on_workers(workers, prepare, repeats, MALLOC) for workers in (1, 2))
            plain = on_workers(1, prepare, repeats, {})
            table.add(name, n, seconds, one / seconds, one / two, plain / seconds)
    table.notes += [
        "target: one worker <= 1.15 times NumPy, two workers >= 1.6 times one",
        "workers with the malloc settings of docs/guides/dask.md; last column: with those that dask sets by itself",
        f"best of {repeats}; one BLAS thread in every process, {os.cpu_count()} cores for client, scheduler, workers",
        "Gram: row sums of the n × n Gaussian Gram matrix, d = 32, a block of 50 MB at a time; features: column sums "
        "of 256 landmark features, d = 32, eight chunks; graph: exact 10 nearest neighbours, d = 32, two chunks",
    ]
    return table


def on_workers(workers: int, prepare: Callable[[Any], Callable[[], Any]], repeats: int, env: dict[str, str]) -> float:
    """Return the shortest time of the work on a cluster of worker processes with one thread each."""
    from distributed import Client, LocalCluster

    with (
        mock.patch.dict(os.environ, env),  # malloc reads them when a worker starts
        LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=":0") as local,
        Client(local) as client,
    ):
        call = prepare(client)
        call()  # the workers import what they need
        return best_of(call, repeats)


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
        lazy = placed(client, X, n // 2)
        turns = count()
        return lambda: gathered(neighbors.search(lazy, 10, method="exact", seed=next(turns))[0])

    return "kNN graph", n, lambda: neighbors.search(X, 10, method="exact"), prepare
