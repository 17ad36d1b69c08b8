"""Rows with ties, duplicates and offsets, and a naive search, for the tests of the neighbour searches."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from metricforge import neighbors


def naive(X, Q, k, exclude_self):
    """All distances by subtraction, and a stable sort: equal distances stay in the order of their indices."""
    X, Q = np.asarray(X, dtype=np.float64), np.asarray(Q, dtype=np.float64)
    D = np.stack([np.sqrt(((X - row) ** 2).sum(axis=1)) for row in Q])
    if exclude_self:
        np.fill_diagonal(D, np.inf)
    indices = np.argsort(D, axis=1, kind="stable")[:, :k]
    return indices, np.take_along_axis(D, indices, axis=1)


def binary(rng, n):
    return rng.integers(0, 2, (n, 6)).astype(float)


def few_values(rng, n):
    return rng.integers(0, 2, (n, 2)).astype(float)


def integers(rng, n):
    return rng.integers(-3, 4, (n, 3)).astype(float)


def gaussian(rng, n):
    return rng.standard_normal((n, 7))


def repeated(rng, n):
    return np.random.default_rng(5).standard_normal((n // 8, 4))[rng.integers(0, n // 8, n)]


def constant(rng, n):
    return np.full((n, 3), 0.1)


def far_from_origin(rng, n):
    return 1e6 + rng.standard_normal((n, 5))


def two_tight_clusters(rng, n):
    return np.where(rng.random((n, 1)) < 0.5, -1.0, 1.0) + 1e-9 * rng.standard_normal((n, 4))


def sorted_clusters(rng, n):
    return np.repeat(np.arange(n // 10), 10)[:, None] + 0.01 * rng.standard_normal((n // 10 * 10, 3))


def large_integers(rng, n):
    return 2.0**40 + rng.integers(0, 30, (n, 3))  # their squares do not fit a float64


def mostly_zero(rng, n):
    return rng.standard_normal((n, 40)) * (rng.random((n, 40)) < 0.05)  # 13 % of the rows are empty


DATA = [
    binary,
    few_values,
    integers,
    gaussian,
    repeated,
    constant,
    far_from_origin,
    two_tight_clusters,
    sorted_clusters,
    large_integers,
    mostly_zero,
]


def dense_exact(X, k, queries):
    return neighbors.search(X, k, queries=queries, method="exact")


def dense_tree(X, k, queries):
    return neighbors.search(X, k, queries=queries, method="tree")


def csr_exact(X, k, queries):
    queries = None if queries is None else sparse.csr_array(queries)
    return neighbors.search(sparse.csr_array(X), k, queries=queries, method="exact")


def by_blocks(X, k, queries):
    Q = (X if queries is None else queries).astype(np.float64)
    X = X.astype(np.float64)

    def block(q0, q1, c0, c1):
        return np.sqrt(((Q[q0:q1, None] - X[None, c0:c1]) ** 2).sum(axis=2))

    return neighbors.search_blocks(block, len(X), len(Q), k, exclude_self=queries is None)


EXACT = [dense_exact, dense_tree, csr_exact, by_blocks]


X5 = np.arange(10.0).reshape(5, 2)
