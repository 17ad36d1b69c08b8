"""The estimated share of true neighbours."""

from __future__ import annotations

import numpy as np
import pytest
from metricforge_cases.neighbors import (
    binary,
    gaussian,
    mostly_zero,
    repeated,
)
from scipy import sparse

from metricforge import neighbors


@pytest.mark.parametrize("make", [gaussian, binary, repeated, mostly_zero])
@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
def test_recall_of_an_exact_search_is_one(make, container, rng):
    X, A = make(rng, 120), make(rng, 40)
    indices, _ = neighbors.search(container(X), 5, method="exact")
    assert neighbors.recall(indices, container(X), sample=50) == 1.0
    indices, _ = neighbors.search(container(X), 5, queries=container(A), method="exact")
    assert neighbors.recall(indices, container(X), queries=container(A)) == 1.0


def test_recall_counts_ties_as_hits():
    X = np.concatenate([np.eye(8), -np.eye(8)])  # every row has 14 neighbours at sqrt(2) and one at 2
    last = np.array([[j for j in range(15, -1, -1) if j not in (i, (i + 8) % 16)][:4] for i in range(16)])
    assert not (last == neighbors.search(X, 4, method="exact")[0]).all()
    assert neighbors.recall(last, X) == 1.0
    opposite = last.copy()
    opposite[:, 0] = (np.arange(16) + 8) % 16
    assert neighbors.recall(opposite, X) == 0.75


@pytest.mark.parametrize("spoil", ["missing", "itself", "repeated", "far"])
def test_recall_of_spoilt_lists(spoil, rng):
    X = rng.standard_normal((90, 3))
    indices, _ = neighbors.search(X, 4, method="exact")
    far = neighbors.search(X, 89, method="exact")[0][:, -1]
    indices[:, 3] = {"missing": -1, "itself": np.arange(90), "repeated": indices[:, 0], "far": far}[spoil]
    assert neighbors.recall(indices, X) == 0.75


def test_recall_samples_by_seed(rng):
    X = rng.standard_normal((300, 3))
    indices, _ = neighbors.search(X, 2, method="exact")
    indices[:150] = -1
    estimates = {neighbors.recall(indices, X, sample=40, seed=seed) for seed in range(6)}
    assert len(estimates) > 1
    assert all(0.2 < value < 0.8 for value in estimates)
    assert neighbors.recall(indices, X, sample=40, seed=2) == neighbors.recall(indices, X, sample=40, seed=2)
    assert neighbors.recall(indices, X, sample=300) == 0.5
