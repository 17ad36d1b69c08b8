"""LMNN against cvxpy, its lower bound and its exact objective, on dense, sparse and kernel features."""

from __future__ import annotations

import warnings

import cvxpy as cp
import numpy as np
import pytest
from metricforge_plugins.lmnn import solver
from metricforge_plugins.lmnn.problem import Margins, coordinates, target_neighbours
from metricforge_plugins.lmnn.solver import LMNN
from numpy.testing import assert_allclose
from scipy.sparse import csr_array

import metricforge as mf
from metricforge.errors import ConvergenceWarning, InputError, MemoryBudgetError
from metricforge.kernels import RBF, Linear

N, D, K, MU = 12, 2, 2, 0.5
Y = np.arange(N) % 2


def triplets(X, y, k):
    """All (i, j, l) by definition."""
    D2 = np.square(X[:, None] - X[None]).sum(-1)
    found = []
    for i in range(len(X)):
        same = np.flatnonzero((y == y[i]) & (np.arange(len(X)) != i))
        for j in same[np.argsort(D2[i, same], kind="stable")[:k]]:
            found += [(i, j, m) for m in np.flatnonzero(y != y[i])]
    return np.array(found)


def objective(L, X, y, k, mu=MU):
    Z = X @ L.T
    T = triplets(X, y, k)
    near, far = (np.square(Z[T[:, 0]] - Z[T[:, c]]).sum(axis=1) for c in (1, 2))
    pull = {(i, j): d for (i, j, _), d in zip(T.tolist(), near, strict=True)}
    return (1 - mu) * sum(pull.values()) + mu * np.maximum(1 + near - far, 0).sum()


def outer(V):
    return np.einsum("ti,tj->tij", V, V).reshape(len(V), -1)


@pytest.fixture(scope="module")
def oracle():
    """A parametrised program: minimise ⟨c, M⟩ + μ Σ [1 + ⟨A_t, M⟩]₊ over PSD M."""
    M = cp.Variable((D, D), PSD=True)
    T = N * K * N // 2
    A, c = cp.Parameter((T, D * D)), cp.Parameter(D * D)
    value = c @ cp.vec(M, order="C") + MU * cp.sum(cp.pos(1 + A @ cp.vec(M, order="C")))
    program = cp.Problem(cp.Minimize(value))

    def solve(X):
        T = triplets(X, Y, K)
        near, far = outer(X[T[:, 0]] - X[T[:, 1]]), outer(X[T[:, 0]] - X[T[:, 2]])
        pairs = np.unique(T[:, :2], axis=0)
        A.value, c.value = near - far, (1 - MU) * outer(X[pairs[:, 0]] - X[pairs[:, 1]]).sum(axis=0)
        return program.solve(solver=cp.CLARABEL)

    return solve


@pytest.mark.parametrize("block", range(5))
def test_the_optimum_is_that_of_cvxpy_within_the_gap(block, oracle):
    for seed in range(10 * block, 10 * block + 10):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(N, D)) * [1, 3] + 0.7 * Y[:, None] * rng.normal(size=D)
        report = mf.learn(X, Y, method="lmnn", kernel="linear", k=K, ridge=0, tol=1e-3).report
        best = oracle(X)
        assert report.status == "optimal"
        assert report.gap <= 1e-3 * report.objective
        assert report.objective - report.gap <= best * (1 + 1e-6)
        assert best <= report.objective * (1 + 1e-6)


