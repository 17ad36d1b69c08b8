"""ITML against cvxpy, Newton against the published sweeps, bounds, degenerate pairs."""

from __future__ import annotations

import cvxpy as cp
import numpy as np
import pytest
from metricforge_plugins.itml import solver
from metricforge_plugins.itml.solver import ITML
from numpy.testing import assert_allclose
from scipy.sparse import csr_array

import metricforge as mf
from metricforge.errors import ConvergenceWarning, InputError
from metricforge.kernels import RBF

D, P = 2, 8
BOUNDS = (0.5, 4.0)


@pytest.fixture(scope="module")
def oracle():
    """A parametrised program over A and ξ, half of the pairs similar."""
    A, xi = cp.Variable((D, D), PSD=True), cp.Variable(P)
    O = cp.Parameter((P, D * D))  # noqa: E741
    b = np.repeat(BOUNDS, P // 2)
    divergence = cp.trace(A) - cp.log_det(A) - D + cp.sum(xi / b - cp.log(xi) + np.log(b) - 1)
    squared = O @ cp.vec(A, order="C")
    half = P // 2
    program = cp.Problem(cp.Minimize(divergence), [squared[:half] <= xi[:half], squared[half:] >= xi[half:]])

    def solve(V):
        O.value = np.einsum("ti,tj->tij", V, V).reshape(P, -1)
        program.solve(solver=cp.CLARABEL)
        return program.value, A.value

    return solve


def tuples(seed):
    """Rows 2t and 2t + 1 are pair t."""
    X = np.random.default_rng(seed).normal(size=(2 * P, D)) * [1, 2]
    pairs = np.arange(2 * P).reshape(P, 2)
    return X, mf.Pairs(pairs[: P // 2], pairs[P // 2 :], n=2 * P)


@pytest.mark.parametrize("block", range(5))
def test_the_optimum_is_that_of_cvxpy_within_the_gap(block, oracle):
    for seed in range(10 * block, 10 * block + 10):
        X, pairs = tuples(seed)
        metric = mf.learn(X, pairs, method="itml", kernel="linear", bounds=BOUNDS)
        value, A = oracle(X[::2] - X[1::2])
        report = metric.report
        assert report.status == "optimal"
        assert report.gap <= 1e-6 * max(report.objective, 1)
        assert report.objective == pytest.approx(value, abs=1e-5)
        assert_allclose(metric.kernel.W, A, atol=2e-3)


def labelled(n=80, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    return rng.normal(size=(n, 4)) + 2 * rng.normal(size=(3, 4))[y], y


@pytest.mark.parametrize("gamma", [0.1, 10.0])
def test_both_routes_agree(gamma, monkeypatch):
    X, y = labelled()
    pairs = mf.Pairs.from_labels(y, n_pairs=200, seed=0)
    monkeypatch.setattr(solver, "NEWTON", 1000)
    newton = mf.learn(X, pairs, method="itml", kernel="linear", gamma=gamma)
    monkeypatch.setattr(solver, "NEWTON", 0)
    factor = mf.learn(X, pairs, method="itml", kernel="linear", gamma=gamma)
    assert (newton.report.route, factor.report.route) == ("newton", "factor")
    assert newton.report.status == factor.report.status == "optimal"
    assert_allclose(factor.report.objective, newton.report.objective, rtol=1e-5)
    assert_allclose(factor.kernel.W, newton.kernel.W, atol=2e-2 * np.abs(newton.kernel.W).max())


def test_pairs_move_towards_their_bounds():
    X, y = labelled()
    pairs = mf.Pairs.from_labels(y, n_pairs=100, seed=0)
    metric, raw = (mf.learn(X, pairs, method=m, kernel="linear") for m in ("itml", "euclidean"))
    near, far = metric.report.bounds
    assert near < far

    def violated(m):
        s, d = (m.paired_distance(X[p[:, 0]], X[p[:, 1]]) ** 2 for p in (pairs.similar, pairs.dissimilar))
        return np.sum(s > near) + np.sum(d < far)

    assert violated(metric) < violated(raw)
    heavy = mf.learn(X, pairs, method="itml", kernel="linear", gamma=100.0)
    assert heavy.report.status == "optimal"
    assert violated(heavy) <= violated(metric)


def test_nothing_changes_where_the_base_metric_respects_the_bounds():
    X = np.array([[0.0, 0], [1, 0], [9, 9]])
    metric = mf.learn(X, mf.Pairs([(0, 1)], [(0, 2)], n=3), method="itml", kernel="linear", bounds=(2.0, 50.0))
    assert_allclose(metric.kernel.W, np.eye(2))
    assert metric.report.objective == pytest.approx(0, abs=1e-12)
    assert metric.report.gap == pytest.approx(0, abs=1e-12)


def test_other_rows_and_kinds():
    X, y = labelled()
    pairs = mf.Pairs.from_labels(y, n_pairs=60, seed=0)
    dense, sparse = (mf.learn(A, pairs, method="itml", kernel="linear") for A in (X, csr_array(X)))
    assert_allclose(sparse.kernel.W, dense.kernel.W, atol=1e-5)
    curved = mf.learn(X, y, method="itml", kernel=RBF("median"), rank=15)
    assert curved.report.converted
    assert curved.report.gap <= 1e-6 * max(1, curved.report.objective)


def test_identical_rows_are_ignored_and_counted():
    X = labelled(20)[0]
    X[1] = X[0]
    metric = mf.learn(X, mf.Pairs([(2, 3)], [(0, 1), (4, 5)], n=20), method="itml", kernel="linear")
    assert metric.report.identical == 1
    with pytest.raises(InputError, match="every pair joins identical rows"):
        mf.learn(X, mf.Pairs([(0, 1)], n=20), method="itml", kernel="linear")


def test_limits_and_wrong_options():
    X, y = labelled()
    with pytest.warns(ConvergenceWarning, match="itml stopped after 1 steps"):
        short = mf.learn(X, mf.Pairs.from_labels(y, seed=0), method="itml", kernel="linear", max_iter=1)
    assert short.report.status == "iteration_limit"
    for options in ({"gamma": 0}, {"bounds": (1.0,)}, {"bounds": (0.0, 1.0)}, {"tol": -1}, {"max_iter": 0}):
        with pytest.raises(InputError, match=next(iter(options))):
            ITML(**options)


def test_pairs_are_drawn_where_all_would_take_long(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    pairs = mf.Labels(np.arange(60) % 2).to(mf.Pairs, seed=0)
    some = mf.learn(X, pairs, method="itml", n_pairs=200)
    assert some.report.pairs_used == 200 < pairs.size
    assert f"200 of {pairs.size} pairs were drawn" in " ".join(some.report.notes)
    assert mf.learn(X, pairs, method="itml").report.pairs_used == pairs.size
    assert solver._affordable_pairs(60_000, 20) == 60_000
    assert solver._affordable_pairs(200_000, 200) == solver._affordable_pairs(400_000, 200) >= solver.LEAST_PAIRS
    assert solver._affordable_pairs(50, 2000) == 50


def test_automatic_bounds_do_not_depend_on_the_order_of_rows(rng):
    X = rng.normal(size=(60, 3))
    pairs = mf.Pairs([(0, 1), (2, 3)], [(4, 5), (6, 7)], n=60)
    found = mf.learn(X, pairs, method="itml").report.bounds
    order = rng.permutation(60)
    place = np.argsort(order)
    moved = mf.Pairs(place[pairs.similar], place[pairs.dissimilar], n=60)
    assert_allclose(mf.learn(X[order], moved, method="itml").report.bounds, found, rtol=1e-12)


def test_automatic_bounds_are_about_rows_that_differ(rng):
    X = rng.normal(size=(12, 2))
    pairs = mf.Pairs([(0, 1), (2, 3)], [(4, 5), (6, 7)], n=48)
    D = np.square(X[:, None] - X[None])[np.triu_indices(12, 1)].sum(axis=1)
    found = mf.learn(np.tile(X, (4, 1)), pairs, method="itml", kernel="linear").report.bounds
    assert_allclose(found, np.percentile(np.repeat(D, 16), [5, 95]), rtol=1e-9)
