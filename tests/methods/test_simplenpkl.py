"""SimpleNPKL against an SDP solver, dense eigendecompositions and itself by other routes; certificates; odd graphs."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from metricforge_cases.matrices import ITERATIVE
from metricforge_plugins.simplenpkl import graph as graph_module
from metricforge_plugins.simplenpkl import hinge
from metricforge_plugins.simplenpkl.extension import GraphExtension, RidgeExtension, ridge, unit_rows
from metricforge_plugins.simplenpkl.graph import graph_of, vectors
from metricforge_plugins.simplenpkl.hinge import factored
from metricforge_plugins.simplenpkl.hinge.dual import Dual, Model
from metricforge_plugins.simplenpkl.hinge.factored import Factored, enlarged, smooth_directions
from metricforge_plugins.simplenpkl.laplacian import LaplacianInMemory
from metricforge_plugins.simplenpkl.pairs import signed_pairs, uncertain_pairs
from metricforge_plugins.simplenpkl.solver import SimpleNPKL
from metricforge_plugins.simplenpkl.spectrum import (
    PositivePart,
    count_positive,
    missed_norm,
    positive_part,
    upper_bound,
)
from metricforge_plugins.simplenpkl.weight import smallest_weight
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

import metricforge as mf
from metricforge import neighbors
from metricforge.distributed.chunks import as_dask
from metricforge.errors import ConvergenceWarning, InputError, UnknownNameError
from metricforge.solver import Problem
from metricforge.space import represent
from metricforge.testing import check_kernel, check_method, check_solver

Linear, RBF, Laplacian, Spectrum = mf.kernels.Linear, mf.kernels.RBF, mf.kernels.Laplacian, mf.kernels.Spectrum
LOSSES = ("linear", "squared_hinge", "hinge")
SOLVERS = ["dense", *ITERATIVE]


def clusters(n, classes=2, d=3, seed=0, apart=3.0):
    rng = np.random.default_rng(seed)
    y = rng.integers(classes, size=n)
    X = rng.normal(size=(n, d))
    X[:, 0] += apart * y
    return X, y


def dense_laplacian(X, k, kind="mutual"):
    """Eq. (3), with an isolated row's entry 0, by loops."""
    near = neighbors.search(X, k, method="exact")[0]
    n = len(X)
    S = np.zeros((n, n))
    for i in range(n):
        for j in near[i]:
            if kind == "union" or i in near[j]:
                S[i, j] = S[j, i] = 1
    d = S.sum(axis=1)
    L = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            if i == j and d[i] > 0:
                L[i, i] = 1
            elif S[i, j]:
                L[i, j] = -1 / np.sqrt(d[i] * d[j])
    return L


def listed(pairs, weights):
    """(i, j, t, w) by loops."""
    found = [(*p, 1.0) for p in pairs.similar.tolist()] + [(*p, -1.0) for p in pairs.dissimilar.tolist()]
    count = np.zeros(pairs.n)
    for i, j, _ in found:
        count[i] += 1
        count[j] += 1
    return [(i, j, t, 1 / np.sqrt(count[i] * count[j]) if weights == "degree" else 1.0) for i, j, t in found]


def sdp(L, relations, C, B, loss):
    """The optimum by an interior-point solver."""
    import cvxpy as cp

    n = len(L)
    K = cp.Variable((n, n), PSD=True)
    w = np.array([r[3] for r in relations])
    agreement = cp.hstack([t * K[i, j] for i, j, t, _ in relations])
    terms = {
        "linear": lambda: -C * (w @ agreement),
        "hinge": lambda: C * (w @ cp.pos(1 - agreement)),
        "squared_hinge": lambda: C / 2 * (w @ cp.square(cp.pos(1 - agreement))),
    }
    problem = cp.Problem(cp.Minimize(cp.trace(L @ K) + terms[loss]()), [cp.norm(K, "fro") <= np.sqrt(B)])
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-8, tol_gap_rel=1e-8, tol_feas=1e-8)
    return problem.value


def value_of(K, L, relations, C, loss):
    """The primal objective of any K, by loops."""
    total = np.sum(L * K)
    for i, j, t, w in relations:
        a = t * K[i, j]
        total += C * w * {"linear": -a, "hinge": max(0, 1 - a), "squared_hinge": max(0, 1 - a) ** 2 / 2}[loss]
    return total


@pytest.fixture(scope="module")
def small():
    X, y = clusters(44)
    return X, mf.Pairs.from_labels(y, components=0.75, seed=0)


# ---------------------------------------------------------------------------------------------- against an SDP solver


