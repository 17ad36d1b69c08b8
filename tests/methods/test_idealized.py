"""The method idealized: optima against an SDP solver, the certificate, the paper's propositions, bad input."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import cvxpy as cp
import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from metricforge_plugins.idealized import hints as written
from metricforge_plugins.idealized import proximal, selection, subspace
from metricforge_plugins.idealized.differences import Dense, Graph, differences, smat, svec
from metricforge_plugins.idealized.ideal import (
    alignment,
    ideal_matrix,
    idealized_matrix,
    label_alignment,
    pair_alignment,
)
from metricforge_plugins.idealized.program import Program
from metricforge_plugins.idealized.selection import closest_pairs, pairs_from_labels
from metricforge_plugins.idealized.solver import METHOD, Idealized
from metricforge_plugins.idealized.tune import tune

import metricforge as mf
from metricforge.errors import ConvergenceWarning, InputError
from metricforge.kernels import RBF, Linear, Spectrum
from metricforge.solver import Problem
from metricforge.space import LearnedKernel, represent
from metricforge.testing import check_method

TIGHT = 1e-9


# ----------------------------------------------------------------------------------------------------------- instances


def random_program(seed, *, nu=None):
    """A small program; similar pairs are short along the first feature, as one would hope."""
    rng = np.random.default_rng(seed)
    p, N = int(rng.integers(2, 6)), int(rng.integers(15, 45))
    Z = rng.normal(size=(N, p)) * rng.uniform(0.5, 2, p)
    dissimilar = rng.random(N) < 0.5
    dissimilar[:2] = True, False
    Z[~dissimilar, 0] *= 0.4
    z = Dense(Z)
    c = 10 ** rng.uniform(0.5, 3) / z.squares.mean()
    nu = rng.uniform(0.1, 0.9) if nu is None else nu
    return Program(z, dissimilar, z.squares, c * 10 ** rng.uniform(-0.5, 2), c, nu)


def oracle(program, psd=True):
    """The primal by cvxpy and Clarabel, good to 1e-7: another formulation and another algorithm."""
    Z = program.z.Z
    p = Z.shape[1]
    B = cp.Variable((p, p), PSD=True) if psd else cp.Variable((p, p), symmetric=True)
    gamma = cp.Variable(nonneg=True)
    change = np.einsum("ti,tj->tij", Z, Z).reshape(len(Z), -1) @ cp.vec(B, order="C") - program.base
    D = program.dissimilar
    value = cp.sum_squares(B) / 2 - program.nu * program.c_dissimilar * gamma
    value += program.c_dissimilar / D.sum() * cp.sum(cp.pos(gamma - change[D]))
    if not D.all():
        value += program.c_similar / (~D).sum() * cp.sum(cp.pos(change[~D]))
    problem = cp.Problem(cp.Minimize(value))
    problem.solve(solver=cp.CLARABEL)
    return float(problem.value), B.value


def primal(program, B):
    return program.primal(B, program.z.spread(B) - program.base)[0]


def solved(program, *, psd=True, tol=TIGHT, **options):
    return proximal.solve(program, psd=psd, tol=tol, max_iter=2000, **options)


def positive_part(B):
    w, V = np.linalg.eigh(B)
    return (V * np.maximum(w, 0)) @ V.T


@cache
def telling_seeds(count):
    """Instances at whose optimum neither M nor the PSD part of the relaxed optimum comes within 1e-3."""
    found = []
    for seed in range(400):
        program = random_program(seed)
        exact, relaxed = solved(program, tol=1e-6), solved(program, psd=False, tol=1e-6)
        others = primal(program, np.eye(program.z.width)), primal(program, positive_part(relaxed.B))
        if all(value - exact.objective > 1e-3 * exact.scale for value in others):
            found.append(seed)
            if len(found) == count:
                return found
    raise AssertionError(f"only {len(found)} telling instances")


def toy(n, seed=0):
    """The paper's toy data: one feature that matters, ten of five times the spread that do not."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    X = 5 * rng.normal(size=(n, 11))
    X[:, 0] = rng.normal(size=n) + np.where(y, 3, -3)
    return X, y


def toy_pairs(n=60, size=150, seed=0):
    X, y = toy(n, seed)
    return X, y, mf.Pairs.from_labels(y, n_pairs=size, seed=seed)


def differences_of(X, pairs):
    every = np.concatenate([pairs.similar, pairs.dissimilar])
    return X[every[:, 0]] - X[every[:, 1]], np.arange(len(every)) >= len(pairs.similar)


def nearest_error(metric, X, y, A, b):
    index, _ = metric.neighbors(A, 1)
    return np.mean(y[index[:, 0]] != b)


# ------------------------------------------------------------------------------------------------ the optimum is right


def test_exact_objective_equals_the_sdp_on_instances_where_nothing_simpler_does():
    for seed in telling_seeds(12):
        program = random_program(seed)
        value, B = oracle(program)
        found = solved(program, tol=1e-7)
        assert found.converged
        assert found.objective == pytest.approx(value, rel=1e-5)
        assert np.linalg.norm(found.B - B) <= 2e-3 * np.linalg.norm(B)
        assert np.linalg.eigvalsh(found.B)[0] >= -1e-12 * np.linalg.norm(found.B)
        slack = 1e-7 * found.scale  # what Clarabel leaves open
        assert found.objective - found.gap <= value + slack
        assert value <= found.objective + slack


@pytest.mark.parametrize("seed", range(100, 106))
def test_relaxed_objective_equals_the_qp(seed):
    program = random_program(seed)
    value, B = oracle(program, psd=False)
    found = solved(program, psd=False)
    assert found.converged
    assert abs(found.objective - value) <= 1e-6 * found.scale
    assert np.linalg.norm(found.B - B) <= 1e-3 * np.linalg.norm(B)


@pytest.mark.parametrize("nu", [0.0, 1.0])
@pytest.mark.parametrize("psd", [True, False])
def test_ends_of_nu(nu, psd):
    program = random_program(7, nu=nu)
    value, _ = oracle(program, psd)
    found = solved(program, psd=psd)
    assert abs(found.objective - value) <= 1e-6 * found.scale


def test_dissimilar_pairs_alone():
    program = random_program(3)
    D = program.dissimilar
    alone = Program(program.z.select(np.flatnonzero(D)), D[D], program.base[D], 1.0, program.c_dissimilar, 0.5)
    found = solved(alone)
    assert abs(found.objective - oracle(alone)[0]) <= 1e-6 * found.scale


@pytest.mark.parametrize("max_iter", [1, 3, 8, 20])
@pytest.mark.parametrize("psd", [True, False])
def test_the_certificate_holds_wherever_the_solver_stops(max_iter, psd):
    for seed in range(5):
        program = random_program(seed)
        optimum = solved(program, psd=psd, tol=1e-11)
        found = proximal.solve(program, psd=psd, tol=1e-11, max_iter=max_iter)
        slack = 1e-9 * max(found.scale, optimum.scale)
        assert found.n_iter <= max_iter
        assert found.objective - found.gap - slack <= optimum.objective <= found.objective + slack
        assert (found.alpha >= 0).all()
        assert (found.alpha <= program.cap).all()
        assert found.alpha[program.dissimilar].sum() >= program.need * (1 - 1e-12)
        for objective, gap in found.trace:
            assert objective - gap - slack <= optimum.objective <= objective + slack


