"""Metrics combine with numbers, metrics and kernels; single rows, Mahalanobis matrices, cut embeddings."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.decomposition import PCA
from sklearn.neighbors import KNeighborsClassifier

import metricforge as mf
from metricforge.errors import InputError
from metricforge.kernels import RBF, Linear, Spectrum, Standardized


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(40, 4)) * [1, 2, 3, 4]
    y = np.repeat([0, 1], 20)
    X[y == 1] += 1
    return X, y


@pytest.fixture(scope="module")
def metric(data):
    return mf.learn(*data, method="krca", kernel="linear", epsilon=0.5)


# ------------------------------------------------------------------------------------------------------- with kernels


@pytest.mark.parametrize("kernel", [Linear(), RBF(0.1), RBF("median")])
def test_a_sum_with_a_kernel_is_the_sum_of_their_blocks_in_either_order(data, metric, kernel):
    X, _ = data
    own = kernel.resolve(X)
    for total in (0.7 * metric + 0.3 * kernel, 0.3 * kernel + 0.7 * metric):
        assert isinstance(total, mf.Metric)
        assert_allclose(total.kernel(X), 0.7 * metric.kernel(X) + 0.3 * own(X), rtol=1e-12)
        assert_allclose(
            total.distance(X) ** 2, 0.7 * metric.distance(X) ** 2 + 0.3 * own.distance(X, X) ** 2, atol=1e-9
        )
        assert_allclose(total.start(X), 0.7 * metric.start(X) + 0.3 * own(X), rtol=1e-12)
        indices, _ = total.neighbors(X[:5], k=3)
        assert_array_equal(indices[:, 0], np.arange(5))


def test_a_product_with_a_kernel_or_a_metric_is_the_product_of_their_blocks(data, metric):
    X, _ = data
    expected = metric.kernel(X) * RBF(0.1)(X)
    for product in (metric * RBF(0.1), RBF(0.1) * metric):
        assert isinstance(product, mf.Metric)
        assert_allclose(product.kernel(X), expected, rtol=1e-12)
        assert len(product.report.parts) == 2
    assert_allclose((metric * metric).kernel(X), metric.kernel(X) ** 2, rtol=1e-12)


def test_the_embedding_of_a_sum_with_a_kernel_has_the_distances_of_the_sum(data, metric):
    X, _ = data
    total = metric + Linear()
    E = total.transform(X)
    assert_allclose(np.linalg.norm(E[:, None] - E[None], axis=2), total.distance(X), atol=1e-8)


def test_a_sum_with_a_kernel_survives_a_file(data, metric, tmp_path):
    X, _ = data
    total = 0.7 * metric + 0.3 * RBF("median")
    total.save(tmp_path / "total.metric")
    assert_array_equal(mf.load(tmp_path / "total.metric").distance(X), total.distance(X))


def test_other_operands_are_refused(metric):
    for operand in ("rbf", None, [1.0]):
        with pytest.raises(TypeError):
            metric + operand
        with pytest.raises(TypeError):
            operand * metric
    with pytest.raises(InputError, match="positive number"):
        -1 * metric


def test_a_kernel_on_other_rows_is_refused(metric):
    with pytest.raises(InputError):
        metric + Spectrum(2)


# -------------------------------------------------------------------------------------------------------- single rows


def test_two_single_rows_give_one_number(data, metric):
    X, _ = data
    d = metric.distance(X[0], X[1])
    assert isinstance(d, float)
    assert_allclose(d, metric.distance(X[:1], X[1:2])[0, 0], rtol=1e-12)
    assert_allclose(metric.distance(list(X[0]), X[1]), d, rtol=1e-12)
    with pytest.raises(InputError, match="3 features"):
        metric.distance(X[0, :3], X[1, :3])
    with pytest.raises(InputError):
        metric.distance(X[0])


def test_two_strings_give_one_number():
    words = np.array(["abab", "abba", "bbbb", "aabb"], dtype=object)
    metric = mf.learn(words, [0, 0, 1, 1], method="euclidean", kernel=Spectrum(2))
    assert_allclose(metric.distance("abab", "bbbb"), metric.distance(words)[0, 2])


def test_scikit_learn_takes_the_distance_as_a_callable_metric(data, metric):
    X, y = data
    model = KNeighborsClassifier(3, metric=metric.distance).fit(X[::2], y[::2])
    distances, indices = model.kneighbors(X[1::2])
    expected = np.sort(metric.distance(X[1::2], X[::2]), axis=1)[:, :3]
    assert_allclose(distances, expected, rtol=1e-9)
    assert indices.shape == (20, 3)


# --------------------------------------------------------------------------------------------------------- Mahalanobis


@pytest.mark.parametrize("kernel", [Linear(), Standardized(Linear())])
@pytest.mark.parametrize("method", ["krca", "idealized", "euclidean"])
def test_the_mahalanobis_matrix_gives_the_distances(data, method, kernel):
    X, y = data
    metric = mf.learn(X, y, method=method, kernel=kernel)
    M = metric.mahalanobis()
    Z = X[:, None] - X[None]
    assert_allclose(np.einsum("ijk,kl,ijl->ij", Z, M, Z), metric.distance(X) ** 2, atol=1e-8)


def test_a_metric_that_is_not_mahalanobis_says_why(data):
    X, y = data
    with pytest.raises(InputError, match="not linear in the columns"):
        mf.learn(X, y, method="krca", kernel=RBF(0.1)).mahalanobis()
    words = np.array(["abab", "abba"], dtype=object)
    with pytest.raises(InputError, match="no matrix M"):
        mf.learn(words, [0, 1], method="euclidean", kernel=Spectrum(2)).mahalanobis()


# -------------------------------------------------------------------------------------------------------- n_components


def test_a_cut_embedding_is_the_principal_components_of_the_full_one(data, metric):
    X, _ = data
    cut = metric.truncated(2)
    full = metric.transform(X)
    reference = PCA(2).fit(full)
    E = cut.transform(X)
    assert E.shape == (40, 2)
    assert_allclose(np.abs(E - E.mean(axis=0)), np.abs(reference.transform(full)), atol=1e-9)
    assert_allclose(cut.report.kept, reference.explained_variance_ratio_.sum(), rtol=1e-9)
    assert cut.report.n_components == 2
    assert_array_equal(cut.distance(X), metric.distance(X))
    assert_array_equal(cut.neighbors(X, k=3)[0], metric.neighbors(X, k=3)[0])


@pytest.mark.parametrize("make", [lambda m: m, lambda m: m + RBF(0.1)], ids=["one map", "stacked maps"])
def test_a_cut_embedding_survives_a_file_twice(data, metric, make, tmp_path):
    X, _ = data
    cut = make(metric).truncated(2)
    cut.save(tmp_path / "cut.metric")
    loaded = mf.load(tmp_path / "cut.metric")
    loaded.save(tmp_path / "again.metric")
    for other in (loaded, mf.load(tmp_path / "again.metric")):
        assert_allclose(other.transform(X), cut.transform(X), atol=1e-12)


def test_a_cut_embedding_of_dask_rows_is_the_same(data, metric):
    import dask.array as da

    X, y = data
    lazy = mf.learn(da.from_array(X, chunks=(13, -1)), y, method="krca", kernel="linear", epsilon=0.5).truncated(2)
    assert_allclose(np.abs(lazy.transform(X)), np.abs(metric.truncated(2).transform(X)), atol=1e-9)


def test_more_components_than_columns_keep_all(data, metric):
    cut = metric.truncated(99)
    assert cut.report.n_components == 4
    assert_allclose(cut.report.kept, 1)
    for bad in (0, 1.5, "two"):
        with pytest.raises(InputError, match="n_components"):
            metric.truncated(bad)


def test_the_learner_cuts_its_embedding(data):
    X, y = data
    learner = mf.MetricLearner("krca", kernel="linear", n_components=2, random_state=0).fit(X, y)
    assert learner.transform(X).shape == (40, 2)
    assert len(learner.get_feature_names_out()) == 2
    assert 0 < learner.metric_.report.kept < 1
