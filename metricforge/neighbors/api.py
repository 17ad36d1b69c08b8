"""Functions to call: `search` and its variants, `search_blocks` for any distance, and `recall`."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from .. import names
from ..errors import InputError
from ..rows import as_vectors, check_widths, draw, is_dask, is_sparse
from ..validation import first_rows, number, whole_number
from . import approximate, exhaustive
from .contract import Array, DistanceBlock, Found, Search
from .exhaustive import SearchedRows
from .partition import PLAIN
from .scanning import GivenDistances, is_binary, largest, scan, tile_shape

METHODS = ("auto", "exact", "tree", "hamming", "cells")
"""Names of the searches in this package; plugins register further names."""


def search(
    X: Any,
    k: int,
    *,
    queries: Any | None = None,
    method: str | Search = "auto",
    recall: float = 0.95,
    seed: int = 0,
) -> Found:
    """Find the k rows of X nearest to each query in Euclidean distance.

    Without ``queries``, find the neighbours of every row of X among the *other* rows: row i is excluded from its own
    list by its index, while a duplicate of it is included at distance 0.

    Parameters
    ----------
    X : (n, d) ndarray of float32 or float64, csr_matrix or csr_array, or a dask array of these
        The rows searched.  Integers and booleans are converted to float64.  Chunks of a dask array are searched one by
        one and their answers merged; where that would take too long, they are searched as one.  The result is lazy.
    k : int
        Neighbours per query, at most n (n - 1 without queries).
    queries : (q, d), of the same kind as X, or None
        The rows whose neighbours to find.
    method : {"auto", "exact", "tree", "hamming", "cells"}, the name of a registered search, or callable
        ``exact``: blocked matrix products, O(q n d) time.  ``tree``: a KD tree, for dense rows of low dimension; the
        same answer as ``exact``.  ``hamming``: rows of zeros and ones, packed into bits; the same answer, ten times as
        fast.  ``cells``: approximate; rows are grouped around centres, and each query is compared with the
        rows of as many nearby cells as ``recall`` asks for.  Where a few cells do not suffice, every row is then
        compared with the neighbours of its neighbours, in as many passes as it takes [1]_.  ``pynndescent``:
        approximate NN-descent [1]_; deterministic (one thread).  Both return exact distances.  ``auto``: the fastest of
        these by shape, nonzeros and duplicates, including the time to import and compile in a new process; always exact
        with queries and with ``recall=1``, and otherwise also a registered search that forecasts less time.  A callable
        is called as ``method(X, k, queries=queries, seed=seed)`` and must return what this function returns.
    recall : float in (0, 1]
        The share of true neighbours that an approximate search by cells is to find, as estimated on a sample of rows
        (`search_with_recall` returns the estimate).
    seed : int
        Seed of the approximate searches.

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

    ``exact`` selects by products in float64, and computes by subtraction the distance of every pair that rounding could
    misplace, so its answer does not depend on the size of its blocks.  If very many pairs are that close (clusters
    narrower than 1e-7 of the distance between them), it takes as long as a naive search.  Whole numbers are not
    affected, because their products are exact.

    References
    ----------
    .. [1] Dong, Charikar and Li, "Efficient k-nearest neighbor graph construction for generic similarity
       measures", WWW 2011.
    """
    method = _resolved(method)
    recall = number(recall, "recall", above=0, most=1)
    if is_dask(X) or is_dask(queries):
        from ..distributed.chunks import whole_rows
        from ..distributed.neighbors import found_on_dask

        X = whole_rows(X, "X", 2) if is_dask(X) else as_vectors(X, "X")
        if queries is not None:
            queries = whole_rows(queries, "queries", 2) if is_dask(queries) else as_vectors(queries, "queries")
        return found_on_dask(X, k, queries, method, recall, seed)[0]
    return Searcher(X, method=method, recall=recall, seed=seed).search(k, queries=queries)


def search_with_recall(
    X: Any, k: int, *, method: str | Search = "auto", recall: float = 0.95, seed: int = 0
) -> tuple[Found, float]:
    """Return the k nearest other rows of every row, as `search` does, and an estimate of their recall.

    The estimate is 1 for exact searches.  For ``cells`` it comes from 200 rows that took no part in the choice of the
    number of cells; for others, from `recall`.  On dask the lists are lazy, and searches other than ``cells`` that may
    be approximate have the estimate NaN.
    """
    method, recall = _resolved(method), number(recall, "recall", above=0, most=1)
    if is_dask(X):
        from ..distributed.chunks import whole_rows
        from ..distributed.neighbors import found_on_dask

        lists, known = found_on_dask(whole_rows(X, "X", 2), k, None, method, recall, seed)
        return lists, float("nan") if known is None else known
    found, estimate = Searcher(X, method=method, recall=recall, seed=seed).found(k, None)
    return found, _recall(found[0], X, seed=seed) if estimate is None else estimate


def _resolved(method: str | Search) -> str | Search:
    """Return the function of a registered name, here and not in a dask task; names of this package unchanged."""
    if isinstance(method, str) and method not in METHODS:
        found: Search = names.find("neighbors", method, METHODS, "method")
        return found
    if not isinstance(method, str) and not callable(method):
        raise InputError(f"method must be a name or a callable, got {type(method).__name__}")
    return method


class Searcher:
    """Rows in memory that are searched again and again: checked and prepared once.

    ``Searcher(X).search(k, queries=Q)`` returns what ``search(X, k, queries=Q)`` returns; the parameters are those of
    `search`.  Memory: the rows, and for exact searches of dense rows a float32 copy of up to 64 MB, or a KD tree.
    """

    def __init__(self, X: Any, *, method: str | Search = "auto", recall: float = 0.95, seed: int = 0) -> None:
        self.method, self.recall = _resolved(method), number(recall, "recall", above=0, most=1)
        self.seed = whole_number(seed, "seed", 0)
        self.rows = exhaustive.SearchedRows(check_rows(X))

    def search(self, k: int, *, queries: Any | None = None) -> Found:
        """Return indices and distances of the k nearest rows of each query, or of the other rows of every row."""
        return self.found(k, queries)[0]

    def found(self, k: int, queries: Any | None) -> tuple[Found, float | None]:
        """Return the lists and their recall; None where that is not known."""
        rows, X, method = self.rows, self.rows.X, self.method
        Q = X if queries is None else check_queries(queries, X)
        k = check_k(k, X.shape[0], exclude_self=queries is None)
        if method == "auto":
            method = _resolved(choose(rows, Q, itself=queries is None, recall=self.recall))
        if callable(method):
            found = method(X, k, queries=None if queries is None else Q, seed=self.seed)
            return check_found(found, Q.shape[0], k, X.shape[0], itself=queries is None), None
        own = np.arange(X.shape[0]) if queries is None else None
        if method == "exact":
            return exhaustive.search_rows(rows, Q, k, own), 1.0
        if method == "tree":
            return exhaustive.tree_search(rows, Q, k, own), 1.0
        if method == "hamming":
            return exhaustive.hamming_search(X, Q, k, own), 1.0
        return approximate.cell_search(X, Q, k, own, self.recall, self.seed)


def search_blocks(distance_block: DistanceBlock, n: int, q: int, k: int, *, exclude_self: bool = False) -> Found:
    """Find the k nearest of n rows to each of q queries under any distance, given block by block.

    Parameters
    ----------
    distance_block : callable
        ``distance_block(q0, q1, c0, c1)`` returns the (q1 - q0, c1 - c0) distances of queries ``q0:q1`` to rows
        ``c0:c1``.  A block has at most 2**20 entries, is requested at most once, and is not written to.
    n, q : int
        Numbers of rows and queries.
    k : int
        Neighbours per query.
    exclude_self : bool
        Whether query i is row i (q = n), which is then excluded from its own list.

    Returns
    -------
    indices : (q, k) int64
    distances : (q, k) float64
        Each row ascends by (distance, index); among equal distances the smaller indices are kept.  Distances are
        ranked as returned: if their rounding depends on the shape of the block, so does the order of near ties.

    Notes
    -----
    Time: q n distances and a comparison each.  Memory: 16 bytes per neighbour returned and work arrays of 30 MB (100 MB
    when all distances tie), plus what distance_block needs.
    """
    n, q = whole_number(n, "n", 1), whole_number(q, "q", 0)
    k = check_k(k, n, exclude_self)
    if exclude_self and q != n:
        raise InputError(f"exclude_self requires queries that are the rows, but q = {q} and n = {n}; pass q = n")
    own = np.arange(n) if exclude_self else None
    return scan(GivenDistances(distance_block), n, q, k, own, *tile_shape(n, 1, k))


exact = partial(search, method="exact")
tree = partial(search, method="tree")
hamming = partial(search, method="hamming")
cells = partial(search, method="cells")


def recall(indices: Array, X: Any, *, queries: Any | None = None, sample: int = 200, seed: int = 0) -> float:
    """Estimate the share of true neighbours among those found, on a random sample of queries.

    A neighbour counts if its distance, computed here, is at most (1 + 1e-6) times that of the true k-th neighbour: all
    ties count, whichever were returned.  A missing (-1), repeated or own index does not count.

    Parameters
    ----------
    indices : (q, k) integers
        As returned by `search`.
    X, queries
        As given to `search`.
    sample : int
        Number of queries checked; all of them if there are fewer.
    seed : int
        Seed of the sample.

    Returns
    -------
    float
        In [0, 1]; its standard error is at most 0.5 / sqrt(sample), and far less near 1.

    Notes
    -----
    Time O(sample · n · d); memory as in the exact search.
    """
    X = check_rows(X)
    Q = X if queries is None else check_queries(queries, X)
    indices = np.asarray(indices)
    if indices.ndim != 2 or indices.dtype.kind not in "iu" or indices.shape[0] != Q.shape[0]:
        raise InputError(
            f"indices must be integers of shape ({Q.shape[0]}, k), got {indices.dtype} of shape {indices.shape};"
            " pass those that search() returned for these rows"
        )
    k = check_k(indices.shape[1], X.shape[0], exclude_self=queries is None)
    if indices.min() < -1 or indices.max() >= X.shape[0]:
        raise InputError(f"indices must lie in -1..{X.shape[0] - 1}; pass those that search() returned for X")
    rows = draw(Q.shape[0], whole_number(sample, "sample", 1), whole_number(seed, "seed", 0))
    own = rows if queries is None else None
    furthest = exhaustive.exact_search(X, Q[rows], k, own)[1][:, -1:]
    distances = exhaustive.ranked(X, Q[rows], indices[rows], own)[1]
    return float(np.mean(distances <= furthest * (1 + 1e-6)))


_recall = recall  # the arguments of that name hide the function


# ----------------------------------------------------------------------------------------------------------- validation


def check_rows(X: Any, name: str = "X") -> Any:
    """Return rows in memory as finite floats, dense or CSR."""
    if is_dask(X):
        raise InputError(f"{name} is a dask collection, but rows in memory are required; pass {name}.compute()")
    X = as_vectors(X, name)
    size = largest(X)
    if size > 1e150:
        raise InputError(f"{name} has values up to {size:.3g}, whose squares overflow; rescale its features")
    return X


def check_queries(queries: Any, X: Any) -> Any:
    """Return queries for checked rows X as finite floats, dense or CSR as X is."""
    Q = check_rows(queries, "queries")
    check_widths(Q, X, ("queries", "X"))
    if is_sparse(Q) != is_sparse(X):
        raise InputError("queries and X must both be dense or both be sparse; convert one of them")
    return Q


def check_k(k: int, n: int, exclude_self: bool) -> int:
    """Return k, or raise if there are fewer than k rows to find."""
    k = whole_number(k, "k", 1)
    most = n - 1 if exclude_self else n
    if k > most:
        others = "other rows" if exclude_self else "rows"
        raise InputError(f"k = {k} neighbours are requested, but there are {most} {others}; pass k <= {most}")
    return k


def check_found(found: Found, q: int, k: int, n: int, itself: bool) -> Found:
    """Return the answer of a foreign search, or raise if it breaks the contract of `search`."""
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


# -------------------------------------------------------------------------------------------------------- method="auto"

TREE_FEATURES = 7
"""Up to this many features a tree is faster.  Gaussian rows are its worst case: 20,000 take 0.7 s (exact search: 1.8 s)
at 7 features, and 2.4 s (exact: 1.9 s) at 10."""
HAMMING_SECONDS = 2.0
"""Time on one core from which packed rows are faster in a new process: that of importing numba and loading the loop."""
LOOKED_UP = 1.0
"""Time on one core from which registered searches are compared: finding them takes a part of a second."""
CELLS_SECONDS = 8.0
"""Time on one core from which cells are faster than comparing all pairs: measured at 60,000 rows of 16 columns."""


def choose(X: Any, Q: Any, itself: bool, recall: float = 0.95) -> str:
    """Return the name of the method with the least expected time in a new process.

    Parameters
    ----------
    X : dense or CSR rows, or SearchedRows
        The rows searched.
    Q : dense or CSR rows
        The queries.
    itself : bool
        Whether the queries are the rows themselves.
    recall : float
        The share of true neighbours to find; 1 excludes approximate searches.
    """
    rows = X if isinstance(X, SearchedRows) else SearchedRows(X)
    X = rows.X
    n, d = X.shape
    if not is_sparse(X) and d <= TREE_FEATURES and not rows.few_distinct:
        return "tree"
    # nanoseconds per pair on one core: the product, and the comparison with the k-th distance
    pair = 2 + 0.03 * d if rows.multiplies_dense else 9 + min(60.0, 10 * (X.nnz / n) ** 2 / d)
    pairs = n * Q.shape[0]
    packed = 0.5 + 0.2 * (d // 64 + 1)  # measured at 2 and at 16 words
    approximately = itself and recall < 1  # with queries an index would be built for one use
    name, seconds = "exact", 1e-9 * pair * pairs
    if seconds > HAMMING_SECONDS and rows.binary and (Q is X or is_binary(Q)):
        seconds = max(HAMMING_SECONDS, 1e-9 * packed * pairs)
        name = "cells" if approximately and seconds > CELLS_SECONDS else "hamming"
    # where squares are tiny or huge, bounds in float32 are of no use
    elif approximately and (not is_sparse(X) or d <= PLAIN) and seconds > CELLS_SECONDS and 1e-3 < rows.largest < 1e9:
        name, seconds = "cells", CELLS_SECONDS
    faster = None
    if approximately and seconds > LOOKED_UP:
        faster = names.fastest("neighbors", METHODS, seconds, X, recall)
    return name if faster is None else faster.name
