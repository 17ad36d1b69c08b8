"""Adult (a9a, 32,561 sparse rows of 123 features): 100,000 pairs over RBF landmarks, 1-NN error on a9a.t.

Each fit runs in its own process with one BLAS thread; the peak is that of the process before the test rows are used.
Whether a setting helps is decided on training rows alone: metrics learned on three quarters of them are evaluated on
the others.  Needs the published data sets (METRICFORGE_DATA).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import product

import numpy as np
from metricforge_plugins.idealized import proximal
from metricforge_plugins.idealized.differences import differences
from metricforge_plugins.idealized.program import Program
from metricforge_plugins.idealized.selection import pairs_from_labels
from threadpoolctl import threadpool_limits

import metricforge as mf
from metricforge import neighbors, psd
from metricforge.space import represent

from .run import Table

FITS = (
    ("random", {}),
    ("random", {"c_similar": 100, "c_dissimilar": 100, "nu": 0.6}),
    ("closest", {"c_similar": 100, "c_dissimilar": 100, "nu": 0.6}),
    ("closest", {"c_similar": 30, "c_dissimilar": 100, "nu": 0.6}),
)
RANK = 100

JUDGED = 8000
"""Training rows on which the study evaluates."""
GRID = tuple(product((10, 100), (0.3, 3, 30), (0.2, 0.6)))
"""C_D · mean ‖z‖², C_S / C_D and ν."""
ONE = ((100, 3, 0.6), (1000, 0.3, 0.6))
STUDY = ((RANK, 1.0, 20_000, GRID), (RANK, 0.3, 20_000, ONE), (RANK, 3.0, 20_000, ONE), (300, 1.0, 20_000, ONE[:1]),
         (RANK, 1.0, 100_000, ONE[:1]))  # fmt: skip
"""Landmarks, the RBF's γ over that of the median width, pairs and trade-offs; each with random and with close pairs."""

CODE = """
import json, resource, sys, time
import numpy as np
import metricforge as mf
which, pairs_wanted, rank, test_rows, options = json.loads(sys.argv[1])
X, y = mf.datasets.load("a9a")
A, b = mf.datasets.load("a9a.t")
y = np.asarray(y)
drawn = np.random.default_rng(0).permutation(A.shape[0])[:test_rows]
A, b = A[drawn], np.asarray(b)[drawn]
kernel = mf.kernels.RBF("median")
if which == "random":
    hints = mf.Pairs.from_labels(y, n_pairs=pairs_wanted // 2, seed=0)
else:  # of the closest pairs that labels give, as many of each kind
    from metricforge_plugins.idealized.selection import pairs_from_labels
    from metricforge.space import represent
    Phi = represent(kernel.resolve(X), X, rank).features
    found = pairs_from_labels(Phi, (y > 0).astype(int), 5, "median")
    rng = np.random.default_rng(0)
    half = pairs_wanted // 2
    parts = [side[np.sort(rng.permutation(len(side))[:half])] for side in (found.similar, found.dissimilar)]
    hints = mf.Pairs(*parts, n=len(y))
wall, cpu = time.perf_counter(), time.process_time()
metric = mf.learn(X, hints, method="idealized", kernel=kernel, rank=rank, **options)
cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
from metricforge import neighbors
map = metric.kernel.map
found = [
    mf.learn(X, hints, method="euclidean", kernel=kernel).neighbors(A, 1),
    neighbors.search(map(X), 1, queries=map(A)),
    metric.neighbors(A, 1),
]
errors = [float(np.mean(y[index[:, 0]] != b)) for index, _ in found]
r = metric.report
print(json.dumps({
    "pairs": r.similar_pairs + r.dissimilar_pairs, "cpu": cpu, "wall": wall, "peak": peak, "gap": r.relative_gap,
    "learned": r.learned, "gamma": r.gamma, "rank": r.learned_rank, "support": r.support_share, "error": r.error_share,
    "alignment": [r.alignment_before, r.alignment_after], "errors": errors,
}))
"""


def measure(which: str, pairs: int, rank: int, test_rows: int, options: dict) -> dict:
    job = json.dumps([which, pairs, rank, test_rows, options])
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", CODE, job], capture_output=True, text=True, check=False, env=env)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


