"""Operations on index arrays: (p, k) int64 arrays of row numbers, one relation per line."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..rows import draw
from ..validation import generator, whole_number

Array = NDArray[Any]


def components_of(pairs: Array, n: int) -> Array:
    """Return the connected component of each of ``n`` rows in the graph of ``pairs``, numbered by first row."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    i, j = pairs.T if len(pairs) else (np.empty(0, int), np.empty(0, int))
    graph = coo_array((np.ones(len(i), dtype=np.int8), (i, j)), shape=(n, n))
    component: Array = connected_components(graph, directed=False)[1].astype(np.int64)
    return component


def groups_of(pairs: Array, n: int) -> Array:
    """Return the connected component of each row that occurs in ``pairs``, and -1 for the other rows."""
    touched = np.zeros(n, dtype=bool)
    touched[pairs.ravel()] = True
    return np.where(touched, components_of(pairs, n), -1)


def by_first_row(codes: Array) -> Array:
    """Return class numbers in the order in which classes occur first, -1 where there is none.

    What is drawn from them depends on the partition of the rows only, not on the names of the classes.
    """
    rows = np.flatnonzero(codes >= 0)[::-1]
    first = np.full(int(codes.max(initial=-1)) + 1, len(codes))
    first[codes[rows]] = rows  # of several rows the last one stands, which is the first of the class
    number = np.empty(len(first), dtype=np.int64)
    number[np.argsort(first, kind="stable")] = np.arange(len(first))
    if (number == np.arange(len(number))).all():
        return codes
    return np.where(codes >= 0, number[np.maximum(codes, 0)], -1)


def members_of(codes: Array) -> list[Array]:
    """Return the rows of each code ``0 .. codes.max()``; rows with code -1 belong to none."""
    order = np.argsort(codes, kind="stable")
    order = order[codes[order] >= 0]
    if not len(order):
        return []
    return np.split(order, np.cumsum(np.bincount(codes[order]))[:-1])


def pair_keys(pairs: Array, n: int) -> Array:
    """Return one number per pair, i * n + j."""
    return pairs[:, 0] * np.int64(n) + pairs[:, 1]


def keyed_pairs(keys: Array, n: int) -> Array:
    """Return the pairs of `pair_keys`."""
    return np.stack([keys // n, keys % n], axis=1)


def inside(relations: Array, position: Array) -> Array:
    """Return the relations whose rows all have a new number in ``position``, renumbered."""
    moved: Array = position[relations]
    return moved[(moved >= 0).all(axis=1)]


def stack_pairs(parts: list[Array]) -> Array:
    """Return one (p, 2) array of several, which may be none."""
    return np.concatenate(parts) if parts else np.empty((0, 2), dtype=np.int64)


def all_pairs(rows: Array) -> Array:
    """Return every pair of the given rows."""
    i, j = np.triu_indices(len(rows), k=1)
    return np.stack([rows[i], rows[j]], axis=1)


def cross_pairs(a: Array, b: Array) -> Array:
    """Return every pair of a row of ``a`` and a row of ``b``."""
    return np.stack([np.repeat(a, len(b)), np.tile(b, len(a))], axis=1)


def deal(rows: Array, k: int, seed: int, *, by: Array | None = None, what: str = "row") -> list[Array]:
    """Split ``rows`` at random into ``k`` parts of equal size, up to one.

    With ``by``, one value per row, rows of equal value are spread evenly over the parts.
    """
    k = whole_number(k, "k", least=2)
    if len(rows) < k:
        raise InputError(f"k is {k}, but the relations name {len(rows)} {what}(s); ask for fewer folds")
    order = generator(seed).permutation(len(rows))
    if by is not None:
        order = order[np.argsort(by[order], kind="stable")]
    return [np.sort(rows[order[part::k]]) for part in range(k)]


def partners(first: Array, second: Array) -> tuple[Array, list[Array]]:
    """Return the distinct values of ``first``, and the distinct values of ``second`` that stand beside each."""
    pairs = np.unique(np.stack([first, second], axis=1), axis=0)
    rows, starts = np.unique(pairs[:, 0], return_index=True)
    return rows, np.split(pairs[:, 1], starts[1:]) if len(rows) else []


SMALL = 20
"""Whole groups are drawn if so many of their mean size are at most what is wanted."""


def draw_groups(codes: Array, most: int, seed: int) -> Array:
    """Return at most ``most`` rows in ascending order, drawn at random such that rows of one group are among them.

    ``codes`` has the number of each row's group, -1 for none.  Rows of large groups are drawn one by one, small groups
    as a whole: single rows of many small groups would have no partner.
    """
    codes = by_first_row(codes)
    rows = np.flatnonzero(codes >= 0)
    sizes = np.bincount(codes[rows])
    if SMALL * len(rows) > most * np.count_nonzero(sizes):
        return np.asarray(rows[draw(len(rows), most, seed)])
    order = np.random.default_rng(seed).permutation(len(sizes))
    taken = np.zeros(len(sizes), dtype=bool)
    taken[order[np.cumsum(sizes[order]) <= most]] = True
    return np.asarray(rows[taken[codes[rows]]])
