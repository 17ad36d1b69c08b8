"""Compiled loops: nearest neighbours of packed rows of zeros and ones, and passes over neighbours of neighbours.

The squared Euclidean distance of such rows is the number of places in which they differ: the number of ones in the
exclusive or of their words.  The loop is compiled on first use and cached on disk.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba.core import types
from numba.extending import intrinsic

from .contract import Array, HopLists

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


# --------------------------------------------------------------------------------------------- neighbours of neighbours

TOGETHER = 2048
"""Queries whose visits to cells are sorted by cell: four at a time are compared with the rows of a cell."""
STAGE = 6
"""Each stage of the first lists ends at that many times as many cells as the stage before."""


def in_columns(rows: Array, starts: Array) -> Array:
    """Return rows with the columns of each cell one after another: distances to a cell are then computed abreast."""
    out = np.empty(rows.size, dtype=np.float32)
    _in_columns(np.ascontiguousarray(rows, dtype=np.float32), np.asarray(starts, dtype=np.int64), out)
    return out


def first_lists(
    queries: Array, own: Array, columns: Array, starts: Array, numbers: Array, probes: Array, k: int
) -> HopLists:
    """Return the lists of queries among the rows in their cells.

    Parameters
    ----------
    queries : (q, d) float32 array
    own : (q,) int array
        The position that a query may not list.
    columns, starts : arrays
        What `in_columns` returned, and where the rows of each cell start.
    numbers : (n,) int array
        The positions of the rows.
    probes : (q, p) int array
        The cells to search for each query; -1 for none.
    """
    lists = _empty(len(queries), k)
    most = int(np.diff(starts).max(initial=0))
    places = (np.ascontiguousarray(part, dtype=np.int64) for part in (starts, numbers, probes))
    _first(np.ascontiguousarray(queries), np.asarray(own, dtype=np.int64), columns, *places, most, *lists[:2])
    lists.fresh[:] = lists.positions >= 0
    return lists


def listing_rows(lists: HopLists, first: int, n: int, most: int) -> tuple[Array, Array]:
    """Return for each of n positions the rows that list it, those nearest first and at most so many.

    Also whether that entry is fresh.  The lists are those of the positions from ``first`` on.
    """
    who, fresh = np.full((n, most), -1, dtype=np.int32), np.zeros((n, most), dtype=np.bool_)
    _listing(lists.positions, lists.fresh, first, who, fresh)
    return who, fresh


def one_pass(rows: Array, lists: HopLists, listing: tuple[Array, Array]) -> HopLists:
    """Return the lists of the first q rows after one pass over them.

    Parameters
    ----------
    rows : (n, d) float32 array
    lists : HopLists
        Of the first rows: the q rows, and all that they list or that list them; squares of the q rows suffice.
    listing : two (q, r) arrays
        What `listing_rows` returned for the q rows.
    """
    out = _empty(len(listing[0]), lists.positions.shape[1])
    _pass(rows, *lists, *listing, *out)
    return out


def widened(lists: HopLists, wide: int) -> HopLists:
    """Return lists of more entries; all that they have are fresh, because what they refused may enter now."""
    out = _empty(len(lists.positions), wide)
    k = lists.positions.shape[1]
    out.positions[:, :k], out.squares[:, :k] = lists.positions, lists.squares
    out.fresh[:] = out.positions >= 0
    return out


def _empty(q: int, k: int) -> HopLists:
    shape = (q, k)
    return HopLists(
        np.full(shape, -1, dtype=np.int32), np.full(shape, np.inf, dtype=np.float32), np.zeros(shape, dtype=np.bool_)
    )


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _in_columns(rows: Any, starts: Any, out: Any) -> None:  # pragma: no cover
    d = rows.shape[1]
    for cell in range(len(starts) - 1):
        start, size = starts[cell], starts[cell + 1] - starts[cell]
        for j in range(size):
            for c in range(d):
                out[start * d + c * size + j] = rows[start + j, c]


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _first(
    queries: Any,
    own: Any,
    columns: Any,
    starts: Any,
    numbers: Any,
    probes: Any,
    most: int,
    positions: Any,
    squares: Any,
) -> None:  # pragma: no cover
    (q, p), d, cells = probes.shape, queries.shape[1], len(starts) - 1
    sums = np.empty((4, most), dtype=np.float32)
    ends, visits = np.empty(cells + 1, dtype=np.int64), np.empty(min(q, TOGETHER) * p, dtype=np.int64)
    for i0 in range(0, q, TOGETHER):
        i1 = min(q, i0 + TOGETHER)
        # the nearest cells of every query first: the distances found there keep most rows of the others out
        low, high = 0, 1
        while low < p:
            high = min(high, p)
            _by_cell(probes, i0, i1, low, high, ends, visits)
            start = 0
            for cell in range(cells):
                stop = ends[cell]
                first, size = starts[cell], starts[cell + 1] - starts[cell]
                block = columns[first * d : (first + size) * d].reshape(d, size)
                for v in range(start, stop, 4):
                    # the last of fewer than four is repeated, so that its squares are rounded in the same way
                    a, b = visits[v], visits[min(v + 1, stop - 1)]
                    c, e = visits[min(v + 2, stop - 1)], visits[min(v + 3, stop - 1)]
                    _four(block, queries[a], queries[b], queries[c], queries[e], sums)
                    for j in range(min(4, stop - v)):
                        i = visits[v + j]
                        _take(sums[j], size, numbers[first : first + size], own[i], i, positions, squares)
                start = stop
            low, high = high, STAGE * high


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _by_cell(probes: Any, i0: int, i1: int, low: int, high: int, ends: Any, visits: Any) -> None:  # pragma: no cover
    """Write the queries that search each cell, one cell after another, and where those of each cell end."""
    ends[:] = 0
    for i in range(i0, i1):
        for place in range(low, high):
            if probes[i, place] >= 0:
                ends[probes[i, place] + 1] += 1
    for cell in range(len(ends) - 1):
        ends[cell + 1] += ends[cell]
    for i in range(i0, i1):
        for place in range(low, high):
            cell = probes[i, place]
            if cell >= 0:  # ends[cell] is where its next query goes
                visits[ends[cell]] = i
                ends[cell] += 1


@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})  # type: ignore[untyped-decorator]
def _four(block: Any, a: Any, b: Any, c: Any, e: Any, sums: Any) -> None:  # pragma: no cover
    """Write the squared distances of four queries to the rows of a cell, each value of which is read once for all."""
    d, size = block.shape
    sa, sb, sc, se = sums[0, :size], sums[1, :size], sums[2, :size], sums[3, :size]
    sa[:], sb[:], sc[:], se[:] = 0, 0, 0, 0
    for t in range(0, d - d % 2, 2):  # two columns at a time: the sums are read and written half as often
        x0, x1 = block[t], block[t + 1]
        a0, b0, c0, e0 = a[t], b[t], c[t], e[t]
        a1, b1, c1, e1 = a[t + 1], b[t + 1], c[t + 1], e[t + 1]
        for j in range(size):
            u, v = x0[j], x1[j]
            sa[j] += (u - a0) * (u - a0) + (v - a1) * (v - a1)
            sb[j] += (u - b0) * (u - b0) + (v - b1) * (v - b1)
            sc[j] += (u - c0) * (u - c0) + (v - c1) * (v - c1)
            se[j] += (u - e0) * (u - e0) + (v - e1) * (v - e1)
    if d % 2:
        x0 = block[d - 1]
        a0, b0, c0, e0 = a[d - 1], b[d - 1], c[d - 1], e[d - 1]
        for j in range(size):
            u = x0[j]
            sa[j] += (u - a0) * (u - a0)
            sb[j] += (u - b0) * (u - b0)
            sc[j] += (u - c0) * (u - c0)
            se[j] += (u - e0) * (u - e0)


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _take(
    sums: Any, size: int, numbers: Any, own: int, i: int, positions: Any, squares: Any
) -> None:  # pragma: no cover
    """Insert the rows of a cell that are nearer than the last of a list."""
    k = positions.shape[1]
    worst = squares[i, k - 1]
    for j0 in range(0, size, 32):
        j1 = min(size, j0 + 32)
        nearer = 0
        for j in range(j0, j1):  # a loop without branches, of which the compiler does many turns at once
            nearer += sums[j] < worst
        if nearer:
            for j in range(j0, j1):
                if sums[j] < worst and numbers[j] != own:
                    worst = _insert(positions, squares, i, k, numbers[j], sums[j])


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _insert(positions: Any, squares: Any, i: int, k: int, y: int, square: Any) -> Any:  # pragma: no cover
    """Add a row to a list and drop the last; return the square from which on others stay out."""
    j = k - 1
    while j > 0 and squares[i, j - 1] > square:
        squares[i, j], positions[i, j] = squares[i, j - 1], positions[i, j - 1]
        j -= 1
    squares[i, j], positions[i, j] = square, y
    return squares[i, k - 1]


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _listing(positions: Any, fresh: Any, first: int, who: Any, new: Any) -> None:  # pragma: no cover
    q, k = positions.shape
    most = who.shape[1]
    used = np.zeros(len(who), dtype=np.int32)
    for place in range(k):
        for i in range(q):
            y = positions[i, place]
            if y >= 0 and used[y] < most:
                who[y, used[y]], new[y, used[y]] = first + i, fresh[i, place]
                used[y] += 1


@numba.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _add(table: Any, y: int) -> bool:  # pragma: no cover
    """Add a number to a set, a table of 2**i places with -1 where there is none; return whether it was not there."""
    last = len(table) - 1
    place = ((y * 0x9E3779B1) >> 15) & last
    while table[place] >= 0:
        if table[place] == y:
            return False
        place = (place + 1) & last
    table[place] = y
    return True


@numba.njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})  # type: ignore[untyped-decorator]
def _pass(
    rows: Any, positions: Any, squares: Any, fresh: Any, who: Any, who_fresh: Any, found: Any, near: Any, new: Any
) -> None:  # pragma: no cover
    d = rows.shape[1]
    k = positions.shape[1]
    size = 64
    while size < 2 * (k + who.shape[1]) * (k + 1):
        size *= 2
    # the rows compared so far, in a small table: one entry per row of X would be read from afar each time
    seen = np.empty(size, dtype=np.int32)
    for i in range(len(who)):
        own = rows[i]
        seen[:] = -1
        _add(seen, i)
        for place in range(k):
            found[i, place], near[i, place], new[i, place] = positions[i, place], squares[i, place], False
            if positions[i, place] >= 0:
                _add(seen, positions[i, place])
        worst = near[i, k - 1]
        for a in range(k + who.shape[1]):
            if a < k:
                z, recent = positions[i, a], fresh[i, a]
            else:
                z, recent = who[i, a - k], who_fresh[i, a - k]
            if z < 0:
                continue
            listed, recently = positions[z], fresh[z]
            for place in range(-1, k):
                y = z if place < 0 else listed[place]
                if y < 0:
                    break
                # old entries of old neighbours were compared in an earlier pass
                if (place >= 0 and not recent and not recently[place]) or not _add(seen, y):
                    continue
                square, other = np.float32(0), rows[y]
                for c in range(d):
                    apart = own[c] - other[c]
                    square += apart * apart
                if square < worst:
                    j = k - 1
                    while j > 0 and near[i, j - 1] > square:
                        near[i, j], found[i, j], new[i, j] = near[i, j - 1], found[i, j - 1], new[i, j - 1]
                        j -= 1
                    near[i, j], found[i, j], new[i, j] = square, y, True
                    worst = near[i, k - 1]
