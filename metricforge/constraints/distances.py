"""Distances between the rows of X, as constraints need them to count and to score their relations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .. import rows as _rows
from ..rows.pairs import median_of_pairs

if TYPE_CHECKING:
    from ..kernels import Kernel

Array = NDArray[Any]

MOST_RELATIONS, MOST_ROWS = 20_000, 2_000
"""Largest number of relations, and of labelled rows, that are compared: shares are accurate to about one percent."""
TYPICAL_ROWS = 500
"""Number of rows whose pairs give the median distance."""
FEW_PAIRS = 64
"""A block of distances between coordinates costs as much as one pair in FEW_PAIRS of its entries, computed alone."""
PARTNERS = 10
"""Random pairs that are drawn for each given pair."""


@dataclass(frozen=True, eq=False)
class Distances:
    """Squared distances between the rows of X under a kernel.

    All methods return squared distances, which order pairs as distances do.

    Parameters
    ----------
    kernel : Kernel
        Resolved; for a Metric pass ``metric.kernel``.
    X : rows
        As ``kernel.check`` returns them: in memory or on dask.
    seed : int
        Determines every sample that is drawn.
    most_rows : int, optional
        The largest number of labelled rows that `sample_rows` returns; default `MOST_ROWS`.
    coordinates : bool
        Whether X are coordinates, which need no representation: few pairs are then computed one by one.
    """

    kernel: Kernel
    X: Any
    seed: int = 0
    most_rows: int | None = None
    coordinates: bool = False

    @property
    def n(self) -> int:
        """The number of rows."""
        return _rows.count(self.X)

    def block(self, rows: Array, others: Array | None = None) -> Array:
        """Return the (len(rows), len(others)) squared distances; ``others`` defaults to ``rows``."""
        A = _rows.take(self.X, rows)
        B = A if others is None else _rows.take(self.X, others)
        return np.asarray(self.kernel.squared_distance(A, B))

    def pairs(self, pairs: Array) -> Array:
        """Return the (p,) squared distances of a (p, 2) array of row numbers.

        Where the pairs name at most `MOST_ROWS` rows, the distances come from one block of the kernel, so that an
        expensive kernel (on strings, or learned over many landmarks) represents each row once.
        """
        if not len(pairs):
            return np.empty(0)
        used = np.unique(pairs)
        if len(used) > MOST_ROWS or (self.coordinates and len(used) ** 2 > FEW_PAIRS * len(pairs)):
            return self.paired(pairs)
        return np.asarray(self.block(used)[tuple(np.searchsorted(used, pairs).T)])

    def paired(self, pairs: Array) -> Array:
        """Return the same as `pairs`, computed pair by pair: exactly 0 for identical rows."""
        kernel = self.kernel
        return _rows.map_relations(kernel.paired_squared_distance, self.X, pairs, widest=kernel.widest)

    def sample(self, relations: Array) -> Array:
        """Return at most `MOST_RELATIONS` of the relations, drawn by the seed."""
        return relations[_rows.draw(len(relations), MOST_RELATIONS, self.seed)]

    def sample_rows(self, rows: Array) -> Array:
        """Return at most ``most_rows`` of the row numbers, drawn by the seed."""
        return rows[_rows.draw(len(rows), self.most_rows or MOST_ROWS, self.seed)]

    def typical(self) -> float:
        """Return the median squared distance between two rows, from at most `TYPICAL_ROWS` of them."""
        D = self.block(_rows.draw(self.n, TYPICAL_ROWS, self.seed))
        return median_of_pairs(D)

    def random_pairs(self, pairs: Array) -> Array:
        """Return random pairs to compare ``pairs`` with: either row of a pair with any other row.

        Every given pair yields `PARTNERS` random pairs, at most `MOST_RELATIONS` in all.  Both sets contain the same
        rows, so a row that is far from all others does not separate them.
        """
        rng = np.random.default_rng(self.seed)
        size = min(PARTNERS * len(pairs), MOST_RELATIONS)
        chosen = np.resize(np.arange(len(pairs)), size)
        start = pairs[chosen, rng.integers(2, size=size)]
        other = (start + 1 + rng.integers(self.n - 1, size=size)) % self.n
        return np.stack([start, other], axis=1)
