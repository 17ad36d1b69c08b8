"""Whether diagonal dominance leaves any mixture of kernels but zero, by a linear program and its multipliers.

The kernels have ones on their diagonals, so a mixture whose weights sum to 1 has K_ii = 1, and one that is dominant has
Σ_{j≠i} |K_ij| <= 1 in every row i.  `least_row_sum` bounds the largest of these sums from below, over all such weights.
Above 1, no mixture with a positive diagonal is dominant; one with a zero diagonal is the zero matrix.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

LARGEST = 1e6
"""The largest weight, in multiples of their sum: what bounds the effect of rounding in the multipliers."""
ROUNDS = 20


def least_row_sum(grams: Array) -> float:
    """Return a lower bound on max_i Σ_{j≠i} |Σ_p α_p G_p,ij| over Σ α = 1 and |α_p| <= `LARGEST`; 1 or more if found.

    Any signs s_ij bound the sum of a row by Σ_j s_ij K_ij, which is linear in α.  Those of the last solution enter the
    program until its bound exceeds 1.  The bound returned is not the program's value: of its multipliers y >= 0 with
    sum 1 and c = Σ y_i (coefficients of row i), c'α >= m − `LARGEST` Σ |c_p − m| holds for any m, rounding or not.
    """
    from scipy.optimize import linprog

    k, n, _ = grams.shape
    others = grams * ~np.eye(n, dtype=bool)
    cuts, bound = [others.sum(axis=2).T], -np.inf
    for _ in range(ROUNDS):
        C = np.concatenate(cuts)
        found = linprog(
            np.r_[np.zeros(k), 1.0],
            A_ub=np.c_[C, -np.ones(len(C))],
            b_ub=np.zeros(len(C)),
            A_eq=np.r_[np.ones(k), 0.0][None],
            b_eq=[1.0],
            bounds=[*[(-LARGEST, LARGEST)] * k, (None, None)],
        )
        if found.status:
            break
        y = np.maximum(-found.ineqlin.marginals, 0.0)
        c = y @ C / y.sum()
        m = float(np.median(c))
        bound = max(bound, m - LARGEST * float(np.abs(c - m).sum()))
        if bound > 1:
            break
        K = np.tensordot(found.x[:k], others, 1)
        worst = np.argsort(-np.abs(K).sum(axis=1))[: max(20, n // 4)]
        cuts.append(np.einsum("ij,pij->ip", np.sign(K[worst]), others[:, worst]))
    return float(bound)
