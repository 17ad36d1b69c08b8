"""Eigenvectors on dask workers against those in memory: eigenvalues, CPU time, peak memory, and a worker killed.

The matrix is the circulant graph that joins row i with rows i ± o for eight random offsets o, divided by 16: every row
block needs rows everywhere, all eigenvalues but the first are double, and all are known.  "three graphs" is a neighbour
graph of a third of the rows three times, so that every eigenvalue is triple.  Each run has its own process, and two
worker processes of one thread; sizes are resident ones, those of the workers at their highest.
"""

from __future__ import annotations

from pathlib import Path

from .apart import MOST, add_options, left_out, measured
from .run import Table

__all__ = ["add_options", "run"]

CODE = '''
import json, os, signal, sys, time
import numpy as np
import scipy.sparse as sp
from metricforge import eigen, neighbors
from metricforge.distributed.eigen import RowBlocks
from metricforge.rows import Value, as_array, evaluate

def offsets(n):
    return np.unique(np.random.default_rng(0).integers(n // 100, n // 2, size=8))

def circulant(n, start, stop):
    """Return the rows start to stop of the circulant matrix."""
    o = offsets(n)
    rows = np.arange(start, stop)[:, None]
    columns = np.sort(np.concatenate([(rows + o) % n, (rows - o) % n], axis=1), axis=1).astype(np.int32)
    starts = np.arange(0, columns.size + 1, columns.shape[1])
    return sp.csr_array((np.full(columns.size, 1 / (2 * len(o))), columns.ravel(), starts), shape=(stop - start, n))

def exact(n, k):
    m = np.arange(n // 2 + 1)
    w = sum(np.cos(2 * np.pi * ((o * m) % n) / n) for o in offsets(n)) / len(offsets(n))
    best = m[np.argsort(-w)[: k + 1]]
    return np.sort(np.concatenate([w[best], w[best[(best > 0) & (2 * best < n)]]]))[::-1][:k]

def three_graphs(n):
    X = np.random.default_rng(0).standard_normal((n // 3, 4))
    S = neighbors.graph(neighbors.search(X, 10)[0], kind="union")
    scale = sp.diags_array(1 / np.sqrt(np.maximum(S.sum(axis=1), 1)))
    A = sp.block_diag([scale @ S @ scale] * 3, format="csr")
    order = np.random.default_rng(1).permutation(A.shape[0])
    return sp.csr_array(A[order][:, order])

def high():
    return int(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))) / 1000

def same(block):
    return block

def main():
    what, where, limit = sys.argv[1], sys.argv[2], sys.argv[6]
    n, k, tol = int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])
    if where == "memory":
        A = circulant(n, 0, n) if what == "circulant" else three_graphs(n)
        clock, cpu = time.perf_counter(), time.process_time()
        found = eigen.top(A, k, tol=tol, solver="lanczos")
        spent = time.process_time() - cpu, 0.0, time.perf_counter() - clock
        facts = {"client": high(), "workers": []}
    else:
        from distributed import Client, LocalCluster
        options = {"threads_per_worker": 1, "memory_limit": limit, "dashboard_address": ":0", "silence_logs": 50}
        with LocalCluster(n_workers=2, **options) as cluster, Client(cluster) as client:
            blocks = max(4, -(-n // 400_000))
            bounds = np.linspace(0, n, blocks + 1).astype(int).tolist()
            if what == "circulant":
                values = [Value(circulant, n, i, j) for i, j in zip(bounds[:-1], bounds[1:])]
            else:
                A = three_graphs(n)
                values = [Value(same, A[i:j]) for i, j in zip(bounds[:-1], bounds[1:])]
            evaluate(values, [])
            A = as_array(values, tuple(np.diff(bounds).tolist()), n, sp.csr_array((0, 0)))
            if where == "killed":
                product, calls = RowBlocks.product, []
                def counted(self, X, unit):
                    calls.append(1)
                    if len(calls) == 32:
                        os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
                    return product(self, X, unit)
                RowBlocks.product = counted
            clock, cpu, before = time.perf_counter(), time.process_time(), sum(client.run(time.process_time).values())
            found = eigen.top(A, k, tol=tol)
            workers = sum(client.run(time.process_time).values()) - before
            spent = time.process_time() - cpu, workers, time.perf_counter() - clock
            facts = {"client": high(), "workers": list(client.run(high).values())}
    truth = exact(n, k).tolist() if what == "circulant" else None
    print(json.dumps({
        "w": found[0].tolist(), "truth": truth, "status": found.status, "products": found.n_products,
        "residual": float(found.residuals.max()), "cpu": spent[0], "worker_cpu": spent[1], "wall": spent[2], **facts,
    }))

if __name__ == "__main__":
    main()
'''


def run(quick: bool = False, measurements: Path | None = None, most: int = MOST) -> Table:
    plan: list[tuple[str, str, int, int, float, str]] = [
        ("three graphs", "memory", 30_000, 9, 1e-8, "-"),
        ("three graphs", "dask", 30_000, 9, 1e-8, "2GB"),
        ("circulant", "memory", 60_000, 16, 1e-7, "-"),
        ("circulant", "dask", 60_000, 16, 1e-7, "2GB"),
        ("circulant", "killed", 60_000, 16, 1e-7, "2GB"),
        ("circulant", "memory", 250_000, 32, 1e-4, "-"),
        ("circulant", "dask", 250_000, 32, 1e-4, "2GB"),
        ("circulant", "dask", 4_000_000, 32, 1e-4, "3GB"),
    ]
    if quick:
        plan = [("three graphs", where, 3000, 6, 1e-8, "1GB") for where in ("memory", "dask", "killed")]
    plan = [key for key in plan if key[2] <= most]
    done = measured(plan, CODE, measurements)
    columns = ("matrix", "where", "n", "k", "tol", "against memory", "against truth", "products", "CPU s")
    table = Table([*columns, "of workers", "wall s", "client MB", "workers MB", "limit"])
    for key in plan:
        what, where, n, k, tol, limit = key
        found, here = done[key], done.get((what, "memory", n, k, tol, "-" if not quick else limit))
        against = "-" if where == "memory" or here is None else f"{difference(found['w'], here['w']):.1e}"
        truth = "-" if found["truth"] is None else f"{difference(found['w'], found['truth']):.1e}"
        workers = " + ".join(f"{size:.0f}" for size in found["workers"]) or "-"
        cells = (against, truth, found["products"], found["cpu"] + found["worker_cpu"], found["worker_cpu"])
        table.add(what, where, n, k, f"{tol:g}", *cells, found["wall"], round(found["client"]), workers, limit)
    table.notes += [
        "against: the largest difference of an eigenvalue, relative to the largest eigenvalue",
        "killed: SIGKILL to a worker at the 32nd product",
        "limit: memory_limit of a worker; dask spills to disk from 60 % of it on",
        *([] if quick else left_out(most)),
    ]
    return table


def difference(w: list[float], v: list[float]) -> float:
    """Return the largest difference relative to the largest eigenvalue."""
    return max(abs(a - b) for a, b in zip(w, v, strict=True)) / max(v)
