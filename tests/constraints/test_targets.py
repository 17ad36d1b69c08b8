"""Targets: a number per row, what it means for distances, and what it never becomes."""

from __future__ import annotations

import numpy as np
import pytest

import metricforge as mf
from metricforge.constraints import Distances
from metricforge.errors import InputError
from metricforge.kernels import Linear
from metricforge.testing import check_constraint

Y = np.round(np.random.default_rng(0).normal(size=40), 2)


def test_the_conformance_kit():
    check_constraint(mf.Targets(Y))
    check_constraint(mf.Targets(np.where(np.arange(40) % 5, Y, np.nan)))


def test_values_and_what_is_unknown():
    targets = mf.Targets([1, None, 2.5, float("nan")])
    assert (targets.n, targets.size, targets.known.tolist()) == (4, 2, [0, 2])
    assert targets.describe() == "2 values from 1 to 2.5"
    assert targets[[2, 0]].y.tolist() == [2.5, 1]
    with pytest.raises(InputError, match=r"y holds 'b' in row 1, which is no number; classes are mf.Labels"):
        mf.Targets([1.0, "b"])
    with pytest.raises(InputError, match=r"y is infinite in 1 row"):
        mf.Targets([1.0, np.inf])


def test_targets_become_triplets_and_never_labels():
    triplets = mf.Targets(Y).to(mf.Triplets, seed=1)
    i, j, k = Y[triplets.triples].T
    assert triplets.size == 10 * len(Y)
    assert (np.abs(i - j) < np.abs(i - k)).all()
    assert mf.Targets(np.ones(9)).to(mf.Triplets).size == 0
    with pytest.raises(InputError, match="no conversion leads from Targets to Labels"):
        mf.Targets(Y).to(mf.Labels)
    with pytest.raises(InputError, match="no conversion leads from Labels to Targets"):
        mf.Labels(Y).to(mf.Targets)


def test_score_is_one_where_distances_are_those_of_the_values():
    assert mf.Targets(Y).score(Distances(Linear(), Y[:, None])) == 1.0
    noise = np.random.default_rng(1).normal(size=(40, 3))
    assert 0.3 < mf.Targets(Y).score(Distances(Linear(), noise)) < 0.7
    assert "all values of y are equal" in mf.Targets(np.ones(5)).remarks(Distances(Linear(), noise[:5]))[0]


def test_held_out_values_are_compared_with_training_rows_only():
    for rows, held_out in mf.Targets(Y).folds(4, seed=0):
        T = held_out.triples(0)
        assert not np.isin(T[:, 0], rows).any()
        assert np.isin(T[:, 1:], rows).all()
        assert abs(np.median(Y[rows]) - np.median(Y)) < 0.3  # small and large values in every fold


def test_targets_from_a_table():
    assert mf.Targets.from_table({"target": Y}, 40) == mf.Targets(Y)
    with pytest.raises(InputError, match="40 values for 39 rows"):
        mf.Targets.from_table({"target": Y}, 39)


def test_bare_values_mean_what_the_method_declares():
    assert mf.Pairs.of_values([0, 1]) == mf.Labels([0, 1])
    assert mf.Targets.of_values([0, 1]) == mf.Targets([0, 1])


def test_complex_targets_are_refused():
    with pytest.raises(InputError, match=r"^y holds complex numbers; give real ones$"):
        mf.Targets(np.array([1 + 1j, 2.0]))


def test_values_near_the_largest_number_are_compared():
    targets = mf.Targets(np.array([-1.7e308, 0.0, 1.7e308] * 5))
    T = targets.triples()
    assert len(T) > 50
    half = targets.y / 2
    assert (np.abs(half[T[:, 0]] - half[T[:, 1]]) < np.abs(half[T[:, 0]] - half[T[:, 2]])).all()
