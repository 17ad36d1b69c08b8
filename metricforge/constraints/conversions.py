"""Conversions between kinds, each registered under the name "source->target"; seeded where they draw."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..validation import generator
from .chunklets import Chunklets
from .drawing import MOST_TRIPLETS, PER_ROW
from .indices import groups_of, keyed_pairs, pair_keys
from .labels import Labels
from .pairs import Pairs
from .quadruplets import Quadruplets
from .targets import Targets
from .triplets import Triplets


def labels_to_pairs(labels: Labels, *, seed: int = 0) -> Pairs:
    """Return all same-class and different-class pairs, or the random draw of `Pairs.from_labels` if too many."""
    return replace(Pairs.from_labels(labels, seed=seed), dropped=labels.dropped)


def labels_to_chunklets(labels: Labels, *, seed: int = 0) -> Chunklets:
    """Return one group per class."""
    return Chunklets(labels.codes, dropped=labels.dropped)


def labels_to_triplets(labels: Labels, *, seed: int = 0) -> Triplets:
    """Return the triplets that `Triplets.from_labels` draws."""
    return replace(Triplets.from_labels(labels, seed=seed), dropped=labels.dropped)


def chunklets_to_pairs(chunklets: Chunklets, *, seed: int = 0) -> Pairs:
    """Return every pair inside a group; where these are too many, spanning chains and random pairs."""
    return Pairs(chunklets.inner_pairs(seed), n=chunklets.n, dropped=chunklets.dropped)


def pairs_to_chunklets(pairs: Pairs, *, seed: int = 0) -> Chunklets:
    """Return the connected components of the similar pairs; dissimilar pairs are dropped and counted."""
    return Chunklets(groups_of(pairs.similar, pairs.n), dropped=pairs.dropped + len(pairs.dissimilar))


def triplets_to_pairs(triplets: Triplets, *, seed: int = 0) -> Pairs:
    """Return (i, j) as similar and (i, k) as dissimilar; pairs that come out as both are dropped and counted."""
    n = triplets.n
    similar = np.unique(pair_keys(np.sort(triplets.triples[:, :2], axis=1), n))
    dissimilar = np.unique(pair_keys(np.sort(triplets.triples[:, ::2], axis=1), n))
    both = np.intersect1d(similar, dissimilar)
    s, d = (keyed_pairs(np.setdiff1d(keys, both), n) for keys in (similar, dissimilar))
    return Pairs(s, d, n=n, dropped=triplets.dropped + len(both))


def labels_to_quadruplets(labels: Labels, *, seed: int = 0) -> Quadruplets:
    """Return the quadruplets that `Quadruplets.from_labels` draws."""
    return replace(Quadruplets.from_labels(labels, seed=seed), dropped=labels.dropped)


def pairs_to_quadruplets(pairs: Pairs, *, seed: int = 0) -> Quadruplets:
    """Compare random similar pairs with random dissimilar ones, which share a row with them where there are such.

    There are ten per pair, no more than 20,000; where one of the two sides is empty, all pairs are dropped.
    """
    s, d = pairs.similar, pairs.dissimilar
    if not (len(s) and len(d)):
        return Quadruplets([], n=pairs.n, dropped=pairs.dropped + pairs.size)
    rng = generator(seed)
    size = min(PER_ROW * pairs.size, len(s) * len(d), MOST_TRIPLETS)
    near = s[rng.integers(len(s), size=size)]
    row = near[np.arange(size), rng.integers(2, size=size)]
    order = np.argsort(d.ravel(), kind="stable")  # the dissimilar pairs of row i stand together
    count = np.bincount(d.ravel(), minlength=pairs.n)
    first = np.cumsum(count) - count
    shared = order[np.minimum(first[row] + (rng.random(size) * count[row]).astype(np.int64), len(order) - 1)] // 2
    far = d[np.where(count[row] > 0, shared, rng.integers(len(d), size=size))]
    return Quadruplets(np.column_stack([near, far]), n=pairs.n, dropped=pairs.dropped)


def triplets_to_quadruplets(triplets: Triplets, *, seed: int = 0) -> Quadruplets:
    """Return (i, j, i, k) for each triplet, which means the same."""
    return Quadruplets(triplets.triples[:, [0, 1, 0, 2]], n=triplets.n, dropped=triplets.dropped)


def quadruplets_to_triplets(quadruplets: Quadruplets, *, seed: int = 0) -> Triplets:
    """Return the quadruplets whose pairs share a row, which mean the same; the others are dropped and counted."""
    # the columns of i, j, k where the shared row is a = c, a = d, b = c, b = d
    orders = [[0, 1, 3], [0, 1, 2], [1, 0, 3], [1, 0, 2]]
    shared = [quadruplets.quads[:, i] == quadruplets.quads[:, k] for i, k in ((0, 2), (0, 3), (1, 2), (1, 3))]
    choice = np.select(shared, range(4), default=-1)
    kept = np.flatnonzero(choice >= 0)
    triples = np.take_along_axis(quadruplets.quads[kept], np.asarray(orders)[choice[kept]], axis=1)
    return Triplets(triples, n=quadruplets.n, dropped=quadruplets.dropped + quadruplets.size - len(kept))


def targets_to_triplets(targets: Targets, *, seed: int = 0) -> Triplets:
    """Return random triplets with |y_i − y_j| < |y_i − y_k|, as `Targets.triples` draws them."""
    return Triplets(targets.triples(seed), n=targets.n, dropped=targets.dropped)
