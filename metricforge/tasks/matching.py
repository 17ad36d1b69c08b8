"""Match records: which rows are the same thing, with a probability that means what it says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..constraints import Distances, Pairs
from ..errors import InputError
from ..kernels import Kernel
from ..rows import count, is_dask
from ..validation import number, shown, whole_number
from .scores import kernel_of

if TYPE_CHECKING:
    from ..metric import Metric
    from ..neighbors import Search

Array = NDArray[Any]

DRAWS = 200
"""Samples of the bootstrap."""
TRIED = 1000
"""The most thresholds for which the bootstrap is computed."""


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
    rows : (p, 2) int array
        The rows of the pairs.
    """

    knots: Array
    probabilities: Array
    distances: Array
    same: Array
    rows: Array

    def probability(self, distances: Any) -> Array:
        """Return the probability that pairs at these distances are the same."""
        return np.interp(_as_distances(distances), self.knots, self.probabilities)

    def threshold(self, precision: float, confidence: float | None = 0.95) -> float:
        """Return the largest distance up to which at least this share of pairs is the same.

        Parameters
        ----------
        precision : float
            The share that is wanted among new pairs, which are drawn as the judged ones were.
        confidence : float, optional
            The precision must be at least the wanted one with this confidence.  The lower bound is the smaller of that
            of Clopper and Pearson, which counts pairs as independent, and that of a bootstrap over things: rows that
            are the same, whose pairs are right or wrong together.  None: the share among the judged pairs must reach
            the wanted one, which new pairs then miss about every second time.

        Raises
        ------
        InputError
            If no distance reaches the precision; the message has the best one.

        Notes
        -----
        O(p + `DRAWS` p) time.
        """
        precision = number(precision, "precision", above=0, most=1)
        if confidence is not None:
            confidence = number(confidence, "confidence", above=0, below=1)
        counts = np.arange(1, len(self.same) + 1)
        right = np.cumsum(self.same)
        lower = right / counts if confidence is None else _clopper_pearson(right, counts, confidence)
        last = np.append(self.distances[1:] > self.distances[:-1], True)  # a threshold takes all pairs at its distance
        reached = np.flatnonzero(last & (lower >= precision))
        best = float(lower[last].max())
        if len(reached) and confidence is not None:
            reached = reached[np.unique(np.linspace(0, len(reached) - 1, TRIED).astype(np.int64))]
            bounds = self._bootstrap(reached, confidence)
            best, reached = float(bounds.max()), reached[bounds >= precision]
        if not len(reached):
            raise InputError(_unreached(precision, confidence, best))
        return float(self.distances[reached[-1]])

    def _bootstrap(self, positions: Array, confidence: float) -> Array:
        """Return lower bounds of the share of the same among the nearest pairs, up to each position.

        Things are drawn with replacement; a pair counts as often as both of its things (A. B. Owen, The pigeonhole
        bootstrap, 2007).
        """
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        rows, ends = np.unique(self.rows, return_inverse=True)
        ends = ends.reshape(-1, 2)
        i, j = ends[self.same].T
        links = coo_array((np.ones(len(i)), (i, j)), shape=(len(rows), len(rows)))
        things = connected_components(links, directed=False)[1][ends]  # (p, 2)
        inside = things[:, 0] == things[:, 1]
        rng = np.random.default_rng(0)
        shares = np.empty((DRAWS, len(positions)))
        for share in shares:
            drawn = rng.poisson(1.0, len(rows)).astype(np.float64)
            weights = np.where(inside, drawn[things[:, 0]], drawn[things].prod(axis=1))
            total = np.cumsum(weights)[positions]
            share[:] = np.cumsum(weights * self.same)[positions] / np.where(total > 0, total, 1.0)
        return np.asarray(np.quantile(shares, 1 - confidence, axis=0))

    def coverage(self, distances: Any) -> float:
        """Return the share of the different pairs that are as near as nine in ten of some candidates.

        Pairs at random are mostly further apart than all candidates.  The probabilities then say nothing about
        different rows that are near each other, and thresholds are too large: judge candidates instead.
        """
        given = _as_distances(distances)
        if not given.size or not np.isfinite(given).all():
            raise InputError("distances must be finite numbers, those of some candidates; got none, or infinite ones")
        reach = np.quantile(given, 0.9)
        return float(np.mean(self.distances[~self.same] <= reach))

    def recall(self, threshold: float) -> float:
        """Return the share of the same pairs that a threshold finds."""
        return float(np.mean(self.distances[self.same] <= number(threshold, "threshold")))


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
    rows = np.concatenate([pairs.similar, pairs.dissimilar])[order]
    return Calibration(values, np.asarray(fitted), distances, same, rows)


def _as_distances(values: Any) -> Array:
    try:
        found = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"distances must be numbers, got {shown(values)}") from None
    if np.isnan(found).any():
        raise InputError("distances must be numbers, and some are NaN")
    return found


def _clopper_pearson(right: Array, counts: Array, confidence: float) -> Array:
    """Return the exact lower bound of a share, one-sided."""
    from scipy.special import betaincinv

    return np.where(right > 0, betaincinv(np.maximum(right, 1), counts - right + 1, 1 - confidence), 0.0)


def _unreached(precision: float, confidence: float | None, best: float) -> str:
    if confidence is None:
        return (
            f"precision: no threshold reaches {precision:g} on these pairs, the best is {best:.3f}; "
            "ask for less, or learn from more pairs"
        )
    known = (
        f"precision: no threshold reaches {precision:g} with confidence {confidence:g}; the best bound is {best:.3f}"
    )
    if precision == 1:
        return f"{known}; no number of pairs shows a precision of 1: ask for less, or for no confidence"
    fewest = int(np.ceil(np.log1p(-confidence) / np.log(precision)))
    needed = f"at least {fewest}, all of them right, are needed"
    return f"{known}; judge more pairs ({needed}), or ask for less precision or confidence"


def candidates(metric: Metric, X: Any = None, k: int = 10, *, method: str | Search = "auto") -> tuple[Array, Array]:
    """Return the pairs of rows that may be the same: each row with its k nearest others.

    Parameters
    ----------
    metric : Metric
    X : rows in memory, optional
        Default: the training rows.
    k : int
    method : str or callable
        The neighbour search, as `Metric.neighbors` takes it; "cells" is approximate and quick among many rows.

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
    if is_dask(rows):
        raise InputError("X must be rows in memory; give X.compute()")
    n = count(rows)
    if n < 2:
        raise InputError("X has one row, so there is no pair; give at least two")
    k = min(whole_number(k, "k"), n - 1)
    searched = replace(metric, rows=rows, origin=None)
    indices, distances = searched.neighbors(rows, k + 1, method=method)
    own = np.arange(n)[:, None]
    first, second = np.minimum(own, indices).ravel(), np.maximum(own, indices).ravel()
    other = first != second
    code, place = np.unique(first[other].astype(np.int64) * n + second[other], return_index=True)
    found = np.column_stack([code // n, code % n])
    apart = distances.ravel()[other][place]
    order = np.lexsort((found[:, 1], found[:, 0], apart))
    return found[order], apart[order]