class Judge:
    """Training rows of a9a in two parts, one to learn from and one to evaluate on."""

    def __init__(self, judged: int) -> None:
        X, y = mf.datasets.load("a9a")
        y = (np.asarray(y) > 0).astype(int)
        order = np.random.default_rng(7).permutation(len(y))
        self.X, self.y, self.A, self.b = X[order[judged:]], y[order[judged:]], X[order[:judged]], y[order[:judged]]

    def floor(self) -> float:
        """Return the mean of 2p(1 − p), the error of a neighbour at no distance, p by logistic regression."""
        from sklearn.linear_model import LogisticRegression

        p = LogisticRegression(max_iter=1000).fit(self.X, self.y).predict_proba(self.A)[:, 1]
        return float(200 * np.mean(p * (1 - p)))

    def features(self, rank: int, factor: float) -> tuple[np.ndarray, np.ndarray]:
        kernel = mf.kernels.RBF(factor * mf.kernels.RBF("median").resolve(self.X).gamma)
        map = represent(kernel, self.X, rank).map
        return np.asarray(map(self.X)), np.asarray(map(self.A))

    def errors(self, E: np.ndarray, Q: np.ndarray) -> tuple[float, float]:
        """Return the errors of one and of five neighbours, in per cent."""
        votes = self.y[neighbors.search(E, 5, queries=Q)[0]]
        return 100 * np.mean(votes[:, 0] != self.b), 100 * np.mean((votes.sum(axis=1) > 2) != self.b)

    def pairs(self, Phi: np.ndarray, which: str, size: int) -> tuple[np.ndarray, np.ndarray]:
        if which == "random":
            found = mf.Pairs.from_labels(self.y, n_pairs=size // 2, seed=0)
        else:
            found = pairs_from_labels(Phi, self.y, 5, "median")
        rng = np.random.default_rng(0)
        return tuple(rng.permutation(side)[: size // 2] for side in (found.similar, found.dissimilar))

    def learned(self, Phi: np.ndarray, similar: np.ndarray, dissimilar: np.ndarray, trade_off: tuple) -> np.ndarray:
        """Return L with B = LL'."""
        C, ratio, nu = trade_off
        i, j = np.concatenate([similar, dissimilar]).T
        z = differences(Phi - Phi.mean(axis=0), i, j)
        keep = np.flatnonzero(z.squares > 1e-24 * z.squares.max())
        z, apart = z.select(keep), keep >= len(similar)
        C = C / z.squares.mean()
        program = Program(z, apart, z.squares, ratio * C, C, nu)
        return psd.factor(proximal.solve(program, psd=True, tol=1e-3, max_iter=1000).B)


def study(settings: tuple, judged: int) -> list[str]:
    """Return sentences on how metrics learned from a part of the training rows do on the others."""
    judge = Judge(judged)
    said = []
    for rank, factor, size, grid in settings:
        Phi, Q = judge.features(rank, factor)
        before = judge.errors(Phi, Q)
        for which in ("random", "closest"):
            sides = judge.pairs(Phi, which, size)
            factors = [judge.learned(Phi, *sides, trade_off) for trade_off in grid]
            after = np.array([judge.errors(Phi @ L, Q @ L) for L in factors])
            ranges = [
                f"{b:.2f} → {low:.2f}" + (f" to {high:.2f}" if len(grid) > 1 else "")
                for b, low, high in zip(before, after.min(axis=0), after.max(axis=0), strict=True)
            ]
            said.append(f"γ × {factor:g}, {rank} landmarks, {size} {which} pairs: {ranges[0]} (5-NN {ranges[1]})")
    count = 2 * sum(len(grid) for *_, grid in settings)
    return [
        f"study on training rows alone, {len(judge.y)} to learn from and {len(judge.b)} to judge by, {count} settings "
        "of C_D, C_S / C_D, ν, γ, landmarks and pairs: 1-NN error in %, features → learned, least to largest: "
        + "; ".join(said),
        f"a neighbour at no distance errs with 2p(1 − p): {judge.floor():.2f} % on those rows by logistic regression",
    ]


def run(quick: bool = False) -> Table:
    table = Table(
        ["pairs", "which", "options", "CPU s", "wall s", "peak GB", "relative gap", "alignment", "1-NN error, %"]
    )
    pairs, rank, test_rows = (5000, 20, 500) if quick else (100_000, RANK, 16_281)
    for which, options in FITS[:1] if quick else FITS:
        found = measure(which, pairs, rank, test_rows, options)
        errors = " → ".join(f"{100 * e:.2f}" for e in found["errors"])
        aligned = "{:.3f} → {:.3f}".format(*found["alignment"])
        said = ", ".join(f"{name}={value:g}" for name, value in options.items())
        said = said or "defaults"
        said += "" if found["learned"] else " (nothing learned)"
        cells = found["cpu"], found["wall"], found["peak"], found["gap"], aligned, errors
        table.add(found["pairs"], which, said, *cells)
    with threadpool_limits(1, user_api="blas"):
        notes = study(((20, 1.0, 2000, ONE),) if quick else STUDY, 500 if quick else JUDGED)
    table.notes += [
        f"RBF of the median width over {rank} landmarks; 1-NN on {test_rows} rows of a9a.t: the kernel itself → its "
        "landmark features, where learning starts → learned; the standard error of one figure is 0.3 points",
        "CPU and wall: the whole of mf.learn, landmarks and features included; peak: resident size of the process",
        "target: 100,000 pairs within 2 GB",
        *notes,
    ]
    return table
