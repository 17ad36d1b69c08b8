"""A new chunklet of two rows: appending to the factor, eq. (10) of the paper, and computing eq. (8) again.

The first three columns of times are the paper's own measurement (its Figure 3): expression (8) after one more chunklet,
given the kernel values.  The last four are complete calls, including kernel values, certificate and report.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import numpy as np
from metricforge_papers.appending import CONSTANT, equation_10, factorise, recompute, timed_appends, typical

import metricforge as mf

from .run import Table

GAMMA, WIDTH = 0.02, 16


def whole_calls(X: np.ndarray, n: int, count: int, **options: Any) -> tuple[float, float]:
    """CPU seconds of mf.learn on n rows, and of metric.update by two rows: medians, the first calls not counted."""

    def learn() -> mf.Metric:
        return mf.learn(X[:n], mf.Chunklets(np.arange(n) // 2), method="krca", seed=0, **options)

    pair, times = mf.Chunklets([0, 0]), []
    metric = learn().update(X[n : n + 2], pair)
    for at in range(n + 2, n + 2 + 2 * count, 2):
        start = time.process_time()
        metric = metric.update(X[at : at + 2], pair)
        times.append(time.process_time() - start)
    return typical(learn, 5), median(times)


def run(quick: bool = False) -> Table:
    import scipy.linalg  # noqa: F401 - SciPy has its own BLAS, which must be loaded for the limit to apply
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        return measure(quick)


def measure(quick: bool) -> Table:
    table = Table(
        [
            "n_A",
            "recompute (8), ms",
            "eq. (10), ms",
            "append, ms",
            "recompute ÷ append",
            "eq. (10) ÷ append",
            "our Cholesky ÷ append",
            "largest difference",
            "metric.update, ms",
            "mf.learn ÷ metric.update",
            "metric.update by default, ms",
            "mf.learn ÷ metric.update by default",
        ]
    )
    count = 4 if quick else 40
    for n in (100, 300) if quick else (100, 300, 1000, 2000, 3000):
        X = np.random.default_rng(n).normal(size=(n + 2 * count + 2, WIDTH))
        K = mf.kernels.RBF(GAMMA)(X)
        anew = typical(lambda K=K, n=n: recompute(K[: n + 2, : n + 2]), 5)
        Y = recompute(K[:n, :n])
        K_ab, K_bb = K[:n, n : n + 2], K[n : n + 2, n : n + 2]
        printed = typical(lambda Y=Y, a=K_ab, b=K_bb: equation_10(Y, a, b), 20)
        cholesky = typical(lambda K=K, n=n: factorise(K[: n + 2, : n + 2]), 5)
        appended, factor = timed_appends(K, n, count)
        batch = factorise(K)
        difference = np.abs(factor.packed - batch.packed).max() / np.abs(batch.packed).max()
        learn, update = whole_calls(X, n, count, kernel=mf.kernels.RBF(GAMMA), rank="exact", epsilon=CONSTANT / n)
        default_learn, default_update = whole_calls(X, n, count)
        table.add(
            n,
            1e3 * anew,
            1e3 * printed,
            1e3 * appended,
            anew / appended,
            printed / appended,
            cholesky / appended,
            float(difference),
            1e3 * update,
            learn / update,
            1e3 * default_update,
            default_learn / default_update,
        )
    table.notes += [
        "medians of CPU time on one thread, as in the paper's Figure 3; append and metric.update: of "
        f"{count} one after another",
        "largest difference: of the factor after all appends from the one of all rows at once, relative",
        f"Gaussian kernel on {WIDTH} features, chunklets of two; its values are given in all columns but the last four",
        "by default: mf.learn(X, chunklets, method='krca', seed=0), which has a linear kernel",
        "target: recompute ÷ append >= 1000 and eq. (10) ÷ append >= 20 for n_A >= 1000",
    ]
    return table