def test_the_primal_and_the_dual_value_are_what_the_paper_prints():
    program = random_program(11)
    found = solved(program)
    Z, D, a = program.z.Z, program.dissimilar, found.alpha
    r = np.array([z @ found.B @ z for z in Z]) - program.base
    xi = np.maximum(np.where(D, found.gamma - r, r), 0)
    by_hand = (
        0.5 * np.sum(found.B**2)
        + program.c_similar / (~D).sum() * xi[~D].sum()
        + program.c_dissimilar * (-program.nu * found.gamma + xi[D].sum() / D.sum())
    )
    assert found.objective == pytest.approx(by_hand, rel=1e-12)
    gram = (Z @ Z.T) ** 2
    relaxed = solved(program, psd=False)
    s, a = np.where(D, 1.0, -1.0), relaxed.alpha
    psi = (s * a) @ program.base - 0.5 * (s * a) @ gram @ (s * a)  # eq. (14)
    assert relaxed.bound == pytest.approx(psi, rel=1e-9)


@pytest.mark.parametrize("seed", [2, 5, 9])
def test_margin_is_the_best_one(seed):
    program = random_program(seed)
    B = solved(program, tol=1e-3).B
    change = program.z.spread(B) - program.base
    value, gamma = program.primal(B, change)
    D = program.dissimilar
    for other in np.linspace(0, 2 * gamma + 1, 301):
        slack = np.maximum(np.where(D, other - change, change), 0)
        assert value <= 0.5 * np.sum(B**2) + program.cap @ slack - program.need * other + 1e-9 * abs(value)


# --------------------------------------------------------------------------------------------------- Propositions 2, 3


@pytest.mark.parametrize("psd", [True, False])
def test_proposition_2(psd):
    for seed in telling_seeds(12)[:4]:
        program = random_program(seed)
        found = solved(program, psd=psd, tol=1e-11)
        D, a, c = program.dissimilar, found.alpha, program.cap
        beyond = found.change - np.where(D, found.gamma, 0)
        small = 1e-4 * program.base.mean()
        inside = (a > 1e-6 * c) & (a < (1 - 1e-6) * c)
        assert inside.any()
        assert np.abs(beyond[inside]).max() <= small
        assert (beyond[D & (a == 0)] >= -small).all()
        assert (beyond[D & (a == c)] <= small).all()
        assert (beyond[~D & (a == 0)] <= small).all()
        assert (beyond[~D & (a == c)] >= -small).all()


@pytest.mark.parametrize("nu", [0.1, 0.35, 0.7])
def test_proposition_3_and_the_margin_of_section_323(nu):
    X, _, pairs = toy_pairs()
    C = 1000 / np.square(differences_of(X, pairs)[0]).sum(axis=1).mean()
    options = {"c_similar": C, "c_dissimilar": C, "nu": nu, "tol": 1e-10}
    report = mf.learn(X, pairs, method="idealized", kernel=Linear(), **options).report
    assert report.gamma > 0
    assert report.support_share >= nu
    assert report.error_share <= nu + 1e-9
    Z, D = differences_of(X, pairs)
    found = solved(Program(Dense(Z), D, np.sum(Z**2, axis=1), report.c_similar, report.c_dissimilar, nu), tol=1e-10)
    cap = report.c_dissimilar / D.sum()
    inside = D & (found.alpha > 1e-6 * cap) & (found.alpha < (1 - 1e-6) * cap)
    assert found.change[inside].mean() == pytest.approx(report.gamma, rel=1e-4)


# -------------------------------------------------------------------------------------------------- the learned metric

STRINGS = np.array(
    ["".join(np.random.default_rng(i).choice(list("ACDE" if i % 2 else "ACFG"), size=15)) for i in range(40)],
    dtype=object,
)
KERNELS = {
    "linear": (Linear(), toy(40)[0], toy(25, seed=1)[0]),
    "rbf": (RBF("median"), toy(40)[0], toy(25, seed=1)[0]),
    "string": (Spectrum(2), STRINGS, STRINGS[::2] + STRINGS[1::2]),
}


@pytest.mark.parametrize("psd", ["exact", "project"])
@pytest.mark.parametrize("name", KERNELS)
def test_distances_are_a_metric_on_unseen_rows(name, psd):
    kernel, X, new = KERNELS[name]
    metric = mf.learn(X, np.arange(40) % 2, method="idealized", kernel=kernel, psd=psd, nu=0.6, tol=1e-5)
    assert metric.report.learned
    D = metric.distance(new)
    assert np.isfinite(D).all()
    assert (D >= 0).all()
    assert np.abs(D - D.T).max() <= 1e-7 * D.max()
    assert ((D[:, :, None] + D[None]).min(axis=1) >= D - 1e-7 * D.max()).all()
    assert np.linalg.eigvalsh(metric.kernel(new))[0] >= -1e-9 * np.abs(metric.kernel(new)).max()


def test_project_is_the_psd_part_of_the_relaxed_optimum():
    X, _, pairs = toy_pairs(40, 60)
    options = {"c_similar": 50.0, "c_dissimilar": 0.5, "nu": 0.6, "tol": 1e-10}
    projected = mf.learn(X, pairs, method="idealized", kernel=Linear(), psd="project", **options)
    Z, D = differences_of(X, pairs)
    program = Program(Dense(Z), D, np.sum(Z**2, axis=1), 50.0, 0.5, 0.6)
    value, B = oracle(program, psd=False)
    assert np.linalg.eigvalsh(B)[0] < -1e-3 * np.abs(B).max()
    assert projected.report.objective == pytest.approx(value, rel=1e-6)
    assert np.abs(projected.kernel.W - positive_part(B)).max() <= 1e-4 * np.abs(B).max()
    assert projected.report.objective_projected == pytest.approx(primal(program, positive_part(B)), rel=1e-3)
    exact = mf.learn(X, pairs, method="idealized", kernel=Linear(), **options)
    assert exact.report.objective < projected.report.objective_projected
    assert exact.report.objective > projected.report.objective


def test_kernel_expansion_of_section_33_is_the_same_kernel():
    X, _, pairs = toy_pairs(40, 80)
    options = {"c_similar": 300.0, "c_dissimilar": 300.0, "nu": 0.5, "tol": 1e-12}
    kernel = RBF(0.002)
    metric = mf.learn(X, pairs, method="idealized", psd="paper", kernel=kernel, **options)
    A = toy(15, seed=5)[0]
    (i, j), a = metric.report.support.T, metric.report.multipliers
    K = kernel(A, X)
    left = K[:, i] - K[:, j]  # K_ai − K_aj
    expansion = (left * a) @ left.T
    scale = np.abs(expansion).max()
    assert np.abs(metric.kernel(A) - expansion).max() <= 1e-5 * scale
    apart = left[:, None] - left[None]
    squared = (a * apart**2).sum(axis=2)
    assert np.abs(metric.distance(A) ** 2 - np.maximum(squared, 0)).max() <= 1e-5 * scale


def test_paper_clips_counts_and_refuses_to_transform(tmp_path):
    X, _, pairs = toy_pairs(40, 80)
    metric = mf.learn(
        X, pairs, method="idealized", kernel=Linear(), psd="paper", c_similar=500.0, c_dissimilar=0.5, nu=0.9
    )
    report = metric.report
    assert report.smallest_eigenvalue < 0
    assert report.negative_pairs > 0
    assert any(str(report.negative_pairs) in note for note in report.notes)
    D = metric.distance(X)
    assert (D >= 0).all()
    Z, _ = differences_of(X, pairs)
    assert report.negative_pairs == np.sum(np.einsum("ti,ij,tj->t", Z, metric.kernel.form.W, Z) < 0)
    with pytest.raises(InputError, match='psd="paper"'):
        metric.transform(X)
    assert metric.neighbors(X[:3], 2)[0].shape == (3, 2)
    metric.save(tmp_path / "paper.metric")
    again = mf.load(tmp_path / "paper.metric")
    assert np.array_equal(again.distance(X), D)
    with pytest.raises(InputError, match='psd="paper"'):
        again.transform(X)


