"""Many fits in one process: memory, file descriptors, threads and temporary files must not grow."""

from __future__ import annotations

import contextlib
import gc
import os
import tempfile
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import metricforge as mf
from metricforge import kernels as k

from .memory import trim
from .rows import Rng
from .trial import Trial, Verdict

GROWTH = 20_000_000
"""Bytes that the second half of the fits may add."""


def attack(trial: Trial, rng: Rng, number: int) -> None:
    """Fit, use, save and load ``100 * number`` times."""
    fits = 100 * number
    trial.describe(f"{fits} fits")
    methods = [entry.name for entry in mf.methods()]
    seen: list[tuple[int, int, int, int]] = []
    temporary = Path(tempfile.gettempdir())
    before = {path.name for path in temporary.iterdir()}
    for i in range(fits):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trial.call("a fit", _one, rng, methods[i % len(methods)], trial.folder)
        trial.description.pop()
        if i in (fits // 2, fits - 1):
            seen.append(_now())
    (size, files, threads, objects), last = seen
    trial.figure("MB added by the second half", (last[0] - size) / 1e6)
    trial.check(last[0] - size <= GROWTH, Verdict.STATE, "memory grows with fits", f"{(last[0] - size) / 1e6:.1f} MB")
    trial.check(last[1] <= files, Verdict.STATE, "file descriptors grow with fits", f"{files} -> {last[1]}")
    trial.check(last[2] <= threads, Verdict.STATE, "threads grow with fits", f"{threads} -> {last[2]}")
    grown = last[3] - objects
    trial.check(grown <= 0.02 * objects, Verdict.STATE, "objects grow with fits", f"{objects} -> {last[3]}")
    new = {path.name for path in temporary.iterdir()} - before
    own = sorted(name for name in new if "metric" in name.lower() or name.endswith(".part"))
    trial.check(not own, Verdict.STATE, "temporary files are left behind", ", ".join(own[:5]))


def _one(rng: Rng, method: str, folder: Path) -> None:
    n = int(rng.integers(8, 40))
    X, y = rng.normal(size=(n, 3)), np.arange(n) % 3
    kernel: Any = [None, k.Linear(), k.RBF("median")][int(rng.integers(3))]
    metric = mf.learn(X, y, method=method, kernel=kernel, seed=int(rng.integers(100)))
    metric.distance(X)
    metric.transform(X)
    metric.neighbors(X, k=3)
    metric.save(folder / "soak.metric")
    mf.load(folder / "soak.metric").distance(X[:3])
    with contextlib.suppress(ValueError):  # a refusal must leave nothing behind either
        mf.learn(X, y[:-1], method=method)


def _now() -> tuple[int, int, int, int]:
    gc.collect()
    trim()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    files = len(list(Path("/proc/self/fd").iterdir()))
    return pages * os.sysconf("SC_PAGE_SIZE"), files, threading.active_count(), len(gc.get_objects())
