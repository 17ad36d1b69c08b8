"""Neighbour searches against a naive sort, ties included; graphs against their definition; recall; bad input."""

from __future__ import annotations

import sys
import tracemalloc
import types
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import sparse

from metricforge import neighbors
from metricforge.errors import InputError, UnknownNameError


def naive(X, Q, k, exclude_self):
    """All distances by subtraction, and a stable sort: equal distances stay in the order of their indices."""
    X, Q = np.asarray(X, dtype=np.float64), np.asarray(Q, dtype=np.float64)
    D = np.stack([np.sqrt(((X - row) ** 2).sum(axis=1)) for row in Q])
    if exclude_self:
        np.fill_diagonal(D, np.inf)
    indices = np.argsort(D, axis=1, kind="stable")[:, :k]
    return indices, np.take_along_axis(D, indices, axis=1)


def binary(rng, n):
    return rng.integers(0, 2, (n, 6)).astype(float)


def few_values(rng, n):
    return rng.integers(0, 2, (n, 2)).astype(float)


def integers(rng, n):
    return rng.integers(-3, 4, (n, 3)).astype(float)


def gaussian(rng, n):
    return rng.standard_normal((n, 7))


def repeated(rng, n):
    return np.random.default_rng(5).standard_normal((n // 8, 4))[rng.integers(0, n // 8, n)]


def constant(rng, n):
    return np.full((n, 3), 0.1)


def far_from_origin(rng, n):
    return 1e6 + rng.standard_normal((n, 5))


def two_tight_clusters(rng, n):
    return np.where(rng.random((n, 1)) < 0.5, -1.0, 1.0) + 1e-9 * rng.standard_normal((n, 4))


def sorted_clusters(rng, n):
    return np.repeat(np.arange(n // 10), 10)[:, None] + 0.01 * rng.standard_normal((n // 10 * 10, 3))


def large_integers(rng, n):
    return 2.0**40 + rng.integers(0, 30, (n, 3))  # their squares do not fit a float64


def mostly_zero(rng, n):
    return rng.standard_normal((n, 40)) * (rng.random((n, 40)) < 0.05)  # 13 % of the rows are empty


DATA = [
    binary,
    few_values,
    integers,
    gaussian,
    repeated,
    constant,
    far_from_origin,
    two_tight_clusters,
    sorted_clusters,
    large_integers,
    mostly_zero,
]


def dense_exact(X, k, queries):
    return neighbors.search(X, k, queries=queries, method="exact")


def dense_tree(X, k, queries):
    return neighbors.search(X, k, queries=queries, method="tree")


def csr_exact(X, k, queries):
    queries = None if queries is None else sparse.csr_array(queries)
    return neighbors.search(sparse.csr_array(X), k, queries=queries, method="exact")


def by_blocks(X, k, queries):
    Q = (X if queries is None else queries).astype(np.float64)
    X = X.astype(np.float64)

    def block(q0, q1, c0, c1):
        return np.sqrt(((Q[q0:q1, None] - X[None, c0:c1]) ** 2).sum(axis=2))

    return neighbors.search_blocks(block, len(X), len(Q), k, exclude_self=queries is None)


EXACT = [dense_exact, dense_tree, csr_exact, by_blocks]


@pytest.mark.parametrize("with_queries", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("make", DATA)
@pytest.mark.parametrize("run", EXACT)
def test_exact_searches_agree_with_a_naive_sort(run, make, dtype, with_queries, rng, monkeypatch):
    X = make(rng, 160).astype(dtype)
    # queries that are rows of X must find themselves, and those that are not have ties of their own
    queries = np.concatenate([make(rng, 40).astype(dtype)[:30], X[::13]]) if with_queries else None
    monkeypatch.setattr(neighbors, "_TILE_BYTES", 8 * 8000)
    for k in (1, 9, len(X) - 1):
        indices, distances = run(X, k, queries)
        expected = naive(X, X if queries is None else queries, k, exclude_self=queries is None)
        assert indices.dtype == np.int64
        assert distances.dtype == np.float64
        np.testing.assert_array_equal(indices, expected[0])
        np.testing.assert_allclose(distances, expected[1], rtol=1e-13, atol=0)


@pytest.mark.parametrize("with_queries", [False, True])
@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize(("n", "d"), [(160, 6), (90, 64), (1100, 65), (300, 200), (70, 1)])
def test_packed_rows_agree_with_a_naive_sort(n, d, container, with_queries, rng):
    # Among few features nearly all distances tie; 1100 rows are more than the loop counts at a time.
    X = (rng.random((n, d)) < rng.random(d)).astype(float)
    queries = np.concatenate([1 - X[:20], X[::13]]) if with_queries else None
    for k in (1, 9, n - 1):
        Q = None if queries is None else container(queries)
        indices, distances = neighbors.search(container(X), k, queries=Q, method="hamming")
        expected = naive(X, X if queries is None else queries, k, exclude_self=queries is None)
        np.testing.assert_array_equal(indices, expected[0])
        np.testing.assert_array_equal(distances, expected[1])


def test_packed_rows_are_taken_when_that_is_faster_and_refused_when_not_binary(rng, monkeypatch):
    X = binary(rng, 300)
    X = np.hstack([X, X])  # too wide for a tree
    assert neighbors._choose(X, X, itself=True) == "exact"
    monkeypatch.setattr(neighbors, "_HAMMING_SECONDS", 1e-9)
    assert neighbors._choose(X, X, itself=True) == "hamming"
    assert neighbors._choose(sparse.csr_array(X), sparse.csr_array(X), itself=True) == "hamming"
    assert neighbors._choose(X, 2 * X, itself=False) == "exact"
    np.testing.assert_array_equal(neighbors.search(X, 5)[0], dense_exact(X, 5, None)[0])
    with pytest.raises(InputError, match="zeros and ones, and queries has others"):
        neighbors.search(X, 5, queries=0.5 * X, method="hamming")


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
    monkeypatch.setattr(neighbors, "_DENSE_SHARE", share)
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
        monkeypatch.setattr(neighbors, "_TILE_BYTES", 8 * numbers)
        monkeypatch.setattr(neighbors, "_TILE_QUERIES", queries)
        found = run(X, 6, None)
        np.testing.assert_array_equal(found[0], whole[0])
        np.testing.assert_array_equal(found[1], whole[1])


def test_tree_and_exact_agree_to_the_last_bit(rng):
    X = rng.standard_normal((500, 5)) ** 3
    exact, tree = dense_exact(X, 11, None), dense_tree(X, 11, None)
    np.testing.assert_array_equal(exact[0], tree[0])
    np.testing.assert_array_equal(exact[1], tree[1])


def test_tree_leaves_long_ties_to_the_exact_search(rng, caplog):
    X = few_values(rng, 900)  # four distinct rows: 225 ties, more than 16 times what is asked at first
    with caplog.at_level("DEBUG", logger="metricforge.neighbors"):
        indices, _ = dense_tree(X, 3, None)
    assert "900 of 900 queries" in caplog.text
    np.testing.assert_array_equal(indices, naive(X, X, 3, exclude_self=True)[0])


def test_symmetric_distances(rng):
    X = rng.standard_normal((80, 30))
    indices, distances = dense_exact(X, 79, None)
    D = np.zeros((80, 80))
    np.put_along_axis(D, indices, distances, axis=1)
    np.testing.assert_array_equal(D, D.T)


def count_pairs(monkeypatch):
    """Record the number of pairs of every call that measures distances by subtraction."""
    measured = []
    original = neighbors._pair_distances

    def counted(X, Q, rows, cols):
        measured.append(rows.size)
        return original(X, Q, rows, cols)

    monkeypatch.setattr(neighbors, "_pair_distances", counted)
    return measured


@pytest.mark.parametrize("order", ["random", "sorted"])
def test_exact_measures_few_pairs_anew(order, rng, monkeypatch):
    X = rng.standard_normal((1500, 6)) + 10 * rng.integers(0, 8, (1500, 1))
    if order == "sorted":
        X = X[np.argsort(X.sum(axis=1))]
    measured = count_pairs(monkeypatch)
    monkeypatch.setattr(neighbors, "_TILE_BYTES", 8 * 125 * 125)
    monkeypatch.setattr(neighbors, "_TILE_QUERIES", 125)
    dense_exact(X, 5, None)
    # Each of the 12 tiles may add 2k candidates a query, and k to lower its bound; a naive search measures 1500.
    assert 1500 * 5 <= sum(measured) <= 1500 * 12 * 3 * 5


def test_duplicates_end_the_scan_early(monkeypatch):
    X = np.full((3000, 4), 0.3)
    measured = count_pairs(monkeypatch)
    monkeypatch.setattr(neighbors, "_TILE_BYTES", 8 * 128 * 128)
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


# ------------------------------------------------------------------------------------------------- any distance


def test_search_blocks_asks_bounded_blocks_once_and_writes_to_none(rng):
    D = rng.integers(0, 9, (1500, 1500)).astype(np.float32)
    kept, asked = D.copy(), np.zeros(D.shape, dtype=int)

    def block(q0, q1, c0, c1):
        assert (q1 - q0) * (c1 - c0) <= 2**20
        asked[q0:q1, c0:c1] += 1
        return D[q0:q1, c0:c1]

    indices, distances = neighbors.search_blocks(block, 1500, 1500, 12, exclude_self=True)
    expected = D.astype(float)
    np.fill_diagonal(expected, np.inf)
    np.testing.assert_array_equal(indices, np.argsort(expected, axis=1, kind="stable")[:, :12])
    np.testing.assert_array_equal(distances, np.take_along_axis(expected, indices, axis=1))
    np.testing.assert_array_equal(D, kept)
    assert asked.max() == 1


@given(
    D=arrays(np.float64, (12, 15), elements=st.sampled_from([0.0, 0.5, np.nextafter(0.5, 0), 1.0, 2.0])),
    k=st.integers(1, 15),
    tile_bytes=st.sampled_from([8, 40, 120, 2**20]),
)
@settings(max_examples=60)
def test_search_blocks_breaks_every_tie_by_index(D, k, tile_bytes):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(neighbors, "_TILE_BYTES", tile_bytes)
        indices, _ = neighbors.search_blocks(lambda q0, q1, c0, c1: D[q0:q1, c0:c1], 15, 12, k)
    np.testing.assert_array_equal(indices, np.argsort(D, axis=1, kind="stable")[:, :k])


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (lambda b, c: np.full((b, c), np.nan), "NaN"),
        (lambda b, c: np.full((b, c), np.inf), "infinite"),
        (lambda b, c: np.full((b, c), -1e-9), "negative"),
        (lambda b, c: np.ones((b, c + 1)), "shape"),
    ],
)
def test_search_blocks_refuses_bad_distances(value, says):
    with pytest.raises(InputError, match=says):
        neighbors.search_blocks(lambda q0, q1, c0, c1: value(q1 - q0, c1 - c0), 9, 4, 2)


# ---------------------------------------------------------------------------------------------------- the choice


@pytest.mark.parametrize(
    ("n", "d", "itself", "expected"),
    [
        (500, 2, True, "tree"),
        (1_000_000, 3, False, "tree"),
        (20_000, 16, True, "exact"),
        (32_561, 123, True, "exact"),
        (60_000, 50, True, "exact"),
        (120_000, 50, True, "pynndescent"),
        (1_000_000, 64, True, "pynndescent"),
        (1_000_000, 64, False, "exact"),
    ],
)
def test_auto_by_shape(n, d, itself, expected):
    X = np.broadcast_to(np.arange(float(n))[:, None], (n, d))
    assert neighbors._choose(X, X if itself else X[:1000], itself) == expected


def test_auto_has_no_tree_for_few_distinct_rows(rng):
    X = few_values(rng, 5000)
    assert neighbors._choose(X, X, True) == "exact"


def test_auto_has_no_tree_for_sparse_rows():
    X = sparse.csr_array((500, 2))
    assert neighbors._choose(X, X, True) == "exact"


@pytest.mark.parametrize("make", [integers, gaussian])
def test_auto_searches(make, rng):
    X = make(rng, 100)
    np.testing.assert_array_equal(neighbors.search(X, 3)[0], naive(X, X, 3, exclude_self=True)[0])


def test_a_callable_gets_checked_rows_and_is_held_to_the_contract(rng):
    X, A = rng.standard_normal((20, 3)), rng.standard_normal((4, 3))
    calls = []

    def mine(X, k, *, queries, seed):
        calls.append((k, queries, seed))
        return neighbors.search(X, k, queries=queries, method="exact")

    found = neighbors.search(X.tolist(), 2, queries=A.tolist(), method=mine, seed=7)
    np.testing.assert_array_equal(found[0], naive(X, A, 2, exclude_self=False)[0])
    assert calls[0][0] == 2
    assert isinstance(calls[0][1], np.ndarray)
    assert calls[0][2] == 7
    for answer in [
        (np.zeros((20, 3), int), np.zeros((20, 3))),
        (np.zeros((20, 2)), np.zeros((20, 2))),
        (np.full((20, 2), -1), np.zeros((20, 2))),
        (np.full((20, 2), 20), np.zeros((20, 2))),
        (np.zeros((20, 2), int), np.ones((20, 2))),  # row 0 lists itself
        (np.full((20, 2), 19), np.full((20, 2), np.nan)),
    ]:
        with pytest.raises(InputError, match="method"):
            neighbors.search(X, 2, method=lambda X, k, queries, seed, answer=answer: answer)


# --------------------------------------------------------------------------------------------------- pynndescent


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


# -------------------------------------------------------------------------------------------------------- graphs


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


# -------------------------------------------------------------------------------------------------------- recall


@pytest.mark.parametrize("make", [gaussian, binary, repeated, mostly_zero])
@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
def test_recall_of_an_exact_search_is_one(make, container, rng):
    X, A = make(rng, 120), make(rng, 40)
    indices, _ = neighbors.search(container(X), 5, method="exact")
    assert neighbors.recall(indices, container(X), sample=50) == 1.0
    indices, _ = neighbors.search(container(X), 5, queries=container(A), method="exact")
    assert neighbors.recall(indices, container(X), queries=container(A)) == 1.0


def test_recall_counts_ties_as_hits():
    X = np.concatenate([np.eye(8), -np.eye(8)])  # every row has 14 neighbours at sqrt(2) and one at 2
    last = np.array([[j for j in range(15, -1, -1) if j not in (i, (i + 8) % 16)][:4] for i in range(16)])
    assert not (last == neighbors.search(X, 4, method="exact")[0]).all()
    assert neighbors.recall(last, X) == 1.0
    opposite = last.copy()
    opposite[:, 0] = (np.arange(16) + 8) % 16
    assert neighbors.recall(opposite, X) == 0.75


@pytest.mark.parametrize("spoil", ["missing", "itself", "repeated", "far"])
def test_recall_of_spoilt_lists(spoil, rng):
    X = rng.standard_normal((90, 3))
    indices, _ = neighbors.search(X, 4, method="exact")
    far = neighbors.search(X, 89, method="exact")[0][:, -1]
    indices[:, 3] = {"missing": -1, "itself": np.arange(90), "repeated": indices[:, 0], "far": far}[spoil]
    assert neighbors.recall(indices, X) == 0.75


def test_recall_samples_by_seed(rng):
    X = rng.standard_normal((300, 3))
    indices, _ = neighbors.search(X, 2, method="exact")
    indices[:150] = -1
    estimates = {neighbors.recall(indices, X, sample=40, seed=seed) for seed in range(6)}
    assert len(estimates) > 1
    assert all(0.2 < value < 0.8 for value in estimates)
    assert neighbors.recall(indices, X, sample=40, seed=2) == neighbors.recall(indices, X, sample=40, seed=2)
    assert neighbors.recall(indices, X, sample=300) == 0.5


# ----------------------------------------------------------------------------------------------------- bad input

X5 = np.arange(10.0).reshape(5, 2)


def spoilt(value):
    X = X5.copy()
    X[3, 1] = value
    return X


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: neighbors.search(X5, 5), r"k = 5 .* 4 other rows; pass k <= 4"),
        (lambda: neighbors.search(X5, 6, queries=X5), r"k = 6 .* 5 rows; pass k <= 5"),
        (lambda: neighbors.search(X5, 0), r"k must be .* at least 1, got 0"),
        (lambda: neighbors.search(X5, -2), r"k must be"),
        (lambda: neighbors.search(X5, 2.0), r"k must be a whole number"),
        (lambda: neighbors.search(X5, True), r"k must be a whole number"),
        (lambda: neighbors.search(X5[:1], 1), r"0 other rows"),
        (lambda: neighbors.search(X5, 1, seed=-1), r"seed"),
        (lambda: neighbors.search(np.empty((0, 2)), 1), r"X has 0 sample"),
        (lambda: neighbors.search(np.empty((3, 0)), 1), r"X has 0 feature"),
        (lambda: neighbors.search(X5.ravel(), 1), r"X must be 2-d"),
        (lambda: neighbors.search(spoilt(np.nan), 1), r"X contains NaN .*row 3"),
        (lambda: neighbors.search(spoilt(np.inf), 1), r"X contains infinity .*row 3"),
        (lambda: neighbors.search(sparse.csr_array(spoilt(np.nan)), 1), r"X contains NaN .*row 3"),
        (lambda: neighbors.search(spoilt(1e200), 1), r"X has values up to 1e\+200.*rescale"),
        (lambda: neighbors.search(X5, 1, queries=spoilt(np.nan)), r"queries contains NaN"),
        (lambda: neighbors.search(X5, 1, queries=np.ones((2, 3))), r"queries has 3 features, but X has 2"),
        (lambda: neighbors.search(X5, 1, queries=sparse.csr_array(X5)), r"both be dense or both be sparse"),
        (lambda: neighbors.search(sparse.csr_array(X5), 1, method="tree"), r"tree.*exact"),
        (lambda: neighbors.search_blocks(lambda *_: None, 5, 5, 5, exclude_self=True), r"k = 5"),
        (lambda: neighbors.search_blocks(lambda *_: None, 5, 4, 1, exclude_self=True), r"pass q = n"),
        (lambda: neighbors.graph(np.zeros((3, 1))), r"integers"),
        (lambda: neighbors.graph(np.zeros(3, int)), r"2-d"),
        (lambda: neighbors.graph(np.array([[1], [2], [7]])), r"-1\.\.2.* row 2"),
        (lambda: neighbors.graph(np.array([[1], [-2], [0]])), r"row 1"),
        (lambda: neighbors.graph(np.array([[1], [0]]), n=1), r"n must be"),
        (lambda: neighbors.recall(np.zeros((4, 1), int), X5), r"shape \(5, k\)"),
        (lambda: neighbors.recall(np.full((5, 1), 5), X5), r"-1\.\.4"),
        (lambda: neighbors.recall(np.zeros((5, 5), int), X5), r"k = 5"),
        (lambda: neighbors.recall(np.ones((5, 1), int), X5, sample=0), r"sample"),
    ],
)
def test_bad_input(call, says):
    with pytest.raises(InputError, match=says):
        call()


