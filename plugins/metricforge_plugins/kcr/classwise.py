"""The largest number of votes among the other classes, bounded by log Σ exp (footnote 6) instead of by their sum."""

from __future__ import annotations

import numpy as np

from metricforge.rows import Array

from .pairs import Compared, Grouped, PairBlock


def largest(pairs: Compared, part: PairBlock, v: Array) -> tuple[Array, Array, Array]:
    """Return Σ_j v_ij over the own class plus log Σ_l exp Σ_j over the others, the weights p_ij and entropies."""
    assert isinstance(pairs, Grouped)
    starts, sizes = np.unique(pairs.same[part.cols, 0] - part.cols.start, return_counts=True)
    sums = np.add.reduceat(v, starts, axis=1)  # (b, classes)
    own = np.searchsorted(starts, pairs.same[part.rows, 0] - part.cols.start)
    rows = np.arange(len(v))
    total = sums[rows, own]
    share = np.ones_like(sums)
    entropy = np.zeros(len(v))
    if len(starts) > 1:
        others = sums.copy()
        others[rows, own] = -np.inf
        peak = others.max(axis=1, keepdims=True)
        share = np.exp(others - peak)
        scale = share.sum(axis=1, keepdims=True)
        share /= scale
        largest = (peak + np.log(scale))[:, 0]
        total = total + largest
        others[rows, own] = 0.0
        entropy = np.maximum(largest - (share * others).sum(axis=1), 0.0)
        share[rows, own] = 1.0
    return total, np.repeat(share, sizes, axis=1), entropy


def rivals(pairs: Compared) -> Array:
    """Return the number of other classes that each row is compared with."""
    assert isinstance(pairs, Grouped)
    found = np.zeros(pairs.n)
    for rows, cols in pairs.tiles():
        found[rows] = len(np.unique(pairs.same[cols, 0])) - 1
    return found
