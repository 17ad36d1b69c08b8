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

Array = NDArray[Any]

_TILE = 1024
"""Rows whose distances to a query are computed before they are compared."""


def nearest(X: Array, Q: Array, k: int, own: Array | None) -> tuple[Array, Array]:
    """Return indices and numbers of differing places of the k rows nearest to each query, by (number, index).

    X and Q are packed, (words, n) uint64; query i may not find row ``own[i]``.  Time: a few instructions per pair and
    word.  Memory: 16 bytes per neighbour returned, and 8 bytes per row.
    """
    q = Q.shape[1]
    indices, counts = np.empty((q, k), dtype=np.int64), np.empty((q, k), dtype=np.int64)
    _scan(X, Q, np.full(q, -1) if own is None else own.astype(np.int64), indices, counts)
    return indices, counts


def nearest_in_cells(
    X: Array, numbers: Array, starts: Array, Q: Array, probes: Array, k: int, own: Array | None
) -> tuple[Array, Array]:
    """Return numbers and counts of differing places of the k rows nearest to each query among those in its cells.

    X and Q are packed, (n, words) uint64; the other arguments are those of `probing.probe`.  Lists ascend by (count,
    number), with -1 where the cells of a query have fewer than k rows.  Memory: 12 bytes per row in the cells of one
    query, of which there are the most.
    """
    q = len(Q)
    indices, counts = np.full((q, k), -1, dtype=np.int64), np.full((q, k), -1, dtype=np.int64)
    sizes = np.append(np.diff(starts), 0)  # for -1
    most = int(sizes[probes].sum(axis=1).max(initial=0))
    mine = np.full(q, -1) if own is None else own.astype(np.int64)
    _probe(X, numbers, starts, Q, np.ascontiguousarray(probes, dtype=np.int64), mine, most, indices, counts)
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


_NUMBER_BITS = 40
"""Row numbers are below 2**40: a key is the distance, then the number."""


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _probe(
    X: Any, numbers: Any, starts: Any, Q: Any, probes: Any, own: Any, most: Any, indices: Any, counts: Any
) -> None:  # pragma: no cover
    words, k = X.shape[1], indices.shape[1]
    keys, distances = np.empty(most, dtype=np.int64), np.empty(most, dtype=np.int32)
    at_distance = np.zeros(64 * words + 1, dtype=np.int64)
    for i in range(len(Q)):
        at_distance[:] = 0
        accepted, near = 0, 0
        # the least distance at which k rows are so near; `near` of those accepted are
        bound = 64 * words
        for cell in probes[i]:
            if cell < 0:
                continue
            for j in range(starts[cell], starts[cell + 1]):
                count = np.uint64(0)
                for w in range(words):
                    count += _ones(X[j, w] ^ Q[i, w])
                distance = np.int64(count)
                if distance <= bound and numbers[j] != own[i]:
                    keys[accepted], distances[accepted] = (distance << _NUMBER_BITS) | numbers[j], distance
                    accepted += 1
                    at_distance[distance] += 1
                    near += 1
                    while near - at_distance[bound] >= k:
                        near -= at_distance[bound]
                        bound -= 1
        left = 0
        for a in range(accepted):
            if distances[a] <= bound:
                keys[left] = keys[a]
                left += 1
        found = keys[:left]
        if left > 4 * k:
            found = np.partition(found, k - 1)[:k]
        found = np.sort(found)
        for place in range(min(k, len(found))):
            indices[i, place] = found[place] & ((1 << _NUMBER_BITS) - 1)
            counts[i, place] = found[place] >> _NUMBER_BITS
