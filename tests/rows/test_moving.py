"""Selecting, stacking and transferring rows; the transfer to workers is tested in test_cluster.py."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp

from metricforge import rows
from metricforge.distributed.chunks import spread

PLAIN = np.random.default_rng(0).normal(size=(50, 5))
STRINGS = np.array([f"row {i}" for i in range(50)], dtype=object)


def dense(X):
    X = rows.gathered(X)
    return X.toarray() if sp.issparse(X) else X


CONTAINERS = {
    "dense": PLAIN,
    "csr": sp.csr_array(PLAIN),
    "strings": STRINGS,
    "dask": da.from_array(PLAIN, chunks=(7, -1)),
    "dask, columns": da.from_array(PLAIN, chunks=(13, 2)),
    "dask strings": da.from_array(STRINGS, chunks=11),
}


@pytest.mark.parametrize("X", CONTAINERS.values(), ids=CONTAINERS.keys())
@pytest.mark.parametrize("index", [[40, 3, 3, 17, 0], [49], [], list(range(50)), list(range(49, -1, -1))], ids=str)
def test_rows_are_taken_in_any_order(X, index):
    index = np.array(index, dtype=int)
    taken = rows.take(X, index)
    assert not rows.is_dask(taken)
    np.testing.assert_array_equal(dense(taken), dense(X)[index])


@pytest.mark.parametrize(
    "names", [("dense", "dense"), ("csr", "csr"), ("strings", "strings"), ("dask", "dense")], ids=str
)
def test_rows_are_stacked(names):
    X, Y = (CONTAINERS[name] for name in names)
    stacked = rows.stack(X, Y[:3])
    assert rows.is_dask(stacked) == rows.is_dask(X)
    np.testing.assert_array_equal(dense(stacked), np.concatenate([dense(X), dense(Y)[:3]]))


def test_draws_are_distinct_sorted_and_depend_on_the_seed_alone():
    drawn = rows.draw(1000, 100, 3)
    assert len(np.unique(drawn)) == 100
    assert (np.diff(drawn) > 0).all()
    assert 0 <= drawn[0] <= drawn[-1] < 1000
    np.testing.assert_array_equal(drawn, rows.draw(1000, 100, 3))
    assert not np.array_equal(drawn, rows.draw(1000, 100, 4))
    for size in (5, 6):
        np.testing.assert_array_equal(rows.draw(5, size, 0), np.arange(5))


@pytest.mark.parametrize("X", [PLAIN, STRINGS, CONTAINERS["csr"]], ids=["dense", "strings", "csr"])
def test_rows_in_memory_stay_without_a_client(X):
    assert spread(X) is X
    assert rows.gathered(X) is X


@pytest.mark.parametrize("share", [1000, 25, 3])
def test_some_of_many_rows_are_drawn_without_an_array_of_all(share):
    import tracemalloc

    n = 1_000_000
    rows.draw(n, 10, 0)  # imports
    tracemalloc.start()
    try:
        found = rows.draw(n, n // share, 7)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(found) == n // share
    assert found[0] >= 0
    assert found[-1] < n
    assert (np.diff(found) > 0).all()
    np.testing.assert_array_equal(found, rows.draw(n, n // share, 7))
    # uniform: each tenth of the rows has a tenth of them, within five standard errors
    counts = np.bincount(found * 10 // n, minlength=10) / len(found)
    assert np.abs(counts - 0.1).max() < 5 * (0.09 / len(found)) ** 0.5
    assert peak < 60 * len(found) + 1e6
