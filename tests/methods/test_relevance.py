"""relevance: against a conic solver, the dual bound, directions, scale, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from metricforge_plugins.relevance.directions import leading
from metricforge_plugins.relevance.judgements import Judgements
from metricforge_plugins.relevance.program import Program, projected, solve

import metricforge as mf
from metricforge.errors import InputError
from metricforge.kernels import Laplacian
from metricforge.testing import check_method


def problem(seed, n=40, d=5, p=60):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * rng.uniform(0.2, 2, d)
    y = np.arange(n) % 3
    X[:, 0] += y
    return X, mf.Triplets.from_labels(y, n_triplets=p, seed=seed)


def matrices(X, triplets):
    i, j, k = triplets.triples.T
    return [(np.outer(q, e) + np.outer(e, q)) / 2 for q, e in zip(X[i], X[j] - X[k], strict=True)]


def objective(W, A, margin, c):
    violated = np.maximum(margin - np.array([(W * a).sum() for a in A]), 0)
    return 0.5 * np.square(W - np.eye(len(W))).sum() + 0.5 * c * np.square(violated).sum()


@pytest.mark.parametrize("seed", range(12))
def test_the_optimum_of_a_conic_solver(seed):
    import cvxpy as cp

    X, triplets = problem(seed)
    C = [0.01, 0.3, 10.0][seed % 3]
    metric = mf.learn(X, triplets, method="relevance", C=C, tol=1e-7, max_iter=2000)
    A, margin = matrices(X, triplets), metric.report.outcome["margin"]
    c = C / np.mean([np.square(a).sum() for a in A])
    W = cp.Variable((5, 5), PSD=True)
    scores = cp.hstack([cp.trace(a @ W) for a in A])
    loss = 0.5 * cp.sum_squares(W - np.eye(5)) + c / 2 * cp.sum_squares(cp.pos(margin - scores))
    expected = cp.Problem(cp.Minimize(loss)).solve(solver="CLARABEL")
    assert metric.report.status == "optimal"
    assert metric.report.objective == pytest.approx(expected, rel=2e-5, abs=1e-8)
    assert metric.report.objective - metric.report.gap <= expected + 1e-6 * abs(expected) + 1e-8
    learned = metric.kernel.W + metric.kernel.a * np.eye(5)
    assert objective(learned, A, margin, c) == pytest.approx(metric.report.objective, rel=1e-9)
    assert np.linalg.eigvalsh(learned)[0] > -1e-9


def test_no_feasible_point_lies_below_the_bound():
    rng = np.random.default_rng(0)
    X, triplets = problem(3)
    metric = mf.learn(X, triplets, method="relevance", C=3.0, tol=1e-2)
    A, outcome = matrices(X, triplets), metric.report.outcome
    c = 3.0 / np.mean([np.square(a).sum() for a in A])
    bound = metric.report.objective - metric.report.gap
    W = metric.kernel.W + metric.kernel.a * np.eye(5)
    for scale in np.geomspace(1e-3, 1, 60):
        step = rng.normal(size=(5, 5)) * scale
        other = projected(W + (step + step.T) / 2 - np.eye(5))[1]
        assert objective(other, A, outcome["margin"], c) >= bound - 1e-9


def random_program(seed, n=30, r=4, p=20):
    """Few triplets in few coordinates, some queries and documents repeated; also the matrices A_t."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, r))
    i, j, k = (np.array(part) for part in zip(*(rng.permutation(8)[:3] for _ in range(p)), strict=True))
    A = [(np.outer(Z[a], Z[b] - Z[c]) + np.outer(Z[b] - Z[c], Z[a])) / 2 for a, b, c in zip(i, j, k, strict=True)]
    return Program(Z, Judgements.of(i, j, k), rng.uniform(-0.2, 1, p), rng.uniform(1, 3, p)), A


def test_the_dual_and_its_gradient():
    program, A = random_program(0)
    rng = np.random.default_rng(0)
    alpha, h = rng.uniform(0, 1, 20), 1e-6
    S = sum(a * weight for a, weight in zip(A, alpha, strict=True))
    np.testing.assert_allclose(program.combined(alpha), S, atol=1e-12)
    point = program.dual(alpha)
    w, V = np.linalg.eigh(np.eye(4) + S)
    assert w[0] < 0  # the projection matters here
    W = (V * np.maximum(w, 0)) @ V.T
    np.testing.assert_allclose(np.eye(4) + point.B, W, atol=1e-10)
    np.testing.assert_allclose(program.scores(point.B), [np.sum(point.B * a) for a in A], atol=1e-10)
    violated = np.maximum(program.needed - program.scores(point.B), 0)
    assert point.objective == pytest.approx(np.square(point.B).sum() / 2 + program.c @ violated**2 / 2)
    value = program.needed @ alpha - alpha**2 @ (1 / program.c) / 2 - np.square(W).sum() / 2 + 2 + np.trace(S)
    assert point.value == pytest.approx(value)
    up, down = (lambda e: program.dual(alpha + h * e).value), (lambda e: program.dual(alpha - h * e).value)
    np.testing.assert_allclose(point.gradient, [(up(e) - down(e)) / (2 * h) for e in np.eye(20)], atol=1e-5)
    found = solve(program, tol=1e-6, max_iter=500, step=lambda n, gap: None)
    assert found.converged
    assert point.value <= found.bound + 1e-9 <= found.objective + 2e-9