def test_unknown_names_offer_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'exact'"):
        neighbors.search(X5, 1, method="exacty")
    with pytest.raises(UnknownNameError, match="did you mean 'mutual'"):
        neighbors.graph(np.array([[1], [0]]), kind="mutal")


@pytest.mark.parametrize("chunks", [3, 40, 100])
@pytest.mark.parametrize("whole", [True, False])
def test_chunks_are_searched_one_by_one(chunks, whole):
    import dask.array as da

    rng = np.random.default_rng(5)
    X = rng.integers(0, 3, size=(100, 4)).astype(float) if whole else rng.normal(size=(100, 4))
    lazy = da.from_array(X, chunks=(chunks, -1))
    for lazily, wanted in [
        (neighbors.search(lazy, 7), neighbors.search(X, 7)),
        (neighbors.search(lazy, 7, queries=X[:9] + 0.5), neighbors.search(X, 7, queries=X[:9] + 0.5)),
        (neighbors.search(X, 100, queries=lazy), neighbors.search(X, 100, queries=X)),
    ]:
        np.testing.assert_array_equal(lazily[0].compute(scheduler="sync"), wanted[0])
        np.testing.assert_array_equal(lazily[1].compute(scheduler="sync"), wanted[1])


def test_many_chunks_become_one_where_every_pair_would_take_too_long(monkeypatch):
    import dask.array as da

    X = np.random.default_rng(5).normal(size=(100, 9))
    lazy = da.from_array(X, chunks=(30, -1))
    assert neighbors.search(lazy, 3)[0].numblocks[0] == 4
    monkeypatch.setattr(neighbors, "_DESCENT_SECONDS", 1e-9)
    monkeypatch.setattr(neighbors, "_descent", lambda X, Q, k, own, seed: neighbors._exact(X, Q, k, own))
    monkeypatch.setattr("metricforge.cluster.task_bytes", lambda: 1000)  # one index is not split, however large
    found = neighbors.search(lazy, 3)[0]
    assert found.numblocks[0] == 1
    np.testing.assert_array_equal(found.compute(scheduler="sync"), neighbors.search(X, 3, method="exact")[0])


def test_dask_rows_are_not_computed_behind_the_back():
    import dask.array as da

    with pytest.raises(InputError, match=r"X\.compute\(\)"):
        neighbors.recall(np.zeros((5, 1), dtype=int), da.from_array(X5))
