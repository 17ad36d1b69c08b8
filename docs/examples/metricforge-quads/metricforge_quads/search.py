"""A neighbour search: scikit-learn's ball tree."""

import numpy as np

from metricforge.errors import InputError


def balltree(X, k, *, queries=None, seed=0):
    """Return the k nearest rows of each query, as `metricforge.neighbors.search` does."""
    from sklearn.neighbors import BallTree

    if hasattr(X, "toarray"):
        raise InputError('method "balltree" takes dense rows, and X is sparse; pass X.toarray()')
    itself = queries is None
    distances, indices = BallTree(X).query(X if itself else queries, k + itself)
    if itself:  # leave every row out of its own list; among duplicates it need not come first
        distances = np.where(indices == np.arange(len(X))[:, None], np.inf, distances)
    order = np.lexsort((indices, distances), axis=1)[:, :k]
    return np.take_along_axis(indices, order, axis=1), np.take_along_axis(distances, order, axis=1)
