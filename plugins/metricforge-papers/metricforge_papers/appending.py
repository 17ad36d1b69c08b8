"""Three ways to add a chunklet of two rows, for Fig. 3 of kernel RCA: (8) anew, eq. (10), and appending to a factor."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

CONSTANT = 1.0
"""c = nε."""


def typical(call: Callable[[], Any], repeats: int) -> float:
    """Return the median CPU time of several calls."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return float(np.median(times))


def centred(A: Array) -> Array:
    """Return HA for chunklets of two consecutive rows."""
    D = (A[0::2] - A[1::2]) / 2
    return np.stack([D, -D], axis=1).reshape(A.shape)


def recompute(K: Array) -> Array:
    """Return (8) with c = nε in place of ε: H (I + KH/c)⁻¹."""
    A = centred(K.T).T / CONSTANT
    A.flat[:: len(A) + 1] += 1
    return centred(np.linalg.inv(A))


def equation_10(Y: Array, K_ab: Array, K_bb: Array) -> Array:
    """Return (8) for A and B together from Y, (8) for A, by eq. (10) as printed."""
    H = np.eye(2) - 0.5
    YKH = Y @ (K_ab @ H) / CONSTANT
    KY = K_ab.T @ Y / CONSTANT
    P = np.linalg.inv(np.eye(2) + K_bb @ H / CONSTANT - K_ab.T @ YKH / CONSTANT)
    left, right = np.vstack([-YKH, H]), np.hstack([-KY, np.eye(2)])
    n = len(Y)
    out = (left @ P) @ right
    out[:n, :n] += Y
    return np.asarray(out)


def factorise(K: Array) -> Any:
    """Return the factor that the solver stores, for chunklets of two rows."""
    from metricforge_plugins.krca.chunklets import contrasts
    from metricforge_plugins.krca.factor import Factor

    sizes = np.full(len(K) // 2, 2)
    A = np.ascontiguousarray(contrasts(contrasts(K, sizes).T, sizes))
    A.flat[:: len(A) + 1] += CONSTANT
    return Factor.of(A)


def append(factor: Any, K_ab: Array, K_bb: Array, sizes: Array) -> Any:
    """Return the factor with one more chunklet of two rows."""
    from metricforge_plugins.krca.chunklets import contrasts

    two = np.array([2])
    B = contrasts(contrasts(K_ab, two).T, sizes)
    return factor.append(B, contrasts(contrasts(K_bb, two).T, two).T + CONSTANT)


def timed_appends(K: Array, n: int, count: int) -> tuple[float, Any]:
    """Return the median time of consecutive appends, starting from n rows, and the final factor.

    The first append, which allocates memory, is not counted.
    """
    factor = append(factorise(K[:n, :n]), K[:n, n : n + 2], K[n : n + 2, n : n + 2], np.full(n // 2, 2))
    times = []
    for at in range(n + 2, n + 2 + 2 * count, 2):
        K_ab, K_bb, sizes = K[:at, at : at + 2], K[at : at + 2, at : at + 2], np.full(at // 2, 2)
        start = time.process_time()
        factor = append(factor, K_ab, K_bb, sizes)
        times.append(time.process_time() - start)
    return float(np.median(times)), factor
