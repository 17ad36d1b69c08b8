"""Cells: a partition of the space around centres, such that the neighbours of a row are in few cells.

Sparse and binary rows are among cells by dense coordinates.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from ..rows import BLOCK_BYTES, blocks, draw, is_sparse
from . import probing
from .contract import Array
from .exhaustive import exact_search, packed_rows, unpacked
from .probing import Members, probe

CELL_ROWS = 400
"""Rows per cell: fewer make the search of a cell cheaper, and finding the nearest cells more expensive."""
SAMPLED_ROWS = 16
"""Rows of the sample per cell."""
MOST_SAMPLED = 2**19
"""Rows of the sample at the most, whatever the number of rows: it is in one process.  Reached at 13 million rows."""
LEAST_SAMPLED = 4
"""Rows of the sample per cell where it is as large as it may be; from 52 million rows on cells have more rows."""
ROUNDS = 4
"""Iterations of k-means; more change the cells little."""
BATCH = 8192
"""Rows whose nearest cells are found at a time."""
AROUND = 16
"""Cells near the centre of a row's own cell, per cell asked for."""
ONE_GROUP = 2048
"""Up to this many cells all centres are compared; beyond that, those of the nearest groups."""
GROUP_SHARE = 12
"""The groups visited contain at least this many cells per cell asked for."""


