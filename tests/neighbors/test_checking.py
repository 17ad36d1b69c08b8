"""Arguments that are refused, and the contract of a search from elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from metricforge_cases.neighbors import (
    X5,
    naive,
)
from scipy import sparse

from metricforge import neighbors
from metricforge.errors import InputError, UnknownNameError


def test_a_callable_gets_checked_rows_and_is_held_to_the_contract(rng):
    X, A = rng.standard_normal((20, 3)), rng.standard_normal((4, 3))
    calls = []

    def mine(X, k, *, queries, seed):
        calls.append((k, queries, seed))
        return neighbors.search(X, k, queries=queries, method="exact")

    found = neighbors.search(X.tolist(), 2, queries=A.tolist(), method=mine, seed=7)
    np.testing.assert_array_equal(found[0], naive(X, A, 2, exclude_self=False)[0])
    assert calls[0][0] == 2
    assert isinstance(calls[0][1], np.ndarray)
    assert calls[0][2] == 7
    for answer in [
        (np.zeros((20, 3), int), np.zeros((20, 3))),
        (np.zeros((20, 2)), np.zeros((20, 2))),
        (np.full((20, 2), -1), np.zeros((20, 2))),
        (np.full((20, 2), 20), np.zeros((20, 2))),
        (np.zeros((20, 2), int), np.ones((20, 2))),  # row 0 lists itself
        (np.full((20, 2), 19), np.full((20, 2), np.nan)),
    ]:
        with pytest.raises(InputError, match="method"):
            neighbors.search(X, 2, method=lambda X, k, queries, seed, answer=answer: answer)


def spoilt(value):
    X = X5.copy()
    X[3, 1] = value
    return X


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: neighbors.search(X5, 5), r"k = 5 .* 4 other rows; pass k <= 4"),
        (lambda: neighbors.search(X5, 6, queries=X5), r"k = 6 .* 5 rows; pass k <= 5"),
        (lambda: neighbors.search(X5, 0), r"k must be .* at least 1, got 0"),
        (lambda: neighbors.search(X5, -2), r"k must be"),
        (lambda: neighbors.search(X5, 2.0), r"k must be a whole number"),
        (lambda: neighbors.search(X5, True), r"k must be a whole number"),
        (lambda: neighbors.search(X5[:1], 1), r"0 other rows"),
        (lambda: neighbors.search(X5, 1, seed=-1), r"seed"),
        (lambda: neighbors.search(np.empty((0, 2)), 1), r"X has 0 sample"),
        (lambda: neighbors.search(np.empty((3, 0)), 1), r"X has 0 feature"),
        (lambda: neighbors.search(X5.ravel(), 1), r"X must be 2-d"),
        (lambda: neighbors.search(spoilt(np.nan), 1), r"X contains NaN .*row 3"),
        (lambda: neighbors.search(spoilt(np.inf), 1), r"X contains infinity .*row 3"),
        (lambda: neighbors.search(sparse.csr_array(spoilt(np.nan)), 1), r"X contains NaN .*row 3"),
        (lambda: neighbors.search(spoilt(1e200), 1), r"X has values up to 1e\+200.*rescale"),
        (lambda: neighbors.search(X5, 1, queries=spoilt(np.nan)), r"queries contains NaN"),
        (lambda: neighbors.search(X5, 1, queries=np.ones((2, 3))), r"queries has 3 features, but X has 2"),
        (lambda: neighbors.search(X5, 1, queries=sparse.csr_array(X5)), r"both be dense or both be sparse"),
        (lambda: neighbors.search(sparse.csr_array(X5), 1, method="tree"), r"tree.*exact"),
        (lambda: neighbors.search_blocks(lambda *_: None, 5, 5, 5, exclude_self=True), r"k = 5"),
        (lambda: neighbors.search_blocks(lambda *_: None, 5, 4, 1, exclude_self=True), r"pass q = n"),
        (lambda: neighbors.graph(np.zeros((3, 1))), r"integers"),
        (lambda: neighbors.graph(np.zeros(3, int)), r"2-d"),
        (lambda: neighbors.graph(np.array([[1], [2], [7]])), r"-1\.\.2.* row 2"),
        (lambda: neighbors.graph(np.array([[1], [-2], [0]])), r"row 1"),
        (lambda: neighbors.graph(np.array([[1], [0]]), n=1), r"n must be"),
        (lambda: neighbors.recall(np.zeros((4, 1), int), X5), r"shape \(5, k\)"),
        (lambda: neighbors.recall(np.full((5, 1), 5), X5), r"-1\.\.4"),
        (lambda: neighbors.recall(np.zeros((5, 5), int), X5), r"k = 5"),
        (lambda: neighbors.recall(np.ones((5, 1), int), X5, sample=0), r"sample"),
    ],
)
def test_bad_input(call, says):
    with pytest.raises(InputError, match=says):
        call()


def test_unknown_names_offer_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'exact'"):
        neighbors.search(X5, 1, method="exacty")
    with pytest.raises(UnknownNameError, match="did you mean 'mutual'"):
        neighbors.graph(np.array([[1], [0]]), kind="mutal")
