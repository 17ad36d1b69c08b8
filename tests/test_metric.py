from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import metricforge as mf
from metricforge import metric as metric_file
from metricforge.errors import InputError, MemoryBudgetError, NotUpdatableError
from metricforge.kernels import RBF, Linear, Spectrum
from metricforge.space import LearnedKernel, represent


def points(n=60, d=4, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def euclidean(X, kernel="linear", **options):
    return mf.learn(X, np.arange(np.shape(X)[0]) % 3, method="euclidean", kernel=kernel, **options)


def test_linear_metric_is_the_euclidean_distance():
    X, A = points(), points(7, seed=1)
    metric = euclidean(X)
    expected = np.linalg.norm(A[:, None] - X[None], axis=-1)
    np.testing.assert_allclose(metric.distance(A, X), expected, atol=1e-12)
    np.testing.assert_allclose(metric.paired_distance(A, X[:7]), np.linalg.norm(A - X[:7], axis=1), atol=1e-12)
    np.testing.assert_allclose(metric.transform(A), A)
    np.testing.assert_allclose(metric.kernel(A, X), A @ X.T)
    D = metric.distance(A)
    assert (np.diag(D) == 0).all()
    index, near = metric.neighbors(A, k=4)
    np.testing.assert_array_equal(index, np.argsort(expected, axis=1, kind="stable")[:, :4])
    np.testing.assert_allclose(near, np.sort(expected, axis=1)[:, :4], atol=1e-12)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix, sp.csr_array, lambda A: A.tolist()])
def test_containers_are_interchangeable(form):
    X, A = points(), points(7, seed=1)
    metric, other = euclidean(X, kernel=RBF(0.3)), euclidean(form(X), kernel=RBF(0.3))
    np.testing.assert_allclose(other.distance(form(A), form(X)), metric.distance(A, X), atol=1e-9)
    np.testing.assert_allclose(other.transform(A) @ other.transform(X).T, metric.kernel(A, X), atol=0.05)
    np.testing.assert_allclose(other.transform(form(X)), metric.transform(X), atol=1e-6)
    np.testing.assert_array_equal(other.neighbors(form(A), 5)[0], metric.neighbors(A, 5)[0])


def test_columns_of_a_frame_are_matched_by_name(tmp_path):
    frame = pd.DataFrame(points(30, 3), columns=["a", "b", "c"])
    metric = mf.learn(frame, np.arange(30) % 2, method="euclidean")
    assert metric.report.columns == ("a", "b", "c")
    expected = metric.distance(frame.to_numpy())
    metric.save(tmp_path / "m.metric")
    for known in (metric, 2 * metric, metric + metric, mf.load(tmp_path / "m.metric")):
        with pytest.raises(InputError, match=r"A has the columns c, b, a, but .* learned on a, b, c, in that order"):
            known.distance(frame[["c", "b", "a"]])
        with pytest.raises(InputError, match=r"select them with A\[list\(metric\.columns\)\]"):
            known.transform(frame.assign(d=0.0))
        with pytest.raises(InputError, match=r"A lacks 1 column that the metric was learned on: b; add it, and select"):
            known.distance(frame[["a", "c"]])
        assert known.columns == known.report["columns"] == ("a", "b", "c")
    assert np.array_equal(metric.distance(frame[["c", "b", "a"]][list(metric.columns)]), expected)
    numbered = mf.learn(pd.DataFrame(frame.to_numpy()), np.arange(30) % 2, method="euclidean")
    assert np.array_equal(numbered.distance(frame), expected)  # names that are no strings are none
    # columns of a file without a header are numbered
    assert np.array_equal(replace(numbered, columns=("0", "1", "2")).distance(frame), expected)


def test_embedding_of_training_rows_is_exact_and_new_rows_lose_only_their_residual():
    X, A = points(), points(9, seed=1)
    metric = euclidean(X, kernel=RBF(0.3))
    E, F = metric.transform(X), metric.transform(A)
    np.testing.assert_allclose(np.linalg.norm(E[:, None] - E[None], axis=-1), metric.distance(X), atol=1e-6)
    np.testing.assert_allclose(F @ E.T, metric.kernel(A, X), atol=1e-7)
    assert (np.square(F).sum(axis=1) <= 1 + 1e-9).all()


