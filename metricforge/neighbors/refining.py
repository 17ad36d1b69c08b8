"""The lists of all rows in two steps: the nearest in a few cells, then passes over neighbours of neighbours.

Where many cells must be searched for each row, and more of them the more rows there are, the work of the passes per row
stays the same.  Passes end when sampled rows, whose true neighbours are known, have the recall asked for.  On rows
without structure the passes over short lists stop below it, and go on over wider ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..rows import blocks, is_sparse
from .contract import Array, Found, HopLists
from .distances import pair_distances
from .partition import Cells, by_cell
from .probing import QUERIES
from .scanning import least
from .single import takes_single

FEW_CELLS = 8
"""Where so many cells suffice, no passes are needed."""
FIRST_RECALL, MOST_CELLS = 0.8, 40
"""The recall of the first lists, and the most cells that are searched for them: lists with less take more passes."""
LISTING = 10
"""Rows that list a row, whose lists are compared with it."""
MOST_PASSES = 8
LEAST_GAIN = 2e-3
"""Passes over the widest lists end without success when one adds less than this to the recall."""
WIDER = 2
"""Lists are so many times as wide where MOST_CELLS do not hold FIRST_RECALL, and become so where passes do not reach
the recall: on rows without structure, fewer passes over wide lists find more."""
COLUMNS = 128
"""Rows of more columns are left to the products over cells: a compiled loop over pairs is slower there."""


@dataclass(frozen=True, eq=False)
class Sample:
    """Rows whose true neighbours are known.

    Attributes
    ----------
    rows : (s,) int array
        The numbers of the rows.
    furthest : (s,) array
        The distance of their k-th neighbour.
    k : int
    recall : float
        The share to reach, less one standard error, on the first half of the rows; the other half gives the estimate.
    """

    rows: Array
    furthest: Array
    k: int
    recall: float

    def shares(self, distances: Array) -> Array:
        """Return the share of neighbours found for each row, given the distances in its list."""
        near = distances <= self.furthest[:, None] * (1 + 1e-6)  # all ties count
        return np.asarray(np.minimum(near.sum(axis=1), self.k) / self.k)

    def reached(self, shares: Array) -> bool:
        """Return whether the first half of the rows has the recall."""
        first = shares[: max(1, len(shares) // 2)]
        return bool(first.mean() - first.std() / len(first) ** 0.5 >= self.recall)

    def estimate(self, shares: Array) -> float:
        """Return the recall of the other half."""
        other = shares[max(1, len(shares) // 2) :]
        return float((other if len(other) else shares).mean())

    def next_width(self, wide: int, recall: float, before: float) -> int | None:
        """Return the width of the lists in the next pass, given the recall after the last pass and before it.

        Each pass adds less than the one before, on rows without structure about a quarter.  Where another gain like
        the last would not suffice, the lists become wider, once; None where passes end without success.
        """
        widest, gain = WIDER * list_width(self.k), recall - before
        if wide == widest:
            return wide if gain >= LEAST_GAIN else None
        return wide if gain >= LEAST_GAIN and recall + gain >= self.recall else widest


def refines(X: Any, n: int, cells: Cells, *, binary: bool) -> bool:
    """Return whether passes are tried for n rows like those of X where FEW_CELLS do not suffice."""
    dense = not binary and not is_sparse(X) and X.shape[1] <= COLUMNS
    return dense and cells.count >= 4 * FEW_CELLS and n < 2**31  # positions are int32


def list_width(k: int) -> int:
    """Return the entries of a list during the passes: longer lists find more, and need fewer passes."""
    return max(16, k + k // 4)


def centred(X: Array, centre: Array) -> Array:
    """Return rows about a centre in float32."""
    return np.subtract(X, centre, dtype=np.float64).astype(np.float32)


def fits_single(X: Array, centre: Array) -> bool:
    """Return whether float32 holds the squared distances of rows from a centre."""
    squares = [
        np.square(X[part] - centre, dtype=np.float64).sum(axis=1).max() for part in blocks(len(X), 8 * X.shape[1])
    ]
    return not squares or takes_single(X.shape[1], float(max(squares)))


def refined(X: Array, cells: Cells, home: Array, first: int, wide: int, sample: Sample) -> tuple[Found, float] | None:
    """Return the lists of all rows and their estimated recall, or None where passes do not reach it.

    ``home`` has the cell of each row; ``first`` is the number of cells searched for the first lists, ``wide`` the width
    of these.  Of rows at the same distance, not all of which fit into a list, those compared first are kept.

    Notes
    -----
    Time: the rows of ``first`` cells and a few hundred distances a pass, for each row.  Memory: X in float32 twice, and
    20 bytes per entry of the lists, besides those returned.
    """
    from . import hops

    n, k = len(X), sample.k
    order, starts = by_cell(home, cells.count)
    centre = cells.centres.mean(axis=0)
    if not fits_single(X, centre):
        return None
    rows = np.empty(X.shape, dtype=np.float32)
    for part in blocks(n, 8 * X.shape[1]):
        rows[part] = centred(X[order[part]], centre)
    columns, sizes, positions = hops.in_columns(rows, starts), np.diff(starts), np.arange(n)
    lists = HopLists(
        np.empty((n, wide), dtype=np.int32), np.empty((n, wide), dtype=np.float32), np.empty((n, wide), dtype=np.bool_)
    )
    for part in blocks(n, 1, QUERIES):
        probes = cells.enough(X[order[part]], first, sizes, k, many=True)
        made = hops.first_lists(rows[part], positions[part], columns, starts, positions, probes, wide)
        for whole, some in zip(lists, made, strict=True):
            whole[part] = some
    del columns
    place = np.empty(n, dtype=np.int64)
    place[order] = positions
    at = place[sample.rows]
    best = 0.0
    for _ in range(MOST_PASSES + 1):
        shares = sample.shares(_distances(X, sample.rows, order, lists.positions[at]))
        if sample.reached(shares):
            return ordered(X, order, lists.positions, k), sample.estimate(shares)
        wider = sample.next_width(wide, float(shares.mean()), best)
        if wider is None:
            break
        best = float(shares.mean())
        if wider > wide:
            # the first pass over wider lists fills them and adds little to the recall: only the next is judged
            lists, wide, best = hops.widened(lists, wider), wider, 0.0
        lists = hops.one_pass(rows, lists, hops.listing_rows(lists, 0, n, LISTING))
    return None


def _distances(X: Array, who: Array, numbers: Array, positions: Array) -> Array:
    """Return the distances of rows to those in their lists; infinite where there is none."""
    distances = np.full(positions.shape, np.inf)
    i, j = np.nonzero(positions >= 0)
    distances[i, j] = pair_distances(X, X, who[i], numbers[positions[i, j]])
    return distances


def ordered(X: Array, numbers: Array, positions: Array, k: int) -> Found:
    """Return the k nearest rows in every list by (distance, number), in the order of the rows.

    ``numbers`` are those of the rows by position.
    """
    n = len(positions)
    found = np.empty((n, k), dtype=np.int64), np.empty((n, k))
    for part in blocks(n, 1, QUERIES):
        who, near = numbers[part], positions[part]
        distances = _distances(X, who, numbers, near)
        listed = np.where(near >= 0, numbers[near], -1)
        best = least(distances, listed, k)
        found[0][who] = np.take_along_axis(listed, best, axis=1)
        found[1][who] = np.take_along_axis(distances, best, axis=1)
    return found