@pytest.mark.parametrize("B", [11.0, 44.0, 484.0], ids=["n/4", "n", "n²/4"])
@pytest.mark.parametrize(("weights", "kind"), [("degree", "mutual"), ("uniform", "union")])
@pytest.mark.parametrize("loss", LOSSES)
def test_the_optimum_is_an_sdp_solvers(small, loss, weights, kind, B):
    X, pairs = small
    C = 2.0 if weights == "degree" else 0.5
    options = {"loss": loss, "C": C, "B": B, "pair_weights": weights, "graph": kind, "n_neighbors": 4}
    metric = mf.learn(
        X,
        pairs,
        method="simplenpkl",
        n_components=None,
        normalize=False,
        tol=8e-6,
        max_iter=600,
        **{"kernel": "rbf", "C": 2.0, **options},
    )
    L, relations = dense_laplacian(X, 4, kind), listed(pairs, weights)
    truth = sdp(L, relations, C, B, loss)
    report = metric.report
    assert report.status == "optimal"
    assert report.objective == pytest.approx(truth, rel=1e-5, abs=1e-5)
    # both bounds hold, up to what the SDP solver leaves
    slack = 1e-6 * max(1, abs(truth))
    assert report.lower_bound <= truth + slack
    assert report.objective >= truth - slack
    assert report.gap <= 1e-5 * max(1, abs(truth))
    # the embedding is the K whose value is reported, and feasible
    K = report.embedding @ report.embedding.T
    assert np.sum(K * K) <= B * (1 + 1e-9)
    assert value_of(K, L, relations, C, loss) == pytest.approx(report.objective, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(("loss", "tol"), [("squared_hinge", 1e-5), ("hinge", 1e-3)])
def test_a_bound_that_is_far_from_active_gives_the_sdp_solvers_optimum(small, loss, tol):
    """With B = 100 n² the optimal A has no positive eigenvalue: K comes from its factor."""
    X, pairs = small
    B = 100.0 * 44**2
    options = {"loss": loss, "B": B, "n_neighbors": 4, "C": 2.0, "tol": tol}
    report = mf.learn(X, pairs, method="simplenpkl", kernel=Linear(), **options).report
    truth = sdp(dense_laplacian(X, 4), listed(pairs, "degree"), 2.0, B, loss)
    assert report.status == "optimal"
    assert report.objective == pytest.approx(truth, rel=tol)
    assert report.lower_bound <= truth + 1e-6


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("loss", LOSSES)
def test_every_eigensolver_reaches_it(loss, solver):
    X, y = clusters(150, seed=3)
    pairs = mf.Pairs.from_labels(y, components=0.9, seed=0)
    options = {"loss": loss, "B": 150**2 / 4 if loss != "hinge" else 150.0, "n_components": None, "normalize": False}
    tol = 1e-8 if loss == "linear" else 1e-6
    metric = mf.learn(
        X,
        pairs,
        method="simplenpkl",
        eigensolver=solver,
        tol=tol,
        n_neighbors=6,
        **{"kernel": "rbf", "C": 2.0, "n_components": 6, **options},
    )
    L, relations = dense_laplacian(X, 6), listed(pairs, "degree")
    K = metric.report.embedding @ metric.report.embedding.T
    assert value_of(K, L, relations, 2.0, loss) == pytest.approx(metric.report.objective, rel=1e-8)
    if loss == "linear":
        A = -L
        for i, j, t, w in relations:
            A[i, j] += w * t
            A[j, i] += w * t
        w, V = np.linalg.eigh(A)
        w = np.maximum(w, 0)
        closed = (V * w) @ V.T * np.sqrt(options["B"]) / np.linalg.norm(w)
        assert_allclose(K, closed, atol=2e-4 * np.abs(closed).max())
        assert metric.report.objective == pytest.approx(-np.sqrt(options["B"]) * np.linalg.norm(w), rel=1e-7)
    assert metric.report.eigensolver == solver
    assert metric.report.gap <= 2e-6 * max(1, abs(metric.report.objective))


def test_the_sdp_solver_agrees_with_the_hand_written_objective(small):
    """The oracle itself: its optimum is not beaten by feasible points, and the closed form is met."""
    X, pairs = small
    L, relations = dense_laplacian(X, 4), listed(pairs, "degree")
    truth = sdp(L, relations, 2.0, 44.0, "linear")
    rng = np.random.default_rng(0)
    for _ in range(20):
        G = rng.normal(size=(44, 3))
        K = G @ G.T
        K *= np.sqrt(44) / np.linalg.norm(K)
        assert value_of(K, L, relations, 2.0, "linear") > truth


# ------------------------------------------------------------------------------------------------------- certificates


def matrix(n=300, seed=0):
    X, y = clusters(n, seed=seed)
    pairs = signed_pairs(mf.Pairs.from_labels(y, components=0.7, seed=seed), "degree")
    L = graph_of(neighbors.graph(neighbors.search(X, 8)[0])).laplacian
    return sparse.csr_array(pairs.matrix(2.0 * pairs.w) - L)


def positive_norm(A):
    w = np.linalg.eigvalsh(A.toarray())
    return np.linalg.norm(w[w > 0])


@pytest.mark.parametrize("k", [1, 2, 3, 6, 12, 20, None])
@pytest.mark.parametrize("tol", [1e-2, 1e-4, 1e-8])
@pytest.mark.parametrize("solver", ["dense", "arpack", "lanczos"])
def test_the_upper_bound_holds_for_any_part_of_the_spectrum(k, tol, solver):
    A = matrix()
    truth = positive_norm(A)
    part = positive_part(A, k, solver=solver, tol=tol)
    assert part.norm <= truth * (1 + 1e-12)
    assert part.upper >= truth * (1 - 1e-12)
    assert part.complete == (k is None)
    if k is None:
        assert part.upper <= truth * (1 + 30 * tol)
        assert len(part.w) == np.count_nonzero(np.linalg.eigvalsh(A.toarray()) > 1e-9)
    else:
        missed = np.sqrt(max(truth**2 - part.norm**2, 0))
        assert part.missed >= missed * (1 - 1e-9)


def test_the_upper_bound_is_close_where_residuals_are_small():
    w = np.array([3.0, 2.0])
    excess = [upper_bound(w, np.array([size, 0.0]), 0.0) - np.linalg.norm(w) for size in (1e-3, 1e-6)]
    assert 0 < excess[0] < 5e-4
    assert 0 < excess[1] < 5e-8  # of the order size^(4/3)


def test_the_eigenvalues_of_an_invariant_space_are_counted(rng):
    Q = np.linalg.qr(rng.normal(size=(200, 200)))[0]
    A = sparse.csr_array(Q @ np.diag(np.repeat([1.0, -1.0], [120, 80])) @ Q.T)
    assert 110 <= count_positive(A, 0) <= 160
    assert positive_part(A, None).n_products > 0


def test_a_truncated_spectrum_never_closes_the_gap():
    """The same problem with more and more eigenvectors: the gap covers what is missing, and closes with the last."""
    X, y = clusters(300)
    pairs = mf.Pairs.from_labels(y, components=0.7, seed=0)
    full = mf.learn(X, pairs, method="simplenpkl", kernel="rbf", C=2.0, n_components=None).report
    r = len(full.eigenvalues)
    assert full.complete
    assert full.gap < 1e-3 * abs(full.objective)
    gaps = []
    for k in (1, 2, 5, 10, r - 1):
        report = mf.learn(X, pairs, method="simplenpkl", kernel="rbf", C=2.0, n_components=k).report
        assert not report.complete
        short = report.objective - full.objective  # what truncation costs
        assert report.gap >= short * (1 - 1e-9) > 0
        assert report.lower_bound <= full.objective
        assert any("of any rank" in note for note in report.notes)
        gaps.append(report.gap)
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[0] > 0.05 * abs(full.objective)


@pytest.mark.parametrize("squared", [True, False])
def test_a_hinge_with_a_truncated_spectrum_is_not_called_optimal(squared):
    """A search that hands back three eigenpairs only, as if they were all: the gap refuses to close."""
    X, y = clusters(120, seed=1)
    pairs = signed_pairs(mf.Pairs.from_labels(y, components=0.7, seed=0), "degree")
    L = graph_of(neighbors.graph(neighbors.search(X, 6)[0])).operator

    def three(A, k, **options):
        return positive_part(A, 3, solver="dense")

    honest = Dual(L, pairs, 2.0, 120.0, squared, lambda A, k, **_: positive_part(A, None, solver="dense"))
    assert honest.solve(200)
    cut = Dual(L, pairs, 2.0, 120.0, squared, three)
    assert not cut.solve(40)
    assert cut.gap > 100 * honest.gap
    assert cut.lower <= honest.upper
    assert cut.upper >= honest.lower


def test_missed_norm_is_exact_where_it_must_be():
    """n − r copies of the level and c far below: the plain bound; nothing above zero: nothing missed."""
    A = sparse.csr_array(sparse.diags_array(np.r_[3.0, np.full(9, 0.5), np.full(40, -1.0)]))
    true = 0.5 * 3
    bound = missed_norm(A, np.array([3.0]), 0.5)
    assert true <= bound <= 0.5 * np.sqrt(49)
    assert missed_norm(A, np.array([3.0]), 0.0) == 0
    assert missed_norm(A, np.array([3.0]), -0.1) == 0


def test_upper_bound_covers_the_worst_coupling(rng):
    """Random block matrices with given Ritz values, residuals and complement."""
    for _ in range(200):
        r, m = int(rng.integers(1, 6)), int(rng.integers(1, 8))
        w = np.sort(rng.random(r))[::-1] * rng.choice([0.01, 1.0])
        R = rng.normal(size=(m, r)) * 10.0 ** rng.integers(-6, 1)
        rest = np.diag(rng.normal(size=m) - rng.choice([0, 3]))
        A = np.block([[np.diag(w), R.T], [R, rest]])
        missed = np.linalg.norm(np.maximum(np.diag(rest), 0))
        bound = upper_bound(w, np.linalg.norm(R, axis=0), missed)
        values = np.linalg.eigvalsh(A)
        assert bound >= np.linalg.norm(values[values > 0]) * (1 - 1e-12)


def test_the_estimate_of_how_many_are_positive():
    A = matrix(1500)
    truth = np.count_nonzero(np.linalg.eigvalsh(A.toarray()) > 1e-9)
    assert 0.7 * truth < count_positive(A, 0) < 1.6 * truth


@pytest.mark.parametrize("loss", ["squared_hinge", "hinge"])
def test_a_limit_is_said_and_the_gap_stays_true(small, loss):
    X, pairs = small
    options = {"loss": loss, "B": 484.0, "pair_weights": "uniform", "n_neighbors": 4, "C": 2.0}
    with pytest.warns(ConvergenceWarning, match="stopped after 3 eigenproblems"):
        short = mf.learn(
            X, pairs, method="simplenpkl", max_iter=3, **{"kernel": "rbf", "C": 2.0, "n_components": 6, **options}
        ).report
    with np.errstate(all="raise"):
        best = mf.learn(
            X,
            pairs,
            method="simplenpkl",
            max_iter=400,
            tol=1e-4,
            **{"kernel": "rbf", "C": 2.0, "n_components": 6, **options},
        ).report
    assert short.status == "iteration_limit"
    assert short.n_iter == 3
    assert short.lower_bound <= best.objective
    assert short.objective >= best.lower_bound
    assert len(best.trace) == best.n_iter
    assert [gap for _, gap in best.trace] == sorted((gap for _, gap in best.trace), reverse=True)


def dense_dual(small, squared, B=44.0):
    """The dual on a graph of four neighbours, with every eigenvector of each eigenproblem."""
    X, pairs = small
    L = graph_of(neighbors.graph(neighbors.search(X, 4)[0])).operator
    return Dual(
        L, signed_pairs(pairs, "degree"), 2.0, B, squared, lambda A, k, **_: positive_part(A, None, solver="dense")
    )


@pytest.mark.parametrize("squared", [True, False])
def test_the_gradient_of_the_dual(small, squared):
    dual = dense_dual(small, squared)
    relations = dual.pairs
    alpha = 0.2 + np.random.default_rng(0).random(relations.p)
    gradient = dual.evaluate(alpha)
    for p in (0, 7, relations.p - 1):
        values = []
        for h in (1e-5, -1e-5):
            shifted = alpha.copy()
            shifted[p] += h
            dual.evaluate(shifted)
            values.append(dual.value)
        assert gradient[p] == pytest.approx((values[0] - values[1]) / 2e-5, rel=1e-6, abs=1e-8)


@pytest.mark.parametrize("squared", [True, False])
@pytest.mark.parametrize("q", [3, 30, 44])
def test_the_model_is_its_definition(small, squared, q):
    """M(α) = P'AP + X'X/c by dense matrices, its gradient by differences; with a full P the model is the dual."""
    dual = dense_dual(small, squared)
    relations, L = dual.pairs, dual.laplacian.L
    rng = np.random.default_rng(0)
    center, alpha = 0.2 + rng.random((2, relations.p))
    P = np.linalg.qr(rng.normal(size=(44, q)))[0]
    model = Model(dual, center, P, 0.7)

    def dense(alpha):
        A = relations.matrix(alpha).toarray() - L.toarray()
        H = A - (relations.matrix(center).toarray() - L.toarray())
        Q = np.linalg.svd(P)[0][:, q:]
        w = np.linalg.eigvalsh(P.T @ A @ P + P.T @ H @ Q @ Q.T @ H @ P / 0.7)
        weight = 2.0 * relations.w
        return np.sum(alpha) - squared * np.sum(alpha**2 / weight) / 2 - np.sqrt(44.0) * np.linalg.norm(w[w > 0])

    value, agreement, _ = model.evaluate(alpha)
    assert value == pytest.approx(dense(alpha), rel=1e-10)
    gradient = dual.linear(alpha)[1] - agreement
    for p in (0, 7, relations.p - 1):
        h = 1e-5 * (np.arange(relations.p) == p)
        assert gradient[p] == pytest.approx((dense(alpha + h) - dense(alpha - h)) / 2e-5, rel=1e-5, abs=1e-7)
    if q == 44:
        dual.evaluate(alpha)
        assert value == pytest.approx(dual.value, rel=1e-10)


@pytest.mark.parametrize("squared", [True, False])
def test_the_model_touches_the_dual_and_bounds_it_from_above_without_curvature(small, squared):
    dual = dense_dual(small, squared)
    relations = dual.pairs
    rng = np.random.default_rng(1)
    center = 0.2 + rng.random(relations.p)
    slope, height = dual.evaluate(center), dual.value
    P = dual.last.V
    assert 0 < P.shape[1] < 44
    for c in (0.1, 10.0):
        model = Model(dual, center, P, c)
        value, agreement, factor = model.evaluate(center)
        E = model.kernel(factor)
        assert value == pytest.approx(height, rel=1e-10)
        assert_allclose(dual.linear(center)[1] - agreement, slope, atol=1e-9)
        assert_allclose(E @ E.T, (P * dual.last.w) @ P.T, atol=1e-9)
    for _ in range(5):
        alpha = center + 0.3 * rng.random(relations.p)
        dual.evaluate(alpha)
        assert Model(dual, center, P, 1e12).evaluate(alpha)[0] >= dual.value - 1e-9


@pytest.mark.parametrize("squared", [True, False])
def test_the_models_maximum_is_short_by_no_more_than_asked(small, squared):
    dual = dense_dual(small, squared)
    relations = dual.pairs
    center = np.minimum(1.0, 2.0 * relations.w)
    dual.evaluate(center)
    model = Model(dual, center, dual.last.V, 1.0)
    best = max(model.maximize(0.0)[1], model.maximize(1e-8)[1])
    for tol in (1.0, 1e-2, 1e-4):
        alpha, value, _ = model.maximize(tol)
        assert best - tol <= value <= best + 1e-7
        assert (alpha >= 0).all()
        assert squared or (alpha <= 2.0 * relations.w * (1 + 1e-12)).all()


@pytest.mark.parametrize("squared", [True, False])
def test_few_eigenproblems_are_enough(small, squared):
    """L-BFGS-B on the dual itself takes 13 for the squared hinge and 38 for the hinge."""
    dual = dense_dual(small, squared, B=484.0)
    assert dual.solve(100)
    assert len(dual.trace) <= 6


# ---------------------------------------------------------------------------------------------- a bound that is slack


@pytest.mark.parametrize("squared", [True, False])
def test_the_gradient_in_the_factor_is_that_of_the_augmented_lagrangian(small, squared):
    dual = dense_dual(small, squared, B=30.0)
    dual.evaluate(np.minimum(1.0, 2.0 * dual.pairs.w))
    problem = Factored(dual, *smooth_directions(dual))
    problem.multiplier = 0.3
    rng = np.random.default_rng(0)
    E = 0.9 * rng.normal(size=(44, 3))
    point = problem.at(E)
    assert problem.excess(np.sum(point.G**2)) > 0  # the bound is exceeded, so its term counts
    value, gradient = point.value(), point.gradient()
    K = E @ E.T
    pull = problem.multiplier + problem.penalty * (np.sum(K * K) - 30) / (2 * np.sqrt(30))
    bound = (pull**2 - problem.multiplier**2) / (2 * problem.penalty)
    assert value == pytest.approx(np.sum(dual.laplacian.L.toarray() * K) + problem.loss(point.agreement)[0] + bound)
    for _ in range(5):
        H = rng.normal(size=E.shape)
        ahead, behind = problem.at(E + 1e-6 * H).value(), problem.at(E - 1e-6 * H).value()
        line, after = point.along(H)
        for step in (0.0, 1e-6, 0.3):
            assert line(step)[0] == pytest.approx(problem.at(E + step * H).value())
            assert after(step).value() == pytest.approx(line(step)[0])
            assert line(step)[1] == pytest.approx(
                (line(step + 1e-6)[0] - line(step - 1e-6)[0]) / 2e-6, rel=1e-5, abs=1e-5
            )
        assert np.sum(gradient * H) == pytest.approx((ahead - behind) / 2e-6, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize(("squared", "tol"), [(True, 1e-5), (False, 1e-3)])
@pytest.mark.parametrize("share", [0.1, 1.0, 30.0])
def test_the_gap_closes_whether_the_bound_binds_or_not(squared, tol, share):
    """From a bound that binds to one far beyond the longest kernel of use."""
    X, y = clusters(150, classes=3, seed=2, apart=2.0)
    L = graph_of(neighbors.graph(neighbors.search(X, 6)[0])).operator
    relations = signed_pairs(mf.Pairs.from_labels(y, components=0.7, seed=0), "degree")
    dual = Dual(L, relations, 2.0, share * 150**2, squared, tol=tol)
    assert dual.solve(200)
    part, factor = dual.best
    assert factor * part.norm <= np.sqrt(dual.B) * (1 + 1e-12)
    assert len(dual.trace) <= 20


def test_columns_that_vanish_are_dropped_and_missing_directions_added():
    rng = np.random.default_rng(0)
    Q = np.linalg.qr(rng.normal(size=(20, 6)))[0]
    E = Q[:, :3] * [3.0, 1.0, 1e-6]
    new = enlarged(E, Q[:, [0, 5]])
    assert new.shape == (20, 3)
    assert_allclose(new[:, :2] @ new[:, :2].T, E[:, :2] @ E[:, :2].T, atol=1e-12)
    assert_allclose(np.abs(new[:, 2] @ Q[:, 5]), np.linalg.norm(new[:, 2]))


def test_a_kernel_of_any_length_is_made_feasible(small):
    dual, pairs = dense_dual(small, True), small[1]
    relations, L = dual.pairs, dual.laplacian.L
    dual.evaluate(np.zeros(relations.p))
    K = dual.best[1] * (dual.best[0].V * dual.best[0].w) @ dual.best[0].V.T
    assert dual.upper == pytest.approx(value_of(K, L.toarray(), listed(pairs, "degree"), 2.0, "squared_hinge"))
    dual.evaluate(2.0 * relations.w)
    part, before = dual.last, dual.upper
    for scale in (0.01, 100.0):
        dual.upper = np.inf
        dual.try_kernel(scale * part.V * np.sqrt(part.w))
        assert dual.upper <= before * (1 + 1e-9)
        best, factor = dual.best
        K = factor * (best.V * best.w) @ best.V.T
        assert np.sum(K * K) <= 44 * (1 + 1e-9)
        assert dual.upper == pytest.approx(value_of(K, L.toarray(), listed(pairs, "degree"), 2.0, "squared_hinge"))
        assert dual.trace[-1] == (dual.upper, dual.gap)


def test_where_the_bound_does_not_bind_the_kernel_is_shortened():
    """B far beyond what the pairs ask for: K(α) is too long, and a part of it has the lower value."""
    X, pairs = clusters(30, apart=8.0)[0], mf.Pairs([(0, 1), (2, 3)], n=30)
    L = graph_of(neighbors.graph(neighbors.search(X, 4)[0])).operator
    dual = Dual(
        L, signed_pairs(pairs, "degree"), 1.0, 1e8, True, lambda A, k, **_: positive_part(A, None, solver="dense")
    )
    dual.evaluate(np.ones(2))
    assert 0 <= dual.best[1] < 0.1 * np.sqrt(1e8) / dual.best[0].norm
    assert dual.upper <= 1.0  # K = 0 has the value C/2 for each pair


# -------------------------------------------------------------------------------------------------- the graph, ordered


@pytest.mark.parametrize("kind", ["mutual", "union"])
def test_laplacian_is_its_definition(kind, rng):
    X = rng.normal(size=(60, 3))
    X[:3] += 100 * np.arange(1, 4)[:, None]  # far from all: isolated in the mutual graph
    made = graph_of(neighbors.graph(neighbors.search(X, 3, method="exact")[0], kind=kind))
    L = made.laplacian.toarray()
    assert_allclose(L, dense_laplacian(X, 3, kind), atol=1e-15)
    assert made.isolated == (np.count_nonzero(~L.any(axis=1)))
    assert (made.isolated > 0) == (kind == "mutual")
    assert np.linalg.eigvalsh(L)[0] > -1e-12
    assert np.isfinite(L).all()


def test_reordering_changes_nothing_but_the_bandwidth(monkeypatch):
    X, y = clusters(400, seed=2)
    pairs = mf.Pairs.from_labels(y, components=0.7, seed=0)
    for extension in ("ridge", "nystrom"):
        plain = mf.learn(
            X, pairs, method="simplenpkl", kernel="rbf", C=2.0, n_components=6, extension=extension, tol=1e-9
        )
        monkeypatch.setattr(graph_module, "ORDERED_ROWS", 2)
        ordered = mf.learn(
            X, pairs, method="simplenpkl", kernel="rbf", C=2.0, n_components=6, extension=extension, tol=1e-9
        )
        monkeypatch.undo()
        K, M = (m.report.embedding @ m.report.embedding.T for m in (plain, ordered))
        assert_allclose(M, K, atol=1e-7)
        assert_allclose(ordered.distance(X[:40]), plain.distance(X[:40]), atol=1e-6)
    S = neighbors.graph(neighbors.search(X, 8)[0])
    monkeypatch.setattr(graph_module, "ORDERED_ROWS", 2)
    made = graph_of(S)
    i, j = made.laplacian.nonzero()
    a, b = S.nonzero()
    assert np.abs(i - j).mean() < 0.5 * np.abs(a - b).mean()
    assert_array_equal(made.by_row(made.positions(np.arange(400))[made.order]), made.positions(np.arange(400)))


@pytest.mark.parametrize(
    ("kernel", "euclidean"),
    [(Linear(), True), (RBF(1e-3), True), (RBF(1e-3, base=Linear()), True), (Laplacian(0.2), False)],
)
def test_the_graph_follows_the_base_kernels_distance(kernel, euclidean, rng):
    X = rng.normal(size=(80, 4)) ** 3
    space = represent(kernel, X)
    assert (vectors(kernel, X) is X) == euclidean
    D = kernel.distance(X, X)
    np.fill_diagonal(D, np.inf)
    found = graph_module.nearest_rows(space, 5, 0)[0][0]
    assert_array_equal(np.sort(found, axis=1), np.sort(np.argsort(D, axis=1)[:, :5], axis=1))


def test_a_learned_kernel_or_strings_can_be_the_base(rng):
    X, y = clusters(90)
    first = mf.learn(X, mf.Chunklets(y), method="krca", kernel=Linear())
    metric = mf.learn(X, mf.Labels(y), method="simplenpkl", C=2.0, n_components=6, kernel=first)
    assert metric.distance(X[:5]).shape == (5, 5)
    words = ["".join(rng.choice(list("ab" if c else "cd"), size=12)) for c in y]
    for extension in ("ridge", "nystrom"):
        metric = mf.learn(
            words, mf.Labels(y), method="simplenpkl", C=2.0, n_components=6, kernel=Spectrum(k=2), extension=extension
        )
        D = metric.distance(words)
        assert D[np.ix_(y == 0, y == 1)].mean() > 2 * D[np.ix_(y == 0, y == 0)].mean()


# ---------------------------------------------------------------------------------------------------------- the pairs


def test_pair_weights_bound_the_matrix_of_the_pairs():
    _, y = clusters(200)
    pairs = mf.Pairs.from_labels(y, components=0.4, seed=0)
    for weights in ("degree", "uniform"):
        relations = signed_pairs(pairs, weights)
        T = relations.matrix(relations.w).toarray()
        truth = np.zeros((200, 200))
        for i, j, t, w in listed(pairs, weights):
            truth[i, j] += t * w / 2
            truth[j, i] += t * w / 2
        assert_allclose(T, truth, atol=1e-15)
        norm = np.abs(np.linalg.eigvalsh(T)).max()
        assert norm <= 0.5 + 1e-12 if weights == "degree" else norm > 2


def test_agreement_is_tk_on_the_pairs(rng):
    relations = signed_pairs(mf.Pairs([(0, 1), (5, 2)], [(3, 4), (0, 5)], n=6), "uniform")
    V, w = rng.normal(size=(6, 3)), rng.random(3)
    K = (V * w) @ V.T
    assert_allclose(relations.agreement(V, w), relations.t * K[relations.i, relations.j], atol=1e-14)
    assert relations.agreement(V[:, :0], w[:0]).tolist() == [0, 0, 0, 0]


def test_duplicate_and_reversed_pairs_count_once():
    X, y = clusters(60)
    pairs = mf.Pairs.from_labels(y, components=0.7, seed=0)
    messy = mf.Pairs(
        np.concatenate([pairs.similar, pairs.similar[:, ::-1], pairs.similar[:5]]),
        np.concatenate([pairs.dissimilar[::-1, ::-1], pairs.dissimilar]),
        n=60,
    )
    assert messy.repeated == pairs.size + 5
    one, two = (mf.learn(X, p, method="simplenpkl", kernel="rbf", C=2.0, n_components=6) for p in (pairs, messy))
    assert one.report.objective == two.report.objective
    assert_array_equal(one.report.embedding, two.report.embedding)


@pytest.mark.parametrize(
    ("similar", "dissimilar", "words"),
    [([(0, 1)], [(1, 0)], "both hold"), ([(2, 2)], [(0, 1)], "with itself"), ([(0, 1)], [(3, 3)], "with itself")],
)
def test_contradictory_and_self_pairs_are_errors(similar, dissimilar, words):
    with pytest.raises(InputError, match=words):
        mf.Pairs(similar, dissimilar, n=10)


def test_a_must_link_and_cannot_link_through_a_chain_is_no_contradiction():
    X, _ = clusters(40)
    metric = mf.learn(
        X, mf.Pairs([(0, 1), (1, 2)], [(0, 2)], n=40), method="simplenpkl", kernel="rbf", C=2.0, n_components=6
    )
    assert metric.report.gap >= 0


@pytest.mark.parametrize("share", [0.2, 0.5, 1.0])
def test_active_pairs_are_those_at_the_most_uncertain_rows(share):
    X, y = clusters(150, apart=2.0)
    pairs = mf.Pairs.from_labels(y, components=0.7, seed=0)
    relations = signed_pairs(pairs, "uniform")
    kernel = RBF(0.2)
    kept = uncertain_pairs(Problem(represent(kernel, X), pairs), relations, share)
    K = kernel.block(X, X)
    margin = np.full(150, np.inf)
    for row in range(150):
        mine = [(t * K[i, j]) for i, j, t in zip(relations.i, relations.j, relations.t, strict=True) if row in (i, j)]
        if mine:
            margin[row] = abs(np.mean(mine))
    chosen, rows = set(), set()
    for row in np.argsort(margin, kind="stable"):
        if len(chosen) >= share * relations.p:
            break
        rows.add(row)
        chosen |= {p for p in range(relations.p) if relations.i[p] == row or relations.j[p] == row}
    assert set(kept.tolist()) == chosen
    report = mf.learn(X, pairs, method="simplenpkl", C=2.0, n_components=6, kernel=kernel, active=share).report
    assert report.pairs == len(chosen) >= share * relations.p


# ------------------------------------------------------------------------------------------------------ odd structures


def test_no_positive_eigenvalue_names_the_smallest_c():
    """Dissimilar pairs only, on a connected graph: for small C the optimum is K = 0."""
    X = np.linspace(0, 1, 30)[:, None] + 0.001 * np.random.default_rng(0).normal(size=(30, 1))
    pairs = mf.Pairs([], [(0, 29), (3, 20)], n=30)
    for loss in LOSSES:
        with pytest.raises(InputError, match=r"C=0.01 is too small.*smallest C that gives a kernel is about") as error:
            mf.learn(
                X,
                pairs,
                method="simplenpkl",
                kernel="rbf",
                n_components=6,
                C=0.01,
                loss=loss,
                n_neighbors=4,
                graph="union",
            )
        least = float(str(error.value).split("about ")[1].split(",")[0])
        metric = mf.learn(
            X, pairs, method="simplenpkl", kernel="rbf", n_components=6, C=1.02 * least, n_neighbors=4, graph="union"
        )
        assert len(metric.report.eigenvalues) >= 1
        with pytest.raises(InputError, match="too small"):
            mf.learn(
                X,
                pairs,
                method="simplenpkl",
                kernel="rbf",
                n_components=6,
                C=0.97 * least,
                n_neighbors=4,
                graph="union",
            )
    relations = signed_pairs(pairs, "degree")
    L = graph_of(neighbors.graph(neighbors.search(X, 4)[0], kind="union")).operator
    assert smallest_weight(L, relations, 0.01) == pytest.approx(least, rel=1e-2)


def test_where_k_is_zero_the_sdp_solver_says_so_too():
    X = np.linspace(0, 1, 16)[:, None] ** 1.1
    pairs = mf.Pairs([], [(0, 15)], n=16)
    L, relations = dense_laplacian(X, 3, "union"), listed(pairs, "degree")
    assert sdp(L, relations, 0.05, 16.0, "squared_hinge") == pytest.approx(0.025, abs=1e-7)
    options = {"C": 0.05, "loss": "squared_hinge", "n_neighbors": 3, "graph": "union"}
    with pytest.raises(InputError, match="too small"):
        mf.learn(X, pairs, method="simplenpkl", **{"kernel": "rbf", "C": 2.0, "n_components": 6, **options})


@pytest.mark.parametrize("extension", ["ridge", "nystrom"])
@pytest.mark.parametrize("loss", ["linear", "squared_hinge"])
def test_all_rows_isolated(monkeypatch, loss, extension):
    """No edge at all: L = 0, and the pairs alone make K."""
    X, y = clusters(40)
    pairs = mf.Pairs.from_labels(y, components=0.7, seed=0)
    monkeypatch.setattr(neighbors, "graph", lambda indices, *, kind: sparse.csr_array((40, 40)))
    metric = mf.learn(
        X, pairs, method="simplenpkl", kernel="rbf", C=2.0, n_components=6, loss=loss, extension=extension
    )
    report = metric.report
    assert report.isolated == 40
    assert report.edges == 0
    assert any("40 row(s) have no neighbour" in note for note in report.notes)
    touched = np.zeros(40, dtype=bool)
    touched[np.unique(np.concatenate([pairs.similar, pairs.dissimilar]))] = True
    assert not report.embedding[~touched].any()
    assert np.isfinite(metric.distance(X)).all()


def test_isolated_rows_with_and_without_pairs():
    X, _ = clusters(50)
    X[:6] += 20.0 * 3.0 ** np.arange(6)[:, None]  # nobody's neighbours
    pairs = mf.Pairs([(0, 10), (1, 11), (20, 21)], [(0, 30)], n=50)
    report = mf.learn(
        X, pairs, method="simplenpkl", kernel="rbf", C=2.0, n_neighbors=4, n_components=None, normalize=False
    ).report
    blank = ~report.embedding.any(axis=1)
    assert blank[2:6].all()
    assert not blank[0]
    assert any("origin" in note for note in report.notes)
    L, relations = dense_laplacian(X, 4), listed(pairs, "degree")
    assert report.objective == pytest.approx(sdp(L, relations, 2.0, 50.0, "linear"), rel=1e-5)


def test_disconnected_graphs(rng):
    """Ten groups far apart: −L has ten exact zeros, and what positive eigenvalues there are is counted right."""
    X = rng.normal(size=(400, 3)) + 1e3 * np.repeat(np.arange(10), 40)[:, None]
    y = np.repeat(np.arange(10), 40)
    pairs = mf.Pairs.from_labels(y, components=0.9, closure=False, seed=0)
    for solver in ("arpack", "lanczos", "dense"):
        options = {"eigensolver": solver, "n_components": None, "normalize": False, "tol": 1e-7, "n_neighbors": 8}
        report = mf.learn(
            X, pairs, method="simplenpkl", **{"kernel": "rbf", "C": 2.0, "n_components": 6, **options}
        ).report
        A = -dense_laplacian(X, 8)
        for i, j, t, w in listed(pairs, "degree"):
            A[i, j] += w * t
            A[j, i] += w * t
        w = np.linalg.eigvalsh(A)
        assert report.complete
        assert report.positive_eigenvalues == np.count_nonzero(w > 1e-9)
        assert report.objective == pytest.approx(-np.sqrt(400 * np.square(w[w > 1e-9]).sum()), rel=1e-8)


@pytest.mark.parametrize("solver", SOLVERS)
def test_degenerate_cliques(solver):
    """Equal must-link cliques and no edges in the graph between them: every eigenvalue is repeated."""
    copies, size = 40, 15
    X = np.repeat(np.arange(copies), size)[:, None] * 1e3 + np.tile(np.linspace(0, 1, size) ** 1.3, copies)[:, None]
    groups = np.arange(copies * size).reshape(copies, size)
    similar = [(g[a], g[b]) for g in groups for a in range(size) for b in range(a)]
    pairs = mf.Pairs(similar, n=copies * size)
    options = {"pair_weights": "uniform", "n_neighbors": 4, "normalize": False, "C": 1.0, "tol": 1e-6}
    for k in (7, copies, None):
        metric = mf.learn(
            X, pairs, method="simplenpkl", eigensolver=solver, n_components=k, **{"kernel": "rbf", "C": 2.0, **options}
        )
        A = -dense_laplacian(X[:size], 4)
        A += (np.ones((size, size)) - np.eye(size)) / 2
        w = np.linalg.eigvalsh(A)[::-1]
        positive = w[w > 1e-9]
        expected = np.sort(np.repeat(positive, copies))[::-1][: k or None]
        assert_allclose(metric.report.eigenvalues, expected, atol=1e-6 * w[0])
    K = metric.report.embedding @ metric.report.embedding.T
    assert_allclose(K[:size, :size], K[size : 2 * size, size : 2 * size], atol=1e-3 * K.max())


def test_one_positive_eigenvalue_is_said():
    """On a dense graph with a small C the embedding is a sign; the note says what to change."""
    X, y = clusters(100, apart=3.0)
    metric = mf.learn(
        X, mf.Labels(y), method="simplenpkl", kernel="rbf", n_components=6, C=0.8, n_neighbors=40, graph="union"
    )
    assert metric.report.embedding.shape == (100, 1)
    assert set(np.round(metric.report.embedding.ravel(), 12)) == {-1.0, 1.0}
    assert any("larger C" in note and "n_neighbors" in note for note in metric.report.notes)
    assert len(np.unique(np.round(metric.distance(X[:20]), 6))) > 10  # the extension is not a sign


# ---------------------------------------------------------------------------------------------------------- new rows


def test_ridge_is_ridge_regression(rng):
    X = rng.normal(size=(200, 5)) + 3
    E = np.hstack([X[:, :1] ** 2, X @ rng.normal(size=(5, 2))]) + 0.1 * rng.normal(size=(200, 3))
    E[::10] = 0  # rows that nothing is known about
    map = represent(Linear(), X).map
    kernel, explained = ridge(map, X, E, unit=False)
    known = E.any(axis=1)
    F, T = X[known] - X[known].mean(axis=0), E[known] - E[known].mean(axis=0)

    def fitted(rho):
        return np.linalg.solve(F.T @ F + rho * np.eye(5), F.T @ T)

    # ρ is found from the answer along one direction; then all of it must be that ridge regression
    from scipy.optimize import minimize_scalar

    best = minimize_scalar(
        lambda s: np.linalg.norm(fitted(np.exp(s)) - kernel.weights), bounds=(-20, 10), method="bounded"
    )
    assert_allclose(kernel.weights, fitted(np.exp(best.x)), atol=1e-5)
    assert_allclose(kernel.offset, E[known].mean(axis=0) - X[known].mean(axis=0) @ kernel.weights, atol=1e-10)
    left = np.square(T - F @ kernel.weights).sum()
    assert explained == pytest.approx(1 - left / np.square(T).sum(), rel=1e-8)

    def generalised(rho):
        hat = F @ np.linalg.solve(F.T @ F + rho * np.eye(5), F.T)
        return np.square(T - hat @ T).sum() / (len(F) - 1 - np.trace(hat)) ** 2

    assert generalised(np.exp(best.x)) <= 1.001 * min(generalised(np.exp(s)) for s in np.linspace(-10, 10, 200))


def test_ridge_does_not_interpolate(rng):
    """As many features as rows: the regression keeps half of its freedom, so noise is not learned by heart."""
    X, E = rng.normal(size=(60, 4)), rng.normal(size=(60, 2))
    _, explained = ridge(represent(RBF(5.0), X).map, X, E, unit=False)
    assert explained < 0.95


def test_nystrom_is_the_graphs_own_equation():
    X, _ = clusters(120)
    pairs = mf.Pairs([(0, 1)], [(2, 3), (4, 50)], n=120)
    metric = mf.learn(
        X,
        pairs,
        method="simplenpkl",
        kernel="rbf",
        n_components=6,
        extension="nystrom",
        n_neighbors=6,
        graph="union",
        C=3.0,
    )
    kernel = metric.kernel
    assert isinstance(kernel, GraphExtension)
    near = neighbors.search(X, 6, queries=X[:9] + 0.01, method="exact")[0]
    E = np.stack([kernel.vectors[n].sum(axis=0) / np.sqrt(6) for n in near])
    assert_allclose(metric.transform(X[:9] + 0.01), unit_rows(E), atol=1e-12)
    # at a training row without pairs the eigenvector's equation holds with that row's own neighbours
    plain = mf.learn(
        X,
        pairs,
        method="simplenpkl",
        kernel="rbf",
        n_components=6,
        extension="nystrom",
        n_neighbors=6,
        graph="union",
        C=3.0,
        normalize=False,
    )
    L = dense_laplacian(X, 6, "union")
    degrees = (L < 0).sum(axis=1)
    for row in (10, 70, 111):
        joined = np.flatnonzero(L[row] < 0)
        value = plain.kernel.vectors[joined].sum(axis=0) / np.sqrt(degrees[row])
        assert_allclose(value, plain.report.embedding[row], atol=2e-3 * np.abs(plain.report.embedding).max())


@pytest.mark.parametrize("extension", ["ridge", "nystrom"])
def test_new_rows_land_with_their_class(extension):
    X, y = clusters(600, classes=3, seed=1, apart=4.0)
    pairs = mf.Pairs.from_labels(y[:400], components=0.8, seed=0)
    metric = mf.learn(X[:400], pairs, method="simplenpkl", kernel="rbf", C=2.0, n_components=6, extension=extension)
    from sklearn.neighbors import KNeighborsClassifier

    near = KNeighborsClassifier(5).fit(metric.transform(X[:400]), y[:400])
    assert near.score(metric.transform(X[400:]), y[400:]) > 0.93


@pytest.mark.parametrize("extension", ["ridge", "nystrom"])
@pytest.mark.parametrize("form", ["dense", "csr"])
def test_files_pickles_and_sums(extension, form, tmp_path):
    X, y = clusters(80)
    rows = sparse.csr_array(X) if form == "csr" else X
    metric = mf.learn(rows, mf.Labels(y), method="simplenpkl", kernel="rbf", C=2.0, n_components=6, extension=extension)
    metric.save(tmp_path / "m.metric")
    copy = mf.load(tmp_path / "m.metric")
    assert copy.kernel == metric.kernel
    assert_array_equal(copy.transform(rows), metric.transform(rows))
    assert_array_equal(copy.report.embedding, metric.report.embedding)
    other = mf.learn(rows, mf.Labels(y), method="krca")
    both = 0.5 * metric + other
    D = np.sqrt(0.5 * metric.distance(rows) ** 2 + other.distance(rows) ** 2)
    assert_allclose(both.distance(rows), D, atol=1e-6)
    check_kernel(metric.kernel, rows)
    with pytest.raises(InputError, match="features"):
        metric.transform(X[:, :2])


# --------------------------------------------------------------------------------------------------------------- dask


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"kernel": Linear()},
        {"kernel": Laplacian(0.3)},
        {"extension": "nystrom"},
        {"loss": "squared_hinge"},
        {"active": 0.5, "graph": "union"},
    ],
    ids=str,
)
def test_dask_gives_the_same(options):
    X, y = clusters(300, d=9)
    X = np.round(X, 1)  # ties
    pairs = mf.Pairs.from_labels(y, components=0.7, seed=0)
    here = mf.learn(X, pairs, method="simplenpkl", **{"kernel": "rbf", "C": 2.0, "n_components": 6, **options})
    there = mf.learn(
        as_dask(X, (70, -1)), pairs, method="simplenpkl", **{"kernel": "rbf", "C": 2.0, "n_components": 6, **options}
    )
    assert_allclose(there.report.embedding, here.report.embedding, atol=1e-8)
    assert there.report.edges == here.report.edges
    assert_allclose(there.distance(X[:50]), here.distance(X[:50]), atol=1e-8)
    lazy = there.transform(as_dask(X, (110, -1)))
    assert_allclose(lazy.compute(), here.transform(X), atol=1e-8)


