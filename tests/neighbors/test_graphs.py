"""Neighbour graphs against their definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse

from metricforge import neighbors


def dense_graph(indices, kind, n):
    W = np.zeros((n, n), dtype=bool)
    for i, row in enumerate(indices):
        for j in row:
            if j >= 0 and i != j:
                W[i, j] = True
    return (W & W.T if kind == "mutual" else W | W.T).astype(float)


@given(indices=arrays(np.int64, st.tuples(st.integers(0, 9), st.integers(0, 4)), elements=st.integers(-1, 8)))
@pytest.mark.parametrize("kind", ["mutual", "union"])
@settings(max_examples=80)
def test_graph_is_its_definition(kind, indices):
    n = 9
    S = neighbors.graph(indices, kind=kind, n=n)
    expected = dense_graph(indices, kind, n)
    assert isinstance(S, sparse.csr_array)
    assert S.dtype == np.float64
    assert S.has_canonical_format
    assert S.nnz == expected.sum()  # no stored zeros
    np.testing.assert_array_equal(S.toarray(), expected)
    np.testing.assert_array_equal(neighbors.isolated(S), np.flatnonzero(expected.sum(axis=1) == 0))


@pytest.mark.parametrize("kind", ["mutual", "union"])
def test_graph_of_a_search(kind, rng):
    X = np.concatenate([rng.standard_normal((60, 2)), [[50.0, 50.0]]])
    indices, _ = neighbors.search(X, 5)
    S = neighbors.graph(indices, kind=kind)
    np.testing.assert_array_equal(S.toarray(), dense_graph(indices, kind, 61))
    assert (abs(S - S.T)).nnz == 0
    # nobody lists the far row: it is alone in the mutual graph, and has its own five edges in the other
    assert (60 in neighbors.isolated(S)) == (kind == "mutual")
    assert S[[60]].nnz == (0 if kind == "mutual" else 5)


def test_graph_takes_int32_and_unsigned():
    for dtype in (np.int32, np.uint8):
        S = neighbors.graph(np.array([[1], [0], [0]], dtype=dtype))
        np.testing.assert_array_equal(S.toarray(), [[0, 1, 0], [1, 0, 0], [0, 0, 0]])
