"""Nearest rows of the same class and of other classes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from .api import search
from .contract import Array, Found


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
    """Search one row more, and leave out the query itself (or the last row, where duplicates precede the query)."""
    index, distance = search(Z[rows], min(k + 1, len(rows)), queries=Z[asked])
    index = rows[index]
    keep = index != asked[:, None]
    keep[keep.all(axis=1), -1] = False
    return index[keep].reshape(len(asked), -1), distance[keep].reshape(len(asked), -1)
