"""Default fits whose work the forecast limits, against fits without the limit, on data where it binds.

See `rows_idealized` for what a row returns.  ``error`` is the 3-NN error on other rows (1-NN for functions called
"wide") or, for numeric targets, the share of their variance that 5-NN regression leaves.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np

import metricforge as mf

TEST = 1500
FULL: dict[str, dict[str, Any]] = {
    "kcr": {"max_iter": 2000},
    "nca": {"max_iter": 300, "queries": 10**6, "rank": "exact"},
    "mlkr": {"max_iter": 300, "queries": 10**6, "rank": "exact"},
    "lmnn": {"max_iter": 2000, "ridge": "least", "rank": "exact"},
    "lpdesign": {"n_triples": "all"},
    "itml": {"n_pairs": "all", "rank": "exact"},
    "wide": {"rank": "exact"},
}
"""Options that lift the limits of a method; rows called "wide" differ in the features only."""


def kcr_letter(split: int, **options: Any) -> dict[str, Any]:
    return classes("kcr", "letter", 1000, split, options)


def kcr_satimage(split: int, **options: Any) -> dict[str, Any]:
    return classes("kcr", "satimage", 2000, split, options)


def kcr_usps(split: int, **options: Any) -> dict[str, Any]:
    return classes("kcr", "usps", 2000, split, options)


def nca_letter(split: int, **options: Any) -> dict[str, Any]:
    return classes("nca", "letter", 6000, split, options)


def nca_satimage(split: int, **options: Any) -> dict[str, Any]:
    return classes("nca", "satimage", 2900, split, options)


def nca_usps(split: int, **options: Any) -> dict[str, Any]:
    return classes("nca", "usps", 2900, split, options, columns=100)


def lmnn_usps(split: int, **options: Any) -> dict[str, Any]:
    return classes("lmnn", "usps", 1000, split, options)


def lmnn_mnist(split: int, **options: Any) -> dict[str, Any]:
    return classes("lmnn", "mnist", 1000, split, options, columns=300)


def lmnn_satimage(split: int, **options: Any) -> dict[str, Any]:
    return classes("lmnn", "satimage", 2900, split, options)


def lpdesign_usps(split: int, **options: Any) -> dict[str, Any]:
    return classes("lpdesign", "usps", 1500, split, options, columns=50)


def lpdesign_satimage(split: int, **options: Any) -> dict[str, Any]:
    return classes("lpdesign", "satimage", 1500, split, options)


def lpdesign_letter(split: int, **options: Any) -> dict[str, Any]:
    return classes("lpdesign", "letter", 1500, split, options)


def itml_usps(split: int, **options: Any) -> dict[str, Any]:
    return classes("itml", "usps", 1000, split, options)


def itml_satimage(split: int, **options: Any) -> dict[str, Any]:
    return classes("itml", "satimage", 4000, split, options)


def itml_mnist(split: int, **options: Any) -> dict[str, Any]:
    return classes("itml", "mnist", 1000, split, options, columns=300)


def wide_nca_mnist(split: int, **options: Any) -> dict[str, Any]:
    return nearest("nca", "mnist", split, options)


def wide_nca_usps(split: int, **options: Any) -> dict[str, Any]:
    return nearest("nca", "usps", split, options)


def wide_nca_digits(split: int, **options: Any) -> dict[str, Any]:
    return nearest("nca", "digits", split, options)


def wide_nca_synthetic(split: int, **options: Any) -> dict[str, Any]:
    return nearest("nca", "synthetic", split, options)


def wide_lmnn_mnist(split: int, **options: Any) -> dict[str, Any]:
    return nearest("lmnn", "mnist", split, options)


def wide_lmnn_usps(split: int, **options: Any) -> dict[str, Any]:
    return nearest("lmnn", "usps", split, options)


def wide_lmnn_digits(split: int, **options: Any) -> dict[str, Any]:
    return nearest("lmnn", "digits", split, options)


def wide_lmnn_synthetic(split: int, **options: Any) -> dict[str, Any]:
    return nearest("lmnn", "synthetic", split, options)


def wide_itml_mnist(split: int, **options: Any) -> dict[str, Any]:
    return nearest("itml", "mnist", split, options)


def wide_itml_usps(split: int, **options: Any) -> dict[str, Any]:
    return nearest("itml", "usps", split, options)


def wide_itml_digits(split: int, **options: Any) -> dict[str, Any]:
    return nearest("itml", "digits", split, options)


def wide_itml_synthetic(split: int, **options: Any) -> dict[str, Any]:
    return nearest("itml", "synthetic", split, options)


def wide_lsml_mnist(split: int, **options: Any) -> dict[str, Any]:
    return nearest("lsml", "mnist", split, options)


def wide_lsml_usps(split: int, **options: Any) -> dict[str, Any]:
    return nearest("lsml", "usps", split, options)


def wide_lsml_digits(split: int, **options: Any) -> dict[str, Any]:
    return nearest("lsml", "digits", split, options)


def wide_lsml_synthetic(split: int, **options: Any) -> dict[str, Any]:
    return nearest("lsml", "synthetic", split, options)


def wide_mlkr_mnist(split: int, **options: Any) -> dict[str, Any]:
    return regression("mnist", split, options)


def wide_mlkr_usps(split: int, **options: Any) -> dict[str, Any]:
    return regression("usps", split, options)


def wide_mlkr_synthetic(split: int, **options: Any) -> dict[str, Any]:
    return regression("synthetic", split, options)


WIDE_ROWS = {"mnist": 2000, "usps": 2900, "digits": 1200, "synthetic": 2000}
"""Rows to learn from."""
WIDE_TEST = 1500
FRESH = 100
"""Added to the number of a split: how components are chosen was decided on others."""


def wide_data(name: str, split: int) -> tuple[Any, Any, int]:
    """Return rows, classes, and how many of the rows to learn from."""
    rng, rows = np.random.default_rng(FRESH + split), WIDE_ROWS[name]
    if name == "synthetic":  # twenty directions tell classes apart, and 150 of other spread are wider
        n, d, classes = rows + WIDE_TEST, 800, 10
        y = rng.integers(classes, size=n)
        X = rng.standard_normal((n, d)) * np.repeat([1.5, 0.5, 0.05], [150, 20, d - 170])
        X[:, 150:170] += rng.standard_normal((classes, 20))[y]
        return X @ np.linalg.qr(rng.standard_normal((d, d)))[0], y, rows
    X, y = mf.datasets.load(name)
    order = rng.permutation(len(X))[: rows + WIDE_TEST]
    return np.asarray(X[order], dtype=np.float64), np.asarray(y)[order], rows


def nearest(method: str, name: str, split: int, options: dict[str, Any]) -> dict[str, Any]:
    """Learn from labels; ``error`` is that of the nearest neighbour."""
    from sklearn.neighbors import KNeighborsClassifier

    X, y, rows = wide_data(name, split)
    metric, result = fit(method, X[:rows], mf.Labels(y[:rows]), options)
    near = KNeighborsClassifier(1).fit(metric.transform(X[:rows]), y[:rows])
    return {**result, "error": float(np.mean(near.predict(metric.transform(X[rows:])) != y[rows:]))}


def regression(name: str, split: int, options: dict[str, Any]) -> dict[str, Any]:
    """Learn by mlkr from a value that depends on the class and not on the widest directions."""
    X, y, rows = wide_data(name, split)
    numbers = np.unique(y, return_inverse=True)[1]
    values = np.random.default_rng(0).permutation(numbers.max() + 1)[numbers].astype(np.float64)
    from sklearn.neighbors import KNeighborsRegressor

    metric, result = fit("mlkr", X[:rows], mf.Targets(values[:rows]), options)
    near = KNeighborsRegressor(5).fit(metric.transform(X[:rows]), values[:rows])
    left = np.square(near.predict(metric.transform(X[rows:])) - values[rows:]).mean() / values[rows:].var()
    return {**result, "error": float(left)}


def mlkr_boston(split: int, **options: Any) -> dict[str, Any]:
    X, y = mf.datasets.load("boston")
    return values(np.asarray(X, dtype=np.float64), np.asarray(y, dtype=np.float64), 340, split, options)


def mlkr_diabetes(split: int, **options: Any) -> dict[str, Any]:
    from sklearn.datasets import load_diabetes

    X, y = load_diabetes(return_X_y=True)
    return values(X, y, 300, split, options)


def mlkr_segment(split: int, **options: Any) -> dict[str, Any]:
    return values(*column("segment", 10), 1500, split, options)


def mlkr_satimage(split: int, **options: Any) -> dict[str, Any]:
    return values(*column("satimage", 17), 4000, split, options)


def mlkr_letter(split: int, **options: Any) -> dict[str, Any]:
    return values(*column("letter", 5), 6000, split, options)


def column(name: str, which: int) -> tuple[Any, Any]:
    """Return the columns of a data set but one, and that one as numeric targets."""
    X, _ = mf.datasets.load(name)
    X = np.asarray(X, dtype=np.float64)
    return np.delete(X, which, axis=1), X[:, which]


def classes(
    method: str, name: str, rows: int, split: int, options: dict[str, Any], columns: int | None = None
) -> dict[str, Any]:
    """Learn from labels by the defaults and the options; ``columns`` is a number of principal components."""
    from sklearn.neighbors import KNeighborsClassifier

    X, y = mf.datasets.load(name)
    order = np.random.default_rng(split).permutation(len(X))[: rows + TEST]
    X, y = np.asarray(X[order], dtype=np.float64), np.asarray(y)[order]
    if columns is not None:
        centred = X - X[:rows].mean(axis=0)
        X = centred @ np.linalg.eigh(centred[:rows].T @ centred[:rows])[1][:, ::-1][:, :columns]
    metric, result = fit(method, X[:rows], y[:rows], options)
    near = KNeighborsClassifier(3).fit(metric.transform(X[:rows]), y[:rows])
    return {**result, "error": float(np.mean(near.predict(metric.transform(X[rows:])) != y[rows:]))}


def values(X: Any, y: Any, rows: int, split: int, options: dict[str, Any]) -> dict[str, Any]:
    """Learn from numeric targets by mlkr."""
    from sklearn.neighbors import KNeighborsRegressor

    order = np.random.default_rng(split).permutation(len(X))[: rows + TEST]
    X, y = X[order], y[order]
    metric, result = fit("mlkr", X[:rows], mf.Targets(y[:rows]), options)
    near = KNeighborsRegressor(5).fit(metric.transform(X[:rows]), y[:rows])
    left = np.square(near.predict(metric.transform(X[rows:])) - y[rows:]).mean() / y[rows:].var()
    return {**result, "error": float(left)}


def fit(method: str, X: Any, hints: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    warnings.simplefilter("ignore")
    few = X[:, :: -(-X.shape[1] // 50)]  # columns from all parts of a picture: those at its edge are constant
    mf.learn(few[:300], hints[:300], method=method)  # imports and compiled loops
    mf.learn(few[:900], hints[:900], method=method, **{name: 2 for name in ("max_iter",) if name in options})
    started = time.process_time()
    metric = mf.learn(X, hints, method=method, **options)
    seconds, report = time.process_time() - started, metric.report
    details = f"{report.status}, {report.n_iter} steps"
    if report.representation == "components":
        details += (
            f", {report.rank} of {report.features} features, {report.energy_left_out:.0%} of the variance left out"
        )
    return metric, {"seconds": seconds, "details": details}
