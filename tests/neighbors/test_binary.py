"""Rows of zeros and ones, packed into bits."""

from __future__ import annotations

import numpy as np
import pytest
from metricforge_cases.neighbors import (
    binary,
    dense_exact,
    naive,
)
from scipy import sparse

from metricforge import neighbors
from metricforge.errors import InputError
from metricforge.neighbors import api as choice


@pytest.mark.parametrize("with_queries", [False, True])
@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize(("n", "d"), [(160, 6), (90, 64), (1100, 65), (300, 200), (70, 1)])
def test_packed_rows_agree_with_a_naive_sort(n, d, container, with_queries, rng):
    # Among few features nearly all distances tie; 1100 rows are more than the loop counts at a time.
    X = (rng.random((n, d)) < rng.random(d)).astype(float)
    queries = np.concatenate([1 - X[:20], X[::13]]) if with_queries else None
    for k in (1, 9, n - 1):
        Q = None if queries is None else container(queries)
        indices, distances = neighbors.search(container(X), k, queries=Q, method="hamming")
        expected = naive(X, X if queries is None else queries, k, exclude_self=queries is None)
        np.testing.assert_array_equal(indices, expected[0])
        np.testing.assert_array_equal(distances, expected[1])


def test_packed_rows_are_taken_when_that_is_faster_and_refused_when_not_binary(rng, monkeypatch):
    X = binary(rng, 300)
    X = np.hstack([X, X])  # too wide for a tree
    assert neighbors.choose(X, X, itself=True) == "exact"
    monkeypatch.setattr(choice, "HAMMING_SECONDS", 1e-9)
    assert neighbors.choose(X, X, itself=True) == "hamming"
    assert neighbors.choose(sparse.csr_array(X), sparse.csr_array(X), itself=True) == "hamming"
    assert neighbors.choose(X, 2 * X, itself=False) == "exact"
    np.testing.assert_array_equal(neighbors.search(X, 5)[0], dense_exact(X, 5, None)[0])
    with pytest.raises(InputError, match="zeros and ones, and queries has others"):
        neighbors.search(X, 5, queries=0.5 * X, method="hamming")
