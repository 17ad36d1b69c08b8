"""The number of clusters, by the silhouette in a learned metric."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..constraints import Constraint
from ..errors import InputError
from ..rows import draw
from ..validation import whole_number, wrong
from .clustering import KMeansResult, constrained_kmeans
from .embeddings import as_embedding

Array = NDArray[Any]

TRIED = tuple(range(2, 11))
"""Numbers of clusters that are tried."""
MOST_ROWS = 2000
"""Rows whose silhouettes are averaged: all pairs of them are compared."""


def clusters_by_silhouette(
    Z: Any, constraint: Constraint | None = None, *, tried: Sequence[int] = TRIED, seed: int = 0
) -> tuple[KMeansResult, dict[int, float]]:
    """Cluster an embedding into the number of clusters with the largest mean silhouette.

    The silhouette of a row is (b − a) / max(a, b), where a is its mean distance to the rows of its cluster and b that
    to the rows of the next nearest one.

    Parameters
    ----------
    Z : (n, m) array
        The embedding, for instance ``metric.transform(X)``.
    constraint : Constraint, optional
        As in `constrained_kmeans`.
    tried : numbers of clusters
    seed : int

    Returns
    -------
    KMeansResult
        The best clustering.
    dict of int to float
        The mean silhouette of every number that could be tried.

    Notes
    -----
    ``len(tried)`` clusterings, and all pairs of at most 2000 rows for each.
    """
    Z = as_embedding(Z, "Z")
    sample = draw(len(Z), MOST_ROWS, seed)
    silhouettes: dict[int, float] = {}
    best: KMeansResult | None = None
    from sklearn.metrics import silhouette_score

    if not np.iterable(tried):
        raise wrong("tried", "a list of whole numbers of at least 2", tried)
    for k in [whole_number(k, "tried", least=2) for k in tried]:
        if k >= len(Z):
            continue
        try:
            found = constrained_kmeans(Z, k, constraint, seed=seed)
        except InputError:
            continue  # fewer groups that must stay together than clusters
        labels = found.labels[sample]
        if not 1 < len(np.unique(labels)) < len(labels):
            continue
        silhouettes[k] = float(silhouette_score(Z[sample], labels))
        if best is None or silhouettes[k] > max((s for c, s in silhouettes.items() if c != k), default=-2.0):
            best = found
    if best is None:
        raise InputError("Z: no number of clusters could be tried; give more rows, or the number of clusters")
    return best, silhouettes