# ------------------------------------------------------------------------------------------------ options and contract


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("loss", "logistic"),
        ("graph", "both"),
        ("pair_weights", "none"),
        ("extension", "nyström"),
        ("eigensolver", "lobpcg"),
        ("C", 0),
        ("C", -1.0),
        ("C", np.nan),
        ("C", None),
        ("B", 0.0),
        ("B", np.inf),
        ("active", 0.0),
        ("active", 1.5),
        ("tol", 0),
        ("tol", 2.0),
        ("n_neighbors", 0),
        ("n_neighbors", "many"),
        ("n_components", 0),
        ("n_components", 2.5),
        ("normalize", "yes"),
        ("max_iter", 0),
    ],
)
def test_bad_options_are_named(option, value):
    with pytest.raises(InputError, match=option):
        SimpleNPKL(**{option: value})


def test_unknown_choices_offer_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'squared_hinge'"):
        SimpleNPKL(loss="squared-hinge")


def test_the_papers_setting():
    assert SimpleNPKL.paper() == SimpleNPKL(
        C=1.0, n_neighbors=50, pair_weights="uniform", normalize=False, n_components=None
    )
    assert SimpleNPKL.paper(loss="squared_hinge", n_neighbors=5).loss == "squared_hinge"
    X, y = clusters(120)
    pairs = mf.Pairs.from_labels(y, components=0.7, seed=0)
    report = mf.learn(X, pairs, solver=SimpleNPKL.paper()).report
    assert report.method == "simplenpkl"
    assert report.complete
    assert np.square(report.embedding.T @ report.embedding).sum() == pytest.approx(120)


