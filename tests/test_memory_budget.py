"""Calls on a metric under a small memory budget: each stays within it, temporaries included, or says what it needs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from metricforge.kernels import Linear, squared_euclidean
from metricforge.space import FeatureMap

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


def traced_peak(call):
    """Return the most memory that a call holds at once, its arguments excluded."""
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_near_rows_of_many_columns_are_measured_a_few_at_a_time():
    X, Y = np.random.default_rng(0).normal(size=(2, 60, 50_000))
    # the distance of a row from its copy is lost to rounding, and measured again
    apart, near = (traced_peak(lambda rows=rows: squared_euclidean(X, rows)) for rows in (Y, X.copy()))
    assert near < apart + 10_000_000  # with blocks of 8 MB for each of three arrays, it was 16 MB more


def test_taken_rows_of_many_columns_are_copied_block_by_block(monkeypatch):
    monkeypatch.setenv("METRICFORGE_MEMORY", "20MB")
    X = np.random.default_rng(0).normal(size=(60, 50_000))
    index = np.random.default_rng(1).permutation(60)
    map = FeatureMap(Linear(), X[:3], None, 3)
    for gather in (False, True):
        assert traced_peak(lambda gather=gather: map.of_rows(X, index, gather=gather)) < X.nbytes / 2
        np.testing.assert_array_equal(map.of_rows(X, index, gather=gather), map(X[index]))


# Reading is measured by the resident size, because pyarrow and HiGHS do not allocate through Python.
COMMANDS = """
import contextlib, ctypes, gc, io, json, os, sys, warnings
from pathlib import Path
import numpy as np
from metricforge.cli.program import main

warnings.simplefilter("ignore")
os.chdir(sys.argv[1])


def resident(name):
    text = Path("/proc/self/status").read_text()
    return 1024 * int(next(line.split()[1] for line in text.splitlines() if line.startswith(name)))


def table(name, n, d):
    values = np.random.default_rng(0).integers(0, 9, size=(n, d)).astype(str)
    lines = [",".join(row) + f",k{i % 2}" for i, row in enumerate(values.tolist())]
    Path(name).write_text(",".join([*(f"c{i}" for i in range(d)), "class"]) + "\\n" + "\\n".join(lines) + "\\n")


found = []
for name, n, d, budget, method in [
    ("long", 200_000, 8, "100MB", "euclidean"),
    ("wide", 6, 50_000, "100MB", "euclidean"),
    ("too long", 100_000, 10, "15MB", "euclidean"),
    ("a large linear program", 1000, 20, "100MB", "lpdesign"),
]:
    for size in (min(n, 300), n):
        table("rows.csv", size, d if size == n else min(d, 20))
        gc.collect()
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
        before, err = resident("VmRSS"), io.StringIO()
        os.environ["METRICFORGE_MEMORY"] = budget
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(err):
            code = main(["learn", "rows.csv", "--label", "class", "--method", method, "-o", "o.metric"])
    found.append({"name": name, "peak": resident("VmHWM") - before, "code": code, "err": err.getvalue()})
print(json.dumps(found))
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak of a call is read from /proc")
def test_commands_stay_within_the_budget_or_say_what_they_need(tmp_path):
    command = [sys.executable, "-c", COMMANDS, str(tmp_path)]
    ended = subprocess.run(command, text=True, capture_output=True, timeout=300, check=True)
    found = {one["name"]: one for one in json.loads(ended.stdout)}
    assert {name: one["peak"] for name, one in found.items() if one["peak"] > 130_000_000} == {}
    assert [one["code"] for one in found.values()] == [0, 0, 2, 2]
    assert re.search(r"reading the first \d+ rows of 'rows.csv' would take", found["too long"]["err"])
    assert "lpdesign on 1000 rows" in found["a large linear program"]["err"]
