"""Calls on a metric under a small memory budget: each stays within it, temporaries included, or says what it needs."""

from __future__ import annotations

import json
import subprocess
import sys

BUDGET = 60_000_000

# in a process of its own: other tests leave memory behind, and threads that allocate
WALK = """
import json, os, sys, tracemalloc
import numpy as np
import metricforge as mf
from metricforge.errors import MemoryBudgetError

X = np.random.default_rng(0).normal(size=(20_000, 8))
y = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0)
metrics = {
    "exact": mf.learn(X[:400], y[:400], method="krca", kernel="rbf", rank="exact"),
    "landmarks": mf.learn(X[:4000], y[:4000], method="krca", kernel="rbf", rank=300),
    "start": mf.learn(X[:1500], y[:1500], method="euclidean", kernel="rbf"),
}
metrics["sum"] = metrics["landmarks"] + mf.kernels.RBF(0.1)
calls = {
    "square": lambda m: m.distance(X[:1900]),
    "long": lambda m: m.distance(X, X[:100]),
    "all distances": lambda m: m.distance(X),
    "paired": lambda m: m.paired_distance(X, X[::-1]),
    "transform": lambda m: m.transform(X),
    "neighbors": lambda m: m.neighbors(X[:500], 5),
    "long kernel": lambda m: m.kernel(X, X[:100]),
    "square kernel": lambda m: m.kernel(X[:2000]),
    "whole kernel": lambda m: m.kernel(X),
}
found = []
for name, metric in metrics.items():
    for call, function in calls.items():
        free = function(metric) if call in ("square", "paired", "square kernel") else None
        os.environ["METRICFORGE_MEMORY"] = "60MB"
        tracemalloc.start()
        try:
            result, refused = function(metric), ""
        except MemoryBudgetError as error:
            result, refused = None, str(error)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        del os.environ["METRICFORGE_MEMORY"]
        apart = 0.0 if free is None or result is None else float(np.abs(free - result).max() / np.abs(free).max())
        found.append({"call": f"{call} of {name}", "peak": peak, "refused": refused, "apart": apart})
print(json.dumps(found))
"""


def test_calls_on_a_metric_stay_within_the_budget_or_say_what_they_need():
    ended = subprocess.run([sys.executable, "-c", WALK], text=True, capture_output=True, timeout=300, check=True)
    found = json.loads(ended.stdout)
    assert {one["call"]: one["peak"] for one in found if one["peak"] > BUDGET} == {}
    refused = {one["call"]: one["refused"] for one in found if one["refused"]}
    for call in ("all distances", "whole kernel"):  # 3.2 GB
        assert all(f"{call} of {name}" in refused for name in ("exact", "landmarks", "start", "sum"))
    for call in ("square", "long", "paired", "neighbors", "long kernel", "square kernel"):
        assert not any(f"{call} of {name}" in refused for name in ("exact", "landmarks", "start", "sum"))
    assert all("would take" in text and "the memory budget is 60 MB" in text for text in refused.values())
    assert max(one["apart"] for one in found) < 1e-6  # blocks change the rounding only
