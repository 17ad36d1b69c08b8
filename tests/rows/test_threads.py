"""Functions over chunks in threads: the order of results, interrupts, and the same answer on dask."""

from __future__ import annotations

import time
from functools import partial

import dask.array as da
import numpy as np
import pytest

from metricforge.rows import column_range, threads


def test_results_come_in_order_whatever_their_time():
    def slow(i):
        time.sleep(0.02 if i % 3 == 0 else 0)
        return i

    assert list(threads.in_threads(slow, range(20))) == list(range(20))
    with threads.thread_pool(2) as pool:
        assert list(threads.in_threads(slow, range(20), pool)) == list(range(20))
        assert pool.submit(slow, 1).result() == 1  # a given pool stays open


def test_an_error_drops_what_has_not_begun():
    begun = []

    def fails(i):
        begun.append(i)
        time.sleep(0.01)
        raise ValueError(i)

    with pytest.raises(ValueError, match=r"^0$"):
        list(threads.in_threads(fails, range(1000)))
    assert len(begun) < 100


@pytest.mark.parametrize("most", [1, 10**6])
def test_a_pool_has_no_more_threads_than_cores(most):
    with threads.thread_pool(most) as pool:
        assert pool._max_workers == min(most, threads.cores())


def row_sums(chunk):
    return chunk.sum(axis=1)


def test_chunks_in_memory_and_on_dask_give_the_same(rng, monkeypatch):
    X = rng.normal(size=(100, 3))
    lazy = da.from_array(X, chunks=(23, -1))
    monkeypatch.setattr(threads, "CHUNK_ROWS", 7)
    for rows in (X, lazy):
        np.testing.assert_allclose(threads.sum_chunks(partial(np.sum, axis=0), rows), X.sum(axis=0))
        np.testing.assert_array_equal(threads.fold_chunks(partial(np.min, axis=0), threads.least, rows), X.min(axis=0))
        np.testing.assert_allclose(threads.map_chunks(row_sums, rows), X.sum(axis=1))
        low, high = column_range(rows)
        np.testing.assert_array_equal(low, X.min(axis=0))
        np.testing.assert_array_equal(high, X.max(axis=0))


def test_ranges_of_sparse_columns_count_the_zeros():
    from scipy.sparse import csr_array, csr_matrix

    X = np.array([[0.0, 2.0, -1.0], [3.0, 1.0, 0.0]])
    for kind in (csr_array, csr_matrix):
        low, high = column_range(kind(X))
        np.testing.assert_array_equal(low, [0, 1, -1])
        np.testing.assert_array_equal(high, [3, 2, 0])