def test_single_precision_stays_single_and_agrees():
    X, A = points(), points(9, seed=1)
    for kernel in (Linear(), RBF(0.3)):
        single, double = euclidean(X.astype(np.float32), kernel=kernel), euclidean(X, kernel=kernel)
        assert single.rows.dtype == np.float32
        a = A.astype(np.float32)
        for mine, theirs in (
            (single.distance(a, X.astype(np.float32)), double.distance(A, X)),
            (single.transform(a), double.transform(A)),
            (single.kernel(a), double.kernel(A)),
        ):
            assert mine.dtype == np.float32
            np.testing.assert_allclose(mine, theirs, atol=1e-4 if mine.shape[1] > 9 else 3e-6)


def test_single_precision_rows_are_not_copied():
    X = points(2000).astype(np.float32)
    assert np.shares_memory(euclidean(X).rows, X)
    Y = sp.random_array((500, 50), density=0.1, rng=np.random.default_rng(0), format="csr", dtype=np.float32)
    assert np.shares_memory(euclidean(Y).rows.data, Y.data)


# ------------------------------------------------------------------------------------------------------ neighbours


def test_neighbours_of_strings():
    rng = np.random.default_rng(0)
    S = ["".join(rng.choice(list("ACD"), size=10)) for _ in range(30)]
    metric = euclidean(S, kernel=Spectrum(2).normalized())
    index, near = metric.neighbors(S[:4], k=3)
    D = metric.distance(S[:4], S)
    np.testing.assert_allclose(near, np.sort(D, axis=1)[:, :3], atol=1e-7)
    np.testing.assert_allclose(np.take_along_axis(D, index, axis=1), near, atol=1e-7)


def test_neighbours_beyond_the_exact_size_come_from_the_embedding_with_exact_distances(monkeypatch):
    X, A = points(300), points(20, seed=1)
    metric = euclidean(X, kernel=RBF(0.3))
    exact = metric.neighbors(A, 5)
    monkeypatch.setattr(metric_file, "EXACT_NEIGHBORS", 0)
    index, near = metric.neighbors(A, 5)
    shared = np.mean([len(set(i) & set(j)) / 5 for i, j in zip(index, exact[0], strict=True)])
    assert shared > 0.95
    np.testing.assert_allclose(near, np.take_along_axis(metric.distance(A, X), index, axis=1), atol=1e-7)


@pytest.mark.parametrize("k", [0, -1, 61, 2.0, True])
def test_wrong_k(k):
    with pytest.raises(InputError, match=r"k must be a whole number .* and at most 60 \(the number of training rows\)"):
        euclidean(points()).neighbors(points(3), k)


# ------------------------------------------------------------------------------------------------------- arithmetic


def test_sums_and_multiples():
    X, A = points(), points(9, seed=1)
    a, b = euclidean(X), euclidean(X, kernel=RBF(0.3))
    total = 0.7 * a + 0.3 * b
    np.testing.assert_allclose(
        total.distance(A, X) ** 2, 0.7 * a.distance(A, X) ** 2 + 0.3 * b.distance(A, X) ** 2, atol=1e-10
    )
    assert total.neighbors(A, 3)[0].shape == (9, 3)
    assert isinstance(total, mf.Metric)
    assert [p["kernel"] for p in total.report.parts] == ["Linear()", "RBF(gamma=0.3, base=None)"]
    np.testing.assert_allclose(sum([a, b]).distance(A), (a + b).distance(A))
    E = total.transform(X)
    np.testing.assert_allclose(np.linalg.norm(E[:, None] - E[None], axis=-1), total.distance(X), atol=1e-5)
    for weight in (0, -1.0, np.inf, np.nan):
        with pytest.raises(InputError, match="positive number"):
            weight * a
    with pytest.raises(TypeError):
        a + 3


