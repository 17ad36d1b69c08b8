"""Select the k least keys per query from tiles of values, with one tile and the lists in memory, never q × n.

Also the sizes of tiles, the distances of pairs of rows, and lower bounds of distances from products.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np

from ..errors import InputError
from ..rows import beat, block_bytes, blocks, is_sparse
from ..validation import first_rows
from .contract import Array, DistanceBlock, Found

FIRST_COLUMNS = 512
"""Columns of the first tile, from which the first bounds are selected; of few queries it is wider."""
FIRST_ENTRIES = 16_384
FLOOD = 8
"""Candidates per neighbour wanted from which a source is asked for tighter values."""


class Source(Protocol):
    """The input of `scan`: tiles of values, and the keys by which pairs are ranked.

    Attributes
    ----------
    exact : bool
        Whether values determine keys.  Otherwise a value is a lower bound, and ``keys`` computes the distance.
    """

    exact: bool

    def tile(self, q0: int, q1: int, c0: int, c1: int) -> Array:
        """Return the (q1 - q0, c1 - c0) values of queries ``q0:q1`` and rows ``c0:c1``; `scan` may write to it."""

    def keys(self, rows: Array, cols: Array, values: Array) -> Array:
        """Return the keys of pairs (query, row), given their values."""

    def reach(self, rows: Array, keys: Array) -> Array:
        """Return for each query the largest value that a pair with a key of at most ``keys`` can have."""

    def below(self, values: Array) -> Array:
        """Return the largest values less than ``values``; called only if the source is exact."""

    def refine(self) -> bool:
        """Make later values tighter; return whether that is possible."""


class GivenDistances:
    """Distances computed by the user's function; value and key are the distance."""

    exact = True

    def __init__(self, distance_block: DistanceBlock) -> None:
        self.distance_block = distance_block

    def tile(self, q0: int, q1: int, c0: int, c1: int) -> Array:
        """Return a checked copy of the user's block."""
        tile = np.array(self.distance_block(q0, q1, c0, c1), dtype=np.float64, order="C")
        if tile.shape != (q1 - q0, c1 - c0):
            raise InputError(
                f"distance_block({q0}, {q1}, {c0}, {c1}) must have shape {(q1 - q0, c1 - c0)}, got {tile.shape}"
            )
        proper = (tile >= 0) & (tile < np.inf)
        if not proper.all():
            rows = np.flatnonzero(~proper.all(axis=1)) + q0
            raise InputError(
                f"distance_block returned negative, NaN or infinite distances of queries, in {first_rows(rows)}; "
                "distances must be finite and >= 0"
            )
        return tile

    def keys(self, rows: Array, cols: Array, values: Array) -> Array:
        """Return the values."""
        return values

    def reach(self, rows: Array, keys: Array) -> Array:
        """Return the keys."""
        return keys

    def below(self, values: Array) -> Array:
        """Return the next smaller floats."""
        return np.nextafter(values, -np.inf)

    def refine(self) -> bool:
        """Return False: distances are what they are."""
        return False


def scan(source: Source, n: int, q: int, k: int, own: Array | None, rows: int, cols: int) -> Found:
    """Return indices and keys of the k least keys per query, sorted by (key, index).

    Parameters
    ----------
    source : Source
    n, q, k : int
        Numbers of rows, queries and neighbours.
    own : (q,) integers or None
        ``own[i]`` is the row that query i may not find.
    rows, cols : int
        Queries and rows of a tile.
    """
    indices = np.full((q, k), n, dtype=np.int64)
    keys = np.full((q, k), np.inf)
    for q0 in range(0, q, rows):
        part = slice(q0, min(q0 + rows, q))
        for done in _scan_rows(source, q0, n, None if own is None else own[part], cols, indices[part], keys[part]):
            beat(q0 * n + (part.stop - q0) * done, q * n)
    return indices, keys


