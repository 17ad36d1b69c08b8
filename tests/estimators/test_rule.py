"""The kernel classification rule against plain loops over votes."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import metricforge as mf
from metricforge.errors import ConvergenceWarning, InputError
from metricforge.estimators import rule as kernelrule
from metricforge.tasks import KernelRule

WINDOWS = ("naive", "gaussian", "epanechnikov", "cauchy")


def euclidean(X):
    """The metric of the rows themselves."""
    return mf.learn(X, np.zeros(len(X)), method="euclidean", kernel="linear")


def votes_of(X, y, A, radius, window):
    """Σ_i 1{y_i = l} κ(‖a − x_i‖ / radius), pair by pair."""
    d = X.shape[1]
    kappa = {
        "naive": lambda u: float(u <= 1),
        "gaussian": lambda u: np.exp(-(u**2)),
        "epanechnikov": lambda u: max(0.0, 1 - u**2),
        "cauchy": lambda u: 1 / (1 + u ** (d + 1)),
    }[window]
    classes = np.unique(y)
    votes = np.zeros((len(A), len(classes)))
    for i, a in enumerate(A):
        for x, label in zip(X, y, strict=True):
            votes[i, np.searchsorted(classes, label)] += kappa(np.linalg.norm(a - x) / radius)
    return classes, votes


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=90)
    X = rng.normal(size=(90, 2)) + 1.5 * rng.normal(size=(3, 2))[y]
    return X[:60], np.array(["a", "b", "c"])[y[:60]], X[60:], np.array(["a", "b", "c"])[y[60:]]


# --------------------------------------------------------------------------------------------------------------- votes


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("radius", [0.3, 1.0, 3.0])
def test_votes_are_the_paper_s_sums(rows, window, radius, monkeypatch):
    X, y, A, _ = rows
    rule = KernelRule(euclidean(X), radius=radius, window=window).fit(X, y)
    classes, votes = votes_of(X, y, A, radius, window)
    nearest = y[np.square(A[:, None] - X).sum(axis=2).argmin(axis=1)]
    leads = votes == votes.max(axis=1, keepdims=True)
    wins = leads[np.arange(len(A)), np.searchsorted(classes, nearest)] & (leads.sum(axis=1) > 1)
    expected = np.where(wins, nearest, classes[votes.argmax(axis=1)])
    assert_array_equal(rule.predict(A), expected)
    full = votes.sum(axis=1) > 0
    shares = votes[full] / votes[full].sum(axis=1, keepdims=True)
    assert_allclose(rule.predict_proba(A)[full], shares, atol=2e-6)
    whole = rule.predict_proba(A)
    monkeypatch.setattr(kernelrule, "QUERIES", 7)
    monkeypatch.setattr(kernelrule._rows, "BLOCK_BYTES", 8 * 7 * 11)
    assert_allclose(rule.predict_proba(A), whole, rtol=1e-12)


@given(seed=st.integers(0, 10**6), radius=st.floats(0, 5), window=st.sampled_from(WINDOWS))
@settings(max_examples=40)
def test_probabilities_sum_to_one_and_agree_with_the_prediction(seed, radius, window):
    rng = np.random.default_rng(seed)
    X, y = rng.integers(-2, 3, size=(12, 2)).astype(float), rng.integers(3, size=12)
    A = rng.integers(-4, 5, size=(8, 2)).astype(float)
    rule = KernelRule(euclidean(X), radius=radius, window=window).fit(X, y)
    shares = rule.predict_proba(A)
    assert_allclose(shares.sum(axis=1), 1)
    assert_array_equal(rule.predict(A), rule.classes_[shares.argmax(axis=1)])
    decided = rule.decision_function(A)
    if len(rule.classes_) == 2:
        assert_array_equal(rule.predict(A), rule.classes_[(decided > 0).astype(int)])
    else:
        assert_array_equal(decided, shares)


def test_an_empty_ball_takes_the_nearest_row_with_certainty():
    X, y = np.array([[0.0], [1.0], [10.0]]), [5, 5, 7]
    rule = KernelRule(euclidean(X), radius=0.1).fit(X, y)
    assert_array_equal(rule.predict([[0.4], [6.0], [-100.0]]), [5, 7, 5])
    assert_array_equal(rule.predict_proba([[6.0]]), [[0.0, 1.0]])


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("radius", [0.0, 1e-200, 1e-9])
def test_all_balls_empty_is_the_nearest_neighbour_rule(rows, window, radius):
    X, y, A, _ = rows
    rule = KernelRule(euclidean(X), radius=radius, window=window).fit(X, y)
    nearest = y[np.square(A[:, None] - X).sum(axis=2).argmin(axis=1)]
    if window != "cauchy" or radius < 1e-100:  # whose window never ends
        assert_array_equal(rule.predict(A), nearest)
    assert_array_equal(rule.predict(X), y)
    assert np.isfinite(rule.predict_proba(A)).all()


def test_ties_go_to_the_nearest_row_s_class_else_to_the_first():
    X = np.array([[0.0], [1.0], [2.0], [3.0]])
    rule = KernelRule(euclidean(X), radius=10.0).fit(X, [1, 0, 1, 0])
    assert_array_equal(rule.predict([[-1.0], [3.5], [0.9]]), [1, 0, 0])
    # classes 1 and 2 tie with two votes each; the nearest row is of class 0, which has one
    X = np.array([[0.0], [1.0], [-1.0], [1.1], [-1.1]])
    rule = KernelRule(euclidean(X), radius=5.0).fit(X, [0, 2, 1, 1, 2])
    assert_array_equal(rule.predict([[0.0]]), [1])
    assert_allclose(rule.predict_proba([[0.0]]), [[0.2, 0.4, 0.4]], atol=1e-6)


def test_identical_rows_vote_together():
    X = np.zeros((5, 2))
    rule = KernelRule(euclidean(np.eye(2)), radius=1.0).fit(X, [0, 0, 0, 1, 1])
    assert_array_equal(rule.predict([[0.0, 0.0], [9.0, 9.0]]), [0, 0])
    assert_allclose(rule.predict_proba([[0.0, 0.0]]), [[0.6, 0.4]], atol=1e-6)


def test_one_class():
    X = np.eye(3)
    rule = KernelRule(euclidean(X), radius=1.0).fit(X, ["only"] * 3)
    assert_array_equal(rule.predict([[0.0, 0.0, 9.0]]), ["only"])
    with pytest.raises(InputError, match="at least two classes"):
        KernelRule().fit(X, ["only"] * 3)


def test_single_member_classes_are_found_again(rows):
    X, _, _, _ = rows
    y = np.append(np.zeros(len(X) - 1, dtype=int), 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        rule = KernelRule().fit(X, y)
    assert_array_equal(rule.classes_, [0, 1])
    assert rule.score(X, y) >= 1 - 2 / len(X)


# ------------------------------------------------------------------------------------------------------------ learning


def test_the_default_learns_metric_and_radius(wine):
    X, y = wine
    rule = KernelRule().fit(X[::2], y[::2])
    assert rule.radius_ == rule.metric_.report.radius
    assert rule.metric_.report.method == "kcr"
    assert rule.score(X[1::2], y[1::2]) >= 0.93
    # and the radius is the learned one: the rule by the metric's own distances
    D = rule.metric_.distance(X[1::2], X[::2])
    votes = (rule.radius_ >= D) @ np.eye(3)[y[::2]]
    clear = np.sort(votes, axis=1)[:, -1] > np.sort(votes, axis=1)[:, -2]
    assert clear.mean() > 0.9
    assert_array_equal(rule.predict(X[1::2])[clear], votes.argmax(axis=1)[clear])


def test_another_learner_needs_a_radius(wine):
    X, y = wine
    learner = mf.MetricLearner("euclidean", kernel=mf.kernels.Linear())
    with pytest.raises(InputError, match="method 'euclidean' reports no radius; give radius as a number"):
        KernelRule(learner).fit(X, y)
    assert KernelRule(learner, radius=3.0).fit(X[::2], y[::2]).score(X[1::2], y[1::2]) > 0.9


def test_a_metric_is_taken_as_it_is(wine, tmp_path):
    X, y = wine
    metric = mf.learn(X[::2], y[::2], method="kcr")
    rule = KernelRule(metric).fit(X[::2], y[::2])
    assert rule.metric_ is metric
    assert rule.radius_ == metric.report.radius
    metric.save(tmp_path / "wine.metric")
    loaded = KernelRule(mf.load(tmp_path / "wine.metric")).fit(X[::2], y[::2])
    assert_array_equal(loaded.predict(X), rule.predict(X))
    assert_array_equal(clone(rule).fit(X[::2], y[::2]).predict(X), rule.predict(X))


def test_strings():
    texts = ["aab", "aaba", "abaa", "ccd", "ccdc", "dcc"]
    y = [0, 0, 0, 1, 1, 1]
    metric = mf.learn(texts, y, method="euclidean", kernel=mf.kernels.Spectrum(k=2).normalized())
    assert_array_equal(KernelRule(metric, radius=1.0).fit(texts, y).predict(["aabaa", "cccd"]), [0, 1])
    learner = mf.MetricLearner("kcr", kernel=mf.kernels.Spectrum(k=2).normalized(), random_state=0)
    assert_array_equal(KernelRule(learner).fit(texts, y).predict(["aabaa", "cccd"]), [0, 1])


def test_sparse_and_dask_rows_are_classified_alike(wine):
    import dask.array as da
    from scipy.sparse import csr_array

    X, y = wine
    rule = KernelRule(mf.MetricLearner("kcr", rank=40, random_state=0)).fit(X, y)
    assert_array_equal(rule.predict(csr_array(X)), rule.predict(X))
    lazy = da.from_array(X, chunks=(60, -1))
    again = clone(rule).fit(lazy, y)
    assert again.radius_ == pytest.approx(rule.radius_, rel=1e-8)
    assert_allclose(again.predict_proba(lazy), rule.predict_proba(X), atol=1e-8)


def test_grids_and_pipelines(wine):
    X, y = wine
    pipe = make_pipeline(StandardScaler(), KernelRule(mf.MetricLearner("kcr", random_state=0)))
    assert cross_val_score(pipe, X, y, cv=3).mean() > 0.9
    grid = {
        "kernelrule__learner__solver__lam": [20.0, 200.0],
        "kernelrule__learner__solver__tol": [1e-2],
        "kernelrule__window": ["naive", "gaussian"],
        "kernelrule__radius": ["learned", 1.0],
    }
    search = GridSearchCV(pipe, grid, cv=2).fit(X, y)
    assert search.best_score_ > 0.9


# ----------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"window": "boxcar"}, "window='boxcar' is unknown"),
        ({"window": None}, "window=None is unknown"),
        ({"radius": -1.0}, 'radius must be "learned" or a finite number of at least 0, got -1.0'),
        ({"radius": np.nan}, "radius must be"),
        ({"radius": "joint"}, "radius must be"),
        ({"radius": None}, "radius must be"),
        ({"radius": True}, "radius must be"),
        ({"learner": "kcr"}, "learner must be a MetricLearner, a Metric or None, got 'kcr'"),
    ],
    ids=str,
)
def test_bad_options_are_named(options, words):
    with pytest.raises(InputError, match=words):
        KernelRule(**options).fit(np.eye(4), [0, 0, 1, 1])


def test_a_failed_fit_leaves_the_previous_one(wine):
    X, y = wine
    rule = KernelRule(radius=1.0).fit(X[::3], y[::3])
    before = rule.predict(X)
    with pytest.raises(InputError, match="at least two classes"):
        rule.fit(X[:5, :4], np.zeros(5))
    assert rule.n_features_in_ == X.shape[1]
    assert_array_equal(rule.predict(X), before)


def test_unfitted_and_misshapen():
    with pytest.raises(NotFittedError):
        KernelRule().predict(np.eye(2))
    rule = KernelRule(euclidean(np.eye(3)), radius=1.0).fit(np.eye(3), [0, 1, 1])
    with pytest.raises(ValueError, match="features"):
        rule.predict(np.eye(2))
    with pytest.raises(ValueError, match="inconsistent"):
        rule.fit(np.eye(3), [0, 1])


def test_name_is_exposed_by_tasks():
    assert mf.tasks.KernelRule is KernelRule
    with pytest.raises(AttributeError, match="no attribute 'KernelRuler'"):
        _ = mf.tasks.KernelRuler


@pytest.mark.filterwarnings("ignore::metricforge.errors.ConvergenceWarning")
@parametrize_with_checks([KernelRule()])
def test_scikit_learn_s_own_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("window", ["naive", "gaussian"])
@pytest.mark.parametrize("radius", [1e-300, 1e300])
def test_radii_beyond_reason_give_finite_shares(window, radius, rng):
    X = 1e3 * rng.normal(size=(4, 2))
    for y in ([0, 0, 0, 0], [0, 1, 2, 3]):
        rule = KernelRule(mf.MetricLearner("euclidean"), radius=radius, window=window).fit(X, y)
        assert_allclose(rule.predict_proba(X + 1.0).sum(axis=1), 1.0)


def test_fractions_are_no_classes(rng):
    with pytest.raises(InputError, match="Unknown label type: continuous"):
        KernelRule(mf.MetricLearner("euclidean"), radius=1.0).fit(rng.normal(size=(3, 2)), [0.5, 1.0, 0.5])


def test_classes_that_cannot_be_ordered_are_an_input_error(rng):
    with pytest.raises(InputError, match=r"^y mixes classes that cannot be ordered"):
        KernelRule(mf.MetricLearner("euclidean"), radius=1.0).fit(rng.normal(size=(3, 2)), [1, None, "a"])
