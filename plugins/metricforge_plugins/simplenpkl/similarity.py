"""A similarity matrix of the user's own in place of the neighbour graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from metricforge import rows as _rows
from metricforge.errors import InputError
from metricforge.validation import first_rows

from .graph import NeighborGraph, graph_of

if TYPE_CHECKING:
    from scipy.sparse import csr_array

SYMMETRIC = 1e-12
"""Entries S_ij and S_ji may differ by this share of the largest one."""


def check_similarity(S: Any) -> None:
    """Refuse what is not a square, symmetric and sparse matrix of finite weights >= 0."""
    if not _rows.is_sparse(S):
        raise InputError(
            f"similarity must be a sparse matrix of SciPy, not {type(S).__name__}; scipy.sparse.csr_array(S) makes one"
        )
    if len(S.shape) != 2 or S.shape[0] != S.shape[1]:
        raise InputError(f"similarity must be square, one row and column for each row of X; its shape is {S.shape}")
    weights = _as_csr(S)
    rows = np.repeat(np.arange(S.shape[0]), np.diff(weights.indptr))
    wrong = ~(np.isfinite(weights.data) & (weights.data >= 0))
    if wrong.any():
        raise InputError(
            f"similarity has weights that are negative or not finite in {first_rows(np.unique(rows[wrong]))}; "
            "use weights >= 0"
        )
    if not weights.data.any():
        raise InputError("similarity has no weight above 0; give at least one pair of rows a similarity")
    difference = abs(weights - weights.T).tocoo()
    apart = difference.data > SYMMETRIC * float(weights.data.max())
    if apart.any():
        raise InputError(
            f"similarity is not symmetric in {first_rows(np.unique(difference.row[apart]))}; "
            "(S + S.T) / 2 or S.maximum(S.T) is"
        )


def similarity_graph(S: Any, X: Any) -> NeighborGraph:
    """Return the graph of a checked S, eq. (3), for the rows of X; a weight S_ii counts in the degree of row i."""
    n = _rows.count(X)
    if S.shape[0] != n:
        raise InputError(f"similarity has {S.shape[0]} rows, and X has {n}; give one row for each row of X")
    if _rows.is_dask(X):
        raise InputError("similarity needs rows in memory; leave it out for a dask array, or pass X.compute()")
    return graph_of(_as_csr(S))


def edges(S: Any) -> int:
    """Return the number of pairs of different rows with a weight."""
    weights = _as_csr(S)
    weights.eliminate_zeros()
    return int(weights.nnz - np.count_nonzero(weights.diagonal())) // 2


def _as_csr(S: Any) -> csr_array:
    from scipy.sparse import csr_array

    out = csr_array(S, dtype=np.float64, copy=True)
    out.sum_duplicates()
    return out
