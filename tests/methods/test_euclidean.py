from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics.pairwise import euclidean_distances

import metricforge as mf
from metricforge.testing import check_method

KINDS = (mf.Labels, mf.Pairs, mf.Chunklets, mf.Triplets)


def test_conforms():
    check_method("euclidean")


@pytest.mark.parametrize("kind", KINDS)
def test_any_hint_gives_the_base_metric(kind, wine):
    X, y = wine
    metric = mf.learn(X, kind.from_labels(y, components=0.6), method="euclidean")
    scaled = X / np.ptp(X, axis=0)
    np.testing.assert_allclose(metric.distance(X), euclidean_distances(scaled), atol=1e-7)
    plain = mf.learn(X, kind.from_labels(y, components=0.6), method="euclidean", kernel="linear")
    np.testing.assert_allclose(plain.distance(X), euclidean_distances(X), atol=1e-7)
    assert metric.report.converted == ()
    assert (metric.report.objective, metric.report.gap) == (0, 0)
