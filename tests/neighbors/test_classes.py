"""Nearest rows of the same class and of others, against a search by hand."""

from __future__ import annotations

import numpy as np
import pytest

from metricforge.neighbors import graphs, nearest_by_class, other_classes_within


def by_hand(Z, codes, query, k, *, same):
    rows = np.flatnonzero((codes == codes[query]) == same)
    rows = rows[rows != query]
    D = np.linalg.norm(Z[rows] - Z[query], axis=1)
    order = np.lexsort((rows, D))[:k]
    return rows[order], D[order]


@pytest.mark.parametrize("chosen", [None, np.arange(60), np.array([3, 17, 18, 44])], ids=["rows", "all asked", "some"])
@pytest.mark.parametrize("k", [1, 4, 100])
def test_each_query_gets_its_nearest_of_both_kinds(k, chosen, rng):
    Z, codes = rng.normal(size=(60, 9)), rng.integers(3, size=60)
    codes[59] = 3  # alone in its class
    seen = []
    for found in nearest_by_class(Z, codes, k, queries=chosen):
        assert len(set(codes[found.queries])) == 1
        for kind, same in (("same", True), ("other", False)):
            index, distance = getattr(found, kind)
            for row, query in enumerate(found.queries):
                rows, D = by_hand(Z, codes, query, k, same=same)
                np.testing.assert_array_equal(index[row], rows)
                np.testing.assert_allclose(distance[row], D, rtol=1e-12)
        seen.extend(found.queries.tolist())
    assert sorted(seen) == sorted(range(60) if chosen is None else chosen.tolist())


def test_a_query_behind_its_duplicates_is_left_out_all_the_same():
    Z, codes = np.zeros((6, 2)), np.array([0, 0, 0, 0, 0, 1])
    (found,) = nearest_by_class(Z, codes, 2, queries=np.array([4]))
    np.testing.assert_array_equal(found.same[0], [[0, 1]])
    np.testing.assert_array_equal(found.other[0], [[5]])


@pytest.mark.parametrize("unit", [1.0, 1e25])  # 1e25: squares overflow in float32, in which pairs are sought
@pytest.mark.parametrize("n", [1, 50, 1500])  # 1500: more than one block
def test_rows_of_other_classes_within_a_radius(n, unit, rng):
    Z, codes = unit * (rng.normal(size=(n, 5)) + 1e3), rng.integers(4, size=n)
    radius = unit**2 * rng.uniform(-0.2, 3, size=n)
    found = [np.empty((3, 0))] + [np.stack(part) for part in other_classes_within(Z, codes, radius)]
    i, j, squared = np.concatenate(found, axis=1)
    D = np.square(Z[:, None] - Z[None]).sum(-1)
    expected = np.nonzero((codes[:, None] != codes) & (radius[:, None] > D))
    order = np.lexsort((j, i))
    np.testing.assert_array_equal(i[order], expected[0])
    np.testing.assert_array_equal(j[order], expected[1])
    np.testing.assert_allclose(squared[order], D[expected], rtol=1e-9)


def test_blocks_in_which_some_rows_ask_for_nothing_are_searched(rng, monkeypatch):
    monkeypatch.setattr(graphs, "BLOCK", 4)
    Z, codes = rng.normal(size=(24, 2)), np.arange(24) % 2
    radius = np.where(np.isin(np.arange(24), [7, 13]), 9.0, -1.0)
    parts = [np.column_stack(part[:2]) for part in other_classes_within(Z, codes, radius)]
    found = set(map(tuple, np.concatenate(parts).tolist()))
    D = np.square(Z[:, None] - Z[None]).sum(axis=-1)
    assert found == set(map(tuple, np.argwhere((radius[:, None] > D) & (codes[:, None] != codes)).tolist()))
