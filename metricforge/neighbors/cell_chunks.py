"""The search by cells of dask rows.

The cells are learned in this process from a sample drawn by row number; everything with as many entries as rows stays
on the workers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..rows import cluster, fold, gathered, is_sparse, limit_chunks, map_rows, take
from .api import search
from .approximate import first_cells, pilot_rows, plan, without_itself
from .contract import Array
from .coordinates import Coordinates, coordinates
from .distances import is_binary
from .partition import Cells, cell_count, learn_cells, sample_rows
from .refining import FEW_CELLS, Sample, refines
from .shards import CellSearch, shard_bounds


def cells_across(X: Any, k: int, recall: float, seed: int) -> tuple[tuple[Any, Any], float] | None:
    """Return the lists of every row of dask rows, with the chunks of X, and their estimated recall.

    The answer is that of the rows in memory, whatever the chunks.  The lists are computed when they are; the plan, and
    passes over neighbours of neighbours where these are needed, at once.  Returns None where comparing all pairs would
    be faster.

    Notes
    -----
    Tasks: about c s, for c chunks and s = c shards; in a pass s², and 4 more for each pair of shards of which one needs
    little of the other.  Moved: every row once, the rows of cells that another shard searches, and the lists once; in a
    pass the lists and rows that the rows of a shard are compared with, or whole shards of these, once to a worker.
    Memory of a task: the rows of a shard and those, and 5 bytes per row of X in a pass.
    """
    X = limit_chunks(X, 8 * X.shape[1] + 32 * k)
    n, d = X.shape
    sparse = is_sparse(X._meta)
    binary = bool(fold(is_binary, all, X))
    place = coordinates(d, sparse=sparse, binary=binary, seed=seed)

    def placed(numbers: Array) -> Array:
        return place(place.rows(take(X, numbers)))

    cells = learn_cells(placed(sample_rows(n, cell_count(n), seed)), cell_count(n), seed)
    chosen = pilot_rows(n, seed)
    most = min(n, 2 * k + 1)
    exact = search(X, most, queries=take(X, chosen), method="hamming" if binary else "exact")
    near, distances = (np.asarray(gathered(part)) for part in exact)
    near, distances = without_itself(near, distances, chosen)
    homes = cells.nearest(placed(near.ravel()), 1)[:, 0].reshape(near.shape)
    chooses = partial(plan, cells, placed(chosen), homes, distances, k, many=True)
    tried = refines(X._meta, n, cells, binary=binary)
    scheme = chooses(recall, most=FEW_CELLS if tried else None)
    home = None
    if tried and not scheme.cells:
        from .hop_chunks import HopSearch

        home, sizes, shards = _homes(X, cells, place)
        sample = Sample(chosen, distances[:, k - 1], k, recall)
        first, wide = first_cells(chooses, k)
        found = HopSearch(cells, place, first, k, sizes, shards, wide).refined(X, home, sample)
        if found is not None:
            return found
        scheme = chooses(recall)
    if not scheme.cells:
        return None
    home, sizes, shards = (home, sizes, shards) if home is not None else _homes(X, cells, place)
    return CellSearch(cells, place, scheme.cells, k, sizes, shards).lists(X, home), scheme.recall


def _homes(X: Any, cells: Cells, place: Coordinates) -> tuple[Any, Array, Array]:
    """Return the cell of every row, which stays on the workers, the sizes of cells, and the bounds of shards."""
    (home,) = cluster.kept(map_rows(_Home(cells, place), X, None, np.int32))
    sizes = fold(_Sizes(cells.count), _total, home)
    return home, sizes, shard_bounds(sizes, len(X.chunks[0]))


@dataclass(frozen=True, eq=False)
class _Home:
    """The cell of every row of a block."""

    cells: Cells
    place: Coordinates

    def __call__(self, X: Any) -> Array:
        return self.cells.nearest(self.place(self.place.rows(X)), 1)[:, 0].astype(np.int32)


@dataclass(frozen=True)
class _Sizes:
    """The number of rows in each cell."""

    cells: int

    def __call__(self, home: Array) -> Array:
        return np.bincount(home, minlength=self.cells)


def _total(parts: list[Array]) -> Array:
    return np.asarray(np.sum(parts, axis=0))
