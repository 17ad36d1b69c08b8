"""Exact searches against a naive sort: ties, tiles, containers, memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from metricforge_cases.neighbors import (
    DATA,
    EXACT,
    constant,
    dense_exact,
    dense_tree,
    far_from_origin,
    gaussian,
    integers,
    mostly_zero,
    naive,
    repeated,
    sorted_clusters,
)
from scipy import sparse

from metricforge import neighbors
from metricforge.errors import InputError
from metricforge.neighbors import exhaustive, scanning


@pytest.mark.parametrize("with_queries", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("make", DATA)
@pytest.mark.parametrize("run", EXACT)
def test_exact_searches_agree_with_a_naive_sort(run, make, dtype, with_queries, rng, monkeypatch):
    X = make(rng, 160).astype(dtype)
    # queries that are rows of X must find themselves, and those that are not have ties of their own
    queries = np.concatenate([make(rng, 40).astype(dtype)[:30], X[::13]]) if with_queries else None
    monkeypatch.setattr(scanning, "TILE_BYTES", 8 * 8000)
    for k in (1, 9, len(X) - 1):
        indices, distances = run(X, k, queries)
        expected = naive(X, X if queries is None else queries, k, exclude_self=queries is None)
        assert indices.dtype == np.int64
        assert distances.dtype == np.float64
        np.testing.assert_array_equal(indices, expected[0])
        np.testing.assert_allclose(distances, expected[1], rtol=1e-13, atol=0)


def test_long_lists_stay_within_a_memory_budget(rng, monkeypatch):
    X = rng.normal(size=(3000, 8))
    expected = neighbors.search(X, 100, method="exact")
    monkeypatch.setenv("METRICFORGE_MEMORY", "40MB")
    tracemalloc.start()
    indices, distances = neighbors.search(X, 100, method="exact")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak - indices.nbytes - distances.nbytes < 25e6  # 40e6 where tiles have a fixed size
    np.testing.assert_array_equal(indices, expected[0])
    np.testing.assert_array_equal(distances, expected[1])


def test_whole_rows_and_fractional_queries(rng):
    X = 1e6 + integers(rng, 150)
    queries = X[:40] + 0.3 * rng.random((40, 3))
    indices, distances = dense_exact(X, 6, queries)
    expected = naive(X, queries, 6, exclude_self=False)
    np.testing.assert_array_equal(indices, expected[0])
    np.testing.assert_allclose(distances, expected[1], rtol=1e-13, atol=0)


@pytest.mark.parametrize("share", [0.0, 2.0])
@pytest.mark.parametrize("container", [sparse.csr_array, sparse.csr_matrix])
def test_sparse_and_dense_products_find_the_same(share, container, rng, monkeypatch):
    monkeypatch.setattr("metricforge.neighbors.scanning.DENSE_SHARE", share)
    X, A = mostly_zero(rng, 200), mostly_zero(rng, 20)
    found = neighbors.search(container(X), 7, method="exact")
    np.testing.assert_array_equal(found[0], naive(X, X, 7, exclude_self=True)[0])
    found = neighbors.search(container(X), 7, queries=container(A), method="exact")
    np.testing.assert_array_equal(found[0], naive(X, A, 7, exclude_self=False)[0])


def wide(rng, n):
    return rng.standard_normal((10, 9001))[rng.integers(0, 10, 30)]


@pytest.mark.parametrize("make", [gaussian, repeated, integers, sorted_clusters, mostly_zero, wide])
@pytest.mark.parametrize("run", EXACT[:3])
def test_tiles_do_not_change_a_bit(run, make, rng, monkeypatch):
    if make is wide and run is dense_tree:
        make = far_from_origin
    X = make(rng, 200)
    whole = run(X, 6, None)
    for numbers, queries in [(1500, 11), (4000, 1024), (10000, 64)]:
        monkeypatch.setattr(scanning, "TILE_BYTES", 8 * numbers)
        monkeypatch.setattr(scanning, "TILE_QUERIES", queries)
        found = run(X, 6, None)
        np.testing.assert_array_equal(found[0], whole[0])
        np.testing.assert_array_equal(found[1], whole[1])


def test_symmetric_distances(rng):
    X = rng.standard_normal((80, 30))
    indices, distances = dense_exact(X, 79, None)
    D = np.zeros((80, 80))
    np.put_along_axis(D, indices, distances, axis=1)
    np.testing.assert_array_equal(D, D.T)


def count_pairs(monkeypatch):
    """Record the number of pairs of every call that measures distances by subtraction."""
    measured = []
    original = exhaustive.pair_distances

    def counted(X, Q, rows, cols):
        measured.append(rows.size)
        return original(X, Q, rows, cols)

    monkeypatch.setattr(exhaustive, "pair_distances", counted)
    return measured


@pytest.mark.parametrize("order", ["random", "sorted"])
def test_exact_measures_few_pairs_anew(order, rng, monkeypatch):
    X = rng.standard_normal((1500, 6)) + 10 * rng.integers(0, 8, (1500, 1))
    if order == "sorted":
        X = X[np.argsort(X.sum(axis=1))]
    measured = count_pairs(monkeypatch)
    monkeypatch.setattr(scanning, "TILE_BYTES", 8 * 125 * 125)
    monkeypatch.setattr(scanning, "TILE_QUERIES", 125)
    dense_exact(X, 5, None)
    # Each of the 12 tiles may add 2k candidates a query, and k to lower its bound; a naive search measures 1500.
    assert 1500 * 5 <= sum(measured) <= 1500 * 12 * 3 * 5


def test_duplicates_end_the_scan_early(monkeypatch):
    X = np.full((3000, 4), 0.3)
    measured = count_pairs(monkeypatch)
    monkeypatch.setattr(scanning, "TILE_BYTES", 8 * 128 * 128)
    dense_exact(X, 5, None)
    assert sum(measured) < 3000 * 300


@pytest.mark.parametrize("make", [gaussian, constant])
def test_exact_holds_no_square_array(make, rng):
    X = make(rng, 6000)
    sparse.csr_array(X[:2])  # SciPy is imported before the count starts
    tracemalloc.start()
    try:
        neighbors.search(X, 5, method="exact")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 120e6 < 6000**2 * 4


def test_canonical_form_is_made_on_a_copy():
    indptr, indices, data = np.array([0, 3, 4, 5]), np.array([2, 0, 2, 1, 0]), np.array([1.0, 5.0, 1.0, 3.0, 1.0])
    X = sparse.csr_array((data, indices, indptr), shape=(3, 3))
    found, distances = neighbors.search(X, 2, method="exact")
    expected = naive(X.toarray(), X.toarray(), 2, exclude_self=True)
    np.testing.assert_array_equal(found, expected[0])
    np.testing.assert_allclose(distances, expected[1])
    assert X.nnz == 5


def test_lists_are_the_same_to_the_last_bit_whatever_part_of_a_tile_products_fill(monkeypatch):
    X = np.random.default_rng(0).normal(size=(3000, 16))
    shapes, found = [], []
    shape = scanning.tile_shape
    monkeypatch.setattr(scanning, "tile_shape", lambda *args: shapes.append(shape(*args)) or shapes[-1])
    for share in (1, scanning.SINGLE_SHARE, 64):
        monkeypatch.setattr(scanning, "SINGLE_SHARE", share)
        found.append(neighbors.search(X, 10, method="exact"))
    assert len(set(shapes)) == 3
    for indices, distances in found[1:]:
        assert np.array_equal(indices, found[0][0])
        assert np.array_equal(distances, found[0][1])


@pytest.mark.parametrize("make", [sparse.csr_array, sparse.csr_matrix])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_searches_of_rows_with_few_entries_agree_with_a_naive_sort(make, dtype, rng):
    """Products of sparse rows give bounds in place of distances: wrong ones lose neighbours here only."""
    X = sparse.random_array((400, 6000), density=0.004, rng=rng, data_sampler=rng.standard_normal).astype(dtype)
    for k in (1, 5):
        indices, distances = neighbors.search(make(X), k, method="exact")
        expected = naive(X.toarray().astype(np.float64), X.toarray().astype(np.float64), k, exclude_self=True)
        np.testing.assert_array_equal(indices, expected[0])
        np.testing.assert_allclose(distances, expected[1], rtol=1e-6)


@pytest.mark.parametrize("recall", [0, 1.5, -1])
def test_a_recall_that_is_no_share_is_refused(recall, rng):
    for search in (neighbors.search, neighbors.search_with_recall):
        with pytest.raises(InputError, match="recall must be a number above 0 and at most 1"):
            search(rng.normal(size=(9, 2)), 2, recall=recall)
