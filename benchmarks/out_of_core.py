"""Learning from a file larger than the memory of all processes together, on two workers with a memory limit.

The workers write the rows, `metricforge.open_rows` opens them, and they never pass through the client.  The nanny kills
a worker above 95 % of its limit; process ids before and after show that none was killed.
"""

from __future__ import annotations

import os
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import metricforge as mf
from metricforge.kernels import RBF

from .run import Table

COLUMNS = 128
CLASSES = 4


def run(quick: bool = False) -> Table:
    n = 100_000 if quick else 12_000_000
    limit = "1GB" if quick else "1.2GB"
    table = Table(
        ["method", "rows", "file GB", "limits together GB", "CPU s", "wall s", "client MB", "workers MB", "restarted"]
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        with workers(limit) as client:
            write(client, path, n)
        y = np.arange(n) % CLASSES
        for method in ("krca", "kcr"):
            with workers(limit) as client:
                table.add(*measured(client, method, path, y))
    table.notes += [
        f"{COLUMNS} columns in float32; two workers limited to {limit} each; one chunklet or class "
        f"of {n // CLASSES:,} rows, {CLASSES} of them, 128 landmarks",
        "client MB: largest resident size of this process, whose share of the limits is taken to be that; workers MB: "
        "the largest resident size of either",
        "file GB must exceed limits together, restarted must be 0",
    ]
    return table


class workers:  # noqa: N801
    """Two worker processes with a memory limit."""

    def __init__(self, limit: str) -> None:
        self.limit = limit

    def __enter__(self) -> Any:
        from distributed import Client, LocalCluster

        self.cluster = LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit=self.limit, dashboard_address=":0", silence_logs=40
        )
        self.client = Client(self.cluster)
        return self.client

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.cluster.close()


def write(client: Any, path: Path, n: int) -> None:
    np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(n, COLUMNS))
    step = 50_000
    client.gather([client.submit(fill, str(path), start, min(n, start + step)) for start in range(0, n, step)])


def fill(path: str, start: int, stop: int) -> None:
    """Write rows whose class shows in their first columns, under noise that is larger in others."""
    rng = np.random.default_rng(start)
    rows = rng.normal(size=(stop - start, COLUMNS)).astype(np.float32)
    label = np.arange(start, stop) % CLASSES
    rows[np.arange(stop - start), label] += 3
    rows[:, CLASSES:16] *= 4
    file = np.load(path, mmap_mode="r+")
    file[start:stop] = rows
    file.flush()


def spent(client: Any) -> float:
    """Return the CPU time of this process and the workers."""
    return time.process_time() + float(sum(client.run(time.process_time).values()))


def measured(client: Any, method: str, path: Path, y: np.ndarray) -> tuple[Any, ...]:
    before = set(client.run(os.getpid).values())
    cpu, started = spent(client), time.perf_counter()
    rows = mf.open_rows(path)
    hints = mf.Chunklets(y) if method == "krca" else mf.Labels(y)
    mf.learn(rows, hints, method=method, kernel=RBF(1 / COLUMNS / 2), rank=128, seed=0)
    cpu, seconds = spent(client) - cpu, time.perf_counter() - started
    after = set(client.run(os.getpid).values())
    here = peak()
    there = max(client.run(peak).values())
    limits = sum(w["memory_limit"] for w in client.scheduler_info()["workers"].values())
    size = path.stat().st_size
    return (
        method,
        len(y),
        f"{size / 1e9:.2f}",
        f"{(limits + here) / 1e9:.2f}",
        cpu,
        seconds,
        round(here / 1e6),
        round(there / 1e6),
        len(before - after),
    )


def peak() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
