"""How well learning does on rows that it has not seen, before and after, with an error bar."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..constraints import Constraint, Distances, Satisfied
from ..errors import ConvergenceWarning, InputError
from ..rows import bytes_of, check_memory, count, is_dask, take
from ..validation import whole_number

if TYPE_CHECKING:
    from ..metric import Metric

Array = NDArray[Any]

FOLDS = 5
FEW_ROWS = 1000
"""Up to this many rows every fold is fitted; with more, one fold has enough relations for a narrow error bar."""
FOLD_ROW = 150
"""Memory of a row in the order of rows, the folds and the copies of the hints, in bytes; of the kinds at most."""


@dataclass(frozen=True)
class Score:
    """The share of relations that a metric satisfies on rows that it has not seen.

    Attributes
    ----------
    what : str
        Which relations, and when one is satisfied.
    before, after : float
        The share under the kernel that learning started from, and under the learned one.
    error : tuple of float
        The standard error of both: between folds, or of a share if there is one fold.
    change : tuple of float
        The mean change from before to after, and its standard error over the folds.
    total : int
        The number of relations.
    folds : int
        How many folds were held out, each once.
    """

    what: str
    before: float
    after: float
    error: tuple[float, float]
    change: tuple[float, float]
    total: int
    folds: int

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, for a report."""
        return dict(vars(self))


def held_out(
    X: Any,
    constraint: Constraint,
    fit: Callable[[Any, Constraint], Metric],
    *,
    folds: int | None = None,
    seed: int = 0,
) -> tuple[Score, ...]:
    """Score a way of learning on rows that are held out, before and after learning.

    The rows that occur in a relation are dealt into folds (`Constraint.folds`).  Each fold is held out once: ``fit``
    sees the other rows and the relations inside them, and the relations that touch a held-out row are counted under
    the kernel that learning started from and under the learned one.

    Parameters
    ----------
    X : rows in memory
    constraint : Constraint
        Over the rows of X.
    fit : callable
        ``fit(X, constraint)`` returns a metric, for instance ``functools.partial(mf.learn, seed=1)``.
    folds : int, optional
        How many folds to fit.  Default: five, of which only one is fitted beyond 1000 rows.
    seed : int
        Same seed, same folds.

    Returns
    -------
    tuple of Score
        One for each type of relation; empty if there are too few relations to hold some out.

    Notes
    -----
    Time: that of ``folds`` fits.  Memory: that of a fit, and of a copy of the rows and hints.
    """
    if is_dask(X):
        raise InputError("X is a dask array, and folds are fitted in memory; score new rows with tasks.satisfied")
    n = count(X)
    what = f"holding out some of {n} rows, and a copy of the others,"
    check_memory(bytes_of(X) + FOLD_ROW * n, what, "score some of the rows")
    wanted = whole_number(folds, "folds", least=1) if folds is not None else FOLDS if n <= FEW_ROWS else 1
    found = []
    for rows, kept_out in _some(constraint, wanted, seed):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                metric = fit(take(X, rows), constraint[rows])
        except InputError:
            continue  # the other folds have too few relations to learn from
        if metric.start is None:
            raise InputError("fit must return a metric that knows the kernel it started from (metric.start)")
        pair = [kept_out.satisfied(Distances(kernel, X, seed)) for kernel in (metric.start, metric.kernel)]
        if pair[0]:
            found.append(pair)
    return _scores(found)


def _some(constraint: Constraint, wanted: int, seed: int) -> list[tuple[Array, Constraint]]:
    try:
        return list(islice(constraint.folds(max(wanted, FOLDS), seed), wanted))
    except InputError:
        return []  # fewer rows than folds, or a kind that cannot be split


def _scores(found: Sequence[Sequence[tuple[Satisfied, ...]]]) -> tuple[Score, ...]:
    kinds = list(dict.fromkeys(part.condition for before, _ in found for part in before))
    return tuple(filter(None, (_score(kind, found) for kind in kinds)))


def _score(kind: str, found: Sequence[Sequence[tuple[Satisfied, ...]]]) -> Score | None:
    parts = [[next((p for p in side if p.condition == kind), None) for side in fold] for fold in found]
    known = [(b, a) for b, a in parts if b is not None and a is not None]
    if not known:
        return None
    totals = np.array([b.total for b, _ in known])
    total = int(totals.sum())
    shares = np.array([[b.share, a.share] for b, a in known])
    before, after = (float(share) for share in totals @ shares / total)
    change = shares[:, 1] - shares[:, 0]
    k = len(known)
    if k > 1:
        errors = shares.std(axis=0, ddof=1) / np.sqrt(k)
        error_of_change = float(change.std(ddof=1) / np.sqrt(k))
    else:
        errors = np.array([part.error for part in known[0]])
        error_of_change = float(np.sqrt((errors**2).sum()))
    return Score(
        kind,
        before,
        after,
        (float(errors[0]), float(errors[1])),
        (after - before, error_of_change),
        total,
        k,
    )
