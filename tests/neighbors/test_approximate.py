"""The search by cells: recall, exactness within the cells, determinism."""

from __future__ import annotations

import numpy as np
import pytest

from metricforge import neighbors
from metricforge.errors import InputError
from metricforge.neighbors import approximate, partition
from metricforge.neighbors.probing import Members, probe


def mixture(n, d, seed=0, spread=2.0):
    rng = np.random.default_rng(seed)
    centres = spread * rng.standard_normal((30, d))
    return centres[rng.integers(30, size=n)] + rng.standard_normal((n, d))


@pytest.mark.parametrize("wanted", [0.8, 0.95])
def test_recall_is_what_was_asked_for_and_what_is_reported(wanted):
    X = mixture(20_000, 8)
    (indices, _), estimate = neighbors.search_with_recall(X, 10, method="cells", recall=wanted)
    measured = neighbors.recall(indices, X, sample=400, seed=3)
    assert measured >= wanted - 0.02
    assert abs(estimate - measured) < 0.03
    assert estimate < 1  # some neighbours are missed: the search is not an exact one in disguise


def test_lists_are_the_nearest_of_the_rows_in_the_cells():
    rng = np.random.default_rng(0)
    X, Q = rng.standard_normal((600, 5)), rng.standard_normal((40, 5))
    home = rng.integers(12, size=600)
    members = partition.members_of(X, home, 12)
    probes = np.argsort(rng.random((40, 12)), axis=1)[:, :4]
    probes[3, 2:] = -1
    indices, distances = probe(Q, probes, members, 7)
    for i, cells in enumerate(probes):
        inside = np.flatnonzero(np.isin(home, cells))
        near, far = neighbors.search(X[inside], 7, queries=Q[i : i + 1], method="exact")
        np.testing.assert_array_equal(indices[i], inside[near[0]])
        np.testing.assert_array_equal(distances[i], far[0])


def test_too_few_rows_in_the_cells_leave_places_empty():
    X = np.arange(6.0)[:, None]
    members = Members(X, np.arange(6), np.array([0, 2, 6]))
    indices, distances = probe(np.zeros((1, 1)), np.array([[0]]), members, 3, own=np.array([0]))
    np.testing.assert_array_equal(indices, [[1, -1, -1]])
    np.testing.assert_array_equal(distances, [[1, np.inf, np.inf]])


@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1.0, 1e40])
def test_bounds_hold_at_every_scale(scale):
    X = scale * mixture(3000, 6)
    members = partition.members_of(X, np.zeros(3000, dtype=int), 1)
    indices, distances = probe(X[:200], np.zeros((200, 1), dtype=int), members, 5, own=np.arange(200))
    wanted = neighbors.search(X, 6, queries=X[:200], method="exact")
    np.testing.assert_array_equal(indices, wanted[0][:, 1:])
    np.testing.assert_array_equal(distances, wanted[1][:, 1:])


def test_tight_clusters_far_apart_are_found_exactly():
    rng = np.random.default_rng(1)
    X = 1e3 * rng.integers(4, size=(2000, 1)) + 1e-6 * rng.standard_normal((2000, 12))
    members = partition.members_of(X, np.zeros(2000, dtype=int), 1)
    indices, _ = probe(X[:100], np.zeros((100, 1), dtype=int), members, 4)
    np.testing.assert_array_equal(indices, neighbors.search(X, 4, queries=X[:100], method="tree")[0])


def test_many_duplicates_are_listed_by_number():
    X = np.repeat(np.array([[0.3, 0.1], [5.0, 2.0]]), 4000, axis=0)
    indices, distances = neighbors.search(X, 3, method="cells")
    np.testing.assert_array_equal(
        indices[[0, 9, 4000, 7999]], [[1, 2, 3], [0, 1, 2], [4001, 4002, 4003], [4000, 4001, 4002]]
    )
    assert not distances.any()


