"""The splits of the panel and the hints that are drawn from their training rows.

Half of the rows of every class are for training; of the others at most ``HELD_OUT_ROWS`` are scored.  The same name and
number always give the same split and the same hints.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from typing import Any

import numpy as np

import metricforge as mf

from .first_call_sets import load

Array = np.ndarray

KINDS = {
    "L": "labels of all training rows",
    "P5": "5 pairs a row, half of them similar",
    "P1": "1 pair a row, half of them similar",
    "T": "3 triplets a row",
    "C": "groups of about 4 over 30 % of the rows",
}
HELD_OUT_ROWS = 2000
SCORED_TRIPLETS = 20_000
PEER_ROWS = 2000
"""Training rows that peers get at the most."""


@dataclass(frozen=True, eq=False)
class Split:
    """Training rows, held-out rows, and triplets of held-out rows that are scored."""

    name: str
    number: int
    X: Array
    y: Array
    X_held_out: Array
    y_held_out: Array
    triplets: Array

    @cached_property
    def standardized(self) -> tuple[Array, Array]:
        """Return training and held-out rows, both by mean and standard deviation of the training rows."""
        spread = self.X.std(axis=0)
        spread[spread == 0] = 1
        return (self.X - self.X.mean(axis=0)) / spread, (self.X_held_out - self.X.mean(axis=0)) / spread

    @property
    def by_range(self) -> tuple[Array, Array]:
        """Return training and held-out rows, both divided by the columns' range in the training rows."""
        spread = np.ptp(self.X, axis=0)
        spread[spread == 0] = 1
        return self.X / spread, self.X_held_out / spread

    def relations(self, kind: str) -> dict[str, Array]:
        """Return the hints of a kind as arrays of training rows."""
        return draw(kind, self.y, _rng(self.name, self.number, kind))

    def hints(self, kind: str) -> mf.Constraint:
        """Return the hints of a kind for ``mf.learn``."""
        return constraint(kind, self.relations(kind), len(self.y))

    def peer_rows(self) -> Array:
        """Return the training rows that peers get: all, or a random part of them."""
        if len(self.y) <= PEER_ROWS:
            return np.arange(len(self.y))
        return np.sort(_rng(self.name, self.number, "peers").choice(len(self.y), PEER_ROWS, replace=False))

    @cached_property
    def digest(self) -> str:
        """Return a digest of rows, labels and the hints of all kinds, so that results of other splits are not used."""
        parts: list[Array] = [self.X, self.y, self.X_held_out, self.y_held_out, self.triplets]
        parts += [array for kind in KINDS for array in self.relations(kind).values()]
        return hashlib.sha256(b"".join(np.ascontiguousarray(p).tobytes() for p in parts)).hexdigest()[:12]


@lru_cache(maxsize=2)
def split(name: str, number: int) -> Split:
    """Return a split of a set of the panel."""
    return split_of(*load(name), name, number)


@cache
def digest(name: str, number: int) -> str:
    """Return the digest of a split of a set of the panel."""
    return split(name, number).digest


def split_of(X: Array, y: Array, name: str, number: int) -> Split:
    """Return a split of rows; ``name`` and ``number`` are its seed."""
    rng = _rng(name, number, "split")
    order = rng.permutation(len(y))
    place = np.empty(len(y), dtype=int)  # of a row among those of its class, in random order
    for label in np.unique(y):
        members = order[y[order] == label]
        place[members] = np.arange(len(members)) + rng.integers(2)
    training, held_out = np.flatnonzero(place % 2 == 0), np.flatnonzero(place % 2 == 1)
    if len(held_out) > HELD_OUT_ROWS:
        held_out = np.sort(rng.choice(held_out, HELD_OUT_ROWS, replace=False))
    triplets = _triplets(y[held_out], rng.integers(len(held_out), size=SCORED_TRIPLETS), rng)
    return Split(name, number, X[training], y[training], X[held_out], y[held_out], triplets)


# --------------------------------------------------------------------------------------------------------------- hints


def draw(kind: str, y: Array, rng: np.random.Generator) -> dict[str, Array]:
    """Draw hints of a kind from labels."""
    rows = np.arange(len(y))
    if kind == "L":
        return {"labels": y}
    if kind in ("P5", "P1"):
        heads = np.tile(rows[np.bincount(y)[y] > 1], int(kind[1:]))
        similar = rng.permutation(len(heads)) < len(heads) // 2
        alike, unlike = heads[similar], heads[~similar]
        return {
            "similar": np.column_stack([alike, partners(y, alike, True, rng)]),
            "dissimilar": np.column_stack([unlike, partners(y, unlike, False, rng)]),
        }
    if kind == "T":
        return {"triplets": _triplets(y, np.repeat(rows, 3), rng)}
    if kind == "C":
        return {"groups": _groups(y, rng)}
    raise ValueError(f"unknown kind of hint {kind!r}; known: {', '.join(KINDS)}")


def constraint(kind: str, relations: Mapping[str, Array], n: int) -> mf.Constraint:
    """Return drawn hints as a constraint over n rows."""
    made: dict[str, Any] = {
        "L": lambda: mf.Labels(relations["labels"]),
        "T": lambda: mf.Triplets(relations["triplets"], n=n),
        "C": lambda: mf.Chunklets(relations["groups"]),
    }
    return made.get(kind, lambda: mf.Pairs(relations["similar"], relations["dissimilar"], n=n))()


def partners(y: Array, heads: Array, same: bool, rng: np.random.Generator) -> Array:
    """Return for each head a random other row of its class, or a random row of another class.

    In the order by class, class c holds places start[c] to start[c] + count[c].
    """
    order = np.argsort(y, kind="stable")
    count = np.bincount(y)
    start = np.concatenate([[0], np.cumsum(count)[:-1]])
    c = y[heads]
    if same:
        place = np.empty(len(y), dtype=int)
        place[order] = np.arange(len(y))
        step = rng.integers(1, np.maximum(count[c], 2))
        return order[start[c] + (place[heads] - start[c] + step) % count[c]]
    other = rng.integers(0, len(y) - count[c])
    return order[other + np.where(other >= start[c], count[c], 0)]


def _triplets(y: Array, heads: Array, rng: np.random.Generator) -> Array:
    heads = heads[np.bincount(y)[y[heads]] > 1]
    return np.column_stack([heads, partners(y, heads, True, rng), partners(y, heads, False, rng)])


def _groups(y: Array, rng: np.random.Generator) -> Array:
    """Return group numbers of 30 % of the rows, four of one class a group, and -1 for the others."""
    groups = np.full(len(y), -1)
    chosen = rng.permutation(len(y))[: round(0.3 * len(y))]
    used = 0
    for label in np.unique(y[chosen]):
        members = chosen[y[chosen] == label]
        if len(members) < 2:
            continue
        parts = max(1, round(len(members) / 4))
        groups[members] = used + np.arange(len(members)) % parts
        used += parts
    return groups


def _rng(name: str, number: int, use: str) -> np.random.Generator:
    return np.random.default_rng([number, zlib.crc32(name.encode()), zlib.crc32(use.encode())])
