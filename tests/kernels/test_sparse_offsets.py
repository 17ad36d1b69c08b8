"""Sparse rows far from the origin: distances agree with those of dense rows."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

import metricforge as mf
from metricforge.kernels import RBF, Laplacian, Linear
from metricforge.kernels.arithmetic import squared_euclidean


@pytest.fixture
def stamps(rng):
    """A column of time stamps beside columns of zeros and ones."""
    return np.c_[1.7e9 + rng.integers(0, 3, 40), rng.integers(0, 2, (40, 3))].astype(np.float64)


@pytest.mark.parametrize("container", [sparse.csr_array, sparse.csr_matrix])
def test_distances_beside_a_large_offset_are_those_of_dense_rows(stamps, container):
    S = container(stamps)
    exact = np.square(stamps[:, None] - stamps[None]).sum(axis=2)
    assert_allclose(squared_euclidean(S, S), exact, atol=1e-6)
    assert_allclose(squared_euclidean(S, stamps), exact, atol=1e-6)
    assert_allclose(squared_euclidean(stamps, S), exact, atol=1e-6)


def test_an_offset_that_some_rows_lack_is_measured_by_differences(stamps):
    stamps[::4, 0] = 0  # this column cannot be shifted without losing the sparsity
    exact = np.square(stamps[:, None] - stamps[None]).sum(axis=2)
    S = sparse.csr_array(stamps)
    assert_allclose(squared_euclidean(S, S), exact, rtol=1e-9)


def test_rows_that_store_a_cell_twice_are_summed_before_the_shift(stamps):
    S = sparse.csr_array(stamps)
    twice = sparse.csr_array((np.repeat(S.data / 2, 2), np.repeat(S.indices, 2), 2 * S.indptr), shape=S.shape)
    assert_allclose(squared_euclidean(twice, twice), squared_euclidean(S, S), atol=1e-6)


def test_the_rows_given_are_not_changed(stamps):
    S = sparse.csr_array(stamps)
    before = S.data.copy()
    squared_euclidean(S, S)
    assert_array_equal(S.data, before)


@pytest.mark.parametrize(
    ("method", "kernel"), [("euclidean", Linear()), ("krca", Linear()), ("krca", RBF(0.1)), ("krca", RBF("median"))]
)
def test_metrics_of_sparse_and_dense_rows_agree(stamps, method, kernel):
    y = np.arange(40) % 3
    dense = mf.learn(stamps, y, method=method, kernel=kernel)
    S = sparse.csr_array(stamps)
    thin = mf.learn(S, y, method=method, kernel=kernel)
    assert_allclose(thin.distance(S), dense.distance(stamps), atol=1e-6 * dense.distance(stamps).max())


def test_laplacian_takes_wide_indices(stamps):
    S = sparse.csr_array(stamps)
    wide = sparse.csr_array((S.data, S.indices.astype(np.int64), S.indptr.astype(np.int64)), shape=S.shape)
    assert wide.indices.dtype == np.int64
    assert_allclose(Laplacian(0.1)(wide), Laplacian(0.1)(stamps), rtol=1e-9)
