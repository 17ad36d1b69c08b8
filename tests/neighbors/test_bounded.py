"""Searches by lower bounds against all distances."""

from __future__ import annotations

import numpy as np
import pytest

import metricforge as mf
from metricforge.neighbors import LowerBounds


def nearest(D, k):
    order = np.lexsort((np.broadcast_to(np.arange(D.shape[1]), D.shape), D), axis=1)[:, :k]
    return order, np.take_along_axis(D, order, axis=1)


@pytest.mark.parametrize("k", [1, 7, 100])
@pytest.mark.parametrize("axes", [1, 3, 6])
def test_some_columns_bound_the_distance_in_all(axes, k, rng):
    X, Q = rng.normal(size=(1000, 6)) + 5, rng.normal(size=(40, 6)) + 5
    X[100:120] = X[:20]  # ties go to the smaller number
    D = np.sqrt(np.square(Q[:, None] - X).sum(axis=2))
    (indices, distances), left = LowerBounds.of(X[:, :axes].astype(np.float32)).search(
        Q[:, :axes], lambda i, rows: D[i, rows], k
    )
    helped = np.setdiff1d(np.arange(40), left)
    expected = nearest(D, k)
    np.testing.assert_array_equal(indices[helped], expected[0][helped])
    np.testing.assert_array_equal(distances[helped], expected[1][helped])
    if axes == 6 and k == 7:
        assert not len(left)
    if axes == 1 and k == 100:
        assert len(left) > 30


def test_distances_below_their_bounds_are_noticed(rng):
    X = rng.normal(size=(500, 3))
    D = 0.9 * np.sqrt(np.square(X[:30, None] - X).sum(axis=2))
    left = LowerBounds.of(X.astype(np.float32)).search(X[:30], lambda i, rows: D[i, rows], 5)[1]
    assert len(left) == 30


@pytest.mark.parametrize("d", [3, 40])
def test_neighbors_of_a_metric_over_landmarks_are_those_by_all_distances(d, rng, monkeypatch):
    monkeypatch.setattr("metricforge.metric.BOUNDED_ROWS", 1000)
    X = rng.normal(size=(1200, d))
    y = (X[:, 0] > 0).astype(int)
    metric = mf.learn(X, y, method="krca", kernel="rbf", rank=120)
    Q = np.concatenate([X[:20], rng.normal(size=(20, d)), 50 + rng.normal(size=(5, d))])
    assert not metric.embedding_is_exact
    indices, distances = metric.neighbors(Q, k=6)
    expected = nearest(metric.distance(Q, X), 6)
    np.testing.assert_allclose(distances, expected[1], rtol=1e-9, atol=1e-9)
    far = np.arange(40)  # the last rows are at one distance from all others, up to rounding
    np.testing.assert_array_equal(indices[far], expected[0][far])
