"""Classification by nearest training rows, against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier

import metricforge as mf
from metricforge.errors import InputError
from metricforge.tasks import classify


@pytest.fixture
def fitted(wine):
    X, y = wine
    return mf.learn(X[::2], y[::2], method="krca", kernel="linear"), y[::2], X[1::2], y[1::2]


@pytest.mark.parametrize("k", [1, 5, 12])
def test_the_same_as_scikit_learn_in_the_embedding(fitted, k):
    metric, y, A, _ = fitted
    peer = KNeighborsClassifier(k).fit(metric.transform(metric.rows), y)
    found = classify(metric, y, A, k=k)
    shares = peer.predict_proba(metric.transform(A))
    np.testing.assert_allclose(found.probabilities, shares)
    clear = (shares == shares.max(axis=1, keepdims=True)).sum(axis=1) == 1
    np.testing.assert_array_equal(found.labels[clear], peer.predict(metric.transform(A))[clear])
    np.testing.assert_allclose(found.nearest, metric.neighbors(A, 1)[1][:, 0])


def test_a_tie_goes_to_the_nearest():
    metric = mf.learn(np.array([[0.0], [1.0], [10.0], [11.0]]), [0, 0, 1, 1], method="euclidean", kernel="linear")
    found = classify(metric, ["a", "b", "b", "a"], [[0.4], [0.6]], k=2)
    assert found.labels.tolist() == ["a", "b"]
    np.testing.assert_array_equal(found.probabilities, 0.5)


def test_rows_without_a_label_do_not_vote_and_far_rows_are_none_of_these():
    metric = mf.learn(np.array([[0.0], [1.0], [2.0], [3.0]]), [0, 0, 1, 1], method="euclidean", kernel="linear")
    found = classify(metric, ["a", None, "b", None], [[0.9], [3.0], [9.0]], k=1, radius=2.0)
    assert found.labels.tolist() == ["a", "b", None]
    assert found.probabilities.tolist() == [[1, 0], [0, 1], [0, 0]]
    np.testing.assert_allclose(found.nearest, [0.9, 1, 7])
    assert classify(metric, ["a", None, "b", None], [[0.9]], k=50).probabilities.tolist() == [[0.5, 0.5]]


def test_bad_input(fitted):
    metric, y, A, _ = fitted
    with pytest.raises(InputError, match="y is about 3 rows"):
        classify(metric, y[:3], A)
    with pytest.raises(InputError, match="no label"):
        classify(metric, np.full(len(y), np.nan), A)
    with pytest.raises(InputError, match="radius must be"):
        classify(metric, y, A, radius=-1.0)
    with pytest.raises(InputError, match="k must be"):
        classify(metric, y, A, k=0)
    with pytest.raises(InputError, match="keeps no training rows"):
        classify(mf.Metric(metric.kernel, metric.report), y, A)
