"""Candidates in float32: the answer of the search of cells, or none."""

from __future__ import annotations

import numpy as np
import pytest

from metricforge.neighbors import partition, probing
from metricforge.neighbors.probing import probe, visits


def prepared(X, home, count):
    members = partition.members_of(X, home, count)
    middle = X.mean(axis=0)
    return members, probing.Coarse(*probing.prepared(members.rows, middle), middle)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("wide", [0, 8])
@pytest.mark.parametrize("k", [1, 7, 60])
def test_the_answer_is_that_of_the_search_of_cells(k, wide, dtype, monkeypatch):
    monkeypatch.setattr(probing, "FLOAT_STAGE", 2)  # several stages
    monkeypatch.setattr(probing, "WIDE", wide)
    rng = np.random.default_rng(k)
    X, Q = (rng.standard_normal((m, 9)).astype(dtype) for m in (2000, 150))
    home = rng.integers(40, size=2000)  # cells of 50 rows: fewer than k in the last case
    members, bounds = prepared(X, home, 40)
    probes = np.argsort(rng.random((150, 40)), axis=1)[:, :7]
    probes[3, 2:], probes[5] = -1, -1
    found, wanted = probing.search_float(Q, probes, members, bounds, k), probe(Q, probes, members, k)
    np.testing.assert_array_equal(found[0], wanted[0])
    np.testing.assert_array_equal(found[1], wanted[1])


def test_rounding_in_float32_misplaces_no_row():
    rng = np.random.default_rng(2)
    # distances of 1e-3 between rows of norm 10: float32 cannot order them, the distances that follow can
    X = 10 * rng.standard_normal((1, 12)) + 1e-3 * rng.standard_normal((900, 12))
    members, bounds = prepared(np.concatenate([X, -X]), np.zeros(1800, dtype=int), 1)
    Q, probes = X[:50] + 1e-4, np.zeros((50, 1), dtype=int)
    found, wanted = probing.search_float(Q, probes, members, bounds, 5), probe(Q, probes, members, 5)
    np.testing.assert_array_equal(found[0], wanted[0])


def test_none_where_bounds_do_not_tell_rows_apart(monkeypatch):
    monkeypatch.setattr(probing, "MOST_CANDIDATES", 2000)
    X = np.repeat(np.random.default_rng(0).standard_normal((2, 3)), 500, axis=0)
    members, bounds = prepared(X, np.zeros(1000, dtype=int), 1)
    assert probing.search_float(X[:20], np.zeros((20, 1), dtype=int), members, bounds, 2) is None
    huge = 1e30 * X
    members, bounds = prepared(huge, np.zeros(1000, dtype=int), 1)
    assert probing.search_float(huge[:20], np.zeros((20, 1), dtype=int), members, bounds, 2) is None


def test_visits_group_queries_by_cell():
    found = [(cell, queries.tolist()) for cell, queries in visits(np.array([[2, 0], [0, -1], [2, 5]]))]
    assert found == [(0, [0, 1]), (2, [0, 2]), (5, [2])]
    assert not list(visits(np.full((3, 2), -1)))
