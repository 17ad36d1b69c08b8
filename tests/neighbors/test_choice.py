"""Which search method="auto" takes."""

from __future__ import annotations

import numpy as np
import pytest
from metricforge_cases.neighbors import (
    few_values,
    gaussian,
    integers,
    naive,
)
from scipy import sparse

from metricforge import neighbors


@pytest.mark.parametrize(
    ("n", "d", "itself", "expected"),
    [
        (500, 2, True, "tree"),
        (1_000_000, 3, False, "tree"),
        (20_000, 16, True, "exact"),
        (32_561, 123, True, "exact"),
        (40_000, 50, True, "exact"),
        (120_000, 50, True, "cells"),
        (1_000_000, 64, True, "cells"),
        (1_000_000, 64, False, "exact"),
    ],
)
def test_auto_by_shape(n, d, itself, expected):
    X = np.broadcast_to(np.arange(float(n))[:, None], (n, d))
    assert neighbors.choose(X, X if itself else X[:1000], itself) == expected


def test_auto_is_exact_where_all_neighbors_are_asked_for():
    X = np.broadcast_to(np.arange(1e6)[:, None], (1_000_000, 64))
    assert neighbors.choose(X, X, True, recall=1) == "exact"


def test_auto_for_many_binary_and_sparse_rows(monkeypatch):
    monkeypatch.setattr(neighbors.api, "CELLS_SECONDS", 1e-4)
    monkeypatch.setattr(neighbors.api, "HAMMING_SECONDS", 1e-4)
    X = sparse.random_array((3000, 80), density=0.02, rng=0, format="csr")
    ones = X.astype(bool).astype(float)
    assert neighbors.choose(ones, ones, True) == "cells"
    assert neighbors.choose(ones, ones, True, recall=1) == "hamming"
    assert neighbors.choose(ones, ones[:9], False) == "hamming"
    assert neighbors.choose(X, X, True) == "cells"
    assert neighbors.choose(X, X, True, recall=1) == "exact"


def test_auto_has_no_tree_for_few_distinct_rows(rng):
    X = few_values(rng, 5000)
    assert neighbors.choose(X, X, True) == "exact"


def test_auto_has_no_tree_for_sparse_rows():
    X = sparse.csr_array((500, 2))
    assert neighbors.choose(X, X, True) == "exact"


@pytest.mark.parametrize("make", [integers, gaussian])
def test_auto_searches(make, rng):
    X = make(rng, 100)
    np.testing.assert_array_equal(neighbors.search(X, 3)[0], naive(X, X, 3, exclude_self=True)[0])
