"""What the authors may have done to features before learning: errors of the Euclidean distance after each way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .prepared import rows_standardised
from .scores import nearest_error, standardised

Array = NDArray[Any]

NEAREST, CLUSTERS = "Euclidean 1-NN error % after", "Euclidean k-means error % after"
"""The measures."""


def logarithms(X: Array) -> Array:
    """Return the logarithms, where all values are positive."""
    return np.log(X) if X.min() > 0 else X


WAYS: dict[str, Callable[[Array], Array]] = {
    "raw": lambda X: X,
    "columns standardised": standardised,
    "rows standardised": rows_standardised,
    "logarithms": logarithms,
    "logarithms, rows standardised": lambda X: rows_standardised(logarithms(X)),
    "50 most variable columns": lambda X: X[:, np.argsort(-X.var(axis=0), kind="stable")[:50]],
    "without column 4": lambda X: np.delete(X, 3, axis=1),
}


def errors(X: Array, y: Array, train: int, seed: int) -> dict[str, tuple[float, float]]:
    """Return for each way the errors in percent of the nearest training row, and of k-means on all rows."""
    from sklearn.cluster import KMeans
    from sklearn.metrics import rand_score

    a, b = np.split(np.random.default_rng(seed).permutation(len(X)), [train])
    found = {}
    for way, features in WAYS.items():
        Z = features(X)
        clusters = KMeans(len(np.unique(y)), n_init=3, random_state=seed).fit_predict(Z)
        found[way] = nearest_error(Z[a], y[a], Z[b], y[b]), 100 - 100 * rand_score(y, clusters)
    return found