@pytest.mark.parametrize("tol", [1e-3, 1e-6])
def test_the_certificate_is_computed_in_double_precision(tol):
    program = random_program(1, r=6, p=40)[0]
    found = solve(program, tol=tol, max_iter=500, step=lambda n, gap: None)
    assert found.converged
    assert found.objective == pytest.approx(program.primal(found.B), rel=1e-13)
    assert found.bound == pytest.approx(program.dual(found.alpha).value, rel=1e-13)
    assert np.linalg.eigvalsh(np.eye(6) + found.B)[0] > -1e-9


def test_rows_in_single_precision_give_the_same_program():
    X, triplets = problem(4)
    one, two = (mf.learn(X.astype(t), triplets, method="relevance") for t in (np.float32, np.float64))
    assert one.report.objective == pytest.approx(two.report.objective, rel=2e-3)
    assert one.report.status == two.report.status == "optimal"


def test_directions_find_the_planted_ones():
    rng = np.random.default_rng(0)
    n, d = 400, 80
    X = rng.normal(size=(n, d)) * 0.3
    y = np.arange(n) % 4
    X[:, :4] += 2 * np.eye(4)[y]
    triplets = mf.Triplets.from_labels(y, n_triplets=2000, seed=0)
    i, j, k = triplets.triples.T
    program = Program(X, Judgements.of(i, j, k), np.ones(len(i)), np.ones(len(i)))
    V = leading(program, 4, 0)
    np.testing.assert_allclose(V.T @ V, np.eye(4), atol=1e-12)
    assert np.square(V[:4]).sum() > 3  # of 4; 0.2 for random directions
    full = mf.learn(X, triplets, method="relevance")
    few = mf.learn(X, triplets, method="relevance", directions=8)
    assert few.report.outcome["directions"] == 8
    assert "8 of 80 directions" in few.report.notes[-1]
    assert few.report.objective >= full.report.objective * (1 - 1e-3)  # a restriction
    assert few.report.objective < 1.5 * full.report.objective


def test_the_restricted_kernel_is_the_start_outside_its_directions():
    X, triplets = problem(1, d=6)
    metric = mf.learn(X, triplets, method="relevance", directions=2, C=10.0)
    W = metric.kernel.bilinear(6)[:6, :6]
    assert np.sum(np.abs(np.linalg.eigvalsh(W) - 1) > 1e-9) <= 2
    np.testing.assert_allclose(metric.kernel(X, X), X @ W @ X.T, atol=1e-9)


@pytest.mark.parametrize("kernel", [None, Laplacian(0.01)])
def test_coordinates_keep_the_start_outside_the_directions(kernel):
    X, triplets = problem(1, d=6)
    metric = mf.learn(X, triplets, method="relevance", directions=2, C=10.0, kernel=kernel, rank="exact")
    E = metric.transform(X)
    np.testing.assert_allclose(np.linalg.norm(E[:, None] - E[None], axis=2), metric.distance(X), atol=1e-7)
    np.testing.assert_allclose(E @ E.T, metric.kernel(X), atol=1e-7)
    near, _ = metric.neighbors(X, k=3)
    assert np.array_equal(near, np.argsort(metric.distance(X), axis=1, kind="stable")[:, :3])


def test_the_answer_does_not_depend_on_the_scale():
    X, triplets = problem(2)
    one, two = (mf.learn(scale * X, triplets, method="relevance", tol=1e-7) for scale in (1.0, 1000.0))
    np.testing.assert_allclose(one.kernel.W, two.kernel.W, atol=1e-5)


def test_more_triplets_are_ranked_rightly():
    rng = np.random.default_rng(0)
    y = np.arange(200) % 4
    X = rng.normal(size=(200, 8)) + 1.5 * np.eye(4, 8)[y]
    triplets = mf.Triplets.from_labels(y, n_triplets=500, seed=0)
    metric = mf.learn(X, triplets, method="relevance", C=1.0)
    after = mf.tasks.triplet_accuracy(metric, X, triplets, by="kernel")
    assert after > metric.report.outcome["ranked_before"] + 0.05


def test_a_repeated_triplet_weighs_as_often_as_it_is_given():
    program, _ = random_program(2)
    i, j, k = np.array([(0, 1, 2), (3, 4, 5), (0, 2, 6)]).T
    twice = np.repeat(np.arange(3), [2, 1, 3])
    needed = np.array([0.5, 1.0, 0.7])
    weighted = Program(program.Z, Judgements.of(i, j, k), needed, 2.0 * np.array([2, 1, 3]))
    repeated = Program(program.Z, Judgements.of(i[twice], j[twice], k[twice]), needed[twice], np.full(6, 2.0))
    one, two = (solve(p, tol=1e-9, max_iter=500, step=lambda n, gap: None) for p in (weighted, repeated))
    np.testing.assert_allclose(one.W, two.W, atol=1e-4)
    assert one.objective == pytest.approx(two.objective, rel=1e-8)


def test_conformance():
    check_method("relevance")


def test_a_limit_is_said():
    X, triplets = problem(5)
    report = mf.learn(X, triplets, method="relevance", C=1e6, tol=1e-14, max_iter=6).report
    assert report.status in ("iteration_limit", "stalled")


@pytest.mark.parametrize("options", [{"C": 0}, {"margin": -1}, {"directions": 0}, {"tol": 0}, {"max_iter": 0}])
def test_bad_options(options):
    X, triplets = problem(0)
    with pytest.raises(InputError, match=next(iter(options))):
        mf.learn(X, triplets, method="relevance", **options)


def test_identical_rows_are_refused():
    with pytest.raises(InputError, match="identical"):
        mf.learn(np.ones((6, 2)), mf.Triplets([(0, 1, 2)], n=6), method="relevance")
