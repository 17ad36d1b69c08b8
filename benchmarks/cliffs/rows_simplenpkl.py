"""Rows of simplenpkl's hinge losses with a slack bound.  See `rows_idealized` for what a row may import and returns."""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np

import metricforge as mf


def iris_squared(split: int) -> dict[str, Any]:
    return iris(split, "squared_hinge", 1e-5)


def iris_hinge(split: int) -> dict[str, Any]:
    return iris(split, "hinge", 1e-3)


def iris(split: int, loss: str, tol: float) -> dict[str, Any]:
    X, y = mf.datasets.load("iris")
    rows = np.r_[0:8, 50:58, 100:108] + 8 * split
    return fit(X[rows], y[rows], loss, 57_600.0, tol, n_neighbors=4, pair_weights="uniform")


def vehicle_squared(split: int) -> dict[str, Any]:
    return vehicle(split, "squared_hinge", 640_000.0)


def vehicle_hinge(split: int) -> dict[str, Any]:
    return vehicle(split, "hinge", 40_000.0)


def vehicle_hinge_slack(split: int) -> dict[str, Any]:
    return vehicle(split, "hinge", 16e6)


def segment_squared(split: int) -> dict[str, Any]:
    return segment(split, "squared_hinge", 1e-5)


def segment_hinge(split: int) -> dict[str, Any]:
    return segment(split, "hinge", 1e-3)


def letter_squared(split: int) -> dict[str, Any]:
    return letter(split, loss="squared_hinge", B=1e8, tol=1e-3)


def letter_hinge(split: int) -> dict[str, Any]:
    return letter(split, loss="hinge")


def letter(split: int, **options: Any) -> dict[str, Any]:
    X, y = mf.datasets.load("letter")
    rows = np.random.default_rng(split).permutation(len(X))[:10_000]
    X, y = ((X - X.mean(axis=0)) / X.std(axis=0))[rows], y[rows]
    return learned(X, y, C=2.0, n_components=None, **options) if "B" in options else learned(X, y, **options)


def segment(split: int, loss: str, tol: float) -> dict[str, Any]:
    X, y = mf.datasets.load("segment")
    rows = np.random.default_rng(split).permutation(len(X))[:1000]
    spread = np.where(X.std(axis=0) > 0, X.std(axis=0), 1)
    return fit(((X - X.mean(axis=0)) / spread)[rows], y[rows], loss, 1e8, tol)


def vehicle(split: int, loss: str, B: float) -> dict[str, Any]:
    X, y = mf.datasets.load("vehicle")
    rows = np.random.default_rng(split).permutation(len(X))[:400]
    return fit(((X - X.mean(axis=0)) / X.std(axis=0))[rows], y[rows], loss, B, 1e-3)


def fit(X: Any, y: Any, loss: str, B: float, tol: float, **options: Any) -> dict[str, Any]:
    return learned(X, y, loss=loss, B=B, C=2.0, n_components=None, tol=tol, **options)


def learned(X: Any, y: Any, **options: Any) -> dict[str, Any]:
    pairs = mf.Pairs.from_labels(y, components=0.7, seed=0)
    started = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        metric = mf.learn(X, pairs, method="simplenpkl", kernel=mf.kernels.Linear(), **options)
    report = metric.report
    gap = report.gap / max(1.0, abs(report.objective))
    seconds = time.process_time() - started
    return {"seconds": seconds, "details": f"{report.status}, relative gap {gap:.1g}, {report.n_iter} eigenproblems"}
