"""What is made of neighbour lists: graphs as symmetric sparse matrices, and the nearest rows by class."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from ..errors import InputError
from ..rows import beat, blocks, check_memory
from ..validation import first_rows, one_of, whole_number
from .api import search
from .approximate import without_itself
from .contract import Array, Found

if TYPE_CHECKING:
    from scipy.sparse import csr_array


def graph(indices: Array, *, kind: Literal["mutual", "union"] = "mutual", n: int | None = None) -> csr_array:
    """Return the graph that joins nodes if both list one another (mutual), or if one lists the other (union).

    Parameters
    ----------
    indices : (r, k) integers
        Row i lists the neighbours of node i; -1 means none, and i itself is ignored.
    kind : {"mutual", "union"}
        Whether both nodes must list one another, or one suffices.
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
    check_memory(25 * indices.size, f"a graph of {indices.size} neighbours", "list fewer neighbours of each row")
    r = indices.shape[0]
    n = r if n is None else whole_number(n, "n", r, 2**63 - 1)
    check_memory(32 * n, f"a graph of {n} nodes", "give fewer nodes")  # where the rows start, of A, A' and the result
    one_of(kind, "kind", ("mutual", "union"))
    if indices.size and (indices.min() < -1 or indices.max() >= n):
        rows = np.flatnonzero(((indices < -1) | (indices >= n)).any(axis=1))
        raise InputError(f"indices must lie in -1..{n - 1}, but do not in {first_rows(rows)}; pass n, or drop them")
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


# ------------------------------------------------------------------------------------------------ nearest rows by class


class ClassNeighbors(NamedTuple):
    """The nearest rows of some queries that share a class.

    Attributes
    ----------
    queries : (q,) int array
        Row numbers.
    same : Found
        The nearest other rows of that class: row numbers (q, a) and distances (q, a), nearest first.
    other : Found
        The nearest rows of other classes, alike.
    """

    queries: Array
    same: Found
    other: Found


def nearest_by_class(Z: Any, codes: Array, k: int, *, queries: Array | None = None) -> Iterator[ClassNeighbors]:
    """Yield for each class the k nearest rows of the same class, and the k nearest of other classes, of its queries.

    The two are separate searches: the nearest rows of other classes are often missing from any list of nearest rows.

    Parameters
    ----------
    Z : (n, m) array
        Rows in the metric that decides what is near.
    codes : (n,) int array
        Classes, all >= 0; at least two.
    k : int
        Rows of each kind; fewer where there are no more.
    queries : (q,) int array, optional
        Row numbers; default: every row.

    Notes
    -----
    Cost: exact searches, O(q n m) time, except that without queries a large class is searched as `search` chooses.
    """
    for c in range(int(codes.max()) + 1):
        inside, outside = np.flatnonzero(codes == c), np.flatnonzero(codes != c)
        asked = inside if queries is None else queries[codes[queries] == c]
        if not len(asked):
            continue
        same = _all_inside(Z, inside, k) if queries is None else _inside(Z, inside, asked, k)
        index, distance = search(Z[outside], min(k, len(outside)), queries=Z[asked])
        yield ClassNeighbors(asked, same, (outside[index], distance))


def _all_inside(Z: Any, rows: Array, k: int) -> Found:
    few = min(k, len(rows) - 1)
    if not few:
        return np.empty((len(rows), 0), dtype=np.int64), np.empty((len(rows), 0))
    index, distance = search(Z[rows], few)
    return rows[index], distance


def _inside(Z: Any, rows: Array, asked: Array, k: int) -> Found:
    """Search one row more, and leave out the query itself."""
    index, distance = search(Z[rows], min(k + 1, len(rows)), queries=Z[asked])
    return without_itself(rows[index], distance, asked)


BLOCK = 1024
"""Rows on each side of a block of distances: 4 MB, which fits the caches."""
LARGEST = 1e38
"""A radius that includes every row, which still fits float32."""
EXACT = 65_536
"""Pairs whose distances are computed again in float64 and yielded at a time."""
EXACT_BYTES = 4 * 2**20
"""Memory of the rows of these pairs that are compared at a time."""


def other_classes_within(Z: Array, codes: Array, radius: Array) -> Iterator[tuple[Array, Array, Array]]:
    """Yield all pairs of rows of two classes that are nearer than the radius of the first row.

    Parameters
    ----------
    Z : (n, m) array
        Rows in the metric that decides what is near.
    codes : (n,) int array
        Classes.
    radius : (n,) array
        Squared, one for each row; rows with a negative one have no pairs.

    Yields
    ------
    i, l, squared : arrays
        Row numbers and squared distances with squared < radius[i], in no particular order.  The pair (l, i) occurs too
        if squared < radius[l].

    Notes
    -----
    Cost: O(n² m) time in float32, half of it saved by symmetry and blocks of one class skipped; O(p m) in float64 for
    the p pairs that are near, so the distances are exact.  Memory: 12 n m bytes and some blocks of 4 MB.
    """
    order = np.argsort(codes, kind="stable")
    codes, radius = codes[order], np.asarray(radius, dtype=np.float64)[order]
    centred = Z[order] - Z.mean(axis=0)
    unit = float(np.abs(centred).max(initial=0)) or 1.0  # squares of larger numbers overflow in float32
    low = np.ascontiguousarray(centred / unit, dtype=np.float32)
    del centred
    norms = np.einsum("ij,ij->i", low, low)
    # one product gives the squared distances: [z_i, ‖z_i‖², 1]'[−2z_j, 1, ‖z_j‖²]
    left = np.column_stack([low, norms, np.ones_like(norms)])
    right = np.column_stack([-2 * low, np.ones_like(norms), norms])
    # what float32 may have lost is decided in float64
    reach = np.minimum(radius / unit**2 + 2e-5 * float(norms.max(initial=0)), LARGEST).astype(np.float32)
    starts = np.arange(0, len(order), BLOCK)
    for a in starts:
        I = slice(a, a + BLOCK)  # noqa: E741
        for b in starts[starts >= a]:
            J = slice(b, b + BLOCK)
            if codes[I][0] == codes[J][-1] or max(radius[I].max(), radius[J].max()) < 0:
                continue  # rows are sorted by class, so these are all of one
            beat(int(a), len(order))
            D = left[I] @ right[J].T
            near = reach[I, None] > D
            near |= reach[J] > D
            if codes[I][-1] >= codes[J][0]:  # the blocks share a class
                near &= codes[I, None] != codes[J]
            if a == b:
                near = np.triu(near)
            found = np.flatnonzero(near)
            for part in range(0, len(found), EXACT):
                p, q = np.divmod(found[part : part + EXACT], near.shape[1])
                p, q = p + a, q + b
                squared = _squared(Z, order[p], order[q])
                for one, other in ((p, q), (q, p)):
                    keep = squared < radius[one]
                    yield order[one[keep]], order[other[keep]], squared[keep]
                beat(int(a), len(order))


def _squared(Z: Array, i: Array, j: Array) -> Array:
    """Return the squared distances of pairs of rows, some at a time: wide rows of all pairs would take seconds."""
    squared = np.empty(len(i))
    for part in blocks(len(i), 16 * Z.shape[1], EXACT_BYTES):
        difference = Z[i[part]] - Z[j[part]]
        np.einsum("ij,ij->i", difference, difference, out=squared[part])
    return squared
