"""Select rows and transfer them between this process and the workers of a cluster."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import InputError
from ..validation import generator
from .containers import Array, is_dask, is_sparse

MANY_ROWS = 10**6
"""From this many rows on, drawing up to half of them makes no array of as many numbers."""


def draw(n: int, size: int, seed: int) -> Array:
    """Return ``min(n, size)`` distinct row numbers, sorted; they depend on n, size and seed only."""
    if size >= n:
        return np.arange(n)
    rng = generator(seed)
    if n < MANY_ROWS or 2 * size > n or 50 * size < n:
        return np.sort(rng.choice(n, size=size, replace=False))
    # to choose n/50 numbers or more, numpy shuffles all n of them
    found = np.unique(rng.integers(n, size=size))
    while len(found) < size:
        found = np.union1d(found, rng.integers(n, size=size // 8 + 8))
    return np.delete(found, rng.choice(len(found), size=len(found) - size, replace=False))


def take(X: Any, index: Array) -> Any:
    """Return the rows ``X[index]`` in memory; of a dask array only the chunks that contain them are computed."""
    if not is_dask(X):
        return X[index]
    from ..distributed import chunks, cluster

    index = np.asarray(index)
    if (index[1:] >= index[:-1]).all():
        return cluster.compute(chunks.selected(X, index))[0]
    order = np.argsort(index, kind="stable")
    (sorted_rows,) = cluster.compute(chunks.selected(X, index[order]))
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return sorted_rows[back]


def stack(X: Any, Y: Any) -> Any:
    """Return the rows of X followed by the rows of Y."""
    if is_dask(X) or is_dask(Y):
        from ..distributed.chunks import concatenated

        return concatenated([X, Y])
    if is_sparse(X) or is_sparse(Y):
        from scipy import sparse

        try:
            return sparse.vstack([X, Y], format="csr")
        except ValueError as error:
            raise InputError(f"X has rows of another kind than the metric ({error}); give rows like those") from None
    return np.concatenate([X, Y], axis=0)


def gathered(X: Any) -> Any:
    """Return rows or results in memory: a dask array computed, anything else unchanged."""
    if not is_dask(X):
        return X
    from ..distributed import cluster

    return cluster.compute(X)[0]