@pytest.mark.parametrize("lazy", [False, True], ids=["memory", "dask"])
def test_neighbours_of_an_indefinite_kernel_are_those_of_its_distances(tmp_path, lazy):
    X, y, pairs = toy_pairs(40, 80)
    rows = da.from_array(X, chunks=(15, -1)) if lazy else X
    one = mf.learn(
        rows, pairs, method="idealized", kernel=Linear(), psd="paper", c_similar=500.0, c_dissimilar=0.5, nu=0.9
    )
    other = mf.learn(rows, y, method="euclidean", kernel=Linear())
    A = toy(10, seed=3)[0]
    for metric in (one, 2.0 * one, 0.5 * one + 0.5 * other):
        D = metric.distance(A, X)
        _, found = metric.neighbors(A, 3)
        assert np.allclose(found, np.sort(D, axis=1)[:, :3], atol=1e-6 * D.max())
        with pytest.raises(InputError, match='psd="paper"'):
            metric.transform(A)
        metric.save(tmp_path / "one.metric")
        assert np.allclose(mf.load(tmp_path / "one.metric").distance(A), metric.distance(A))


def test_neighbours_of_an_indefinite_kernel_beyond_the_exact_limit(monkeypatch):
    X, _, pairs = toy_pairs(40, 80)
    metric = mf.learn(
        X, pairs, method="idealized", kernel=Linear(), psd="paper", c_similar=500.0, c_dissimilar=0.5, nu=0.9
    )
    index, distance = metric.neighbors(X[:5], 2)
    monkeypatch.setattr("metricforge.metric.EXACT_NEIGHBORS", 1)
    again = metric.neighbors(X[:5], 2)
    assert np.array_equal(index, again[0])
    assert np.array_equal(distance, again[1])


def test_paper_keeps_a_plain_kernel_where_the_optimum_is_psd():
    X, _, pairs = toy_pairs()
    metric = mf.learn(X, pairs, method="idealized", kernel=Linear(), psd="paper", c_dissimilar=0.01, c_similar=0.01)
    assert isinstance(metric.kernel, LearnedKernel)
    assert metric.report.smallest_eigenvalue >= 0


def test_toy_data_of_the_paper():
    X, y = toy(60)
    A, b = toy(400, seed=9)
    before = nearest_error(mf.learn(X, y, method="euclidean", kernel=Linear()), X, y, A, b)
    metric = mf.learn(X, y, method="idealized", kernel=Linear(), c_similar=3000 / 550, c_dissimilar=1000 / 550, nu=0.6)
    after = nearest_error(metric, X, y, A, b)
    assert before > 0.2
    assert after < 0.05
    assert metric.report.alignment_after > metric.report.alignment_before + 0.3


@pytest.mark.parametrize("kernel", [Linear(), RBF("median")], ids=["linear", "rbf"])
def test_learned_kernel_is_the_best_on_its_features(kernel):
    """The whole way from rows to W, against the SDP on the features that the space gives."""
    X, _, pairs = toy_pairs(14, 20)
    X = X[:, :4]
    metric = mf.learn(X, pairs, method="idealized", kernel=kernel, nu=0.5, tol=1e-8)
    Phi = metric.kernel.map.block(X)
    Z, D = differences_of(Phi, pairs)
    report = metric.report
    program = Program(Dense(Z), D, np.sum(Z**2, axis=1), report.c_similar, report.c_dissimilar, 0.5)
    value, W = oracle(program)
    assert report.objective == pytest.approx(value, rel=1e-5)
    assert np.abs(metric.kernel.W - W).max() <= 1e-3 * np.abs(W).max()
    assert report.c_similar == pytest.approx(100 / np.mean(np.sum(Z**2, axis=1)))


# --------------------------------------------------------------------------------------------------- the base metric M


def test_general_base_metric(rng):
    X, _, pairs = toy_pairs(30, 50)
    X = X[:, :4]
    L = rng.normal(size=(4, 4))
    M = L @ L.T / 4
    metric = mf.learn(
        X, pairs, method="idealized", kernel=Linear(), M=M, c_similar=2.0, c_dissimilar=2.0, nu=0.5, tol=1e-8
    )
    Z, D = differences_of(X, pairs)
    program = Program(Dense(Z), D, np.einsum("ti,ij,tj->t", Z, M, Z), 2.0, 2.0, 0.5)
    value, B = oracle(program)
    assert metric.report.objective == pytest.approx(value, rel=1e-5)
    assert np.abs(metric.kernel.W - B).max() <= 1e-3 * np.abs(B).max()
    (before,) = pair_alignment(X, *np.concatenate([pairs.similar, pairs.dissimilar]).T, D, M)
    assert metric.report.alignment_before == pytest.approx(before)


def test_a_kernel_as_base_metric():
    X, _, pairs = toy_pairs(30, 50)
    plain = mf.learn(X, pairs, method="idealized", kernel=Linear(), nu=0.5, tol=1e-6)
    same = mf.learn(X, pairs, method="idealized", kernel=Linear(), nu=0.5, tol=1e-6, M=Linear())
    assert same.report.objective == pytest.approx(plain.report.objective, rel=1e-6)
    assert same.report.alignment_before == pytest.approx(plain.report.alignment_before)
    assert same.report.alignment_after == pytest.approx(plain.report.alignment_after, rel=1e-3)
    other = mf.learn(
        X,
        pairs,
        method="idealized",
        kernel=Linear(),
        nu=0.5,
        M=RBF("median"),
        c_similar=0.01,
        c_dissimilar=0.01,
        tol=1e-8,
    )
    Z, D = differences_of(X, pairs)
    base = RBF("median").resolve(X).squared_distance(X, X)[tuple(np.concatenate([pairs.similar, pairs.dissimilar]).T)]
    value, _ = oracle(Program(Dense(Z), D, base, 0.01, 0.01, 0.5))
    assert other.report.objective == pytest.approx(value, rel=1e-5)


@pytest.mark.parametrize("M", [None, np.diag([1.0, 2, 3]), Linear()])
def test_nothing_learned_is_said(rng, M):
    X = rng.normal(size=(80, 3))
    y = rng.integers(2, size=80)  # labels that the rows know nothing about
    pairs = mf.Pairs.from_labels(y, n_pairs=400)
    metric = mf.learn(X, pairs, method="idealized", kernel=Linear(), M=M, nu=0.05)
    assert not metric.report.learned
    assert metric.report.change < 2e-3
    assert any("nothing was learned" in note for note in metric.report.notes)


def test_a_margin_of_zero_is_not_nothing_learned():
    X, _, pairs = toy_pairs()
    metric = mf.learn(X, pairs, method="idealized", kernel=Linear(), c_similar=0.01, c_dissimilar=0.01, nu=0.1)
    assert metric.report.gamma == 0
    assert metric.report.learned
    assert metric.report.change > 0.1


def test_nothing_learned_is_seen_on_the_span_of_the_pairs(rng):
    X = np.column_stack([rng.normal(size=(80, 3)), np.full(80, 7.0)])
    pairs = mf.Pairs.from_labels(rng.integers(2, size=80), n_pairs=400)
    metric = mf.learn(X, pairs, method="idealized", kernel=Linear(), nu=0.05)
    assert not metric.report.learned


# --------------------------------------------------------------------------------------------- one answer, many routes


@pytest.mark.parametrize("psd", [True, False])
@pytest.mark.parametrize(
    "limits", [{"ASSEMBLED": 0, "FEW": 0}, {"ASSEMBLED": 0, "PATIENCE": 1}, {"ROWS_PER_COLUMN": 1}], ids=str
)
def test_every_way_to_solve_the_newton_system(monkeypatch, psd, limits):
    programs = [random_program(seed) for seed in (0, 4, 8)]
    expected = [solved(program, psd=psd).objective for program in programs]
    for name, value in limits.items():
        monkeypatch.setattr(proximal, name, value)
    for program, value in zip(programs, expected, strict=True):
        found = solved(program, psd=psd, tol=1e-8)
        assert found.converged
        assert abs(found.objective - value) <= 2e-8 * found.scale


