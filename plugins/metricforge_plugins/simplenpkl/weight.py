"""The smallest weight of the pairs for which the learned kernel is not zero."""

from __future__ import annotations

import numpy as np

from metricforge import eigen

from .laplacian import Laplacian
from .pairs import SignedPairs

DOUBLINGS = 60
"""How often `smallest_weight` doubles C before it gives up."""
BISECTIONS = 9
"""Bisections of an interval of ratio 2 to a ratio of 1.002."""


def smallest_weight(laplacian: Laplacian, pairs: SignedPairs, C: float) -> float:
    """Return the smallest weight above C, to three digits, for which C T − L has a positive eigenvalue.

    The largest eigenvalue is convex in C, 0 at C = 0 and unbounded, because T is symmetric with trace 0 and not 0.
    Returns infinity if no weight up to 2^DOUBLINGS C is enough, which means that T is 0 up to rounding.
    """

    def positive(c: float) -> bool:
        A = laplacian.matrix(pairs, c * pairs.w)
        return bool(eigen.top(A, 1, tol=1e-8)[0][0] > 1e-9 * max(1.0, c))

    low, high = C, 2 * C
    for _ in range(DOUBLINGS):
        if positive(high):
            break
        low, high = high, 2 * high
    else:
        return float("inf")
    for _ in range(BISECTIONS):
        middle = np.sqrt(low * high)
        low, high = (low, middle) if positive(middle) else (middle, high)
    return float(high)
