"""Degenerate input: metric-learn's RCA and metricforge.

metric-learn needs scikit-learn < 1.8 and therefore its own environment; METRICFORGE_PEERS names its Python
(``python -m venv peers && peers/bin/pip install metric-learn "scikit-learn<1.8"``, then
``METRICFORGE_PEERS=peers/bin/python``).  Without it the column says "not run".
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import numpy as np

import metricforge as mf
from metricforge.errors import InputError

from .run import Table

PEER = """
import json, sys, warnings
warnings.simplefilter("ignore")
import numpy as np
from metric_learn import RCA
said, learned = {}, {}
for name, (X, groups) in json.load(sys.stdin).items():
    try:
        L = RCA().fit(np.array(X), np.array(groups)).components_
        said[name] = f"finite, largest {np.abs(L).max():.2g}" if np.isfinite(L).all() else "NaN or infinite"
        learned[name] = np.nan_to_num(L.T @ L).tolist()
    except Exception as error:
        said[name] = f"{type(error).__name__}: {error}"
print(json.dumps([said, learned]))
"""


def cases() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    X, pairs = rng.normal(size=(12, 3)), np.repeat(np.arange(6), 2)
    return {
        "regular": (X, pairs),
        "one chunklet": (X, np.zeros(12, dtype=int)),
        "all singletons": (X, np.arange(12)),
        "duplicate rows": (np.repeat(X[:6], 2, axis=0), pairs),
        "constant feature": (np.c_[X, np.ones(12)], pairs),
        "collinear features": (np.c_[X, X[:, 0]], pairs),
        "fewer rows than features": (rng.normal(size=(6, 8)), pairs[:6]),
        "ids 1, 1, 7, 7, -1": (X[:5], np.array([1, 1, 7, 7, -1])),
        "no chunklets": (X, np.full(12, -1)),
    }


def ours(X: np.ndarray, groups: np.ndarray, **options: Any) -> str:
    try:
        metric = mf.learn(X, mf.Chunklets(groups), method="krca", **options)
    except InputError as error:
        return f"InputError: {str(error).split(';')[0]}"
    R = metric.transform(np.eye(X.shape[1]))
    return f"finite, largest {np.abs(R).max():.2g}" if np.isfinite(R).all() else "NaN or infinite"


def peer(inputs: dict[str, tuple[np.ndarray, np.ndarray]]) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the outcome of metric-learn on each input, and the Mahalanobis matrices it learned."""
    python = os.environ.get("METRICFORGE_PEERS")
    if not python:
        return dict.fromkeys(inputs, "not run"), {}
    text = json.dumps({name: (X.tolist(), groups.tolist()) for name, (X, groups) in inputs.items()})
    done = subprocess.run([python, "-c", PEER], input=text, capture_output=True, text=True, check=True)
    said, learned = json.loads(done.stdout)
    return said, learned


def run(quick: bool = False) -> Table:
    table = Table(
        ["input", "metric-learn RCA", "krca, linear, epsilon=0", 'krca, linear, epsilon="auto"', "krca, default"]
    )
    linear = mf.kernels.Linear()
    theirs, learned = peer(cases())
    for name, (X, groups) in cases().items():
        row = [ours(X, groups, kernel=linear, epsilon=0), ours(X, groups, kernel=linear), ours(X, groups)]
        table.add(name, theirs[name], *row)
    table.notes.append("largest: entry of the learned transform of unit vectors; metric-learn's is its components_")
    for name in ("regular", "one chunklet"):
        X, groups = cases()[name]
        if name in learned:
            M = mf.learn(X, mf.Chunklets(groups), method="krca", kernel=linear, epsilon=0).kernel(np.eye(X.shape[1]))
            apart = np.abs(M - learned[name]).max() / np.abs(M).max()
            table.notes.append(
                f"{name}: our Mahalanobis matrix at epsilon=0 differs from metric-learn's by {apart:.1g}"
            )
    return table
