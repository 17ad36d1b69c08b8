"""Approximate neighbours of every row, to the recall that the caller asks for."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..rows import beat, blocks, draw, is_sparse
from .binary import hamming_search
from .contract import Array, Found
from .coordinates import Coordinates, coordinates
from .distances import is_binary
from .exhaustive import exact_search
from .partition import Cells, batches, cell_count, learn_cells, members_of, sample_rows
from .probing import QUERIES, probe
from .refining import FEW_CELLS, FIRST_RECALL, MOST_CELLS, WIDER, Sample, list_width, refined, refines

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
