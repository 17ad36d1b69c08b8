"""ITML on pairs and LSML on quadruplets, and what can be predicted for tuples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.metrics import precision_recall_curve, roc_auc_score, roc_curve

import metricforge as mf
from metricforge.errors import InputError
from metricforge.validation import number, one_of

from .mahalanobis import MahalanobisMixin, check_fitted
from .priors import prior_factor
from .rows import Array, tuples

STRATEGIES = ("accuracy", "f_beta", "max_tpr", "max_tnr")


class PairsClassifier(ClassifierMixin):  # type: ignore[misc]
    """Tells similar pairs from dissimilar ones by a threshold on the learned distance.

    Attributes
    ----------
    threshold_ : float
        Pairs no further apart than this are predicted to be similar.
    """

    classes_ = np.array([-1, 1])
    pair_score: Any  # of the estimator

    def decision_function(self, pairs: Any) -> Array:
        """Return minus the distance of each pair."""
        return np.asarray(self.pair_score(pairs))

    def predict(self, pairs: Any) -> Array:
        """Return 1 for pairs predicted to be similar, −1 for others."""
        check_fitted(self)
        if not hasattr(self, "threshold_"):
            raise InputError("threshold_ is missing: call set_threshold or calibrate_threshold first")
        return np.where(-self.decision_function(pairs) <= self.threshold_, 1, -1)

    def score(self, pairs: Any, y: Any) -> float:
        """Return the area under the ROC curve."""
        return float(roc_auc_score(_signs(y), self.decision_function(pairs)))

    def set_threshold(self, threshold: float) -> Self:
        """Set the largest distance of a pair that is predicted to be similar."""
        check_fitted(self)
        try:
            self.threshold_ = float(threshold)
        except (TypeError, ValueError):
            raise InputError(f"threshold must be a number, got {threshold!r}") from None
        return self

    def calibrate_threshold(
        self,
        pairs_valid: Any,
        y_valid: Any,
        strategy: str = "accuracy",
        min_rate: float | None = None,
        beta: float = 1.0,
    ) -> Self:
        """Choose the threshold on given pairs.

        Parameters
        ----------
        strategy : {"accuracy", "f_beta", "max_tpr", "max_tnr"}
            What is largest: the accuracy, the F score with ``beta``, the rate of similar pairs found while the rate of
            dissimilar ones is at least ``min_rate``, or the other way round.
        """
        check_fitted(self)
        check_calibration(strategy, min_rate, beta)
        y = _signs(y_valid)
        distance = -self.decision_function(pairs_valid)
        if len(distance) != len(y):
            raise InputError(f"y_valid has {len(y)} values for {len(distance)} pairs")
        self.threshold_ = best_threshold(distance, y, strategy, min_rate, beta)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.target_tags.required = True
        return tags


def check_calibration(strategy: Any, min_rate: Any, beta: Any) -> None:
    """Raise if the options of a calibration are wrong."""
    one_of(strategy, "strategy", STRATEGIES)
    if strategy in ("max_tpr", "max_tnr"):
        number(min_rate, "min_rate", least=0, most=1)
    if strategy == "f_beta":
        number(beta, "beta")  # only its square is used


def best_threshold(distance: Array, y: Array, strategy: str, min_rate: float | None, beta: float) -> float:
    """Return the largest distance that counts as similar, by `PairsClassifier.calibrate_threshold`."""
    candidates = np.unique(distance)
    # a threshold below all distances calls every pair dissimilar
    thresholds = np.concatenate([[np.nextafter(candidates[0], -np.inf)], candidates])
    similar = np.sort(distance[y == 1])
    different = np.sort(distance[y == -1])
    found = np.searchsorted(similar, thresholds, side="right")  # similar pairs called similar
    wrong = np.searchsorted(different, thresholds, side="right")
    if strategy == "accuracy":
        return float(thresholds[np.argmax(found - wrong)])
    if strategy == "f_beta":
        precision, recall, scores = precision_recall_curve(y, -distance, pos_label=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            f = (1 + beta**2) * precision * recall / (beta**2 * precision + recall)
        return float(-scores[int(np.argmax(np.nan_to_num(f[:-1])))])
    assert min_rate is not None
    false_rate, true_rate, scores = roc_curve(y, -distance, pos_label=1, drop_intermediate=False)
    true_negative = 1 - false_rate
    kept, wanted = (true_negative, true_rate) if strategy == "max_tpr" else (true_rate, true_negative)
    allowed = np.flatnonzero(kept >= min_rate)
    best = allowed[int(np.argmax(wanted[allowed]))]
    return float(thresholds[0] if not np.isfinite(scores[best]) else -scores[best])


def _signs(given: Any) -> Array:
    y: Array = np.asarray(given)
    if y.ndim != 1 or not np.isin(y, (-1, 1)).all():
        raise InputError(f"y must hold 1 for similar and -1 for dissimilar pairs, got {np.unique(y)!r}")
    return y


class ITML(PairsClassifier, MahalanobisMixin):
    """Information-theoretic metric learning from pairs: see the method ``itml``.

    Parameters
    ----------
    gamma : float
    max_iter : int
    tol : float
        The duality gap to reach, relative to the objective.
    prior : {"identity", "covariance", "random"} or (d, d) array
    verbose : bool
        Ignored: a progress bar is a plugin of metricforge.
    preprocessor : array or callable, optional
    random_state : int or RandomState, optional
    kernel : metricforge Kernel or name, optional
        Default: linear.

    Attributes
    ----------
    bounds_ : (2,) array
        Squared distances: similar pairs shall be nearer than the first, dissimilar pairs further than the second.
    """

    ignored: ClassVar[dict[str, Any]] = {"verbose": False}

    def __init__(
        self,
        gamma: float = 1.0,
        max_iter: int = 1000,
        tol: float = 1e-3,
        prior: Any = "identity",
        verbose: bool = False,
        preprocessor: Any = None,
        random_state: Any = None,
        kernel: Any = None,
    ) -> None:
        self.gamma = gamma
        self.max_iter = max_iter
        self.tol = tol
        self.prior = prior
        self.verbose = verbose
        self.preprocessor = preprocessor
        self.random_state = random_state
        self.kernel = kernel

    def fit(self, pairs: Any, y: Any, bounds: Any = None, calibration_params: Mapping[str, Any] | None = None) -> Self:
        """Learn from (p, 2, d) pairs and y, 1 for similar and −1 for dissimilar pairs; set the threshold on them.

        ``bounds`` are squared distances; default: the 5th and the 95th percentile of the squared distances of all rows.
        """
        calibration = dict(calibration_params or {})
        unknown = set(calibration) - {"strategy", "min_rate", "beta"}
        if unknown:
            raise InputError(f"calibration_params has the unknown name(s) {', '.join(sorted(unknown))}")
        check_calibration(
            calibration.get("strategy", "accuracy"), calibration.get("min_rate"), calibration.get("beta", 1.0)
        )
        self._start()
        formed = tuples(pairs, self.preprocessor_, 2, type(self).__name__)
        y = _signs(y)
        if len(y) != len(formed):
            raise InputError(f"y has {len(y)} values for {len(formed)} pairs")
        learn_pairs(self, formed, y, bounds)
        return self.calibrate_threshold(pairs, y, **calibration)


def learn_pairs(estimator: Any, pairs: Array, y: Array, bounds: Any) -> None:
    """Fit an estimator with the parameters of ITML on formed pairs."""
    p, _, d = pairs.shape
    estimator.n_features_in_ = d
    X = np.concatenate([pairs[:, 0], pairs[:, 1]])  # every pair has rows of its own, so none are merged
    index = np.column_stack([np.arange(p), np.arange(p) + p])
    estimator.bounds_ = percentile_bounds(X) if bounds is None else _given_bounds(bounds)
    estimator._learn(
        X,
        mf.Pairs(index[y == 1], index[y == -1], n=2 * p),
        "itml",
        n_pairs="all",
        prior=prior_factor(estimator.prior, X, estimator.random_state),
        gamma=estimator.gamma,
        max_iter=estimator.max_iter,
        tol=estimator.tol,
        bounds=tuple(map(float, estimator.bounds_)),
    )


def percentile_bounds(X: Array, most: int = 1000) -> Array:
    """Return the 5th and 95th percentile of the squared distances between different rows, at most 1000 of them."""
    X = np.unique(X, axis=0)
    if len(X) > most:
        X = X[np.random.default_rng(0).choice(len(X), most, replace=False)]
    if len(X) < 2:
        raise InputError("X: fewer than 2 different rows (one sample), so there is no distance to learn from")
    with np.errstate(over="ignore"):
        squared = np.concatenate([np.square(X[row + 1 :] - X[row]).sum(axis=1) for row in range(len(X) - 1)])
    if not np.isfinite(squared).all():
        raise InputError("X: some squared distances overflow; rescale X, for instance with StandardScaler")
    near, far = np.percentile(squared, [5, 95])
    tiny = np.finfo(float).tiny
    return np.array([max(near, tiny), max(far, tiny)])


def _given_bounds(bounds: Any) -> Array:
    found = np.ravel(np.asarray(bounds, dtype=np.float64))
    if found.shape != (2,) or not np.isfinite(found).all() or found.min() < 0 or found[0] > found[1]:
        raise InputError(f"bounds must be two squared distances (near, far) with 0 <= near <= far, got {bounds!r}")
    return np.maximum(found, 1e-9)


class LSML(MahalanobisMixin):
    """Metric learning from comparisons of two pairs: see the method ``lsml``.

    Parameters
    ----------
    tol : float
        The bound to reach, relative to the objective.
    max_iter : int
    prior : {"identity", "covariance", "random"} or (d, d) array
    verbose : bool
        Ignored.
    preprocessor : array or callable, optional
    random_state : int or RandomState, optional
    kernel : metricforge Kernel or name, optional
        Default: linear.
    """

    classes_ = np.array([-1, 1])
    ignored: ClassVar[dict[str, Any]] = {"verbose": False}

    def __init__(
        self,
        tol: float = 1e-3,
        max_iter: int = 1000,
        prior: Any = "identity",
        verbose: bool = False,
        preprocessor: Any = None,
        random_state: Any = None,
        kernel: Any = None,
    ) -> None:
        self.tol = tol
        self.max_iter = max_iter
        self.prior = prior
        self.verbose = verbose
        self.preprocessor = preprocessor
        self.random_state = random_state
        self.kernel = kernel

    def fit(self, quadruplets: Any, weights: Any = None) -> Self:
        """Learn from (q, 4, d) quadruplets: the first two rows are more alike than the last two."""
        self._start()
        learn_quadruplets(self, tuples(quadruplets, self.preprocessor_, 4, type(self).__name__), weights)
        return self

    def decision_function(self, quadruplets: Any) -> Array:
        """Return the distance of the last two rows minus that of the first two."""
        check_fitted(self)
        formed = tuples(quadruplets, self.preprocessor_, 4, type(self).__name__)
        return np.asarray(self._distances(formed[:, 2:]) - self._distances(formed[:, :2]))

    def predict(self, quadruplets: Any) -> Array:
        """Return 1 where the first pair is nearer, −1 where the second is, 0 for a tie."""
        return np.sign(self.decision_function(quadruplets))

    def score(self, quadruplets: Any) -> float:
        """Return the share of quadruplets whose first pair is nearer; a tie counts one half."""
        return float(np.mean(self.predict(quadruplets)) / 2 + 0.5)


def learn_quadruplets(estimator: Any, quadruplets: Array, weights: Any) -> None:
    """Fit an estimator with the parameters of LSML on formed quadruplets."""
    q, _, d = quadruplets.shape
    estimator.n_features_in_ = d
    X = quadruplets.transpose(1, 0, 2).reshape(4 * q, d)
    index = np.arange(4 * q).reshape(4, q).T
    estimator._learn(
        X,
        mf.Quadruplets(index, n=4 * q),
        "lsml",
        prior=prior_factor(estimator.prior, X, estimator.random_state),
        weights=None if weights is None else tuple(np.asarray(weights, dtype=float).tolist()),
        max_iter=estimator.max_iter,
        tol=estimator.tol,
    )
