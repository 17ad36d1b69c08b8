"""How many of the relations in a hint a metric respects.

A triplet holds when i is nearer to j than to k.  A similar pair holds when its distance is at most a threshold and a
dissimilar one when it is above: the threshold that separates the two best or, where one side is empty, the median
distance between rows drawn at random.  A label holds when the nearest other row is of the same class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import rows as _rows
from .constraints import Chunklets, Constraint, Labels, Pairs, Triplets
from .errors import InputError
from .kernels import Kernel
from .metric import Metric

Array = NDArray[Any]

MOST_RELATIONS, MOST_ROWS = 20_000, 2_000
"""How many relations, and how many rows of labels, are looked at: shares to about one percent."""
FEW_ROWS = 500
"""How many rows tell the median distance between two."""


@dataclass(frozen=True)
class Held:
    """Relations of one kind: how many of how many hold.

    Attributes
    ----------
    what : str
        When one holds, in words.
    holds, total : int
        ``total`` is the number looked at: all, or a sample.
    """

    what: str
    holds: int
    total: int

    @property
    def share(self) -> float:
        """The fraction that holds."""
        return self.holds / self.total


def held(metric: Metric | Kernel, X: Any, constraint: Constraint, *, seed: int = 0) -> tuple[Held, ...]:
    """Count the relations of a constraint over the rows of X that a metric respects, one entry a kind of relation.

    At most 20,000 relations of a kind are looked at, drawn by the seed; for labels the pairs among 2,000 rows.  Where
    the relations name at most 2,000 rows, their distances come from one block of the kernel, so that an expensive one
    (on strings, or learned over many landmarks) meets each row once; otherwise pair by pair, in blocks.
    """
    kernel = metric.kernel if isinstance(metric, Metric) else metric
    X = kernel.check(X, "X")
    constraint.check(_rows.count(X))
    counter = _Counter(kernel, X, seed)
    if isinstance(constraint, Triplets):
        return counter.triplets(constraint)
    if isinstance(constraint, Labels):
        return counter.labels(constraint)
    if isinstance(constraint, Chunklets):
        return counter.pairs(constraint.to(Pairs, seed=seed), ("pairs of a group", ""))
    if isinstance(constraint, Pairs):
        return counter.pairs(constraint, ("similar pairs", "dissimilar pairs"))
    raise InputError(f"constraint: nobody has said when a relation of {type(constraint).__name__} holds")


@dataclass(frozen=True, eq=False)
class _Counter:
    kernel: Kernel
    X: Any
    seed: int

    def triplets(self, constraint: Triplets) -> tuple[Held, ...]:
        T = self._some(constraint.triples)
        if not len(T):
            return ()
        near, far = self._squared(T[:, :2], T[:, ::2])
        return (Held("triplets with i nearer to j than to k", int((near < far).sum()), len(T)),)

    def pairs(self, constraint: Pairs, names: tuple[str, str]) -> tuple[Held, ...]:
        s, d = self._squared(self._some(constraint.similar), self._some(constraint.dissimilar))
        if len(s) and len(d):
            return _thresholded(s, d, names)
        limit, what = self._typical(), "two rows at random (median)"
        found = []
        if len(s):
            found.append(Held(f"{names[0]} nearer than {what}", int((s <= limit).sum()), len(s)))
        if len(d):
            found.append(Held(f"{names[1]} further than {what}", int((d > limit).sum()), len(d)))
        return tuple(found)

    def labels(self, labels: Labels) -> tuple[Held, ...]:
        known = np.flatnonzero(labels.codes >= 0)
        known = known[_rows.draw(len(known), MOST_ROWS, self.seed)]
        codes = labels.codes[known]
        D = self._block(known)
        found = []
        paired = np.bincount(codes)[codes] > 1  # whose class has another row to be nearest
        if paired.any():
            nearest = (D + np.diag(np.full(len(D), np.inf))).argmin(axis=1)
            same = codes[nearest[paired]] == codes[paired]
            found.append(Held("rows whose nearest other row is of their class", int(same.sum()), len(same)))
        if len(np.unique(codes)) > 1 and paired.any():
            drawn = Pairs.from_labels(codes, n_pairs=MOST_RELATIONS, seed=self.seed)
            s, d = (D[tuple(pairs.T)] for pairs in (drawn.similar, drawn.dissimilar))
            found.extend(_thresholded(s, d, ("pairs of one class", "pairs of two classes")))
        return tuple(found)

    def _some(self, relations: Array) -> Array:
        return relations[_rows.draw(len(relations), MOST_RELATIONS, self.seed)]

    def _squared(self, *relations: Array) -> list[Array]:
        """Return the squared distances of pairs of rows, given as (p, 2) arrays."""
        used = np.unique(np.concatenate(relations))
        if len(used) > MOST_ROWS:
            return [_rows.map_relations(self.kernel.paired_squared_distance, self.X, pairs) for pairs in relations]
        D = self._block(used)
        return [D[tuple(np.searchsorted(used, pairs).T)] for pairs in relations]

    def _block(self, rows: Array) -> Array:
        some = _rows.take(self.X, rows)
        return np.asarray(self.kernel.squared_distance(some, some))

    def _typical(self) -> float:
        """Return the median squared distance between two rows."""
        D = self._block(_rows.draw(_rows.count(self.X), FEW_ROWS, self.seed))
        return float(np.median(D[np.triu_indices(len(D), k=1)]))


def _thresholded(similar: Array, dissimilar: Array, names: tuple[str, str]) -> tuple[Held, Held]:
    limit, what = separating(similar, dissimilar), "a common threshold"
    return (
        Held(f"{names[0]} nearer than {what}", int((similar <= limit).sum()), len(similar)),
        Held(f"{names[1]} further than {what}", int((dissimilar > limit).sum()), len(dissimilar)),
    )


def separating(similar: Array, dissimilar: Array) -> float:
    """Return the threshold t with the largest share of similar ≤ t plus share of dissimilar > t."""
    values = np.unique(np.concatenate([similar, dissimilar]))
    below = np.searchsorted(np.sort(similar), values, side="right") / len(similar)
    beyond = 1 - np.searchsorted(np.sort(dissimilar), values, side="right") / len(dissimilar)
    return float(values[np.argmax(below + beyond)])
