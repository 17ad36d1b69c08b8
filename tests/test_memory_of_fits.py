"""Fits by every method under a small memory budget: each stays within it, or says what it would need."""

from __future__ import annotations

import json
import subprocess
import sys

import metricforge as mf

BUDGET = 60_000_000

# In a process of its own: other tests leave memory behind.  What counts are allocations that Python and NumPy trace
# from the call to its end: neither the interpreter, nor modules and compiled loops, which fits on few rows load first.
WALK = """
import gc, json, os, sys, tracemalloc, warnings
import numpy as np
import metricforge as mf
from metricforge.errors import InputError, MemoryBudgetError

warnings.simplefilter("ignore")


def problem(n, d):
    rng = np.random.default_rng(0)
    y = np.arange(n) % 3
    X = rng.normal(size=(n, d))
    X[:, 0] += y
    P = np.unique(np.sort(rng.integers(0, n, size=(2 * n, 2)), axis=1), axis=0)
    P = P[P[:, 0] != P[:, 1]]
    same = y[P[:, 0]] == y[P[:, 1]]
    T = mf.Triplets.from_labels(y, n_triplets=n, seed=0)
    hints = {
        "Labels": mf.Labels(y),
        "Pairs": mf.Pairs(P[same], P[~same], n=n),
        "Chunklets": mf.Chunklets(np.arange(n) // 3),
        "Triplets": T,
        "Quadruplets": T.to(mf.Quadruplets),
        "Targets": mf.Targets(rng.normal(size=n)),
    }
    return X, hints


found = []
for n, d, kernel, rank in [(60, 8, None, "auto"), (60, 8, "rbf", "auto"), *json.loads(sys.argv[1])]:
    X, hints = problem(n, d)
    for entry in mf.methods():
        own = entry.load().constraint.__name__
        options = {"max_iter": 3} if "solver__max_iter" in mf.MetricLearner(entry.name).get_params() else {}
        for kind in {own, "Labels"}:
            os.environ["METRICFORGE_MEMORY"] = "60MB"
            gc.collect()
            tracemalloc.start()
            ended = "learned"
            try:
                mf.learn(X, hints[kind], method=entry.name, kernel=kernel, rank=rank, **options)
            except MemoryBudgetError as error:
                ended = str(error)
            except InputError:
                ended = "refused"  # a kind that the method cannot use
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            case = f"{entry.name} from {kind}, {n} x {d}, {kernel}, {rank}"
            found.append({"case": case, "peak": peak if n > 60 else 0, "ended": ended})
print(json.dumps(found))
"""
SIZES = [[4000, 8, None, "auto"], [1000, 120, None, "auto"], [1500, 8, "rbf", 150]]


def test_fits_stay_within_the_budget_or_say_what_they_need():
    command = [sys.executable, "-c", WALK, json.dumps(SIZES)]
    ended = subprocess.run(command, text=True, capture_output=True, timeout=600, check=True)
    found = json.loads(ended.stdout)
    assert {one["case"]: one["peak"] for one in found if one["peak"] > BUDGET} == {}
    learned = {one["case"].split()[0] for one in found if one["ended"] == "learned" and one["peak"]}
    assert learned == {entry.name for entry in mf.methods()}  # none refuses everything
    refused = [one["ended"] for one in found if one["ended"] not in ("learned", "refused")]
    assert refused
    assert all("would take" in text and "the memory budget is 60 MB" in text for text in refused)
