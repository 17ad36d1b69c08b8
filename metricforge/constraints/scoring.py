"""How many relations a metric satisfies, and how well it ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .. import rows as _rows
from ..errors import InputError
from ..rows.mapping import median_of_pairs

if TYPE_CHECKING:
    from ..kernels import Kernel


Array = NDArray[Any]

MOST_RELATIONS, MOST_ROWS = 20_000, 2_000
"""Largest number of relations, and of labelled rows, that are compared: shares are accurate to about one percent."""
TYPICAL_ROWS = 500
"""Number of rows whose pairs give the median distance."""
FEW_PAIRS = 64
"""A block of distances between coordinates costs as much as one pair in FEW_PAIRS of its entries, computed alone."""
BLOCK_ARRAYS, UNLIMITED = 6, 2**62
"""Arrays of the size of a block of distances that exist at the same time; the bytes of one without a budget."""
WITNESSES, SAME = 3, 1e-6
"""Rows that identical rows must be equally similar to, and the share of the largest similarity that is rounding."""
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

    def row_blocks(self, rows: Array, others: Array | None = None) -> Iterator[tuple[slice, Array]]:
        """Yield slices of ``rows`` and their squared distances to ``others``, which default to ``rows``.

        It is one block, so that an expensive kernel represents each row once, unless a memory budget is requested: a
        block, with the arrays of its size that the kernel and the caller make, then takes a quarter of the budget.
        """
        others = rows if others is None else others
        X, kernel = self.X, self.kernel
        if _rows.is_dask(X):
            used, place = np.unique(np.concatenate([rows, others]), return_inverse=True)
            X, rows, others = _rows.take(X, used), place[: len(rows)], place[len(rows) :]
        widest = max(kernel.widest, _rows.width(X) or 1)
        tiles = list(_rows.blocks(len(others), 8 * BLOCK_ARRAYS * widest, UNLIMITED))
        for part in _rows.blocks(len(rows), 8 * BLOCK_ARRAYS * max(1, len(others) + widest), UNLIMITED):
            A = _rows.take(X, rows[part])
            D = [kernel.squared_distance(A, _rows.take(X, others[tile])) for tile in tiles]
            yield part, np.asarray(D[0] if len(D) == 1 else np.concatenate(D, axis=1))

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
        i, j = np.searchsorted(used, pairs).T
        found = np.empty(len(pairs))
        for part, D in self.row_blocks(used):
            here = (part.start <= i) & (i < part.stop)
            found[here] = D[i[here] - part.start, j[here]]
        return found

    def paired(self, pairs: Array) -> Array:
        """Return the same as `pairs`, computed pair by pair: exactly 0 for identical rows."""
        kernel = self.kernel
        return _rows.map_relations(kernel.paired_squared_distance, self.X, pairs, widest=kernel.widest)

    def coincident(self, pairs: Array) -> Array:
        """Return which of the pairs, a (p, 2) array of row numbers, join rows at distance 0.

        Such rows have the same similarity to any row.  Where there are many pairs, only those whose similarities to a
        few rows agree are measured.
        """
        if len(pairs) <= self.n or _rows.is_dask(self.X):
            return np.flatnonzero(self.paired(pairs) == 0)
        some = _rows.take(self.X, _rows.draw(self.n, WITNESSES, self.seed))
        values = self.kernel.block_to(some)
        S = _rows.map_rows(values, self.X, WITNESSES, np.float64, widest=max(self.kernel.widest, WITNESSES))
        near = np.abs(S[pairs[:, 0]] - S[pairs[:, 1]]).max(axis=1) <= SAME * np.abs(S).max()
        alike = np.flatnonzero(near)
        return np.asarray(alike[self.paired(pairs[alike]) == 0])

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


@dataclass(frozen=True)
class Satisfied:
    """The number of relations of one type that a metric satisfies.

    Attributes
    ----------
    condition : str
        Which relations, and when one is satisfied.
    count, total : int
        ``total`` is the number of relations compared: all, or a sample.
    decisive : bool
        Whether a smaller share after learning means that learning failed.  False for conditions that supplement
        another one.
    by_class : tuple of (count, total)
        For a condition on the rows of several classes that count alike, such as a balanced accuracy.
    """

    condition: str
    count: int
    total: int
    decisive: bool = True
    by_class: tuple[tuple[int, int], ...] = ()

    @property
    def share(self) -> float:
        """The fraction satisfied; of several classes, the mean of their fractions."""
        return float(np.mean([count / total for count, total in self._groups]))

    @property
    def error(self) -> float:
        """The standard error of the share."""
        shares = [(count / total, total) for count, total in self._groups]
        return float(np.sqrt(sum(p * (1 - p) / total for p, total in shares)) / len(shares))

    @property
    def _groups(self) -> tuple[tuple[int, int], ...]:
        return self.by_class or ((self.count, self.total),)


def balanced(condition: str, right: Array, codes: Array) -> Satisfied:
    """Return the balanced accuracy: the mean over classes of the share of their rows for which ``right`` is True."""
    totals = np.bincount(codes)
    counts = np.bincount(codes[right], minlength=len(totals))
    parts = tuple((int(c), int(t)) for c, t in zip(counts, totals, strict=True) if t)
    return Satisfied(condition, int(counts.sum()), len(codes), decisive=False, by_class=parts)


def separating(similar: Array, dissimilar: Array) -> float:
    """Return the threshold t with the largest share of similar ≤ t plus share of dissimilar > t."""
    values = np.unique(np.concatenate([similar, dissimilar]))
    below = np.searchsorted(np.sort(similar), values, side="right") / len(similar)
    beyond = 1 - np.searchsorted(np.sort(dissimilar), values, side="right") / len(dissimilar)
    return float(values[np.argmax(below + beyond)])


def satisfied_pairs(
    similar: Array,
    dissimilar: Array,
    distances: Distances,
    names: tuple[str, str] = ("similar pairs", "dissimilar pairs"),
    *,
    decisive: bool = True,
) -> tuple[Satisfied, ...]:
    """Count the distances of similar pairs below a threshold and those of dissimilar pairs above it.

    The threshold is the one that separates the two best or, where one of them is empty, the median distance between
    rows.
    """
    if not (len(similar) or len(dissimilar)):
        return ()
    if len(similar) and len(dissimilar):
        limit, what = separating(similar, dissimilar), "a common threshold"
    else:
        limit, what = distances.typical(), "two rows at random (median)"
    near = Satisfied(f"{names[0]} nearer than {what}", int((similar <= limit).sum()), len(similar), decisive)
    far = Satisfied(f"{names[1]} further than {what}", int((dissimilar > limit).sum()), len(dissimilar), decisive)
    return tuple(part for part in (near, far) if part.total)


def pair_auc(near: Array, far: Array) -> float:
    """Return the probability that a distance of ``near`` is smaller than one of ``far``; a tie counts one half."""
    positive = np.arange(len(near) + len(far)) < len(near)
    return float(row_auc(np.concatenate([near, far])[None], positive[None], ~positive[None])[0])


def row_auc(D: Array, positive: Array, negative: Array) -> Array:
    """Return for each row of D the area under the ROC curve: the probability that a positive is below a negative.

    A tie counts one half.  Squared distances that differ by less than 2⁻³⁴ of the row's largest are ties: rounding
    must not order equal distances.

    Parameters
    ----------
    D : (b, n) array
        Squared distances >= 0.
    positive, negative : (b, n) bool arrays
        Disjoint; each has at least one True in every row.  Entries in neither do not count.
    """
    from scipy.stats import rankdata

    if not np.isfinite(D).all():
        raise InputError("X: some distances are not finite; rescale the features, for instance with StandardScaler")
    # a power of two, so that distances between whole numbers remain exact
    grain = np.exp2(np.ceil(np.log2(np.maximum(D.max(axis=1), np.finfo(float).tiny))) - 34)
    D = np.rint(D / grain[:, None])
    other = ~(positive | negative)
    D[other] = -1  # before all that count
    positives, negatives = positive.sum(axis=1), negative.sum(axis=1)
    rank = rankdata(D, axis=1) - other.sum(axis=1, keepdims=True)
    above = np.where(negative, rank, 0.0).sum(axis=1)
    # Mann and Whitney: the ranks of the negatives, minus their ranks among themselves
    return np.asarray((above - negatives * (negatives + 1) / 2) / (positives * negatives))
