"""LSML against finite differences and cvxpy; its bound."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from metricforge_plugins.lsml import solver
from metricforge_plugins.lsml.solver import LSML, certified, objective
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import approx_fprime
from scipy.sparse import csr_array

import metricforge as mf
from metricforge.errors import ConvergenceWarning, InputError
from metricforge.kernels import RBF


def data(p=12, d=2, seed=0):
    """Rows 4q .. 4q + 3 are quadruplet q."""
    X = np.random.default_rng(seed).normal(size=(4 * p, d)) * np.arange(1, d + 1)
    return X, mf.Quadruplets(np.arange(4 * p).reshape(p, 4), n=4 * p)


def differences(X):
    return X[::4] - X[1::4], X[2::4] - X[3::4]


def test_the_gradient_is_the_derivative():
    X, _ = data(d=3)
    near, far = differences(X)
    weights = np.full(12, 0.3)
    L = np.eye(3) + 0.3 * np.random.default_rng(1).normal(size=(3, 3))
    G = objective(L, near, far, weights)[1]
    slope = approx_fprime(L.ravel(), lambda x: objective(x.reshape(3, 3), near, far, weights)[0], 1e-7)
    assert_allclose(G.ravel(), slope, rtol=1e-4, atol=1e-4)
    assert objective(np.zeros((3, 3)), near, far, weights)[0] == np.inf


def test_blocks_of_quadruplets_do_not_matter(monkeypatch):
    rng = np.random.default_rng(1)
    near, far, weights = rng.normal(size=(50, 4)), rng.normal(size=(50, 4)), rng.random(50)
    L = rng.normal(size=(4, 4))
    value, G = objective(L, near, far, weights)
    bound = certified(L, near, far, weights)
    monkeypatch.setattr(solver, "BLOCK", 7 * solver.ARRAYS * 8 * 4)
    assert_allclose(objective(L, near, far, weights)[0], value, rtol=1e-13)
    assert_allclose(objective(L, near, far, weights)[1], G, rtol=1e-12)
    assert_allclose(certified(L, near, far, weights), bound, rtol=1e-12)
    assert_allclose(bound[0], value, rtol=1e-13)
    apart = (np.square(near @ L.T).sum(axis=1), np.square(far @ L.T).sum(axis=1))
    assert solver._violated(L, near, far) == np.count_nonzero(apart[0] > apart[1]) > 0
    first, second = rng.permutation(50), rng.permutation(50)
    assert_array_equal(solver._differences(near, first, second), near[first] - near[second])


@pytest.mark.parametrize("seed", range(10))
def test_the_optimum_is_that_of_cvxpy_and_the_bound_holds(seed):
    X, quads = data(seed=seed)
    near, far = differences(X)
    gamma = 20.0
    metric = mf.learn(X, quads, method="lsml", kernel="linear", gamma=gamma)
    M, a, b = cp.Variable((2, 2), PSD=True), cp.Variable(12), cp.Variable(12)
    outer = [np.einsum("ti,tj->tij", V, V).reshape(12, -1) for V in (near, far)]
    # [√a − √b]₊² = min over b' <= b of a + b' − 2 √(a b')
    roots = sum(cp.geo_mean(cp.hstack([a[q], b[q]])) for q in range(12))
    value = cp.trace(M) - cp.log_det(M) - 2 + gamma / 12 * (cp.sum(a) + cp.sum(b) - 2 * roots)
    given = [a == outer[0] @ cp.vec(M, order="C"), b <= outer[1] @ cp.vec(M, order="C")]
    best = cp.Problem(cp.Minimize(value), given).solve(solver=cp.CLARABEL)
    report = metric.report
    assert report.status == "optimal"
    assert report.objective == pytest.approx(best, abs=2e-5)
    assert report.objective - report.gap <= best + 1e-5
    assert_allclose(metric.kernel.W, M.value, atol=5e-3)


def test_the_bound_holds_far_from_the_optimum():
    X, quads = data(seed=3)
    near, far = differences(X)
    weights = np.full(12, 1.0)
    best = mf.learn(X, quads, method="lsml", kernel="linear", gamma=12.0).report.objective
    for scale in (0.3, 0.8, 1.0, 1.5):
        value, bound = certified(scale * np.eye(2), near, far, weights)
        assert bound <= best + 1e-9
        assert value >= best - 1e-9


def test_weights_decide_contradictions():
    X = np.array([[0.0, 0], [1, 0], [0, 3]])
    quads = mf.Quadruplets([(0, 2, 0, 1), (0, 1, 0, 2)], n=3)  # the base metric violates the first
    ratios = []
    for first in (1.0, 3.0, 9.0):
        d = mf.learn(X, quads, method="lsml", kernel="linear", gamma=20.0, weights=(first, 1.0)).distance(X)[0]
        ratios.append(d[2] / d[1])
    assert 3 > ratios[0] > ratios[1] > ratios[2] > 1
    with pytest.raises(InputError, match="got 3 for 2 quadruplets"):
        mf.learn(X, quads, method="lsml", kernel="linear", weights=(1, 1, 1))


def test_repeats_are_weights():
    X, quads = data(p=5)
    times = np.array([1, 3, 2, 1, 2])
    repeated = mf.Quadruplets(np.repeat(quads.quads, times, axis=0), n=len(X))
    one = mf.learn(X, quads, method="lsml", kernel="linear", weights=tuple(times.astype(float)), tol=1e-9)
    two = mf.learn(X, repeated, method="lsml", kernel="linear", tol=1e-9)
    assert_allclose(one.kernel.W, two.kernel.W, atol=1e-4)


def test_comparisons_hold_more_often_after_learning():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=100)
    X = np.column_stack([rng.normal(size=(100, 2)) + 3 * y[:, None], 5 * rng.normal(size=100)])
    drawn = mf.Quadruplets.from_labels(y, n_quadruplets=300, seed=1)
    metric = mf.learn(X, drawn, method="lsml", kernel="linear", gamma=100.0)
    before, after = (drawn.score(mf.constraints.Distances(k, X)) for k in (mf.kernels.Linear(), metric.kernel))
    assert after > before + 0.1
    assert metric.report.violated == round((1 - after) * 300)


def test_rows_kernels_kinds_and_limits():
    X, quads = data(p=30, d=3)
    dense, sparse = (mf.learn(A, quads, method="lsml", kernel="linear") for A in (X, csr_array(X)))
    assert_allclose(sparse.kernel.W, dense.kernel.W, atol=1e-4)
    assert mf.learn(X, np.arange(120) % 3, method="lsml", kernel=RBF("median"), rank=10).report.converted
    assert mf.learn(X, quads, selection="off").report.method == "lsml"
    with pytest.warns(ConvergenceWarning, match="lsml stopped after 1 steps"):
        mf.learn(X, quads, method="lsml", kernel="linear", gamma=100.0, max_iter=1)
    for options in ({"gamma": 0}, {"weights": (-1.0,)}, {"tol": 0}):
        with pytest.raises(InputError, match=next(iter(options))):
            LSML(**options)
