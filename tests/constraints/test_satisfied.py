"""The number of satisfied relations, against counting them one by one."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
from sklearn.metrics import accuracy_score, balanced_accuracy_score

import metricforge as mf
from metricforge.constraints import separating
from metricforge.errors import InputError
from metricforge.kernels import RBF, Linear
from metricforge.tasks import satisfied


def euclid(X, i, j):
    return np.linalg.norm(X[i] - X[j])


def test_triplets_are_counted(rng):
    X = rng.normal(size=(30, 3))
    triples = np.array([rng.choice(30, 3, replace=False) for _ in range(200)])
    (found,) = satisfied(Linear(), X, mf.Triplets(triples, n=30))
    assert found.count == sum(euclid(X, i, j) < euclid(X, i, k) for i, j, k in triples)
    assert found.total == 200
    assert found.share == found.count / 200


def test_pairs_are_counted_at_the_best_threshold(rng):
    X = rng.normal(size=(40, 2))
    pairs = mf.Pairs.from_labels(rng.integers(2, size=40), n_pairs=60, seed=1)
    similar, dissimilar = satisfied(Linear(), X, pairs)
    s = np.array([euclid(X, i, j) for i, j in pairs.similar])
    d = np.array([euclid(X, i, j) for i, j in pairs.dissimilar])
    best = max((s <= t).mean() + (d > t).mean() for t in np.concatenate([s, d]))
    assert similar.share + dissimilar.share == pytest.approx(best)
    assert (similar.total, dissimilar.total) == (len(s), len(d))


def test_ties_and_apart():
    assert separating(np.array([1.0, 2.0]), np.array([3.0, 4.0])) == 2.0
    assert separating(np.array([1.0, 1.0]), np.array([1.0, 5.0])) == 1.0
    assert separating(np.array([1.0, 2.0]), np.array([2.0, 3.0])) == 1.0  # at 2 a dissimilar pair is not beyond


def test_groups_are_compared_with_rows_at_random(rng):
    groups = np.repeat([0, 1, 2], 10)
    X = rng.normal(size=(30, 2)) + 100.0 * groups[:, None]
    (found,) = satisfied(Linear(), X, mf.Chunklets(groups))
    assert found.count == found.total == 135
    (mixed,) = satisfied(Linear(), X, mf.Chunklets(np.tile([0, 1, 2], 10)))
    assert 0.3 < mixed.share < 0.7


def test_labels_count_nearest_rows_and_leave_out_the_unlabelled(rng):
    X = rng.normal(size=(50, 2))
    y = np.where(np.arange(50) < 10, np.nan, rng.integers(3, size=50))
    nearest, *_ = satisfied(mf.learn(X, y, method="euclidean"), X, mf.Labels(y))
    known = np.arange(10, 50)
    D = np.linalg.norm(X[known, None] - X[None, known], axis=2) + np.diag(np.full(40, np.inf))
    assert nearest.count == (y[known][D.argmin(axis=1)] == y[known]).sum()
    assert nearest.total == 40


def test_a_class_of_one_row_has_no_nearest_row_to_find():
    nearest, *_ = satisfied(Linear(), np.array([[0.0], [1.0], [10.0], [20.0], [21.0]]), mf.Labels([0, 0, 1, 2, 2]))
    assert (nearest.count, nearest.total) == (4, 4)
    assert satisfied(Linear(), np.arange(3.0)[:, None], mf.Labels([0, 1, 2])) == ()


def test_the_same_count_from_one_block_and_pair_by_pair(rng, monkeypatch):
    X = rng.normal(size=(40, 2))
    pairs = mf.Pairs.from_labels(rng.integers(2, size=40), n_pairs=60, seed=1)
    block = satisfied(RBF(1.0), X, pairs)
    monkeypatch.setattr("metricforge.constraints.scoring.MOST_ROWS", 10)
    assert satisfied(RBF(1.0), X, pairs) == block


def test_a_sample_stands_for_many_and_dask_says_the_same(rng, monkeypatch):
    X = rng.normal(size=(60, 2))
    triples = np.array([rng.choice(60, 3, replace=False) for _ in range(500)])
    constraint = mf.Triplets(triples, n=60)
    (every,) = satisfied(RBF(1.0), X, constraint)
    assert satisfied(RBF(1.0), da.from_array(X, chunks=(13, -1)), constraint) == (every,)
    monkeypatch.setattr("metricforge.constraints.scoring.MOST_RELATIONS", 100)
    (some,) = satisfied(RBF(1.0), X, constraint, seed=3)
    assert some.total == 100
    assert abs(some.share - every.share) < 0.15


def test_wrong_numbers_of_rows_are_refused(rng):
    with pytest.raises(InputError, match="is about 4 rows, but X has 5"):
        satisfied(Linear(), rng.normal(size=(5, 2)), mf.Triplets([(0, 1, 2)], n=4))


def test_a_rare_class_counts_as_much_as_the_others_in_the_balanced_accuracy():
    rng = np.random.default_rng(0)
    y = np.array([0] * 90 + [1] * 10)
    X = rng.normal(size=(100, 2))  # knows nothing of the classes
    labels = mf.Labels(y)
    assert labels.describe() == "100 labels in 2 classes (the largest 90.0 %)"
    nearest, balanced = labels.satisfied(mf.constraints.Distances(mf.kernels.Linear(), X))[:2]
    D = ((X[:, None] - X) ** 2).sum(axis=2) + np.diag([np.inf] * 100)
    found = y[D.argmin(axis=1)]
    assert nearest.share == pytest.approx(accuracy_score(y, found))
    assert balanced.share == pytest.approx(balanced_accuracy_score(y, found))
    assert balanced.error > nearest.error
    (line,) = [one for one in mf.tasks.held_out(X, labels, mf.learn) if "balanced" in one.what]
    assert 0.3 < line.before < 0.7
