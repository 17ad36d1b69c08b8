"""Scores of several experiments: clustering compared with the trivial one, nearest neighbours, significance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricforge.tasks import one_cluster_rand

from .experiment import Run

Array = NDArray[Any]

ONE_CLUSTER = "everything in one cluster"


def add_clustering(
    run: Run, row: str, column: str, y: Array, found: Array, *, measure: str = "Rand index", scale: float = 1.0
) -> None:
    """Add Rand and adjusted Rand index of a clustering, and the Rand index of a single cluster for comparison.

    With ``scale`` −100 the Rand index becomes an error in percent, with 100 a percentage.
    """
    from sklearn.metrics import adjusted_rand_score, rand_score

    def scaled(rand: float) -> float:
        return scale * rand if scale > 0 else -scale * (1 - rand)

    run.add(measure, row, column, scaled(rand_score(y, found)))
    run.add("ARI", row, column, adjusted_rand_score(y, found))
    run.set_last(measure, row, ONE_CLUSTER, scaled(one_cluster_rand(y)))


def nearest_error(Z: Array, y: Array, A: Array, truth: Array) -> float:
    """Return the error in percent of the nearest of the rows Z for the rows A."""
    from sklearn.neighbors import KNeighborsClassifier

    return 100 - 100 * float(KNeighborsClassifier(1).fit(Z, y).score(A, truth))


def outstanding(run: Run, measure: str, columns: Sequence[str], level: float = 0.05) -> dict[str, str]:
    """Return for each row the column that beats all others of ``columns`` by a paired t-test, if one does."""
    from scipy.stats import ttest_1samp

    found = {}
    for row in dict.fromkeys(row for m, row, _ in run.samples if m == measure):
        values = {c: np.array(run.samples.get((measure, row, c), ())) for c in columns}
        best = max(columns, key=lambda c: values[c].mean() if len(values[c]) else -np.inf)
        others = [values[best] - values[c] for c in columns if c != best]
        if len(values[best]) < 3 or any(len(d) == 0 for d in others):
            continue
        # constant differences have no t statistic, and need none
        if all(
            d.mean() > 0 and (np.ptp(d) == 0 or ttest_1samp(d, 0, alternative="greater").pvalue < level) for d in others
        ):
            found[row] = best
    return found


def margin(larger: Sequence[float] | Array, smaller: Sequence[float] | Array, by: float = 0.0) -> dict[str, Any]:
    """Return margin, its standard error and repeats of "larger > smaller + by", as the fields of a Claim.

    Samples of one length are paired; others are independent.
    """
    a, b = np.asarray(larger, dtype=float), np.asarray(smaller, dtype=float)
    if len(a) == len(b):
        error = (a - b).std(ddof=1) / np.sqrt(len(a)) if len(a) > 1 else None
    elif min(len(a), len(b)) > 1:
        error = np.sqrt(a.var(ddof=1) / len(a) + b.var(ddof=1) / len(b))
    else:
        error = None
    found = None if error is None else float(error)
    return {"margin": float(a.mean() - b.mean() - by), "error": found, "repeats": min(len(a), len(b))}


def least(*margins: dict[str, Any]) -> dict[str, Any]:
    """Return the margin that decides a statement of several parts: the least in standard errors."""
    weakest = min(margins, key=_surety)
    return {**weakest, "parts": sum(found.get("parts", 1) for found in margins)}


def _surety(found: dict[str, Any]) -> float:
    error = found["error"] or 1e-300
    return float(found["margin"] / error)


def middle(margins: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the margin that decides a statement about most sets: with it, more than half hold."""
    return sorted(margins, key=_surety, reverse=True)[len(margins) // 2]


def standardised(X: Array) -> Array:
    """Return the features that vary, each with mean 0 and standard deviation 1."""
    kept = X[:, np.ptp(X, axis=0) > 0]
    return np.asarray((kept - kept.mean(axis=0)) / kept.std(axis=0))
