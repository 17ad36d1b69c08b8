"""Scores on rows that are held out: counted by hand, and never on rows that were learned from."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import dask.array as da
import numpy as np
import pytest

import metricforge as mf
from metricforge.errors import InputError
from metricforge.tasks import held_out


@pytest.fixture
def rows(rng):
    y = np.arange(60) % 3
    X = rng.normal(size=(60, 4))
    X[:, 0] += 3 * y
    X[:, 1] *= 30
    return X, y


fit = partial(mf.learn, method="krca", kernel="linear", epsilon=0.0)


def test_labels_by_hand(rows):
    X, y = rows
    score, balanced = held_out(X, mf.Labels(y), fit)
    counts = []
    for training, _ in mf.Labels(y).folds(5, 0):
        out = np.setdiff1d(np.arange(60), training)
        metric = fit(X[training], y[training])
        near = [np.argmin(kernel.distance(X[out], X[training]), axis=1) for kernel in (metric.start, metric.kernel)]
        counts.append([np.mean(y[training][n] == y[out]) for n in near])
    counts = np.array(counts)
    np.testing.assert_allclose((score.before, score.after), counts.mean(axis=0))
    np.testing.assert_allclose(score.error, counts.std(axis=0, ddof=1) / np.sqrt(5))
    np.testing.assert_allclose(score.change[1], np.diff(counts, axis=1).std(ddof=1) / np.sqrt(5))
    assert (score.total, score.folds) == (balanced.total, balanced.folds) == (60, 5)
    assert score.after > score.before + 0.2


def test_the_rows_held_out_are_not_learned_from(rows):
    X, y = rows
    seen = []

    def watched(A, part):
        seen.append({tuple(row) for row in A.tolist()})
        return fit(A, part)

    held_out(X, mf.Labels(y), watched)
    assert len(seen) == 5
    assert set.intersection(*seen) == set()  # every row is left out once
    assert [len(part) for part in seen] == [48] * 5


def test_one_fold_of_many_rows_and_as_many_as_asked(rows, monkeypatch):
    X, y = rows
    monkeypatch.setattr("metricforge.tasks.unseen.FEW_ROWS", 50)
    score, balanced = held_out(X, mf.Labels(y), fit)
    assert (score.folds, score.total) == (balanced.folds, balanced.total) == (1, 12)
    np.testing.assert_allclose(score.error[1], np.sqrt(score.after * (1 - score.after) / 12))
    assert held_out(X, mf.Labels(y), fit, folds=3)[0].folds == 3


def test_pairs_and_triplets(rows):
    X, y = rows
    pairs = held_out(X, mf.Pairs.from_labels(y, n_pairs=200, seed=0), fit)
    assert [score.what.split()[0] for score in pairs] == ["similar", "dissimilar"]
    assert all(score.folds == 5 for score in pairs)
    (score,) = held_out(X, mf.Triplets.from_labels(y, n_triplets=200, seed=0), partial(mf.learn, method="lpdesign"))
    assert score.after > score.before


def test_too_few_hints_give_no_score(rows):
    X, _ = rows
    assert held_out(X, mf.Pairs([(0, 1)], n=60), fit) == ()


def test_what_cannot_be_held_out_is_said(rows):
    X, y = rows
    with pytest.raises(InputError, match="dask array"):
        held_out(da.from_array(X), mf.Labels(y), fit)
    with pytest.raises(InputError, match="folds must be"):
        held_out(X, mf.Labels(y), fit, folds=0)
    with pytest.raises(InputError, match=r"fit must return .*metric\.start"):
        held_out(X, mf.Labels(y), lambda A, c: replace(fit(A, c), start=None))


def test_only_the_folds_that_are_fitted_are_made(rows, monkeypatch):
    X, y = rows
    made = []
    touching = mf.Labels._touching
    monkeypatch.setattr(mf.Labels, "_touching", lambda self, out: made.append(out) or touching(self, out))
    held_out(X, mf.Labels(y), fit, folds=1)
    assert len(made) == 1
