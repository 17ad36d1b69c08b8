"""Dask arrays of rows: their chunks, and the graphs over them."""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
import pytest

import metricforge as mf
from metricforge import rows
from metricforge.distributed import chunks, tasks
from metricforge.errors import InputError
from metricforge.kernels import RBF

X = np.random.default_rng(0).normal(size=(50, 5))


def optimized(lazy):
    (made,) = dask.optimize(lazy)
    return dict(made.__dask_graph__())


# -------------------------------------------------------------------------------------------------------------- chunks


def test_unknown_chunk_sizes_are_refused_with_the_repair():
    lazy = da.from_array(X, chunks=(10, -1))
    with pytest.raises(InputError, match=r"^rows is a dask array with unknown chunk sizes; call rows\.compute_"):
        chunks.whole_rows(lazy[lazy[:, 0] > 0], "rows", 2)


@pytest.mark.parametrize("sizes", [((20, 0, 30), (5,)), ((20, 30), (2, 3)), ((0, 50), (1, 4))], ids=str)
def test_chunks_hold_whole_rows_and_at_least_one(sizes):
    made = chunks.whole_rows(da.from_array(X, chunks=sizes), "X", 2)
    assert made.chunks == (tuple(size for size in sizes[0] if size), (5,))
    np.testing.assert_array_equal(made.compute(scheduler="sync"), X)


def test_good_chunks_are_not_touched():
    lazy = da.from_array(X, chunks=(20, -1))
    assert chunks.whole_rows(lazy, "X", 2) is lazy
    assert chunks.as_dask(lazy) is lazy
    assert chunks.limit_chunks(lazy, 1) is lazy


def test_rows_in_memory_become_one_chunk_or_the_chunks_asked_for():
    assert chunks.as_dask(X).numblocks == (1, 1)
    assert chunks.as_dask(X, (20, -1)).chunks == ((20, 20, 10), (5,))
    made = chunks.split(X, 20)
    assert made.chunks == ((20, 20, 10), (5,))
    np.testing.assert_array_equal(made.compute(scheduler="sync"), X)


def test_large_chunks_are_split_evenly(monkeypatch):
    monkeypatch.setattr("metricforge.distributed.cluster.task_bytes", lambda: 160)
    lazy = da.from_array(X, chunks=((4, 41, 5), (5,)))
    assert chunks.limit_chunks(lazy, 8).chunks[0] == (4, 14, 14, 13, 5)
    assert chunks.limit_chunks(lazy, 10**6).chunks[0] == (1,) * 50


def test_the_rows_of_each_chunk():
    lazy = da.from_array(X, chunks=((20, 25, 5), (5,)))
    assert chunks.chunk_ranges(lazy) == [range(20), range(20, 45), range(45, 50)]
    assert [key[1:] for key, _ in chunks.row_chunks(lazy)] == [(0, 0), (1, 0), (2, 0)]


# ----------------------------------------------------------------------------------------------------------- selection


def test_rows_are_selected_from_the_chunks_that_contain_them_only(tmp_path):
    A = np.random.default_rng(0).normal(size=(400, 5))
    np.save(tmp_path / "rows.npy", A)
    lazy = rows.as_vectors(mf.open_rows(tmp_path / "rows.npy", chunk_rows=20))
    index = np.array([3, 4, 4, 250])
    made = chunks.selected(lazy, index)
    assert len(optimized(made)) < 12  # twenty chunks
    np.testing.assert_array_equal(made.compute(scheduler="sync"), A[index])
    assert rows.take(lazy, np.array([], dtype=int)).shape == (0, 5)


# -------------------------------------------------------------------------------------------------------------- graphs


def test_a_reduction_of_a_gram_matrix_is_one_task_a_block():
    lazy = RBF(0.3)(da.from_array(X, chunks=(10, -1)))
    total = lazy.sum(axis=1)
    sizes = [key for key in optimized(total) if isinstance(key, tuple) and len(key) == 3]
    assert len([key for key in sizes if key[0].startswith("sum")]) == 25 + 10 + 0  # blocks, then sums of up to four
    assert not [key for key in sizes if key[0] == lazy.name]  # no block is a result
    np.testing.assert_allclose(total.compute(scheduler="sync"), RBF(0.3)(X).sum(axis=1))


def nearest(A, B, a_rows, b_rows):
    assert len(A) == len(a_rows)
    assert len(B) == len(b_rows)
    D = np.abs(A[:, None] - B[None]).sum(axis=2)
    best = D.argmin(axis=1)
    return np.array(b_rows)[best, None], D.min(axis=1, keepdims=True)


def least(parts):
    index, distance = (np.concatenate(arrays, axis=1) for arrays in zip(*parts, strict=True))
    best = distance.argmin(axis=1)[:, None]
    return np.take_along_axis(index, best, axis=1), np.take_along_axis(distance, best, axis=1)


@pytest.mark.parametrize("size", [23, 4, 1])
def test_cross_joins_over_the_chunks_of_the_second(size):
    Y = np.random.default_rng(1).normal(size=(23, 5))
    one, other = da.from_array(X, chunks=(20, -1)), da.from_array(Y, chunks=(size, -1))
    index, distance = tasks.cross(nearest, least, one, other, ((1, np.int64), (1, np.float64)))
    assert index.chunks == distance.chunks == ((20, 20, 10), (1,))
    assert index.dtype == np.int64
    D = np.abs(X[:, None] - Y[None]).sum(axis=2)
    found, least_found = dask.compute(index, distance, scheduler="sync")
    np.testing.assert_array_equal(found[:, 0], D.argmin(axis=1))
    np.testing.assert_allclose(least_found[:, 0], D.min(axis=1))


def test_no_task_joins_more_than_the_fan_in():
    widest = []

    def join(parts):
        widest.append(len(parts))
        return sum(parts)

    total = rows.fold(lambda block: float(block.sum()), join, da.from_array(X, chunks=(1, -1)))
    assert total == pytest.approx(X.sum())
    assert max(widest) == tasks.FAN_IN
    assert len(widest) == 7 + 1  # 50 results, 7 joins of up to 8, one of 7


def test_graphs_of_different_work_have_different_names():
    lazy = da.from_array(X, chunks=(20, -1))
    names = {
        tasks.cross(function, join, array, lazy, ((1, np.int64),))[0].name
        for function, join, array in [(nearest, least, lazy), (nearest, list, lazy), (nearest, least, lazy + 1)]
    }
    assert len(names) == 3
