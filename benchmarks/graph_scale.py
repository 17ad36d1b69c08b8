"""Neighbour lists by cells: recall, memory, and CPU time as the number of rows grows, against comparing all pairs.

k = 20 and recall=0.95; every case in a process of its own.  All pairs: the exact search of some queries, scaled to all
rows (20,000 queries at a million rows).  The exponent is that of the CPU time between this size and the previous one of
the same rows.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import metricforge as mf
from metricforge import neighbors

from .run import Table

K = 20
CASES = {
    "Adult, binary": ("a9a", 0, 2000),
    "mixture, 16 columns, 250,000": ("mixture", 250_000, 2000),
    "mixture, 64 columns, 250,000": ("mixture64", 250_000, 2000),
    "MNIST": ("mnist", 0, 2000),
    "mixture, 16 columns, 1,000,000": ("mixture", 1_000_000, 20_000),
    "mixture, 16 columns, 1,000,000, two workers": ("dask", 1_000_000, 0),
    "mixture, 16 columns, 4,000,000": ("mixture", 4_000_000, 0),
}
"""Rows, their number, and the queries of the exact search."""
QUICK = {"mixture, 16 columns, 6,000": ("mixture", 6000, 200)}


def mixture(n: int, d: int, clusters: int = 100, spread: float = 1.0) -> Any:
    """Return float32 rows of Gaussian clusters whose centres have ``spread`` times the spread of a cluster."""
    rng = np.random.default_rng(0)
    centres = spread * rng.standard_normal((clusters, d))
    return (centres[rng.integers(clusters, size=n)] + rng.standard_normal((n, d), dtype=np.float32)).astype(np.float32)


def peak() -> float:
    """Return the peak resident memory of this process in MB."""
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) / 1024


def measure(rows: str, n: int, queries: int) -> dict[str, Any]:
    """Return what one case takes, in this process."""
    if rows == "dask":
        return measure_on_workers(n)
    made = {"mixture": 16, "mixture64": 64}
    X = mixture(n, made[rows]) if rows in made else mf.datasets.load(rows).X
    before = peak()
    start = time.process_time()
    (indices, _), estimate = neighbors.search_with_recall(X, K, method="cells")
    spent = time.process_time() - start
    memory = peak()
    measured = neighbors.recall(indices, X, sample=200, seed=9)
    full = float("nan")
    if queries:
        exact = "hamming" if rows == "a9a" else "exact"
        start = time.process_time()
        neighbors.search(X, K, queries=X[:queries], method=exact)
        full = (time.process_time() - start) * X.shape[0] / queries
    return {
        "n": X.shape[0],
        "d": X.shape[1],
        "estimate": estimate,
        "recall": measured,
        "CPU s": spent,
        "all": full,
        "MB": f"{memory:.0f} (rows {before:.0f})",
    }


def measure_on_workers(n: int) -> dict[str, Any]:
    """Return what the search takes on two workers of 1.5 GB; lists stay there, 200 of them are checked."""
    from distributed import Client, LocalCluster

    from metricforge.distributed.chunks import split
    from metricforge.rows import take

    X = mixture(n, 16)
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, memory_limit="1.5GB", dashboard_address=":0") as local,
        Client(local) as client,
    ):
        lazy = client.persist(split(X, 62_500))
        before, here = client.run(time.process_time), time.process_time()
        (indices, _), estimate = neighbors.search_with_recall(lazy, K, method="cells")
        kept = client.persist(indices)
        some = np.sort(np.random.default_rng(9).choice(n, 200, replace=False))
        lists = np.asarray(take(kept, some))
        spent = time.process_time() - here + sum(client.run(time.process_time).values()) - sum(before.values())
        workers = max(client.run(peak).values())
        client_memory = peak()
    true = neighbors.search(X, K + 1, queries=X[some], method="exact")[1][:, -1:]
    apart = np.linalg.norm(X[lists].astype(np.float64) - X[some][:, None], axis=2)
    return {
        "n": n,
        "d": 16,
        "estimate": estimate,
        "recall": float(np.mean(apart <= true * (1 + 1e-6))),
        "CPU s": spent,
        "all": float("nan"),
        "MB": f"worker {workers:.0f}, client and scheduler {client_memory:.0f}",
    }


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--measurements", type=Path, help="a file of finished cases, to which others are added")


def run(quick: bool = False, measurements: Path | None = None) -> Table:
    table = Table(["rows", "n", "d", "recall estimated", "measured", "CPU s", "all pairs / cells", "exponent", "MB"])
    done: dict[str, Any] = {}
    if measurements is not None and measurements.exists():
        done = {case["name"]: case for case in map(json.loads, measurements.read_text().splitlines())}
    before: dict[str, tuple[int, float]] = {}
    for name, case in (QUICK if quick else CASES).items():
        found = done.get(name) or measured_apart(name, case)
        if found is None:
            continue  # the data are not here
        if measurements is not None and name not in done:
            with measurements.open("a") as file:
                file.write(json.dumps(found) + "\n")
        kind, exponent = case[0], "-"
        if kind in before:
            m, earlier = before[kind]
            exponent = f"{math.log(found['CPU s'] / earlier) / math.log(found['n'] / m):.2f}"
        before[kind] = found["n"], found["CPU s"]
        ratio = "-" if math.isnan(found["all"]) else found["all"] / found["CPU s"]
        figures = (found[key] for key in ("n", "d", "estimate", "recall", "CPU s"))
        table.add(name, *figures, ratio, exponent, found["MB"])
    table.notes += [
        "target: recall >= 0.95, exponent <= 1.15 from 250,000 to 4 million rows, >= 5 times all pairs at a million",
        "one BLAS thread, CPU time of all processes; recall measured on 200 rows by comparing all; peak memory of a "
        "process, in brackets that before the search, which includes the generated rows",
        "workers have 1.5 GB and keep the lists; the client has the generated rows and the scheduler",
    ]
    return table


def measured_apart(name: str, case: tuple[str, int, int]) -> dict[str, Any] | None:
    """Return the measurements of a case, made in a process of its own."""
    code = (
        "import json; from threadpoolctl import threadpool_limits; from benchmarks.graph_scale import measure\n"
        f"if __name__ == '__main__':\n with threadpool_limits(1): print('FOUND', json.dumps(measure{case!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    line = next((line for line in done.stdout.splitlines() if line.startswith("FOUND")), None)
    if line is None:
        if "InputError" in done.stderr:
            return None
        raise RuntimeError(done.stderr)
    return {"name": name, **json.loads(line.removeprefix("FOUND"))}
