"""What a fit on dask rows allocates in the client for each row, besides the hints, from its peaks at two sizes.

Rows of eight columns are made on two workers, in chunks of 50,000.  Python and NumPy trace what they allocate in the
client, which has the scheduler, from the call to its end; the peak counts, not what remains.  A fit on few rows loads
modules and starts connections first.  Each run has its own process.  For simplenpkl see `simplenpkl-dask`.
"""

from __future__ import annotations

from pathlib import Path

from .apart import add_options, measured
from .run import Table

__all__ = ["add_options", "run"]

TARGET = 16
"""Bytes per row that a fit may allocate in the client."""

CODE = """
import gc, json, sys, tracemalloc, warnings
import numpy as np
import metricforge as mf

COLUMNS, CHUNK = 8, 50_000

def chunk(block_info=None):
    (low, high), _ = block_info[None]["array-location"]
    rng = np.random.default_rng([7, low])
    X = rng.standard_normal((high - low, COLUMNS), dtype=np.float32)
    X[:, 0] += 6 * (np.arange(low, high) % 5)
    return X

def rows(n):
    import dask.array as da
    size = min(CHUNK, n // 2)
    chunks = ((size,) * (n // size), (COLUMNS,))
    return da.map_blocks(chunk, chunks=chunks, dtype=np.float32, meta=np.empty((0, 0), dtype=np.float32))

def pairs(n):
    known = np.sort(np.random.default_rng(1).choice(n, 2000, replace=False))
    drawn = mf.Pairs.from_labels(known % 5, n_pairs=10_000, seed=0)
    return mf.Pairs(similar=known[drawn.similar], dissimilar=known[drawn.dissimilar], n=n)

CALLS = {
    "krca, five classes": lambda n: ("krca", mf.Chunklets(np.arange(n) % 5), {"rank": 64, "kernel": "rbf"}),
    "krca, groups of two": lambda n: ("krca", mf.Chunklets(np.arange(n) // 2), {"rank": 64, "kernel": "rbf"}),
    "kcr": lambda n: ("kcr", mf.Labels(np.arange(n) % 5), {"rank": 64}),
    "idealized": lambda n: ("idealized", pairs(n), {"rank": 64, "kernel": "rbf"}),
}

def high():
    return int(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))) / 1000

def main():
    from distributed import Client, LocalCluster
    warnings.simplefilter("ignore")
    what, n = sys.argv[1], int(sys.argv[2])
    settings = {"threads_per_worker": 1, "memory_limit": "4GB", "dashboard_address": ":0", "silence_logs": 50}
    with LocalCluster(n_workers=2, **settings) as cluster, Client(cluster):
        method, hints, options = CALLS[what](20_000)
        mf.learn(rows(20_000), hints, method=method, **options)
        X, (method, hints, options) = rows(n), CALLS[what](n)
        gc.collect()
        before = high()
        tracemalloc.start()
        mf.learn(X, hints, method=method, **options)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        print(json.dumps({"peak": peak, "before": before, "high": high()}))

if __name__ == "__main__":
    main()
"""

FITS = ("krca, five classes", "krca, groups of two", "kcr", "idealized")
FEW, MANY = 1_000_000, 4_000_000


def run(quick: bool = False, measurements: Path | None = None, most: int = MANY) -> Table:
    few, many = (20_000, 40_000) if quick else (FEW, MANY)
    plan = [(what, n) for what in FITS for n in (few, many) if n <= most]
    done = measured(plan, CODE, measurements)
    table = Table(["fit", "rows", "allocated, MB", "bytes a row", "resident MB"])
    for what, n in plan:
        found = done[what, n]
        slope = (found["peak"] - done[what, few]["peak"]) / (many - few) if n == many else "-"
        table.add(what, n, found["peak"] / 1e6, slope, f"{found['before']:.0f} to {found['high']:.0f}")
    table.notes += [
        f"target: at most {TARGET} bytes a row",
        "allocated: the peak of what Python and NumPy allocate during the call; bytes a row: its growth from the "
        "smaller size to the larger one",
        "resident: highest size of the process before the fit, hints included, and after it; tracing itself takes a "
        "part of it",
    ]
    table.details["runs"] = [[list(key), done[key]] for key in plan]
    return table
