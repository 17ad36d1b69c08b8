"""MLKR against finite differences and a general solver."""

from __future__ import annotations

import numpy as np
import pytest
from metricforge_plugins.mlkr import solver
from metricforge_plugins.mlkr.solver import MLKR, leave_one_out
from numpy.testing import assert_allclose
from scipy.optimize import approx_fprime, minimize
from scipy.sparse import csr_array

import metricforge as mf
from metricforge.errors import InputError
from metricforge.kernels import RBF


def data(n=40, d=3, seed=0):
    X = np.random.default_rng(seed).normal(size=(n, d))
    return X, np.sin(2 * X[:, 0]) + 0.1 * X[:, 1]


def by_hand(L, X, y):
    error = 0.0
    for i in range(len(X)):
        k = np.exp(-np.square((X - X[i]) @ L.T).sum(axis=1))
        k[i] = 0
        error += (k @ y / k.sum() - y[i]) ** 2
    return error


def test_value_and_gradient(monkeypatch):
    monkeypatch.setattr(solver, "BLOCK", 10_000)  # several blocks
    X, y = data()
    L = np.random.default_rng(1).normal(size=(2, 3))
    f, G = leave_one_out(L, X, y)
    assert_allclose(f, by_hand(L, X, y), rtol=1e-10)
    slope = approx_fprime(L.ravel(), lambda x: by_hand(x.reshape(2, 3), X, y), 1e-7)
    assert_allclose(G.ravel(), slope, rtol=1e-3, atol=1e-4 * np.abs(slope).max())


def test_weights_that_vanish_change_no_digit(monkeypatch):
    rng = np.random.default_rng(0)
    F, y = rng.normal(size=(60, 3)), rng.normal(size=60)
    L = 40 * np.eye(3)  # most weights are below e^-745 of the largest of their row
    error, G = leave_one_out(L, F, y)
    monkeypatch.setattr(solver, "LEAST", -np.inf)
    expected, expected_G = leave_one_out(L, F, y)
    assert error == expected
    assert_allclose(G, expected_G, rtol=1e-13)


def test_a_general_solver_without_gradients_finds_nothing_lower_nearby():
    X, y = data(25)
    metric = mf.learn(X, y, method="mlkr", kernel="linear", n_components=1, tol=1e-5)
    report = metric.report
    other = minimize(lambda x: by_hand(x.reshape(1, 3), X, y), metric.kernel.L.ravel(), method="Nelder-Mead")
    assert report.status == "stationary"
    assert report.certificate.kind == "gradient"
    assert_allclose(report.objective, by_hand(metric.kernel.L, X, y), rtol=1e-8)
    assert report.objective <= other.fun * (1 + 1e-5)


def test_a_bare_array_is_targets_and_noise_columns_lose_weight():
    X, y = data(80)
    metric = mf.learn(X, y, method="mlkr", kernel="linear")
    assert metric.report.converted == ()
    assert metric.report.r2 > 0.8
    weight = metric.kernel.W.diagonal()
    assert weight[0] > 5 * weight[2]
    assert mf.MetricLearner("mlkr", kernel="linear").fit(X, y).metric_.report.r2 > 0.8
    assert mf.Targets(y).score(distances(metric, X)) > mf.Targets(y).score(distances(None, X))
    with pytest.raises(InputError, match="no conversion leads from Labels to Targets"):
        mf.learn(X, mf.Labels(y > 0), method="mlkr")


def distances(metric, X):
    kernel = mf.kernels.Linear() if metric is None else metric.kernel
    return mf.constraints.Distances(kernel, X)


