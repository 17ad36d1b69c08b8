"""The windows κ of the rule, as functions of the squared distance in units of the squared radius, and their slopes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from metricforge.optimize import smoothed_hinge
from metricforge.rows import Array

FARTHEST = 1e150
"""Powers of squared distances are limited to this."""


def gaussian(D: Array, mu: float, d: int) -> tuple[Array, Array]:
    """Return e^(−D) and minus its slope."""
    k = np.exp(-D)
    return k, k


def epanechnikov(D: Array, mu: float, d: int) -> tuple[Array, Array]:
    """Return [1 − D]₊ smoothed over μ, and minus its slope."""
    return smoothed_hinge(1 - D, mu)


def cauchy(D: Array, mu: float, d: int) -> tuple[Array, Array]:
    """Return 1 / (1 + D^p) and minus its slope, p = (d + 1)/2."""
    p = (d + 1) / 2
    D = np.minimum(D, FARTHEST ** (1 / p))
    below = D ** (p - 1)
    k = 1 / (1 + below * D)
    return k, p * (below * k) * k


WINDOWS: dict[str, Callable[[Array, float, int], tuple[Array, Array]]] = {
    "gaussian": gaussian,
    "epanechnikov": epanechnikov,
    "cauchy": cauchy,
}
"""From D, the smoothing width and the dimension d of the embedding to κ and −dκ/dD; all but the naive window."""
