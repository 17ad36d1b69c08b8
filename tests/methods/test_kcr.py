"""The kernel classification rule's metric against a semidefinite program, printed equations and plain loops."""

from __future__ import annotations

import warnings
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from metricforge_plugins.kcr import descent as descent_module
from metricforge_plugins.kcr import objective as objective_module
from metricforge_plugins.kcr import radius as radius_module
from metricforge_plugins.kcr.certificate import certify
from metricforge_plugins.kcr.coordinates import coordinates, discriminant
from metricforge_plugins.kcr.descent import Descent
from metricforge_plugins.kcr.lbfgs import SEARCH, minimise
from metricforge_plugins.kcr.objective import Objective, Smoothing
from metricforge_plugins.kcr.pairs import all_pairs, neighbour_lists, random_groups
from metricforge_plugins.kcr.radius import FACTORS, validated
from metricforge_plugins.kcr.solver import KCR
from numpy.testing import assert_allclose, assert_array_equal

import metricforge as mf
from metricforge.errors import ConvergenceWarning, InputError
from metricforge.testing import check_method, check_solver

RBF, Linear = mf.kernels.RBF, mf.kernels.Linear


# -------------------------------------------------------------------------------------------------- independent routes


def signs(y):
    return np.where(np.equal.outer(y, y), 1.0, -1.0)


def equation_9(D, h, y, penalty, logistic=False):
    """Eq. (9) as printed, from squared distances; the logistic bound of Sec. 4 alike."""
    tau = signs(y)
    inside = 2 - (tau > 0).sum(axis=1) + np.maximum(1 + tau * (D - h), 0).sum(axis=1)
    return (np.logaddexp(0, inside - 1) if logistic else np.maximum(inside, 0)).sum() + penalty


def program(F, y, logistic=False):
    """The data term over W ⪰ 0 and h >= 0 for cvxpy, with ρ² on the rows of F; and W."""
    import cvxpy as cp

    n, m = F.shape
    i, j = np.triu_indices(n, 1)
    Z, tau = F[i] - F[j], signs(y)[i, j]
    W, h = cp.Variable((m, m), PSD=True), cp.Variable(nonneg=True)
    D = (Z[:, :, None] * Z[:, None, :]).reshape(len(i), m * m) @ cp.vec(W, order="C")
    ends = np.zeros((n, len(i)))  # each pair counts for both of its rows
    ends[i, np.arange(len(i))] = ends[j, np.arange(len(i))] = 1
    inner = cp.pos(1 + cp.multiply(tau, D - h))
    inside = 2 - (signs(y) > 0).sum(axis=1) + ends @ inner + cp.pos(1 - h)
    return cp.sum(cp.logistic(inside - 1) if logistic else cp.pos(inside)), W


def least(value, constraints=(), known=("optimal",)):
    """Solve; an interior point that is not accurate to 1e-7 proves nothing, unless two programs are compared."""
    import cvxpy as cp

    problem = cp.Problem(cp.Minimize(value), list(constraints))
    problem.solve(solver="CLARABEL")
    assert problem.status in known
    return float(problem.value)


def sdp(F, y, lam, logistic=False):
    """The optimum of eq. (9) by an interior-point method."""
    import cvxpy as cp

    data, W = program(F, y, logistic)
    return least(data + lam * cp.trace(W))


def printed_sdp(K, y, lam):
    """The same over Σ with 1'Σ1 = 0 and ρ² on columns of K, as the paper writes it."""
    import cvxpy as cp

    data, S = program(K, y)
    return least(data + lam * cp.trace(K @ S), [cp.sum(S) == 0], known=("optimal", "optimal_inaccurate"))


