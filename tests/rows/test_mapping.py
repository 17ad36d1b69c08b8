"""Functions over rows: the same answer from memory, block by block, and from dask, however it is chunked."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from metricforge import rows
from metricforge.rows import mapping

X = np.random.default_rng(0).normal(size=(50, 5))
Y = np.random.default_rng(1).normal(size=(23, 5))


def lazily(A, size):
    return da.from_array(A, chunks=(size, -1))


@given(n=st.integers(0, 200), row_bytes=st.integers(0, 50), limit=st.integers(1, 100))
def test_blocks_cover_all_rows_within_the_limit(n, row_bytes, limit):
    parts = list(rows.blocks(n, row_bytes, limit))
    assert [i for part in parts for i in range(part.start, part.stop)] == list(range(n))
    assert all((part.stop - part.start) * row_bytes <= limit or part.stop - part.start == 1 for part in parts)


def square(block):
    return np.asarray(block[:, :3]) ** 2


def norm(block):
    return np.linalg.norm(block, axis=1)


@pytest.mark.parametrize("size", [50, 7])
def test_map_rows(size):
    seen = []

    def counted(block):
        seen.append(len(block))
        return square(block)

    np.testing.assert_array_equal(rows.map_rows(counted, X, 3, np.float64), square(X))
    assert seen == [50]
    lazy = rows.map_rows(square, lazily(X, size), 3, np.float32)
    assert lazy.shape == (50, 3)
    assert lazy.dtype == np.float32
    assert lazy.numblocks == (-(-50 // size), 1)
    np.testing.assert_array_equal(lazy.compute(scheduler="sync"), square(X).astype(np.float32))
    np.testing.assert_array_equal(rows.map_rows(norm, lazily(X, size), None, np.float64).compute(), norm(X))
    np.testing.assert_array_equal(rows.map_rows(norm, X, None, np.float64), norm(X))


def test_map_rows_works_in_blocks(monkeypatch):
    seen = []

    def counted(block):
        seen.append(len(block))
        return square(block)

    monkeypatch.setattr(mapping.blocks, "__defaults__", (8 * 5 * 20,))
    np.testing.assert_array_equal(rows.map_rows(counted, X, 3, np.float64), square(X))
    assert seen == [20, 20, 10]


def test_map_rows_splits_chunks_whose_result_would_not_fit(monkeypatch):
    monkeypatch.setattr("metricforge.distributed.cluster.task_bytes", lambda: 8 * 3 * 12)
    lazy = rows.map_rows(square, lazily(X, 50), 3, np.float64)
    assert lazy.chunks[0] == (10, 10, 10, 10, 10)
    np.testing.assert_array_equal(lazy.compute(scheduler="sync"), square(X))


@pytest.mark.parametrize("container", [np.asarray, lambda A: lazily(A, 7)], ids=["memory", "dask"])
@pytest.mark.parametrize("index", [[3, 44, 3, 0], [], list(range(50))], ids=str)
def test_map_taken(container, index):
    index = np.array(index, dtype=int)
    np.testing.assert_array_equal(rows.map_taken(square, container(X), index, 3, np.float64), square(X)[index])
    np.testing.assert_array_equal(rows.map_taken(norm, container(X), index, None, np.float64), norm(X)[index])


def inner(A, B):
    return np.asarray(A) @ np.asarray(B).T


@pytest.mark.parametrize("one", [X, lazily(X, 50), lazily(X, 7)], ids=["memory", "one chunk", "chunks"])
@pytest.mark.parametrize("other", [Y, lazily(Y, 9)], ids=["memory", "chunks"])
def test_map_pairs(one, other):
    made = rows.map_pairs(inner, one, other, np.float64)
    assert rows.is_dask(made) == (rows.is_dask(one) or rows.is_dask(other))
    np.testing.assert_allclose(rows.gathered(made), X @ Y.T, atol=1e-14)


def test_map_pairs_splits_blocks_that_would_not_fit(monkeypatch):
    monkeypatch.setattr("metricforge.distributed.cluster.task_bytes", lambda: 3 * 8 * 100)
    made = rows.map_pairs(inner, lazily(X, 50), lazily(Y, 23), np.float64)
    assert max(made.chunks[0]) <= 10
    assert max(made.chunks[1]) <= 10
    np.testing.assert_allclose(made.compute(scheduler="sync"), X @ Y.T, atol=1e-14)


def apart(A, B):
    return np.abs(np.asarray(A) - np.asarray(B)).sum(axis=1)


@pytest.mark.parametrize("one", [X, lazily(X, 50), lazily(X, 7)], ids=["memory", "one chunk", "chunks"])
@pytest.mark.parametrize("other", [X[::-1], lazily(X[::-1], 9)], ids=["memory", "chunks"])
def test_map_paired(one, other):
    np.testing.assert_allclose(rows.gathered(rows.map_paired(apart, one, other, np.float64)), apart(X, X[::-1]))


@pytest.mark.parametrize("container", [np.asarray, lambda A: lazily(A, 7)], ids=["memory", "dask"])
def test_map_relations(container):
    pairs = np.array([[0, 1], [49, 3], [3, 49], [7, 7]])
    expected = apart(X[pairs[:, 0]], X[pairs[:, 1]])
    np.testing.assert_allclose(rows.map_relations(apart, container(X), pairs), expected)
    assert rows.map_relations(apart, container(X), pairs[:0]).shape == (0,)


def weighted(block, weights):
    return [(len(block), weights @ block)]


def joined(parts):
    return [entry for part in parts for entry in part]


@pytest.mark.parametrize("size", [50, 7, 1])
def test_fold_hands_out_what_belongs_to_each_chunk_and_joins_in_order(size):
    weights = np.arange(50.0)
    (everything,) = rows.fold(weighted, joined, X, weights)
    assert everything[0] == 50
    parts = rows.fold(weighted, joined, lazily(X, size), weights)
    sizes = [part[0] for part in parts]
    assert sizes == list(lazily(X, size).chunks[0])  # over several levels of joins where there are more than eight
    np.testing.assert_allclose(sum(part[1] for part in parts), everything[1], atol=1e-12)


def failing(block, *_):
    if np.any(block == X[30, 0]):
        raise KeyError("odd row")
    return block if block.ndim == 1 else block[:, 0]


@pytest.mark.parametrize(
    "run",
    [
        lambda A: rows.map_rows(failing, A, None, float).compute(scheduler="sync"),
        lambda A: rows.map_paired(failing, A, A, float).compute(scheduler="sync"),
        lambda A: rows.fold(failing, list, A),
    ],
    ids=["map_rows", "map_paired", "fold"],
)
def test_an_error_in_a_task_keeps_its_type_and_names_the_rows(run):
    with pytest.raises(KeyError, match="odd row") as raised:
        run(lazily(X, 20))
    assert "in the block of rows 20 to 39" in raised.value.__notes__


@pytest.mark.parametrize(
    "container",
    [np.asarray, np.float32, sp.csr_array, lambda A: lazily(A, 7), lambda A: lazily(A, 7).map_blocks(sp.csr_array)],
    ids=["dense", "float32", "csr", "dask", "dask of csr"],
)
def test_moments(container, monkeypatch):
    A = np.where(np.abs(X) < 0.5, 0, X) + np.array([0, 0, 0, 0, 1e5])
    monkeypatch.setattr(mapping.blocks, "__defaults__", (16 * 5 * 4,))  # four rows
    mean, deviation = rows.moments(container(A))
    accuracy = {"rtol": 2e-3} if container is np.float32 else {"rtol": 1e-9}
    np.testing.assert_allclose(mean, A.mean(axis=0), **accuracy)
    np.testing.assert_allclose(deviation, A.std(axis=0), **accuracy)


def test_moments_of_sparse_rows_without_entries():
    from scipy import sparse

    mean, deviation = rows.moments(sparse.csr_array((5, 3)))
    assert mean.tolist() == deviation.tolist() == [0.0, 0.0, 0.0]
