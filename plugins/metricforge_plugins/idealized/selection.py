"""Which pairs to learn from (Sec. 3.2.5): the closest similar and the closest dissimilar ones of each row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricforge import neighbors as _neighbors
from metricforge.errors import InputError
from metricforge.kernels import squared_euclidean
from metricforge.rows import draw
from metricforge.space import check_memory

Array = NDArray[Any]

ANCHORS = 20_000
"""Rows that pairs are built around; with five of each kind that is 200,000 pairs, which are solved in a second."""
MEDIAN_ROWS = 1024
"""Rows behind the median distance: half a million pairs pin it to a fraction of a per cent."""


@dataclass(frozen=True, eq=False)
class Selection:
    """Pairs of row numbers, and what there is to say about how they were chosen."""

    similar: Array
    dissimilar: Array
    notes: tuple[str, ...] = ()


def pairs_from_labels(
    Phi: Array, codes: Array, neighbors: int | None, radius: float | str | None, *, seed: int = 0
) -> Selection:
    """Build pairs from class numbers: for each row its closest rows of the same class, and of the other classes.

    Each of the two is a search of its own: the nearest rows of other classes are often missing from any list of
    nearest rows.

    Parameters
    ----------
    Phi : (n, m) array
        Rows in the metric before learning.
    codes : (n,) int array
        Classes, all >= 0.
    neighbors : int or None
        Rows of each kind for each row; None: every pair of rows, whatever the radius.
    radius : float, "median" or None
        Pairs further apart are left out.

    Notes
    -----
    Time O(a n m) for a <= 20,000 rows that pairs are built around; memory a copy of Phi and O(a · neighbors).
    """
    if neighbors is None:
        n = len(codes)
        check_memory(4 * n * n * 8, f"every pair of {n} rows", "set neighbors")
        every = np.stack(np.triu_indices(n, k=1), axis=1)
        same = codes[every[:, 0]] == codes[every[:, 1]]
        return Selection(every[same], every[~same])
    notes = []
    anchors = draw(len(codes), ANCHORS, seed)
    if len(anchors) < len(codes):
        notes.append(f"pairs were built around {len(anchors)} of the {len(codes)} labelled rows, drawn at random")
    similar, dissimilar = [], []
    for c in range(codes.max() + 1):
        inside, outside = np.flatnonzero(codes == c), np.flatnonzero(codes != c)
        queries = anchors[codes[anchors] == c]
        if not len(queries):
            continue
        # one more than asked for: a row is its own nearest neighbour, and is taken out below
        similar.append(_search(Phi, inside, queries, min(neighbors + 1, len(inside))))
        dissimilar.append(_search(Phi, outside, queries, min(neighbors, len(outside))))
    limit = median_distance(Phi, seed) if radius == "median" else radius
    kept = [_distinct(*_within(np.concatenate(part), limit), len(codes)) for part in (similar, dissimilar)]
    if not len(kept[1]):
        kept[1] = _distinct(*_within(np.concatenate(dissimilar), None), len(codes))
        notes.append(
            f"no dissimilar pair is closer than radius={limit:.4g}: the radius was not applied to dissimilar pairs"
        )
    return Selection(kept[0], kept[1], tuple(notes))


def closest_pairs(
    pairs: Array, dissimilar: Array, distance: Array, neighbors: int | None, radius: float | str | None
) -> tuple[Array, tuple[str, ...]]:
    """Return which of the given pairs are among the closest of their kind of either of their rows.

    Parameters
    ----------
    pairs : (N, 2) int array
    dissimilar : (N,) bool array
    distance : (N,) array
        The distance of every pair before learning.
    neighbors, radius
        As in `pairs_from_labels`; the median is that of these distances.
    """
    keep = np.ones(len(pairs), dtype=bool)
    if neighbors is not None:
        for side in (False, True):
            index = np.flatnonzero(dissimilar == side)
            keep[index] = _among_closest(pairs[index], distance[index], neighbors)
    limit = float(np.median(distance)) if radius == "median" else radius
    if limit is None:
        return keep, ()
    near = distance <= float(limit)
    if (keep & near & dissimilar).any():
        return keep & near, ()
    note = f"no dissimilar pair is closer than radius={limit:.4g}: the radius was not applied to dissimilar pairs"
    return keep & (near | dissimilar), (note,)


def median_distance(Phi: Array, seed: int) -> float:
    """Return the median distance of two different rows, from at most 1024 of them."""
    sample = Phi[draw(len(Phi), MEDIAN_ROWS, seed)]
    D = squared_euclidean(sample, sample)
    return float(np.sqrt(np.median(D[np.triu_indices(len(D), k=1)])))


def check_selection(neighbors: Any, radius: Any) -> None:
    """Raise unless both options are of the kinds that this file understands."""
    whole = isinstance(neighbors, int | np.integer) and not isinstance(neighbors, bool) and neighbors >= 1
    if not (neighbors is None or neighbors == "auto" or whole):
        raise InputError(f'neighbors must be "auto", None or a whole number >= 1, got {neighbors!r}')
    number = isinstance(radius, int | float | np.number) and not isinstance(radius, bool) and 0 < radius < np.inf
    if not (radius is None or (isinstance(radius, str) and radius == "median") or number):
        raise InputError(f'radius must be "median", None or a positive number, got {radius!r}')


def _search(Phi: Array, rows: Array, queries: Array, k: int) -> Array:
    """Return (query, neighbour, distance) for the k rows nearest to each query."""
    index, distance = _neighbors.search(Phi[rows], k, queries=Phi[queries])
    return np.stack([np.repeat(queries, k), rows[index.ravel()], distance.ravel()], axis=1)


def _within(found: Array, limit: float | str | None) -> tuple[Array, Array]:
    found = found if limit is None else found[found[:, 2] <= float(limit)]
    return found[:, 0].astype(np.int64), found[:, 1].astype(np.int64)


def _distinct(i: Array, j: Array, n: int) -> Array:
    """Return each pair of two different rows once, smaller number first."""
    low, high = np.minimum(i, j), np.maximum(i, j)
    keys = np.unique(low[low < high] * np.int64(n) + high[low < high])
    return np.stack([keys // n, keys % n], axis=1)


def _among_closest(ends: Array, distance: Array, k: int) -> Array:
    """Tell for each pair whether it is one of the k closest pairs of its first or of its second row."""
    row = ends.T.ravel()
    pair = np.tile(np.arange(len(ends)), 2)
    order = np.lexsort((pair, np.tile(distance, 2), row))
    first = np.searchsorted(row[order], row[order], side="left")
    chosen = np.zeros(len(ends), dtype=bool)
    chosen[pair[order[np.arange(len(order)) - first < k]]] = True
    return chosen