def test_with_the_linear_loss_b_only_scales(small):
    X, pairs = small
    one, four = (
        mf.learn(X, pairs, method="simplenpkl", kernel="rbf", C=2.0, n_components=6, B=B, normalize=False).report
        for B in (10.0, 160.0)
    )
    assert_allclose(four.embedding, 2 * one.embedding, rtol=1e-9)
    assert one.B_share == pytest.approx(10 / 44**2)


def test_neighbours_are_few_on_few_rows_and_never_too_many():
    X, y = clusters(30)
    assert mf.learn(X, mf.Labels(y), method="simplenpkl", kernel="rbf", C=2.0, n_components=6).report.n_neighbors == 2
    metric = mf.learn(X, mf.Labels(y), method="simplenpkl", kernel="rbf", C=2.0, n_components=6, n_neighbors=99)
    assert metric.report.n_neighbors == 29
    assert any("lowered to 29" in note for note in metric.report.notes)
    X, y = clusters(1000)
    assert mf.learn(X, mf.Labels(y), method="simplenpkl", kernel="rbf", C=2.0, n_components=6).report.n_neighbors == 20


def test_normalised_rows_have_norm_one_and_truncation_comes_after_a_hinge(small):
    X, pairs = small
    report = mf.learn(X, pairs, method="simplenpkl", kernel="rbf", C=2.0, n_components=6).report
    norms = np.linalg.norm(report.embedding, axis=1)
    assert_allclose(norms[norms > 0], 1, rtol=1e-12)
    full = mf.learn(
        X, pairs, method="simplenpkl", kernel="rbf", C=2.0, loss="squared_hinge", n_components=None, normalize=False
    ).report
    cut = mf.learn(
        X, pairs, method="simplenpkl", kernel="rbf", C=2.0, loss="squared_hinge", n_components=3, normalize=False
    ).report
    # the largest eigenvectors, times one factor: that of the best multiple
    factor = np.linalg.norm(cut.embedding) / np.linalg.norm(full.embedding[:, :3])
    assert_allclose(cut.embedding, factor * full.embedding[:, :3], rtol=1e-9, atol=1e-12)
    # objective and gap are those of the point returned
    assert full.status == "optimal"
    assert cut.status == "truncated"
    assert cut.objective > full.objective
    assert_allclose(cut.objective - cut.gap, full.objective - full.gap, rtol=1e-12)
    assert any("of any rank" in note for note in cut.notes)


