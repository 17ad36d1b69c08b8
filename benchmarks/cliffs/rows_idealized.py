"""Rows of `idealized`: wide explicit features, and a Gaussian kernel on few rows.

A row imports nothing of this folder, because it also runs with an earlier version of the library.  It returns a `dict`
with ``seconds`` (CPU of the call, warm), ``error`` (a share of the test rows) and ``details`` (a sentence).
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import metricforge as mf

TRADE = {"nu": 0.2}
"""ν and the kernel are stated, and C_S = C_D = 1000 / mean ‖z‖²: the defaults of the earlier commit."""


def mnist_full(split: int) -> dict[str, Any]:
    return mnist(split, rank="exact", tol=1e-3)


def mnist(split: int, **options: Any) -> dict[str, Any]:
    X, y = mf.datasets.load("mnist")
    X = np.asarray(X, dtype=np.float64)
    order = np.random.default_rng(split).permutation(len(X))
    train, test = order[:58_000], order[58_000:60_000]
    pairs = mf.Pairs.from_labels(y[train], n_pairs=6_000, seed=split)
    return fit(X[train], pairs, X[test], y[train], y[test], kernel=mf.kernels.Linear(), **options)


def wide(split: int) -> dict[str, Any]:
    """Ten classes in twenty directions of moderate spread; the thirty widest directions carry no class."""
    rng = np.random.default_rng(split)
    n, d, classes = 32_000, 4096, 10
    y = rng.integers(classes, size=n)
    spread = np.full(d, 0.05, dtype=np.float32)
    spread[:30], spread[30:50] = 3.0, 0.5
    X = rng.standard_normal((n, d), dtype=np.float32) * spread
    X[:, 30:50] += rng.standard_normal((classes, 20), dtype=np.float32)[y]
    train = np.arange(30_000)
    pairs = mf.Pairs.from_labels(y[train], n_pairs=50_000, seed=split)
    return fit(X[train], pairs, X[30_000:], y[train], y[30_000:], kernel=mf.kernels.Linear())


def vehicle(split: int) -> dict[str, Any]:
    return gaussian("vehicle", 300, split)


def segment(split: int) -> dict[str, Any]:
    return gaussian("segment", 300, split)


def gaussian(name: str, rows: int, split: int) -> dict[str, Any]:
    X, y = mf.datasets.load(name)
    X = (X - X.mean(axis=0)) / np.where(X.std(axis=0) > 0, X.std(axis=0), 1)
    order = np.random.default_rng(split).permutation(len(X))
    train, test = order[:rows], order[rows : rows + 2000]
    return fit(X[train], y[train], X[test], y[train], y[test], kernel=mf.kernels.RBF("median"))


def fit(X: Any, hints: Any, A: Any, y: Any, b: Any, **options: Any) -> dict[str, Any]:
    """Learn and score 1-NN on other rows."""
    import warnings

    warnings.simplefilter("ignore")
    rng = np.random.default_rng(0)
    small = rng.normal(size=(60, 5))
    mf.learn(small, np.arange(60) % 2, method="idealized", **options)  # imports and compiled loops
    c = 1000 / scale(X, hints, options)
    started = time.process_time()
    metric = mf.learn(X, hints, method="idealized", c_similar=c, c_dissimilar=c, **TRADE, **options)
    seconds = time.process_time() - started
    report = metric.report
    details = f"{report.status}, relative gap {report.relative_gap:.1e}"
    found = dict(report)
    if "components" in found:
        details += f", {report.components} of {report.features} features, {report.energy_left_out:.0%} of ‖z‖² left out"
        if found["full_gap"] is not None:
            details += f", gap to the full program {report.full_gap:.2g}"
    return {"seconds": seconds, "error": nearest(metric.transform(X), y, metric.transform(A), b), "details": details}


def scale(X: Any, hints: Any, options: dict[str, Any]) -> float:
    """Return mean ‖z‖² of the pairs, as the default of C takes it, so that both versions solve with the same C."""
    if not isinstance(hints, mf.Pairs):  # pairs are built from labels inside: nearest pairs of a Gaussian kernel
        return mf.learn(X, hints, method="idealized", tol=0.5, max_iter=1, **options).report.mean_squared_difference
    pairs = np.concatenate([hints.similar, hints.dissimilar])
    total = 0.0
    for part in np.array_split(pairs, max(1, len(pairs) // 2000)):
        Z = np.asarray(X[part[:, 0]], dtype=np.float64) - np.asarray(X[part[:, 1]], dtype=np.float64)
        total += float(np.square(Z).sum())
    return total / len(pairs)


def nearest(E: Any, y: Any, F: Any, b: Any) -> float:
    """Return the 1-NN error of rows F against rows E."""
    E, F = np.asarray(E, dtype=np.float32), np.asarray(F, dtype=np.float32)
    own = np.square(E).sum(axis=1)
    wrong = 0
    for part in np.array_split(np.arange(len(F)), max(1, len(F) // 200)):
        wrong += int(np.count_nonzero(y[(own - 2 * F[part] @ E.T).argmin(axis=1)] != b[part]))
    return wrong / len(F)
