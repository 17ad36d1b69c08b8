"""Rows of the exact neighbour search, k = 10.  See `rows_idealized` for what a row may import and returns."""

from __future__ import annotations

import hashlib
import time
from typing import Any

import numpy as np

from metricforge import neighbors


def narrow(split: int) -> dict[str, Any]:
    return exact(split, 10_000, 16)


def wide(split: int) -> dict[str, Any]:
    return exact(split, 10_000, 128)


def many(split: int) -> dict[str, Any]:
    return exact(split, 20_000, 64)


def exact(split: int, n: int, d: int) -> dict[str, Any]:
    from sklearn.neighbors import NearestNeighbors

    X = np.random.default_rng(split).normal(size=(n, d))
    neighbors.search(X[:100], 10, method="exact")
    NearestNeighbors(n_neighbors=10, algorithm="brute").fit(X[:100]).kneighbors()
    ours, peers = [], []
    for _ in range(3):
        started = time.process_time()
        indices, distances = neighbors.search(X, 10, method="exact")
        ours.append(time.process_time() - started)
        started = time.process_time()
        NearestNeighbors(n_neighbors=10, algorithm="brute").fit(X).kneighbors()
        peers.append(time.process_time() - started)
    lists = hashlib.blake2b(indices.tobytes() + distances.tobytes(), digest_size=6).hexdigest()
    return {"seconds": min(ours), "details": f"{min(ours) / min(peers):.2f} times scikit-learn, lists {lists}"}
