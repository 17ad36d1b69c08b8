"""The rule of method="auto": the search with the least expected time in a new process."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..rows import is_sparse
from ..rows.cluster import threads
from .contract import Array
from .distances import is_binary, largest

DENSE_SHARE = 1 / 16
"""Above this share of nonzeros a dense product is faster than a sparse one (measured at 100 to 10,000 features)."""
TREE_FEATURES = 7
"""Up to this many features a tree is faster.  Gaussian rows are its worst case: 20,000 take 0.7 s (exact search: 1.8 s)
at 7 features, and 2.4 s (exact: 1.9 s) at 10."""
HAMMING_SECONDS = 2.0
"""Time on one core from which packed rows are faster in a new process: that of importing numba and loading the loop."""
DESCENT_SECONDS = 45.0
"""Time on one core from which NN-descent is faster in a new process: 33 s to compile, 2 to import, 4 to 10 to run."""
CELLS_SECONDS = 8.0
"""Time on one core from which cells are faster than comparing all pairs: measured at 60,000 rows of 16 columns."""
PLAIN = 512
"""Up to this many columns sparse and binary rows have themselves as coordinates among cells; wider ones a sketch, whose
cells tell rows apart less well."""


def choose(X: Any, Q: Any, itself: bool, recall: float = 0.95) -> str:
    """Return the name of the method with the least expected time in a new process.

    Parameters
    ----------
    X, Q : dense or CSR rows
        The rows searched, and the queries.
    itself : bool
        Whether the queries are the rows themselves.
    recall : float
        The share of true neighbours to find; 1 excludes approximate searches.
    """
    n, d = X.shape
    if not is_sparse(X) and d <= TREE_FEATURES and not _few_distinct(X):
        return "tree"
    # nanoseconds per pair on one core: the product, and the comparison with the k-th distance
    pair = 2 + 0.03 * d if multiplies_dense(X) else 9 + min(60.0, 10 * (X.nnz / n) ** 2 / d)
    pairs = n * Q.shape[0]
    packed = 0.5 + 0.2 * (d // 64 + 1)  # measured at 2 and at 16 words
    approximate = itself and recall < 1  # with queries an index would be built for one use
    if 1e-9 * pair * pairs > HAMMING_SECONDS and _both_binary(X, Q):
        return "cells" if approximate and 1e-9 * packed * pairs > CELLS_SECONDS else "hamming"
    if not approximate:
        return "exact"
    if not is_sparse(X) or d <= PLAIN:
        return "cells" if 1e-9 * pair * pairs > CELLS_SECONDS and _scaled(X) else "exact"
    return "pynndescent" if 1e-9 * pair * pairs > DESCENT_SECONDS else "exact"


def prefers_cells(X: Any, recall: float) -> bool:
    """Return whether cells are faster than comparing all pairs of dask rows, on all workers."""
    n, d = X.shape
    pair = min(2 + 0.03 * d, 60) if isinstance(X._meta, np.ndarray) else 9
    return recall < 1 and bool(1e-9 * pair * n * n / threads() > CELLS_SECONDS)


def multiplies_dense(X: Any) -> bool:
    """Return whether tiles of distances are computed by dense products."""
    return not is_sparse(X) or bool(X.nnz > DENSE_SHARE * X.shape[0] * X.shape[1])


def _scaled(X: Array) -> bool:
    """Return whether the squares of the rows are neither tiny nor huge, so that bounds in float32 are of use."""
    return bool(1e-3 < largest(X) < 1e9)


def _few_distinct(X: Array) -> bool:
    """Return whether rows repeat so often that a tree has huge leaves, and the exact scan ends early on duplicates."""
    sample = X[:: max(1, X.shape[0] // 1000)]
    return bool(sample.shape[0] >= 1000 and np.unique(sample, axis=0).shape[0] < 100)


def _both_binary(X: Any, Q: Any) -> bool:
    return is_binary(X) and (Q is X or is_binary(Q))
