"""The radius with the smallest error on held-out rows."""

from __future__ import annotations

import numpy as np

from metricforge.kernels import squared_euclidean
from metricforge.rows import Array, blocks

FACTORS = 10.0 ** (-np.arange(9) / 3)
"""Candidates for the squared radius as multiples of the joint one, from 1 to 1/464.  A further candidate is 0: the
nearest row decides."""

COMPILE_FROM = 5_000_000
"""From this many distances on, a compiled loop counts the votes: it reads each once, NumPy once per radius."""


def validated(Z: Array, codes: Array, queries: Array, query_codes: Array, h: float) -> tuple[float, float, float]:
    """Return the squared radius with the smallest error on held-out rows, its error, and the error of ``h``.

    The rule is the naive one: the majority among the rows of Z within the radius.  Ties (all classes, if the ball is
    empty) go to the class of the nearest row if it is among them, else to the first.  Of radii with equal errors the
    largest is returned.

    Cost: O(q n (r + classes)) time for q held-out rows, memory for a block of distances.
    """
    unit = h if h > 0 else 2 * float(Z.var(axis=0).sum())  # the mean squared distance
    radii = np.append(unit * FACTORS, 0.0)
    count = _counted if len(queries) * len(Z) < COMPILE_FROM else _compiled
    wrong = np.zeros(len(radii))
    for part in blocks(len(queries), 16 * len(Z)):
        D = squared_euclidean(queries[part], Z)
        votes = count(D, radii, codes)
        wrong += np.count_nonzero(_winners(votes, codes[D.argmin(axis=1)]) != query_codes[part, None], axis=0)
    best = int(wrong.argmin())  # radii descend: the first is the largest
    joint = wrong[0 if h > 0 else -1]
    return float(radii[best]), float(wrong[best] / len(queries)), float(joint / len(queries))


def _counted(D: Array, radii: Array, codes: Array) -> Array:
    """Return the number of rows of each class within each radius of each query: (queries, radii, classes)."""
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
