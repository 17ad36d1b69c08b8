"""The KD tree, and what it leaves to the exact search."""

from __future__ import annotations

import numpy as np
from metricforge_cases.neighbors import (
    dense_exact,
    dense_tree,
    few_values,
    naive,
)


def test_tree_and_exact_agree_to_the_last_bit(rng):
    X = rng.standard_normal((500, 5)) ** 3
    exact, tree = dense_exact(X, 11, None), dense_tree(X, 11, None)
    np.testing.assert_array_equal(exact[0], tree[0])
    np.testing.assert_array_equal(exact[1], tree[1])


def test_tree_leaves_long_ties_to_the_exact_search(rng, caplog):
    X = few_values(rng, 900)  # four distinct rows: 225 ties, more than 16 times what is asked at first
    with caplog.at_level("DEBUG", logger="metricforge.neighbors"):
        indices, _ = dense_tree(X, 3, None)
    assert "900 of 900 queries" in caplog.text
    np.testing.assert_array_equal(indices, naive(X, X, 3, exclude_self=True)[0])