def test_a_sum_over_different_rows_has_no_neighbours_but_everything_else():
    X, Y, A = points(), points(40, seed=3), points(9, seed=1)
    a, b = euclidean(X, kernel=RBF(0.2)), euclidean(Y, kernel=RBF(0.3))
    total = a + b
    np.testing.assert_allclose(total.distance(A) ** 2, a.distance(A) ** 2 + b.distance(A) ** 2, atol=1e-10)
    np.testing.assert_allclose(total.transform(A), np.hstack([a.transform(A), b.transform(A)]), atol=1e-10)
    with pytest.raises(InputError, match="no training rows"):
        total.neighbors(A)
    assert "different rows" in total.report.notes[0]


def test_a_metric_is_the_start_of_the_next_fit():
    X = points()
    first = euclidean(X, kernel=RBF(0.3))
    second = mf.learn(X, np.arange(60) % 2, method="euclidean", kernel=first)
    assert second.kernel == first.kernel
    gaussian = mf.learn(X, np.arange(60) % 2, method="euclidean", kernel=RBF("median", base=first.kernel))
    D = first.distance(X)[np.triu_indices(60, 1)] ** 2
    assert gaussian.kernel.gamma == pytest.approx(1 / np.median(D))


def test_embeddings_of_sums_with_learned_parts_stand_side_by_side():
    X = points()
    made = represent(Linear(), X)
    metric = mf.learn(X, np.arange(60) % 2, method="euclidean", kernel=LearnedKernel(made.map, np.diag([4.0, 1, 0, 0])))
    total = metric + 0.5 * euclidean(X)
    E = total.transform(X)
    assert E.shape == (60, 2 + 4)
    np.testing.assert_allclose(np.linalg.norm(E[:, None] - E[None], axis=-1), total.distance(X), atol=1e-9)


# ------------------------------------------------------------------------------------------------------ report, limits


def test_report_reads_as_attributes_and_items_and_is_read_only():
    report = euclidean(points()).report
    assert report.gap == report["gap"] == 0
    assert report.status == "optimal"
    assert report.peak_memory > 1e7
    assert "method" in repr(report)
    with pytest.raises(AttributeError, match="no 'gpa'; it has method"):
        _ = report.gpa
    with pytest.raises(AttributeError, match="read-only"):
        report.gap = 3


def test_a_distance_matrix_that_does_not_fit_says_what_it_takes(monkeypatch):
    metric = euclidean(points())
    monkeypatch.setenv("METRICFORGE_MEMORY", "10kB")
    with pytest.raises(MemoryBudgetError, match=r"60 × 60 distance matrix would take.*neighbors"):
        metric.distance(points())


def test_updating_what_cannot_be_updated():
    metric = euclidean(points())
    with pytest.raises(NotUpdatableError, match="Euclidean cannot be updated; learn again"):
        metric.update(points(3), mf.Labels([0, 1, 1]))
    with pytest.raises(InputError, match="sum of metrics cannot be updated"):
        (metric + metric).update(points(3), mf.Labels([0, 1, 1]))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: m.distance(points(3, 5)), ["A has 5 features", "4"]),
        (lambda m: m.distance(points(3), points(3, 5)), ["B has 5 features", "4"]),
        (lambda m: m.paired_distance(points(3), points(4)), ["A has 3 rows and B has 4"]),
        (lambda m: m.transform([[1.0, np.nan, 0, 0]]), ["A contains NaN", "row 0"]),
        (lambda m: m.transform(np.ones(4)), ["A must be 2-d", "reshape"]),
        (lambda m: m.neighbors(np.ones((2, 3))), ["A has 3 features"]),
    ],
)
def test_bad_rows(call, words):
    with pytest.raises(InputError) as caught:
        call(euclidean(points()))
    for word in words:
        assert word in str(caught.value)


# --------------------------------------------------------------------------------------------------------- hard cases