def test_same_seed_same_answer_and_progress():
    X, y = clusters(700)
    pairs = mf.Pairs.from_labels(y, components=0.7, seed=0)
    one, two = (mf.learn(X, pairs, method="simplenpkl", kernel="rbf", C=2.0, n_components=6, seed=4) for _ in range(2))
    assert_array_equal(one.report.embedding, two.report.embedding)
    steps = []
    problem = Problem(represent(RBF(0.1), X), pairs, 0, lambda k, total=None, **info: steps.append((k, info)))
    SimpleNPKL(loss="squared_hinge", tol=1e-3).solve(problem)
    assert steps[-1][1]["gap"] >= 0
    assert len(steps) > 2


def test_contract():
    check_method("simplenpkl")
    for options in ({"extension": "nystrom"}, {"loss": "hinge", "tol": 1e-3}, {"graph": "union", "normalize": False}):
        check_solver(SimpleNPKL(**options), Linear())
    X, y = clusters(50)
    assert isinstance(
        mf.learn(X, mf.Labels(y), method="simplenpkl", kernel="rbf", C=2.0, n_components=6).kernel, RidgeExtension
    )
    assert PositivePart.__dataclass_params__.frozen


def test_memory_is_linear_in_the_rows():
    """Graph, basis and embedding: far below n × n."""
    import tracemalloc

    X, y = clusters(6000, d=3)
    pairs = mf.Pairs.from_labels(y, n_pairs=3000, seed=0)
    mf.learn(
        X[:600],
        mf.Pairs.from_labels(y[:600], n_pairs=300, seed=0),
        method="simplenpkl",
        C=2.0,
        n_components=6,
        kernel=Linear(),
    )
    tracemalloc.start()
    mf.learn(X, pairs, method="simplenpkl", C=2.0, n_components=6, kernel=Linear())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6000 * 6000 * 8 / 6


