"""The choice of pairs (Sec. 3.2.5): the closest similar and the closest dissimilar pairs of each row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from metricforge.constraints.indices import all_pairs, keyed_pairs, pair_keys
from metricforge.kernels import squared_euclidean
from metricforge.neighbors import nearest_by_class
from metricforge.rows import Array, draw
from metricforge.rows.mapping import MEDIAN_ROWS, median_of_pairs
from metricforge.space import check_memory
from metricforge.validation import number_or, whole_number_or

ANCHORS = 20_000
"""Maximal number of rows that pairs are built around; with five of each kind they give 200,000 pairs."""


@dataclass(frozen=True, eq=False)
class ChosenPairs:
    """Pairs of row numbers, and notes on how they were chosen."""

    similar: Array
    dissimilar: Array
    notes: tuple[str, ...] = ()


def pairs_from_labels(
    Phi: Array, codes: Array, neighbors: int | None, radius: float | str | None, *, seed: int = 0
) -> ChosenPairs:
    """Build pairs from class numbers: for each row its nearest rows of the same class, and of other classes.

    Parameters
    ----------
    Phi : (n, m) array
        Rows whose Euclidean distances are those before learning.
    codes : (n,) int array
        Classes, all >= 0.
    neighbors : int or None
        Pairs of each kind per row; None: every pair of rows, without a radius.
    radius : float, "median" or None
        Pairs with a larger distance are omitted.

    Notes
    -----
    Time O(a n m) for the a <= 20,000 rows that pairs are built around; memory for a copy of Phi and O(a · neighbors).
    """
    if neighbors is None:
        n = len(codes)
        check_memory(4 * n * n * 8, f"every pair of {n} rows", "set neighbors")
        every = all_pairs(np.arange(n))
        same = codes[every[:, 0]] == codes[every[:, 1]]
        return ChosenPairs(every[same], every[~same])
    notes = []
    anchors = draw(len(codes), ANCHORS, seed)
    if len(anchors) < len(codes):
        notes.append(f"pairs were built around {len(anchors)} of the {len(codes)} labelled rows, drawn at random")
    similar, dissimilar = [], []
    for found in nearest_by_class(Phi, codes, neighbors, queries=anchors):
        similar.append(_listed(found.queries, *found.same))
        dissimilar.append(_listed(found.queries, *found.other))
    limit = median_distance(Phi, seed) if radius == "median" else radius
    kept = [_distinct(*_within(np.concatenate(part), limit), len(codes)) for part in (similar, dissimilar)]
    if not len(kept[1]):
        kept[1] = _distinct(*_within(np.concatenate(dissimilar), None), len(codes))
        notes.append(
            f"no dissimilar pair is closer than radius={limit:.4g}: the radius was not applied to dissimilar pairs"
        )
    return ChosenPairs(kept[0], kept[1], tuple(notes))


def closest_pairs(
    pairs: Array, dissimilar: Array, distance: Array, neighbors: int | None, radius: float | str | None
) -> tuple[Array, tuple[str, ...]]:
    """Return which of the given pairs are among the closest pairs of their kind of one of their rows.

    Parameters
    ----------
    pairs : (N, 2) int array
    dissimilar : (N,) bool array
    distance : (N,) array
        The distances before learning.
    neighbors, radius
        As in `pairs_from_labels`; "median" is the median of these distances.
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
    return float(np.sqrt(median_of_pairs(squared_euclidean(sample, sample))))


def check_selection(neighbors: Any, radius: Any) -> None:
    """Raise unless both options have a value that `pairs_from_labels` and `closest_pairs` accept."""
    whole_number_or(neighbors, "neighbors", ["auto", None])
    number_or(radius, "radius", ["median", None], above=0)


def _listed(queries: Array, index: Array, distance: Array) -> Array:
    """Return (query, neighbour, distance) for each neighbour."""
    return np.stack([np.repeat(queries, index.shape[1]), index.ravel(), distance.ravel()], axis=1)


def _within(found: Array, limit: float | str | None) -> tuple[Array, Array]:
    found = found if limit is None else found[found[:, 2] <= float(limit)]
    return found[:, 0].astype(np.int64), found[:, 1].astype(np.int64)


def _distinct(i: Array, j: Array, n: int) -> Array:
    """Return each pair once, smaller row number first."""
    return keyed_pairs(np.unique(pair_keys(np.sort(np.stack([i, j], axis=1), axis=1), n)), n)


def _among_closest(ends: Array, distance: Array, k: int) -> Array:
    """Return for each pair whether it is one of the k closest pairs of its first or of its second row."""
    row = ends.T.ravel()
    pair = np.tile(np.arange(len(ends)), 2)
    order = np.lexsort((pair, np.tile(distance, 2), row))
    first = np.searchsorted(row[order], row[order], side="left")
    chosen = np.zeros(len(ends), dtype=bool)
    chosen[pair[order[np.arange(len(order)) - first < k]]] = True
    return chosen
