"""Passes over neighbours of neighbours: what a pass does, when passes end, the same lists on dask."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest

from metricforge import neighbors
from metricforge.neighbors import approximate, hop_chunks, hops, refining


def overlapping(n=16_000, d=20, seed=0):
    """Return rows in clusters that overlap, whose neighbours are in many cells."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((60, d))
    return centres[rng.integers(60, size=n)] + rng.standard_normal((n, d))


@pytest.fixture
def passes(monkeypatch):
    """Count the passes."""
    done = []

    def counted(*args):
        done.append(1)
        return run(*args)

    run = hops.one_pass
    monkeypatch.setattr(hops, "one_pass", counted)
    monkeypatch.setattr(hop_chunks, "one_pass", counted)
    return done


def lists_of(X, k, seed=0):
    """Return random lists of some rows, by square."""
    rng = np.random.default_rng(seed)
    positions = np.array([rng.permutation(np.delete(np.arange(len(X)), i))[:k] for i in range(len(X))])
    squares = np.square(X[:, None] - X[positions]).sum(axis=2)
    order = np.argsort(squares, axis=1)
    return hops.HopLists(
        np.take_along_axis(positions, order, axis=1).astype(np.int32),
        np.take_along_axis(squares, order, axis=1).astype(np.float32),
        np.ones(positions.shape, dtype=bool),
    )


def test_a_pass_finds_the_nearest_among_neighbours_of_neighbours(rng):
    X = rng.standard_normal((80, 3)).astype(np.float32)
    before = lists_of(X, 4)
    who, fresh = hops.listing_rows(before, 0, 80, 2)
    after = hops.one_pass(X, before, (who, fresh))
    for i in range(80):
        # the rows that list i, by their place for it, then by number
        listing = [z for place in range(4) for z in np.flatnonzero(before.positions[:, place] == i)][:2]
        assert [z for z in who[i] if z >= 0] == listing
        middle = {*before.positions[i].tolist(), *listing}
        compared = np.array(sorted({*middle, *before.positions[list(middle)].ravel().tolist()} - {i}))
        nearest = compared[np.argsort(np.square(X[compared] - X[i]).sum(axis=1))][:4]
        np.testing.assert_array_equal(after.positions[i], nearest)
        np.testing.assert_array_equal(after.fresh[i], ~np.isin(nearest, before.positions[i]))


def test_old_entries_of_old_neighbours_are_not_compared_again(rng):
    X = rng.standard_normal((60, 3)).astype(np.float32)
    before = lists_of(X, 5)
    old = before._replace(fresh=np.zeros_like(before.fresh))
    nobody = np.full((60, 0), -1, dtype=np.int32), np.zeros((60, 0), dtype=bool)
    np.testing.assert_array_equal(hops.one_pass(X, old, nobody).positions, before.positions)


def test_passes_reach_the_recall_asked_for(passes):
    X = overlapping()
    (indices, distances), estimate = neighbors.search_with_recall(X, 10, method="cells", recall=0.95)
    assert passes
    measured = neighbors.recall(indices, X, sample=400, seed=3)
    assert measured >= 0.94
    assert abs(estimate - measured) < 0.02
    assert (np.diff(distances, axis=1) >= 0).all()
    rows = np.arange(len(X))[:, None]
    np.testing.assert_allclose(distances, np.linalg.norm(X[indices] - X[rows], axis=2), rtol=1e-12)
    assert (indices != rows).all()


@pytest.mark.parametrize("sizes", [(16_000,), (7000, 100, 5000, 3900)])
def test_lists_of_chunks_are_those_in_memory(sizes, passes):
    X = overlapping().astype(np.float32)
    wanted, recall = neighbors.search_with_recall(X, 10, method="cells")
    assert len(passes) > 0
    passes.clear()
    found, estimate = neighbors.search_with_recall(da.from_array(X, chunks=(sizes, -1)), 10, method="cells")
    assert len(passes) > 0
    assert estimate == recall
    np.testing.assert_array_equal(found[0].compute(scheduler="sync"), wanted[0])
    np.testing.assert_array_equal(found[1].compute(scheduler="sync"), wanted[1])


@pytest.mark.parametrize("chunks", [None, 9000])
def test_more_cells_are_searched_where_passes_fail(chunks, monkeypatch):
    X = overlapping()
    rows = X if chunks is None else da.from_array(X, chunks=(chunks, -1))
    for module in (refining, hop_chunks):
        monkeypatch.setattr(module, "LEAST_GAIN", 1.0)
    lists, estimate = neighbors.search_with_recall(rows, 10, method="cells")
    indices = np.asarray(lists[0])
    assert estimate > 0.94
    assert neighbors.recall(indices, X, sample=400) > 0.94


def test_rows_that_float32_does_not_hold_are_left_to_the_cells(passes):
    X = 1e25 * overlapping(n=14_000)
    found = refining.refined(X, *_cells(X))
    assert found is None
    assert not passes


def _cells(X):
    cells = approximate.learn_cells(X[:2000], 40, 0)
    home = cells.nearest(X, 1)[:, 0]
    return cells, home, 8, refining.Sample(np.arange(3), np.ones(3), 5, 0.9)


def test_what_a_sample_has_reached():
    sample = refining.Sample(np.arange(4), np.array([1.0, 1.0, 2.0, 2.0]), 2, 0.95)
    shares = sample.shares(np.array([[0.5, 1.0, 1.0], [0.1, 0.2, 9.0], [1.0, 3.0, 4.0], [1.0, 2.0, 2.0]]))
    np.testing.assert_array_equal(shares, [1, 1, 0.5, 1])
    assert sample.reached(shares)  # the first half
    assert sample.estimate(shares) == 0.75