# ----------------------------------------------------------------------------------------------------------- Adult


def adult_like(n, seed=0):
    """Binary rows in two overlapping classes, one-hot like Adult's."""
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < 0.3).astype(int)
    columns = []
    for j in range(12):
        levels = 5
        base = rng.dirichlet(np.ones(levels), size=2)
        if j < 4:
            base[1] = base[0]  # says nothing
        value = np.array([rng.choice(levels, p=base[c]) for c in y])
        columns.append(np.eye(levels)[value])
    return np.hstack(columns), y


def scores(X, y, pairs, **options):
    from sklearn.metrics import adjusted_rand_score

    metric = mf.learn(
        sparse.csr_array(X), pairs, method="simplenpkl", **{"kernel": "rbf", "C": 2.0, "n_components": 6, **options}
    )
    labels = mf.tasks.constrained_kmeans(metric.report.embedding, 2).labels
    return 100 * adjusted_rand_score(y, labels), metric


def test_the_default_clusters_binary_rows_and_the_papers_setting_does_not():
    X, y = adult_like(900)
    pairs = mf.Pairs.from_labels(y, components=0.7, seed=0)
    repaired, metric = scores(X, y, pairs)
    assert repaired > 50
    assert metric.report.embedding.shape[1] == 6
    printed = SimpleNPKL.paper()
    metric = mf.learn(sparse.csr_array(X), pairs, solver=printed)
    labels = mf.tasks.constrained_kmeans(metric.report.embedding, 2).labels
    from sklearn.metrics import adjusted_rand_score

    assert 100 * adjusted_rand_score(y, labels) < repaired - 20


