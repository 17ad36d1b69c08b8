"""The paper's other choices for kcr against convex programs: windows, log Σ exp, separate kernels, the dimension."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from metricforge_cases.kcr_programs import (
    WINDOWS,
    Program,
    best_direction,
    cauchy,
    features,
    instance,
    logsumexp_value,
    majorant,
    naive,
    searched,
    signs,
    weights,
    window_value,
)
from metricforge_plugins.kcr.certificate import certify
from metricforge_plugins.kcr.objective import Loss, Objective, Smoothing
from metricforge_plugins.kcr.pairs import all_pairs, random_groups
from metricforge_plugins.kcr.solver import KCR
from numpy.testing import assert_allclose

import metricforge as mf
from metricforge.errors import ConvergenceWarning, InputError
from metricforge.testing import check_solver

RBF, Linear = mf.kernels.RBF, mf.kernels.Linear
# ------------------------------------------------------------------------------------------------------ log Σ exp


@pytest.mark.filterwarnings("ignore::metricforge.errors.ConvergenceWarning")
@pytest.mark.parametrize(
    ("seed", "gaussian", "lam"), [(0, False, 1.0), (1, True, 1.0), (2, False, 3.0), (3, True, 0.5)]
)
def test_logsumexp_bound_reaches_the_optimum_of_its_program(seed, gaussian, lam):
    X, y = instance(seed)
    kernel = RBF(0.2) if gaussian else Linear()
    F = features(kernel, X) if gaussian else X
    program = Program([F])
    optimum = program.least(naive(program, y, pooled=False) + lam * program.penalty)
    metric = mf.learn(X, y, method="kcr", kernel=kernel, lam=lam, maximum="logsumexp", tol=1e-3)
    report = metric.report
    assert optimum * (1 - 1e-5) <= report.objective <= 1.001 * optimum
    assert 0.98 * optimum <= report.lower_bound <= optimum * (1 + 1e-5)
    D = metric.distance(X) ** 2
    value = logsumexp_value(D, report.radius**2, y) + lam * np.trace(metric.kernel.W)
    assert value == pytest.approx(report.objective, rel=1e-7)


def test_logsumexp_of_two_classes_is_their_sum():
    X, y = instance(5, classes=2)
    one, other = (mf.learn(X, y, method="kcr", lam=1.0, maximum=how, tol=1e-5) for how in ("sum", "logsumexp"))
    assert one.report.objective == pytest.approx(other.report.objective, rel=1e-4)
    assert_allclose(one.distance(X), other.distance(X), atol=1e-2)


@given(draw=st.integers(0, 10**6), h=st.floats(0, 3), mu=st.floats(1e-6, 2), size=st.floats(0, 2))
@settings(max_examples=60)
def test_logsumexp_bound_is_never_above_its_optimum(draw, h, mu, size):
    X, y = instance(7, 12)
    optimum = OPTIMUM.setdefault("7", None)
    if optimum is None:
        program = Program([X])
        optimum = OPTIMUM["7"] = program.least(naive(program, y, pooled=False) + program.penalty)
    rng = np.random.default_rng(draw)
    objective = Objective(np.ascontiguousarray(X.T), all_pairs(y), np.eye(3), loss=Loss(pooled=False))
    P = size * rng.normal(size=(3, 2))
    found = certify(objective, np.eye(3), 1.0, P, h, Smoothing(mu))
    assert found.bound <= optimum * (1 + 1e-6)
    assert objective.exact(P, h) >= optimum * (1 - 1e-6)


OPTIMUM: dict[str, float | None] = {}


@pytest.mark.parametrize("kind", ["all", "random"])
@pytest.mark.parametrize(
    "loss",
    [Loss(pooled=False), Loss(True, False), *(Loss(window=w, d=2) for w in WINDOWS), Loss(True, False, "gaussian")],
    ids=str,
)
def test_gradients_are_differences(loss, kind):
    rng = np.random.default_rng(0)
    y, F = np.sort(np.arange(24) % 3), rng.normal(size=(4, 24))
    pairs = all_pairs(y) if kind == "all" else random_groups(y, 12, rng)
    objective = Objective(F, pairs, np.eye(4), loss=loss)
    P, h, smoothing = 0.4 * rng.normal(size=(4, 2)), 1.2, Smoothing(0.3, logistic=loss.logistic)
    _, G, slope = objective(P, h, smoothing)
    step = 1e-6
    for at in np.ndindex(P.shape):
        E = np.zeros_like(P)
        E[at] = step
        ends = [objective(P + s * E, h, smoothing)[0] for s in (1, -1)]
        assert G[at] == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-5, abs=1e-5)
    ends = [objective(P, h + s * step, smoothing)[0] for s in (1, -1)]
    assert slope == pytest.approx((ends[0] - ends[1]) / (2 * step), rel=1e-5, abs=1e-5)


# -------------------------------------------------------------------------------------------------------- windows


@pytest.mark.parametrize(("seed", "gaussian"), [(0, False), (1, True), (2, False), (3, True)])
@pytest.mark.parametrize("window", ["gaussian", "epanechnikov"])
def test_a_window_leads_to_a_point_that_minimises_its_convex_majorant(seed, gaussian, window):
    """A stationary point of a difference of convex functions; the residual bounds what the majorant still gains."""
    X, y = instance(seed, 14)
    kernel = RBF(0.2) if gaussian else Linear()
    metric = mf.learn(X, y, method="kcr", kernel=kernel, lam=0.3, window=window, tol=1e-3)
    report = metric.report
    assert report.status == "stationary"
    assert report.certificate.kind == "gradient"
    assert report.radius == 1
    D = metric.distance(X) ** 2
    F = features(kernel, X) if gaussian else X
    assert window_value(D, y, window, 1) + 0.3 * np.trace(metric.kernel.W) == pytest.approx(report.objective, rel=1e-6)
    assert report.objective < window_value(0 * D, y, window, 1)  # something was learned
    program = Program([F])
    least = program.least(majorant(program, y, [weights(metric, X, F)], [F], window) + 0.3 * program.penalty)
    assert (report.objective - least) / report.objective <= 2e-3


@pytest.mark.parametrize("window", list(WINDOWS))
def test_a_window_with_few_components_is_stationary_in_its_factor(window):
    X, y = instance(4, 30)
    metric = mf.learn(X, y, method="kcr", kernel=Linear(), lam=0.3, window=window, n_components=2, tol=1e-3)
    assert metric.report.status == "stationary"
    assert np.linalg.matrix_rank(metric.kernel.W, tol=1e-8) <= 2
    D = metric.distance(X) ** 2
    value = window_value(D, y, window, 2) + 0.3 * np.trace(metric.kernel.W)
    assert value == pytest.approx(metric.report.objective, rel=1e-6)
    # no small change of the factor lowers it by more than the residual allows
    w, V = np.linalg.eigh(metric.kernel.W)
    L = V[:, -2:] * np.sqrt(np.maximum(w[-2:], 0))
    rng = np.random.default_rng(0)
    for _ in range(50):
        E = rng.normal(size=L.shape)
        E *= 1e-3 * np.linalg.norm(L) / np.linalg.norm(E)
        Y = X @ (L + E)
        moved = np.square(Y[:, None] - Y).sum(axis=2)
        change = window_value(moved, y, window, 2) + 0.3 * np.square(L + E).sum() - value
        assert change >= -1e-3 * (metric.report.gap + 1e-2 * value)


def test_the_rule_takes_the_window_that_was_learned():
    X, y = instance(4, 40)
    metric = mf.learn(X, y, method="kcr", window="gaussian", lam=0.3)
    assert metric.report.window == "gaussian"
    learned, named = (mf.tasks.KernelRule(metric, window=w).fit(X, y) for w in ("learned", "gaussian"))
    assert_allclose(learned.predict_proba(X), named.predict_proba(X))
    other = mf.tasks.KernelRule(mf.learn(X, y, method="kcr"), window="learned").fit(X, y)
    assert_allclose(other.predict_proba(X), mf.tasks.KernelRule(other.metric_).fit(X, y).predict_proba(X))


# ----------------------------------------------------------------------------------- a kernel for each coordinate


@pytest.mark.filterwarnings("ignore::metricforge.errors.ConvergenceWarning")
@pytest.mark.parametrize(("seed", "lam"), [(0, 1.0), (1, 0.3), (2, 3.0), (3, 1.0)])
def test_separate_kernels_reach_the_optimum_of_theorem_1(seed, lam):
    X, y = instance(seed, 14)
    kernel = Linear() + 2.0 * RBF(0.3)
    blocks = [X, features(2.0 * RBF(0.3), X)]
    program = Program(blocks)
    optimum = program.least(naive(program, y) + lam * program.penalty)
    metric = mf.learn(X, y, method="kcr", kernel=kernel, kernels="separate", lam=lam, tol=1e-3)
    report = metric.report
    assert optimum * (1 - 1e-5) <= report.objective <= 1.001 * optimum
    assert 0.98 * optimum <= report.lower_bound <= optimum * (1 + 1e-5)
    parts = metric.kernel.kernels
    penalty = sum(np.trace(part.W) for part in parts)
    tau, D = signs(y), metric.distance(X) ** 2
    inner = np.maximum(1 + tau * (D - report.radius**2), 0).sum(axis=1)
    value = np.maximum(2 - (tau > 0).sum(axis=1) + inner, 0).sum() + lam * penalty
    assert value == pytest.approx(report.objective, rel=1e-7)
    # the sum of the kernels has a larger space: its optimum is no larger
    joint = Program([np.hstack(blocks)])
    assert joint.least(naive(joint, y) + lam * joint.penalty) <= optimum * (1 + 1e-6)


def test_separate_kernels_are_saved_validated_and_sampled(tmp_path, wine):
    X, y = wine
    kernel = RBF(0.05) + Linear()
    metric = mf.learn(X, y, method="kcr", kernel=kernel, kernels="separate", pairs="random", n_pairs=6000, rank=30)
    assert metric.report.bandwidth == "validated"
    assert metric.report.held_out_error <= 0.1
    metric.save(tmp_path / "two.metric")
    assert_allclose(mf.load(tmp_path / "two.metric").distance(X[:9]), metric.distance(X[:9]))
    Z = metric.transform(X[:20])
    assert_allclose(np.sqrt(np.square(Z[:, None] - Z).sum(axis=2)), metric.distance(X[:20]), atol=1e-7)


def test_separate_kernels_need_a_sum():
    X, y = instance(0)
    with pytest.raises(InputError, match='kernels="separate" needs a sum of kernels'):
        mf.learn(X, y, method="kcr", kernel=RBF(0.2), kernels="separate")


# --------------------------------------------------------------------------------------------------- the dimension


@pytest.mark.filterwarnings("ignore::metricforge.errors.ConvergenceWarning")
@pytest.mark.parametrize("seed", range(4))
def test_enough_components_reach_the_optimum_and_fewer_bound_it(seed):
    X, y = instance(seed, 18)
    program = Program([X])
    optimum = program.least(naive(program, y) + program.penalty)
    objectives = []
    for k in (1, 2, 3):
        report = mf.learn(X, y, method="kcr", kernel=Linear(), lam=1.0, n_components=k, tol=1e-3).report
        assert report.learned_rank <= k
        assert report.lower_bound <= optimum * (1 + 1e-6)
        assert report.objective >= optimum * (1 - 1e-6)
        assert (report.status == "optimal") == (report.gap <= 1e-3 * report.objective)
        objectives.append(report.objective)
    assert objectives[-1] <= 1.001 * optimum
    assert objectives[0] >= objectives[2] * (1 - 1e-3)


@pytest.mark.parametrize("seed", [0, 2])
def test_one_component_is_the_best_direction_in_the_plane(seed):
    """For rows of two columns: W = s uu', a convex program in s and h for each of 180 directions u."""
    X, y = instance(seed, 16, d=2)
    least = best_direction(X, y)
    report = mf.learn(X, y, method="kcr", kernel=Linear(), lam=1.0, n_components=1, tol=1e-4).report
    assert 0.998 * least <= report.objective <= 1.01 * least


