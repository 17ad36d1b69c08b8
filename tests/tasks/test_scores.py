"""The scores against their definitions."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist
from sklearn.metrics import rand_score, roc_auc_score

from metricforge.constraints import Labels, Pairs, Triplets
from metricforge.kernels import RBF, Linear, Polynomial, Spectrum
from metricforge.metric import Metric, Report
from metricforge.tasks import alignment, constrained_kmeans, one_cluster_rand, retrieval_auc, scores, triplet_accuracy

Array = np.ndarray[Any, Any]


def blobs(n: int, k: int, *, spread: float = 1.0, m: int = 2, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    y = rng.integers(k, size=n)
    return rng.normal(size=(n, m)) + spread * rng.normal(size=(k, m))[y], y


STRINGS = np.array(["ABABA", "ABABC", "CCDCC", "CCDCD", "ABCDA", "DDDDD"], dtype=object)


def metric_of(kernel: Any) -> Metric:
    return Metric(kernel, Report({"method": "given"}))


def naive_accuracy(K: Array, triplets: Triplets, by: str, both: bool) -> float:
    D = np.diag(K)[:, None] + np.diag(K)[None, :] - 2 * K
    like = K if by == "kernel" else -D
    met = 0
    for i, j, k in triplets.triples:
        met += bool(like[i, j] > like[i, k] and (not both or like[i, j] > like[j, k]))
    return met / triplets.size


@pytest.mark.parametrize("by", ["distance", "kernel"])
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize(
    "metric",
    [
        pytest.param(None, id="embedding"),
        pytest.param(RBF(0.3), id="kernel"),
        pytest.param(Polynomial(3).normalized(), id="kernel of a kernel"),
        pytest.param(metric_of(Polynomial(2)), id="metric"),
    ],
)
def test_triplet_accuracy_is_what_a_loop_counts(metric: Any, by: Any, both: bool, monkeypatch: Any) -> None:
    X, y = blobs(50, 3, m=3)
    triplets = Triplets.from_labels(y, n_triplets=400, seed=0)
    K = (metric.kernel if isinstance(metric, Metric) else metric or Linear())(X)
    expected = naive_accuracy(K, triplets, by, both)
    assert 0.1 < expected < 0.95
    assert triplet_accuracy(metric, X, triplets, by=by, both=both) == expected
    assert triplet_accuracy(metric, csr_array(X), triplets, by=by, both=both) == expected
    monkeypatch.setattr(scores, "blocks", lambda n, _: (slice(i, min(n, i + 7)) for i in range(0, n, 7)))
    assert triplet_accuracy(metric, X, triplets, by=by, both=both) == expected


def test_triplet_accuracy_by_kernel_and_by_distance_differ_with_the_diagonal() -> None:
    X = np.array([[1.0], [1.2], [9.0]])  # row 2 is far away, yet its inner products are the largest
    triplets = Triplets([(0, 1, 2)], n=3)
    assert triplet_accuracy(None, X, triplets) == 1
    assert triplet_accuracy(None, X, triplets, by="kernel") == 0


def test_ties_do_not_meet_a_triplet() -> None:
    triplets = Triplets([(0, 1, 2), (3, 4, 5)], n=6)
    for by in ("distance", "kernel"):
        assert triplet_accuracy(None, np.zeros((6, 2)), triplets, by=by) == 0
        assert triplet_accuracy(0 * RBF(1.0), np.eye(6), triplets, by=by) == 0


def test_triplets_over_strings_and_dask_rows() -> None:
    import dask.array as da

    triplets = Triplets([(0, 1, 2), (2, 3, 0), (0, 3, 1)], n=6)
    assert triplet_accuracy(Spectrum(2), STRINGS.tolist(), triplets) == pytest.approx(2 / 3)
    X, y = blobs(40, 2)
    drawn = Triplets.from_labels(y, n_triplets=60)
    lazy = da.from_array(X, chunks=(7, 2))
    assert triplet_accuracy(RBF(1.0), lazy, drawn) == triplet_accuracy(RBF(1.0), X, drawn)


def test_alignment_is_its_definition() -> None:
    X, y = blobs(40, 3, m=6)
    K = RBF(0.1)(X)
    ideal = (y[:, None] == y[None, :]).astype(float)
    expected = (K * ideal).sum() / (np.linalg.norm(K) * np.linalg.norm(ideal))
    assert alignment(y, K=K) == pytest.approx(expected, rel=1e-12)
    assert alignment(y, K=-K) == pytest.approx(-expected, rel=1e-12)
    assert alignment(np.array(["a", "b", "c"])[y], K=K) == pytest.approx(expected, rel=1e-12)
    assert alignment(Labels(y), K=1e-200 * K) == pytest.approx(expected, rel=1e-12)
    assert alignment(y, K=ideal) == pytest.approx(1, rel=1e-12)
    # Proposition 1 of the paper: idealizing raises it
    assert alignment(y, K=K + 0.5 * ideal) > expected + 0.01


@pytest.mark.parametrize("m", [1, 3, 60], ids=["column", "few", "more features than rows"])
@pytest.mark.parametrize("scale", [1.0, 1e-180, 1e100])
def test_alignment_of_a_factor_is_that_of_its_gram_matrix(m: int, scale: float) -> None:
    Z, y = blobs(40, 3, m=m)
    assert alignment(y, Z=scale * Z) == pytest.approx(alignment(y, K=Z @ Z.T), rel=1e-12)


def test_alignment_of_one_hot_labels_is_perfect() -> None:
    y = np.array([0, 0, 1, 2, 2, 2])
    assert alignment(y, Z=np.eye(3)[y]) == pytest.approx(1, rel=1e-12)
    assert alignment(y, Z=np.ones((6, 1))) == pytest.approx(np.sqrt(4 + 1 + 9) / 6, rel=1e-12)


def auc_by_scikit_learn(D: Array, y: Array) -> Array:
    n = len(y)
    others = [np.flatnonzero(np.arange(n) != q) for q in range(n)]
    return np.array([roc_auc_score(y[o] == y[q], -D[q, o]) for q, o in enumerate(others)])


@pytest.mark.parametrize("whole", [False, True], ids=["real", "whole numbers with many ties"])
@pytest.mark.parametrize("kernel", [None, RBF(0.2)], ids=["embedding", "kernel"])
def test_retrieval_auc_is_that_of_scikit_learn(whole: bool, kernel: Any, monkeypatch: Any) -> None:
    X, y = blobs(60, 3, m=3)
    X = np.round(X) if whole else X
    D = cdist(X, X, "sqeuclidean")
    expected = auc_by_scikit_learn(D, y)
    if whole:
        assert np.unique(D).size < 100  # of 1770: rounding must not order them
    for metric in (kernel, None if kernel is None else metric_of(kernel)):
        result = retrieval_auc(metric, X, y)
        assert_allclose(result.per_query, expected, atol=1e-12)
        assert result.auc == pytest.approx(expected.mean(), rel=1e-12)
        assert_array_equal(result.queries, np.arange(60))
        assert not len(result.left_out)
    monkeypatch.setattr(scores, "blocks", lambda n, _: (slice(i, min(n, i + 7)) for i in range(0, n, 7)))
    assert_allclose(retrieval_auc(kernel, X, y).per_query, expected, atol=1e-12)


def test_rounding_does_not_order_equal_distances() -> None:
    # Standardised 0/1 rows: few distinct distances, none of them a whole number.
    rng = np.random.default_rng(0)
    bits = (rng.random((80, 6)) < 0.5).astype(float)
    y = (bits.sum(axis=1) + rng.integers(2, size=80) > 3).astype(int)
    X = (bits - bits.mean(axis=0)) / 0.3
    assert_allclose(retrieval_auc(None, X, y).per_query, auc_by_scikit_learn(cdist(bits, bits), y), atol=1e-12)


def test_queries_without_a_score_are_left_out_and_counted() -> None:
    X = np.array([[0.0], [1.0], [2.0], [3.0], [50.0]])
    y = np.array(["a", "a", "b", "b", "alone"])
    result = retrieval_auc(None, X, y)
    assert_array_equal(result.queries, [0, 1, 2, 3])
    assert_array_equal(result.left_out, [4])
    assert_allclose(result.per_query, [1, 5 / 6, 5 / 6, 1])
    some = retrieval_auc(None, X, y, queries=[4, 3, 1])
    assert_array_equal(some.queries, [3, 1])
    assert_array_equal(some.left_out, [4])
    assert some.auc == pytest.approx(11 / 12)


def test_duplicates_of_the_query_count_and_the_query_does_not() -> None:
    result = retrieval_auc(None, np.zeros((4, 1)), [0, 0, 1, 1])
    assert_allclose(result.per_query, 0.5)
    assert retrieval_auc(None, [[0.0], [0.0], [1.0]], [0, 0, 1]).auc == 1


def test_retrieval_of_strings() -> None:
    y = [0, 0, 1, 1, 0, 1]
    kernel = Spectrum(2).normalized()
    D = np.round(2 - 2 * kernel(STRINGS), 12)
    assert_allclose(retrieval_auc(kernel, STRINGS.tolist(), y).per_query, auc_by_scikit_learn(D, np.array(y)))


@given(st.lists(st.integers(0, 4), min_size=2, max_size=40))
def test_one_cluster_rand_is_the_rand_index_of_one_cluster(y: list[int]) -> None:
    assert one_cluster_rand(y) == pytest.approx(rand_score(y, np.zeros(len(y))), abs=1e-12)


def test_scores_make_nothing_quadratic() -> None:
    n = 20_000  # n × n would be 3.2 GB
    Z, y = blobs(n, 3, m=5)
    pairs = Pairs.from_labels(y, components=0.9, closure=False)
    triplets = Triplets.from_labels(y, n_triplets=2000)
    calls = {
        "alignment": lambda: alignment(y, Z=Z),
        "triplet_accuracy": lambda: triplet_accuracy(RBF(1.0), Z, triplets, both=True),
        "retrieval_auc": lambda: retrieval_auc(None, Z, y, queries=np.arange(40)),
        "constrained_kmeans": lambda: constrained_kmeans(Z, 3, pairs, n_init=1, max_iter=3),
    }
    for call in calls.values():
        call()  # imports are not counted
    for name, call in calls.items():
        tracemalloc.start()
        call()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 100e6, name
