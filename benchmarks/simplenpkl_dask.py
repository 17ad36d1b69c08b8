"""simplenpkl on dask rows, end to end: graph, eigenvectors and embedding on two workers, against the fit in memory.

Rows of eight columns in 40 Gaussian clusters, four clusters per class, made on the workers by row number.  40,000 pairs
over 2,000 labelled rows, 10 mutual neighbours, 20 eigenvectors.  The ARI is that of k-means on the embedding of 20,000
rows.  Each run has its own process and two worker processes of one thread.
"""

from __future__ import annotations

from pathlib import Path

from .apart import MOST, add_options, left_out, measured
from .run import Table

__all__ = ["add_options", "run"]

LARGE = 250_000
"""With fewer rows the client's memory is mostly that of its modules."""

CODE = '''
import json, sys, time
import numpy as np
import metricforge as mf

COLUMNS, CLASSES, GROUP = 8, 10, 10_000
centres = 4 * np.random.default_rng(0).standard_normal((40, COLUMNS))

def part(start, stop):
    """Return rows start to stop, and their classes."""
    X, y = np.empty((stop - start, COLUMNS), dtype=np.float32), np.empty(stop - start, dtype=np.int64)
    for group in range(start // GROUP, -(-stop // GROUP)):
        rng = np.random.default_rng([7, group])
        cluster = rng.integers(40, size=GROUP)
        made = centres[cluster] + rng.standard_normal((GROUP, COLUMNS))
        low, high = max(start, group * GROUP), min(stop, (group + 1) * GROUP)
        mine = slice(low - group * GROUP, high - group * GROUP)
        X[low - start : high - start], y[low - start : high - start] = made[mine], cluster[mine] % CLASSES
    return X, y

def classes(n, rows):
    groups = [rows[(rows >= start) & (rows < start + GROUP)] for start in range(0, n, GROUP)]
    return np.concatenate([part(i * GROUP, min(n, (i + 1) * GROUP))[1][g - i * GROUP] for i, g in enumerate(groups)])

def chunk(block_info=None):
    (low, high), _ = block_info[None]["array-location"]
    return part(low, high)[0]

def high():
    return int(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))) / 1000

def main():
    n, where, limit, recall = int(sys.argv[1]), sys.argv[2], sys.argv[3], float(sys.argv[4])
    rng = np.random.default_rng(1)
    known = np.sort(rng.choice(n, 2000, replace=False))
    drawn = mf.Pairs.from_labels(classes(n, known), n_pairs=20_000, seed=0)
    pairs = mf.Pairs(similar=known[drawn.similar], dissimilar=known[drawn.dissimilar], n=n)
    sample = np.sort(rng.choice(n, 20_000, replace=False))
    options = {"kernel": mf.kernels.Linear(), "n_components": 20, "n_neighbors": 10, "recall": recall, "seed": 0}

    def conclude(metric, facts):
        from sklearn.cluster import KMeans
        from sklearn.metrics import adjusted_rand_score
        report = metric.report
        E = report.embedding[sample]
        found = KMeans(CLASSES, n_init=3, random_state=0).fit_predict(E.compute() if where == "dask" else E)
        names = ("objective", "lower_bound", "recall", "edges", "isolated", "products", "explained")
        facts |= {name: float(report[name]) for name in names}
        facts |= {"ari": 100 * adjusted_rand_score(classes(n, sample), found), "w": report.eigenvalues.tolist()}
        print(json.dumps(facts))

    if where == "memory":
        X = part(0, n)[0]
        before, clock, cpu = high(), time.perf_counter(), time.process_time()
        metric = mf.learn(X, pairs, method="simplenpkl", **options)
        spent = {"cpu": time.process_time() - cpu, "worker_cpu": 0.0, "wall": time.perf_counter() - clock}
        return conclude(metric, {**spent, "before": before, "client": high(), "workers": []})
    import dask.array as da
    from distributed import Client, LocalCluster
    settings = {"threads_per_worker": 1, "memory_limit": limit, "dashboard_address": ":0", "silence_logs": 50}
    with LocalCluster(n_workers=2, **settings) as cluster, Client(cluster) as client:
        size = min(200_000, n // 4)
        sizes = (size,) * (n // size) + ((n % size,) if n % size else ())
        X = da.map_blocks(chunk, chunks=(sizes, (COLUMNS,)), dtype=np.float32, meta=np.empty((0, 0), dtype=np.float32))
        before, clock, cpu = high(), time.perf_counter(), time.process_time()
        others = sum(client.run(time.process_time).values())
        metric = mf.learn(X, pairs, method="simplenpkl", **options)
        workers = sum(client.run(time.process_time).values()) - others
        spent = {"cpu": time.process_time() - cpu, "worker_cpu": workers, "wall": time.perf_counter() - clock}
        facts = {**spent, "before": before, "client": high(), "workers": list(client.run(high).values())}
        conclude(metric, facts)

if __name__ == "__main__":
    main()
'''


def run(quick: bool = False, measurements: Path | None = None, most: int = MOST) -> Table:
    plan: list[tuple[int, str, str, float]] = [
        (25_000, "memory", "-", 1.0),
        (25_000, "dask", "1GB", 1.0),
        (250_000, "memory", "-", 0.95),
        (250_000, "dask", "2GB", 0.95),
        (4_000_000, "dask", "4GB", 0.95),
    ]
    if quick:
        plan = [(25_000, "memory", "-", 1.0), (25_000, "dask", "1GB", 1.0)]
    plan = [key for key in plan if key[0] <= most]
    done = measured(plan, CODE, measurements)
    columns = ("rows", "where", "recall", "objective", "ARI", "edges", "products", "CPU s", "of workers", "wall s")
    table = Table([*columns, "client MB", "before", "bytes a row", "workers MB", "limit"])
    last: tuple[int, float] | None = None
    for n, where, limit, recall in plan:
        f = done[n, where, limit, recall]
        workers = " + ".join(f"{size:.0f}" for size in f["workers"]) or "-"
        cells = (f"{f['recall']:.3f}", f"{f['objective']:.6g}", f"{f['ari']:.1f}", int(f["edges"]), int(f["products"]))
        spent = (f["cpu"] + f["worker_cpu"], f["worker_cpu"], f["wall"])
        grown = "-"
        if where == "dask" and n >= LARGE:
            if last is not None:
                grown = f"{1e6 * (f['client'] - last[1]) / (n - last[0]):.1f}"
            last = n, f["client"]
        table.add(n, where, *cells, *spent, round(f["client"]), round(f["before"]), grown, workers, limit)
    table.notes += [
        "target: client below 700 MB at 4 million rows, and at most 16 bytes a row; it includes the scheduler",
        "client, workers: highest resident size; before: that of the client when the fit begins; bytes a row: by how "
        f"much the client is larger than with the fewer rows above, from {LARGE:,} rows on; with more rows there are "
        "more chunks, so tasks of the scheduler are part of it",
        *([] if quick else left_out(most)),
    ]
    table.details["runs"] = [[list(key), done[key]] for key in plan]
    return table
