"""Random relations from classes: the loops that draw them end, however the numbers fall."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

import metricforge as mf
from metricforge.constraints import drawing
from metricforge.constraints.drawing import draw_components, sample_pairs

CODES = np.repeat(np.arange(20), 10)


@pytest.mark.parametrize("draws", [20, 0])
@pytest.mark.parametrize("components", [0.7, 0.05])
def test_components_are_reached_also_where_no_draw_is_left(monkeypatch, draws, components):
    monkeypatch.setattr(drawing, "DRAWS", draws)
    similar, dissimilar = draw_components(CODES, components, 0)
    n = len(CODES)
    graph = coo_array((np.ones(len(similar)), similar.T), shape=(n, n))
    assert connected_components(graph, directed=False)[0] == max(round(components * n), 20)
    assert (CODES[similar[:, 0]] == CODES[similar[:, 1]]).all()
    assert (CODES[dissimilar[:, 0]] != CODES[dissimilar[:, 1]]).all()
    assert len(np.unique(similar, axis=0)) == len(similar) == len(dissimilar)


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("repeat", [True, False])
def test_pairs_are_drawn_in_a_bounded_number_of_rounds(monkeypatch, same, repeat):
    monkeypatch.setattr(drawing, "ROUNDS", 1)
    found = sample_pairs(CODES, same, 200, np.random.default_rng(0), repeat=repeat)
    assert len(found) == 200 if repeat else 150 < len(found) <= 200
    assert ((CODES[found[:, 0]] == CODES[found[:, 1]]) == same).all()
    monkeypatch.setattr(drawing, "ROUNDS", 200)
    assert len(sample_pairs(CODES, same, 200, np.random.default_rng(0), repeat=repeat)) == 200


NAMES = [np.array(["d", "a", "c", "b"]), np.array([3, 7, 1, 0]), np.array([1.5, -2.0, 1e9, 0.0])]


def classes(n=120, seed=0):
    return np.random.default_rng(seed).permutation(np.arange(n) % 10 // 3)  # 0 .. 3, of unequal sizes


@pytest.mark.parametrize("names", NAMES, ids=["strings", "integers", "numbers"])
@pytest.mark.parametrize("components", [None, 0.5])
@pytest.mark.parametrize("kind", [mf.Pairs, mf.Triplets, mf.Quadruplets, mf.Chunklets, mf.Labels])
def test_what_is_drawn_depends_on_the_partition_only(kind, components, names):
    y = classes()
    one, two = (kind.from_labels(labels, components=components, seed=3) for labels in (y, names[y]))
    if kind is mf.Labels:
        assert np.array_equal(one.codes >= 0, two.codes >= 0)
    elif kind is mf.Chunklets:
        assert np.array_equal(*(np.unique(c.codes[:, None] == c.codes, axis=0) for c in (one, two)))
    else:
        assert one == two


@pytest.mark.parametrize("names", NAMES, ids=["strings", "integers", "numbers"])
@pytest.mark.parametrize("most", [10, 60])
def test_folds_and_samples_depend_on_the_partition_only(names, most):
    y = classes()
    for one, two in ((mf.Labels(y), mf.Labels(names[y])), (mf.Chunklets(y // 2), mf.Chunklets(names[y // 2]))):
        for (rows, _), (again, _) in zip(one.folds(2, seed=1), two.folds(2, seed=1), strict=True):
            assert np.array_equal(rows, again)
        assert np.array_equal(one.some_rows(most, seed=2), two.some_rows(most, seed=2))
    small = np.arange(120) // 3  # whole groups are drawn
    renamed = np.random.default_rng(1).permutation(40)[small]
    assert np.array_equal(mf.Labels(small).some_rows(most), mf.Labels(renamed).some_rows(most))
    assert np.array_equal(mf.Chunklets(small).inner_pairs(3), mf.Chunklets(renamed).inner_pairs(3))


@pytest.mark.parametrize("names", NAMES, ids=["strings", "integers", "numbers"])
@pytest.mark.parametrize("method", [entry.name for entry in mf.methods() if entry.name != "mlkr"] + ["auto"])
def test_the_names_of_classes_change_no_metric(method, names):
    y = classes(60)
    X = np.random.default_rng(1).normal(size=(60, 4)) + 1.5 * np.random.default_rng(2).normal(size=(4, 4))[y]
    D, E = (mf.learn(X, mf.Labels(labels), method=method).distance(X) for labels in (y, names[y]))
    assert np.allclose(D, E, rtol=1e-6, atol=1e-6 * D.max())


def test_the_names_of_classes_change_no_random_groups_of_pairs():
    y = classes()
    X = np.random.default_rng(1).normal(size=(120, 4)) + np.random.default_rng(2).normal(size=(4, 4))[y]
    options = {"method": "kcr", "pairs": "random", "n_pairs": 2400}
    D, E = (mf.learn(X, mf.Labels(labels), **options).distance(X) for labels in (y, NAMES[0][y]))
    assert np.allclose(D, E, rtol=1e-6, atol=1e-6 * D.max())


def test_the_names_of_classes_change_no_chunks_of_the_classics():
    y = classes()
    one, two = (mf.classics.Constraints(labels).chunks(12, 4, random_state=0) for labels in (y, NAMES[0][y]))
    assert np.array_equal(one, two)