@pytest.mark.parametrize("psd", [True, False])
@pytest.mark.parametrize("nu", [0.2, 0.7])
def test_starting_from_a_part_of_the_pairs(monkeypatch, psd, nu):
    X, y = toy(300)
    Z, D = differences_of(X, mf.Pairs.from_labels(y, n_pairs=2000))
    program = Program(Dense(Z / 20), D, np.sum((Z / 20) ** 2, axis=1), 300.0, 100.0, nu)
    whole = solved(program, psd=psd, tol=1e-8)
    monkeypatch.setattr(proximal, "SAMPLE", 300)
    part = solved(program, psd=psd, tol=1e-8, seed=3)
    assert part.converged
    assert abs(part.objective - whole.objective) <= 2e-8 * whole.scale


@pytest.mark.parametrize("sigma", [1.0, 1e-6, 1e6])
def test_scale_of_the_features_does_not_matter(sigma):
    X, _, pairs = toy_pairs()
    plain = mf.learn(X, pairs, method="idealized", kernel=Linear(), nu=0.5)
    scaled = mf.learn(sigma * X, pairs, method="idealized", kernel=Linear(), nu=0.5)
    assert scaled.report.objective == pytest.approx(plain.report.objective, rel=1e-6)
    assert scaled.report.gamma == pytest.approx(sigma**2 * plain.report.gamma, rel=1e-3)


@pytest.mark.parametrize("scale", [2.0**-330, 2.0**160])
def test_tiny_and_large_features_overflow_nowhere(scale):
    X, y, _ = toy_pairs(40, 60)
    plain = mf.learn(X, y, method="idealized", kernel=Linear(), nu=0.5).report
    scaled = mf.learn(scale * X, y, method="idealized", kernel=Linear(), nu=0.5).report
    assert scaled.objective == plain.objective  # the unit is a power of two
    assert scaled.gamma == scale**2 * plain.gamma
    assert scaled.c_similar == plain.c_similar / scale**2


def test_features_whose_squares_underflow_are_refused():
    X, y, _ = toy_pairs(40, 60)
    with pytest.raises(InputError, match=r"X: the largest squared distance of a pair is .*; rescale the features"):
        mf.learn(1e-160 * X, y, method="idealized", kernel=Linear())


def test_offset_of_the_rows_does_not_matter():
    X, _, pairs = toy_pairs()
    plain = mf.learn(X, pairs, method="idealized", kernel=Linear(), nu=0.5)
    moved = mf.learn(X + 1e6, pairs, method="idealized", kernel=Linear(), nu=0.5)
    assert moved.report.objective == pytest.approx(plain.report.objective, rel=1e-6)


def test_few_rows_of_many_features(rng):
    X = rng.normal(size=(12, 40))
    pairs = mf.Pairs([(0, 1), (2, 3), (1, 4)], [(0, 2), (1, 3), (5, 0), (4, 5)], n=12)
    metric = mf.learn(X, pairs, method="idealized", rank="auto", kernel=Linear(), nu=0.5, tol=1e-8)
    padded = mf.learn(np.vstack([X, rng.normal(size=(60, 40))]), mf.Pairs(pairs.similar, pairs.dissimilar, n=72),
                      method="idealized", kernel=Linear(), nu=0.5, tol=1e-8)  # fmt: skip
    assert padded.kernel.W.shape == (40, 40)
    assert np.linalg.matrix_rank(padded.kernel.W, tol=1e-6) <= 5
    assert padded.report.objective == pytest.approx(metric.report.objective, rel=1e-6)
    assert padded.distance(X) == pytest.approx(metric.distance(X), abs=1e-2 * metric.distance(X).max())


def test_only_chunks_with_rows_in_pairs_are_computed():
    X, _, pairs = toy_pairs(60, 100)

    def poisoned(block, block_info=None):
        assert block_info[0]["chunk-location"][0] < 3, "a chunk without pairs was computed"
        return block

    lazy = da.from_array(np.vstack([X, X]), chunks=(20, -1)).map_blocks(poisoned, dtype=float)
    inside = mf.Pairs(pairs.similar, pairs.dissimilar, n=120)
    far = Idealized(nu=0.5).solve(Problem(represent(Linear(), lazy), inside))
    near = Idealized(nu=0.5).solve(Problem(represent(Linear(), X), pairs))
    assert np.abs(far.kernel.W - near.kernel.W).max() <= 1e-8 * np.abs(near.kernel.W).max()


@pytest.mark.parametrize(("kernel", "rank"), [(Linear(), "auto"), (RBF("median"), 20)], ids=["linear", "landmarks"])
def test_dask_agrees_with_memory(kernel, rank):
    X, y, pairs = toy_pairs(60, 100)
    for hints in (y, pairs):
        far = mf.learn(da.from_array(X, chunks=(25, -1)), hints, method="idealized", kernel=kernel, rank=rank)
        near = mf.learn(X, hints, method="idealized", kernel=kernel, rank=rank)
        D = near.distance(X)
        assert np.abs(far.distance(X) - D).max() <= 1e-8 * D.max()


def test_csr_and_float32_rows():
    X, _, pairs = toy_pairs()
    plain = mf.learn(X, pairs, method="idealized", kernel=Linear(), nu=0.5)
    sparse = mf.learn(sp.csr_array(X), pairs, method="idealized", kernel=Linear(), nu=0.5)
    assert sparse.report.objective == pytest.approx(plain.report.objective, rel=1e-9)
    single = mf.learn(X.astype(np.float32), pairs, method="idealized", kernel=Linear(), nu=0.5)
    assert single.report.objective == pytest.approx(plain.report.objective, rel=1e-4)


# ---------------------------------------------------------------------------------------------------------- the pieces


def test_dense_and_graph_differences_agree(rng):
    Phi = rng.normal(size=(12, 6))
    i, j = rng.integers(12, size=(2, 60))
    i, j = i[i != j], j[i != j]
    weights, B = rng.normal(size=len(i)), rng.normal(size=(6, 6))
    B = B + B.T
    V = np.linalg.qr(rng.normal(size=(6, 6)))[0]
    Z = Phi[i] - Phi[j]
    by_hand = sum(w * np.outer(z, z) for w, z in zip(weights, Z, strict=True))
    for form in (Dense(Z), Graph(Phi, i, j)):
        assert form.gather(weights) == pytest.approx(by_hand)
        assert form.spread(B) == pytest.approx([z @ B @ z for z in Z])
        assert form.squares == pytest.approx(np.sum(Z**2, axis=1))
        chosen = np.arange(0, len(i), 3)
        rotated = form.select(chosen).rotated(V).dense()
        assert np.allclose(rotated.Z, Z[chosen] @ V)
    assert isinstance(differences(Phi, i, j), Dense)
    weights = np.abs(weights)
    U = np.array([svec(np.outer(z, z)) for z in Z])
    assert Dense(Z).curvature(weights) == pytest.approx(U.T @ (U * weights[:, None]))
    assert smat(svec(B), 6) == pytest.approx(B)
    assert svec(B) @ svec(B) == pytest.approx(np.sum(B**2))


