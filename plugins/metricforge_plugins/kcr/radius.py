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

COMPILE_FROM = 5_000_000
"""Distances from which a compiled loop counts the votes: it sees each once, NumPy once a radius."""


def validated(Z: Array, codes: Array, held: Array, held_codes: Array, h: float) -> tuple[float, float, float]:
    """Return the squared radius of least error on held-out rows, its error, and that of ``h`` itself.

    The rule is the naive one: the majority among the rows of Z within the radius; among classes with equally many votes
    (all of them where the ball is empty) that of the nearest row, if it is one of them, else the first.  Of radii with
    equal errors the largest is taken.

    Cost: O(q n (r + classes)) time for q held-out rows, memory for a block of distances.
    """
    unit = h if h > 0 else 2 * float(Z.var(axis=0).sum())  # the mean squared distance
    radii = np.append(unit * FACTORS, 0.0)
    count = _counted if len(held) * len(Z) < COMPILE_FROM else _compiled
    wrong = np.zeros(len(radii))
    for part in blocks(len(held), 16 * len(Z)):
        D = squared_euclidean(held[part], Z)
        votes = count(D, radii, codes)
        wrong += np.count_nonzero(_winners(votes, codes[D.argmin(axis=1)]) != held_codes[part, None], axis=0)
    best = int(wrong.argmin())  # radii descend: the first is the largest
    joint = wrong[0 if h > 0 else -1]
    return float(radii[best]), float(wrong[best] / len(held)), float(joint / len(held))


def _counted(D: Array, radii: Array, codes: Array) -> Array:
    """Return how many rows of each class are within each radius of each query: (queries, radii, classes)."""
    onehot = np.eye(int(codes.max()) + 1, dtype=np.float32)[codes]
    return np.stack([(radius >= D).astype(np.float32) @ onehot for radius in radii], axis=1)


def _compiled(D: Array, radii: Array, codes: Array) -> Array:
    from . import loops

    votes = np.zeros((len(D), len(radii), int(codes.max()) + 1), dtype=np.int64)
    loops.shells(D, radii, codes, votes)
    return votes[:, ::-1].cumsum(axis=1)[:, ::-1]


def _winners(votes: Array, nearest: Array) -> Array:
    """Return the class that wins at each radius, (queries, radii), from the votes and the class of the nearest row."""
    leads = votes == votes.max(axis=2, keepdims=True)
    return np.where(leads[np.arange(len(votes)), :, nearest], nearest[:, None], votes.argmax(axis=2))
