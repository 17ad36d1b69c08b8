"""Validate rows, k and the answers of foreign searches."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import InputError
from ..rows import as_vectors, check_widths, is_dask, is_sparse
from ..validation import first_rows, whole_number
from .contract import Found
from .distances import largest


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