@dataclass(frozen=True, eq=False)
class Cells:
    """Centres of cells, in groups.

    Attributes
    ----------
    centres : (C, d) array
        The centres of the cells, those of one group after another.
    groups : (G, d) array
        The centres of the groups.
    starts : (G + 1,) int array
        The cells of group g are ``starts[g]:starts[g + 1]``.
    """

    centres: Array
    groups: Array
    starts: Array

    @property
    def count(self) -> int:
        """The number of cells C."""
        return len(self.centres)

    def nearest(self, X: Array, p: int) -> Array:
        """Return the (n, p) cells nearest to each row, nearest first; -1 where the groups visited have fewer.

        The answer for a row depends on that row only.  Cost per row: G distances and those to GROUP_SHARE p centres,
        or to all centres where there are few.
        """
        p = min(p, self.count)
        if len(self.groups) == 1:
            return _searched(X, np.zeros((len(X), 1), dtype=np.int64), *self._centres, p)
        visited = min(len(self.groups), 4 + -(-GROUP_SHARE * p * len(self.groups) // self.count))
        if visited == len(self.groups):
            return _searched(X, np.zeros((len(X), 1), dtype=np.int64), *self._whole, p)
        near = _searched(X, np.zeros((len(X), 1), dtype=np.int64), *self._groups, visited)
        return _searched(X, near, *self._centres, p)

    @cached_property
    def _centres(self) -> tuple[Members, probing.Coarse]:
        return _as_members(self.centres, self.starts)

    @cached_property
    def _whole(self) -> tuple[Members, probing.Coarse]:
        """All centres in one group: those of a small group do not limit which of the others are candidates."""
        return _as_members(self.centres, np.array([0, self.count]))

    @cached_property
    def _groups(self) -> tuple[Members, probing.Coarse]:
        return _as_members(self.groups, np.array([0, len(self.groups)]))

    def around(self, X: Array, p: int) -> Array:
        """Return the (n, p) cells nearest to each row among the AROUND p nearest to the centre of its own cell.

        The answer for a row depends on that row only.  Cost per row: finding its own cell, and AROUND p distances;
        that of the lists of centres pays where many rows have the same cell.
        """
        most = AROUND * p
        if most >= self.count:
            return self.nearest(X, p)
        homes, which = np.unique(self.nearest(X, 1)[:, 0], return_inverse=True)
        lists = np.sort(self.nearest(self.centres[homes], most), axis=1)
        members, bounds = self._centres
        near = np.empty((len(X), p), dtype=np.int64)
        for part in batches(len(X), 8 * X.shape[1]):
            found = probing.search_lists(X[part], which[part], lists, members, bounds, p)
            if found is None:
                listed = Members(self.centres[lists.ravel()], lists.ravel(), most * np.arange(len(lists) + 1))
                found = probe(X[part], which[part, None], listed, p)
            near[part] = found[0]
        return near

    def enough(self, X: Array, p: int, sizes: Array, k: int, *, many: bool = False) -> Array:
        """Return the (n, p') cells to search for each row: the p nearest, or more where these have at most k rows.

        ``sizes`` are the numbers of rows in the cells; unused places are -1.  ``many``: the p cells of `around`.
        """
        probes = self.around(X, p) if many else self.nearest(X, p)
        sizes = np.append(sizes, 0)  # for -1
        short = np.flatnonzero(sizes[probes].sum(axis=1) <= k)
        while len(short) and p < self.count:
            p = min(self.count, 4 * p)
            probes = np.pad(probes, ((0, 0), (0, p - probes.shape[1])), constant_values=-1)
            more = self.nearest(X[short], p)
            probes[short[:, None], np.arange(more.shape[1])] = more
            short = short[sizes[more].sum(axis=1) <= k]
        return probes


def _as_members(centres: Array, starts: Array) -> tuple[Members, probing.Coarse]:
    """Return centres as the rows of the groups that start at ``starts``."""
    middle = centres.mean(axis=0)
    return Members(centres, np.arange(len(centres)), starts), probing.Coarse(*probing.prepared(centres, middle), middle)


def _searched(X: Array, probes: Array, members: Members, bounds: probing.Coarse, p: int) -> Array:
    """Return the p nearest rows in the cells of each row of X; -1 where they have fewer."""
    indices = np.empty((len(X), p), dtype=np.int64)
    for part in batches(len(X), 8 * X.shape[1]):
        found = probing.search_float(X[part], probes[part], members, bounds, p)
        indices[part] = (probe(X[part], probes[part], members, p) if found is None else found)[0]
    return indices


def batches(n: int, row_bytes: int) -> Iterator[slice]:
    """Yield slices that cover ``range(n)``, each of at most BATCH rows, fewer where rows are wide."""
    return blocks(n, row_bytes, min(BATCH * row_bytes, BLOCK_BYTES))


def learn_cells(sample: Array, count: int, seed: int) -> Cells:
    """Return about ``count`` cells by k-means on a sample of rows: first groups, then the cells of each group.

    Memory: 8 bytes per row of the sample, and a few copies of a group in float64.
    """
    sample = np.asarray(sample)
    count = min(count, len(sample))
    if count <= ONE_GROUP:
        centres = _k_means(sample.astype(np.float64, copy=False), count, seed)
        return Cells(centres, centres.mean(axis=0)[None], np.array([0, len(centres)]))
    size = round(count**0.5)
    groups = _k_means(sample[draw(len(sample), SAMPLED_ROWS * size, seed)].astype(np.float64), size, seed)
    group = np.empty(len(sample), dtype=np.int32)
    for part in batches(len(sample), 8 * sample.shape[1]):
        group[part] = exact_search(groups, sample[part].astype(np.float64, copy=False), 1, None)[0][:, 0]
    order, starts = by_cell(group, len(groups))
    found = [
        _k_means(sample[order[i:j]].astype(np.float64, copy=False), max(1, round(count * (j - i) / len(sample))), seed)
        for i, j in pairwise(starts.tolist())
        if j > i
    ]
    return Cells(np.concatenate(found), groups[np.diff(starts) > 0], np.cumsum([0, *map(len, found)]))


def _k_means(sample: Array, count: int, seed: int) -> Array:
    """Return the centres of at most ``count`` clusters by Lloyd's iteration from rows of the sample."""
    centres = np.unique(sample[draw(len(sample), count, seed)], axis=0)
    for _ in range(ROUNDS):
        cell = exact_search(centres, sample, 1, None)[0][:, 0]
        order = np.argsort(cell, kind="stable")
        sizes = np.bincount(cell, minlength=len(centres))
        taken = np.flatnonzero(sizes)
        starts = (np.cumsum(sizes) - sizes)[taken]
        centres = np.add.reduceat(sample[order], starts, axis=0) / sizes[taken, None]
    return np.asarray(centres)


def cell_count(n: int) -> int:
    """Return the number of cells in which n rows search one another."""
    return max(1, min(n // CELL_ROWS, MOST_SAMPLED // LEAST_SAMPLED))


def index_count(n: int) -> int:
    """Return the number of cells of an index of n rows.

    Queries come in small batches there, so that a cell costs more than its rows: √n rows per cell balance both.
    """
    return max(1, n // max(CELL_ROWS, math.isqrt(n)))


def sample_rows(n: int, count: int, seed: int) -> Array:
    """Return the numbers of the rows, among n, from which ``count`` cells are learned."""
    return draw(n, min(SAMPLED_ROWS * count, MOST_SAMPLED), seed)


def by_cell(home: Array, count: int) -> tuple[Array, Array]:
    """Return the rows in the order of their cells, ascending in each cell, and where each cell starts."""
    starts = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.bincount(home, minlength=count), out=starts[1:])
    return np.argsort(home, kind="stable"), starts


def members_of(X: Any, home: Array, count: int) -> Members:
    """Return rows in memory in the order of their cells."""
    order, starts = by_cell(home, count)
    return Members(X[order], order, starts)


# ---------------------------------------------------------------------------------------------------------- coordinates

PLAIN = 512
"""Up to this many columns sparse and binary rows have themselves as coordinates among cells; wider ones a sketch, whose
cells tell rows apart less well."""
SKETCHED = 256
"""Coordinates of sparse and binary rows of more than `PLAIN` columns."""


@dataclass(frozen=True, eq=False)
class Coordinates:
    """The coordinates of rows, on which their cells are learned and found; distances are those of the rows.

    Wide sparse or binary rows are sketched: column j is added to or subtracted from one of SKETCHED coordinates, which
    preserves squared distances on average.  Neighbours are found exactly in the cells searched, and the recall is
    estimated with true distances, so a poor sketch costs time, not recall.

    Attributes
    ----------
    width : int
        The number of columns of a row.
    binary : bool
        Whether rows are kept as packed bits: (n, words) uint64.
    sketch : (width, SKETCHED) csr_array or None
    """

    width: int
    binary: bool
    sketch: Any = None

    def rows(self, X: Any) -> Any:
        """Return rows as they are kept in cells."""
        return packed_rows(X) if self.binary else X

    def __call__(self, rows: Any) -> Array:
        """Return the dense coordinates of kept rows."""
        if self.binary:
            rows = unpacked(rows, self.width)
        if self.sketch is not None:
            found = rows @ self.sketch
            return np.asarray(found.toarray() if is_sparse(found) else found)
        return np.asarray(rows.toarray() if is_sparse(rows) else rows)

    @property
    def row_bytes(self) -> int:
        """Bytes of the coordinates of a row, while its cell is found."""
        return 8 * (self.width if self.sketch is None else SKETCHED)


def coordinates(width: int, *, sparse: bool, binary: bool, seed: int) -> Coordinates:
    """Return the coordinates of rows of so many columns; the sketch depends on the seed."""
    if not (sparse or binary) or width <= PLAIN:
        return Coordinates(width, binary)
    from scipy.sparse import csr_array

    rng = np.random.default_rng(seed)
    place, sign = rng.integers(SKETCHED, size=width), rng.choice([-1.0, 1.0], size=width)
    sketch = csr_array((sign, place, np.arange(width + 1)), shape=(width, SKETCHED))
    return Coordinates(width, binary, sketch)


def stacked(parts: list[Any]) -> Any:
    """Return the rows of all parts, all dense or all CSR."""
    if is_sparse(parts[0]):
        from scipy import sparse

        return sparse.vstack(parts, format="csr")
    return np.concatenate(parts)
