"""The estimators of metricforge_classics: scikit-learn's checks, priors, starts, thresholds, bad input."""

from __future__ import annotations

import json
import subprocess
import sys

import metricforge_classics as classics
import numpy as np
import pytest
from metricforge_classics.tuples import best_threshold
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.datasets import load_iris, make_regression
from sklearn.metrics import accuracy_score, fbeta_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import metricforge as mf
from metricforge.errors import InputError

X, Y = load_iris(return_X_y=True)
X, Y = X[::3], Y[::3]
PAIRS = np.random.default_rng(0).permutation(50).reshape(25, 2)
SIGN = np.where(Y[PAIRS[:, 0]] == Y[PAIRS[:, 1]], 1, -1)


@parametrize_with_checks([classics.LFDA(), classics.Covariance()])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


def test_the_package_is_the_namespace_and_loads_nothing_heavy():
    assert mf.classics is classics
    code = "import sys, json, metricforge_classics; print(json.dumps('sklearn' in sys.modules))"
    assert json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout) is False
    with pytest.raises(AttributeError, match="no attribute 'XYZ'"):
        _ = classics.XYZ


@pytest.mark.parametrize("prior", ["covariance", "random", np.diag([1.0, 2, 3, 4])], ids=str)
def test_a_prior_is_the_metric_without_pairs_that_matter(prior):
    weak = classics.ITML(prior=prior, gamma=1e-9, random_state=0, preprocessor=X).fit(PAIRS, SIGN)
    M = weak.get_mahalanobis_matrix()
    if isinstance(prior, np.ndarray):
        assert_allclose(M, prior, rtol=1e-4, atol=1e-6)
    if isinstance(prior, str) and prior == "covariance":
        rows = np.unique(X[PAIRS].reshape(-1, 4), axis=0)
        assert_allclose(M, np.linalg.inv(np.cov(rows, rowvar=False)), rtol=1e-4)
    assert np.linalg.eigvalsh(M)[0] > 0


@pytest.mark.parametrize(
    ("prior", "error"),
    [
        ("best", InputError),
        (np.eye(3), InputError),
        (np.triu(np.ones((4, 4))), InputError),
        (np.diag([1.0, 1, 1, -1]), InputError),
        (np.diag([1.0, 1, 1, 0]), np.linalg.LinAlgError),
    ],
)
def test_wrong_priors(prior, error):
    with pytest.raises(error, match="prior"):
        classics.ITML(prior=prior, preprocessor=X).fit(PAIRS, SIGN)


@pytest.mark.parametrize("init", ["auto", "identity", "pca", "lda", "random", np.eye(4)[:2]], ids=str)
def test_starts(init):
    for make in (classics.NCA, classics.LMNN):
        model = make(init=init, n_components=2, max_iter=30, random_state=0)
        model = model.set_params(convergence_tol=1.0) if make is classics.LMNN else model
        assert model.fit(X, Y).components_.shape == (2, 4)
    with pytest.raises(InputError, match="init must have 4 columns"):
        classics.NCA(init=np.eye(3)).fit(X, Y)
    with pytest.raises(InputError, match="needs classes"):
        classics.MLKR(init="lda").fit(X, Y)


def test_regression_prefers_the_informative_columns():
    A, b = make_regression(n_samples=60, n_features=4, n_informative=1, random_state=0)
    model = classics.MLKR(n_components=2).fit(A, b)
    assert model.metric_.report.r2 > 0.9
    assert model.transform(A).shape == (60, 2)


