"""Compiled loops over softmax neighbours; the only file here that imports numba."""

from __future__ import annotations

import numpy as np
from numba import njit

from metricforge.rows import Array

# Sums may be reordered, which allows vectorisation; NaN and infinity are respected.
_FAST = {"reassoc", "contract", "arcp", "nsz"}
FAR = 30.0
"""Terms below e^-30 of the largest of a row are skipped."""


@njit(cache=True, nogil=True, fastmath=_FAST)  # type: ignore[untyped-decorator]
def weigh(D: Array, rows: Array, codes: Array, total: Array) -> float:  # pragma: no cover
    """Replace squared distances D (b, n) of some rows (b,) by w_ij = p_ij (1[same class] − p_i).

    Returns Σ p_i over the rows, and writes log Σ_j exp(−d_ij) into ``total`` (b,).
    """
    b, n = D.shape
    f = 0.0
    for a in range(b):
        i = rows[a]
        D[a, i] = np.inf
        nearest = np.inf
        for j in range(n):
            nearest = min(nearest, D[a, j])
        c = codes[i]
        sum_all, sum_same = 0.0, 0.0
        limit = nearest + FAR
        for j in range(n):
            d = D[a, j]
            if d <= limit:  # at 1e17 the limit is the nearest itself
                e = np.exp(nearest - d)
                D[a, j] = e
                sum_all += e
                if codes[j] == c:
                    sum_same += e
            else:
                D[a, j] = 0.0
        p = sum_same / sum_all
        f += p
        total[a] = np.log(sum_all) - nearest
        for j in range(n):
            e = D[a, j]
            if e > 0.0:
                D[a, j] = e / sum_all * ((1.0 if codes[j] == c else 0.0) - p)
    return f


@njit(cache=True, nogil=True, fastmath=_FAST)  # type: ignore[untyped-decorator]
def listed(Z: Array, near: Array, codes: Array, G: Array, start: int, stop: int) -> float:  # pragma: no cover
    """Return Σ p_i over the listed neighbours (n, k) of each row only, and add half its gradient in Z to G.

    The rows i are those from ``start`` to ``stop``.
    """
    r, k = Z.shape[1], near.shape[1]
    e = np.empty(k)
    f = 0.0
    for i in range(start, stop):
        nearest = np.inf
        for t in range(k):
            j = near[i, t]
            d = 0.0
            for q in range(r):
                x = Z[i, q] - Z[j, q]
                d += x * x
            e[t] = d
            nearest = min(nearest, d)
        c = codes[i]
        sum_all, sum_same = 0.0, 0.0
        for t in range(k):
            if e[t] <= nearest + FAR:
                e[t] = np.exp(nearest - e[t])
                sum_all += e[t]
                if codes[near[i, t]] == c:
                    sum_same += e[t]
            else:
                e[t] = 0.0
        p = sum_same / sum_all
        f += p
        for t in range(k):
            if e[t] > 0.0:
                j = near[i, t]
                w = e[t] / sum_all * ((1.0 if codes[j] == c else 0.0) - p)
                for q in range(r):
                    x = w * (Z[i, q] - Z[j, q])
                    G[i, q] -= x
                    G[j, q] += x
    return f
