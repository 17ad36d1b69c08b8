"""Index: the neighbours of new rows under a learned metric, among many rows, in milliseconds."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from . import neighbors
from . import rows as _rows
from .errors import InputError
from .kernels import Kernel
from .neighbors import Found
from .neighbors.index import CellIndex, build, opened
from .rows import Array
from .space import FeatureMap, Stacked
from .validation import number, one_of, whole_number

if TYPE_CHECKING:
    from .metric import Metric


@dataclass(frozen=True, eq=False)
class PairedDistance:
    """d(a_i, b_i), row by row."""

    kernel: Kernel

    def __call__(self, A: Any, B: Any) -> Array:
        """Return the (len(A),) distances."""
        return np.sqrt(self.kernel.paired_squared_distance(A, B))


@dataclass(frozen=True, eq=False)
class BoundCoordinates:
    """Coordinates in a map, and the norm of what it leaves out: their distances are at most those of the kernel."""

    kernel: Kernel
    map: FeatureMap | Stacked

    def __call__(self, X: Any) -> Array:
        """Return the (len(X), columns + 1) coordinates."""
        Z = self.map.block(X)
        rest = np.maximum(self.kernel.diag(X) - np.square(Z).sum(axis=1), 0)
        return np.column_stack([Z, np.sqrt(rest)])


@dataclass(frozen=True, eq=False)
class NearestByKernel:
    """The nearest rows of a chunk by a kernel's distance."""

    kernel: Kernel

    def __call__(self, X: Any, k: int, *, queries: Any) -> tuple[Array, Array]:
        """Return the numbers and distances of the k nearest rows of X."""
        block = DistanceBlock(self.kernel, queries, X)
        return neighbors.search_blocks(block, _rows.count(X), _rows.count(queries), k)


@dataclass(frozen=True, eq=False)
class DistanceBlock:
    """Distances from a slice of the queries to a slice of the training rows."""

    kernel: Kernel
    queries: Any
    rows: Any

    def __call__(self, q0: int, q1: int, c0: int, c1: int) -> Array:
        """Return the distances from queries q0 to q1 to rows c0 to c1, or raise where some overflow."""
        with _rows.quiet():
            D = self.kernel.distance(self.queries[q0:q1], self.rows[c0:c1])
        return finite_distances(D)


def finite_distances(D: Array) -> Array:
    """Return distances, or raise where they overflow."""
    if not np.isfinite(D).all():
        raise InputError("A: some distances overflow; rescale the features, for instance with StandardScaler")
    return D


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
