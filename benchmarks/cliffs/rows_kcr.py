"""Rows of `kcr`: the first call on middling tables.  See `rows_idealized` for what a row may import and returns."""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np

import metricforge as mf

TEST = 1500

KERNEL = mf.kernels.RBF("median")
"""The default of the earlier commit; later versions also divide columns by their range, which changes the errors."""


def vehicle(split: int) -> dict[str, Any]:
    return first_call("vehicle", 500, split)


def pima(split: int) -> dict[str, Any]:
    return first_call("pima", 500, split)


def segment(split: int) -> dict[str, Any]:
    return first_call("segment", 700, split)


def digits(split: int) -> dict[str, Any]:
    return first_call("digits", 1437, split)


def digits_whole(split: int) -> dict[str, Any]:
    return first_call("digits", 1797, split)


def letter(split: int) -> dict[str, Any]:
    return first_call("letter", 2900, split)


def satimage(split: int) -> dict[str, Any]:
    return first_call("satimage", 2900, split)


def usps(split: int) -> dict[str, Any]:
    return first_call("usps", 2900, split)


def usps_default(split: int) -> dict[str, Any]:
    return first_call("usps", 2900, split, kernel=None)


def usps_landmarks(split: int) -> dict[str, Any]:
    return first_call("usps", 2900, split, rank=1000)


def first_call(name: str, rows: int, split: int, **options: Any) -> dict[str, Any]:
    """Learn with the defaults of the version that runs but its kernel, on standardised columns; score 1-NN and rule.

    ``kernel=None`` takes the default kernel of the version as well.
    """
    warnings.simplefilter("ignore")
    X, y = mf.datasets.load(name)
    X = np.asarray(X, dtype=np.float64)
    X = (X - X.mean(axis=0)) / np.where(X.std(axis=0) > 0, X.std(axis=0), 1)
    order = np.random.default_rng(split).permutation(len(X))
    train, test = order[:rows], order[rows : rows + TEST]
    rng = np.random.default_rng(0)
    small = rng.normal(size=(900, 5))
    mf.learn(small, (small[:, 0] > 0) + 0, method="kcr", max_iter=2, rank=50)  # imports and compiled loops
    mf.learn(small[:300], (small[:300, 0] > 0) + 0, method="kcr", max_iter=2, rank=50)
    started = time.process_time()
    metric = mf.learn(X[train], y[train], method="kcr", seed=split, **{"kernel": KERNEL, **options})
    seconds = time.process_time() - started
    report = metric.report
    details = f"{report.status}, gap {report.gap / report.objective:.1e}, {report.n_iter} steps, {report.rank} features"
    if not len(test):
        return {"seconds": seconds, "details": details}
    Z, Q = metric.transform(X[train]), metric.transform(X[test])
    rule = mf.tasks.KernelRule(metric).fit(X[train], y[train])
    details += f", error of the rule {100 * float(np.mean(rule.predict(X[test]) != y[test])):.1f} %"
    return {"seconds": seconds, "error": nearest(Z, y[train], Q, y[test]), "details": details}


def nearest(Z: Any, y: Any, Q: Any, truth: Any) -> float:
    """Return the 1-NN error."""
    from sklearn.neighbors import KNeighborsClassifier

    found = KNeighborsClassifier(n_neighbors=1).fit(Z, y).predict(Q)
    return float(np.mean(found != truth))
