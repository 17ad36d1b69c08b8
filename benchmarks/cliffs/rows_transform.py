"""Rows of `Metric.transform`: many rows over landmarks.  See `rows_idealized` for what a row may import and returns."""

from __future__ import annotations

import resource
import time
from dataclasses import replace
from typing import Any

import numpy as np

import metricforge as mf


def narrow(split: int) -> dict[str, Any]:
    return transform(split, 5)


def full(split: int) -> dict[str, Any]:
    return transform(split, 500)


def transform(split: int, columns: int) -> dict[str, Any]:
    from metricforge.kernels import RBF
    from metricforge.space import LearnedKernel, landmark_map

    rng = np.random.default_rng(split)
    X = rng.normal(size=(200_000, 4))
    map = landmark_map(RBF(0.5), X[:500])
    R = rng.normal(size=(map.columns, columns))
    metric = replace(mf.learn(X[:600], np.arange(600) % 2, method="euclidean"), kernel=LearnedKernel(map, R @ R.T))
    metric.transform(X[:100])
    before = resource.getrusage(resource.RUSAGE_SELF)
    started = time.process_time()
    E = metric.transform(X)
    seconds = time.process_time() - started
    after = resource.getrusage(resource.RUSAGE_SELF)
    more = (after.ru_maxrss - before.ru_maxrss) / 1024 - E.nbytes / 1e6
    system = after.ru_stime - before.ru_stime  # mostly to provide memory, which takes longer on some machines
    started = time.process_time()
    metric.transform(X)
    again = time.process_time() - started
    said = (
        f"{max(more, 0):.0f} MB above the result of {E.nbytes / 1e6:.0f} MB, {system:.2f} s of the system; "
        f"a second call {again:.2f} s"
    )
    return {"seconds": seconds, "details": said}
