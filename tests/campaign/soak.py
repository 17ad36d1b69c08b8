"""Many fits in one process: memory, file descriptors, threads and temporary files must not grow."""

from __future__ import annotations

import contextlib
import gc
import os
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import metricforge as mf
from metricforge import kernels as k

from .memory import trim
from .rows import Rng
from .trial import Ended, Trial, Verdict

MOST_REFUSED = 0.02
"""The share of the fits that may be refused, for instance because a draw of relations is empty."""
GROWTH = 20_000_000
"""Bytes that the second half of the fits may add."""


def attack(trial: Trial, rng: Rng, number: int) -> None:
    """Fit, use, save and load ``100 * number`` times."""
    fits = 100 * number
    trial.describe(f"{fits} fits")
    methods = [entry.name for entry in mf.methods()]
    seen: list[tuple[int, int, int, int]] = []
    refused = 0
    temporary = trial.folder / "temporary"
    temporary.mkdir(exist_ok=True)
    tempfile.tempdir = str(temporary)
    for i in range(fits):
        method = methods[i % len(methods)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                trial.call(f"fit {i}, by {method}", _one, rng, method, trial.folder)
            except Ended:
                if trial.findings:
                    raise
                refused += 1
        trial.description.pop()
        if i in (fits // 2, fits - 1):
            seen.append(_now())
    last_refusal, trial.refusal = trial.refusal, ""
    trial.passed = True
    trial.figure("fits of the soak", fits - refused)
    trial.check(refused <= MOST_REFUSED * fits, Verdict.WRONG, "fits of the soak are refused", last_refusal)
    (size, files, threads, objects), last = seen
    trial.figure("threads after the soak", last[2])
    trial.figure("file descriptors after the soak", last[1])
    trial.figure("MB added by the second half", (last[0] - size) / 1e6)
    trial.check(last[0] - size <= GROWTH, Verdict.STATE, "memory grows with fits", f"{(last[0] - size) / 1e6:.1f} MB")
    trial.check(last[1] <= files, Verdict.STATE, "file descriptors grow with fits", f"{files} -> {last[1]}")
    trial.check(last[2] <= threads, Verdict.STATE, "threads grow with fits", f"{threads} -> {last[2]}")
    grown = last[3] - objects
    trial.check(grown <= 0.02 * objects, Verdict.STATE, "objects grow with fits", f"{objects} -> {last[3]}")
    left = sorted(path.name for path in temporary.iterdir())
    trial.check(not left, Verdict.STATE, "temporary files are left behind", ", ".join(left[:5]))


def _one(rng: Rng, method: str, folder: Path) -> None:
    n = int(rng.integers(12, 40))
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
    threads = len(list(Path("/proc/self/task").iterdir()))  # with those of BLAS and numba
    return pages * os.sysconf("SC_PAGE_SIZE"), files, threads, len(gc.get_objects())