def test_cells_of_a_row_depend_on_that_row_only(monkeypatch):
    monkeypatch.setattr(partition, "ONE_GROUP", 256)
    X = mixture(40_000, 6)
    cells = partition.learn_cells(X[partition.sample_rows(len(X), 900, 0)], 900, 0)
    assert len(cells.groups) > 1
    near = cells.nearest(X[:500], 7)
    np.testing.assert_array_equal(near[137:201], cells.nearest(X[137:201], 7))
    around = cells.around(X[:500], 7)
    np.testing.assert_array_equal(around[137:201], cells.around(X[137:201], 7))
    for found in (near, around):
        distances = np.linalg.norm(X[:500, None] - cells.centres[found], axis=2)
        assert (np.diff(distances, axis=1) >= 0).all()
    assert (near == around).mean() > 0.95
    # lists without products in float32
    monkeypatch.setattr(partition.probing, "search_lists", lambda *args: None)
    np.testing.assert_array_equal(cells.around(X[:100], 7), around[:100])


def test_many_nearest_cells_of_all_groups_are_found_without_a_second_search(rng, monkeypatch):
    X = rng.standard_normal((partition.BATCH, 12))
    cells = partition.learn_cells(X, 2500, 0)
    assert len(cells.groups) > 1
    monkeypatch.setattr(partition, "probe", None)
    near = cells.nearest(X, 300)
    apart = np.linalg.norm(X[:50, None] - cells.centres, axis=2)
    np.testing.assert_array_equal(near[:50], np.argsort(apart, axis=1)[:, :300])


def test_rows_without_structure_are_compared_with_all():
    X = np.random.default_rng(0).standard_normal((3000, 40))
    (indices, _), estimate = neighbors.search_with_recall(X, 5, method="cells", recall=0.99)
    assert estimate == 1.0
    np.testing.assert_array_equal(indices, neighbors.search(X, 5, method="exact")[0])


def test_plan_counts_ties_and_keeps_half_of_the_rows_for_the_estimate():
    cells = partition.Cells(np.arange(8.0)[:, None], np.zeros((1, 1)), np.array([0, 8]))
    rows = np.full((10, 1), 0.2)  # nearest cells 0, 1, 2, ...
    # k = 2: the second neighbour is tied, and one of the tied rows is in the second cell
    homes, distances = np.tile([0, 3, 1], (10, 1)), np.tile([1.0, 2.0, 2.0], (10, 1))
    assert approximate.plan(cells, rows, homes, distances, 2, 0.95) == (2, 1.0)
    homes = np.repeat([[0, 0], [1, 1]], 5, axis=0)
    assert approximate.plan(cells, rows, homes, np.ones((10, 2)), 2, 0.95) == (1, 0.0)
    assert approximate.plan(cells, rows, homes, np.ones((10, 2)), 2, 0.95, judges=6) == (2, 1.0)
    # one row in ten has its neighbours in the second cell: 0.9 in the first, with a standard error of 0.03
    rows, homes = np.full((100, 1), 0.2), np.zeros((100, 2), dtype=int)
    homes[::10] = 1
    for judges, margin, wanted in [(100, 1.0, 1), (100, 2.0, 2), (50, 1.0, 2)]:
        found = approximate.plan(cells, rows, homes, np.ones((100, 2)), 2, 0.86, judges=judges, margin=margin)
        assert found.cells == wanted


def test_queries(rng):
    X, A = mixture(5000, 4), mixture(300, 4)[:300]
    indices, distances = neighbors.search(X, 3, queries=A, method="cells")
    wanted = neighbors.search(X, 3, queries=A, method="exact")
    assert (indices == wanted[0]).mean() > 0.9
    assert (distances >= wanted[1]).all()


def test_the_sample_in_this_process_is_bounded(monkeypatch):
    assert partition.cell_count(10**9) == partition.cell_count(10**8) == 2**17
    monkeypatch.setattr(partition, "MOST_SAMPLED", 1000)
    assert len(partition.sample_rows(50_000, partition.cell_count(50_000), 0)) == 1000
    assert partition.cell_count(50_000) == 125
    assert partition.cell_count(10**6) == 250


def test_recall_out_of_range_is_refused():
    with pytest.raises(InputError, match="recall"):
        neighbors.search(np.eye(4), 1, recall=1.5)
