"""The picture of the README: wine as measured, columns scaled, and after the first call, scored on rows held out.

The halves are those of ``metricforge demo``.
"""

from __future__ import annotations

import numpy as np

from metricforge.cli import demo

from .run import Table

COLUMNS = ("metric", "rows held out", "wrong", "1-NN error %", "standard error", "ARI of k-means")


def run(quick: bool = False) -> Table:
    data = next(demo.halves())
    n = int(np.count_nonzero(~data.training))
    first, scaled = demo.fitted(data, "auto", {}), demo.fitted(data, "euclidean", {})
    table = Table(COLUMNS)
    for name, error, ari in (
        ("columns as given", first.error[0], first.ari[0]),
        ("columns divided by their range", scaled.error[1], scaled.ari[1]),
        ("the first call, mf.learn(X, y)", first.error[1], first.ari[1]),
    ):
        spread = 100 * float(np.sqrt(error * (1 - error) / n))
        table.add(name, n, round(n * error), round(100 * error, 1), round(spread, 1), round(ari, 2))
    table.notes.append(f"learned from {int(data.training.sum())} rows; one split, seed 0; {first.metric.report.choice}")
    return table
