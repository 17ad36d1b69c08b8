"""Random relations from class numbers.

``codes`` is an (n,) array of class numbers ``0 .. c - 1``, -1 where a row has no class.  What is drawn does not depend
on which class has which number.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..validation import generator, shown
from .indices import all_pairs, by_first_row, cross_pairs, pair_keys, stack_pairs

Array = NDArray[Any]

PER_ROW = 10
"""Number of pairs of each kind, or of triplets, drawn per row where taking all would be quadratic."""
ROUNDS = 200
"""Rounds in which pairs are drawn; the second is rarely needed."""
DRAWS = 20
"""Pairs that are drawn for components, in units of n log₂ n; all classes are connected after about 1 / 20 of them."""
MOST_PAIRS, MOST_TRIPLETS = 200_000, 20_000
"""Upper limits when no number is requested: what the solvers take in seconds."""


class ClassIndex:
    """Labelled rows grouped by class, so that a random partner costs O(1)."""

    def __init__(self, codes: Array) -> None:
        codes = by_first_row(codes)
        order = np.argsort(codes, kind="stable")
        self.codes = codes
        self.rows = order[codes[order] >= 0]  # labelled rows, class by class
        self.counts = np.bincount(codes[self.rows])
        self.starts = np.concatenate([[0], np.cumsum(self.counts)])[:-1]

    def same_class(self, rows: Array, rng: np.random.Generator) -> Array:
        """Return for each row a random row of its class (possibly the row itself)."""
        c = self.codes[rows]
        return np.asarray(self.rows[self.starts[c] + (rng.random(len(rows)) * self.counts[c]).astype(np.int64)])

    def other_class(self, rows: Array, rng: np.random.Generator) -> Array:
        """Return for each row a random row of another class."""
        c = self.codes[rows]
        outside = len(self.rows) - self.counts[c]
        place = (rng.random(len(rows)) * outside).astype(np.int64)
        # skip over the row's own class, which is contiguous
        place += np.where(place >= self.starts[c], self.counts[c], 0)
        return self.rows[place]

    def all_same(self) -> Array:
        """Return every pair of the same class."""
        members = [self.rows[s : s + c] for s, c in zip(self.starts, self.counts, strict=True)]
        return stack_pairs([all_pairs(m) for m in members if len(m) > 1])

    def all_different(self) -> Array:
        """Return every pair of different classes."""
        ends = self.starts + self.counts
        halves = [(self.rows[s:e], self.rows[e:]) for s, e in zip(self.starts, ends, strict=True)]
        return stack_pairs([cross_pairs(own, later) for own, later in halves if len(later)])


def sample_pairs(codes: Array, same: bool, limit: int, rng: np.random.Generator, *, repeat: bool = False) -> Array:
    """Return up to ``limit`` random pairs of the same (or of different) class; all of them when there are fewer.

    Every pair is equally likely.  With ``repeat`` exactly ``limit`` pairs are drawn with replacement.
    """
    index = ClassIndex(codes)
    counts = index.counts.astype(np.int64)
    within = int((counts * (counts - 1) // 2).sum())
    total = within if same else int(counts.sum() * (counts.sum() - 1) // 2) - within
    if total == 0:
        return np.empty((0, 2), dtype=np.int64)
    if not repeat and total <= 4 * limit:
        every = index.all_same() if same else index.all_different()
        return every if total <= limit else every[np.sort(rng.choice(total, size=limit, replace=False))]
    # A row starts a pair in proportion to its number of partners, so pairs are uniform.
    weight = (counts - 1 if same else counts.sum() - counts)[index.codes[index.rows]].astype(float)
    cumulative = np.cumsum(weight)
    found = np.empty((0, 2), dtype=np.int64)
    for _ in range(ROUNDS):
        if len(found) >= limit:
            break
        draws = max(64, int(1.2 * (limit - len(found))))
        i = index.rows[np.searchsorted(cumulative, rng.random(draws) * cumulative[-1], side="right")]
        j = index.same_class(i, rng) if same else index.other_class(i, rng)
        pairs = np.stack([i, j], axis=1)[i != j]
        found = np.concatenate([found, pairs])
        if not repeat:
            keys = pair_keys(np.sort(found, axis=1), len(codes))
            found = found[np.sort(np.unique(keys, return_index=True)[1])]
    return np.resize(found, (limit, 2)) if repeat and len(found) else found[:limit]


def draw_components(codes: Array, components: float, seed: int, *, dissimilar: bool = True) -> tuple[Array, Array]:
    """Draw same-class pairs until ``components * n`` components are left, and as many different-class pairs.

    This is the protocol of Xing et al. (2002), which the papers share.  Each unlabelled row is a component by itself.
    """
    if not (isinstance(components, float | np.floating) and 0 < components < 1):
        raise InputError(
            f"components must be between 0 and 1 (the share of rows left as components), got {shown(components)}"
        )
    rng = generator(seed)
    index = ClassIndex(codes)
    n = len(codes)
    target = max(round(components * n), len(index.counts) + n - len(index.rows))
    pairable = index.rows[index.counts[index.codes[index.rows]] > 1]
    parent = np.arange(n)
    left, seen, similar = n, set(), []

    def joined(candidates: Iterable[tuple[int, int]]) -> None:
        nonlocal left
        for i, j in candidates:
            key = (min(i, j), max(i, j))
            if i == j or key in seen:
                continue
            seen.add(key)
            similar.append(key)
            a, b = _root(parent, i), _root(parent, j)
            if a != b:
                parent[max(a, b)] = min(a, b)
                left -= 1
                if left <= target:
                    break

    drawn = 0
    while left > target and drawn < DRAWS * n * n.bit_length():
        start = pairable[rng.integers(len(pairable), size=max(64, left - target))]
        joined(zip(start.tolist(), index.same_class(start, rng).tolist(), strict=True))
        drawn += len(start)
    if left > target:
        joined(pair for pair in pairwise(index.rows.tolist()) if codes[pair[0]] == codes[pair[1]])
    s = np.asarray(similar, dtype=np.int64).reshape(-1, 2)
    d = sample_pairs(codes, False, len(s), rng) if dissimilar and len(s) else np.empty((0, 2), dtype=np.int64)
    return s, d


def _root(parent: Array, i: int) -> int:
    while parent[i] != i:
        parent[i] = parent[parent[i]]  # path halving
        i = int(parent[i])
    return i
