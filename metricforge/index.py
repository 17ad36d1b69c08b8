"""Index: the neighbours of new rows under a learned metric, among many rows, in milliseconds."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from . import rows as _rows
from .errors import InputError
from .neighbors import Found
from .neighbors.index import CellIndex, build, opened
from .rows import Array
from .validation import number, one_of, whole_number

if TYPE_CHECKING:
    from .metric import Metric

BY = ("distance", "kernel")
COMPARED, SAME = 20, 1e-4
"""Rows that are compared when an index is opened, and the share of the largest coordinate that is rounding."""
SPARE = 2
"""Candidates per neighbour that are ordered anew where the embedding is not exact, or not what is searched."""


@dataclass(frozen=True, eq=False)
class Index:
    """The rows of a metric in the order of cells of its embedding, made by `Metric.index`.

    Attributes
    ----------
    metric : Metric
    cells : CellIndex
        The embedded rows; ``cells.recall`` is the estimated share of true neighbours that a search finds.
    by : {"distance", "kernel"}
        What searches rank by.  For "kernel", `cells` has the rows z of the embedding as ``[z, sqrt(M² - |z|²)]`` with
        M the largest |z|: the squared distance of ``[e, 0]`` to such a row is |e|² + M² - 2e'z, so that the nearest
        rows have the largest inner products.
    """

    metric: Metric
    cells: CellIndex
    by: str = "distance"

    @property
    def recall(self) -> float:
        """The estimated share of true neighbours that `search` finds, before exact distances order them."""
        return self.cells.recall

    def search(self, A: Any, k: int = 10) -> Found:
        """Return the k nearest indexed rows of each row of A: indices and distances, nearest first.

        With ``by="kernel"``, the rows with the largest k(a, x), and these values, largest first.

        Candidates come from the cells nearest to a row in the metric's embedding, and are ordered by exact values:
        those of the embedding where it is exact, those of the metric's kernel elsewhere.
        """
        metric = self.metric
        A = metric._check(A, "A")
        k = whole_number(k, "k", most=self.cells.n, most_is="the number of indexed rows")
        if _rows.is_dask(A):
            raise InputError("A is a dask array; search its chunks one by one, or use metric.neighbors")
        E = np.asarray(metric.embedding(A))
        exact = metric.embedding_is_exact
        if self.by == "distance" and exact:
            return self.cells.search(E, k)
        wide = E if self.by == "distance" else np.column_stack([E, np.zeros(len(E), dtype=E.dtype)])
        candidates = self.cells.search(wide, min(self.cells.n, SPARE * k))[0]
        if exact:
            return _largest_products(E, candidates, self.cells.rows_of(candidates)[..., :-1], k)
        if metric.rows is None:
            raise InputError("this metric keeps no training rows, and its embedding is not exact; learn it again")
        return metric._reorder(A, candidates, k, self.by)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the index to a folder of plain arrays, which `Metric.index` opens without building it again."""
        self.cells.save(folder, metric=_digest(self.metric), by=self.by)


def make(metric: Metric, k: int, recall: float, by: str, path: str | os.PathLike[str] | None) -> Index:
    """Build the index of a metric, or open the one at ``path``."""
    one_of(by, "by", BY)
    k, recall = whole_number(k, "k"), number(recall, "recall", above=0, most=1)
    if path is not None and Path(path).exists():
        cells, described = opened(path)
        if described.get("metric") not in (None, _digest(metric)):
            raise InputError(f"{os.fspath(path)!r} is the index of another metric; remove it, or choose another path")
        if metric.rows is not None and cells.n != _rows.count(metric.rows):
            raise InputError(f"{os.fspath(path)!r} has {cells.n} rows, but the metric has {_rows.count(metric.rows)}")
        if described.get("by", by) != by:
            raise InputError(f"{os.fspath(path)!r} is an index by {described['by']}, not by {by}; choose another path")
        _check_rows(metric, cells, os.fspath(path))
        return Index(metric, cells, by)
    if metric.rows is None:
        raise InputError("this metric keeps no training rows to index; learn it again, or open an index with path=")
    k = min(k, max(1, _rows.count(metric.rows) - 1))
    Z = metric.embedding(metric.rows)
    as_query = None
    if by == "kernel":
        reach = float(_rows.fold(_longest, max, Z))
        Z = _rows.map_rows(_Lifted(reach), Z, Z.shape[1] + 1, Z.dtype)
        as_query = _flattened
    about = {"metric": _digest(metric), "by": by}
    cells = build(Z, k=k, recall=recall, seed=metric.seed, folder=path, as_query=as_query, **about)
    return Index(metric, cells, by)


def _check_rows(metric: Metric, cells: CellIndex, path: str) -> None:
    """Raise if the rows of a metric are not those of an index, by some of them; rows on dask are not computed."""
    if metric.rows is None or _rows.is_dask(metric.rows):
        return
    places = np.linspace(0, cells.n - 1, min(cells.n, COMPARED)).astype(np.int64)
    stored = np.asarray(cells.members.rows[places], dtype=np.float64)
    given = np.asarray(metric.embedding(_rows.take(metric.rows, cells.members.numbers[places])), dtype=np.float64)
    stored = stored[:, : given.shape[1]]  # without the last column of rows by kernel
    if given.shape != stored.shape or np.abs(given - stored).max() > SAME * np.abs(stored).max(initial=0.0):
        raise InputError(f"{path!r} is the index of other rows; remove it, or choose another path")


def _longest(Z: Array) -> float:
    """Return the largest squared norm of a row."""
    return float(np.vecdot(Z, Z, dtype=np.float64).max())


@dataclass(frozen=True)
class _Lifted:
    """Rows z as ``[z, sqrt(reach - |z|²)]``, which all have the squared norm ``reach``."""

    reach: float

    def __call__(self, Z: Array) -> Array:
        left = np.maximum(self.reach - np.vecdot(Z, Z, dtype=np.float64), 0)
        return np.column_stack([Z, np.sqrt(left)])


def _flattened(Z: Array) -> Array:
    """Return lifted rows as queries: the last column is 0."""
    Q = np.array(Z)
    Q[:, -1] = 0
    return Q


def _largest_products(E: Array, candidates: Array, Z: Array, k: int) -> Found:
    """Return the k candidates with the largest inner products of each query, given their rows (q, c, d)."""
    products = np.vecdot(Z, E[:, None], dtype=np.float64)
    order = np.lexsort((candidates, -products), axis=1)[:, :k]
    return np.take_along_axis(candidates, order, axis=1), np.take_along_axis(products, order, axis=1)


def _digest(metric: Metric) -> str:
    return _rows.digest(metric.kernel).hex()
