"""Which pairs of rows are compared: every pair, pairs inside random groups, or pairs of near neighbours."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from metricforge.neighbors import nearest_by_class
from metricforge.rows import Array, blocks

LOT = 8
"""Minimal number of rows of a class in a random group: with fewer, a row is compared with too few of its own class."""


class PairBlock(NamedTuple):
    """Squared distances D of some rows to some columns, and τ = ±1: (b, c) arrays, or flat with ``begin``."""

    rows: slice
    cols: slice
    D: Array
    tau: Array
    begin: Array | None = None
    partner: Array | None = None


class _Comparisons(ABC):
    """Which rows are compared with which."""

    @property
    @abstractmethod
    def sizes(self) -> Array:
        """The number of rows that each row is compared with, itself included."""

    @cached_property
    def n(self) -> int:
        """The number of rows."""
        return len(self.sizes)

    @cached_property
    def count(self) -> int:
        """The number of ordered pairs, each row with itself included."""
        return int(self.sizes.sum())


@dataclass(frozen=True, eq=False)
class Grouped(_Comparisons):
    """Every pair inside groups of rows; a single group gives all pairs.

    Attributes
    ----------
    order : (n,) int array
        Rows ordered by group, and by class inside a group.  All else refers to this order.
    group, same : (n, 2) int arrays
        Begin and end of the group of each row, and of the rows of its class inside the group.
    """

    order: Array
    group: Array
    same: Array

    @cached_property
    def plus(self) -> Array:
        """n_i⁺, the number of rows of the same class that row i is compared with, itself included."""
        return (self.same[:, 1] - self.same[:, 0]).astype(np.float64)

    @property
    def sizes(self) -> Array:
        """The size of the group of each row."""
        return (self.group[:, 1] - self.group[:, 0]).astype(np.float64)

    @cached_property
    def starts(self) -> Array:
        """The beginnings of the groups, and n."""
        return np.append(np.unique(self.group[:, 0]), self.n)

    def ranges(self, pieces: int) -> list[tuple[int, int]]:
        """Return row ranges of about equal size that end at the end of a group; a single group is cut anywhere."""
        ends = np.linspace(0, self.n, pieces + 1).astype(np.int64)
        if len(self.starts) > 2:
            ends = np.unique(self.starts[np.searchsorted(self.starts, ends)])
        return [(int(a), int(b)) for a, b in pairwise(ends) if b > a]

    def tiles(self) -> Iterator[tuple[slice, slice]]:
        """Yield some rows and the rows of their group, such that arrays over the pairs fit into a block."""
        for lo, hi in pairwise(self.starts.tolist()):
            for part in blocks(hi - lo, 64 * (hi - lo)):
                yield slice(lo + part.start, lo + part.stop), slice(lo, hi)

    def distances(self, Y: Array) -> Iterator[PairBlock]:
        """Yield the squared distances of centred Y (n, r), block by block."""
        square = np.einsum("ij,ij->i", Y, Y)
        place = self.same[:, 0]  # identifies the class inside a group
        for rows, cols in self.tiles():
            D = Y[rows] @ Y[cols].T
            D *= -2
            D += square[rows, None]
            D += square[cols]
            tau = np.where(place[rows, None] == place[cols], 1.0, -1.0)
            yield PairBlock(rows, cols, np.maximum(D, 0, out=D), tau)


@dataclass(frozen=True, eq=False)
class Listed(_Comparisons):
    """A list of partners for every row, itself included: those of its class first.

    Attributes
    ----------
    begin : (n + 1,) int array
        The beginning of the list of row i in ``partner``.
    split : (n,) int array
        The beginning of its partners of other classes.
    partner : (p,) int array
    """

    begin: Array
    split: Array
    partner: Array

    @property
    def order(self) -> Array:
        """The rows in their original order."""
        return np.arange(len(self.split))

    @cached_property
    def plus(self) -> Array:
        """n_i⁺, the number of partners of the same class, the row itself included."""
        return (self.split - self.begin[:-1]).astype(np.float64)

    @property
    def sizes(self) -> Array:
        """The number of partners of each row, itself included."""
        return np.diff(self.begin).astype(np.float64)

    def distances(self, Y: Array) -> Iterator[PairBlock]:
        """Yield the squared distances of Y (n, r), block by block."""
        longest = int(np.diff(self.begin).max())
        for rows in blocks(self.n, 8 * longest * (Y.shape[1] + 8)):
            begin = self.begin[rows.start : rows.stop + 1]
            partner = self.partner[begin[0] : begin[-1]]
            own = np.repeat(np.arange(rows.start, rows.stop), np.diff(begin))
            Z = Y[own] - Y[partner]
            tau = np.where(np.arange(begin[0], begin[-1]) < self.split[own], 1.0, -1.0)
            yield PairBlock(rows, slice(0, self.n), np.einsum("ij,ij->i", Z, Z), tau, begin - begin[0], partner)


Compared = Grouped | Listed


def all_pairs(codes: Array) -> Grouped:
    """Compare every row with every row."""
    return _grouped(codes, np.zeros(len(codes), dtype=np.int64))


def random_groups(codes: Array, size: float, rng: np.random.Generator) -> Grouped:
    """Assign the rows at random to groups of about ``size`` and compare every pair inside a group.

    Each class is split into lots of equal size, about its share of a group, at least `LOT` rows (or the whole class).
    """
    n, n_groups = len(codes), max(1, round(len(codes) / size))
    lots: list[Array] = []
    for c in range(int(codes.max()) + 1):
        members = rng.permutation(np.flatnonzero(codes == c))
        lots += np.array_split(members, max(1, min(n_groups, len(members) // LOT)))
    lots = [lots[k] for k in rng.permutation(len(lots))]
    lots.sort(key=len, reverse=True)
    sizes = [(0, g) for g in range(n_groups)]
    group = np.empty(n, dtype=np.int64)
    for lot in lots:
        filled, g = heapq.heappop(sizes)
        group[lot] = g
        heapq.heappush(sizes, (filled + len(lot), g))
    return _grouped(codes, group)


def _grouped(codes: Array, group: Array) -> Grouped:
    order = np.lexsort((codes, group))
    group, codes = group[order], codes[order]
    return Grouped(order, _runs(group), _runs(group * (codes.max() + 1) + codes))


def _runs(keys: Array) -> Array:
    """Return begin and end of the run of equal keys of each entry."""
    starts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1]))
    ends = np.append(starts[1:], len(keys))
    return np.repeat(np.stack([starts, ends], axis=1), ends - starts, axis=0)


def neighbour_lists(Phi: Array, codes: Array, k: int) -> Listed:
    """Compare each row with the k/2 nearest rows of its own class and the k/2 nearest of other classes.

    Cost: that of `metricforge.neighbors.nearest_by_class`, O(n² m) time for exact searches.
    """
    near = [
        (found.queries, np.column_stack([found.queries, found.same[0]]), found.other[0])
        for found in nearest_by_class(Phi, codes, max(1, k // 2))
    ]
    sizes = np.zeros((2, len(codes)), dtype=np.int64)
    for own, same, other in near:
        sizes[0, own], sizes[1, own] = same.shape[1], other.shape[1]
    begin = np.append(0, np.cumsum(sizes.sum(axis=0)))
    split = begin[:-1] + sizes[0]
    partner = np.empty(begin[-1], dtype=np.int64)
    for own, same, other in near:
        partner[begin[own, None] + np.arange(same.shape[1])] = same
        partner[split[own, None] + np.arange(other.shape[1])] = other
    return Listed(begin, split, partner)
