"""The scores of the kinds, against their definitions and scikit-learn."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import KNeighborsClassifier

import metricforge as mf
from metricforge.constraints import Distances, pair_auc, row_auc
from metricforge.errors import InputError
from metricforge.kernels import RBF, Linear


@pytest.fixture
def data(rng):
    y = rng.integers(3, size=60)
    return rng.normal(size=(60, 3)) + y[:, None], y


def distances(X, **options):
    return Distances(Linear(), X, **options)


def lengths(X, pairs):
    return ((X[pairs[:, 0]] - X[pairs[:, 1]]) ** 2).sum(axis=1)


# ------------------------------------------------------------------------------------------------------------- ranking


def test_auc_is_that_of_scikit_learn(rng):
    near, far = rng.integers(9, size=30).astype(float), rng.integers(4, 14, size=50).astype(float)
    expected = roc_auc_score(np.repeat([0, 1], [30, 50]), np.concatenate([near, far]))
    assert pair_auc(near, far) == pytest.approx(expected, abs=1e-12)
    assert pair_auc(np.zeros(3), np.zeros(4)) == 0.5
    assert pair_auc(np.zeros(3), np.ones(4)) == 1.0


def test_entries_in_neither_class_do_not_count(rng):
    D = rng.random((5, 40))
    kind = rng.integers(3, size=(5, 40))
    found = row_auc(D, kind == 1, kind == 2)
    expected = [roc_auc_score(k[k > 0] == 2, d[k > 0]) for d, k in zip(D, kind, strict=True)]
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_distances_that_are_not_finite_are_refused():
    with pytest.raises(InputError, match="not finite"):
        pair_auc(np.array([np.nan]), np.array([1.0]))


# --------------------------------------------------------------------------------------------------------------- kinds


def test_pairs_score_by_the_auc_of_similar_against_dissimilar(data):
    X, y = data
    pairs = mf.Pairs.from_labels(y, n_pairs=80, seed=1)
    s, d = lengths(X, pairs.similar), lengths(X, pairs.dissimilar)
    expected = roc_auc_score(np.repeat([0, 1], [len(s), len(d)]), np.concatenate([s, d]))
    assert pairs.score(distances(X)) == pytest.approx(expected, abs=1e-12)
    assert pairs.score(distances(da.from_array(X, chunks=(13, -1)))) == pytest.approx(expected, abs=1e-12)


def test_similar_pairs_alone_and_groups_score_against_random_pairs(data):
    X, y = data
    everywhere = cdist(X, X, "sqeuclidean")[np.triu_indices(60, k=1)]
    groups = mf.Chunklets(y)
    inside = lengths(X, groups.inner_pairs())
    expected = roc_auc_score(np.repeat([0, 1], [len(inside), len(everywhere)]), np.concatenate([inside, everywhere]))
    assert 0.6 < expected < 0.9
    for kind in (groups, groups.to(mf.Pairs)):
        found = kind.score(distances(X))
        assert found == pytest.approx(expected, abs=0.02)
        assert kind.score(distances(X)) == found
        assert kind.score(distances(X, seed=1)) != found
    apart = mf.Pairs([], mf.Pairs.from_labels(y, n_pairs=300).dissimilar, n=60)
    assert 0.52 < apart.score(distances(X)) < 0.7


def test_random_pairs_have_a_row_of_the_given_pairs_and_never_join_a_row_with_itself(data):
    X, _ = data
    given = np.array([[3, 4], [7, 9]])
    drawn = distances(X).random_pairs(given)
    assert drawn.shape == (20, 2)
    assert set(drawn[:, 0].tolist()) == {3, 4, 7, 9}
    assert (drawn[:, 0] != drawn[:, 1]).all()
    assert len(np.unique(drawn[:, 1])) > 10


def test_labels_score_by_neighbours_and_triplets_each_row_left_out(data):
    X, y = data
    D = cdist(X, X) + np.diag(np.full(60, np.inf))
    order = np.argsort(D, axis=1)
    one = np.mean(y[order[:, 0]] == y)
    votes = [np.bincount(y[row[:5]], minlength=3) for row in order]
    five = np.mean(
        [next(y[j] for j in row[:5] if v[y[j]] == v.max()) == c for row, v, c in zip(order, votes, y, strict=True)]
    )
    triplets = []
    for i in range(60):
        same, other = (np.flatnonzero(part & (np.arange(60) != i)) for part in (y == y[i], y != y[i]))
        triplets.append(np.mean([D[i, j] < D[i, k] for j in same for k in other]))
    assert mf.Labels(y).score(distances(X)) == pytest.approx(np.mean([one, five, np.mean(triplets)]), abs=1e-12)


def test_held_out_labels_are_scored_by_the_training_rows_only(data):
    X, y = data
    labels = mf.Labels(np.where(np.arange(60) % 10 == 0, np.nan, y))
    for rows, held_out in labels.folds(3, seed=2):
        out = np.setdiff1d(np.arange(60), rows)
        known = rows[labels.codes[rows] >= 0]
        assert (labels.codes[out] >= 0).all()
        accuracy = [
            KNeighborsClassifier(k, weights=weights).fit(X[known], y[known]).score(X[out], y[out])
            for k, weights in ((1, "uniform"), (5, "uniform"))
        ]
        D = cdist(X[out], X[known], "sqeuclidean")
        auc = np.mean([roc_auc_score(y[known] != c, d) for c, d in zip(y[out], D, strict=True)])
        # votes that tie go to the nearest here, and to the first class in scikit-learn
        assert held_out.score(distances(X)) == pytest.approx(np.mean([*accuracy, auc]), abs=0.03)
        found, _ = held_out.satisfied(distances(X))
        assert found.share == accuracy[0]
        assert found.total == len(out)


def test_a_metric_that_ignores_the_training_labels_scores_at_chance(rng):
    y = rng.integers(2, size=2000)
    X = rng.normal(size=(2000, 2))
    held = [h.score(distances(X)) for _, h in mf.Labels(y).folds(3)]
    assert abs(np.mean(held) - 0.5) < 0.03


def test_triplets_score_by_the_share_satisfied(data):
    X, y = data
    triplets = mf.Triplets.from_labels(y, n_triplets=300)
    i, j, k = triplets.triples.T
    expected = np.mean(lengths(X, np.c_[i, j]) < lengths(X, np.c_[i, k]))
    assert triplets.score(distances(X)) == expected


@pytest.mark.parametrize(
    "kind",
    [
        mf.Labels([0, 1, 2]),
        mf.Labels([0, 0, 0]),
        mf.Labels([None, None, None]),
        mf.Pairs(n=3),
        mf.Chunklets([0, 1, -1]),
        mf.Triplets([], n=3),
    ],
    ids=["classes of one row", "one class", "no labels", "no pairs", "groups of one row", "no triplets"],
)
def test_nothing_to_score_is_an_error(kind):
    with pytest.raises(InputError, match=r"no relation of .* can be scored"):
        kind.score(distances(np.eye(3)))


def test_a_better_metric_scores_higher(rng):
    y = np.repeat([0, 1, 2], 20)
    X = np.c_[3.0 * y + 0.3 * rng.normal(size=60), 20 * rng.normal(size=60)]
    good, bad = distances(X[:, :1]), distances(X)
    for kind in (mf.Labels(y), mf.Pairs.from_labels(y), mf.Chunklets(y), mf.Triplets.from_labels(y)):
        assert kind.score(good) > kind.score(bad) + 0.2
        assert kind.score(Distances(RBF(0.1), X[:, :1])) > kind.score(bad) + 0.2