@pytest.mark.parametrize("seed", range(5))
def test_thresholds_are_the_best(seed):
    rng = np.random.default_rng(seed)
    y = rng.choice([-1, 1], size=40)
    distance = rng.normal(size=40) ** 2 - 0.5 * y + 1
    tried = np.append(np.unique(distance), 0.0)

    def best(score):
        return max(score(np.where(distance <= t, 1, -1)) for t in tried)

    def predicted(strategy, min_rate=None, beta=1.0):
        return np.where(distance <= best_threshold(distance, y, strategy, min_rate, beta), 1, -1)

    assert accuracy_score(y, predicted("accuracy")) == pytest.approx(best(lambda p: accuracy_score(y, p)))
    f = lambda p: fbeta_score(y, p, beta=0.5, zero_division=0)  # noqa: E731
    assert f(predicted("f_beta", beta=0.5)) == pytest.approx(best(f))
    for strategy, kept, wanted in (("max_tpr", -1, 1), ("max_tnr", 1, -1)):
        p = predicted(strategy, min_rate=0.7)
        assert np.mean(p[y == kept] == kept) >= 0.7
        others = [np.where(distance <= t, 1, -1) for t in tried]
        allowed = [np.mean(o[y == wanted] == wanted) for o in others if np.mean(o[y == kept] == kept) >= 0.7]
        assert np.mean(p[y == wanted] == wanted) == pytest.approx(max(allowed))


def test_bad_input_is_a_value_error_that_names_it():
    itml, lmnn = classics.ITML(), classics.LMNN()
    for call, words in (
        (lambda: itml.fit(X[PAIRS], SIGN * 2), "y must hold 1"),
        (lambda: itml.fit(X[PAIRS], SIGN[1:]), "24 values for 25 pairs"),
        (lambda: itml.fit(PAIRS, SIGN), "3-d"),
        (lambda: itml.fit(np.zeros((5, 3, 2)), np.ones(5)), "2 rows in each tuple"),
        (lambda: itml.fit(X[PAIRS], SIGN, bounds=(2, 1)), "bounds"),
        (lambda: itml.fit(X[PAIRS], SIGN, calibration_params={"beta2": 1}), "beta2"),
        (lambda: itml.fit(X[PAIRS], SIGN, calibration_params={"strategy": "best"}), "strategy"),
        (lambda: classics.LFDA().fit(X, np.arange(50)), "no class varies"),
        (lambda: classics.LMNN(n_components=5).fit(X, Y), "n_components must be between 1 and"),
        (lambda: classics.ITML(preprocessor=3).fit(PAIRS, SIGN), "preprocessor must be"),
        (lambda: classics.ITML(preprocessor=lambda i: 1 / 0).fit(PAIRS, SIGN), "ZeroDivisionError"),
        (lambda: lmnn.fit(X, Y).transform(X[:, :2]), "X has 2 features"),
        (lambda: lmnn.fit(X, Y).get_metric()(X[0, :2], X[1]), "must have 4 features"),
        (lambda: classics.Constraints(Y).chunks(1000), "at most"),
    ):
        with pytest.raises(ValueError, match=words):
            call()


def test_clones_and_repeated_fits():
    model = classics.ITML_Supervised(random_state=3, n_constraints=20)
    one, other = (clone(model).fit(X, Y).components_ for _ in range(2))
    assert np.array_equal(one, other)
    metric = model.fit(X, Y).get_metric()
    before = metric(X[0], X[60 % 50])
    model.fit(np.sin(X), Y)
    assert metric(X[0], X[60 % 50]) == before


def test_the_decision_of_lsml_changes_no_attribute_that_another_thread_reads():
    class Frozen(mf.classics.LSML):
        def __setattr__(self, name, value):
            assert not hasattr(self, "metric_"), f"{name} is set after the fit"
            super().__setattr__(name, value)

    X = np.random.default_rng(0).normal(size=(30, 2))
    quadruplets = np.random.default_rng(1).permuted(np.tile(np.arange(30), (20, 1)), axis=1)[:, :4]
    fitted = mf.classics.LSML(preprocessor=X).fit(quadruplets)
    expected = fitted.decision_function(quadruplets)
    fitted.__class__ = Frozen
    np.testing.assert_array_equal(fitted.decision_function(quadruplets), expected)
    far, near = (fitted.pair_distance(quadruplets[:, part]) for part in (slice(2, 4), slice(0, 2)))
    np.testing.assert_allclose(far - near, expected)
