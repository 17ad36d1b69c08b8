"""Retrieval: relations from relevance, hard negatives, scores against scikit-learn, adapters against the kernel."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import ndcg_score

import metricforge as mf
from metricforge.errors import InputError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 5))
Y = np.arange(60) % 4
X[:, :4] += 1.5 * np.eye(4)[Y]
QUERIES = np.arange(20)
RELEVANT = [np.flatnonzero((Y[q] == Y) & (np.arange(60) >= 20)) for q in QUERIES]
DOCUMENTS = np.arange(20, 60)


@pytest.fixture(scope="module")
def metric():
    return mf.learn(X, mf.Triplets.from_relevance(QUERIES, RELEVANT, 60), method="relevance", C=1.0)


def test_triplets_and_pairs_from_relevance():
    drawn = mf.Triplets.from_relevance(QUERIES, RELEVANT, 60, per_pair=2, seed=1)
    i, j, k = drawn.triples.T
    assert drawn.size == 2 * sum(map(len, RELEVANT))
    assert (Y[i] == Y[j]).all()
    relevant = {int(q): set(r.tolist()) for q, r in zip(QUERIES, RELEVANT, strict=True)}
    assert all(int(c) not in relevant[int(a)] for a, c in zip(i, k, strict=True))
    given = mf.Triplets.from_relevance([0, 1], [[4], [5, 9]], 60, irrelevant=[[2, 3], [7]])
    assert given.triples.tolist() == [[0, 4, 2], [0, 4, 3], [1, 5, 7], [1, 9, 7]]
    pairs = mf.Pairs.from_relevance([0, 1], [[4], [5]], 60, irrelevant=[[2], [0]])
    assert pairs.similar.tolist() == [[0, 4], [1, 5]]
    assert pairs.dissimilar.tolist() == [[0, 1], [0, 2]]
    assert mf.Triplets.from_relevance([0], [4], 60, seed=2) == mf.Triplets.from_relevance([0], [4], 60, seed=2)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: mf.Triplets.from_relevance([0], [[1], [2]], 9), "relevant has 2 entries for 1 queries"),
        (lambda: mf.Triplets.from_relevance([0], [[]], 9), r"relevant\[0\] is empty"),
        (lambda: mf.Triplets.from_relevance([0], [[0]], 9), "names the query itself"),
        (lambda: mf.Triplets.from_relevance([9], [[0]], 9), "queries names row 9"),
        (lambda: mf.Triplets.from_relevance([0], [[1]], 9, irrelevant=[[1]]), "which is the query or relevant"),
        (lambda: mf.Triplets.from_relevance([0], [[1]], 2), "no query has a row that is not relevant"),
        (lambda: mf.Triplets.from_relevance([0.5], [[1]], 9), "must be row numbers"),
    ],
)
def test_bad_judgements(call, words):
    with pytest.raises(InputError, match=words):
        call()


@pytest.mark.parametrize("by", ["kernel", "distance"])
def test_scores_against_scikit_learn(by):
    found = mf.tasks.retrieval_scores(mf.kernels.Linear(), X, QUERIES, RELEVANT, documents=DOCUMENTS, by=by)
    S = X[:20] @ X[20:].T
    if by == "distance":
        S = -np.square(X[:20, None] - X[None, 20:]).sum(axis=2)
    truth = np.array([np.isin(DOCUMENTS, r) for r in RELEVANT]).astype(float)
    assert found.ndcg == pytest.approx(ndcg_score(truth, S, k=10))
    best = np.argsort(-S, axis=1)[:, :10]
    hits = np.take_along_axis(truth, best, axis=1)
    assert found.precision == pytest.approx(hits.mean())
    assert found.recall == pytest.approx((hits.sum(axis=1) / truth.sum(axis=1)).mean())
    assert found.errors["ndcg"] == pytest.approx(found.per_query[:, 3].std() / np.sqrt(20), rel=0.15)
    assert f"nDCG@10 {found.ndcg:.3f}" in str(found)


def test_grades_compare_relevant_rows_and_repeat_triplets():
    T = mf.Triplets.from_relevance([0, 5], [[1, 2, 3], [6]], 9, irrelevant=[[4], [7]], grades=[[3, 1, 1], [2]])
    found = sorted(map(tuple, T.triples.tolist()))
    expected = [(0, 1, 4)] * 3 + [(0, 2, 4), (0, 3, 4)] + [(0, 1, 2)] * 2 + [(0, 1, 3)] * 2 + [(5, 6, 7)] * 2
    assert found == sorted(expected)


def test_graded_ndcg_against_scikit_learn():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(40, 4))
    queries, grade = np.arange(8), rng.integers(0, 4, size=(8, 32))
    grade[:, 0] = 3
    relevant = [8 + np.flatnonzero(row) for row in grade]
    grades = [row[row > 0] for row in grade]
    scores = mf.tasks.retrieval_scores(None, X, queries, relevant, documents=range(8, 40), grades=grades, k=7)
    assert scores.ndcg == pytest.approx(ndcg_score(grade, X[:8] @ X[8:].T, k=7))


@pytest.mark.parametrize("grades", [[[1]], [[1], [1]], [[0, 1], [1]], [[1.5, 1], [1]]])
def test_bad_grades(grades):
    with pytest.raises(InputError, match="grades"):
        mf.Triplets.from_relevance([0, 3], [[1, 2], [4]], 6, grades=grades)


def test_relevance_of_kinds():
    queries, relevant = mf.Triplets([(0, 1, 2), (0, 3, 2), (0, 1, 4), (2, 1, 0)], n=5).relevance()
    assert queries.tolist() == [0, 2]
    assert [rows.tolist() for rows in relevant] == [[1, 3], [1]]
    queries, relevant = mf.Pairs([(0, 1), (1, 4)], [(0, 2)], n=5).relevance()
    assert queries.tolist() == [0, 1, 4]
    assert [rows.tolist() for rows in relevant] == [[1], [0, 4], [1]]
    assert mf.Chunklets([0, 0, -1]).relevance() is None


def test_hard_negatives_score_high_and_are_not_relevant():
    found = mf.tasks.hard_negatives(X, QUERIES, RELEVANT, documents=DOCUMENTS, per_query=3)
    S = X @ X.T
    for query, good, bad in zip(QUERIES, RELEVANT, found, strict=True):
        assert len(bad) <= 3
        assert not set(bad) & {query, *good}
        assert S[query, bad].max(initial=-np.inf) < S[query, good].max()
        if len(bad) == 3:
            others = np.setdiff1d(DOCUMENTS, [*good, *bad])
            allowed = others[S[query, others] < S[query, good].max() - 0.05 * S[query, DOCUMENTS].std()]
            assert S[query, bad].min() >= S[query, allowed].max() - 1e-9
    mf.Triplets.from_relevance(QUERIES, RELEVANT, 60, irrelevant=found)


def test_the_query_side_ranks_as_the_kernel(metric, tmp_path):
    A, b = metric.adapter("query")
    assert (b == 0).all()
    new = np.random.default_rng(1).normal(size=(30, 5))
    expected = metric.kernel(new, X)
    np.testing.assert_allclose((new @ A.T + b) @ X.T, expected, atol=1e-9)
    indices, scores = metric.neighbors(new, k=10, by="kernel")
    np.testing.assert_array_equal(indices, np.argsort(-expected, axis=1, kind="stable")[:, :10])
    np.testing.assert_allclose(scores, -np.sort(-expected, axis=1)[:, :10], atol=1e-9)
    metric.adapter("query").save(tmp_path / "a.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), np.column_stack([A, b]))


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_a_constant_column_gives_documents_a_score_of_their_own(kind):
    from scipy.sparse import csr_array

    rng = np.random.default_rng(0)
    A = rng.normal(size=(300, 6))
    A[:, 0] = rng.uniform(-1, 1, size=300)
    good = np.where(A[:, 0] > 0)[0]  # relevant whatever the query
    triplets = [(q, *pair) for q in range(40) for pair in zip(good[-20:], np.where(A[:, 0] < 0)[0][-20:], strict=True)]
    T = mf.Triplets([t for t in triplets if len(set(t)) == 3], n=300)
    rows = A if kind == "dense" else csr_array(A)
    metric = mf.learn(rows, T, method="relevance", kernel=mf.kernels.Polynomial(1, coef0=1.0))
    M, b = metric.adapter("query")
    K = np.asarray(metric.kernel(A[:5], A))
    mapped = (A[:5] @ M.T + b) @ A.T
    np.testing.assert_allclose(mapped - mapped[:, :1], K - K[:, :1], atol=1e-9)
    assert b[0] > 3 * np.abs(b[1:]).max()
    plain = mf.learn(A, T, method="relevance")
    judge = {"queries": range(60, 100), "relevant": [good[good < 60]] * 40, "documents": range(60)}
    with_constant, without = (mf.tasks.retrieval_scores(m, A, **judge).ndcg for m in (metric, plain))
    assert with_constant > without + 0.1


def test_both_sides_give_the_kernel(metric):
    adapter = metric.adapter("both")
    np.testing.assert_allclose(adapter(X) @ adapter(X).T, metric.kernel(X, X), atol=1e-8)
    few = metric.adapter("both", n_components=3)
    assert few.A.shape == (3, 5)


def test_a_centred_start_has_a_constant():
    start = mf.kernels.Standardized(mf.kernels.Linear())
    metric = mf.learn(X + 5, mf.Triplets.from_relevance(QUERIES, RELEVANT, 60), method="relevance", kernel=start)
    A, b = metric.adapter("query")
    assert np.abs(b).max() > 0.1
    K, S = metric.kernel(X + 5, X + 5), ((X + 5) @ A.T + b) @ (X + 5).T
    np.testing.assert_allclose(S - S[:, :1], K - K[:, :1], atol=1e-8)  # equal up to a constant of the query


def test_onnxruntime_reproduces_it(metric, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: the extra dev has it")
    adapter = metric.adapter("query")
    adapter.save(tmp_path / "a.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "a.onnx"), providers=["CPUExecutionProvider"])
    found = session.run(None, {"x": X.astype(np.float32)})[0]
    np.testing.assert_allclose(found, adapter(X), rtol=1e-5, atol=1e-5)


def test_what_has_no_adapter(metric):
    gaussian = mf.learn(X, Y, method="euclidean", kernel=mf.kernels.RBF(1.0))
    with pytest.raises(InputError):
        gaussian.adapter("query")
    with pytest.raises(InputError, match="n_components is for side"):
        metric.adapter("query", n_components=2)
    with pytest.raises(InputError, match="give a name that ends in"):
        metric.adapter("query").save("a.txt")


@pytest.mark.parametrize("per_query", [2.5, 0, -1, "x"])
def test_the_number_of_hard_negatives_is_whole(per_query):
    with pytest.raises(InputError, match="per_query"):
        mf.tasks.hard_negatives(X, QUERIES, RELEVANT, documents=DOCUMENTS, per_query=per_query)
