"""Nearest neighbours and neighbour graphs of rows under the Euclidean distance.

Every search returns the ``k`` nearest rows sorted by (distance, index), so equal distances, which binary and integer
data have by the thousand, never make two runs differ.  The exact searches on dense rows agree with one another to the
last bit: whatever proposes the candidates, they are ranked by the difference of the two rows in float64 (or, for whole
numbers, without any rounding).  This is the only file that imports pynndescent.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from .cluster import threads
from .errors import InputError, UnknownNameError, first_rows, nearest
from .rows import (
    FAN_IN,
    as_dask,
    as_vectors,
    blocks,
    check_widths,
    count,
    cross,
    draw,
    fitted,
    is_dask,
    is_sparse,
)

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Array = NDArray[Any]
Found = tuple[Array, Array]
Search = Callable[..., Found]

_log = logging.getLogger(__name__)

METHODS = ("auto", "exact", "tree", "hamming", "pynndescent")

# A tile of distances.  Smaller ones stay in the cache, larger ones multiply faster: flat between 2 and 8 MB.
_TILE_BYTES = 8 * 2**20
# Columns of the first tile, from which the first bounds are selected.
_FIRST_COLUMNS = 256
# Queries in a tile: many, because the rows they meet are prepared for them; row numbers must fit an int16.
_TILE_QUERIES = 1024
# Above this share of nonzeros a dense product beats the sparse one (equal near 0.06, at 100 to 10,000 features).
_DENSE_SHARE = 1 / 16
# 20,000 Gaussian rows, the worst for a tree: 0.7 s against 1.8 s exact at 7 features, 2.4 against 1.9 at 10.
_TREE_FEATURES = 7
# Neighbours beyond k asked of the tree, so that a tie at the k-th place is seen to end; if not, 4 and 16 times as many.
_TREE_SPARE = 8
_TREE_GROWTH = (1, 4, 16)
# NN-descent follows its own lists, and short ones mislead it: recall at k = 1 is 0.95 with 2 entries, 1.00 with 16.
_DESCENT_LIST = 16
# Seconds on one core at which packed rows draw level in a new process: to import numba and load the loop.
_HAMMING_SECONDS = 2.0
# Seconds on one core at which NN-descent draws level in a new process: 33 to compile, 2 to import, 4 to 10 to run.
_DESCENT_SECONDS = 45.0


class DistanceBlock(Protocol):
    """Distances of queries ``q0:q1`` to rows ``c0:c1``, as a (q1 - q0, c1 - c0) array."""

    def __call__(self, q0: int, q1: int, c0: int, c1: int, /) -> Array:
        """Return the block; it is not written to."""


def search(X: Any, k: int, *, queries: Any | None = None, method: str | Search = "auto", seed: int = 0) -> Found:
    """Find the k rows of X nearest to each query in Euclidean distance.

    Without ``queries`` the neighbours of every row of X among the *other* rows are found: row i is left out of its
    own list by its index, while a duplicate of it stays in at distance 0.

    Parameters
    ----------
    X : (n, d) ndarray of float32 or float64, csr_matrix or csr_array, or a dask array of these
        The rows searched.  Integers and booleans are converted to float64.  Chunks of a dask array are searched one by
        one and their answers merged, or, where that would take too long, searched as one; what is returned is lazy.
    k : int
        Neighbours per query, at most n (n - 1 without queries).
    queries : (q, d), of the same kind as X, or None
        The rows whose neighbours are wanted.
    method : {"auto", "exact", "tree", "hamming", "pynndescent"} or callable
        ``exact``: blocked matrix products, O(q n d) time.  ``tree``: a KD tree, dense rows of low dimension only;
        the same answer as ``exact``.  ``hamming``: rows of zeros and ones only, packed into bits; the same answer
        again, ten times as fast.  ``pynndescent``: approximate NN-descent [1]_, see `recall`; deterministic on
        one thread, with exact distances for the rows it returns.  ``auto``: the fastest by shape, nonzeros and
        duplicates, counting the seconds of a new process; exact with queries.  A callable is called as
        ``method(X, k, queries=queries, seed=seed)`` and must return what this function returns.
    seed : int
        Of the approximate searches.

    Returns
    -------
    indices : (q, k) int64
    distances : (q, k) float64
        Each row ascends by (distance, index); among equal distances the smaller indices are kept.

    Notes
    -----
    Memory: 16 bytes per neighbour returned (800 MB at n = 1e6, k = 50) and work arrays of 30 MB, or 100 MB when d is in
    the thousands or all distances tie; never n × n.  ``tree`` adds a float64 copy of X, ``pynndescent`` a float32 copy
    and about 20 bytes per neighbour.

    ``exact`` selects by products in float64 and measures anew every pair that rounding could misplace, so its answer
    does not depend on the size of its blocks.  Where very many pairs are that close (clusters narrower than 1e-7 of
    the distance between them) it takes the time of a naive search.  Whole numbers, whose products are exact, do not.

    References
    ----------
    .. [1] Dong, Charikar and Li, "Efficient k-nearest neighbor graph construction for generic similarity
       measures", WWW 2011.
    """
    if is_dask(X) or is_dask(queries):
        if queries is None and (method == "pynndescent" or (method == "auto" and _outgrows_chunks(X))):
            X = X.rechunk({0: -1})  # an index knows its own rows only: one of all rows, in one task
        return across(partial(_in_shard, method=method, seed=seed), X, k, queries=queries)
    X, Q = _check_rows(X, queries)
    k = _check_k(k, X.shape[0], exclude_self=queries is None)
    seed = _whole(seed, "seed", 0)
    if callable(method):
        found = method(X, k, queries=None if queries is None else Q, seed=seed)
        return _check_found(found, Q.shape[0], k, X.shape[0], itself=queries is None)
    if method not in METHODS:
        raise UnknownNameError(f"method {method!r} is unknown; {nearest(str(method), METHODS)}")
    if method == "auto":
        method = _choose(X, Q, itself=queries is None)
    own = np.arange(X.shape[0]) if queries is None else None
    if method == "exact":
        return _exact(X, Q, k, own)
    if method == "tree":
        return _tree(X, Q, k, own)
    if method == "hamming":
        return _hamming(X, Q, k, own)
    return _descent(X, Q, k, own, seed)


def search_blocks(distance_block: DistanceBlock, n: int, q: int, k: int, *, exclude_self: bool = False) -> Found:
    """Find the k nearest of n rows to each of q queries under any distance, given block by block.

    Parameters
    ----------
    distance_block : callable
        ``distance_block(q0, q1, c0, c1)`` returns the (q1 - q0, c1 - c0) distances of queries ``q0:q1`` to rows
        ``c0:c1``.  A block has at most 2**20 entries, is asked for at most once, and is not written to.
    n, q : int
        Rows and queries.
    k : int
        Neighbours per query.
    exclude_self : bool
        Query i is row i (q = n), and is left out of its own list.

    Returns
    -------
    indices : (q, k) int64
    distances : (q, k) float64
        Each row ascends by (distance, index); among equal distances the smaller indices are kept.  Distances are
        ranked as given: one whose rounding depends on the shape of the block decides near-ties accordingly.

    Notes
    -----
    Time: q n distances and a comparison each.  Memory: 16 bytes per neighbour returned and work arrays of 30 MB (100 MB
    when all distances tie), besides what distance_block needs.
    """
    n, q = _whole(n, "n", 1), _whole(q, "q", 0)
    k = _check_k(k, n, exclude_self)
    if exclude_self and q != n:
        raise InputError(f"exclude_self needs the queries to be the rows, but q = {q} and n = {n}; pass q = n")
    own = np.arange(n) if exclude_self else None
    return _scan(_Given(distance_block), n, q, k, own, *_tile_shape(1, k))


def across(find: Callable[..., Found], X: Any, k: int, *, queries: Any | None = None) -> Found:
    """Find the k nearest rows of dask rows X by searching each chunk for each chunk of the queries.

    Parameters
    ----------
    find : callable
        ``find(x, k, queries=q)`` returns what `search` returns for one chunk of X and one of the queries (None: the
        chunk itself, whose rows do not find themselves).  Picklable.
    X, k, queries
        As in `search`; at least one of X and queries is a dask array, the other may be in memory.

    Returns
    -------
    indices, distances : lazy (q, k) dask arrays
        With the chunks of the queries.  Cost: one task for each pair of chunks; what moves are chunks of X, and lists
        of k.
    """
    k = _check_k(k, count(X), exclude_self=queries is None)
    X = as_dask(X)
    Q = X if queries is None else as_dask(queries)
    if X.numblocks[0] > 1:
        Q = fitted(Q, 16 * k * FAN_IN)  # the lists that one task joins
    if queries is None:
        X = Q  # the same chunks, so that a row meets itself only in a chunk that meets itself
    shard = _Shard(find, k, itself=queries is None)
    indices, distances = cross(shard, partial(_best, k=k), Q, X, ((k, np.int64), (k, np.float64)))
    return indices, distances


@dataclass(frozen=True)
class _Shard:
    """The search of one chunk of rows for one chunk of queries, with the row numbers of the whole."""

    find: Callable[..., Found]
    k: int
    itself: bool

    def __call__(self, Q: Any, X: Any, q_rows: range, x_rows: range) -> Found:
        same = self.itself and q_rows == x_rows
        k = min(self.k, count(X) - same)
        if k == 0:
            return np.empty((count(Q), 0), dtype=np.int64), np.empty((count(Q), 0))
        indices, distances = self.find(X, k, queries=None if same else Q)
        return indices + x_rows.start, distances


def _in_shard(X: Any, k: int, *, queries: Any | None, method: str | Search, seed: int) -> Found:
    return search(X, k, queries=queries, method=method, seed=seed)


def _best(found: list[Found], k: int) -> Found:
    """Merge lists of neighbours: the k least by (distance, index)."""
    indices, distances = (np.concatenate(parts, axis=1) for parts in zip(*found, strict=True))
    order = np.lexsort((indices, distances), axis=1)[:, :k]
    return np.take_along_axis(indices, order, axis=1), np.take_along_axis(distances, order, axis=1)


exact = partial(search, method="exact")
tree = partial(search, method="tree")
hamming = partial(search, method="hamming")
descent = partial(search, method="pynndescent")


def graph(indices: Array, *, kind: Literal["mutual", "union"] = "mutual", n: int | None = None) -> csr_array:
    """Join the nodes that are each other's neighbours (mutual), or of which one is the other's (union).

    Parameters
    ----------
    indices : (r, k) integers
        Row i lists the neighbours of node i; -1 stands for none, and i itself is passed over.
    kind : {"mutual", "union"}
        Whether both nodes must list one another or one suffices.
    n : int, optional
        Number of nodes, at least r (the default); nodes from r on list no neighbours.

    Returns
    -------
    (n, n) csr_array
        Symmetric, zeros and ones in float64, empty diagonal, sorted indices.  An isolated node is an empty row.

    Notes
    -----
    Time O(n k log k).  Memory: 12 bytes per edge end returned, and at most 25 bytes per neighbour listed in between.
    """
    from scipy.sparse import csr_array

    indices = np.asarray(indices)
    if indices.ndim != 2 or indices.dtype.kind not in "iu":
        raise InputError(
            f"indices must be a 2-d array of integers, got {indices.ndim}-d {indices.dtype}; pass those of search()"
        )
    r = indices.shape[0]
    n = r if n is None else _whole(n, "n", r)
    if kind not in ("mutual", "union"):
        raise UnknownNameError(f"kind {kind!r} is unknown; {nearest(str(kind), ('mutual', 'union'))}")
    if indices.size and (indices.min() < -1 or indices.max() >= n):
        rows = np.flatnonzero(((indices < -1) | (indices >= n)).any(axis=1))
        raise InputError(f"indices must lie in -1..{n - 1}, not so in {first_rows(rows)}; pass n, or drop them")
    listed = (indices >= 0) & (indices != np.arange(r)[:, None])
    starts = np.zeros(n + 1, dtype=np.int64)
    np.cumsum(listed.sum(axis=1), out=starts[1 : r + 1])
    starts[r + 1 :] = starts[r]
    small = np.int32 if max(n, starts[-1]) < 2**31 else np.int64
    targets = indices[listed].astype(small)
    # int8 until the edges are known: 50 million neighbours would need 400 MB for ones in float64.
    A = csr_array((np.ones(targets.size, dtype=np.int8), targets, starts.astype(small)), shape=(n, n))
    A.sum_duplicates()
    A.data[:] = 1
    joined = A.multiply(A.T.tocsr()) if kind == "mutual" else A.maximum(A.T.tocsr())
    del A
    joined.sort_indices()
    return csr_array((np.ones(joined.nnz), joined.indices, joined.indptr), shape=(n, n))


def isolated(graph: csr_array) -> Array:
    """Return the nodes of a graph without an edge, ascending."""
    return np.flatnonzero(np.diff(graph.indptr) == 0)


def recall(indices: Array, X: Any, *, queries: Any | None = None, sample: int = 200, seed: int = 0) -> float:
    """Estimate the share of true neighbours among those found, on a random sample of queries.

    A neighbour counts when its distance, computed here, is at most (1 + 1e-6) times that of the true k-th neighbour:
    ties are hits whichever of them was returned.  A missing (-1), repeated or own index is a miss.

    Parameters
    ----------
    indices : (q, k) integers
        As returned by `search`.
    X, queries
        As given to `search`.
    sample : int
        Queries checked, without repetition; all of them when there are fewer.
    seed : int
        Of the sample.

    Returns
    -------
    float
        In [0, 1]; its standard error is at most 0.5 / sqrt(sample), and far less near 1.

    Notes
    -----
    Time O(sample · n · d), memory as the exact search.
    """
    X, Q = _check_rows(X, queries)
    indices = np.asarray(indices)
    if indices.ndim != 2 or indices.dtype.kind not in "iu" or indices.shape[0] != Q.shape[0]:
        raise InputError(
            f"indices must be integers of shape ({Q.shape[0]}, k), got {indices.dtype} of shape {indices.shape};"
            " pass those that search() returned for these rows"
        )
    k = _check_k(indices.shape[1], X.shape[0], exclude_self=queries is None)
    if indices.min() < -1 or indices.max() >= X.shape[0]:
        raise InputError(f"indices must lie in -1..{X.shape[0] - 1}; pass those that search() returned for X")
    rows = draw(Q.shape[0], _whole(sample, "sample", 1), _whole(seed, "seed", 0))
    own = rows if queries is None else None
    furthest = _exact(X, Q[rows], k, own)[1][:, -1:]
    distances = _ranked(X, Q[rows], indices[rows], own)[1]
    return float(np.mean(distances <= furthest * (1 + 1e-6)))


# Input ---------------------------------------------------------------------------------------------------------


def _check_rows(X: Any, queries: Any | None) -> tuple[Any, Any]:
    """Return X and the queries (X itself for None) as finite floats, both dense or both CSR."""
    X = _check_in_memory(X, "X")
    if queries is None:
        return X, X
    Q = _check_in_memory(queries, "queries")
    check_widths(Q, X, ("queries", "X"))
    if is_sparse(Q) != is_sparse(X):
        raise InputError("queries and X must both be dense or both be sparse; convert one of them")
    return X, Q


def _check_in_memory(X: Any, name: str) -> Any:
    if is_dask(X):
        raise InputError(f"{name} is a dask collection, and neighbours are searched in memory; pass {name}.compute()")
    X = as_vectors(X, name)
    size = _largest(X)
    if size > 1e150:
        raise InputError(f"{name} has values up to {size:.3g}, whose squares overflow; rescale its features")
    return X


def _check_k(k: int, n: int, exclude_self: bool) -> int:
    k = _whole(k, "k", 1)
    most = n - 1 if exclude_self else n
    if k > most:
        others = "other rows" if exclude_self else "rows"
        raise InputError(f"k = {k} neighbours are asked for, but there are {most} {others}; pass k <= {most}")
    return k


def _whole(value: int, name: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InputError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return int(value)


def _check_found(found: Found, q: int, k: int, n: int, itself: bool) -> Found:
    """Hold a callable to the contract of `search`."""
    indices, distances = (np.asarray(part) for part in found)
    if indices.shape != (q, k) or distances.shape != (q, k) or indices.dtype.kind not in "iu":
        raise InputError(
            f"method must return integer indices and distances of shape ({q}, {k}),"
            f" got {indices.dtype} {indices.shape} and {distances.shape}"
        )
    wrong = (indices < 0) | (indices >= n) | ~np.isfinite(distances)
    if itself:
        wrong |= indices == np.arange(q)[:, None]
    if wrong.any():
        raise InputError(
            f"method returned in {first_rows(np.flatnonzero(wrong.any(axis=1)))} an index outside 0..{n - 1},"
            " the row itself, or a distance that is not finite"
        )
    return indices.astype(np.int64, copy=False), distances.astype(np.float64, copy=False)


def _largest(X: Any) -> float:
    """Return max |X| without a temporary array."""
    values = X.data if is_sparse(X) else X
    return float(max(values.max(), -values.min())) if values.size else 0.0


def _whole_numbered(X: Any) -> bool:
    values = X.data[:, None] if is_sparse(X) else X
    parts = (values[part] for part in blocks(values.shape[0], 8 * values.shape[1], _TILE_BYTES))
    return all(bool((np.rint(part) == part).all()) for part in parts)


# The choice ----------------------------------------------------------------------------------------------------


def _choose(X: Any, Q: Any, itself: bool) -> str:
    """Return the method with the least expected time in a new process."""
    n, d = X.shape
    if not is_sparse(X) and d <= _TREE_FEATURES and not _few_distinct(X):
        return "tree"
    # Nanoseconds per pair on one core: the product, and the comparison with the k-th distance.
    pair = 4 + 0.045 * d if _multiplies_dense(X) else 9 + min(60.0, 10 * (X.nnz / n) ** 2 / d)
    pairs = n * Q.shape[0]
    packed = 0.5 + 0.2 * (d // 64 + 1)  # measured at 2 and at 16 words
    if 1e-9 * pair * pairs > _HAMMING_SECONDS and 1e-9 * packed * pairs <= _DESCENT_SECONDS and _both_binary(X, Q):
        return "hamming"
    # With queries an index would be built, and its search compiled (a minute more), for one use.
    return "pynndescent" if itself and 1e-9 * pair * pairs > _DESCENT_SECONDS else "exact"


def _outgrows_chunks(X: Any) -> bool:
    """Tell dask rows on which comparing every pair would take longer than one index, even on all workers."""
    n, d = X.shape
    return bool(1e-9 * min(4 + 0.045 * d, 60) * n * n / threads() > _DESCENT_SECONDS)


def _few_distinct(X: Array) -> bool:
    """Tell rows so often repeated that a tree has huge leaves, and the exact scan meets k duplicates at once."""
    sample = X[:: max(1, X.shape[0] // 1000)]
    return bool(sample.shape[0] >= 1000 and np.unique(sample, axis=0).shape[0] < 100)


def _multiplies_dense(X: Any) -> bool:
    return not is_sparse(X) or bool(X.nnz > _DENSE_SHARE * X.shape[0] * X.shape[1])


# Exact search --------------------------------------------------------------------------------------------------


def _pair_distances(X: Any, Q: Any, rows: Array, cols: Array) -> Array:
    """Return |Q[rows] - X[cols]|, the one definition of a distance in this file.

    The sum over features runs in an order fixed by d (or by the nonzeros of the pair), never by the block, so equal
    pairs of rows have equal distances wherever they stand.
    """
    out = np.empty(rows.size)
    (_sparse_squares if is_sparse(X) else _dense_squares)(X, Q, rows, cols, out)
    return np.sqrt(out, out=out)


def _sparse_squares(X: Any, Q: Any, rows: Array, cols: Array, out: Array) -> None:
    for part in blocks(rows.size, 8 * (4 + 4 * X.nnz // X.shape[0]), _TILE_BYTES // 8):
        apart = Q[rows[part]].astype(np.float64) - X[cols[part]].astype(np.float64)
        out[part] = np.asarray(apart.multiply(apart).sum(axis=1)).ravel()


def _dense_squares(X: Array, Q: Array, rows: Array, cols: Array, out: Array) -> None:
    d = X.shape[1]
    # An eighth of a tile stays in the cache between the passes over the differences.
    size = max(1, min(rows.size, _TILE_BYTES // 8 // (8 * d)))
    # The same memory for all parts: in a dask worker malloc gives it back, and maps it anew, each time.
    left, right = np.empty((size, d), dtype=Q.dtype), np.empty((size, d), dtype=X.dtype)
    apart = left if Q.dtype == np.float64 else np.empty((size, d))
    for start in range(0, rows.size, size):
        i, j = rows[start : start + size], cols[start : start + size]
        k = len(i)
        # The numbers are in range; only with a mode other than "raise" does take write to its place at once.
        np.take(Q, i, axis=0, out=left[:k], mode="clip")
        np.take(X, j, axis=0, out=right[:k], mode="clip")
        np.subtract(left[:k], right[:k], dtype=np.float64, out=apart[:k])
        # Not einsum: beyond 8192 features it splits a sum where its buffer happens to end.
        np.vecdot(apart[:k], apart[:k], out=out[start : start + k])


def _squared_norms(X: Any, centre: Array) -> Array:
    if is_sparse(X):
        X = X.astype(np.float64)
        return np.asarray(X.multiply(X).sum(axis=1)).ravel()
    out = np.empty(X.shape[0])
    for part in blocks(X.shape[0], 8 * X.shape[1], _TILE_BYTES):
        block = X[part] - centre
        out[part] = np.vecdot(block, block)
    return out


class _Source(Protocol):
    """What `_scan` ranks: tiles of values, and the keys they stand for.

    ``settled`` says that a value alone fixes its key; otherwise a value is a lower bound, and ``keys`` computes anew.
    """

    settled: bool

    def tile(self, q0: int, q1: int, c0: int, c1: int) -> Array: ...

    def keys(self, rows: Array, cols: Array, values: Array) -> Array:
        """Return the keys of pairs (query, row), given their values."""

    def reach(self, rows: Array, keys: Array) -> Array:
        """Return the largest value behind which a key of at most ``keys`` can be, per query."""


class _Given:
    """Distances computed by the caller: value and key are the distance."""

    settled = True

    def __init__(self, distance_block: DistanceBlock) -> None:
        self.distance_block = distance_block

    def tile(self, q0: int, q1: int, c0: int, c1: int) -> Array:
        tile = np.array(self.distance_block(q0, q1, c0, c1), dtype=np.float64, order="C")
        if tile.shape != (q1 - q0, c1 - c0):
            raise InputError(
                f"distance_block({q0}, {q1}, {c0}, {c1}) must have shape {(q1 - q0, c1 - c0)}, got {tile.shape}"
            )
        proper = (tile >= 0) & (tile < np.inf)
        if not proper.all():
            rows = np.flatnonzero(~proper.all(axis=1)) + q0
            raise InputError(
                f"distance_block gives negative, NaN or infinite distances for query {first_rows(rows)}; repair it"
            )
        return tile

    def keys(self, rows: Array, cols: Array, values: Array) -> Array:
        return values

    def reach(self, rows: Array, keys: Array) -> Array:
        return keys


class _Euclidean:
    """Squared distances by products: the value of (q, x) is (1 - s)|x|² - 2q'x, so value + (1 - s)|q|² <= |q - x|².

    With d features the products, norms and sums err by at most s(|q|² + |x|²), s = (2d + 16) 2**-52; rows are centred
    first, because that error grows with the distance from the origin and the answer does not.  Keys are distances.
    For whole numbers every product is exact: s = 0, nothing is centred, and the squared distance is itself the key.
    """

    def __init__(self, X: Any, Q: Any) -> None:
        self.X, self.Q = X, Q
        d = X.shape[1]
        # Below 2**50 sums of squares are exact and their square roots distinct.
        self.settled = 4 * d * max(_largest(X), _largest(Q)) ** 2 < 2**50 and (
            _whole_numbered(X) and (Q is X or _whole_numbered(Q))
        )
        self.multiplies_dense = _multiplies_dense(X)
        centred = not is_sparse(X) and not self.settled
        self.centre = X.mean(axis=0, dtype=np.float64) if centred else np.zeros(d)
        share = 1.0 if self.settled else 1.0 - (2 * d + 16) * np.finfo(np.float64).eps
        self.x_norms = share * _squared_norms(X, self.centre)
        self.q_norms = self.x_norms if Q is X else share * _squared_norms(Q, self.centre)
        # Squares below the normal range lose their relative accuracy.
        self.floor = 0.0 if self.settled else d * np.finfo(np.float64).tiny
        self.buffer = np.empty(0)

    def tile(self, q0: int, q1: int, c0: int, c1: int) -> Array:
        Q, X, norms = self.Q[q0:q1], self.X[c0:c1], self.x_norms[c0:c1]
        if not self.multiplies_dense:
            product: Array = (Q.astype(np.float64) @ X.astype(np.float64).T).toarray()
            product *= -2
            product += norms
            return product
        d = self.X.shape[1]
        # One product for [q, 1] · [-2x, |x|²] spares two passes over the tile.
        left, right = np.empty((q1 - q0, d + 1)), np.empty((c1 - c0, d + 1))
        left[:, :d] = Q.toarray() if is_sparse(Q) else Q
        right[:, :d] = X.toarray() if is_sparse(X) else X
        left[:, :d] -= self.centre
        right[:, :d] -= self.centre
        right[:, :d] *= -2
        left[:, d], right[:, d] = 1, norms
        # One buffer for all tiles: where malloc gives memory back at once (on dask), new ones cost as much again.
        size = len(left) * len(right)
        if self.buffer.size < size:
            self.buffer = np.empty(size)
        tile: Array = np.matmul(left, right.T, out=self.buffer[:size].reshape(len(left), len(right)))
        return tile

    def keys(self, rows: Array, cols: Array, values: Array) -> Array:
        if self.settled:
            return np.add(values, self.q_norms[rows])
        return _pair_distances(self.X, self.Q, rows, cols)

    def reach(self, rows: Array, keys: Array) -> Array:
        return np.subtract(keys if self.settled else keys**2 + self.floor, self.q_norms[rows])


def _exact(X: Any, Q: Any, k: int, own: Array | None) -> Found:
    """Search by blocked products; ``own[i]`` is the row of X that query i is and may not find."""
    source = _Euclidean(X, Q)
    width = X.shape[1] if source.multiplies_dense else 1 + X.nnz // X.shape[0]
    indices, keys = _scan(source, X.shape[0], Q.shape[0], k, own, *_tile_shape(width, k))
    return indices, np.sqrt(keys, out=keys) if source.settled else keys


def _tile_shape(width: int, k: int) -> tuple[int, int]:
    """Return how many queries and rows make a tile, such that wide operands and long lists stay small too."""
    numbers = _TILE_BYTES // 8
    queries = min(_TILE_QUERIES, max(1, numbers // max(width // 4, 8 * k)))
    return queries, max(1, numbers // max(width // 4, queries))


def _scan(source: _Source, n: int, q: int, k: int, own: Array | None, rows: int, cols: int) -> Found:
    """Return the indices and keys of the k least keys per query, sorted by (key, index)."""
    indices = np.full((q, k), n, dtype=np.int64)
    keys = np.full((q, k), np.inf)
    for q0 in range(0, q, rows):
        part = slice(q0, min(q0 + rows, q))
        _scan_rows(source, q0, n, None if own is None else own[part], cols, indices[part], keys[part])
    return indices, keys


def _scan_rows(source: _Source, q0: int, n: int, own: Array | None, cols: int, indices: Array, keys: Array) -> None:
    """Fill the lists of the queries from q0 on, in place.

    ``bound`` is the largest value of a later column that can still enter a query's list.  Comparing with it costs a
    fifth of selecting, so only the first tiles, and those crowded with candidates, are partitioned.
    """
    b, k = indices.shape
    # The largest float, not infinity: an own entry (infinite) must fail the comparison.
    bound = np.full(b, np.finfo(np.float64).max)
    pending: list[tuple[Array, ...]] = []
    held = 0
    c1 = 0
    while c1 < n:
        # Growing tiles: twice the columns bring as many candidates again, so one short selection at the start will do.
        c0, c1 = c1, min(n, c1 + min(cols, max(_FIRST_COLUMNS, c1)))
        tile = source.tile(q0, q0 + b, c0, c1)  # (b, c)
        if own is not None:
            inside = np.flatnonzero((own >= c0) & (own < c1))
            tile[inside, own[inside] - c0] = np.inf
        hit = tile <= bound[:, None]
        tightened = np.empty(0, dtype=np.int64)
        if np.count_nonzero(hit) > 2 * k * b:
            tightened = _tighten(source, q0, c0, tile, hit, bound, k)
        flat = np.flatnonzero(hit)
        pending.append((flat // (c1 - c0), flat % (c1 - c0) + c0, tile.ravel()[flat]))
        if source.settled:
            # Among equals the smaller index wins, so later columns must do better.
            bound[tightened] = np.nextafter(bound[tightened], -np.inf)
        held += flat.size
        if held > k * b or c1 == n:
            rows, columns, values = (np.concatenate(part) for part in zip(*pending, strict=True))
            _merge(indices, keys, rows, columns, source.keys(q0 + rows, columns, values))
            full = np.flatnonzero(np.isfinite(keys[:, -1]))
            bound[full] = source.reach(q0 + full, keys[full, -1])
            if source.settled:
                bound[full] = np.nextafter(bound[full], -np.inf)
            pending, held = [], 0
            if not keys[:, -1].any():
                return  # k rows at distance 0: later ones have larger indices


def _tighten(source: _Source, q0: int, c0: int, tile: Array, hit: Array, bound: Array, k: int) -> Array:
    """Lower the bounds of queries with many candidates to the k-th key in this tile; return which queries."""
    crowded = np.flatnonzero(hit.sum(axis=1) > 2 * k)
    rows = np.repeat(crowded, k)
    near = np.argpartition(tile[crowded], k - 1, axis=1)[:, :k].ravel()
    kth = source.keys(q0 + rows, c0 + near, tile[rows, near]).reshape(-1, k).max(axis=1)
    bound[crowded] = np.minimum(bound[crowded], source.reach(q0 + crowded, kth))
    hit[crowded] = tile[crowded] <= bound[crowded, None]
    return crowded


def _merge(indices: Array, keys: Array, rows: Array, cols: Array, new: Array) -> None:
    """Merge pairs (rows, cols) with keys ``new`` into the sorted lists, in place."""
    b, k = indices.shape
    # Lists first, then later columns in ascending order: a stable sort by (row, key) leaves equal keys by index.
    all_rows = np.concatenate((np.repeat(np.arange(b), k), rows)).astype(np.int16)
    all_keys = np.concatenate((keys.ravel(), new))
    all_cols = np.concatenate((indices.ravel(), cols))
    order = np.lexsort((all_keys, all_rows))
    first = np.zeros(b, dtype=np.int64)
    np.cumsum(k + np.bincount(rows, minlength=b)[:-1], out=first[1:])
    best = order[first[:, None] + np.arange(k)]
    keys[:] = all_keys[best]
    indices[:] = all_cols[best]


# Searches that propose candidates ------------------------------------------------------------------------------


def _ranked(X: Any, Q: Any, candidates: Array, own: Array | None) -> Found:
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
    distances[rows, places] = _pair_distances(X, Q, rows, indices[rows, places])
    indices[void] = -1
    order = np.argsort(distances, axis=1, kind="stable")
    return np.take_along_axis(indices, order, axis=1), np.take_along_axis(distances, order, axis=1)


def _rank_into(
    found: Found, X: Any, Q: Any, rows: Array, candidates: Array, outside: Array | float, own: Array | None
) -> Array:
    """Write the k best candidates of the queries ``rows`` into ``found``; return the queries left unsettled.

    ``outside`` is a distance that no row which is not a candidate is below.  A query is settled when its k-th distance
    is finite and below that.
    """
    k = found[0].shape[1]
    indices, distances = _ranked(X, Q[rows], candidates, None if own is None else own[rows])
    found[0][rows], found[1][rows] = indices[:, :k], distances[:, :k]
    return rows[distances[:, k - 1] >= outside]


def _complete(found: Found, X: Any, Q: Any, rows: Array, own: Array | None, method: str) -> Found:
    """Search exactly for the queries ``rows``."""
    if rows.size:
        _log.debug("%s left %d of %d queries to the exact search", method, rows.size, Q.shape[0])
        k = found[0].shape[1]
        found[0][rows], found[1][rows] = _exact(X, Q[rows], k, None if own is None else own[rows])
    return found


def _tree(X: Any, Q: Any, k: int, own: Array | None) -> Found:
    """Search a KD tree for a few more than k rows, and for more where a tie at the k-th place does not end there."""
    from scipy.spatial import KDTree

    if is_sparse(X):
        raise InputError('method "tree" takes dense rows, and X is CSR; pass method="exact" or X.toarray()')
    (n, d), q = X.shape, Q.shape[0]
    found = np.empty((q, k), dtype=np.int64), np.empty((q, k))
    tree = KDTree(X)
    # The tree sums in another order: its distances and ours differ by this factor at most.
    shrink = 1 - (d + 8) * np.finfo(np.float64).eps
    rows = np.arange(q)
    for growth in _TREE_GROWTH:
        asked = min(n, growth * (k + _TREE_SPARE))
        left = [rows[:0]]
        for part in blocks(rows.size, 8 * asked, _TILE_BYTES):
            distances, candidates = map(np.asarray, tree.query(Q[rows[part]], k=list(range(1, asked + 1))))
            outside = np.inf if asked == n else shrink * distances[:, -1]
            left.append(_rank_into(found, X, Q, rows[part], candidates, outside, own))
        rows = np.concatenate(left)
    return _complete(found, X, Q, rows, own, "tree")


def _hamming(X: Any, Q: Any, k: int, own: Array | None) -> Found:
    """Search rows of zeros and ones by counting the places in which they differ."""
    from . import hamming

    for name, rows in (("X", X), ("queries", Q)):
        if not _is_binary(rows):
            raise InputError(
                f'method "hamming" takes rows of zeros and ones, and {name} has others; pass method="auto"'
            )
    packed = hamming.packed(X)
    indices, counts = hamming.nearest(packed, packed if Q is X else hamming.packed(Q), k, own)
    return indices, np.sqrt(counts)


def _both_binary(X: Any, Q: Any) -> bool:
    return _is_binary(X) and (Q is X or _is_binary(Q))


def _is_binary(X: Any) -> bool:
    values = X.data[:, None] if is_sparse(X) else X
    parts = (values[part] for part in blocks(values.shape[0], 8 * values.shape[1], _TILE_BYTES))
    return all(bool(((part == 0) | (part == 1)).all()) for part in parts)


def _descent(X: Any, Q: Any, k: int, own: Array | None, seed: int) -> Found:
    """Search approximately by NN-descent."""
    import numba
    from pynndescent import NNDescent

    n, q = X.shape[0], Q.shape[0]
    centre = X.mean(axis=0, dtype=np.float64) if not is_sparse(X) else None
    scale = _largest(X if centre is None else np.stack((X.max(axis=0), X.min(axis=0))) - centre) or 1.0
    listed = min(n, max(k + 1, _DESCENT_LIST))
    threads = numba.get_num_threads()
    try:
        with warnings.catch_warnings():
            # About missing neighbours, which _complete finds.
            warnings.filterwarnings("ignore", message="Failed to correctly find", category=UserWarning)
            index = NNDescent(
                _single(X, centre, scale),
                n_neighbors=listed,
                random_state=int(np.random.default_rng(seed).integers(2**31)),
                n_jobs=1,  # more threads race, and the answer varies
            )
            answer = index.neighbor_graph if own is not None else index.query(_single(Q, centre, scale), listed)
    finally:
        numba.set_num_threads(threads)
    candidates: Array = answer[0]
    found = np.empty((q, k), dtype=np.int64), np.empty((q, k))
    rows = np.arange(q)
    parts = blocks(q, 8 * candidates.shape[1], _TILE_BYTES)
    short = [_rank_into(found, X, Q, rows[part], candidates[part], np.inf, own) for part in parts]
    return _complete(found, X, Q, np.concatenate(short), own, "pynndescent")


def _single(X: Any, centre: Array | None, scale: float) -> Any:
    """Return (X - centre) / scale in float32, in which a common offset would swallow the differences."""
    if centre is None:
        return (X / scale).astype(np.float32)
    out = np.empty(X.shape, dtype=np.float32)
    for part in blocks(X.shape[0], 8 * X.shape[1], _TILE_BYTES):
        out[part] = (X[part] - centre) / scale
    return out
