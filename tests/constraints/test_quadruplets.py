"""Quadruplets: validation, drawing, conversions in both directions, scores."""

from __future__ import annotations

import numpy as np
import pytest

import metricforge as mf
from metricforge.constraints import Distances
from metricforge.errors import InputError
from metricforge.kernels import Linear
from metricforge.testing import check_constraint

Y = np.arange(30) % 3


def test_the_conformance_kit():
    check_constraint(mf.Quadruplets.from_labels(Y, seed=1))
    check_constraint(mf.Quadruplets([(0, 1, 2, 3), (0, 1, 0, 2), (5, 4, 3, 5)], n=6))


@pytest.mark.parametrize(
    ("quads", "message"),
    [
        ([(0, 0, 1, 2)], r"1 join a row with itself, first quadruplet 0 = \(0, 0, 1, 2\)"),
        ([(0, 1, 2, 3), (0, 1, 3, 3)], r"1 join a row with itself, first quadruplet 1"),
        ([(0, 1, 1, 0)], r"1 name one pair twice, first quadruplet 0 = \(0, 1, 1, 0\)"),
        ([(0, 1, 2, 9)], r"name a row outside 0 \.\. 4"),
        ([(0, 1, 2)], r"must be a list of \(i, j, k, l\) row numbers"),
    ],
)
def test_invalid_quadruplets_are_refused(quads, message):
    with pytest.raises(InputError, match=message):
        mf.Quadruplets(quads, n=5)
    with pytest.raises(InputError, match="n is missing"):
        mf.Quadruplets(quads)


def test_drawn_quadruplets_compare_one_class_with_two():
    drawn = mf.Quadruplets.from_labels(Y, n_quadruplets=500, seed=3)
    a, b, c, d = Y[drawn.quads].T
    assert drawn.size == 500
    assert (a == b).all()
    assert (c != d).all()
    assert mf.Quadruplets.from_labels(Y, components=0.5, seed=0).size > 5
    with pytest.raises(InputError, match="no class has two labelled rows"):
        mf.Quadruplets.from_labels([0, 1, 2])


def test_triplets_become_quadruplets_and_back_without_loss():
    triplets = mf.Triplets.from_labels(Y, n_triplets=200, seed=0)
    quads = triplets.to(mf.Quadruplets)
    assert np.array_equal(quads.quads, triplets.triples[:, [0, 1, 0, 2]])
    assert np.array_equal(quads.to(mf.Triplets).triples, triplets.triples)


def test_only_quadruplets_that_share_a_row_become_triplets():
    shared = [(0, 1, 0, 2), (0, 1, 2, 0), (1, 0, 0, 2), (1, 0, 2, 0)]  # all say: 0 is more like 1 than like 2
    found = mf.Quadruplets([*shared, (0, 1, 2, 3)], n=4, dropped=7).to(mf.Triplets)
    assert np.array_equal(found.triples, [(0, 1, 2)] * 4)
    assert found.dropped == 8


def test_pairs_become_quadruplets_that_share_a_row_where_possible():
    pairs = mf.Pairs([(0, 1), (4, 5)], [(0, 2), (1, 3)], n=6)
    quads = pairs.to(mf.Quadruplets, seed=1).quads
    near, far = {tuple(q) for q in quads[:, :2].tolist()}, {tuple(q) for q in quads[:, 2:].tolist()}
    assert near == {(0, 1), (4, 5)}
    assert far == {(0, 2), (1, 3)}
    touching = quads[quads[:, 0] == 0]
    assert all(set(q[:2]) & set(q[2:]) for q in touching.tolist())
    one_sided = mf.Pairs([(0, 1)], n=6).to(mf.Quadruplets)
    assert (one_sided.size, one_sided.dropped) == (0, 1)


def test_labels_become_quadruplets():
    quads = mf.Labels(Y).to("quadruplets", seed=2)
    assert quads == mf.Quadruplets.from_labels(Y, seed=2)


def test_satisfied_counts_by_distance():
    X = np.array([[0.0], [1.0], [5.0], [7.0]])
    quads = mf.Quadruplets([(0, 1, 2, 3), (2, 3, 0, 1), (0, 1, 0, 3)], n=4)
    found = quads.satisfied(Distances(Linear(), X))
    assert [(part.count, part.total) for part in found] == [(2, 3)]
    assert quads.score(Distances(Linear(), X)) == pytest.approx(2 / 3)
    assert quads.describe() == "3 quadruplets"
    assert quads.links() is None


def test_quadruplets_from_a_table():
    columns = {name: np.array([k, k + 1]) for k, name in enumerate("abcd")}
    assert np.array_equal(mf.Quadruplets.from_table(columns, 9).quads, [(0, 1, 2, 3), (1, 2, 3, 4)])