def instance(seed, n=None, d=4):
    """Two to four overlapping classes of unequal sizes; some of a single row."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(12, 25)) if n is None else n
    classes = int(rng.integers(2, 5))
    y = np.unique(rng.integers(classes, size=n), return_inverse=True)[1]
    if seed % 3 == 0:
        y[0] = y.max() + 1
    centres = rng.choice([0.5, 1.0, 2.0]) * rng.normal(size=(y.max() + 1, d))
    return rng.normal(size=(n, d)) + centres[y], y


def features(kernel, X):
    """φ with ΦΦ' = K by another route than the space's."""
    if kernel == Linear():
        return X
    w, V = np.linalg.eigh(kernel(X, X))
    return V[:, w > 1e-10 * w[-1]] * np.sqrt(w[w > 1e-10 * w[-1]])


@cache
def solved(seed, gaussian, n=None, lam=1.0, logistic=False):
    X, y = instance(seed, n)
    kernel = RBF(0.2) if gaussian else Linear()
    F = features(kernel, X)
    return X, y, kernel, F, sdp(F, y, lam, logistic)


# ---------------------------------------------------------------------------------------------------------- optimality


@pytest.mark.filterwarnings("ignore::metricforge.errors.ConvergenceWarning")  # the bound may take longer than the rest
@pytest.mark.parametrize("gaussian", [False, True], ids=["linear", "rbf"])
@pytest.mark.parametrize(
    ("seed", "n", "lam"),
    [(0, None, 1.0), (2, None, 1.0), (3, None, 3.0), (4, None, 0.3), (8, None, 3.0), (5, 32, 3.0)],
)
def test_objective_is_within_a_thousandth_of_the_sdp(seed, n, lam, gaussian):
    X, y, kernel, _, optimum = solved(seed, gaussian, n, lam)
    metric = mf.learn(X, y, method="kcr", kernel=kernel, lam=lam, tol=1e-3)
    report = metric.report
    assert optimum * (1 - 1e-6) <= report.objective <= 1.001 * optimum
    assert 0.98 * optimum <= report.lower_bound <= optimum * (1 + 1e-6)
    assert report.gap == pytest.approx(report.objective - report.lower_bound)
    assert (report.status == "optimal") == (report.gap <= 1e-3 * report.objective)
    # and the objective is that of the metric which is handed out
    value = equation_9(metric.distance(X) ** 2, report.joint_radius**2, y, lam * np.trace(metric.kernel.W))
    assert value == pytest.approx(report.objective, rel=1e-7)


@pytest.mark.parametrize("seed", [2, 4])
def test_logistic_bound_is_within_a_thousandth_of_its_program(seed):
    X, y, kernel, _, optimum = solved(seed, True, 14, 1.0, True)
    metric = mf.learn(X, y, method="kcr", kernel=kernel, lam=1.0, bound="logistic", tol=1e-3)
    assert optimum * (1 - 1e-6) <= metric.report.objective <= 1.001 * optimum
    assert 0.99 * optimum <= metric.report.lower_bound <= optimum * (1 + 1e-6)
    D = metric.distance(X) ** 2
    value = equation_9(D, metric.report.radius**2, y, np.trace(metric.kernel.W), logistic=True)
    assert value == pytest.approx(metric.report.objective, rel=1e-7)


@pytest.mark.filterwarnings("ignore:Solution may be inaccurate")  # of cvxpy; the values are compared all the same
@pytest.mark.parametrize("gaussian", [False, True], ids=["linear", "rbf"])
def test_the_constraint_left_out_changes_nothing(gaussian):
    X, y = instance(7, 12)
    # an affine kernel has 1 in the range of its features, where 1'Σ1 = 0 says something
    K = RBF(0.2)(X, X) if gaussian else X @ X.T + 1
    F = features(RBF(0.2), X) if gaussian else np.hstack([X, np.ones((len(X), 1))])
    assert printed_sdp(K, y, 1.0) == pytest.approx(sdp(F, y, 1.0), rel=1e-5)


def test_a_linear_kernel_learns_a_mahalanobis_distance(wine):
    """Corollary 4, and explicit features against the Gram matrix."""
    X, y = wine[0][::3], wine[1][::3]
    explicit = mf.learn(X, y, method="kcr", kernel=Linear(), tol=1e-3)
    exact = mf.learn(X, y, method="kcr", kernel=Linear(), rank="exact", tol=1e-3)
    assert explicit.report.objective == pytest.approx(exact.report.objective, rel=2e-3)
    Z = X[:20] - X[-20:]
    assert_allclose(explicit.paired_distance(X[:20], X[-20:]) ** 2, ((Z @ explicit.kernel.W) * Z).sum(axis=1))
    assert np.linalg.eigvalsh(explicit.kernel.W)[0] > -1e-12


def test_distances_of_unseen_rows_follow_the_same_w():
    X, y = instance(8, 30)
    A = np.random.default_rng(9).normal(size=(15, 4))
    kernel = RBF(0.2)
    metric = mf.learn(X, y, method="kcr", kernel=kernel)
    # Σ = K⁻¹ Φ W Φ' K⁻¹ from the learned kernel on training rows, then the paper's ρ² on kernel columns
    K = kernel(X, X)
    S = np.linalg.solve(K, np.linalg.solve(K, metric.kernel(X, X)).T)
    columns = kernel(A, X)
    Z = columns[:, None] - columns[None]
    D = np.einsum("ijk,kl,ijl->ij", Z, S, Z)
    assert_allclose(metric.distance(A) ** 2, D, atol=1e-7 * D.max())
    embedded = metric.transform(A)
    assert_allclose(np.square(embedded[:, None] - embedded[None]).sum(axis=2), D, atol=1e-7 * D.max())


def test_rank_grows_from_one_column_to_what_the_optimum_needs():
    _, y, _, F, optimum = solved(4, True, None, 10.0)
    pairs = all_pairs(y)
    Phi = F[pairs.order]
    mean = Phi.mean(axis=0)
    axes = coordinates(Phi, mean)
    C = axes.features(Phi, mean)
    for seed in range(3):
        start = 0.1 * np.random.default_rng(seed).normal(size=(len(C), 1))
        objective = Objective(C, pairs, 10 * axes.trace)
        descent = Descent(objective, axes.root, 10.0, 1e-3, 5000, lambda *a, **k: None)
        state = descent.run(descent.start(start, 0))
        assert np.linalg.matrix_rank(state.point[0], tol=1e-3 * np.linalg.norm(state.point[0])) > 1
        assert optimum * (1 - 1e-6) <= state.upper <= 1.001 * optimum


@given(seed=st.integers(0, 10**6), n=st.integers(1, 12), negative=st.booleans())
@settings(max_examples=40)
def test_lbfgs_finds_the_minimum_and_keeps_the_last_variable_from_below_zero(seed, n, negative):
    """A convex quadratic whose free minimiser has a last entry of either sign, against non-negative least squares."""
    from scipy.optimize import lsq_linear

    rng = np.random.default_rng(seed)
    A, target = rng.normal(size=(n + 3, n)), rng.normal(size=n)
    target[-1] = (-1 if negative else 1) * (0.1 + abs(target[-1]))
    b = A @ target
    below = np.full(n, -np.inf)
    below[-1] = 0
    truth = lsq_linear(A, b, (below, np.full(n, np.inf)), tol=1e-14).x
    seen = []

    def evaluate(x):
        left = A @ x - b
        return 0.5 * float(left @ left), A.T @ left

    def watch(x, value):
        seen.append((x.copy(), value))
        return False

    minimise(evaluate, np.ones(n), watch, 1e-9, 500)
    values = [value for _, value in seen]
    assert all(x[-1] >= 0 for x, _ in seen)
    assert values == sorted(values, reverse=True)
    assert values[-1] <= evaluate(truth)[0] + 1e-9
    assert_allclose(seen[-1][0], truth, atol=1e-4 * (1 + np.abs(truth).max()))


def test_lbfgs_ends_without_progress_and_at_the_limit():
    """A value that never decreases, one that is not a number, and a slope without end."""
    steps = []

    def watch(x, value):
        steps.append(value)
        return False

    tried = []

    def flat(x):
        tried.append(x)
        return 1.0, np.ones(3)

    minimise(flat, np.ones(3), watch, 0.0, 1000)
    assert 1 < len(tried) <= 1 + SEARCH
    minimise(lambda x: (0.0 if (x == 1).all() else np.nan, np.ones(3)), np.ones(3), watch, 0.0, 1000)
    assert not steps
    minimise(lambda x: (-float(x[0]), np.array([-1.0, 0.0])), np.ones(2), watch, 0.0, 7)
    assert len(steps) == 7


def test_a_descent_ends_when_runs_no_longer_make_steps(monkeypatch):
    """The outer loop has a bound of its own: IDLE runs without progress."""
    monkeypatch.setattr(descent_module, "minimise", lambda *args: None)
    X, y = instance(2)
    with pytest.warns(ConvergenceWarning, match="after 0 steps .*rounding prevents more"):
        report = mf.learn(X, y, method="kcr", kernel=Linear(), lam=1.0).report
    assert (report.n_iter, report.status) == (0, "stalled")


# --------------------------------------------------------------------------------------------------------- certificate


@given(
    seed=st.sampled_from([0, 2, 3]),
    gaussian=st.booleans(),
    draw=st.integers(0, 10**6),
    size=st.floats(0, 2),
    h=st.floats(0, 4),
    mu=st.floats(1e-6, 2),
    cap=st.floats(1e-3, 1),
)
@settings(max_examples=150)
def test_bound_is_never_above_the_optimum_wherever_it_is_taken(seed, gaussian, draw, size, h, mu, cap):
    _, y, _, F, optimum = solved(seed, gaussian, 12, 1.0)
    rng = np.random.default_rng(draw)
    pairs = all_pairs(y)
    Phi = F[pairs.order]
    mean = Phi.mean(axis=0)
    axes = coordinates(Phi, mean)
    objective = Objective(axes.features(Phi, mean), pairs, axes.trace)
    P = size * rng.normal(size=(F.shape[1], rng.integers(1, 4)))
    found = certify(objective, axes.root, 1.0, P, h, Smoothing(mu, cap))
    assert found.bound <= optimum * (1 + 1e-6)
    assert objective.exact(P, h) >= optimum * (1 - 1e-6)


@pytest.mark.parametrize("h", [0.05, 0.3])
@pytest.mark.parametrize(("seed", "gaussian"), [(0, True), (2, False), (3, True)])
def test_bound_holds_at_the_best_metric_of_a_wrong_radius(seed, gaussian, h):
    """There λI + M ⪰ 0 by itself, and only Σ β τ <= 0 keeps the bound from being the optimum for that radius."""
    from scipy.optimize import minimize

    _, y, _, F, optimum = solved(seed, gaussian, 12, 1.0)
    m, pairs = F.shape[1], all_pairs(y)
    C = np.ascontiguousarray((F - F.mean(axis=0))[pairs.order].T)
    objective, smoothing = Objective(C, pairs, np.eye(m)), Smoothing(0.05)

    def fun(x):
        value, G, _ = objective(x.reshape(m, m), h, smoothing)
        return value, G.ravel()

    start = np.random.default_rng(0).normal(size=m * m)
    P = minimize(fun, start, jac=True, method="L-BFGS-B", options={"maxiter": 3000, "maxfun": 9000}).x.reshape(m, m)
    assert objective.exact(P, h) > 1.1 * optimum  # the radius is wrong
    found = certify(objective, np.eye(m), 1.0, P, h, smoothing)
    assert found.bound <= optimum * (1 + 1e-6)


@given(draw=st.integers(0, 10**6), h=st.floats(0, 3), mu=st.floats(1e-6, 2))
@settings(max_examples=40)
def test_logistic_bound_is_never_above_its_optimum(draw, h, mu):
    _, y, _, F, optimum = solved(2, True, 14, 1.0, True)
    rng = np.random.default_rng(draw)
    pairs = all_pairs(y)
    objective = Objective(np.ascontiguousarray(F[pairs.order].T), pairs, np.eye(F.shape[1]), logistic=True)
    found = certify(objective, np.eye(F.shape[1]), 1.0, rng.normal(size=(F.shape[1], 2)), h, Smoothing(mu, 1.0, True))
    assert found.bound <= optimum * (1 + 1e-6)


def test_stopping_early_says_so_and_bounds_truly():
    X, y, kernel, _, optimum = solved(4, True, None, 0.3)
    with pytest.warns(ConvergenceWarning, match="kcr stopped after 3 steps .*raise max_iter"):
        metric = mf.learn(X, y, method="kcr", kernel=kernel, lam=0.3, max_iter=3)
    assert metric.report.status == "iteration_limit"
    assert metric.report.lower_bound <= optimum <= metric.report.objective
    assert metric.report.gap > 1e-3 * optimum


# ------------------------------------------------------------------------------------------- the objective and its sums


def some_pairs(kind, y, F):
    rng = np.random.default_rng(1)
    return {
        "all": lambda: all_pairs(y),
        "random": lambda: random_groups(y, 9, rng),
        "neighbors": lambda: neighbour_lists(F, y, 6),
    }[kind]()


def partners(pairs, i):
    """The rows that row i is compared with, and its τ beside each."""
    if hasattr(pairs, "partner"):
        found = np.arange(pairs.begin[i], pairs.begin[i + 1])
        return pairs.partner[found], np.where(found < pairs.split[i], 1.0, -1.0)
    rows = np.arange(*pairs.group[i])
    return rows, np.where((rows >= pairs.same[i, 0]) & (rows < pairs.same[i, 1]), 1.0, -1.0)


def plain(P, h, F, pairs, penalty, smoothing):
    """The smoothed objective, pair by pair."""
    Y, total = F.T @ P, 0.0

    def hinge(x, width):
        b = np.clip(0.5 + x / width, 0, 1)
        return b * x + 0.5 * width * b * (1 - b)

    for i in range(pairs.n):
        rows, tau = partners(pairs, i)
        inner = hinge(1 + tau * (np.square(Y[i] - Y[rows]).sum(axis=1) - h), smoothing.mu).sum()
        inside = 2 - (tau > 0).sum() + inner
        if smoothing.logistic:
            total += np.logaddexp(0, inside - 1)
        else:
            total += smoothing.cap * hinge(inside, 10 * smoothing.mu)
    return total + np.trace(P.T @ penalty @ P)


@pytest.mark.parametrize("logistic", [False, True], ids=["hinge", "logistic"])
@pytest.mark.parametrize("route", ["numpy", "compiled", "products"])
@pytest.mark.parametrize("kind", ["all", "random", "neighbors"])
def test_value_and_gradient_are_those_of_plain_sums(kind, route, logistic, monkeypatch):
    compiled = route != "numpy"
    monkeypatch.setattr(objective_module, "COMPILE_FROM", 0 if compiled else 10**9)
    monkeypatch.setattr(objective_module, "PRODUCTS_FROM", 0 if route == "products" else 10**9)
    rng = np.random.default_rng(0)
    y = np.arange(31) % 3
    F = rng.normal(size=(5, 31))
    pairs = some_pairs(kind, y, F.T)
    R = rng.normal(size=(5, 5))
    penalty, P, h = R @ R.T, 0.4 * rng.normal(size=(5, 2)), 1.2
    smoothing = Smoothing(0.3, 1.0 if logistic else 0.7, logistic)
    objective = Objective(F, pairs, penalty, logistic=logistic)
    assert objective.compiled is compiled
    value, G, slope = objective(P, h, smoothing)
    assert value == pytest.approx(plain(P, h, F, pairs, penalty, smoothing), rel=1e-12)
    step = 1e-6
    for at in np.ndindex(P.shape):
        E = np.zeros_like(P)
        E[at] = step
        ends = [plain(P + s * E, h, F, pairs, penalty, smoothing) for s in (1, -1)]
        assert G[at] == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-5, abs=1e-5)
    ends = [plain(P, h + s * step, F, pairs, penalty, smoothing) for s in (1, -1)]
    assert slope == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-5, abs=1e-5)
    objective.close()


@pytest.mark.parametrize("kind", ["all", "random"])
def test_threads_change_nothing(kind, monkeypatch):
    rng = np.random.default_rng(0)
    y, F, P = rng.integers(3, size=200), rng.normal(size=(4, 200)), rng.normal(size=(4, 2))
    pairs = all_pairs(y) if kind == "all" else random_groups(y, 20, rng)
    monkeypatch.setattr(objective_module, "COMPILE_FROM", 0)
    monkeypatch.setattr(objective_module, "PRODUCTS_FROM", 10**9)
    answers = []
    for start in (10**9, 0):
        monkeypatch.setattr(objective_module, "THREADS_FROM", start)
        objective = Objective(F, pairs, np.eye(4))
        answers.append(objective(P, 1.0, Smoothing(0.1)))
        objective.close()
    for one, other in zip(*answers, strict=True):
        assert_allclose(one, other, rtol=1e-12)


def test_without_a_metric_the_best_radius_is_found():
    for y in [*(instance(seed)[1] for seed in range(6)), *(np.repeat([0, 1], [n, 2]) for n in (5, 9, 16, 23))]:
        objective = Objective(np.zeros((1, len(y))), all_pairs(y), np.eye(1))
        h, value = objective.without_metric()
        zero = np.zeros((len(y), len(y)))
        assert value == pytest.approx(equation_9(zero, h, y, 0.0))
        assert value <= min(equation_9(zero, g, y, 0.0) for g in np.linspace(0, 3, 3001)) + 1e-3


# -------------------------------------------------------------------------------------------------------------- pairs


@given(seed=st.integers(0, 1000), n=st.integers(2, 120), size=st.floats(2, 50))
@settings(max_examples=60)
def test_random_groups_hold_every_row_once(seed, n, size):
    rng = np.random.default_rng(seed)
    y = np.unique(rng.integers(4, size=n), return_inverse=True)[1]
    pairs = random_groups(y, size, rng)
    assert_array_equal(np.sort(pairs.order), np.arange(n))
    codes = y[pairs.order]
    for i in range(n):
        rows, tau = partners(pairs, i)
        assert i in rows
        assert_array_equal(tau > 0, codes[rows] == codes[i])
    assert pairs.plus.sum() == sum((partners(pairs, i)[1] > 0).sum() for i in range(n))
    covered = [i for a, b in pairs.ranges(4) for i in range(a, b)]
    assert covered == list(range(n))


def test_neighbour_lists_are_the_nearest_of_each_kind():
    rng = np.random.default_rng(0)
    F, y = rng.normal(size=(60, 3)), np.append(np.arange(59) % 3, 3)
    pairs = neighbour_lists(F, y, 10)
    D = np.square(F[:, None] - F).sum(axis=2)
    for i in range(60):
        rows, tau = partners(pairs, i)
        own, other = (np.flatnonzero((y == y[i]) == kind) for kind in (True, False))
        assert set(rows[tau > 0]) == set(own[np.argsort(D[i, own])[:6]])  # itself and five
        assert set(rows[tau < 0]) == set(other[np.argsort(D[i, other])[:5]])


@pytest.mark.parametrize("kind", ["random", "neighbors"])
def test_a_sample_of_pairs_reaches_its_own_optimum_and_classifies(kind, wine):
    X, y = wine
    metric = mf.learn(X, y, method="kcr", pairs=kind, bandwidth="joint")
    report = metric.report
    assert report.pairs == kind
    assert report.gap <= 5e-2 * report.objective
    assert report.n_pairs < len(X) ** 2 if kind == "neighbors" else report.n_pairs == len(X) ** 2
    few = mf.learn(X, y, method="kcr", pairs=kind, n_pairs=3000)
    assert few.report.rows_compared == 100  # 10 for each of three classes
    assert 1500 <= few.report.n_pairs <= 4500
    held = few.report.held_out
    drawn = f"100 of {len(X) - held} rows were sampled for the fit, besides {held} held out to choose the radius"
    assert any(note.startswith(drawn) for note in few.report.notes)
    nearest = few.neighbors(X, k=2)[0][:, 1]
    assert np.mean(y[nearest] != y) < 0.05


# -------------------------------------------------------------------------------------------------------------- radius


@pytest.mark.parametrize("compiled", [False, True], ids=["numpy", "compiled"])
def test_validated_radius_is_the_best_of_the_grid_by_plain_votes(compiled, monkeypatch):
    monkeypatch.setattr(radius_module, "COMPILE_FROM", 0 if compiled else 10**9)
    rng = np.random.default_rng(3)
    codes, held_codes = rng.integers(3, size=80), rng.integers(3, size=40)
    centres = rng.normal(size=(3, 2))
    Z, held = (centres[c] + 0.7 * rng.normal(size=(len(c), 2)) for c in (codes, held_codes))

    def error(h):
        wrong = 0
        for row, truth in zip(held, held_codes, strict=True):
            D = np.square(Z - row).sum(axis=1)
            votes = np.bincount(codes[h >= D], minlength=3)
            nearest = codes[D.argmin()]
            wrong += (nearest if votes[nearest] == votes.max() else votes.argmax()) != truth
        return wrong / len(held)

    grid = np.append(2.0 * FACTORS, 0)
    found, least, joint = validated(Z, codes, held, held_codes, 2.0)
    table = [error(h) for h in grid]
    assert least == min(table)
    assert found == grid[int(np.argmin(table))]
    assert joint == error(2.0)
    assert least < joint  # else the test shows nothing


def test_bandwidth_is_joint_for_all_pairs_and_validated_for_a_sample(wine):
    X, y = wine
    assert mf.learn(X, y, method="kcr").report.bandwidth == "joint"
    report = mf.learn(X, y, method="kcr", pairs="random", n_pairs=6000).report
    assert (report.bandwidth, report.held_out) == ("validated", 18)
    assert report.held_out_error <= report.joint_error
    asked = mf.learn(X, y, method="kcr", bandwidth="validated").report
    assert (asked.bandwidth, asked.rows_compared, asked.pairs) == ("validated", 160, "all")


# -------------------------------------------------------------------------------------------------- degenerate and bad


def test_rows_alone_in_their_class_lose_at_least_one_each():
    X, y = instance(1, 16)
    y = y.copy()
    y[:3] = y.max() + 1 + np.arange(3)
    metric = mf.learn(X, y, method="kcr", lam=1.0, kernel=Linear(), tol=1e-3)
    assert metric.report.objective >= 3
    assert metric.report.objective <= 1.001 * sdp(X, y, 1.0)
    assert any("3 class(es) have one row" in note for note in metric.report.notes)


def test_one_class_is_refused():
    with pytest.raises(InputError, match=r"y has 1 class over 5 labelled rows.*at least two classes"):
        mf.learn(np.eye(5), np.zeros(5), method="kcr")


def test_classes_of_one_row_each_are_refused_before_any_work(monkeypatch):
    monkeypatch.setattr("metricforge.space.FeatureMap.of_rows", None)
    y = np.append(np.arange(300.0), np.nan)
    with pytest.raises(InputError, match=r"y has 300 classes over 300 labelled rows.*give labels that rows share"):
        mf.learn(np.random.default_rng(0).normal(size=(301, 3)), y, method="kcr")


@pytest.mark.parametrize("kernel", [Linear(), RBF(1.0)], ids=["linear", "rbf"])
def test_identical_rows_are_refused(kernel):
    with pytest.raises(InputError, match="no two labelled rows differ under the kernel"):
        mf.learn(np.ones((6, 3)), [0, 0, 1, 1, 2, 2], method="kcr", kernel=kernel)


def test_duplicates_with_two_labels_are_learned_from():
    X, y = instance(2, 14)
    X, y = np.repeat(X, 2, axis=0), np.append(y, np.roll(y, 1))
    metric = mf.learn(X, y, method="kcr", lam=1.0, kernel=Linear(), tol=1e-3)
    optimum = sdp(X, y, 1.0)
    assert metric.report.lower_bound <= optimum * (1 + 1e-6)
    assert metric.report.objective <= 1.001 * optimum


def test_three_rows_and_a_constant_feature():
    X, y = np.array([[0.0], [0.2], [1.0]]), np.array([0, 0, 1])
    report = mf.learn(np.hstack([X, np.ones((3, 1))]), y, method="kcr", kernel=Linear(), lam=0.1, tol=1e-3).report
    assert report.objective == pytest.approx(sdp(X, y, 0.1), rel=1e-3)


@pytest.mark.parametrize("rows", [[[-1.0], [1.0]], [[-1.0, -1.0], [1.0, 1.0]], [[-1.0, 0.0], [1.0, 0.0]]])
def test_classes_with_the_same_mean_have_a_start(rows):
    X, y = np.array(rows * 6), np.repeat([0, 1, 2], 4)
    report = mf.learn(X, y, method="kcr", kernel=Linear(), lam=1.0, tol=1e-3).report
    assert report.status == "optimal"
    assert report.objective == pytest.approx(sdp(X, y, 1.0), rel=1e-3)


@pytest.mark.parametrize("unit", [1e-8, 1e8, 1e-100])
def test_the_unit_of_the_features_changes_nothing(unit):
    X, y = instance(3, 30)
    own, other = (mf.learn(c * X, y, method="kcr", kernel=Linear()) for c in (1.0, unit))
    assert other.report.status == "optimal"
    assert other.report.objective == pytest.approx(own.report.objective, rel=1e-6)
    assert_allclose(other.distance(unit * X[:5], unit * X[5:]), own.distance(X[:5], X[5:]), rtol=1e-3, atol=1e-3)


def test_a_penalty_beyond_reason_gives_no_metric_and_says_so(wine):
    X, y = wine
    metric = mf.learn(X, y, method="kcr", lam=1e5, tol=1e-3)
    assert metric.report.learned_rank == 0
    assert metric.report.gap <= 1e-3 * metric.report.objective
    assert any("every distance is 0" in note for note in metric.report.notes)
    assert metric.distance(X[:5]).max() == 0


def test_unlabelled_rows_are_left_out_and_counted():
    X, y = instance(4, 20)
    mixed = y.astype(float)
    mixed[:4] = np.nan
    part = mf.learn(X, mixed, method="kcr", kernel=Linear(), lam=1.0)
    alone = mf.learn(X[4:], y[4:], method="kcr", kernel=Linear(), lam=1.0)
    assert part.report.unlabelled == 4
    assert part.report.objective == pytest.approx(alone.report.objective, rel=1e-9)
    assert any("4 row(s) have no label" in note for note in part.report.notes)


def test_default_penalty_is_root_n_times_the_mean_squared_distance(wine):
    X, y = wine
    lam = mf.learn(X, y, method="kcr", kernel=Linear(), tol=0.1).report.lam
    D = np.square(X[:, None] - X).sum(axis=2)
    assert lam == pytest.approx(np.sqrt(len(X)) * D.mean())


BAD = {
    "lam": [0, -1.0, np.nan, np.inf, "big", True],
    "pairs": ["some", 3],
    "n_pairs": [0, 2.5, True],
    "bandwidth": ["both"],
    "bound": ["square"],
    "tol": [0, -1e-3, "fine"],
    "max_iter": [0, 1.5, None],
}


@pytest.mark.parametrize(("name", "value"), [(name, v) for name, values in BAD.items() for v in values], ids=str)
def test_bad_options_are_named(name, value):
    with pytest.raises(InputError, match=f"{name}"):
        KCR(**{name: value})


def test_contradicting_options_are_refused():
    with pytest.raises(InputError, match='n_pairs=100 contradicts pairs="all"'):
        KCR(pairs="all", n_pairs=100)


# ------------------------------------------------------------------------------------------------------------- the core


def test_the_kit_accepts_it():
    check_method("kcr")
    for options in ({"pairs": "neighbors"}, {"bound": "logistic"}, {"bandwidth": "validated"}):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            check_solver(KCR(**options), RBF("median"))


@pytest.mark.parametrize(
    "options",
    [{}, {"pairs": "random", "n_pairs": 6000}, {"pairs": "neighbors"}, {"bandwidth": "validated"}],
    ids=["all", "random", "neighbors", "validated"],
)
def test_dask_rows_give_the_same_metric(options, wine):
    import dask.array as da

    X, y = wine
    memory = mf.learn(X, y, method="kcr", rank=40, seed=3, **options)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*chunks", category=Warning)
        lazy = mf.learn(da.from_array(X, chunks=(50, -1)), y, method="kcr", rank=40, seed=3, **options)
    assert lazy.report.radius == pytest.approx(memory.report.radius, rel=1e-8)
    assert lazy.report.objective == pytest.approx(memory.report.objective, rel=1e-8)
    D = memory.distance(X[:60])
    assert np.abs(lazy.distance(X[:60]) - D).max() <= 1e-8 * D.max()


def test_csr_rows_give_the_same_metric():
    from scipy.sparse import csr_array

    X, y = instance(2, 24)
    X = np.where(np.abs(X) < 0.5, 0, X)
    dense, sparse = (mf.learn(rows, y, method="kcr", kernel=RBF(0.2)) for rows in (X, csr_array(X)))
    # a step on rounding's edge may go either way, so the metrics agree as far as the gap tells them apart
    assert sparse.report.objective == pytest.approx(dense.report.objective, rel=1e-3)
    assert_allclose(sparse.distance(X), dense.distance(X), atol=0.02 * dense.distance(X).max())


def test_the_order_of_rows_and_the_basis_of_features_change_rounding_only():
    """In a fit of 50 steps rounding has not grown: see the page for longer ones."""
    from scipy.sparse import csr_array

    X, y = instance(11, 60, d=6)
    order = np.random.default_rng(0).permutation(60)
    options = {"method": "kcr", "kernel": RBF(0.1), "max_iter": 50}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        first = mf.learn(X, y, **options)
        others = [mf.learn(X[order], y[order], **options), mf.learn(csr_array(X), y, **options)]
    D = first.distance(X)
    for other in others:
        assert np.abs(other.distance(X) - D).max() <= 1e-6 * D.max()


def drawn(seed):
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(12, 70)), int(rng.integers(2, 7))
    y = rng.permutation(np.arange(n) % int(rng.integers(2, 4)))
    X = rng.normal(size=(n, d)) + rng.choice([0.5, 1.5]) * rng.normal(size=(4, d))[y]
    return X, y, [None, mf.kernels.Linear(), RBF("median")][seed % 3], rng.permutation(n)


@pytest.mark.parametrize("seed", [31, 36, 38, 44, 54])
def test_small_problems_do_not_depend_on_the_order_of_rows(seed):
    X, y, kernel, order = drawn(seed)
    D = mf.learn(X, y, method="kcr", kernel=kernel).distance(X)
    other = mf.learn(X[order], y[order], method="kcr", kernel=kernel)
    assert np.abs(other.distance(X) - D).max() <= 1e-8 * D.max()


@pytest.mark.parametrize(("seed", "tol"), [(8, 1e-3), (12, 1e-3), (56, 1e-2)])
def test_no_decision_depends_on_the_basis_of_the_features(seed, tol):
    """A run ended by the largest entry of a gradient, and the start took axes where all directions were alike."""
    X, y, kernel, order = drawn(seed)
    options = {"method": "kcr", "kernel": kernel, "tol": tol}
    first = mf.learn(X, y, **options)
    for again in (order, order[::-1], np.roll(order, 5)):
        other = mf.learn(X[again], y[again], **options)
        assert other.report.n_iter == first.report.n_iter
        assert other.report.objective == pytest.approx(first.report.objective, rel=1e-6)


def test_what_the_tolerance_leaves_open_is_decided_by_the_thirteenth_digit():
    """The page's reason why distances of long fits depend on the order of rows.

    Which changes make a large difference is up to the rounding of the processor, so many are tried.
    """
    X, y, kernel, order = drawn(0)
    options = {"method": "kcr", "kernel": kernel, "tol": 1e-3}
    first = mf.learn(X, y, **options)
    D = first.distance(X)
    permuted, *perturbed = [
        mf.learn(X[order], y[order], **options),
        *(
            mf.learn((1 + 1e-13 * rng.standard_normal(X.shape)) * X, y, **options)
            for rng in map(np.random.default_rng, range(24))
        ),
    ]
    apart = [float(np.abs(other.distance(X) - D).max() / D.max()) for other in (permuted, *perturbed)]
    assert apart[0] <= 10 * max(apart[1:])
    for other in (permuted, *perturbed):
        assert abs(other.report.objective - first.report.objective) <= max(first.report.gap, other.report.gap)


def test_report_is_saved_with_the_metric(tmp_path, wine):
    X, y = wine
    metric = mf.learn(X[::3], y[::3], method="kcr", bandwidth="validated")
    metric.save(tmp_path / "wine.metric")
    back = mf.load(tmp_path / "wine.metric")
    assert back.report.radius == metric.report.radius
    assert_allclose(back.distance(X[:9], X[9:20]), metric.distance(X[:9], X[9:20]))


def test_coordinates_whiten_and_keep_distances_and_the_trace(wine):
    Phi = wine[0]
    mean, S = Phi.mean(axis=0), np.cov(Phi.T, bias=True)
    axes = coordinates(Phi, mean)
    F = axes.features(Phi, mean)
    assert_allclose(axes.root @ F, (Phi - mean).T, atol=1e-10)
    unit = np.trace(S) / len(S)
    assert_allclose(axes.inverse @ (S + unit * np.eye(len(S))) @ axes.inverse.T, np.eye(len(S)) / len(S), atol=1e-9)
    P = np.random.default_rng(0).normal(size=(len(F), 2))
    L = axes.factor(P)
    assert np.vdot(P, axes.trace @ P) == pytest.approx(np.vdot(L, L))
    assert_allclose(F.T @ P, (Phi - mean) @ L, atol=1e-10)


def test_start_is_that_of_discriminant_analysis_with_a_ridge(wine):
    from scipy.linalg import eigh

    X, y = wine
    mean, S = X.mean(axis=0), np.cov(X.T, bias=True)
    axes = coordinates(X, mean)
    F = axes.features(X, mean)
    Y = (F.T @ discriminant(F, y))[:, :2]
    own = np.array([X[y == c].mean(axis=0) for c in range(3)])
    between = np.cov(own[y].T, bias=True)
    _, V = eigh(between, S + np.trace(S) / len(S) * np.eye(len(S)))
    theirs = (X - mean) @ V[:, :-3:-1]
    for mine, other in zip(Y.T, theirs.T, strict=True):
        assert abs(np.corrcoef(mine, other)[0, 1]) == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("name", ["iris", "wine"])
def test_papers_sets_reach_the_gap(name, data_folder):
    X, y = mf.datasets.load(name)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    report = mf.learn(X, y, method="kcr", tol=1e-3).report
    assert report.gap <= 1e-3 * report.objective


@pytest.mark.parametrize("n_pairs", [1, 5, 40])
def test_few_pairs_that_leave_classes_out_are_solved(n_pairs):
    X = np.random.default_rng(0).normal(size=(30, 3))
    metric = mf.learn(X, np.arange(30) % 3, method="kcr", n_pairs=n_pairs)
    assert np.isfinite(metric.distance(X)).all()


def test_a_tolerance_below_rounding_ends_without_a_limit_of_steps():
    rng = np.random.default_rng(3)
    y = np.arange(12) % 2
    X = rng.normal(size=(12, 3)) + y[:, None]
    with pytest.warns(ConvergenceWarning, match="rounding prevents more"):
        metric = mf.learn(X, y, method="kcr", bound="hinge", max_iter=10**30, tol=1e-300)
    assert metric.report.status == "stalled"


def test_evaluations_are_bounded_as_steps_are(monkeypatch):
    """A line search may take 30 evaluations in every step, for as many steps as max_iter allows."""
    from metricforge_plugins.kcr import descent, lbfgs

    evaluations = []
    plain = lbfgs._search

    def slow(evaluate, x, *rest):
        for _ in range(29):
            evaluate(x)
        evaluations.append(29)
        return plain(evaluate, x, *rest)

    monkeypatch.setattr(lbfgs, "_search", slow)
    X, y = instance(11, 40, d=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        report = mf.learn(X, y, method="kcr", max_iter=200, tol=1e-9).report
    assert report.status == "iteration_limit"
    assert sum(evaluations) <= descent.EVALUATIONS * 200 + 60