# ------------------------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"maximum": "max"}, "maximum"),
        ({"window": "flat"}, "window"),
        ({"kernels": "both"}, "kernels"),
        ({"n_components": 0}, "n_components"),
        ({"maximum": "logsumexp", "pairs": "neighbors"}, 'maximum="logsumexp"'),
        ({"window": "gaussian", "bandwidth": "validated"}, "window='gaussian'"),
        ({"window": "cauchy"}, "n_components"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(InputError, match=message):
        KCR(**options)


@pytest.mark.parametrize(
    "options",
    [{"maximum": "logsumexp"}, {"window": "gaussian"}, {"window": "cauchy", "n_components": 2}, {"n_components": 1}],
    ids=str,
)
def test_the_kit_accepts_every_option(options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        check_solver(KCR(**options), RBF("median"))


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_any_options_on_few_rows_give_a_metric_or_a_sentence(data):
    """Tiny numbers of pairs, equal rows, one row per class, any penalty: finite distances, or an InputError."""
    draw = data.draw
    n = draw(st.integers(2, 12))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    X = draw(st.sampled_from([1.0, 1e-100, 1e100, 1e8])) * rng.integers(-2, 3, size=(n, 2))
    y = rng.integers(draw(st.integers(1, 4)), size=n)
    options = {
        "n_pairs": draw(st.sampled_from([None, 1, 2, 3, 5, 9])),
        "pairs": draw(st.sampled_from(["auto", "random", "neighbors"])),
        "maximum": draw(st.sampled_from(["sum", "logsumexp"])),
        "window": draw(st.sampled_from(["naive", "naive", "gaussian", "epanechnikov"])),
        "n_components": draw(st.sampled_from([None, 1, 3])),
        "lam": draw(st.sampled_from(["auto", 1e-6, 1.0, 1e6])),
        "max_iter": 40,
    }
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            metric = mf.learn(X, y, method="kcr", kernel=draw(st.sampled_from([Linear(), RBF(1.0)])), **options)
    except InputError:
        return
    report = metric.report
    assert np.isfinite(metric.distance(X)).all()
    assert report.status != "optimal" or report.gap <= 5e-2 * report.objective
    assert report.status != "optimal" or options["window"] == "naive"


def test_a_cauchy_point_of_lower_rank_is_next_to_none_that_is_much_better():
    # one more dimension would lower the linear model of the votes by 2 %, the objective itself by less than tol
    above, _, gap, stationary = cauchy(110)
    assert above > 0.02
    assert gap < 1e-3
    assert stationary
    assert searched(110)[0] < 1e-3