def test_a1a_and_its_held_out_rows(data_folder):
    from sklearn.metrics import adjusted_rand_score

    X, y = mf.datasets.load("a1a")
    A, b = mf.datasets.load("a1a.t")
    pairs = mf.Pairs.from_labels(y, components=0.7, seed=0)
    metric = mf.learn(X, pairs, method="simplenpkl", kernel="rbf", C=2.0, n_components=6)
    found = mf.tasks.constrained_kmeans(metric.report.embedding, 2)
    assert 100 * adjusted_rand_score(y, found.labels) > 45
    E = metric.transform(A[:5000])
    held = np.square(E[:, None] - found.centers).sum(axis=2).argmin(axis=1)
    assert 100 * adjusted_rand_score(b[:5000], held) > 28


# --------------------------------------------------------------------------------------------------- hostile input


def test_no_pair_after_conversion_is_an_error_and_not_a_hang():
    X = np.random.default_rng(0).normal(size=(30, 3))
    for nothing in (mf.Chunklets(np.arange(30)), mf.Triplets([(0, 1, 2), (0, 2, 1)], n=30)):
        with pytest.raises(InputError, match="no relation after conversion"):
            mf.learn(X, nothing, method="simplenpkl", kernel="rbf", C=2.0, n_components=6)


def test_the_search_for_the_smallest_weight_ends():
    rows = np.zeros(1, dtype=int)
    nothing = SimpleNamespace(w=np.zeros(1), matrix=lambda w: sparse.csr_array((5, 5)), i=rows, j=rows)
    laplacian = sparse.csr_array(np.diag([1.0, 1.0, 1.0, 1.0, 1.0]))
    assert smallest_weight(LaplacianInMemory(laplacian), nothing, 2.0) == np.inf


