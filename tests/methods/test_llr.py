"""The log-likelihood ratio against its definition pair by pair, and against its optimisation problem."""

from __future__ import annotations

import numpy as np
import pytest
from metricforge_plugins.llr.solver import PRIOR_DISSIMILAR, PRIOR_SIMILAR, RIDGE, LikelihoodRatio, independent
from numpy.testing import assert_allclose
from scipy.sparse import csr_array
from scipy.stats import multivariate_normal

import metricforge as mf
from metricforge.constraints import Distances
from metricforge.errors import InputError
from metricforge.testing import check_method

Linear, RBF, Spectrum = mf.kernels.Linear, mf.kernels.RBF, mf.kernels.Spectrum


def test_conforms():
    check_method("llr")


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    X = rng.normal(size=(60, 4)) * [1, 2, 0.5, 3] + 2 * np.eye(4)[:3][y] + 100
    return X, y, mf.Pairs.from_labels(y, n_pairs=80, seed=0)


def covariances(X, pairs, k0):
    """S and D pair by pair."""
    T = np.cov(X.T, bias=True)
    v = np.trace(T) / len(T)
    priors = PRIOR_SIMILAR * v * np.eye(len(T)), PRIOR_DISSIMILAR * (T + RIDGE * v * np.eye(len(T)))
    found = []
    for part, prior in zip((pairs.similar, pairs.dissimilar), priors, strict=True):
        total = sum((np.outer(X[i] - X[j], X[i] - X[j]) / 2 for i, j in part), np.zeros_like(T))
        found.append((total + k0 * prior) / (len(part) + k0))
    return found


@pytest.mark.parametrize("prior", ["auto", 0.5, 50.0])
def test_the_metric_is_its_definition_pair_by_pair(problem, prior):
    X, _, pairs = problem
    metric = mf.learn(X, pairs, method="llr", kernel=Linear(), prior=prior)
    S, D = covariances(X, pairs, 4 if prior == "auto" else prior)
    w, V = np.linalg.eigh(np.linalg.inv(S) - np.linalg.inv(D))
    assert_allclose(metric.mahalanobis(), (V * np.maximum(w, 0.02 * w[-1])) @ V.T, rtol=1e-8, atol=1e-10)
    assert metric.report.raised == (w < 0.02 * w[-1]).sum()
    assert_allclose(metric.report.eigenvalues[0], w[-1])
    assert metric.report.gap < 1e-12


def test_the_inverses_minimise_the_objective(problem):
    X, _, pairs = problem
    S, D = covariances(X, pairs, 4)
    report = mf.learn(X, pairs, method="llr", kernel=Linear()).report

    def objective(A, B):
        return np.trace(S @ A) - np.linalg.slogdet(A)[1] + np.trace(D @ B) - np.linalg.slogdet(B)[1]

    A, B = np.linalg.inv(S), np.linalg.inv(D)
    assert_allclose(report.objective, objective(A, B))
    rng = np.random.default_rng(1)
    for _ in range(20):
        step = rng.normal(size=(2, 4, 4)) * 0.01 * np.abs([A, B])
        step += step.transpose(0, 2, 1)
        assert objective(A + step[0], B + step[1]) > report.objective


def test_distances_order_pairs_by_the_likelihood_ratio(problem):
    X, _, pairs = problem
    metric = mf.learn(X, pairs, method="llr", kernel=Linear(), floor=1e-12)
    S, D = covariances(X, pairs, 4)
    Z = X[:20] - X[20:40]
    ratio = multivariate_normal.logpdf(Z, cov=2 * S) - multivariate_normal.logpdf(Z, cov=2 * D)
    squared = np.einsum("ij,jk,ik->i", Z, np.linalg.inv(S) - np.linalg.inv(D), Z)
    assert_allclose(ratio, (metric.report.threshold - squared) / 4, rtol=1e-6)
    positive = np.linalg.eigvalsh(np.linalg.inv(S) - np.linalg.inv(D)) > 0
    assert positive.any()
    assert (metric.paired_distance(X[:20], X[20:40]) ** 2 >= squared - 1e-9).all()  # negative directions count as 0


