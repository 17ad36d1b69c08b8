"""What all estimators share: the fit by metricforge, distances, transformation, and the matrix where there is one."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

import metricforge as mf
from metricforge.errors import InputError
from metricforge.space import LearnedKernel, explicit_map

from .rows import Array, as_preprocessor, points, tuples


class MahalanobisMixin(BaseEstimator):  # type: ignore[misc]
    """A learned metric, by default linear in the columns.

    Attributes
    ----------
    metric_ : metricforge.Metric
        The learned metric, with its report.
    gap_ : float
        The certificate: what it is stands in ``metric_.report.certificate``.
    components_ : (n_components, n_features) array
        The linear map L.  Not there if ``kernel`` is not linear.
    n_iter_ : int
    n_features_in_ : int
    """

    preprocessor: Any
    ignored: ClassVar[dict[str, Any]] = {}
    """Parameters without a meaning here, and their defaults."""

    # -- fitting -------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        """Check parameters that are accepted and have no effect; form the preprocessor."""
        given = [name for name, default in self.ignored.items() if getattr(self, name) != default]
        if given:
            warnings.warn(
                f"{type(self).__name__} ignores {', '.join(given)}: the solver of metricforge has no such setting",
                FutureWarning,
                stacklevel=4,
            )
        self.preprocessor_ = as_preprocessor(self.preprocessor)

    def _points(self, given: Any) -> Array:
        X = points(given, self.preprocessor_, type(self).__name__)
        self.n_features_in_ = X.shape[1]
        return X

    def _seed(self) -> int:
        # an estimator without the parameter draws nothing that it does not fix
        return int(check_random_state(getattr(self, "random_state", 0)).randint(2**31 - 1))

    def _learn(self, X: Array, constraints: Any, method: str, *, prior: Array | None = None, **options: Any) -> Self:
        """Learn the metric; ``prior`` is the factor of the metric to start from."""
        kernel = getattr(self, "kernel", None)
        d = X.shape[1]
        start = kernel
        if kernel is None:
            factor = np.eye(d) if prior is None else prior
            if d > len(X):  # learn on the span of the rows
                axes = np.linalg.svd(X @ factor.T, full_matrices=False)[2]
                factor = axes @ factor
                if options.get("start") is not None:
                    options["start"] = tuple(map(tuple, (np.asarray(options["start"]) @ axes.T).tolist()))
            linear = mf.kernels.Linear()
            plain = prior is None and d <= len(X)
            start = linear if plain else LearnedKernel.of_factor(explicit_map(linear, d), factor)
        rank = "exact" if kernel is None else "auto"
        metric = mf.learn(X, constraints, method=method, kernel=start, rank=rank, seed=self._seed(), **options)
        return self._conclude(metric, d)

    def _conclude(self, metric: mf.Metric, d: int) -> Self:
        self.metric_ = metric
        self.gap_ = float(metric.report.gap)
        self.n_iter_ = max(1, int(metric.report.n_iter))
        self.__dict__.pop("components_", None)
        if getattr(self, "kernel", None) is None:
            self.components_ = self._padded(np.asarray(metric.embedding.affine(d)[:d].T), d)  # type: ignore[union-attr]
        return self

    def _padded(self, L: Array, d: int) -> Array:
        """Return L with rows of zeros where fewer directions than asked for carry information."""
        wanted = getattr(self, "n_components", None) or d
        return np.concatenate([L, np.zeros((wanted - len(L), d))]) if len(L) < wanted else L

    def _check_components(self, d: int) -> int | None:
        n: Any = getattr(self, "n_components", None)
        if n is not None and not 1 <= n <= d:
            raise InputError(f"n_components must be between 1 and the number of features, {d}; got {n}")
        return None if n is None else int(n)

    # -- distances -----------------------------------------------------------------------------------------------

    def transform(self, X: Any) -> Array:
        """Return the embedding of rows, whose Euclidean distances are the learned ones."""
        check_fitted(self)
        rows = points(X, self.preprocessor_, type(self).__name__)
        if rows.shape[1] != self.n_features_in_:
            raise InputError(
                f"X has {rows.shape[1]} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input"
            )
        return self._embed(rows)

    def _embed(self, X: Array) -> Array:
        if hasattr(self, "components_"):
            return np.asarray(X @ np.atleast_2d(self.components_).T)
        return np.asarray(self.metric_.transform(X))

    def pair_distance(self, pairs: Any) -> Array:
        """Return the learned distance of each pair of rows."""
        check_fitted(self)
        return self._distances(tuples(pairs, self.preprocessor_, 2, type(self).__name__))

    def _distances(self, pairs: Array) -> Array:
        """Return the learned distance of each of (p, 2, d) pairs."""
        if hasattr(self, "components_"):
            return np.asarray(np.sqrt(np.square(self._embed(pairs[:, 1] - pairs[:, 0])).sum(axis=1)))
        return np.asarray(self.metric_.paired_distance(pairs[:, 0], pairs[:, 1]))

    def pair_score(self, pairs: Any) -> Array:
        """Return minus the learned distance of each pair of rows: larger is more similar."""
        return -self.pair_distance(pairs)

    def score_pairs(self, pairs: Any) -> Array:
        """Return `pair_distance`; deprecated in metric-learn."""
        warnings.warn(
            "score_pairs returns distances; use pair_distance, or pair_score for similarities",
            FutureWarning,
            stacklevel=2,
        )
        return self.pair_distance(pairs)

    def get_metric(self) -> Callable[..., float]:
        """Return a function metric(u, v, squared=False) of two rows, which later fits do not change."""
        check_fitted(self)
        if not hasattr(self, "components_"):
            learned = self.metric_

            def distance(u: Any, v: Any, squared: bool = False) -> float:
                d = float(learned.distance(_vector(u), _vector(v)))
                return d * d if squared else d

            return distance
        L = np.atleast_2d(np.array(self.components_))

        def metric(u: Any, v: Any, squared: bool = False) -> float:
            u, v = _vector(u), _vector(v)
            if len(u) != len(v) or len(u) != L.shape[1]:
                raise InputError(f"u and v must have {L.shape[1]} features, got {len(u)} and {len(v)}")
            z = L @ (u - v)
            total = float(z @ z)
            return total if squared else float(np.sqrt(total))

        return metric

    def get_mahalanobis_matrix(self) -> Array:
        """Return M = L'L with d(x, y)² = (x − y)'M(x − y)."""
        check_fitted(self)
        if not hasattr(self, "components_"):
            raise InputError(
                f"kernel={self.kernel!r} is not linear in the columns, so there is no Mahalanobis matrix; use "
                "pair_distance, get_metric or metric_"
            )
        L = np.atleast_2d(self.components_)
        return np.asarray(L.T @ L)


class PointsTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, MahalanobisMixin):  # type: ignore[misc]
    """An estimator that learns from rows, not tuples, and so is a transformer."""

    @property
    def _n_features_out(self) -> int:
        if hasattr(self, "components_"):
            return len(self.components_)
        return int(self.metric_.embedding.columns)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags


def check_fitted(estimator: Any) -> None:
    """Raise NotFittedError before a fit."""
    check_is_fitted(estimator, ["metric_", "components_"], all_or_any=any)


def _vector(x: Any) -> Array:
    """Return one row as a 1-d array; numbers and (1, d) arrays count as rows."""
    v = np.asarray(x, dtype=np.float64)
    v = np.atleast_1d(v)
    if v.ndim == 2 and len(v) == 1:
        v = v[0]
    if v.ndim != 1:
        raise InputError(f"u and v must be single rows (1-d), got an array of shape {v.shape}")
    return v