def blobs(n=150, d=4, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    X = rng.normal(size=(n, d)) + 1.5 * rng.normal(size=(3, d))[y]
    X[:, 0] *= 10
    return X, y


def test_the_objective_is_that_of_the_definition_and_the_gradient_its_derivative():
    X, y = blobs(40)
    metric = mf.learn(X, y, method="lmnn", kernel="linear", mu=0.3, ridge=0)
    assert_allclose(metric.report.objective, objective(metric.kernel.L, X, y, 3, 0.3), rtol=1e-9)
    i, j = target_neighbours(X, y, 3)
    axes = coordinates(X, i, j, 0.0)
    margins = Margins(X @ axes.back.T, y, i, j, 0.3)
    L = np.random.default_rng(1).normal(size=(2, 4))
    margins.scan(L)
    value, G = margins.value(L, 0.5)
    for entry in np.ndindex(2, 4):
        step = np.zeros((2, 4))
        step[entry] = 1e-6
        slope = (margins.value(L + step, 0.5)[0] - margins.value(L - step, 0.5)[0]) / 2e-6
        assert_allclose(G[entry], slope, rtol=1e-4, atol=1e-5 * abs(value))
    assert margins.scan(L)[0] == pytest.approx(objective(L @ axes.back, X, y, 3, 0.3))


def test_it_improves_the_nearest_neighbour_and_is_repeatable():
    X, y = blobs(300)
    X = np.column_stack([X, 30 * np.random.default_rng(5).normal(size=300)])  # noise that decides raw distances
    A, B, ya, yb = X[:200], X[200:], y[:200], y[200:]
    metric = mf.learn(A, ya, method="lmnn", kernel="linear")
    raw = mf.learn(A, ya, method="euclidean", kernel="linear")
    errors = [np.mean(ya[m.neighbors(B, k=1)[0][:, 0]] != yb) for m in (metric, raw)]
    assert errors[0] < errors[1]
    assert metric.report.impostors > 0
    assert np.array_equal(metric.transform(B), mf.learn(A, ya, method="lmnn", kernel="linear").transform(B))


def test_sparse_rows_landmarks_and_unlabelled_rows():
    X, y = blobs()
    dense = mf.learn(X, y, method="lmnn", kernel="linear", tol=1e-3)
    sparse = mf.learn(csr_array(X), y, method="lmnn", kernel="linear", tol=1e-3)
    assert_allclose(sparse.report.objective, dense.report.objective, rtol=2e-3)
    some = np.where(np.arange(150) < 100, y, -1)
    half = mf.learn(X, mf.Labels(some, unlabelled=-1), method="lmnn", kernel="linear")
    same = mf.learn(X[:100], y[:100], method="lmnn", kernel="linear")
    assert_allclose(half.report.objective, same.report.objective, rtol=1e-9)
    curved = mf.learn(X, y, method="lmnn", kernel=RBF("median"), rank=20)
    assert curved.report.gap <= 5e-3 * curved.report.objective
    assert curved.kernel.L.shape[1] == 20


def test_its_default_rank_is_for_kernels_without_explicit_features():
    X, y = blobs(250)
    assert mf.learn(X, y, method="lmnn").report.representation == "explicit"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        assert mf.learn(X, y, method="lmnn", kernel="rbf", max_iter=5).report.rank == 200


def test_fewer_components_and_limits():
    X, y = blobs()
    low = mf.learn(X, y, method="lmnn", kernel="linear", n_components=2)
    assert low.kernel.L.shape == (2, 4)
    assert low.transform(X).shape == (150, 2)
    assert low.report.status in ("optimal", "truncated")
    full = mf.learn(X, y, method="lmnn", kernel="linear")
    assert low.report.objective >= full.report.objective - full.report.gap
    with pytest.warns(ConvergenceWarning, match="lmnn stopped after 1 steps"):
        short = mf.learn(X, y, method="lmnn", kernel="linear", max_iter=1)
    assert short.report.status == "iteration_limit"
    assert short.report.gap > 0


@pytest.mark.filterwarnings("ignore:lmnn stopped")  # on rows that tie, rounding decides how near the optimum it ends
def test_degenerate_rows_and_classes():
    X, y = blobs(60)
    wide = np.column_stack([X, X[:, 0] + X[:, 1], np.ones(60)])  # collinear and constant columns
    metric = mf.learn(wide, y, method="lmnn", kernel="linear")
    assert_allclose(metric.report.objective, mf.learn(X, y, method="lmnn", kernel="linear").report.objective, rtol=0.2)
    lonely = y.copy()
    lonely[0] = 9
    assert "have one row" in " ".join(mf.learn(X, lonely, method="lmnn", kernel="linear").report.notes)
    few = mf.learn(np.eye(6), np.arange(6) % 2, method="lmnn", kernel="linear", k=1)  # targets span few directions
    assert few.report.ridge > 0
    with pytest.raises(InputError, match='write ridge="auto"'):
        mf.learn(np.eye(6), np.arange(6) % 2, method="lmnn", kernel=Linear(), k=1, ridge=0.0)
    with pytest.raises(InputError, match="every class has one labelled row"):
        mf.learn(X[:3], [0, 1, 2], method="lmnn", kernel="linear")
    with pytest.raises(InputError, match="1 class"):
        mf.learn(X, np.zeros(60), method="lmnn")
    with pytest.raises(InputError, match="no two labelled rows differ"):
        mf.learn(np.ones((6, 2)), np.arange(6) % 2, method="lmnn", kernel="linear")


@pytest.mark.parametrize("options", [{"k": 0}, {"mu": 1.0}, {"ridge": -1}, {"tol": 0}, {"n_components": 0}])
def test_wrong_options_name_themselves(options):
    with pytest.raises(InputError, match=next(iter(options))):
        LMNN(**options)


@pytest.mark.parametrize("method", ["lmnn", "nca", "lfda"])
def test_lazy_rows_are_gathered_or_refused_with_their_size(method, monkeypatch):
    import dask.array as da

    X, y = blobs(2000, d=50)
    monkeypatch.setenv("METRICFORGE_MEMORY", "1MB")
    with pytest.raises(MemoryBudgetError, match=r"the features of 2000 rows \(2000 × 50, \d of them\) would take"):
        mf.learn(da.from_array(X, chunks=(500, -1)), y, method=method, kernel="linear")


def test_wide_rows_get_a_ridge_and_a_limit_of_steps():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(120, 40)), np.arange(120) % 3
    X[np.arange(120), y] += 2
    i, j = target_neighbours(X, y, 3)
    wide = coordinates(X, i, j, "auto")
    level = float(np.trace(sum(np.outer(z, z) for z in X[i] - X[j]))) / 40
    assert wide.ridge == pytest.approx(level)  # (4 · 40 / 120)², at most 1
    few = X[:, :3]  # components of 15 features, which were chosen by the labels
    i, j = target_neighbours(few, y, 3)
    level = float(np.trace(sum(np.outer(z, z) for z in few[i] - few[j]))) / 3
    assert coordinates(few, i, j, "auto", 15).ridge == pytest.approx(0.25 * level)  # (4 · 15 / 120)²
    i, j = target_neighbours(X, y, 3)
    assert coordinates(X, i, j, "least").ridge == 0
    assert coordinates(X[:, :1], *target_neighbours(X[:, :1], y, 3), "auto").ridge == 0
    assert solver._most_steps(1140, 819) == solver.LEAST_STEPS
    assert solver._most_steps(500, 10) == solver.MOST_STEPS


def test_classes_far_from_each_other_do_not_leave_the_metric_at_zero(rng):
    """The step to a good scale may end at L = 0, where the gradient vanishes."""
    y = np.arange(18) % 2
    for _ in range(4):
        report = mf.learn(rng.normal(size=(18, 3)) + 6 * y[:, None], y, method="lmnn").report
        assert report.status == "optimal"
        assert report.objective < 10  # 243 at L = 0
