"""The compiled loop over impostors; the only file here that imports numba."""

from __future__ import annotations

import numpy as np
from numba import njit

from metricforge.rows import Array

# Sums may be reordered, which allows vectorisation; NaN and infinity are respected.
_FAST = {"reassoc", "contract", "arcp", "nsz"}


@njit(cache=True, nogil=True, fastmath=_FAST)  # type: ignore[untyped-decorator]
def hinges(
    Z: Array,
    V: Array,
    first_target: Array,
    targets: Array,
    first_impostor: Array,
    impostors: Array,
    width: float,
    G: Array,
) -> tuple[float, float]:  # pragma: no cover
    """Return Σ_t φ(u_t) and Σ_t φ'(u_t), and add Σ_t φ'(u_t) (A_ij − A_il) V to G.

    t runs over the triplets (i, j, l) of a target j and a listed impostor l of row i, u_t = 1 + d_ij − d_il with the
    squared distances of Z, A_ij = (e_i − e_j)(e_i − e_j)', and φ is the hinge, smoothed on 0 .. ``width``.

    Parameters
    ----------
    Z : (n, r) array
    V : (n, s) array
        Z itself gives half the gradient in Z.
    first_target, first_impostor : (n + 1,) int arrays
        Where the targets and impostors of each row begin.
    targets, impostors : int arrays
    G : (n, s) array
    """
    n, r = Z.shape
    s = V.shape[1]
    most = 0
    for i in range(n):
        most = max(most, first_target[i + 1] - first_target[i])
    near = np.empty(most)
    pull = np.empty(most)
    loss, mass = 0.0, 0.0
    for i in range(n):
        start = first_target[i]
        k = first_target[i + 1] - start
        if k == 0 or first_impostor[i] == first_impostor[i + 1]:
            continue
        furthest = 0.0
        for t in range(k):
            j = targets[start + t]
            d = 0.0
            for q in range(r):
                x = Z[i, q] - Z[j, q]
                d += x * x
            near[t] = 1.0 + d
            pull[t] = 0.0
            furthest = max(furthest, 1.0 + d)
        for p in range(first_impostor[i], first_impostor[i + 1]):
            l = impostors[p]  # noqa: E741
            d = 0.0
            for q in range(r):
                x = Z[i, q] - Z[l, q]
                d += x * x
            if d >= furthest:
                continue
            push = 0.0
            for t in range(k):
                u = near[t] - d
                if u >= width:
                    loss += u - 0.5 * width
                    push += 1.0
                    pull[t] += 1.0
                elif u > 0.0:
                    loss += 0.5 * u * u / width
                    push += u / width
                    pull[t] += u / width
            mass += push
            for q in range(s):
                x = push * (V[i, q] - V[l, q])
                G[i, q] -= x
                G[l, q] += x
        for t in range(k):
            if pull[t] > 0.0:
                j = targets[start + t]
                for q in range(s):
                    x = pull[t] * (V[i, q] - V[j, q])
                    G[i, q] += x
                    G[j, q] -= x
    return loss, mass
