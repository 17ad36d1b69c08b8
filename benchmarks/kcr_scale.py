"""Adult and letter: time of a fit, and test error with the joint and the validated radius and of raw neighbours.

Each fit runs in its own process, after one that loads the compiled loops.  Adult: the 32,561 rows of a9a, tested on the
16,281 of a9a.t.  Letter: 15,000 random rows, tested on the other 5,000, with standardised features.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

from .run import Table

CODE = """
import json, resource, sys, time
import numpy as np
import metricforge as mf
from metricforge import datasets
from metricforge.tasks import KernelRule
name, rank, n = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
if name == "a9a":
    (X, y), (T, t) = datasets.load("a9a"), datasets.load("a9a.t")
else:
    X, y = datasets.load("letter")
    order = np.random.default_rng(0).permutation(len(X))
    X, y, T, t = X[order[:15000]], y[order[:15000]], X[order[15000:]], y[order[15000:]]
    mean, spread = X.mean(axis=0), X.std(axis=0)
    X, T = (X - mean) / spread, (T - mean) / spread
if n < X.shape[0]:
    X, y, T, t = X[:n], y[:n], T[:n], t[:n]
few = np.random.default_rng(0).normal(size=(900, 3))
mf.learn(few, few[:, 0] > 0, method="kcr", pairs="random", n_pairs=300_000, tol=0.5)
wall, cpu = time.perf_counter(), time.process_time()
metric = mf.learn(X, y, method="kcr", kernel=mf.kernels.RBF("median"), rank=rank)
cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
report = metric.report
found = {
    radius: 100 - 100 * KernelRule(metric, radius=report[radius]).fit(X, y).score(T, t)
    for radius in ("joint_radius", "radius")
}
from sklearn.neighbors import KNeighborsClassifier
raw = {k: 100 - 100 * KNeighborsClassifier(k).fit(X, y).score(T, t) for k in (1, 3)}
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
told = {k: report[k] for k in ("rows_compared", "n_pairs", "n_iter", "learned_rank")}
gap = report.gap / report.objective
print(json.dumps({"cpu": cpu, "wall": wall, "peak": peak, "gap": gap, "found": found, "raw": raw, **told}))
"""


def run(quick: bool = False) -> Table:
    effort = ("wall s", "CPU s", "steps", "rank of W", "gap", "peak MB")
    errors = ("joint radius %", "validated %", "raw 1-NN %", "raw 3-NN %")
    table = Table(["set", "rows", "landmarks", "rows compared", "pairs", *effort, *errors])
    jobs = [("letter", 100)] if quick else [("a9a", 200), ("a9a", 500), ("letter", 200), ("letter", 500)]
    if not os.environ.get("METRICFORGE_DATA"):
        jobs = [job for job in jobs if job[0] != "a9a"]
    for name, rank in jobs:
        n = 3000 if quick else {"a9a": 32561, "letter": 15000}[name]
        done = subprocess.run(
            [sys.executable, "-c", CODE, name, str(rank), str(n)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(done.stderr)
        r = json.loads(done.stdout.splitlines()[-1])
        cost = (r["wall"], r["cpu"], r["n_iter"], r["learned_rank"], r["gap"], round(r["peak"]))
        scores = (r["found"]["joint_radius"], r["found"]["radius"], *r["raw"].values())
        table.add(name, n, rank, r["rows_compared"], r["n_pairs"], *cost, *(f"{e:.2f}" for e in scores))
    table.notes += [
        "target: Adult at most 15 % in about 5 s on two idle cores",
        "seconds of mf.learn: landmarks, features, descent, certificate and the validation of the radius; peak of the "
        "whole process, data and scores included",
        "Gaussian kernel of the median width, every option at its default; validated: the radius of least error on "
        "3000 (letter: 1500) rows held out of the fit",
    ]
    return table
