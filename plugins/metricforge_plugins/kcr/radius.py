"""The radius that classifies held-out rows best."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricforge.kernels import squared_euclidean
from metricforge.rows import blocks

Array = NDArray[Any]

FACTORS = 10.0 ** (-np.arange(9) / 3)
"""Squared radii that are tried, in joint ones: 1 down to 1/464.  And 0: the nearest row decides."""


def validated(Z: Array, codes: Array, held: Array, held_codes: Array, h: float) -> tuple[float, float, float]:
    """Return the squared radius of least error on held-out rows, its error, and that of ``h`` itself.

    The rule is the naive one: the majority among the rows of Z within the radius; among classes with equally many votes
    (all of them where the ball is empty) that of the nearest row, if it is one of them, else the first.  Of radii with
    equal errors the largest is taken.

    Cost: O(q n (r + classes)) time for q held-out rows, memory for a block of distances.
    """
    unit = h if h > 0 else 2 * float(Z.var(axis=0).sum())  # the mean squared distance
    radii = np.append(unit * FACTORS, 0.0)
    onehot = np.eye(int(codes.max()) + 1, dtype=np.float32)[codes]
    wrong = np.zeros(len(radii))
    joint = 0
    for part in blocks(len(held), 16 * len(Z)):
        D = squared_euclidean(held[part], Z)
        nearest, truth = codes[D.argmin(axis=1)], held_codes[part]
        for k, radius in enumerate(radii):
            wrong[k] += np.count_nonzero(_vote(D, radius, onehot, nearest) != truth)
        joint += int(np.count_nonzero(_vote(D, h, onehot, nearest) != truth))
    best = int(wrong.argmin())  # radii descend: the first is the largest
    return float(radii[best]), float(wrong[best] / len(held)), joint / len(held)


def _vote(D: Array, radius: float, onehot: Array, nearest: Array) -> Array:
    votes = (radius >= D).astype(np.float32) @ onehot  # (b, classes)
    leads = votes == votes.max(axis=1, keepdims=True)
    return np.where(leads[np.arange(len(D)), nearest], nearest, votes.argmax(axis=1))
