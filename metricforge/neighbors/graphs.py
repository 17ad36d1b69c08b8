"""Neighbour graphs as symmetric sparse matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from ..errors import InputError
from ..rows import check_memory
from ..validation import first_rows, one_of, whole_number
from .contract import Array

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
