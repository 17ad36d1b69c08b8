"""Rows of `Metric.update`: two new rows, as a user calls it.  See `rows_idealized` for what a row may import."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import metricforge as mf

UPDATES = 60


def gaussian_1000(split: int) -> dict[str, Any]:
    return updates(mf.kernels.RBF("median"), 1000, split)


def gaussian_3000(split: int) -> dict[str, Any]:
    return updates(mf.kernels.RBF("median"), 3000, split)


def linear(split: int) -> dict[str, Any]:
    return updates(mf.kernels.Linear(), 1000, split)


def updates(kernel: Any, n: int, split: int) -> dict[str, Any]:
    """Learn from chunklets of two, then update by one chunklet after another."""
    rng = np.random.default_rng(split)
    X = rng.normal(size=(n + 2 * UPDATES + 2, 16))
    groups, pair = mf.Chunklets(np.arange(n) // 2), mf.Chunklets([0, 0])
    rank = "exact" if kernel != mf.kernels.Linear() else "auto"

    def learn() -> Any:
        return mf.learn(X[:n], groups, method="krca", kernel=kernel, rank=rank)

    learn()
    whole = min(cpu(learn) for _ in range(3))
    metric = learn().update(X[n : n + 2], pair)
    started = time.process_time()
    for at in range(n + 2, n + 2 + 2 * UPDATES, 2):
        metric = metric.update(X[at : at + 2], pair)
    typical = (time.process_time() - started) / UPDATES
    details = f"mf.learn {1e3 * whole:.1f} ms, metric.update {1e3 * typical:.2f} ms: {whole / typical:.0f} times"
    return {"seconds": typical, "details": details}


def cpu(call: Callable[[], Any]) -> float:
    """Return the CPU seconds of a call."""
    started = time.process_time()
    call()
    return time.process_time() - started
