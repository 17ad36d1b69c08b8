"""Match records: which rows are the same thing, with a probability that means what it says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..checks import whole_number
from ..constraints import Distances, Pairs
from ..errors import InputError
from ..kernels import Kernel
from ..rows import count
from .scores import kernel_of

if TYPE_CHECKING:
    from ..metric import Metric

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Calibration:
    """From a distance to the probability that two rows are the same.

    The probability is that of isotonic regression on held-out pairs: it never rises with the distance, is constant
    between `knots`, and among the pairs it was found on, of those with probability p a share p is the same.

    Attributes
    ----------
    knots : (m,) array
        Distances, ascending.
    probabilities : (m,) array
        The probability at each knot, descending; in between it is interpolated.
    distances : (p,) array
        The distances of the pairs, ascending.
    same : (p,) bool array
        Which of them are the same.
    """

    knots: Array
    probabilities: Array
    distances: Array
    same: Array

    def probability(self, distances: Any) -> Array:
        """Return the probability that pairs at these distances are the same."""
        return np.interp(np.asarray(distances, dtype=np.float64), self.knots, self.probabilities)

    def threshold(self, precision: float) -> float:
        """Return the largest distance up to which at least this share of the pairs is the same.

        Raises
        ------
        InputError
            If no distance reaches the precision; the message has the best one.
        """
        if not 0 < precision <= 1:
            raise InputError(f"precision must be above 0 and at most 1, got {precision!r}")
        shares = np.cumsum(self.same) / np.arange(1, len(self.same) + 1)
        last = np.append(self.distances[1:] > self.distances[:-1], True)  # a threshold takes all pairs at its distance
        reached = np.flatnonzero(last & (shares >= precision))
        if not len(reached):
            best = float(shares[last].max())
            raise InputError(
                f"precision: no threshold reaches {precision:g} on these pairs, the best is {best:.3f}; "
                "ask for less, or learn from more pairs"
            )
        return float(self.distances[reached[-1]])

    def recall(self, threshold: float) -> float:
        """Return the share of the same pairs that a threshold finds."""
        return float(np.mean(self.distances[self.same] <= threshold))


def calibrate(metric: Metric | Kernel, X: Any, pairs: Any) -> Calibration:
    """Find out how the distance of two rows tells whether they are the same.

    Parameters
    ----------
    metric : Metric or Kernel
    X : rows
        That the pairs index.
    pairs : Pairs
        Similar and dissimilar pairs that the metric was *not* learned from.  Their mixture should be that of the pairs
        that will be judged: dissimilar pairs that are near each other (`candidates`), not pairs at random.

    Notes
    -----
    One distance per pair; O(p log p).
    """
    pairs = Pairs.expect(pairs, "pairs")
    kernel = kernel_of(metric)
    X = kernel.check(X, "X")
    pairs.check(count(X), "pairs")
    if not (len(pairs.similar) and len(pairs.dissimilar)):
        raise InputError("pairs must hold similar and dissimilar pairs: a probability needs examples of both")
    measured = Distances(kernel, X)
    squared = np.concatenate([measured.paired(pairs.similar), measured.paired(pairs.dissimilar)])
    same = np.arange(len(squared)) < len(pairs.similar)
    order = np.argsort(squared, kind="stable")
    distances, same = np.sqrt(squared[order]), same[order]
    from sklearn.isotonic import isotonic_regression

    values, first, size = np.unique(distances, return_index=True, return_counts=True)
    share = np.add.reduceat(same.astype(np.float64), first) / size
    fitted = isotonic_regression(share, sample_weight=size, increasing=False)
    return Calibration(values, np.asarray(fitted), distances, same)


def candidates(metric: Metric, X: Any = None, k: int = 10, *, method: str = "auto") -> tuple[Array, Array]:
    """Return the pairs of rows that may be the same: each row with its k nearest others.

    Parameters
    ----------
    metric : Metric
    X : rows in memory, optional
        Default: the training rows.
    k : int
    method : str
        The neighbour search.

    Returns
    -------
    pairs : (p, 2) int array
        With i < j, each pair once; p <= n k instead of n (n − 1) / 2.
    distances : (p,) array
        Ascending.
    """
    from dataclasses import replace

    rows = metric.rows if X is None else metric.kernel.check(X, "X")
    if rows is None:
        raise InputError("X is missing: this metric keeps no training rows")
    n = count(rows)
    if n < 2:
        raise InputError("X has one row, so there is no pair; give at least two")
    k = min(whole_number(k, "k"), n - 1)
    searched = replace(metric, rows=rows, stored_map=metric.stored_map, origin=None)
    indices, distances = searched.neighbors(rows, k + 1, method=method)
    own = np.arange(n)[:, None]
    first, second = np.minimum(own, indices).ravel(), np.maximum(own, indices).ravel()
    other = first != second
    code, place = np.unique(first[other].astype(np.int64) * n + second[other], return_index=True)
    found = np.column_stack([code // n, code % n])
    apart = distances.ravel()[other][place]
    order = np.lexsort((found[:, 1], found[:, 0], apart))
    return found[order], apart[order]
