"""krca-weighted against its formula and its program, and what "auto" makes of it."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
from metricforge_plugins.krca import weighted
from metricforge_plugins.krca.solver import KernelRCA
from metricforge_plugins.krca.weighted import LANDMARKS, WeightedKernel, WeightedRCA
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from scipy.sparse import csr_array

import metricforge as mf
from metricforge.errors import InputError
from metricforge.testing import check_solver

RBF, Linear = mf.kernels.RBF, mf.kernels.Linear


@pytest.fixture
def data():
    rng = np.random.default_rng(4)
    y = np.arange(90) % 3
    X = rng.normal(size=(90, 5)) * [1, 2, 1, 3, 0.5] + np.eye(3, 5)[y] * 2 + 7
    groups = np.where(np.arange(90) < 40, y + 3 * (np.arange(90) // 12), -1)
    return X, y, groups


def covariances(F, groups, epsilon):
    """Ĉ and T, group by group."""
    S, n = np.zeros((F.shape[1],) * 2), 0
    for g in np.unique(groups[groups >= 0]):
        Z = F[groups == g]
        if len(Z) > 1:
            S += len(Z) * np.cov(Z.T, bias=True)
            n += len(Z)
    return S / n + epsilon * np.eye(F.shape[1]), np.cov(F.T, bias=True)


def learned(X, groups, **options):
    return mf.learn(X, mf.Chunklets(groups), method="krca-weighted", **options)


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 30.0])
def test_the_metric_is_the_formula(data, epsilon):
    X, _, groups = data
    metric = learned(X, groups, kernel=Linear(), epsilon=epsilon)
    C, T = covariances(X, groups, epsilon)
    M = np.linalg.solve(C, np.linalg.solve(C, T).T)
    Z = X[:20] - X[20:40]
    assert_allclose(np.square(metric.paired_distance(X[:20], X[20:40])), np.einsum("ij,jk,ik->i", Z, M, Z), rtol=1e-9)
    assert_allclose(metric.report.objective, -np.trace(M @ T) / 2, rtol=1e-9)
    assert metric.report.gap < 1e-9


def test_the_metric_minimises_the_program(data):
    X, _, groups = data
    X = X[:, :3]
    C, T = covariances(X, groups, 0.2)
    i, j = np.triu_indices(3)

    def matrix(v):
        M = np.zeros((3, 3))
        M[i, j] = M[j, i] = v
        return M

    def value(v):
        M = matrix(v)
        return np.trace(M @ C @ M @ C) / 2 - np.trace(M @ T)

    best = minimize(value, np.eye(3)[i, j], method="BFGS", options={"gtol": 1e-10})
    metric = learned(X, groups, kernel=Linear(), epsilon=0.2)
    assert_allclose(metric.report.objective, best.fun, rtol=1e-6)
    assert_allclose(metric.kernel.W, matrix(best.x), atol=1e-5)


def test_a_direction_without_classes_loses_its_weight():
    """Where all rows vary as groups do, λ is 1; along the classes it is larger, and the distance says so."""
    rng = np.random.default_rng(0)
    y = np.arange(400) % 2
    X = rng.normal(size=(400, 2))
    X[:, 0] += 6 * y
    methods = ("krca", "krca-weighted")
    W = {name: mf.learn(X, mf.Chunklets(y), method=name, kernel=Linear()).kernel for name in methods}
    share = {name: k.bilinear(2)[0, 0] / k.bilinear(2)[1, 1] for name, k in W.items()}
    assert share["krca"] < 1.2
    assert share["krca-weighted"] > 5


def test_axes_are_sorted_and_whitened(data):
    X, _, groups = data
    metric = learned(X, groups, kernel=RBF(0.05), rank=20)
    kernel = metric.kernel
    assert isinstance(kernel, WeightedKernel)
    C = kernel.scatter / kernel.n + kernel.epsilon * np.eye(20)
    inside = kernel.L @ C @ kernel.L.T  # diagonal: λ
    assert_allclose(inside, np.diag(np.diag(inside)), atol=1e-8 * inside[0, 0])
    assert (np.diff(np.diag(inside)) <= 1e-12).all()


@pytest.mark.parametrize("hold", ["ridge", "epsilon"])
@pytest.mark.parametrize("rank", ["auto", 25])
def test_an_update_is_the_fit_on_all_groups_with_the_covariance_of_the_first(data, hold, rank, tmp_path):
    X, y, groups = data
    kernel = Linear() if rank == "auto" else RBF(0.05)
    first = learned(X, groups, kernel=kernel, rank=rank, epsilon=0.3)
    first.save(tmp_path / "m.metric")
    later = X[:12] + 0.3
    for metric in (first, mf.load(tmp_path / "m.metric")):
        more = metric.update(later, mf.Chunklets(y[:12]), hold=hold)
        old = first.kernel
        n = old.n + 12
        epsilon = 0.3 if hold == "epsilon" else 0.3 * old.n / n
        F = old.map.block(np.vstack([X, later]))
        joined = np.concatenate([groups, y[:12] + 100])
        C = covariances(F, joined, epsilon)[0]
        M = np.linalg.solve(C, np.linalg.solve(C, old.total).T)
        assert_allclose(more.kernel.W, M, rtol=1e-6, atol=1e-8 * np.abs(M).max())
        assert more.report.epsilon == pytest.approx(epsilon)
        assert more.report.gap < 1e-8
        assert str(more.report.certificate).startswith("relative KKT residual ‖(ĈMĈ")


def test_rows_may_be_sparse_or_on_dask(data):
    X, _, groups = data
    plain = learned(X, groups, kernel=RBF(0.05), rank=20)
    for rows in (csr_array(X), da.from_array(X, chunks=(32, 5))):
        other = learned(rows, groups, kernel=RBF(0.05), rank=20)
        assert_allclose(other.distance(X[:9], X[9:20]), plain.distance(X[:9], X[9:20]), rtol=1e-6)


def test_rows_may_be_strings(data):
    _, y, groups = data
    words = ["abc"[i] * 3 + "xyz"[(7 * k) % 3] + "q" * (k % 4) for k, i in enumerate(y)]
    metric = learned(words, groups, kernel=mf.kernels.Spectrum(2).normalized())
    assert metric.report.method == "krca-weighted"
    assert np.isfinite(metric.distance(words[:5], words[5:9])).all()


def test_covariance_by_blocks_is_that_of_all_rows(data, monkeypatch):
    X = data[0]
    space = mf.space.represent(RBF(0.05), X, 20)
    whole = np.cov(space.map.block(X).T, bias=True)
    monkeypatch.setattr(weighted._rows, "blocks", lambda n, *_: (slice(i, i + 7) for i in range(0, n, 7)))
    assert_allclose(weighted.covariance(space.map, X, 0), whole, atol=1e-12)


def test_a_rank_that_was_left_to_the_library_is_limited():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(LANDMARKS + 40, 4))
    groups = np.arange(len(X)) // 4
    assert learned(X, groups, kernel=RBF("median")).report.features == LANDMARKS
    assert learned(X, groups, kernel=RBF("median"), rank=30).report.features == 30
    assert learned(X, groups, kernel=RBF("median"), rank="exact").report.features > LANDMARKS
    assert learned(X, groups, kernel=Linear()).report.features == 4


def test_the_multiple():
    multiple = WeightedRCA()._multiple
    assert multiple(None, 10) == 1
    assert multiple(10, 1000) == 0.1
    assert multiple(10, 20) == 1.5
    assert multiple(100, 10) == 5


def test_errors_and_the_kit(data):
    X, _, groups = data
    with pytest.raises(InputError, match=r'mf\.learn.*method="krca-weighted"'):
        mf.learn(X, mf.Chunklets(groups), method="krca", weights="total")
    with pytest.raises(InputError, match="epsilon=0 needs explicit features"):
        learned(X, groups, kernel=RBF(0.05), rank=20, epsilon=0)
    check_solver(WeightedRCA(), RBF(0.05))


# ----------------------------------------------------------------------------------------------------------------- auto


@pytest.fixture
def separable():
    rng = np.random.default_rng(3)
    y = np.arange(160) % 2
    X = rng.normal(size=(160, 6)) + 3 * np.eye(2, 6)[y]
    return X, mf.Chunklets(np.where(np.arange(160) < 80, y + 2 * (np.arange(160) // 8), -1))


def test_the_first_call_on_groups_weighs_by_all_rows(separable):
    X, groups = separable
    metric = mf.learn(X, groups)
    assert metric.solver == WeightedRCA()
    assert "krca-weighted" in metric.report.choice
    pairs = groups.to(mf.Pairs)
    similar = mf.Pairs(pairs.similar, n=len(X))
    assert mf.learn(X, similar).solver == WeightedRCA()


def test_what_the_call_gives_comes_before_the_setting(separable):
    X, groups = separable
    metric = mf.learn(X, groups, kernel=Linear(), selection="off")
    assert (metric.solver, metric.report.representation) == (WeightedRCA(), "explicit")
    assert mf.learn(X, groups, rank=12, selection="off").report.features == 12
    assert mf.learn(X, groups, epsilon=0.5).solver == WeightedRCA(epsilon=0.5)


def test_beyond_what_was_measured_the_method_of_the_paper_stays(separable):
    X, groups = separable
    assert mf.learn(da.from_array(X, chunks=(80, 6)), groups).solver == KernelRCA()
    words = ["ab"[i] * 3 + "xyz"[(7 * k) % 3] for k, i in enumerate(np.arange(160) % 2)]
    assert mf.learn(words, groups, kernel=mf.kernels.Spectrum(2).normalized()).solver == KernelRCA()
