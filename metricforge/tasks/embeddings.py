"""Embeddings: dense rows in memory, compared by Euclidean distance."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..rows import as_vectors, is_dask, is_sparse

Array = NDArray[Any]


def as_embedding(Z: Any, name: str) -> Array:
    """Return dense float64 rows in memory."""
    if is_dask(Z):
        raise InputError(f"{name} is a dask array, and this works in memory; call {name}.compute() first")
    if is_sparse(Z):
        raise InputError(f"{name} is sparse; give {name}.toarray(), or an embedding such as metric.transform(X)")
    return np.asarray(as_vectors(Z, name), dtype=np.float64)


def group_means(Z: Array, group: Array, weight: Array) -> Array:
    """Return the weighted mean row of every group ``0 .. group.max()``, none of them empty."""
    from scipy.sparse import csr_array

    n, total = len(Z), np.bincount(group, weights=weight)
    indicator = csr_array((weight.astype(float), group, np.arange(n + 1)), shape=(n, len(total)))
    means: Array = indicator.T @ Z / total[:, None]
    return means
