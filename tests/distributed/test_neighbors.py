"""Searches of dask rows."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
from metricforge_cases.neighbors import (
    X5,
)

from metricforge import neighbors
from metricforge.distributed import neighbors as chunks
from metricforge.errors import InputError
from metricforge.neighbors import api as choice


@pytest.mark.parametrize("step", [3, 40, 100])
@pytest.mark.parametrize("whole", [True, False])
def test_chunks_are_searched_one_by_one(step, whole):
    import dask.array as da

    rng = np.random.default_rng(5)
    X = rng.integers(0, 3, size=(100, 4)).astype(float) if whole else rng.normal(size=(100, 4))
    lazy = da.from_array(X, chunks=(step, -1))
    for lazily, wanted in [
        (neighbors.search(lazy, 7), neighbors.search(X, 7)),
        (neighbors.search(lazy, 7, queries=X[:9] + 0.5), neighbors.search(X, 7, queries=X[:9] + 0.5)),
        (neighbors.search(X, 100, queries=lazy), neighbors.search(X, 100, queries=X)),
    ]:
        np.testing.assert_array_equal(lazily[0].compute(scheduler="sync"), wanted[0])
        np.testing.assert_array_equal(lazily[1].compute(scheduler="sync"), wanted[1])


@pytest.mark.parametrize(("threads", "least"), [(1, 2048), (5, 2048), (5, 4)])
@pytest.mark.parametrize("sizes", [(25, 25, 25, 25), (60, 1, 1, 38), (10,) * 10])
def test_joined_chunks_give_the_same_lists(sizes, threads, least, monkeypatch):
    """With many duplicates: of equal rows those with the smallest numbers come first, and none finds itself."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(100, 4))
    X[::3] = X[0]
    monkeypatch.setattr(chunks.cluster, "threads", lambda: threads)
    monkeypatch.setattr(chunks, "LEAST_QUERIES", least)
    lazy = da.from_array(X, chunks=(sizes, -1))
    for k in (1, 7, 99):
        for lazily, wanted in [
            (neighbors.search(lazy, k), neighbors.search(X, k)),
            (neighbors.search(lazy, k, queries=lazy + 0.5), neighbors.search(X, k, queries=X + 0.5)),
        ]:
            np.testing.assert_array_equal(lazily[0].compute(scheduler="sync"), wanted[0])
            np.testing.assert_array_equal(lazily[1].compute(scheduler="sync"), wanted[1])
            assert lazily[0].chunks[0] == sizes


def test_chunks_are_joined_while_there_are_searches_enough(monkeypatch):
    monkeypatch.setattr(chunks.cluster, "threads", lambda: 2)
    lazy = da.zeros((100, 4), chunks=(10, -1))
    assert chunks._joined(lazy, searches=4).chunks[0] == (100,)
    assert chunks._joined(lazy, searches=1).chunks[0] == (20, 20, 20, 20, 20)
    monkeypatch.setattr(chunks, "JOINED_BYTES", 45 * 8 * 4)
    assert chunks._joined(lazy, searches=4).chunks[0] == (40, 40, 20)


def test_queries_are_split_where_there_are_few_searches(monkeypatch):
    monkeypatch.setattr(chunks.cluster, "threads", lambda: 2)
    lazy = da.zeros((30_000, 4), chunks=((10_000, 4000, 1000, 15_000), -1))
    assert chunks._split(lazy, searches=1).chunks[0] == (5000, 5000, 4000, 1000, 7500, 7500)
    assert chunks._split(lazy, searches=2).chunks == lazy.chunks
    monkeypatch.setattr(chunks.cluster, "threads", lambda: 1)
    assert chunks._split(lazy, searches=1) is lazy


def clustered(n=12_000, d=8):
    rng = np.random.default_rng(5)
    centres = 2 * rng.normal(size=(15, d))
    return centres[rng.integers(15, size=n)] + rng.normal(size=(n, d))


@pytest.mark.parametrize("sizes", [(12_000,), (4000, 4000, 4000), (7000, 100, 1900, 3000)])
def test_cells_of_chunks_give_the_lists_of_rows_in_memory(sizes, monkeypatch):
    import dask.array as da

    X = clustered()
    wanted = neighbors.search(X, 6, method="cells")
    found = neighbors.search(da.from_array(X, chunks=(sizes, -1)), 6, method="cells")
    assert found[0].chunks[0] == sizes
    np.testing.assert_array_equal(found[0].compute(scheduler="sync"), wanted[0])
    np.testing.assert_array_equal(found[1].compute(scheduler="sync"), wanted[1])


def test_cells_are_taken_where_every_pair_would_take_too_long(monkeypatch):
    import dask.array as da

    X = clustered()
    lazy = da.from_array(X, chunks=(5000, -1))
    exact = neighbors.search(X, 3, method="exact")[0]
    np.testing.assert_array_equal(neighbors.search(lazy, 3)[0].compute(scheduler="sync"), exact)
    monkeypatch.setattr(choice, "CELLS_SECONDS", 1e-9)
    found = neighbors.search(lazy, 3)[0].compute(scheduler="sync")
    assert 0.93 < (found == exact).mean() < 1
    np.testing.assert_array_equal(neighbors.search(lazy, 3, recall=1)[0].compute(scheduler="sync"), exact)


def test_rows_without_structure_on_dask_are_compared_with_all():
    import dask.array as da

    X = np.random.default_rng(0).standard_normal((2000, 40))
    found = neighbors.search(da.from_array(X, chunks=(900, -1)), 4, method="cells", recall=0.99)[0]
    np.testing.assert_array_equal(found.compute(scheduler="sync"), neighbors.search(X, 4, method="exact")[0])


def test_dask_rows_are_not_computed_behind_the_back():
    import dask.array as da

    with pytest.raises(InputError, match=r"X\.compute\(\)"):
        neighbors.recall(np.zeros((5, 1), dtype=int), da.from_array(X5))


def test_chunks_of_unknown_size_are_named(rng):
    rows = da.from_array(rng.normal(size=(9, 2)), chunks=(3, -1))
    with pytest.raises(InputError, match=r"^X is a dask array with unknown chunk sizes; call X.compute_chunk_sizes"):
        neighbors.search(rows[rows[:, 0] > 0], 1)


@pytest.mark.parametrize("value", [1.7e308, 1e160, np.nan])
@pytest.mark.parametrize("method", ["cells", "exact"])
def test_rows_on_dask_that_have_no_distances_are_refused(method, value):
    X = da.from_array(np.array([[value], [1.0], [2.0], [3.0]]), chunks=(2, -1))
    with pytest.raises(InputError, match=r"overflow|NaN"):
        neighbors.search(X, 1, method=method, recall=0.5)[1].compute()
