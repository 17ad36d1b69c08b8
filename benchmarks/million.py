"""A million rows of 32 columns on two worker processes: learn, transform, index, neighbours.

The workers read the rows from a file.  Each method runs in its own process, whose peak resident size is added to those
of its workers; the scheduler runs in the client.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from .run import Table

QUERIES = 2000
METHODS = ("krca", "kcr", "simplenpkl")

CODE = """
import json, resource, sys, time, warnings
import numpy as np
import metricforge as mf
from metricforge.errors import ConvergenceWarning
from metricforge.kernels import RBF, Linear
warnings.simplefilter("ignore", ConvergenceWarning)

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

def spent(client):
    return time.process_time() + sum(client.run(time.process_time).values())

def main():
    from distributed import Client, LocalCluster
    path, method, queries = sys.argv[1], sys.argv[2], int(sys.argv[3])
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=40) as cluster,
        Client(cluster) as client,
    ):
        rows = mf.open_rows(path, chunk_rows=50_000)
        y = np.arange(rows.shape[0]) % 4
        how = {
            "krca": (mf.Chunklets(y), {"kernel": RBF(1 / 64), "rank": 128}),
            "kcr": (mf.Labels(y), {"kernel": RBF(1 / 64), "rank": 128}),
            "simplenpkl": (mf.Pairs.from_labels(y[:20000], n_pairs=20000, seed=0), {"tol": 1e-3}),
        }
        hints, options = how[method]
        if method == "simplenpkl":
            hints = mf.Pairs(similar=hints.similar, dissimilar=hints.dissimilar, n=len(y))
        times = []

        def timed(call):
            cpu, wall = spent(client), time.perf_counter()
            value = call()
            times.extend([spent(client) - cpu, time.perf_counter() - wall])
            return value

        metric = timed(lambda: mf.learn(rows, hints, method=method, seed=0, **options))
        timed(lambda: metric.transform(rows).sum(axis=0).compute())
        index = timed(lambda: metric.index(path=f"{path}.{method}", k=10))
        asked = rows[:queries].compute()
        found = timed(lambda: index.search(asked, 10)[0])
        assert found.shape == (queries, 10)
        same = float(np.mean(y[found[:, 1:]] == y[:queries, None]))
        workers = client.run(peak)
        names = ("recall", "edges", "products")  # of simplenpkl
        facts = {name: float(metric.report[name]) for name in names if name in metric.report}
        told = {"same": same, "client": peak(), "workers": list(workers.values()), "facts": facts}
        print(json.dumps({"times": times, **told}))

if __name__ == "__main__":
    main()
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows (20,000 with --quick)")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS, help="methods to run")


def run(quick: bool = False, rows: int = 1_000_000, methods: Sequence[str] = METHODS) -> Table:
    n = 20_000 if quick else rows
    queries = 500 if quick else QUERIES
    times = [
        f"{phase}, {clock} s" for phase in ("learn", "transform", "index", "neighbours") for clock in ("CPU", "wall")
    ]
    table = Table(["method", "rows", *times, "client MB", "workers MB", "together GB", "same %"])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        np.save(path, data(n))
        code = Path(folder) / "one.py"
        code.write_text(CODE)
        for method in methods:
            command = [sys.executable, str(code), str(path), method, str(queries)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(done.stderr)
            r = json.loads(done.stdout.splitlines()[-1])
            workers = " + ".join(f"{w:.0f}" for w in r["workers"])
            total = (r["client"] + sum(r["workers"])) / 1000
            table.details[method] = r["facts"]
            table.add(method, n, *r["times"], round(r["client"]), workers, f"{total:.2f}", f"{100 * r['same']:.1f}")
    table.notes += [
        "target: 6 GB together",
        "CPU: of the client, which has the scheduler, and of both workers",
        f"index: metric.index(path=...), recall 0.95; neighbours: the 10 nearest of {queries:,} rows among all, by the "
        "index; same: of the row's class",
        "128 landmarks for krca and kcr; 20,000 pairs over the first 20,000 rows and tol=1e-3 for simplenpkl",
    ]
    return table


def data(n: int) -> np.ndarray:
    """Return four classes that differ in four columns, under noise that is larger in others."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(n, 32)).astype(np.float32)
    rows[np.arange(n), np.arange(n) % 4] += 3
    rows[:, 4:8] *= 3
    return rows
