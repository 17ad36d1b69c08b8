"""Passes over neighbours of neighbours: what a pass does, when passes end, the same lists on dask."""

from __future__ import annotations

import subprocess
import sys

import dask.array as da
import numpy as np
import pytest

from metricforge import neighbors
from metricforge.distributed import hops as hop_chunks
from metricforge.distributed import neighbors as shards
from metricforge.neighbors import approximate, loops
from metricforge.neighbors.contract import HopLists


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

    run = loops.one_pass
    monkeypatch.setattr(loops, "one_pass", counted)
    return done


def lists_of(X, k, seed=0):
    """Return random lists of some rows, by square."""
    rng = np.random.default_rng(seed)
    positions = np.array([rng.permutation(np.delete(np.arange(len(X)), i))[:k] for i in range(len(X))])
    squares = np.square(X[:, None] - X[positions]).sum(axis=2)
    order = np.argsort(squares, axis=1)
    return HopLists(
        np.take_along_axis(positions, order, axis=1).astype(np.int32),
        np.take_along_axis(squares, order, axis=1).astype(np.float32),
        np.ones(positions.shape, dtype=bool),
    )


def test_a_pass_finds_the_nearest_among_neighbours_of_neighbours(rng):
    X = rng.standard_normal((80, 3)).astype(np.float32)
    before = lists_of(X, 4)
    who, fresh = loops.listing_rows(before, 0, 80, 2)
    after = loops.one_pass(X, before, (who, fresh))
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
    np.testing.assert_array_equal(loops.one_pass(X, old, nobody).positions, before.positions)


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


@pytest.mark.parametrize(("share", "kinds"), [(0.0, ["HopLists"]), (0.6, ["HopLists", "tuple"]), (2.0, ["tuple"])])
def test_lists_do_not_depend_on_which_shards_are_sent_whole(share, kinds, passes, monkeypatch):
    X = overlapping().astype(np.float32)
    wanted, recall = neighbors.search_with_recall(X, 10, method="cells")
    received = set()

    def noted(self, s, shard, lists, who, wanted, others, compared, rows):
        received.update(type(part).__name__ for part, asked in zip(others, wanted, strict=True) if len(asked))
        return run(self, s, shard, lists, who, wanted, others, compared, rows)

    run = hop_chunks.HopSearch.join
    monkeypatch.setattr(hop_chunks.HopSearch, "join", noted)
    monkeypatch.setattr(shards, "WHOLE_SHARE", share)
    monkeypatch.setattr(shards.cluster, "threads", lambda: 5)
    passes.clear()
    found, estimate = neighbors.search_with_recall(da.from_array(X, chunks=(3200, -1)), 10, method="cells")
    assert len(passes) > 0
    assert estimate == recall
    np.testing.assert_array_equal(found[0].compute(scheduler="sync"), wanted[0])
    np.testing.assert_array_equal(found[1].compute(scheduler="sync"), wanted[1])
    assert received == set(kinds)


def test_the_client_does_not_load_the_compiler():
    code = "import sys, metricforge.distributed.hops; assert 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("chunks", [None, 9000])
def test_more_cells_are_searched_where_passes_fail(chunks, monkeypatch):
    X = overlapping()
    rows = X if chunks is None else da.from_array(X, chunks=(chunks, -1))
    monkeypatch.setattr(approximate, "LEAST_GAIN", 1.0)
    lists, estimate = neighbors.search_with_recall(rows, 10, method="cells")
    indices = np.asarray(lists[0])
    assert estimate > 0.94
    assert neighbors.recall(indices, X, sample=400) > 0.94


