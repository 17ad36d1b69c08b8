"""A new chunklet of two: appending to the factor beside eq. (10) of the paper and beside computing eq. (8) anew.

The first three columns of times are the paper's own measurement (its Figure 3): expression (8) after one more chunklet,
the kernel's values given.  The last two are whole calls, kernel values, certificate and report included.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
from metricforge_plugins.krca.chunklets import contrasts
from metricforge_plugins.krca.factor import Factor

import metricforge as mf

from .run import Table

RIDGE, GAMMA, WIDTH = 1.0, 0.02, 16


def typical(call: Callable[[], Any], repeats: int) -> float:
    """The median CPU time of several calls."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return median(times)


def centred(A: np.ndarray) -> np.ndarray:
    """HA for chunklets of two that lie side by side."""
    D = (A[0::2] - A[1::2]) / 2
    return np.stack([D, -D], axis=1).reshape(A.shape)


def recompute(K: np.ndarray) -> np.ndarray:
    """Eq. (8) with nε in place of ε: H (I + KH/c)⁻¹."""
    A = centred(K.T).T / RIDGE
    A.flat[:: len(A) + 1] += 1
    return centred(np.linalg.inv(A))


def equation_10(Y: np.ndarray, K_ab: np.ndarray, K_bb: np.ndarray) -> np.ndarray:
    """Eq. (10) as printed: (8) for A and B together from Y = (8) for A."""
    H = np.eye(2) - 0.5
    YKH = Y @ (K_ab @ H) / RIDGE
    KY = K_ab.T @ Y / RIDGE
    P = np.linalg.inv(np.eye(2) + K_bb @ H / RIDGE - K_ab.T @ YKH / RIDGE)
    left, right = np.vstack([-YKH, H]), np.hstack([-KY, np.eye(2)])
    n = len(Y)
    out = (left @ P) @ right
    out[:n, :n] += Y
    return out


def append(factor: Factor, K_ab: np.ndarray, K_bb: np.ndarray, sizes: np.ndarray) -> Factor:
    two = np.array([2])
    B = contrasts(contrasts(K_ab, two).T, sizes)
    return factor.append(B, contrasts(contrasts(K_bb, two).T, two).T + RIDGE)


def factorise(K: np.ndarray) -> Factor:
    sizes = np.full(len(K) // 2, 2)
    A = np.ascontiguousarray(contrasts(contrasts(K, sizes).T, sizes))
    A.flat[:: len(A) + 1] += RIDGE
    return Factor.of(A)


def timed_appends(K: np.ndarray, n: int, count: int) -> tuple[float, Factor]:
    """The median time of appends one after another, from n rows on; the first, which makes room, is left out."""
    factor = append(factorise(K[:n, :n]), K[:n, n : n + 2], K[n : n + 2, n : n + 2], np.full(n // 2, 2))
    times = []
    for at in range(n + 2, n + 2 + 2 * count, 2):
        K_ab, K_bb, sizes = K[:at, at : at + 2], K[at : at + 2, at : at + 2], np.full(at // 2, 2)
        start = time.process_time()
        factor = append(factor, K_ab, K_bb, sizes)
        times.append(time.process_time() - start)
    return median(times), factor


def whole_calls(X: np.ndarray, n: int, count: int) -> tuple[float, float]:
    """Seconds of mf.learn on n rows, and the median of metric.update by two rows."""
    kernel, pair = mf.kernels.RBF(GAMMA), mf.Chunklets([0, 0])
    options = {"method": "krca", "kernel": kernel, "rank": "exact", "epsilon": RIDGE / n}
    learn = typical(lambda: mf.learn(X[:n], mf.Chunklets(np.arange(n) // 2), **options), 2)
    metric = mf.learn(X[:n], mf.Chunklets(np.arange(n) // 2), **options).update(X[n : n + 2], pair)
    times = []
    for at in range(n + 2, n + 2 + 2 * count, 2):
        start = time.process_time()
        metric = metric.update(X[at : at + 2], pair)
        times.append(time.process_time() - start)
    return learn, median(times)


def run(quick: bool = False) -> Table:
    import scipy.linalg  # noqa: F401 - with its own BLAS, which the limit must find loaded
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
        learn, update = whole_calls(X, n, count)
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
        )
    table.notes += [
        "medians of CPU time on one thread, as in the paper's Figure 3; append and metric.update: of "
        f"{count} one after another",
        "largest difference: of the factor after all appends from the one of all rows at once, relative",
        f"Gaussian kernel on {WIDTH} features, chunklets of two; its values are given in all columns but the last two",
        "to reach: recompute ÷ append >= 1000 and eq. (10) ÷ append >= 20 for n_A >= 1000",
    ]
    return table