@pytest.mark.parametrize("w", [[-2.0, -0.5, 0.3, 1.5], [-2.0, -1.0, -0.5, -0.1], [0.1, 0.2, 0.5, 3.0]], ids=str)
def test_slopes_are_the_derivative_of_the_psd_part(rng, w):
    V = np.linalg.qr(rng.normal(size=(4, 4)))[0]
    H = rng.normal(size=(4, 4))
    H, X, t = H + H.T, (V * w) @ V.T, 1e-6
    by_difference = (positive_part(X + t * H) - positive_part(X - t * H)) / (2 * t)
    assert V @ (proximal._slopes(np.array(w)) * (V.T @ H @ V)) @ V.T == pytest.approx(by_difference, abs=1e-8)


def test_slopes_where_eigenvalues_are_zero():
    assert proximal._slopes(np.array([0.0, 0.0, 2.0])) == pytest.approx(np.array([[0, 0, 1], [0, 0, 1], [1, 1, 1]]))


@pytest.mark.parametrize("lift", [0.0, 1e-12, 1e-8])
def test_a_factor_of_a_matrix_that_rounding_left_indefinite(rng, lift):
    V = np.linalg.qr(rng.normal(size=(5, 5)))[0]
    A = (V * [-lift, 1e-3, 1e-2, 0.1, 1.0]) @ V.T + (0.01 * np.eye(5) if lift == 0 else 0)
    A = (A + A.T) / 2
    solve, exact = proximal._cholesky(A.copy())
    assert exact == (lift == 0)
    assert (solve is None) == (lift == 1e-8)
    if exact:
        assert A @ solve(np.arange(5.0)) == pytest.approx(np.arange(5.0))
    elif solve is not None:  # the same, but for the one direction that has no digits
        assert V[:, 1:].T @ A @ solve(V @ np.arange(5.0)) == pytest.approx(np.arange(1.0, 5.0), rel=1e-6)


def test_many_pairs_on_few_rows_become_a_graph(rng):
    Phi = rng.normal(size=(40, 70))
    i, j = np.triu_indices(40, k=1)
    form = differences(Phi, i, j)
    assert isinstance(form, Graph)
    weights = rng.normal(size=len(i))
    assert form.gather(weights) == pytest.approx(Dense(Phi[i] - Phi[j]).gather(weights))


@settings(max_examples=60)
@given(st.integers(0, 10**6), st.floats(0, 1), st.floats(-3, 3))
def test_nearest_feasible_multipliers_satisfy_their_conditions(seed, nu, centre):
    rng = np.random.default_rng(seed)
    program = replace(random_program(seed % 50), nu=nu)
    weight = program.cap * rng.uniform(0.1, 3, program.size)
    x = program.cap * (centre + rng.normal(size=program.size))
    alpha, gamma = program.feasible(x, weight)
    D = program.dissimilar
    assert (alpha >= 0).all()
    assert (alpha <= program.cap).all()
    assert alpha[D].sum() >= program.need * (1 - 1e-12)
    assert gamma >= 0
    assert gamma == 0 or alpha[D].sum() == pytest.approx(program.need, rel=1e-9)
    moved = np.clip(x + gamma * weight * D, 0, program.cap)
    assert alpha == pytest.approx(moved, abs=1e-9 * program.cap.max() * program.size)


def test_pairs_built_from_labels_are_the_closest(rng):
    X = rng.normal(size=(40, 3))
    y = rng.integers(3, size=40)
    chosen = pairs_from_labels(X, y, 2, None)
    D = np.linalg.norm(X[:, None] - X[None], axis=2)
    similar, dissimilar = set(), set()
    for i in range(40):
        for wanted, side in ((y == y[i], similar), (y != y[i], dissimilar)):
            rows = np.flatnonzero(wanted & (np.arange(40) != i))
            side |= {tuple(sorted((i, int(j)))) for j in rows[np.argsort(D[i, rows])[:2]]}
    assert set(map(tuple, chosen.similar.tolist())) == similar
    assert set(map(tuple, chosen.dissimilar.tolist())) == dissimilar
    R = np.median(D[np.triu_indices(40, k=1)])
    near = pairs_from_labels(X, y, 2, "median")
    assert set(map(tuple, near.dissimilar.tolist())) == {(i, j) for i, j in dissimilar if D[i, j] <= R}
    every = pairs_from_labels(X, y, None, "median")
    assert len(every.similar) + len(every.dissimilar) == 40 * 39 // 2


def test_a_radius_alone_also_limits_pairs_from_labels(rng):
    X = rng.normal(size=(30, 3))
    y = rng.integers(2, size=30)
    D = np.linalg.norm(X[:, None] - X[None], axis=2)[np.triu_indices(30, k=1)]
    report = mf.learn(X, y, method="idealized", kernel=Linear(), neighbors=None, radius=1.5).report
    assert report.similar_pairs + report.dissimilar_pairs == np.sum(D <= 1.5) < len(D)
    assert any(note.startswith(f"{np.sum(D > 1.5)} of {len(D)} pairs were left out") for note in report.notes)


def test_report_counts_the_pairs_built_from_labels():
    X, y = toy(50)
    metric = mf.learn(X, y, method="idealized", kernel=Linear(), neighbors=3)
    report = metric.report
    said = f"{report.similar_pairs} similar and {report.dissimilar_pairs} dissimilar pairs were built from labels"
    assert said in report.notes
    chosen = pairs_from_labels(X, y, 3, "median")
    assert (report.similar_pairs, report.dissimilar_pairs) == (len(chosen.similar), len(chosen.dissimilar))
    unlabelled = mf.Labels(np.where(np.arange(50) < 40, y, -1), unlabelled=-1)
    assert mf.learn(X, unlabelled, method="idealized", kernel=Linear()).report.support.max() < 40


def test_pairs_are_built_around_a_part_of_many_rows(monkeypatch):
    monkeypatch.setattr(selection, "ANCHORS", 20)
    X, y = toy(60)
    metric = mf.learn(X, y, method="idealized", kernel=Linear())
    assert any("20 of the 60" in note for note in metric.report.notes)
    assert metric.report.dissimilar_pairs <= 100


def test_a_radius_that_leaves_no_dissimilar_pair_is_not_applied():
    X = np.array([[0.0], [0.1], [0.2], [9.0], [9.1], [9.2]])
    y = [0, 0, 0, 1, 1, 1]
    metric = mf.learn(X, y, method="idealized", kernel=Linear(), radius=1.0)
    assert metric.report.dissimilar_pairs > 0
    assert any("radius was not applied" in note for note in metric.report.notes)
    pairs = mf.Pairs([(0, 1), (3, 4)], [(0, 3), (1, 4)], n=6)
    metric = mf.learn(X, pairs, method="idealized", kernel=Linear(), radius=1.0)
    assert any("radius was not applied" in note for note in metric.report.notes)


def test_closest_of_the_given_pairs(rng):
    n, k = 15, 2
    every = np.stack(np.triu_indices(n, k=1), axis=1)
    similar, dissimilar = every[::2], every[1::2]
    distance = rng.random(len(every))
    pairs, apart = np.concatenate([similar, dissimilar]), np.arange(len(every)) >= len(similar)
    keep, notes = closest_pairs(pairs, apart, distance, k, None)
    assert notes == ()
    for side, start in ((similar, 0), (dissimilar, len(similar))):
        d = distance[start : start + len(side)]
        for t, (i, j) in enumerate(side):
            ranks = [np.sum(d[(side == row).any(axis=1)] < d[t]) for row in (i, j)]
            assert keep[start + t] == (min(ranks) < k)
    near, _ = closest_pairs(pairs, apart, distance, None, "median")
    assert near.sum() == pytest.approx(len(every) / 2, abs=1)


