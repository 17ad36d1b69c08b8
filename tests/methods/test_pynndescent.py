"""NN-descent: determinism, recall, gaps repaired exactly."""

from __future__ import annotations

import sys
import types
import warnings

import numpy as np
import pytest
from metricforge_cases.neighbors import (
    naive,
)
from scipy import sparse

from metricforge import neighbors


@pytest.mark.xdist_group("pynndescent")
def test_pynndescent_recall_and_determinism(rng):
    """The one real build of this file: NN-descent compiles for half a minute in every new process."""
    import numba

    threads = numba.get_num_threads()
    X = 1e5 + np.tanh(rng.standard_normal((900, 4)) @ rng.standard_normal((4, 12)))
    X[1::90] = X[::90]
    indices, distances = neighbors.search(X, 8, method="pynndescent", seed=1)
    again = neighbors.search(X, 8, method="pynndescent", seed=1)
    assert numba.get_num_threads() == threads
    assert neighbors.recall(indices, X) >= 0.9
    np.testing.assert_array_equal(indices, again[0])
    np.testing.assert_array_equal(distances, again[1])
    assert not (indices == np.arange(900)[:, None]).any()
    true = np.sqrt(((X[:, None] - X[indices]) ** 2).sum(axis=2))
    np.testing.assert_allclose(distances, true, rtol=1e-12)
    ordered = np.lexsort((indices, distances), axis=1)
    np.testing.assert_array_equal(ordered, np.broadcast_to(np.arange(8), (900, 8)))


class StubbedDescent:
    """Stands for NNDescent with the faults it has had: -1, no self among duplicates, a changed thread count."""

    built: list[dict] = []  # noqa: RUF012
    fails = False

    def __init__(self, data, *, n_neighbors, random_state, n_jobs):
        import numba

        type(self).built.append(
            {"data": data, "n_neighbors": n_neighbors, "random_state": random_state, "n_jobs": n_jobs}
        )
        numba.set_num_threads(1)
        if self.fails:
            raise RuntimeError("no build")
        warnings.warn("Failed to correctly find n_neighbors for some samples.", UserWarning, stacklevel=2)
        self.rows = data.toarray() if sparse.issparse(data) else data

    @property
    def neighbor_graph(self):
        listed = self.built[-1]["n_neighbors"]
        indices, distances = naive(self.rows, self.rows, listed, exclude_self=False)
        indices[::3, 2:] = -1
        indices[1, :] = 1
        return indices.astype(np.int32), distances.astype(np.float32)

    def query(self, queries, k):
        queries = queries.toarray() if sparse.issparse(queries) else queries
        indices, distances = naive(self.rows, queries, k, exclude_self=False)
        indices[0, 1:] = -1
        return indices.astype(np.int32), distances.astype(np.float32)


@pytest.fixture
def descent(monkeypatch):
    import numba

    monkeypatch.setitem(sys.modules, "pynndescent", types.SimpleNamespace(NNDescent=StubbedDescent))
    monkeypatch.setattr(StubbedDescent, "built", [])
    before = numba.get_num_threads()
    yield StubbedDescent
    assert numba.get_num_threads() == before


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array, sparse.csr_matrix])
@pytest.mark.parametrize("with_queries", [False, True])
def test_pynndescent_gaps_are_repaired_exactly(container, with_queries, descent, rng):
    X = rng.integers(0, 3, (60, 5)) * (rng.random((60, 1)) < 0.7) * 1.0  # empty rows, duplicates
    queries = container(X[10:20] + 1) if with_queries else None
    found = neighbors.search(container(X), 6, queries=queries, method="pynndescent", seed=3)
    expected = naive(X, X[10:20] + 1 if with_queries else X, 6, exclude_self=not with_queries)
    # The stub lists true neighbours or -1, so kept and repaired distances alike are the naive ones ...
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-13)
    assert (found[0] >= 0).all()
    # ... and repaired rows break their ties as an exact search does.
    repaired = [0] if with_queries else [1, *range(0, 60, 3)]
    np.testing.assert_array_equal(found[0][repaired], expected[0][repaired])
    if not with_queries:
        assert not (found[0] == np.arange(60)[:, None]).any()


def test_pynndescent_is_called_for_determinism_and_accuracy(descent, rng):
    X = 1e7 + rng.standard_normal((50, 3))
    for seed in (3, 3, 4):
        neighbors.search(X, 2, method="pynndescent", seed=seed)
    one, two, other = descent.built
    assert one["n_jobs"] == 1
    assert one["random_state"] == two["random_state"] != other["random_state"]
    assert one["n_neighbors"] == 16
    assert one["data"].dtype == np.float32
    # float32 has steps of 1 at 1e7: only centred rows keep their differences
    ours = one["data"] - one["data"][0]
    true = (X - X[0]) / np.abs(X - X.mean(axis=0)).max()
    np.testing.assert_allclose(ours, true, atol=1e-6)


def test_pynndescent_failure_restores_threads_and_keeps_its_type(descent, monkeypatch, rng):
    monkeypatch.setattr(descent, "fails", True)
    with pytest.raises(RuntimeError, match="no build"):
        neighbors.search(rng.standard_normal((30, 3)), 2, method="pynndescent")