@pytest.mark.parametrize(("X", "kernel"), [(np.zeros((30, 3)), "linear"), (np.ones((30, 3)), "rbf(gamma=1.0)")])
def test_rows_that_the_kernel_cannot_tell_apart_are_an_error(X, kernel):
    pairs = mf.Pairs.from_labels(np.arange(30) % 3, components=0.7, seed=0)
    with pytest.raises(InputError, match="choose another kernel"):
        mf.learn(X, pairs, method="simplenpkl", C=2.0, n_components=6, kernel=kernel)


def test_optimal_is_said_of_the_full_spectrum_only():
    X = np.random.default_rng(0).normal(size=(60, 3))
    pairs = mf.Pairs.from_labels(np.arange(60) % 3, components=0.5, seed=0)
    cut, full = (mf.learn(X, pairs, method="simplenpkl", kernel="rbf", C=2.0, n_components=r) for r in (2, None))
    assert cut.report.status == "truncated"
    assert cut.report.gap > 1e-3 * abs(cut.report.objective)
    assert full.report.status == "optimal"
    assert full.report.gap <= 1e-3 * abs(full.report.objective)


def test_a_loose_tolerance_still_finds_eigenvectors():
    X, y = mf.datasets.load("double_spiral", seed=0)
    pairs = mf.Pairs.from_labels(y, components=0.7, seed=0)
    options = {"method": "simplenpkl", "eigensolver": "arpack"}
    loose, tight = (mf.learn(X, pairs, tol=tol, **options) for tol in (1e-2, 1e-7))
    assert loose.report.objective == pytest.approx(tight.report.objective, rel=1e-3)


def test_a_tiny_gram_matrix_is_refused_without_a_warning(rng):
    F = rng.normal(size=(13, 3))
    with pytest.raises(InputError, match="multiply"):
        mf.learn(1e-200 * F @ F.T, np.arange(13) % 3, method="simplenpkl", kernel=mf.kernels.Precomputed())


@pytest.mark.filterwarnings("ignore::metricforge.errors.ConvergenceWarning")
def test_the_smoothing_of_the_hinge_is_not_reduced_for_ever(monkeypatch):
    """A tolerance below rounding asked for a smoothing of 0, which means another loss, and never got there."""
    monkeypatch.setattr(factored, "STEPS", 20)
    smoothed, seen = Factored.loss, []

    def loss(self, E):
        value, alpha = smoothed(self, E)
        seen.append(self.smoothing)
        return value - 1e-6, alpha  # as if rounding kept it from the true loss

    monkeypatch.setattr(Factored, "loss", loss)
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(30, 3)), rng.integers(0, 3, size=30)
    pairs = mf.Pairs.from_labels(y, n_pairs=60, seed=3)
    options = {"loss": "hinge", "B": "unbounded", "C": 1.0, "tol": 1e-300}
    report = mf.learn(X, pairs, method="simplenpkl", max_iter=40, **options).report
    assert report.status in ("stalled", "iteration_limit")
    assert 0.1 * factored.SHARPEST < min(seen) <= factored.SHARPEST


@pytest.mark.filterwarnings("ignore::metricforge.errors.ConvergenceWarning")
def test_rounds_without_progress_end_the_search_for_a_factor(monkeypatch):
    monkeypatch.setattr(factored, "STEPS", 20)
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(14, 3)), rng.integers(0, 2, size=14)
    pairs = mf.Pairs.from_labels(y, n_pairs=30, seed=1)
    options = {"loss": "hinge", "B": 1e4, "C": 1.0, "tol": 1e-300}
    report = mf.learn(X, pairs, method="simplenpkl", max_iter=10**9, **options).report
    assert report.status == "stalled"


def test_an_unbounded_kernel_has_a_largest_bound_that_is_tried(monkeypatch):
    """The bound grows while it is active, and here it always seems to be."""
    plain, bounds = hinge._within, []

    def within(solver, problem, graph, pairs, B, find):
        bounds.append(B)
        found = plain(solver, problem, graph, pairs, B, find)
        return found._replace(squares=2.0 * B, converged=True)

    monkeypatch.setattr(hinge, "_within", within)
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(14, 3)), rng.integers(0, 2, size=14)
    pairs = mf.Pairs.from_labels(y, n_pairs=30, seed=1)
    mf.learn(X, pairs, method="simplenpkl", loss="squared_hinge", B="unbounded", tol=1e-2)
    assert 1e4 * 14**2 <= bounds[-1] < 8e4 * 14**2
    assert len(bounds) < 20


def test_the_extension_keeps_its_digits_beside_a_large_offset(rng):
    X = rng.normal(size=(50, 2))
    y = np.arange(50) % 2
    i, j = np.triu_indices(50, 1)
    same = y[i] == y[j]
    pairs = np.column_stack([i, j])
    hint = mf.Pairs(pairs[same][::7], pairs[~same][::7], n=50)
    moved = X + 2.0**20  # the sum is exact up to 2**-33
    first, second = (
        mf.learn(A, hint, method="simplenpkl", kernel=mf.kernels.Linear()) for A in (moved - 2.0**20, moved)
    )
    D = first.distance(moved - 2.0**20)
    assert_allclose(second.distance(moved), D, atol=1e-8 * D.max())


def test_a_pair_that_cancels_an_edge_keeps_both_rows():
    # the edge of rows 2 and 3 has the weight 1/2 in L, and so has their pair in A
    first = [1.069, 2.802, 1.725, 2.115, 0.317, 2.76, 0.269, 1.625, -1.08, 0.647]
    X = np.column_stack([first, [0.607, 0.727, 2.023, 3.524, -2.491, 1.565, -0.049, 1.186, 0.152, 0.084]])
    pairs = mf.Pairs([[1, 7], [1, 9], [6, 8]], [[2, 3]], n=10)
    options = {"n_neighbors": 4, "pair_weights": "uniform", "n_components": None, "normalize": False}
    report = mf.learn(
        X, pairs, method="simplenpkl", kernel=RBF("median"), loss="squared_hinge", C=2.0, B=10.0, **options
    ).report
    K = report["embedding"] @ report["embedding"].T
    S = np.zeros((10, 10))
    near = np.argsort(np.square(X[:, None] - X[None]).sum(axis=2) + 1e9 * np.eye(10), axis=1)[:, :4]
    S[np.arange(10)[:, None], near] = 1
    S = np.minimum(S, S.T)
    scale = np.divide(1, np.sqrt(S.sum(axis=1)), out=np.zeros(10), where=S.any(axis=1))
    L = np.diag(S.any(axis=1).astype(float)) - scale[:, None] * S * scale
    i, j = np.array([[1, 7], [1, 9], [6, 8], [2, 3]]).T
    short = np.maximum(0, 1 - np.array([1, 1, 1, -1]) * K[i, j])
    assert report["objective"] == pytest.approx((L * K).sum() + 2.0 * (short**2).sum() / 2, rel=1e-9)
    assert any("1 row(s) are at the origin" in note for note in report["notes"])
