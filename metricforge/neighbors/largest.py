"""The rows with the largest scores, for scores that are no distances."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..rows import Array, block_bytes, blocks

COPIES = 4
"""Arrays of the scores that exist at the same time: their negation, its partition, and temporaries of the kernel."""
SCORES = 2**22
"""Scores that are computed at once: 32 MB."""


def largest(block: Callable[[slice], Array], n: int, queries: int, k: int) -> tuple[Array, Array]:
    """Return the k largest scores of each query, largest first: indices and scores; ties go to the smaller index.

    Parameters
    ----------
    block : callable
        ``block(part)`` returns the (len(part), n) scores of a slice of the queries.
    """
    indices, scores = np.empty((queries, k), dtype=np.int64), np.empty((queries, k))
    at_once = block_bytes(8 * COPIES * SCORES) // (8 * COPIES)
    for part in blocks(queries, 1, max(1, at_once // max(n, 1))):
        S = np.asarray(block(part), dtype=np.float64)
        least = -np.partition(-S, k - 1, axis=1)[:, k - 1]
        for query, row in zip(range(part.start, part.stop), S, strict=True):
            near = np.flatnonzero(row >= least[query - part.start])
            order = near[np.argsort(-row[near], kind="stable")[:k]]
            indices[query], scores[query] = order, row[order]
    return indices, scores
