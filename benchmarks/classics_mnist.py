"""LMNN on MNIST: 60,000 rows on 50 principal axes, in a process of its own.

The axes are scaled together, so that the mean squared length of a row is 50.  1-NN errors are on the 10,000 test rows.
"""

from __future__ import annotations

import json
import subprocess
import sys

from .run import Table

CODE = """
import json, resource, sys, time, warnings
import numpy as np
import metricforge as mf
warnings.simplefilter("ignore")
n, tol = int(sys.argv[1]), float(sys.argv[2])
(X, y), (T, t) = mf.datasets.load("mnist"), mf.datasets.load("mnist.t")
X, y = X[:n], y[:n]
mean = X.mean(axis=0, dtype=np.float64)
C = np.zeros((784, 784))
for s in range(0, len(X), 5000):
    D = X[s:s+5000] - mean
    C += D.T @ D
axes = np.linalg.eigh(C)[1][:, ::-1][:, :50]
A, B = (np.concatenate([(Q[s:s+5000] - mean) @ axes for s in range(0, len(Q), 5000)]) for Q in (X, T))
scale = np.sqrt(50 / np.square(A).sum(axis=1).mean())
A, B = scale * A, scale * B
del X, T
few = np.random.default_rng(0).normal(size=(300, 3))
mf.learn(few, few[:, 0] > 0, method="lmnn", kernel="linear")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
cpu, wall = time.process_time(), time.perf_counter()
metric = mf.learn(A, y, method="lmnn", kernel="linear", tol=tol, ridge="least", max_iter=2000)
cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
def error(P, Q):
    index = mf.neighbors.search(P, 1, queries=Q, method="exact")[0][:, 0]
    return 100 * float(np.mean(y[index] != t))
r = metric.report
told = {k: r[k] for k in ("n_iter", "passes", "impostors", "objective", "status")}
told["trace"] = [(float(a), float(b)) for a, b in r.trace]
print(json.dumps({"cpu": cpu, "wall": wall, "before": before, "peak": peak, "gap": r.gap / r.objective,
                  "raw": error(A, B), "learned": error(metric.transform(A), metric.transform(B)), **told}))
"""


def run(quick: bool = False) -> Table:
    columns = ["rows", "tol", "CPU s", "wall s", "peak MB", "gap", "status", "steps", "passes", "impostors"]
    table = Table([*columns, "objective", "raw 1-NN %", "learned 1-NN %"])
    for n, tol in [(2000, 0.05)] if quick else [(60000, 0.05)]:
        done = subprocess.run(
            [sys.executable, "-c", CODE, str(n), str(tol)], capture_output=True, text=True, check=True
        )
        f = json.loads(done.stdout.splitlines()[-1])
        effort = (f["cpu"], f["wall"], f["peak"], f["gap"], f["status"], f["n_iter"], f["passes"], f["impostors"])
        table.add(n, tol, *effort, f["objective"], f["raw"], f["learned"])
        table.details[str(n)] = f
    table.notes.append("goal: at most 5 minutes and 2 GB; one BLAS thread; peak of the whole process")
    return table
