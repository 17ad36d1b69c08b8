"""Time and memory of the streamed low-rank solver, each size in its own process."""

from __future__ import annotations

import tempfile
from pathlib import Path

from .run import Table, peak_bytes

WIDTH, RANK = 32, 256
MAKE = """
import numpy as np, time
import metricforge as mf
from metricforge.learning import learn
rng = np.random.default_rng(0)
X = rng.standard_normal(({n}, {width}))
chunklets = mf.Chunklets(rng.permutation(np.arange({n}) // 2))
"""
FIT = """
wall, cpu = time.perf_counter(), time.process_time()
metric = learn(X, chunklets, method="krca", kernel="rbf", rank={rank})
assert metric.report.route == "features" and metric.report.chunklet_rows == {n}
from pathlib import Path
Path({out!r}).write_text(f"{{time.perf_counter() - wall}} {{time.process_time() - cpu}} {{metric.report.gap}}")
"""


def run(quick: bool = False) -> Table:
    table = Table(["rows", "wall s", "CPU seconds", "CPU s per 100k rows", "peak, GB", "before the fit, GB", "gap"])
    for n in (3_000, 6_000) if quick else (30_000, 100_000, 200_000, 500_000):
        with tempfile.TemporaryDirectory() as folder:
            out = str(Path(folder) / "seconds")
            make = MAKE.format(n=n, width=WIDTH)
            _, before = peak_bytes(make)
            _, peak = peak_bytes(make + FIT.format(n=n, rank=RANK, out=out))
            wall, cpu, gap = (float(part) for part in Path(out).read_text().split())
        table.add(n, wall, cpu, cpu / n * 1e5, peak / 1e9, before / 1e9, gap)
    table.notes += [
        f"standard normal rows of {WIDTH} features in chunklets of two at random places, Gaussian of the median width, "
        f"m = {RANK} landmarks",
        "peak: resident size of the whole process, rows and libraries included; before the fit: the same without it",
        "target: under 0.6 GB at 500,000 rows, linear in the rows",
    ]
    return table
