"""How many relations hold, against counting them one by one; and kernels as text."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest

import metricforge as mf
from metricforge.errors import InputError
from metricforge.kernels import RBF, Linear, Mixture, Polynomial, Spectrum
from metricforge.notation import parse_kernel, parse_value
from metricforge.relations import held, separating


def euclid(X, i, j):
    return np.linalg.norm(X[i] - X[j])


def test_triplets_are_counted(rng):
    X = rng.normal(size=(30, 3))
    triples = np.array([rng.choice(30, 3, replace=False) for _ in range(200)])
    (found,) = held(Linear(), X, mf.Triplets(triples, n=30))
    assert found.holds == sum(euclid(X, i, j) < euclid(X, i, k) for i, j, k in triples)
    assert found.total == 200
    assert found.share == found.holds / 200


def test_pairs_are_counted_at_the_best_threshold(rng):
    X = rng.normal(size=(40, 2))
    pairs = mf.Pairs.from_labels(rng.integers(2, size=40), n_pairs=60, seed=1)
    similar, dissimilar = held(Linear(), X, pairs)
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
    (found,) = held(Linear(), X, mf.Chunklets(groups))
    assert found.holds == found.total == 135
    (mixed,) = held(Linear(), X, mf.Chunklets(np.tile([0, 1, 2], 10)))
    assert 0.3 < mixed.share < 0.7


def test_labels_count_nearest_rows_and_leave_out_the_unlabelled(rng):
    X = rng.normal(size=(50, 2))
    y = np.where(np.arange(50) < 10, np.nan, rng.integers(3, size=50))
    nearest, *_ = held(mf.learn(X, y, method="euclidean"), X, mf.Labels(y))
    known = np.arange(10, 50)
    D = np.linalg.norm(X[known, None] - X[None, known], axis=2) + np.diag(np.full(40, np.inf))
    assert nearest.holds == (y[known][D.argmin(axis=1)] == y[known]).sum()
    assert nearest.total == 40


def test_a_class_of_one_row_has_no_nearest_row_to_find():
    nearest, *_ = held(Linear(), np.array([[0.0], [1.0], [10.0], [20.0], [21.0]]), mf.Labels([0, 0, 1, 2, 2]))
    assert (nearest.holds, nearest.total) == (4, 4)
    assert held(Linear(), np.arange(3.0)[:, None], mf.Labels([0, 1, 2])) == ()


def test_the_same_count_from_one_block_and_pair_by_pair(rng, monkeypatch):
    X = rng.normal(size=(40, 2))
    pairs = mf.Pairs.from_labels(rng.integers(2, size=40), n_pairs=60, seed=1)
    block = held(RBF(1.0), X, pairs)
    monkeypatch.setattr("metricforge.relations.MOST_ROWS", 10)
    assert held(RBF(1.0), X, pairs) == block


def test_a_sample_stands_for_many_and_dask_says_the_same(rng, monkeypatch):
    X = rng.normal(size=(60, 2))
    triples = np.array([rng.choice(60, 3, replace=False) for _ in range(500)])
    constraint = mf.Triplets(triples, n=60)
    (every,) = held(RBF(1.0), X, constraint)
    assert held(RBF(1.0), da.from_array(X, chunks=(13, -1)), constraint) == (every,)
    monkeypatch.setattr("metricforge.relations.MOST_RELATIONS", 100)
    (some,) = held(RBF(1.0), X, constraint, seed=3)
    assert some.total == 100
    assert abs(some.share - every.share) < 0.15


def test_wrong_numbers_of_rows_are_refused(rng):
    with pytest.raises(InputError, match="is about 4 rows, but X has 5"):
        held(Linear(), rng.normal(size=(5, 2)), mf.Triplets([(0, 1, 2)], n=4))


# ------------------------------------------------------------------------------------------------------ kernels as text


@pytest.mark.parametrize(
    ("text", "kernel"),
    [
        ("rbf", RBF()),
        ("RBF", RBF()),
        (" rbf(0.5) ", RBF(0.5)),
        ("rbf(gamma=0.5)", RBF(0.5)),
        ("spectrum(k=3)", Spectrum(3)),
        ("rbf(gamma='median', base=polynomial(degree=3))", RBF("median", base=Polynomial(3))),
        ("rbf(1.0, base=linear)", None),
        (repr(RBF(0.25)), RBF(0.25)),
        (repr(0.5 * RBF(0.25) + 2 * Linear()), 0.5 * RBF(0.25) + 2 * Linear()),
    ],
)
def test_a_kernel_is_read_from_text(text, kernel):
    if kernel is None:
        with pytest.raises(InputError):
            parse_kernel(text)
    else:
        assert parse_kernel(text) == kernel


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rbff", "kernel='rbff' is unknown; did you mean 'rbf'"),
        ("rbf(", "cannot be read"),
        ("", "cannot be read"),
        ("3", "is no kernel"),
        ("rbf(sigma=3)", "rbf has no parameter 'sigma'"),
        ("rbf(gamma=-1)", "gamma"),
        ("weak", "needs parameters"),
        ("__import__('os').system('true')", "more than names and numbers"),
        ("rbf(gamma=[x for x in y])", "more than names and numbers"),
        ("rbf(**{})", "more than names and numbers"),
    ],
)
def test_what_is_no_kernel_is_one_sentence(text, said):
    with pytest.raises(InputError) as caught:
        parse_kernel(text)
    assert said in str(caught.value)


def test_values_as_text():
    assert [parse_value(t) for t in ("1", "0.5", "true", "None", "(1, 2)", "hinge")] == [
        1,
        0.5,
        True,
        None,
        (1, 2),
        "hinge",
    ]
    assert isinstance(parse_kernel("mixture(kernels=(rbf(1.0),), weights=(2.0,))"), Mixture)
