"""Conversions between kinds, each registered under the name "source->target"; seeded where they draw."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .chunklets import Chunklets
from .indices import groups_of, keyed_pairs, pair_keys
from .labels import Labels
from .pairs import Pairs
from .triplets import Triplets


def labels_to_pairs(labels: Labels, *, seed: int = 0) -> Pairs:
    """Return all same-class and different-class pairs, or the random draw of `Pairs.from_labels` if too many."""
    return replace(Pairs.from_labels(labels, seed=seed), dropped=labels.dropped)


def labels_to_chunklets(labels: Labels, *, seed: int = 0) -> Chunklets:
    """Return one group per class."""
    return replace(Chunklets(labels.codes), dropped=labels.dropped)


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
