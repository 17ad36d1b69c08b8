"""Algorithm 1 as published, for comparison: α moves along the gradient of the dual, one eigenproblem a step."""

from __future__ import annotations

import numpy as np

from .dual import Dual

RULES = ("harmonic", "best-response")


def climb(dual: Dual, rule: str, max_iter: int) -> bool:
    """Take the published steps from α = 1 until the gap is closed; return whether ``max_iter`` sufficed.

    - "harmonic": α ← (α + ∂J/∂α / t)₊, step 5 with η_t = 1/t;
    - "best-response": α ← Cw (1 − tK)₊, eq. (14), the maximiser for the present K.

    With the plain hinge α is also bounded by Cw, and the best response is one of its two bounds.
    """
    weight = dual.C * dual.pairs.w
    most = np.inf if dual.squared else weight
    alpha = np.minimum(np.ones(dual.pairs.p), most)
    while True:
        gradient = dual.evaluate(alpha)
        if dual.closed() or len(dual.trace) >= max_iter:
            return dual.closed()
        if rule == "harmonic":
            alpha = alpha + gradient / len(dual.trace)
        elif dual.squared:
            alpha = weight * gradient + alpha  # the gradient is 1 − tK − α/(Cw)
        else:
            alpha = np.where(gradient > 0, weight, 0.0)
        alpha = np.clip(alpha, 0.0, most)
