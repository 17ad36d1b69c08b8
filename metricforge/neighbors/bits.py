"""Nearest neighbours of rows of zeros and ones, packed into words of 64 features.

The squared Euclidean distance of such rows is the number of places in which they differ: the number of ones in the
exclusive or of their words.  The loop is compiled on first use and cached on disk.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba.core import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from ..rows import blocks, is_sparse

Array = NDArray[Any]

_TILE = 1024
"""Rows whose distances to a query are computed before they are compared."""
_BLOCK_BYTES = 8 * 2**20


def packed(X: Any) -> Array:
    """Return rows of zeros and ones, dense or CSR, as (words, n) uint64: each word of all rows is contiguous."""
    n, d = X.shape
    out = np.zeros((-(-d // 64), n), dtype=np.uint64)
    for part in blocks(n, 8 * d, _BLOCK_BYTES):
        rows = X[part].toarray() if is_sparse(X) else X[part]
        bits = np.zeros((rows.shape[0], 64 * len(out)), dtype=bool)
        bits[:, :d] = rows != 0
        out[:, part] = np.packbits(bits, axis=1, bitorder="little").view(np.uint64).T
    return out


def nearest(X: Array, Q: Array, k: int, own: Array | None) -> tuple[Array, Array]:
    """Return indices and numbers of differing places of the k rows nearest to each query, by (number, index).

    X and Q are packed; query i may not find row ``own[i]``.  Time: a few instructions per pair and word.  Memory: 16
    bytes per neighbour returned, and 8 bytes per row.
    """
    q = Q.shape[1]
    indices, counts = np.empty((q, k), dtype=np.int64), np.empty((q, k), dtype=np.int64)
    _scan(X, Q, np.full(q, -1) if own is None else own.astype(np.int64), indices, counts)
    return indices, counts


@intrinsic  # type: ignore[untyped-decorator]
def _ones(typing: Any, word: Any) -> Any:  # pragma: no cover
    """Count the ones of a uint64."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.ctpop(args[0])

    return types.uint64(types.uint64), generate


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _scan(X: Any, Q: Any, own: Any, indices: Any, counts: Any) -> None:  # pragma: no cover
    words, n = X.shape
    k = indices.shape[1]
    # accepted rows in order of index, and the number of them at each distance
    rows, distances = np.empty(n, dtype=np.int32), np.empty(n, dtype=np.int32)
    at_distance = np.zeros(64 * words + 2, dtype=np.int64)
    tile = np.empty(_TILE, dtype=np.uint64)
    for i in range(Q.shape[1]):
        at_distance[:] = 0
        accepted, below = 0, 0
        # a row is accepted if it is nearer than the k-th so far; an equal one has a larger index
        bound = np.uint64(64 * words + 1)
        for start in range(0, n, _TILE):
            width = min(_TILE, n - start)
            for w in range(words):
                query, word = Q[w, i], X[w, start : start + width]
                if w == 0:
                    for j in range(width):
                        tile[j] = _ones(word[j] ^ query)
                else:
                    for j in range(width):
                        tile[j] += _ones(word[j] ^ query)
            for j in range(width):
                if tile[j] < bound and start + j != own[i]:
                    rows[accepted], distances[accepted] = start + j, tile[j]
                    accepted += 1
                    at_distance[tile[j]] += 1
                    below += 1
                    while below >= k:
                        bound -= np.uint64(1)
                        below -= at_distance[bound]
        # fewer than k rows are nearer than the bound; the first of those at the bound complete the list
        place = np.int64(0)
        for distance in range(np.int64(bound) + 1):
            count = at_distance[distance]
            at_distance[distance] = place
            place += count
        for a in range(accepted):
            distance = distances[a]
            if distance <= bound and at_distance[distance] < k:
                indices[i, at_distance[distance]] = rows[a]
                counts[i, at_distance[distance]] = distance
                at_distance[distance] += 1
