"""Approximate neighbours of every row, to the recall that the caller asks for."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..rows import blocks, draw
from .candidates import complete
from .contract import Array, Found
from .exhaustive import exact_search
from .partition import Cells, cell_count, learn_cells, members_of, sample_rows
from .probing import QUERIES, probe

PILOT = 400
"""Rows whose true neighbours are searched: from one half the number of cells is chosen, from the other the recall is
estimated."""
MOST_SHARE = 0.25
"""From this share of the rows on, comparing all of them is faster."""


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


def plan(ranks: Array, k: int, recall: float, cells: int) -> Plan:
    """Choose the number of cells to search.

    Parameters
    ----------
    ranks : (s, l) int array
        For s sampled rows, the places of the cells of the rows that are no further than the k-th neighbour, among the
        cells nearest to the sampled row: a neighbour is found if so many cells are searched.  Ties make l > k.
    k : int
    recall : float
        The share to reach, less one standard error.
    cells : int
        The number of cells there are.
    """
    half = len(ranks) // 2
    # the place from which on the j-th neighbour is found, whichever of tied rows it is
    places = np.sort(ranks, axis=1)[:, :k] + 1
    most = max(1, int(MOST_SHARE * cells))
    for p in range(1, most + 1):
        found = (places[:half] <= p).mean(axis=1)
        if found.mean() - found.std() / max(1, half) ** 0.5 >= recall:
            return Plan(p, float((places[half:] <= p).mean()))
    return Plan(0, 1.0)


def neighbor_ranks(cells: Cells, rows: Array, near: Array, distances: Array, homes: Array, k: int) -> Array:
    """Return the ranks for `plan` from the true lists of sampled rows.

    Parameters
    ----------
    cells : Cells
    rows : (s, d) array
        The sampled rows.
    near, distances : (s, l) arrays, l >= k
        Their true neighbours, more than k so that ties at the k-th are known.
    homes : (s, l) int array
        The cells of the neighbours.
    """
    asked = max(1, int(MOST_SHARE * cells.count))
    order = cells.nearest(rows, asked)  # (s, asked)
    ranks = np.full(near.shape, cells.count)
    for i, (cell, home) in enumerate(zip(order, homes, strict=True)):
        place = np.full(cells.count + 1, cells.count)
        place[cell[::-1]] = np.arange(len(cell))[::-1]
        place[-1] = cells.count
        ranks[i] = place[home]
    ranks[distances > distances[:, k - 1 : k]] = cells.count
    return ranks


def cell_search(X: Array, Q: Array, k: int, own: Array | None, recall: float, seed: int) -> tuple[Found, float]:
    """Search dense rows in memory by cells; return the lists and their estimated recall.

    ``own[i]`` is the row of X that query i may not find.  Time: O(q p c d) for p cells of c rows, and finding these
    cells.  Memory: a copy of X, and the lists.
    """
    n, q = len(X), len(Q)
    cells = learn_cells(X[sample_rows(n, seed)], cell_count(n), seed)
    chosen = draw(q, PILOT, seed + 1)
    near, distances = exact_search(X, Q[chosen], min(2 * k, n - (own is not None)), None if own is None else chosen)
    homes = cells.nearest(X[near.ravel()], 1)[:, 0].reshape(near.shape)
    scheme = plan(neighbor_ranks(cells, Q[chosen], near, distances, homes, k), k, recall, cells.count)
    if not scheme.cells:
        return exact_search(X, Q, k, own), 1.0
    home = np.empty(n, dtype=np.int64)
    for part in blocks(n, 1, QUERIES):
        home[part] = cells.nearest(X[part], 1)[:, 0]
    members = members_of(X, home, cells.count)
    # Rows in the order of their cells: those of one block search the same cells.
    order = members.numbers if own is not None else np.argsort(cells.nearest(Q, 1)[:, 0], kind="stable")
    found = np.empty((q, k), dtype=np.int64), np.empty((q, k))
    for part in blocks(q, 1, QUERIES):
        numbers = order[part]
        rows = Q[numbers]
        mine = None if own is None else own[numbers]
        found[0][numbers], found[1][numbers] = probe(rows, cells.nearest(rows, scheme.cells), members, k, mine)
    return complete(found, X, Q, np.flatnonzero(~np.isfinite(found[1][:, -1])), own, "cells"), scheme.recall