def test_neighbors_and_radius_on_given_pairs():
    X, _, pairs = toy_pairs()
    every = mf.learn(X, pairs, method="idealized", kernel=Linear())
    assert every.report.similar_pairs + every.report.dissimilar_pairs == pairs.size
    some = mf.learn(X, pairs, method="idealized", kernel=Linear(), neighbors=1)
    left = pairs.size - some.report.similar_pairs - some.report.dissimilar_pairs
    assert left > 0
    assert any(note.startswith(f"{left} of {pairs.size} pairs were left out") for note in some.report.notes)


# ----------------------------------------------------------------------------------------------- eq. (2) and alignment


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.floats(1e-3, 100))
def test_proposition_1(seed, gamma):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(4, 15))
    y = rng.integers(3, size=n)
    L = rng.normal(size=(n, n))
    K = L @ L.T
    weights = {c: rng.uniform(0.5, 2) for c in np.unique(y)} if seed % 2 else None
    ideal = ideal_matrix(y, weights=weights)
    if gamma <= -np.sum(K * ideal) / np.sum(ideal**2):
        return
    better = idealized_matrix(K, y, gamma, weights=weights)
    assert alignment(better, ideal) > alignment(K, ideal) - 1e-12
    assert np.linalg.eigvalsh(better)[0] >= -1e-9 * np.abs(better).max()


def test_idealized_matrix_moves_classes_apart_by_gamma(rng):
    X = rng.normal(size=(9, 3))
    y = np.array(list("aabbbccca"))
    K = X @ X.T
    better = idealized_matrix(K, y, 2.5)
    square = [np.diag(G)[:, None] + np.diag(G) - 2 * G for G in (K, better)]
    assert square[1] - square[0] == pytest.approx(np.where(y[:, None] == y, 0, 2.5))  # eq. (3)
    weighted = idealized_matrix(K, y, 2.0, weights={"a": 3.0})
    assert (weighted - K)[0, 8] == 3.0
    assert (weighted - K)[2, 3] == 1.0
    hidden = idealized_matrix(K, mf.Labels(np.where(y == "a", None, y)), 2.0)
    assert (hidden - K)[0, 0] == 0


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: idealized_matrix(np.eye(3), [0, 1, 1], -1.0), "gamma"),
        (lambda: idealized_matrix(np.eye(3), [0, 1], 1.0), "2 labels"),
        (lambda: ideal_matrix([0, 1], weights={5: 1.0}), "class 5"),
        (lambda: ideal_matrix([0, 1], weights={1: -1.0}), "weights"),
        (lambda: alignment(np.eye(3), np.eye(2)), "same shape"),
    ],
)
def test_bad_input_of_the_matrix_functions(call, match):
    with pytest.raises(InputError, match=match):
        call()


def test_alignments_need_nothing_n_by_n(rng):
    Phi = rng.normal(size=(20, 4))
    codes = rng.integers(3, size=20)
    L = rng.normal(size=(4, 4))
    B = L @ L.T
    expected = alignment(Phi @ B @ Phi.T, ideal_matrix(codes))
    assert label_alignment(Phi, codes, B)[0] == pytest.approx(expected)
    i, j = np.triu_indices(20, k=1)
    dissimilar = codes[i] != codes[j]
    assert pair_alignment(Phi, i, j, dissimilar, B)[0] == pytest.approx(expected)  # all pairs: the same thing


# ------------------------------------------------------------------------------------------- a part of the directions


def wide_data(n=500, d=220, seed=0):
    """Four classes whose means differ in three directions, thirty wide directions without class, and noise."""
    rng = np.random.default_rng(seed)
    y = rng.integers(4, size=n)
    X = rng.normal(size=(n, d)) * 0.2
    X[:, :30] *= 15
    X[:, 30:38] += 1.5 * rng.normal(size=(4, 8))[y]
    return X, y


def test_wide_features_are_restricted_and_the_report_names_the_program():
    X, y = wide_data()
    pairs = mf.Pairs.from_labels(y, n_pairs=400, seed=0)
    metric = mf.learn(X, pairs, method="idealized", kernel=Linear(), nu=0.5)
    report = metric.report
    assert report.status == "optimal"
    assert report.relative_gap <= 1e-3
    assert (report.components, report.features) == (100, 220)
    assert str(report.certificate) == "duality gap of the program restricted to 100 of 220 directions"
    assert any('rank="exact" solves the full program' in note for note in report.notes)
    assert 0 < report.energy_left_out < 1
    # the full program: its optimum lies between objective − full_gap and objective
    full = mf.learn(X, pairs, method="idealized", kernel=Linear(), nu=0.5, rank="exact", tol=1e-2).report
    assert "components" not in full.outcome
    scale = max(abs(report.objective), np.square(metric.kernel.W).sum() / 2)
    assert report.objective - report.full_gap * scale <= full.objective
    assert full.objective - full.gap <= report.objective


@pytest.mark.parametrize("nu", [0.2, 0.9])
def test_the_gap_to_the_full_program_holds_without_the_condition_on_eigenvalues(nu):
    X, y = wide_data()
    pairs = mf.Pairs.from_labels(y, n_pairs=400, seed=0)
    options = {"method": "idealized", "kernel": Linear(), "nu": nu, "psd": "paper"}
    report = mf.learn(X, pairs, **options).report
    full = mf.learn(X, pairs, **options, rank="exact", tol=1e-4).report
    scale = report.gap / report.relative_gap
    assert full.objective - full.gap <= report.objective
    assert report.objective - report.full_gap * scale <= full.objective


def test_the_restricted_program_is_the_full_one_on_a_subspace():
    X, y = wide_data(300, 160)
    pairs = mf.Pairs.from_labels(y, n_pairs=300, seed=0)
    constants = {"nu": 0.5, "c_similar": 0.3, "c_dissimilar": 0.3}
    metric = mf.learn(X, pairs, method="idealized", kernel=Linear(), **constants)
    V = metric.kernel.map.mix
    assert np.allclose(V.T @ V, np.eye(100), atol=1e-10)
    Z, D = differences_of(X, pairs)
    program = Program(Dense(Z), D, np.square(Z).sum(axis=1), 0.3, 0.3, 0.5)  # distances of all features
    B = V @ metric.kernel.W @ V.T
    assert metric.report.objective == pytest.approx(primal(program, B), rel=1e-9)
    A = X[:20]
    assert np.allclose(metric.distance(A) ** 2, [[(a - b) @ B @ (a - b) for b in A] for a in A], atol=1e-8)


def test_directions_follow_the_hints_and_not_the_variance():
    X, y = wide_data()
    Z, D = differences_of(X, mf.Pairs.from_labels(y, n_pairs=3000, seed=0))
    V = subspace.leading_directions(Dense(Z), D, 3, 0)
    principal = np.linalg.svd(Z, full_matrices=False)[2][:3].T
    assert np.square(V[30:38]).sum() > 2  # of 3
    assert np.square(principal[30:38]).sum() < 1


def test_both_ways_to_directions_agree(rng):
    X, y = wide_data(400, 60)
    pairs = mf.Pairs.from_labels(y, n_pairs=1500, seed=0)
    i, j = np.concatenate([pairs.similar, pairs.dissimilar]).T
    D = np.repeat([False, True], [len(pairs.similar), len(pairs.dissimilar)])
    weights = mf.space.contrast_weights(D)
    dense, graph = Dense(X[i] - X[j]), Graph(X, i, j)
    G = dense.gather(weights)
    Y = rng.normal(size=(60, 3))
    assert np.allclose(dense.product(weights, Y), G @ Y)
    assert np.allclose(graph.product(weights, Y), G @ Y)
    exact = mf.space.leading_eigenvectors(G, 6)
    iterated = mf.space.subspace_iteration(lambda Y: dense.product(weights, Y), 60, 6, 0)
    assert np.allclose(exact.T @ exact, np.eye(6))
    assert np.trace(iterated.T @ G @ iterated) >= 0.99 * np.trace(exact.T @ G @ exact)