def test_lists_become_wider_on_rows_without_structure(passes, rng, monkeypatch):
    X = rng.standard_normal((16_000, 24)).astype(np.float32)
    monkeypatch.setattr(approximate, "MOST_CELLS", 2)
    monkeypatch.setattr(approximate, "MOST_CELLS", 2)
    widths = []
    monkeypatch.setattr(approximate.Sample, "next_width", _noted(approximate.Sample.next_width, widths))
    wanted, recall = neighbors.search_with_recall(X, 10, method="cells", recall=0.9)
    assert widths[-1] == 2 * approximate.list_width(10)
    assert 0.88 < recall < 1
    assert neighbors.recall(wanted[0], X, sample=400, seed=3) > 0.88
    found, estimate = neighbors.search_with_recall(da.from_array(X, chunks=(6000, -1)), 10, method="cells", recall=0.9)
    assert estimate == recall
    np.testing.assert_array_equal(found[0].compute(scheduler="sync"), wanted[0])


def test_the_first_pass_over_wider_lists_is_not_the_last(rng, monkeypatch):
    """It fills the new places, so the recall hardly grows; the next one raises it."""
    X = rng.standard_normal((16_000, 24)).astype(np.float32)
    cells = approximate.learn_cells(X[:2000], 40, 0)
    home, chosen = cells.nearest(X, 1)[:, 0], np.arange(0, 16_000, 40)
    furthest = neighbors.search(X, 10, queries=X[chosen], method="exact")[1][:, -1]
    sample = approximate.Sample(chosen, furthest, 9, 0.97)
    monkeypatch.setattr(approximate, "LEAST_GAIN", 0.02)  # more than that pass adds
    widths = []
    monkeypatch.setattr(approximate.Sample, "next_width", _noted(approximate.Sample.next_width, widths))
    approximate.refined(X, cells, home, 8, approximate.list_width(9), sample)
    assert widths.count(2 * approximate.list_width(9)) >= 2


def _noted(run, results):
    def noted(*args):
        results.append(run(*args))
        return results[-1]

    return noted


@pytest.mark.parametrize(
    ("wide", "recall", "before", "expected"),
    [
        (25, 0.75, 0.0, 25),
        (25, 0.88, 0.75, 25),  # a gain like the last would suffice
        (25, 0.915, 0.88, 25),
        (25, 0.924, 0.915, 50),
        (50, 0.93, 0.92, 50),
        (50, 0.931, 0.93, None),
    ],
)
def test_the_width_of_the_next_pass(wide, recall, before, expected):
    sample = approximate.Sample(np.arange(4), np.ones(4), 20, 0.95)
    assert sample.next_width(wide, recall, before) == expected


def test_what_short_lists_refused_may_enter_wider_ones(rng):
    X = rng.standard_normal((80, 3)).astype(np.float32)
    wide = loops.widened(lists_of(X, 4)._replace(fresh=np.zeros((80, 4), dtype=bool)), 6)
    after = loops.one_pass(X, wide, loops.listing_rows(wide, 0, 80, 2))
    assert (after.positions >= 0).all()
    assert (np.diff(after.squares, axis=1) >= 0).all()
    np.testing.assert_array_equal(wide.positions[:, 4:], -1)


def test_rows_that_float32_does_not_hold_are_left_to_the_cells(passes):
    X = 1e25 * overlapping(n=14_000)
    found = approximate.refined(X, *_cells(X))
    assert found is None
    assert not passes


def _cells(X):
    cells = approximate.learn_cells(X[:2000], 40, 0)
    home = cells.nearest(X, 1)[:, 0]
    return cells, home, 8, 16, approximate.Sample(np.arange(3), np.ones(3), 5, 0.9)


def test_what_a_sample_has_reached():
    sample = approximate.Sample(np.arange(4), np.array([1.0, 1.0, 2.0, 2.0]), 2, 0.95)
    shares = sample.shares(np.array([[0.5, 1.0, 1.0], [0.1, 0.2, 9.0], [1.0, 3.0, 4.0], [1.0, 2.0, 2.0]]))
    np.testing.assert_array_equal(shares, [1, 1, 0.5, 1])
    assert sample.reached(shares)  # the first half
    assert sample.estimate(shares) == 0.75