@pytest.mark.parametrize(
    ("n", "d", "rank", "weight"),
    [
        (30, 200, "auto", 1),
        (30, 200, "exact", 1),
        (60, 8, 3, 1),
        (30, 200, "auto", 2),
        (200, 1100, 20, 1),
        (60, 8, 3, 2),
    ],
)
def test_neighbours_off_the_span_of_the_training_rows(n, d, rank, weight):
    X, A = points(n, d), points(9, d, seed=1)
    metric = euclidean(X, rank=rank)
    metric = metric if weight == 1 else weight * metric
    index, near = metric.neighbors(A, 3)
    D = metric.distance(A, X)
    np.testing.assert_allclose(near, np.sort(D, axis=1)[:, :3], rtol=1e-9)
    np.testing.assert_array_equal(index, np.argsort(D, axis=1, kind="stable")[:, :3])


def test_new_rows_lose_nothing_under_a_linear_kernel_with_more_features_than_rows():
    X, A = points(30, 200), points(9, 200, seed=1)
    np.testing.assert_allclose(euclidean(X).transform(A), A)
    np.testing.assert_allclose((4 * euclidean(X)).transform(A), 2 * A)


def test_metrics_without_rows_still_add_and_scale(tmp_path):
    import dask.array as da

    X, A = points(), points(9, seed=1)
    euclidean(da.from_array(X, chunks=(20, -1)), kernel=RBF(0.3)).save(tmp_path / "a.metric")
    metric = mf.load(tmp_path / "a.metric")
    assert metric.rows is None
    np.testing.assert_allclose((4 * metric).transform(A), 2 * metric.transform(A))
    np.testing.assert_allclose((metric + metric).distance(A), np.sqrt(2) * metric.distance(A))
    (2 * metric + metric).save(tmp_path / "b.metric")
    np.testing.assert_allclose(mf.load(tmp_path / "b.metric").distance(A), np.sqrt(3) * metric.distance(A))
    with pytest.raises(InputError, match="A has 3 features, but the metric was learned on 4"):
        metric.distance(points(2, 3))
    with pytest.raises(InputError, match="no training rows"):
        metric.neighbors(A)


def test_a_solver_names_its_method():
    from metricforge.resolve import find_method

    solver = find_method("euclidean").solver
    assert mf.learn(points(), np.arange(60) % 2, solver=solver).report.method == "euclidean"
    assert mf.MetricLearner(solver=solver).get_params()["kernel"] is None


def test_distances_of_rows_among_themselves_are_symmetric_to_the_last_bit(rng):
    X = 1e3 + rng.normal(size=(1100, 3))
    D = mf.learn(X[:30], np.arange(30) % 2, method="krca", epsilon=1e-12).distance(X)
    assert (D == D.T).all()
    assert not D.diagonal().any()


def test_lists_of_unequal_lengths_are_no_rows(rng):
    metric = mf.learn(rng.normal(size=(8, 2)), np.arange(8) % 2, method="euclidean")
    with pytest.raises(InputError, match=r"^A must be a 2-d array of numbers; its rows have unequal lengths"):
        metric.distance([[1.0, 2.0], [3.0]])


def test_coordinates_that_overflow_are_an_error(rng):
    X = rng.normal(size=(9, 2))
    metric = mf.learn(X, np.arange(9) % 2, method="euclidean", kernel=mf.kernels.Polynomial(3), rank="exact")
    with pytest.raises(InputError, match=r"^A: some coordinates overflow; rescale"):
        metric.transform(1e140 * X)
    for call in (metric.distance, metric.paired_distance):
        with pytest.raises(InputError, match=r"^A: some distances overflow; rescale"):
            call(1e140 * X, 1e140 * X[::-1])


def test_a_long_search_reports_progress_from_its_start(plugged, monkeypatch):
    X, events = points(), []
    metric = mf.learn(X, np.arange(len(X)) % 2, method="euclidean")
    with plugged(step=events.append):
        metric.neighbors(X[:20], k=3)
        assert not events
        monkeypatch.setattr("metricforge.metric.SENT_NEIGHBORS", 1000)
        metric.neighbors(X[:20], k=3)
    assert events[0].task == f"neighbors of 20 rows among {len(X)}"
    assert events[-1].done