def _scan_rows(
    source: Source, q0: int, n: int, own: Array | None, cols: int, indices: Array, keys: Array
) -> Iterator[int]:
    """Fill the lists of the queries from q0 on, in place; yield how many rows they were compared with."""
    b = len(indices)
    lists = Lists(source, q0, indices, keys)
    everyone = np.arange(b)
    c1 = 0
    while c1 < n:
        # Tiles double: twice the columns yield as many candidates again, so one small selection at the start suffices.
        c0, c1 = c1, min(n, c1 + min(cols, max(FIRST_COLUMNS, FIRST_ENTRIES // b, c1)))
        tile = source.tile(q0, q0 + b, c0, c1)  # (b, c)
        if own is not None:
            inside = np.flatnonzero((own >= c0) & (own < c1))
            tile[inside, own[inside] - c0] = np.inf
        lists.offer(everyone, c0, tile)
        if c1 == n:
            lists.merge()
        yield c1
        if not keys[:, -1].any():
            return  # k rows at distance 0: later ones have larger indices


class Lists:
    """The nearest rows of a block of queries so far, and the candidates that are not yet merged into them.

    ``bound`` is the largest value with which a row can still enter the list of a query.  A comparison costs a fifth of
    a selection, so only the first tiles, and those with many candidates, are partitioned.

    Parameters
    ----------
    source : Source
    q0 : int
        Query i of the block is query ``q0 + i`` of the source.
    indices, keys : (b, k) arrays
        The lists, b < 2**15; filled in place and sorted by (key, index), the keys infinite at the start.
    numbers : (n,) int array, optional
        What to list for a row in place of its position.  Rows are then offered in any order; without numbers, in
        ascending order.
    """

    def __init__(self, source: Source, q0: int, indices: Array, keys: Array, numbers: Array | None = None) -> None:
        self.source, self.q0, self.indices, self.keys, self.numbers = source, q0, indices, keys, numbers
        # The largest float, not infinity: an own entry (infinite) must fail the comparison.
        self.bound = np.full(len(indices), np.finfo(np.float64).max)
        self.pending: list[tuple[Array, ...]] = []
        self.n_pending = self.measured = 0

    def offer(self, rows: Array, c0: int, tile: Array) -> None:
        """Add the candidates among the rows from c0 on, given their values (b', c) for the queries ``rows``."""
        b, k = self.indices.shape
        bound = _rounded_up(self.bound[rows], tile.dtype)
        hit = tile <= bound[:, None]
        tightened = np.empty(0, dtype=np.int64)
        if np.count_nonzero(hit) > 2 * k * len(rows) and tile.shape[1] > k:
            tightened = self._tighten(rows, c0, tile, hit)
        flat = np.flatnonzero(hit)
        where, columns = np.divmod(flat, tile.shape[1])
        self.pending.append((rows[where], columns + c0, tile.ravel()[flat]))
        if self.source.exact and self.numbers is None:
            # Among equal keys the smaller index wins, so later columns must be strictly less.
            self.bound[tightened] = self.source.below(self.bound[tightened])
        self.n_pending += flat.size
        if self.n_pending > k * b:
            self.merge()

    def merge(self) -> None:
        """Merge the candidates into the lists, and lower the bounds."""
        if not self.pending:
            return
        source, (b, k) = self.source, self.indices.shape
        rows, cols, values = (np.concatenate(part) for part in zip(*self.pending, strict=True))
        new = source.keys(self.q0 + rows, cols, values)
        near = np.flatnonzero(new <= self.keys[rows, -1])
        rows, cols, new = rows[near], cols[near], new[near]
        touched = _merge(self.indices, self.keys, rows, cols, new, self.numbers)
        self.pending, self.n_pending = [], 0
        self.measured += len(values)
        if self.measured > FLOOD * k * b and source.refine():
            touched = np.arange(b)
        full = touched[np.isfinite(self.keys[touched, -1])]
        self.bound[full] = source.reach(self.q0 + full, self.keys[full, -1])
        if source.exact and self.numbers is None:
            self.bound[full] = source.below(self.bound[full])

    def _tighten(self, rows: Array, c0: int, tile: Array, hit: Array) -> Array:
        """Lower the bounds of queries with many candidates to the k-th key in this tile; return these queries."""
        source, k = self.source, self.indices.shape[1]
        crowded = np.flatnonzero(hit.sum(axis=1) > 2 * k)
        who = np.repeat(crowded, k)
        near = np.argpartition(tile[crowded], k - 1, axis=1)[:, :k].ravel()
        values = tile[who, near]
        # an own row can be among the k nearest of a narrow tile; its query keeps its bound
        kth = np.full(len(who), np.inf)
        usable = np.flatnonzero(np.isfinite(values))
        kth[usable] = source.keys(self.q0 + rows[who[usable]], c0 + near[usable], values[usable])
        kth = kth.reshape(-1, k).max(axis=1)
        crowded, kth = crowded[np.isfinite(kth)], kth[np.isfinite(kth)]
        queries: Array = rows[crowded]
        self.bound[queries] = np.minimum(self.bound[queries], source.reach(self.q0 + queries, kth))
        hit[crowded] = tile[crowded] <= _rounded_up(self.bound[queries], tile.dtype)[:, None]
        if not source.exact:
            self._first_duplicates(rows, crowded[kth == 0], c0, tile, hit)
        return queries

    def _first_duplicates(self, rows: Array, places: Array, c0: int, tile: Array, hit: Array) -> None:
        """Drop all but the first candidates of queries that have k duplicates among these: columns ascend in number."""
        k = self.indices.shape[1]
        for part in np.array_split(places, -(-len(places) * hit.shape[1] // 2**20)) if len(places) else ():
            first: Array = hit[part] & (np.cumsum(hit[part], axis=1, dtype=np.int32) <= 2 * k)
            who, columns = np.nonzero(first)
            keys = self.source.keys(self.q0 + rows[part[who]], c0 + columns, tile[part[who], columns])
            enough = np.bincount(who[keys == 0], minlength=len(part)) >= k
            hit[part[enough]] = first[enough]


def _rounded_up(bound: Array, dtype: np.dtype[Any]) -> Array:
    """Return bounds in the precision of a tile, none of them lower and all finite."""
    if dtype == np.float64:
        return bound
    kind: Any = dtype.type
    most = np.nextafter(np.finfo(dtype).max, kind(0))
    return np.asarray(np.nextafter(np.minimum(bound, most).astype(dtype), kind(np.inf)))


def _merge(indices: Array, keys: Array, rows: Array, cols: Array, new: Array, numbers: Array | None) -> Array:
    """Merge pairs (rows, cols) with keys ``new`` into the sorted lists, in place; return the lists that changed."""
    b, k = indices.shape
    order = np.argsort(rows.astype(np.int16), kind="stable")  # a radix sort
    rows, new, cols = rows[order], new[order], cols[order]
    cols = cols if numbers is None else numbers[cols]
    counts = np.bincount(rows, minlength=b)
    place = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)  # of a pair among those of its list
    # At most k pairs of a list at a time: a list with many does not widen the table of all others.
    for first in range(0, int(counts.max(initial=0)), k):
        part = np.flatnonzero((place >= first) & (place < first + k)) if counts.max() > k else slice(None)
        lists = np.flatnonzero(counts > first)
        width = k + min(k, int(counts.max()) - first)
        all_keys = np.full((len(lists), width), np.inf)
        all_cols = np.full((len(lists), width), np.iinfo(np.int64).max)
        all_keys[:, :k], all_cols[:, :k] = keys[lists], indices[lists]
        at = np.searchsorted(lists, rows[part]), k + place[part] - first
        all_keys[at], all_cols[at] = new[part], cols[part]
        indices[lists], keys[lists] = k_least(all_cols, all_keys, k)
    return np.flatnonzero(counts)


def k_least(numbers: Array, keys: Array, k: int) -> Found:
    """Return the k entries of each row with the least keys, sorted by (key, number): numbers and keys."""
    order = np.argsort(keys, axis=1)[:, : k + 1]
    found = np.take_along_axis(keys, order, axis=1)
    # an unstable sort is three times as fast, and ties are rare in real numbers
    tied = np.flatnonzero(((found[:, 1:] == found[:, :-1]) & np.isfinite(found[:, 1:])).any(axis=1))
    order = order[:, :k]
    if len(tied):
        order[tied] = np.lexsort((numbers[tied], keys[tied]), axis=1)[:, :k]
    return np.take_along_axis(numbers, order, axis=1), np.take_along_axis(keys, order, axis=1)


# ------------------------------------------------------------------------------------------------- sizes of work arrays

TILE_BYTES = 8 * 2**20
"""A tile of distances.  Smaller ones stay in the cache, larger ones multiply faster: flat between 2 and 8 MB."""
SINGLE_SHARE = 4
"""Part of a tile that products in float32 fill: they are fast, so the passes that follow should find them in the cache.
A quarter took the least time of 1, 1/2, 1/4 and 1/8, or nearly so, from 4 to 128 columns and for 5 to 50 neighbours."""
TILE_ARRAYS = 5
"""Memory that a tile takes, in tiles: itself, a copy, the order of its entries (int64 for float32), a mask."""
TILE_QUERIES = 1024
"""Queries in a tile: many, because the rows are prepared once for all of them; row numbers must fit an int16."""
LIST_BYTES = 256
"""Memory that a query takes for each neighbour wanted: up to three candidates, their keys, and sorted copies."""


def tile_shape(q: int, width: int, k: int, item: int = 8, share: int = 1) -> tuple[int, int]:
    """Return the numbers of queries and rows of a tile, such that wide operands and long lists stay small too.

    A tile takes 1/share of TILE_BYTES.
    """
    numbers = block_bytes(TILE_ARRAYS * TILE_BYTES) // TILE_ARRAYS // item // share
    most = block_bytes(TILE_QUERIES * LIST_BYTES * k) // (LIST_BYTES * k)
    queries = max(1, min(q, most, numbers // max(width // 4, 8 * k)))
    return queries, max(1, numbers // max(width // 4, queries))


def row_blocks(n: int, numbers: int, share: int = 1) -> Iterator[slice]:
    """Yield slices that cover ``range(n)``: at most 1/share of a tile each, at ``numbers`` float64 per row."""
    return blocks(n, 8 * numbers, TILE_BYTES // share)


# --------------------------------------------------------------------------------------------------- bounds by products

SINGLE_FEATURES = 4096
"""Up to this many features the bound of `kept_share` holds in float32."""
SINGLE_NORMS = (1e-8, 1e20)
"""The range of the largest squared norm in which float32 neither overflows nor loses small rows."""


def kept_share(d: int, dtype: Any) -> float:
    """Return 1 - s such that the computed (1 - s)|x|² - 2q'x is at most |q - x|² - (1 - s)|q|².

    Let u be the unit roundoff of dtype.  Rounding the entries of q and x to dtype changes q'x by at most
    (2u + u²) Σ|q_i x_i|, and the norm by u|x|².  A sum of d + 1 products errs, in any order and with or without fused
    operations, by at most γ times the sum of their magnitudes, γ = (d + 1)u/(1 - (d + 1)u).  As 2 Σ|q_i x_i| is at
    most |q|² + |x|², all this is at most (2d + 5)u(|q|² + |x|²) up to terms in u², which for d <= SINGLE_FEATURES are
    below 3u.  s = (2d + 16)u leaves room for those, for the rounding of norms and distances in float64, and for that of
    the comparison.
    """
    return 1.0 - (2 * d + 16) * float(np.finfo(dtype).eps) / (2 if dtype == np.float32 else 1)


def takes_single(d: int, *squares: float) -> bool:
    """Return whether bounds in float32 hold for rows of d features with these largest squared norms."""
    most = max(squares)
    return d <= SINGLE_FEATURES and bool(SINGLE_NORMS[0] < most < SINGLE_NORMS[1])


def smallest(d: int, dtype: Any, *squares: float) -> float:
    """Return the error of a bound from numbers below the range of normal floats, given the largest squared norms.

    Without norms, the largest for which float32 is used.
    """
    most: float = max(squares, default=SINGLE_NORMS[1])
    return float(4 * d * np.finfo(dtype).tiny * (1 + most**0.5))


def operand(X: Any, centre: Array, norms: Array | None, dtype: Any) -> Array:
    """Return [x - centre, 1], or [-2(x - centre), norm]: one product of the two saves two passes over the tile."""
    n, d = X.shape
    out = np.empty((n, d + 1), dtype=dtype)
    if is_sparse(X):
        out[:, :d] = X.toarray() - centre
    else:
        np.subtract(X, centre, out=out[:, :d], casting="same_kind")
    if norms is None:
        out[:, d] = 1
    else:
        out[:, :d] *= -2
        out[:, d] = norms
    return out


def operands(Q: Array, X: Array, q: Array, x: Array, dtype: Any) -> tuple[Array, Array]:
    """Return matrices whose product, left times right', is (1 - s)(|q|² + |x|²) - 2q'x: a bound of |q - x|² from below.

    The sum has one term more than that of `operand`, so its error is at most (2d + 7)u(|q|² + |x|²).
    """
    return left_operand(Q, q, dtype), right_operand(X, x, dtype)


def left_operand(Q: Array, squares: Array, dtype: Any) -> Array:
    """Return [q, 1, (1 - s)|q|²], given the rows and their squared norms."""
    d = Q.shape[1]
    out = np.empty((len(Q), d + 2), dtype=dtype)
    out[:, :d], out[:, d], out[:, d + 1] = Q, 1, kept_share(d, dtype) * squares
    return out


def right_operand(X: Array, squares: Array, dtype: Any) -> Array:
    """Return [-2x, (1 - s)|x|², 1], given the rows and their squared norms."""
    d = X.shape[1]
    out = np.empty((len(X), d + 2), dtype=dtype)
    np.multiply(X, -2, out=out[:, :d], casting="same_kind")
    out[:, d], out[:, d + 1] = kept_share(d, dtype) * squares, 1
    return out


# ------------------------------------------------------------------------------------------------------------ distances

DENSE_SHARE = 1 / 16
"""Above this share of nonzeros a dense product is faster than a sparse one (measured at 100 to 10,000 features)."""


def pair_distances(X: Any, Q: Any, rows: Array, cols: Array) -> Array:
    """Return |Q[rows] - X[cols]|: the definition of a distance for every search on real numbers.

    The sum over features runs in an order that depends on d (or on the nonzeros of the pair), never on the block, so
    equal pairs of rows have equal distances wherever they are stored.
    """
    out = np.empty(rows.size)
    (_sparse_squares if is_sparse(X) else _dense_squares)(X, Q, rows, cols, out)
    return np.sqrt(out, out=out)


def _sparse_squares(X: Any, Q: Any, rows: Array, cols: Array, out: Array) -> None:
    for part in row_blocks(rows.size, 4 + 4 * X.nnz // X.shape[0], share=8):
        apart = Q[rows[part]].astype(np.float64) - X[cols[part]].astype(np.float64)
        out[part] = np.asarray(apart.multiply(apart).sum(axis=1)).ravel()


def _dense_squares(X: Array, Q: Array, rows: Array, cols: Array, out: Array) -> None:
    d = X.shape[1]
    # An eighth of a tile stays in the cache between the passes over the differences.
    size = max(1, min(rows.size, TILE_BYTES // 8 // (8 * d)))
    # One buffer for all parts: in a dask worker malloc returns freed memory to the system, and maps it anew each time.
    left, right = np.empty((size, d), dtype=Q.dtype), np.empty((size, d), dtype=X.dtype)
    apart = left if Q.dtype == np.float64 else np.empty((size, d))
    for start in range(0, rows.size, size):
        i, j = rows[start : start + size], cols[start : start + size]
        k = len(i)
        # The indices are valid; with mode="raise" take would write to a temporary array first.
        np.take(Q, i, axis=0, out=left[:k], mode="clip")
        np.take(X, j, axis=0, out=right[:k], mode="clip")
        np.subtract(left[:k], right[:k], dtype=np.float64, out=apart[:k])
        # Not einsum: beyond 8192 features it splits a sum where its buffer happens to end.
        np.vecdot(apart[:k], apart[:k], out=out[start : start + k])


def squared_norms(X: Any, centre: Array) -> Array:
    """Return |x - centre|² of every row; of CSR rows |x|²."""
    if is_sparse(X):
        X = X.astype(np.float64)
        return np.asarray(X.multiply(X).sum(axis=1)).ravel()
    out = np.empty(X.shape[0])
    for part in row_blocks(X.shape[0], X.shape[1]):
        block = X[part] - centre
        out[part] = np.vecdot(block, block)
    return out


def largest(X: Any) -> float:
    """Return max |X| without a temporary array."""
    values = X.data if is_sparse(X) else X
    return float(max(values.max(), -values.min())) if values.size else 0.0


def multiplies_dense(X: Any) -> bool:
    """Return whether tiles of distances are computed by dense products."""
    return not is_sparse(X) or bool(X.nnz > DENSE_SHARE * X.shape[0] * X.shape[1])


def is_whole(X: Any) -> bool:
    """Return whether all entries are whole numbers."""
    return _all_entries(X, lambda part: np.rint(part) == part)


def is_binary(X: Any) -> bool:
    """Return whether all entries are zeros and ones."""
    return _all_entries(X, lambda part: (part == 0) | (part == 1))


def _all_entries(X: Any, test: Any) -> bool:
    values = X.data[:, None] if is_sparse(X) else X
    return all(bool(test(values[part]).all()) for part in row_blocks(values.shape[0], values.shape[1]))


# ------------------------------------------------------------------------------------------------------- largest scores

COPIES = 4
"""Arrays of the scores that exist at the same time: their negation, its partition, and temporaries of the kernel."""
SCORES = 2**22
"""Scores that are computed at once: 32 MB."""


def largest_scores(block: Callable[[slice], Array], n: int, queries: int, k: int) -> tuple[Array, Array]:
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