def test_unknown_values_rows_and_kernels():
    X, y = data()
    some = np.where(np.arange(40) < 30, y, np.nan)
    half = mf.learn(X, mf.Targets(some), method="mlkr", kernel="linear")
    assert half.report.unknown == 10
    assert_allclose(half.report.objective, mf.learn(X[:30], y[:30], method="mlkr", kernel="linear").report.objective)
    dense, sparse = (mf.learn(A, y, method="mlkr", kernel="linear", max_iter=3) for A in (X, csr_array(X)))
    assert_allclose(sparse.distance(X), dense.distance(X), rtol=1e-5, atol=1e-6)
    assert mf.learn(X, y, method="mlkr", kernel=RBF("median"), rank=10, max_iter=20).report.r2 > 0
    with pytest.raises(InputError, match="all values are equal"):
        mf.learn(X, np.ones(40), method="mlkr")
    with pytest.raises(InputError, match="which is no number"):
        mf.learn(X, ["a", "b"] * 20, method="mlkr")
    with pytest.raises(InputError, match="max_iter"):
        MLKR(max_iter=0)


def test_a_part_of_the_rows_is_compared_with_all():
    X, y = data()
    L = np.random.default_rng(1).normal(size=(2, 3))
    some = np.array([3, 7, 20])
    parts = [leave_one_out(L, X, y, np.array([i])) for i in some]
    f, G = leave_one_out(L, X, y, some)
    assert_allclose(f, sum(e for e, _ in parts), rtol=1e-10)
    assert_allclose(G, sum(g for _, g in parts), rtol=1e-8, atol=1e-10)
    metric = mf.learn(X, y, method="mlkr", queries=30)
    assert metric.report.queries == 30
    assert "30 rows drawn from 40" in " ".join(metric.report.notes)
    assert solver._queries(4000, 100, 100) == 4000
    assert solver._queries(10_000, 200, 200) == solver.LEAST_QUERIES


def test_a_metric_that_tells_no_rows_apart_is_noted():
    X = np.outer(np.arange(40.0), [0.18, 0.195, 0.317])
    useful = mf.learn(X, mf.Targets(np.sin(X[:, 0])), method="mlkr")
    assert useful.report.r2 > 0.9
    assert not any("one point" in note for note in useful.report.notes)
    useless = mf.learn(X, mf.Targets(np.random.default_rng(0).normal(size=40)), method="mlkr")
    assert useless.distance(X).max() < 1e-12
    assert any("one point" in note for note in useless.report.notes)


@pytest.mark.parametrize("unit", [1e-100, 1e-10, 1e10])
def test_the_unit_of_the_rows_does_not_decide_where_it_ends(unit):
    X, y = data()
    plain = mf.learn(X, mf.Targets(y), method="mlkr", kernel="linear")
    metric = mf.learn(unit * X, mf.Targets(y), method="mlkr", kernel="linear")
    assert plain.report.objective < 3
    assert metric.report.objective < 3
    assert metric.report.gap < 0.1
    start = tuple(map(tuple, (np.eye(3) / unit).tolist()))
    given = mf.learn(unit * X, mf.Targets(y), method="mlkr", kernel="linear", start=start)
    assert given.report.objective < 3


@pytest.mark.parametrize("unit", [1e-200, 1e-10, 1e10, 1e100])
def test_the_unit_of_the_values_changes_the_objective_only(unit):
    X, y = data()
    plain = mf.learn(X, mf.Targets(y), method="mlkr", n_components=1)
    other = mf.learn(X, mf.Targets(unit * y), method="mlkr", n_components=1)
    assert_allclose(other.distance(X), plain.distance(X), rtol=1e-2, atol=1e-2)
    assert other.report.objective == pytest.approx(unit**2 * plain.report.objective, rel=1e-2)


def test_values_whose_squares_overflow_are_refused():
    X, y = data()
    with pytest.raises(InputError, match=r"y: values are up to .* divide y"):
        mf.learn(X, mf.Targets(1e200 * y), method="mlkr")
    beyond = np.where(y > 0, 1e308, -1e308)
    with pytest.raises(InputError, match="divide y"):
        mf.learn(X, mf.Targets(beyond), method="mlkr")