def test_wide_features_in_blocks_give_the_same_metric(monkeypatch, tmp_path):
    X, y = wide_data()
    X += 100.0
    X[3] = X[7]
    pairs = mf.Pairs.from_labels(y, n_pairs=400, seed=0)
    pairs = mf.Pairs([*pairs.similar.tolist(), (3, 7)], pairs.dissimilar, n=len(X))
    whole = mf.learn(X, pairs, method="idealized", kernel=Linear(), nu=0.5)
    monkeypatch.setattr(written, "KEPT_BYTES", 0)
    inside = mf.learn(X, pairs, method="idealized", kernel=Linear(), nu=0.5)
    assert inside.report.full_gap is None
    assert inside.report.objective == pytest.approx(whole.report.objective, rel=3e-3)
    for name in ("alignment_before", "energy_left_out", "mean_squared_difference", "similar_pairs", "zero_pairs"):
        assert inside.report[name] == pytest.approx(whole.report[name], rel=1e-4)
    assert inside.report.alignment_after == pytest.approx(whole.report.alignment_after, abs=1e-2)
    sparse = mf.learn(sp.csr_array(X), pairs, method="idealized", kernel=Linear(), nu=0.5)
    assert sparse.report.objective == pytest.approx(inside.report.objective, rel=1e-6)
    far = mf.learn(1e40 * X, pairs, method="idealized", kernel=Linear(), nu=0.5)  # beyond float32
    assert far.report.energy_left_out == pytest.approx(inside.report.energy_left_out, rel=1e-4)
    with monkeypatch.context() as patch:
        patch.setattr("metricforge_plugins.idealized.solver.refined", lambda *args: None)
        once = mf.learn(X, pairs, method="idealized", kernel=Linear(), nu=0.5)
        patch.setattr(written, "DENSE_WIDTH", 10)
        iterated = mf.learn(X, pairs, method="idealized", kernel=Linear(), nu=0.5)
        assert iterated.report.energy_left_out == pytest.approx(once.report.energy_left_out, rel=0.2)
    # the second choice of directions solves more of the full program, and both certificates are true
    exact = mf.learn(X, pairs, method="idealized", kernel=Linear(), nu=0.5, rank="exact", tol=1e-5)
    assert exact.report.objective <= inside.report.objective < once.report.objective
    assert once.report.status == inside.report.status == "optimal"
    assert inside.report.relative_gap <= 1e-3
    inside.save(tmp_path / "wide.metric")
    loaded = mf.load(tmp_path / "wide.metric")
    assert np.allclose(loaded.distance(X[:9]), inside.distance(X[:9]))
    M = inside.mahalanobis()
    assert np.allclose(np.sqrt(np.einsum("ij,jk,ik->i", X[:9] - X[9:18], M, X[:9] - X[9:18])),
                       inside.paired_distance(X[:9], X[9:18]))  # fmt: skip


@pytest.mark.parametrize("rank", [150, "exact"])
def test_a_rank_that_was_asked_for_is_never_restricted(rank):
    X, y = wide_data(300, 40)
    metric = mf.learn(X, y, method="idealized", kernel=RBF("median"), rank=rank, tol=0.3)
    assert metric.report.certificate == "duality gap"
    assert metric.kernel.map.columns == (150 if rank == 150 else 300)
    automatic = mf.learn(X, y, method="idealized", kernel=RBF("median"), tol=0.3)
    assert automatic.report.components == automatic.kernel.map.columns == 100


def test_the_number_of_directions_depends_on_sizes_only():
    assert subspace.directions(1000, 44) == 44
    assert subspace.directions(12_000, 784) == 100
    assert 40 <= subspace.directions(100_000, 4096) < 60
    assert subspace.directions(10**9, 500) == 1
    wide = [subspace.directions(N, 784) for N in (10**3, 10**4, 10**5, 10**6)]
    assert wide == sorted(wide, reverse=True)


def test_conjugate_gradients_end_before_a_matrix_is_formed(monkeypatch):
    program = random_program(3)
    expected = solved(program, tol=1e-8).objective
    formed = []
    by_features = proximal._Newton._by_features
    monkeypatch.setattr(proximal._Newton, "_by_features", lambda self: formed.append(1) or by_features(self))
    monkeypatch.setattr(proximal._Newton, "_cheap_steps", lambda self, q: 0)
    assert solved(program, tol=1e-8).objective == pytest.approx(expected, rel=1e-7)
    always = len(formed)
    monkeypatch.setattr(proximal._Newton, "_cheap_steps", lambda self, q: 200)
    assert solved(program, tol=1e-8).objective == pytest.approx(expected, rel=1e-7)
    assert len(formed) - always < always


# -------------------------------------------------------------------------------------------- degenerate and bad input


def test_duplicate_rows_are_dropped_and_counted():
    X, _, pairs = toy_pairs(30, 40)
    X[7] = X[3]
    both = mf.Pairs([*pairs.similar.tolist(), (3, 7)], pairs.dissimilar, n=30)
    without = mf.Pairs([p for p in both.similar.tolist() if p != [3, 7]], pairs.dissimilar, n=30)
    metric = mf.learn(X, both, method="idealized", kernel=Linear(), tol=1e-8)
    report = metric.report
    assert report.zero_pairs == 1
    assert any("equal features" in note for note in report.notes)
    # the pair counts in N_S: without it, a smaller C_S gives the same bounds
    assert report.similar_pairs == len(both.similar)
    share = len(without.similar) / len(both.similar)
    constants = {"c_similar": share * report.c_similar, "c_dissimilar": report.c_dissimilar}
    other = mf.learn(X, without, method="idealized", tol=1e-8, kernel=Linear(), **constants)
    assert report.objective == pytest.approx(other.report.objective, rel=1e-7)


@pytest.mark.parametrize("nu", [0.1, 0.4, 0.8])
def test_dissimilar_pairs_of_equal_rows_count_as_given(nu):
    """The program that leaves them out has the value of the program that keeps them, at its own point and others."""
    X, _, pairs = toy_pairs(30, 40)
    Z, D = differences_of(X, pairs)
    zeros = np.zeros((9, Z.shape[1]))
    every = np.concatenate([Z, zeros])
    kinds = np.concatenate([D, np.repeat([True, False], [6, 3])])
    constants = {"c_similar": 0.5, "c_dissimilar": 0.7, "nu": nu}
    kept = Program(Dense(every), kinds, np.square(every).sum(axis=1), **constants)
    left = Program(Dense(Z), D, np.square(Z).sum(axis=1), **constants, zero_similar=3, zero_dissimilar=6)
    found = solved(left, tol=1e-8)
    value, _ = oracle(kept)
    assert found.objective == pytest.approx(value, rel=1e-5, abs=1e-6)
    rng = np.random.default_rng(0)
    for _ in range(5):
        B = rng.normal(size=(Z.shape[1], 3))
        B = B @ B.T
        assert left.primal(B, left.z.spread(B) - left.base)[0] == pytest.approx(
            kept.primal(B, kept.z.spread(B) - kept.base)[0]
        )