def test_it_learns_from_both_kinds_and_from_one(problem):
    X, y, pairs = problem
    before, both = (
        mf.Labels(y).score(Distances(mf.learn(X, pairs, method=method, kernel=Linear()).kernel, X))
        for method in ("euclidean", "llr")
    )
    assert both > before + 0.05
    for part in (mf.Pairs(pairs.similar, n=60), mf.Pairs(dissimilar=pairs.dissimilar, n=60)):
        report = mf.learn(X, part, method="llr").report
        assert report.learned
        assert "the prior took the place" in report.notes[0]


def test_exchanged_pairs_learn_nothing_and_say_so():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(50, 2)) * 1e-2, rng.normal(size=(50, 2)) * 10])
    near, far = np.arange(50), np.arange(50, 100)
    pairs = mf.Pairs(np.column_stack([far[:-1], far[1:]]), np.column_stack([near[:-1], near[1:]]), n=100)
    metric = mf.learn(X, pairs, method="llr", kernel=Linear(), prior=1e-3)
    assert not metric.report.learned
    assert "exchanged" in metric.report.notes[-1]
    D = metric.distance(X)
    assert_allclose(D / D.max(), Linear().distance(X, X) / Linear().distance(X, X).max(), atol=1e-12)


@pytest.mark.parametrize("kernel", [RBF("median"), mf.kernels.Polynomial(2)])
def test_features_of_other_kernels(problem, kernel):
    X, _, pairs = problem
    exact = mf.learn(X, pairs, method="llr", kernel=kernel)
    few = mf.learn(X, pairs, method="llr", kernel=kernel, rank=20)
    assert exact.report.gap < 1e-8
    assert few.report.rank == 20
    assert np.isfinite(few.distance(X)).all()
    sparse = mf.learn(csr_array(X), pairs, method="llr", kernel=kernel)
    assert_allclose(sparse.distance(X[:5]), exact.distance(X[:5]), rtol=1e-6, atol=1e-8)


def test_strings():
    rows = np.array(["ACCA", "ACCC", "GTTG", "GTTT", "AACC", "GGTT"], dtype=object)
    pairs = mf.Pairs([(0, 1), (2, 3), (0, 4)], [(0, 2), (1, 3), (4, 5)], n=6)
    metric = mf.learn(rows, pairs, method="llr", kernel=Spectrum(2))
    assert metric.distance(rows)[0, 1] < metric.distance(rows)[0, 2]


def test_dependent_and_constant_columns(problem):
    X, _, pairs = problem
    doubled = np.hstack([X, X[:, :1], np.ones((60, 1))])
    metric = mf.learn(doubled, pairs, method="llr")
    assert metric.report.gap < 1e-6
    assert np.isfinite(metric.distance(doubled)).all()


def test_bad_options_and_rows():
    with pytest.raises(InputError, match="prior"):
        LikelihoodRatio(prior=0)
    with pytest.raises(InputError, match="floor"):
        LikelihoodRatio(floor=2.0)
    with pytest.raises(InputError, match="identical"):
        mf.learn(np.ones((4, 2)), mf.Pairs([(0, 1)], n=4), method="llr", kernel=Linear())


def test_pairs_of_groups_count_as_the_differences_that_determine_them(rng):
    X = rng.normal(size=(30, 4))
    groups = [np.arange(0, 12), np.arange(12, 20)]
    similar = np.array([(a, b) for g in groups for a in g for b in g if a < b])
    dissimilar = np.array([(a, b) for a in groups[0] for b in groups[1]])
    assert independent(similar) == 11 + 7
    assert independent(dissimilar) == 19
    assert independent(np.array([[0, 1], [2, 3]])) == 2  # loose pairs
    pairs = mf.Pairs(similar, dissimilar, n=30)
    found = mf.learn(X, pairs, method="llr", kernel="linear", prior="independent")
    C = np.cov(X.T, bias=True)
    parts = []
    for part, prior, dof in ((similar, 0.7 * np.trace(C) / 4 * np.eye(4), 18), (dissimilar, 1.1 * C, 19)):
        z = X[part[:, 0]] - X[part[:, 1]]
        mean = z.T @ z / 2 / len(z)
        parts.append(np.linalg.inv((dof * mean + 4 * prior) / (dof + 4)))  # k0 = 4 features beside dof differences
    w, V = np.linalg.eigh(parts[0] - parts[1])
    expected = (V * np.maximum(w, 0.02 * w[-1])) @ V.T
    np.testing.assert_allclose(found.mahalanobis(), expected, rtol=1e-4, atol=1e-5)
