"""Rank candidate neighbours by exact distance, and search exactly where they do not suffice; KD tree search."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from ..errors import InputError
from ..rows import is_sparse
from . import tiles
from .contract import Array, Found
from .distances import pair_distances
from .exhaustive import SearchedRows, exact_search

_log = logging.getLogger(__name__)

_TREE_SPARE = 8
_TREE_GROWTH = (1, 4, 16)
"""The tree is queried for k + 8 rows, to see where a tie at the k-th place ends; then for 4 and 16 times as many."""


def ranked(X: Any, Q: Any, candidates: Array, own: Array | None) -> Found:
    """Sort each row of candidates by (distance, index).

    Missing (-1), repeated and own candidates go last, with index -1 and infinite distance.
    """
    indices = np.sort(candidates.astype(np.int64), axis=1)
    void = indices < 0
    void[:, 1:] |= indices[:, 1:] == indices[:, :-1]
    if own is not None:
        void |= indices == own[:, None]
    rows, places = np.nonzero(~void)
    distances = np.full(indices.shape, np.inf)
    distances[rows, places] = pair_distances(X, Q, rows, indices[rows, places])
    indices[void] = -1
    order = np.argsort(distances, axis=1, kind="stable")
    return np.take_along_axis(indices, order, axis=1), np.take_along_axis(distances, order, axis=1)


def rank_into(
    found: Found, X: Any, Q: Any, rows: Array, candidates: Array, outside: Array | float, own: Array | None
) -> Array:
    """Write the k best candidates of the queries ``rows`` into ``found``; return the queries whose answer may be wrong.

    ``outside`` is a lower bound on the distance of every row that is not a candidate.  The answer is certain if the
    k-th distance is finite and below that bound.
    """
    k = found[0].shape[1]
    indices, distances = ranked(X, Q[rows], candidates, None if own is None else own[rows])
    found[0][rows], found[1][rows] = indices[:, :k], distances[:, :k]
    return rows[distances[:, k - 1] >= outside]


def complete(found: Found, X: Any, Q: Any, rows: Array, own: Array | None, method: str) -> Found:
    """Replace the answers for the queries ``rows`` by those of the exact search."""
    if rows.size:
        _log.debug("%s left %d of %d queries to the exact search", method, rows.size, Q.shape[0])
        k = found[0].shape[1]
        found[0][rows], found[1][rows] = exact_search(X, Q[rows], k, None if own is None else own[rows])
    return found


def tree_search(searched: SearchedRows, Q: Any, k: int, own: Array | None) -> Found:
    """Search a KD tree; ``own[i]`` is the row of X that query i may not find.

    The tree is queried for a few more than k rows, and for more where a tie at the k-th place does not end there.
    """
    X = searched.X
    if is_sparse(X):
        raise InputError('method "tree" takes dense rows, and X is CSR; pass method="exact" or X.toarray()')
    (n, d), q = X.shape, Q.shape[0]
    found = np.empty((q, k), dtype=np.int64), np.empty((q, k))
    tree = searched.tree
    # The tree sums in another order: its distances differ from those of `pair_distances` by at most this factor.
    shrink = 1 - (d + 8) * np.finfo(np.float64).eps
    rows = np.arange(q)
    for growth in _TREE_GROWTH:
        requested = min(n, growth * (k + _TREE_SPARE))
        left = [rows[:0]]
        for part in tiles.row_blocks(rows.size, requested):
            distances, candidates = map(np.asarray, tree.query(Q[rows[part]], k=list(range(1, requested + 1))))
            outside = np.inf if requested == n else shrink * distances[:, -1]
            left.append(rank_into(found, X, Q, rows[part], candidates, outside, own))
        rows = np.concatenate(left)
    return complete(found, X, Q, rows, own, "tree")