@pytest.mark.parametrize(
    ("X", "constraint", "match"),
    [
        (np.eye(4), mf.Pairs([(0, 1)], n=4), "no dissimilar pair"),
        (np.eye(4), mf.Labels([1, 1, 1, 1]), "1 class"),
        (np.ones((4, 2)), mf.Pairs([(0, 1)], [(2, 3)], n=4), "equal features"),
        (np.ones((4, 2)), mf.Labels([0, 1, 0, 1]), "equal features"),
    ],
)
def test_hints_that_cannot_be_learned_from(X, constraint, match):
    with pytest.raises(InputError, match=match):
        mf.learn(X, constraint, method="idealized", kernel=Linear())


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("nu", -0.1),
        ("nu", 1.1),
        ("nu", "a"),
        ("nu", True),
        ("nu", np.nan),
        ("c_similar", 0),
        ("c_dissimilar", -1.0),
        ("c_dissimilar", np.inf),
        ("psd", "no"),
        ("neighbors", 0),
        ("neighbors", 2.5),
        ("neighbors", "some"),
        ("radius", 0),
        ("radius", "mean"),
        ("M", np.diag([1.0, -1.0])),
        ("M", np.zeros((2, 2))),
        ("M", [[1.0, 2.0], [0.0, 1.0]]),
        ("M", "linear"),
        ("tol", 0),
        ("max_iter", 0),
        ("max_iter", 1.5),
    ],
)
def test_bad_options_are_named(option, value):
    with pytest.raises(InputError, match=f"^{option} ?(must|=)"):
        Idealized(**{option: value})


def test_base_metric_of_the_wrong_size():
    X, _, pairs = toy_pairs()
    with pytest.raises(InputError, match="M must have one row and column for each of the kernel's 11 features"):
        mf.learn(X, pairs, method="idealized", kernel=Linear(), M=np.eye(3))
    with pytest.raises(InputError, match="M gives every pair the distance 0"):
        mf.learn(
            np.column_stack([X, np.ones(len(X))]),
            pairs,
            method="idealized",
            kernel=Linear(),
            M=np.diag([0.0] * 11 + [1.0]),
        )


def test_limit_of_iterations_warns_and_still_certifies():
    X, _, pairs = toy_pairs()
    full = mf.learn(X, pairs, method="idealized", kernel=Linear(), nu=0.5)
    with pytest.warns(ConvergenceWarning, match="max_iter=2"):
        short = mf.learn(X, pairs, method="idealized", kernel=Linear(), nu=0.5, max_iter=2)
    assert short.report.status == "iteration_limit"
    assert short.report.n_iter == 2
    assert short.report.objective - short.report.gap <= full.report.objective <= short.report.objective
    assert short.report.gap > 1e-3 * abs(full.report.objective)


def test_an_end_of_progress_warns_and_still_certifies(monkeypatch):
    X, _, pairs = toy_pairs()
    full = mf.learn(X, pairs, method="idealized", kernel=Linear(), nu=0.5)
    monkeypatch.setattr(proximal, "LAST_SIGMA", 1.0)  # where rounding would end it at 1e13
    with pytest.warns(ConvergenceWarning, match=r"stopped at rounding.*raise tol"):
        short = mf.learn(X, pairs, method="idealized", kernel=Linear(), nu=0.5)
    assert short.report.n_iter < full.report.n_iter
    assert short.report.objective - short.report.gap <= full.report.objective <= short.report.objective


def test_a_gap_below_rounding_can_be_asked_for():
    found = solved(random_program(0), tol=1e-300)
    assert found.n_iter < 2000
    assert found.gap <= 1e-9 * found.scale


def test_blas_threads_are_as_before_after_a_solve():
    from threadpoolctl import threadpool_info, threadpool_limits

    with threadpool_limits(2, user_api="blas"):
        before = [pool["num_threads"] for pool in threadpool_info()]
        solved(random_program(1), tol=1e-3)
        assert [pool["num_threads"] for pool in threadpool_info()] == before


def test_other_kinds_of_hints_are_converted():
    X, y = toy(40)
    metric = mf.learn(X, mf.Triplets.from_labels(y, n_triplets=60), method="idealized", kernel=Linear())
    assert metric.report.converted
    assert metric.report.dissimilar_pairs > 0
    assert mf.learn(X, mf.Pairs.from_labels(y, n_pairs=50), nu=0.3).report.method == "idealized"


def test_conformance():
    check_method("idealized")
    assert METHOD.solver == Idealized()
    assert Idealized(M=np.eye(2)) == Idealized(M=np.eye(2)) != Idealized(M=2 * np.eye(2))


# -------------------------------------------------------------------------------------------------------------- tuning

SMALL = {"c_dissimilar": (1.0, 100.0), "ratio": (1.0, 30.0), "nu": (0.6,)}


def test_tuning_by_labels():
    X, y = toy(60)
    A, b = toy(300, seed=8)
    found = tune(X, y, **SMALL)
    assert len(found.trials) == 4
    assert found.score == min(trial.score for trial in found.trials)
    assert found.before == pytest.approx(nearest_leave_one_out(X, y))
    assert found.score < found.before - 0.1
    metric = mf.learn(X, y, method="idealized", kernel=Linear(), solver=found.solver)
    assert nearest_error(metric, X, y, A, b) < 0.1
    assert nearest_leave_one_out(metric.transform(X), y) == pytest.approx(found.score, abs=0.04)


def nearest_leave_one_out(E, y):
    D = np.linalg.norm(E[:, None] - E[None], axis=2)
    np.fill_diagonal(D, np.inf)
    return np.mean(y[D.argmin(axis=1)] != y)


def test_tuning_by_held_out_pairs():
    X, _, pairs = toy_pairs(60, 200)
    found = tune(X, pairs, **SMALL, seed=1)
    again = tune(X, pairs, **SMALL, seed=1)
    assert found.score == again.score
    assert found.score < found.before - 0.1
    assert 0 <= found.score <= 1
    assert found.solver == again.solver
    held_out = mf.Pairs(pairs.similar[:50], pairs.dissimilar[:50], n=60)
    given = tune(X, mf.Pairs(pairs.similar[50:], pairs.dissimilar[50:], n=60), **SMALL, held_out=held_out)
    Z, D = differences_of(X, held_out)
    square = np.sum(Z * Z, axis=1)
    assert given.before == pytest.approx(np.mean(square[D][:, None] < square[~D]))
    assert given.score < given.before - 0.1


@pytest.mark.parametrize(
    ("constraint", "options", "match"),
    [
        (mf.Chunklets([0, 0, 1, 1]), {}, "dissimilar holds 0"),
        (mf.Chunklets([0, 1, 2, 3]), {}, r"no relation after conversion \(Chunklets \(4\) → Pairs \(0\)"),
        (mf.Pairs([(0, 1)], [(2, 3), (0, 3)], n=4), {}, "similar holds 1"),
        (mf.Pairs([(0, 1), (1, 2)], [(2, 3), (0, 3)], n=4), {"held_out": 1.0}, "held_out"),
        (
            mf.Pairs([(0, 1)], [(2, 3)], n=4),
            {"held_out": mf.Pairs([(0, 1)], n=4)},
            "held_out must hold similar and dissimilar",
        ),
        (mf.Labels([0, 1, 0, 1]), {"nu": ()}, "at least one number"),
        (mf.Labels([0, 1, 0]), {}, "3 rows"),
    ],
)
def test_bad_input_of_tuning(constraint, options, match):
    with pytest.raises(InputError, match=match):
        tune(np.diag([1.0, 2, 3, 4]), constraint, **options)


@pytest.mark.parametrize("scale", [1e-120, 1e110])
def test_pairs_whose_squared_distances_leave_the_range_are_refused(scale, rng):
    X = scale * rng.normal(size=(8, 2))
    with pytest.raises(InputError, match=r"rescale"):
        mf.learn(X, mf.Pairs([(0, 1), (2, 3)], [(4, 5), (6, 7)], n=8), method="idealized", kernel="linear")


def test_a_bound_that_overflows_is_refused(rng):
    X, t = rng.normal(size=(32, 4)), rng.normal(size=32)
    with pytest.raises(InputError, match="c_dissimilar: objective or bound overflow; give smaller numbers"):
        mf.learn(X, mf.Targets(t), method="idealized", c_dissimilar=1e300, max_iter=10)
