"""Approximate neighbours of every row, to a given recall: the nearest in a few cells, then neighbours of neighbours.

Where many cells must be searched for each row, and more of them the more rows there are, the work of passes over
neighbours of neighbours stays the same per row.  They end when sampled rows, whose true neighbours are known, have the
recall.  On rows without structure the passes over short lists stop below it, and go on over wider ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..rows import beat, blocks, draw, is_sparse
from .contract import Array, Found, HopLists
from .exhaustive import exact_search, hamming_search
from .partition import (
    Cells,
    Coordinates,
    batches,
    by_cell,
    cell_count,
    coordinates,
    learn_cells,
    members_of,
    sample_rows,
)
from .probing import QUERIES, probe
from .scanning import is_binary, k_least, pair_distances, takes_single

PILOT = 400
"""Rows whose true neighbours are searched: from one half the number of cells is chosen, from the other the recall is
estimated."""
MOST_SHARE = 0.25
"""From this share of the rows on, comparing all of them is faster."""


GROWTH = 1.15
"""Ratio of the numbers of cells that are tried."""


class Plan(NamedTuple):
    """How many cells to search, and what to expect of it.

    Attributes
    ----------
    cells : int
        The number of cells searched for each row; 0 if comparing all rows is faster.
    recall : float
        The share of true neighbours found, on rows that took no part in the choice.
    """

    cells: int
    recall: float


def plan(
    cells: Cells,
    rows: Array,
    homes: Array,
    distances: Array,
    k: int,
    recall: float,
    *,
    many: bool = False,
    most: int | None = None,
    judges: int | None = None,
    margin: float = 1.0,
) -> Plan:
    """Choose the number of cells to search from the true lists of sampled rows.

    Parameters
    ----------
    cells : Cells
    rows : (s, d) array
        The sampled rows.
    homes, distances : (s, l) arrays, l >= k
        The cells of their true neighbours, and their distances; l > k so that ties at the k-th place are known.
    k : int
    recall : float
        The share that the first rows reach, less the margin; the other rows give the estimate.
    many : bool
        Whether the cells searched will be those of `Cells.around`, not of `Cells.nearest`.
    most : int, optional
        The largest number of cells; by default those in which a MOST_SHARE of the rows is.
    judges : int, optional
        The number of these first rows; by default half of the rows.
    margin : float
        In standard errors of the share that they reach.
    """
    first = max(1, len(rows) // 2) if judges is None else min(judges, len(rows))
    most, p = max(1, int(MOST_SHARE * cells.count)) if most is None else most, 1
    while p <= most:
        # the groups that are visited depend on the number of cells asked for, so each number is tried as it will be
        near = cells.around(rows, p) if many else cells.nearest(rows, p)
        places = _places(near, homes, distances, k, cells.count)
        found = (places < cells.count).mean(axis=1)
        own, other = found[:first], found[first:]
        if own.mean() - margin * own.std() / first**0.5 >= recall:
            return Plan(p, float(other.mean()) if len(other) else float(own.mean()))
        p = max(p + 1, int(GROWTH * p))
    return Plan(0, 1.0)


def first_cells(chooses: Callable[..., Plan], k: int) -> tuple[int, int]:
    """Return how many cells to search for lists that passes will improve, and how wide these lists are.

    ``chooses`` is `plan` of the sampled rows.
    """
    enough = chooses(FIRST_RECALL, most=MOST_CELLS).cells
    return enough or MOST_CELLS, (1 if enough else WIDER) * list_width(k)


def _places(near: Array, homes: Array, distances: Array, k: int, none: int) -> Array:
    """Return for each sampled row the places of the cells in which its k neighbours are; ``none`` where they are not.

    ``near`` has the cells searched for each row.  Of tied neighbours, those in the nearest cells count.
    """
    places = np.full(homes.shape, none)
    for place in range(near.shape[1] - 1, -1, -1):
        places[homes == near[:, place : place + 1]] = place
    places[distances > distances[:, k - 1 : k]] = none
    return np.asarray(np.sort(places, axis=1)[:, :k])


def pilot_rows(n: int, seed: int, count: int = PILOT) -> Array:
    """Return the numbers of the rows whose true neighbours are searched."""
    return draw(n, count, seed + 1)


def without_itself(near: Array, distances: Array, own: Array) -> Found:
    """Return lists without the row itself; of a row that is not in its own list (duplicates precede it), the last."""
    apart = near != own[:, None]
    apart[apart.all(axis=1), -1] = False
    return near[apart].reshape(len(near), -1), distances[apart].reshape(len(near), -1)


def cell_search(X: Any, Q: Any, k: int, own: Array | None, recall: float, seed: int) -> tuple[Found, float]:
    """Search rows in memory by cells; return the lists and their estimated recall.

    ``own[i]`` is the row of X that query i may not find.  Rows of zeros and ones, dense or CSR, are packed into bits.
    Time: O(q p c d) for p cells of c rows, and finding these cells.  Memory: a copy of X (of packed rows an eighth of
    a byte per entry), and the lists.
    """
    n, q = X.shape[0], Q.shape[0]
    binary = is_binary(X) and (Q is X or is_binary(Q))
    place = coordinates(X.shape[1], sparse=is_sparse(X), binary=binary, seed=seed)
    exact = hamming_search if binary else exact_search
    count = cell_count(n)
    cells = learn_cells(place(place.rows(X[sample_rows(n, count, seed)])), count, seed)
    chosen = pilot_rows(q, seed)
    near, distances = exact(X, Q[chosen], min(2 * k, n - (own is not None)), None if own is None else chosen)
    homes = _homes_of(cells, place, X, near.ravel()).reshape(near.shape)
    placed, rows = place(place.rows(Q[chosen])), place.rows(X)
    chooses = partial(plan, cells, placed, homes, distances, k, many=True)
    tried = own is not None and refines(X, n, cells, binary=binary)
    scheme = chooses(recall, most=FEW_CELLS if tried else None)
    home = None
    if tried and not scheme.cells:
        home = _homes(cells, place, rows)
        found = refined(X, cells, home, *first_cells(chooses, k), Sample(chosen, distances[:, k - 1], k, recall))
        if found is not None:
            return found
        scheme = chooses(recall)
    if not scheme.cells:
        return exact(X, Q, k, own), 1.0
    home = _homes(cells, place, rows) if home is None else home
    members = members_of(rows, home, cells.count)
    sizes = np.diff(members.starts)
    beat(0, q)
    Q = rows if Q is X else place.rows(Q)
    # Rows in the order of their cells: those of one block search the same cells.
    order = members.numbers if own is not None else np.argsort(_homes(cells, place, Q), kind="stable")
    lists = np.empty((q, k), dtype=np.int64), np.empty((q, k))
    for part in blocks(q, place.row_bytes, QUERIES * place.row_bytes):
        numbers = order[part]
        block = Q[numbers]
        beat(part.start, q)
        mine = None if own is None else own[numbers]
        probes = cells.enough(place(block), scheme.cells, sizes, k, many=True)
        lists[0][numbers], lists[1][numbers] = probe(block, probes, members, k, mine)
    return lists, scheme.recall


def _homes(cells: Cells, place: Coordinates, rows: Any) -> Array:
    """Return the cell of every row."""
    home = np.empty(rows.shape[0], dtype=np.int64)
    for part in batches(rows.shape[0], place.row_bytes):
        home[part] = cells.nearest(place(rows[part]), 1)[:, 0]
    return home


def _homes_of(cells: Cells, place: Coordinates, X: Any, numbers: Array) -> Array:
    """Return the cells of the rows ``X[numbers]``, which are copied a block at a time."""
    home = np.empty(len(numbers), dtype=np.int64)
    for part in batches(len(numbers), place.row_bytes):
        home[part] = cells.nearest(place(place.rows(X[numbers[part]])), 1)[:, 0]
    return home


# --------------------------------------------------------------------------------------------- neighbours of neighbours

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
    from . import loops

    n, k = len(X), sample.k
    order, starts = by_cell(home, cells.count)
    centre = cells.centres.mean(axis=0)
    if not fits_single(X, centre):
        return None
    rows = np.empty(X.shape, dtype=np.float32)
    for part in blocks(n, 8 * X.shape[1]):
        rows[part] = centred(X[order[part]], centre)
    columns, sizes, positions = loops.in_columns(rows, starts), np.diff(starts), np.arange(n)
    lists = HopLists(
        np.empty((n, wide), dtype=np.int32), np.empty((n, wide), dtype=np.float32), np.empty((n, wide), dtype=np.bool_)
    )
    for part in blocks(n, 1, QUERIES):
        probes = cells.enough(X[order[part]], first, sizes, k, many=True)
        made = loops.first_lists(rows[part], positions[part], columns, starts, positions, probes, wide)
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
            lists, wide, best = loops.widened(lists, wider), wider, 0.0
        lists = loops.one_pass(rows, lists, loops.listing_rows(lists, 0, n, LISTING))
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
        found[0][who], found[1][who] = k_least(listed, distances, k)
    return found
