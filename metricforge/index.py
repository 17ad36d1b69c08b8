"""Index: the neighbours of new rows under a learned metric, among many rows, in milliseconds."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from . import rows as _rows
from .checks import one_of
from .errors import InputError
from .neighbors import Found
from .neighbors.index import CellIndex, build, opened

if TYPE_CHECKING:
    from .metric import Metric

BY = ("distance",)
SPARE = 2
"""Candidates per neighbour that are ordered anew where the embedding is not exact."""


@dataclass(frozen=True, eq=False)
class Index:
    """The rows of a metric in the order of cells of its embedding, made by `Metric.index`.

    Attributes
    ----------
    metric : Metric
    cells : CellIndex
        The embedded rows; ``cells.recall`` is the estimated share of true neighbours that a search finds.
    """

    metric: Metric
    cells: CellIndex

    @property
    def recall(self) -> float:
        """The estimated share of true neighbours that `search` finds, before exact distances order them."""
        return self.cells.recall

    def search(self, A: Any, k: int = 10) -> Found:
        """Return the k nearest indexed rows of each row of A: indices and distances, nearest first.

        Candidates come from the cells nearest to a row in the metric's embedding, and are ordered by exact distances:
        those of the embedding where it is exact, those of the metric's kernel elsewhere.
        """
        metric = self.metric
        A = metric._check(A, "A")
        if _rows.is_dask(A):
            raise InputError("A is a dask array; search its chunks one by one, or use metric.neighbors")
        E = np.asarray(metric.embedding(A))
        if metric.embedding_is_exact:
            return self.cells.search(E, k)
        candidates = self.cells.search(E, min(self.cells.n, SPARE * k))[0]
        return metric._reorder(A, candidates, k)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the index to a folder of plain arrays, which `Metric.index` opens without building it again."""
        self.cells.save(folder, metric=_digest(self.metric))


def make(metric: Metric, k: int, recall: float, by: str, path: str | os.PathLike[str] | None) -> Index:
    """Build the index of a metric, or open the one at ``path``."""
    one_of(by, "by", BY)
    if path is not None and Path(path).exists():
        cells, described = opened(path)
        if described.get("metric") not in (None, _digest(metric)):
            raise InputError(f"{os.fspath(path)!r} is the index of another metric; remove it, or choose another path")
        if metric.rows is not None and cells.n != _rows.count(metric.rows):
            raise InputError(f"{os.fspath(path)!r} has {cells.n} rows, but the metric has {_rows.count(metric.rows)}")
        return Index(metric, cells)
    if metric.rows is None:
        raise InputError("this metric keeps no training rows to index; learn it again, or open an index with path=")
    k = min(k, max(1, _rows.count(metric.rows) - 1))
    Z = metric.embedding(metric.rows)
    return Index(metric, build(Z, k=k, recall=recall, seed=metric.seed, folder=path, metric=_digest(metric)))


def _digest(metric: Metric) -> str:
    return _rows.digest(metric.kernel).hex()
