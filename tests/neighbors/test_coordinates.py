"""Cells of sparse and binary rows: recall, exactness within the cells, the same lists whatever the chunks."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
from scipy import sparse

from metricforge import neighbors
from metricforge.neighbors import partition
from metricforge.neighbors.exhaustive import packed_rows, unpacked
from metricforge.neighbors.probing import probe

N = 5000


def binary_rows(n=N, d=70):
    """Rows of zeros and ones about 60 patterns, with many ties and some duplicates."""
    rng = np.random.default_rng(0)
    patterns = rng.random((60, d)) < 0.3
    return (patterns[rng.integers(60, size=n)] ^ (rng.random((n, d)) < 0.04)).astype(float)


def sparse_rows(n=N, d=40, share=0.05):
    rng = np.random.default_rng(1)
    patterns = np.where(rng.random((60, d)) < 3 * share, rng.random((60, d)) + 1, 0)
    X = patterns[rng.integers(60, size=n)]
    return sparse.csr_array(np.where(X > 0, X + 0.1 * rng.standard_normal(X.shape), 0))


KINDS = {
    "binary": binary_rows,
    "binary csr": lambda: sparse.csr_array(binary_rows()),
    "csr": lambda: sparse_rows(share=0.01),
    "dense csr": lambda: sparse_rows(share=0.2),
    "wide csr": lambda: sparse_rows(d=700, share=0.01),
    "wide binary": lambda: binary_rows(d=600),
}


@pytest.mark.parametrize("kind", KINDS)
def test_recall_and_lists_are_those_of_rows_in_memory_whatever_the_chunks(kind):
    X = KINDS[kind]()
    (indices, distances), estimate = neighbors.search_with_recall(X, 6, method="cells")
    measured = neighbors.recall(indices, X, seed=3)
    assert measured >= 0.93
    assert abs(measured - estimate) < 0.05
    dense = X.toarray() if sparse.issparse(X) else X
    apart = np.linalg.norm(dense[:200, None] - dense[indices[:200]], axis=2)
    np.testing.assert_allclose(distances[:200], apart, rtol=1e-12, atol=1e-12)
    parts = [X[a:b] for a, b in ((0, 3000), (3000, 3100), (3100, N))]
    lazy = da.concatenate([da.from_array(part, chunks=part.shape, asarray=False) for part in parts])
    found, known = neighbors.search_with_recall(lazy, 6, method="cells")
    assert known == pytest.approx(estimate)
    np.testing.assert_array_equal(found[0].compute(scheduler="sync"), indices)
    np.testing.assert_array_equal(found[1].compute(scheduler="sync"), distances)


@pytest.mark.parametrize("kind", ["binary", "csr", "dense csr"])
def test_lists_are_the_nearest_of_the_rows_in_the_cells(kind):
    rng = np.random.default_rng(2)
    X = KINDS[kind]()[:900]
    home = rng.integers(12, size=900)
    rows = packed_rows(X) if kind == "binary" else X
    members = partition.members_of(rows, home, 12)
    probes = np.argsort(rng.random((40, 12)), axis=1)[:, :4]
    probes[3, 1:] = -1
    indices, distances = probe(rows[:40], probes, members, 70, own=np.arange(40))
    for i, cells in enumerate(probes):
        inside = np.setdiff1d(np.flatnonzero(np.isin(home, cells)), [i])
        k = min(70, len(inside))
        near, far = neighbors.search(X[inside], k, queries=X[i : i + 1], method="exact")
        np.testing.assert_array_equal(indices[i, :k], inside[near[0]])
        np.testing.assert_array_equal(distances[i, :k], far[0])
        assert (indices[i, k:] == -1).all()
        assert np.isinf(distances[i, k:]).all()


def test_queries_of_binary_rows():
    X = binary_rows()
    indices, distances = neighbors.search(X[:-300], 5, queries=X[-300:], method="cells")
    assert neighbors.recall(indices, X[:-300], queries=X[-300:], seed=1) > 0.9
    assert (distances >= neighbors.search(X[:-300], 5, queries=X[-300:], method="exact")[1]).all()


def test_packed_rows_are_unpacked():
    X = binary_rows(50, 70)
    np.testing.assert_array_equal(unpacked(packed_rows(X), 70), X)


def test_a_sketch_preserves_squared_distances_on_average():
    X = sparse_rows(200, 3000, 0.02)
    place = partition.coordinates(3000, sparse=True, binary=False, seed=0)
    Z, dense = place(X), X.toarray()
    assert Z.shape == (200, partition.SKETCHED)
    ratio = np.sum((Z[:100] - Z[100:]) ** 2) / np.sum((dense[:100] - dense[100:]) ** 2)
    assert 0.9 < ratio < 1.1
