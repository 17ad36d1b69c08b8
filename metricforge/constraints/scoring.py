"""How many relations a metric satisfies, and how well it ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError

if TYPE_CHECKING:
    from .distances import Distances

Array = NDArray[Any]


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
