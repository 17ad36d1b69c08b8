"""The kernel classification rule: training rows within a radius vote, in a learned metric."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted

from .. import neighbors
from .. import rows as _rows
from ..constraints import Labels
from ..errors import InputError
from ..kernels import squared_euclidean
from ..metric import Metric
from ..resolve import providing
from ..space import check_memory
from ..validation import number_or, one_of, shown
from .learner import MetricLearner, check_lengths, one_column, validated

Array = NDArray[Any]

QUERIES = 1024
"""Queries per block; the number of training rows in it follows from the memory of a block."""
TIE_BREAK = 1e-6
"""Share of the votes that the nearest row's class gains in a tie: it decides, and is invisible in a probability."""


class KernelRule(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classify by the votes of the training rows near the query: arg max_l Σ_i 1{y_i = l} κ(ρ(x, x_i) / radius).

    ρ is the metric of ``learner``, computed in its embedding (``metric.transform``).  If several classes have the most
    votes, the class of the nearest training row wins if it is one of them, otherwise the first of them in
    ``classes_``.  If no training row is within the radius, all classes tie, so the nearest row decides.

    Parameters
    ----------
    learner : MetricLearner or Metric, optional
        Learns the metric; default: ``MetricLearner(method, random_state=0)`` with the first method for labels that
        also learns a radius.
        Its parameters can be tuned as ``learner__solver__lam``.  A Metric is used as it is.
    radius : "learned" or float >= 0
        "learned" uses ``metric.report.radius``; for methods that report none, give a number.
    window : {"naive", "gaussian", "epanechnikov", "cauchy", "learned"}
        κ(u): 1 for u <= 1 and 0 beyond; exp(−u²); 1 − u² for u <= 1 and 0 beyond; 1 / (1 + u^(d+1)), where d is the
        dimension of the embedding.  "learned" uses ``metric.report.window``, and the naive one where there is none: a
        radius is learned for that window.

    Attributes
    ----------
    classes_ : array
    metric_ : Metric
        The metric of the fitted learner, or the one given.
    radius_ : float
    n_features_in_ : int
        The number of features seen during fit, if rows have features.

    Notes
    -----
    Prediction takes O(q n d) time for q queries and n training rows, and memory for blocks of 64 MB in addition to the
    n × d embedding; never q × n.

    References
    ----------
    B. K. Sriperumbudur, O. A. Lang, G. R. G. Lanckriet. Metric embedding for kernel classification rules. ICML 2008,
    eq. (2) and Sec. 1 for the windows.
    """

    def __init__(
        self, learner: MetricLearner | Metric | None = None, radius: float | str = "learned", window: str = "naive"
    ) -> None:
        self.learner = learner
        self.radius = radius
        self.window = window

    def fit(self, X: Any, y: Any) -> Self:
        """Learn the metric, unless it is given, and store the embedded rows; a failed fit changes nothing."""
        before = dict(self.__dict__)
        try:
            self._fit(X, y)
        except BaseException:
            self.__dict__.clear()
            self.__dict__.update(before)
            raise
        return self

    def _fit(self, X: Any, y: Any) -> None:
        self._check_options()
        if self._takes_arrays(X):
            X, y = validated(self, X, y)
        else:
            y = one_column(y)
            check_lengths(X, y)
        if y.dtype.kind == "f" and (y != np.rint(y)).any():  # scikit-learn's own check also warns of small classes
            raise InputError("y: Unknown label type: continuous; give classes, not numbers with fractions")
        try:
            classes, codes = np.unique(y, return_inverse=True)
        except TypeError:
            raise InputError("y mixes classes that cannot be ordered, or has none for some rows; give str") from None
        learner = self._learner()
        metric = learner if isinstance(learner, Metric) else clone(learner).fit(X, y).metric_
        radius = metric.report.get("radius") if isinstance(self.radius, str) else self.radius
        if radius is None:
            raise InputError(
                f"radius='learned', but the metric of method {metric.report.get('method')!r} reports no radius; "
                "give radius as a number"
            )
        # class by class, so that the votes of a class are one contiguous sum
        order = np.argsort(codes, kind="stable")
        Z = _embedded(metric, X)[order]
        self.classes_, self.metric_, self.radius_ = classes, metric, float(radius)
        self._rows, self._codes = Z, codes[order]

    def predict(self, X: Any) -> Array:
        """Return the class with the most votes for each row of X."""
        votes = self._votes(X)
        return np.asarray(self.classes_[votes.argmax(axis=1)])

    def predict_proba(self, X: Any) -> Array:
        """Return the share of the votes of each class, (n, classes)."""
        votes = self._votes(X)
        return np.asarray(votes / votes.sum(axis=1, keepdims=True))

    def decision_function(self, X: Any) -> Array:
        """Return the shares of the votes, (n, classes); for two classes second minus first, (n,)."""
        shares = self.predict_proba(X)
        return shares if len(self.classes_) != 2 else shares[:, 1] - shares[:, 0]

    # -- votes ---------------------------------------------------------------------------------------------------

    def _votes(self, X: Any) -> Array:
        """Return the (n, classes) votes, with ties broken."""
        check_is_fitted(self)
        if self._takes_arrays(X):
            X = validated(self, X, reset=False)
        Q = _embedded(self.metric_, X)
        votes = np.zeros((len(Q), len(self.classes_)))
        step = max(1, _rows.block_bytes() // (8 * QUERIES))
        for q0 in range(0, len(Q), QUERIES):
            part = slice(q0, q0 + QUERIES)
            for t0 in range(0, len(self._rows), step):
                voters = slice(t0, t0 + step)
                weights = self._weights(squared_euclidean(Q[part], self._rows[voters]))
                present, starts = np.unique(self._codes[voters], return_index=True)
                votes[part, present] += np.add.reduceat(weights, starts, axis=1)
        return self._break_ties(Q, votes)

    def _weights(self, D: Array) -> Array:
        """Return κ(u) from squared distances."""
        h = min(self.radius_, 1e150) ** 2
        if h == 0:
            return np.asarray(D == 0, dtype=np.float64)  # the limit of every window for radius → 0
        with np.errstate(over="ignore"):
            D /= h
        window = self.metric_.report.get("window", "naive") if self.window == "learned" else self.window
        return np.asarray(WINDOWS[window](D, self._rows.shape[1]))

    def _break_ties(self, Q: Array, votes: Array) -> Array:
        most = votes.max(axis=1)
        tied = np.flatnonzero(((votes == most[:, None]).sum(axis=1) > 1) | (most == 0))
        if len(tied):
            closest = self._codes[neighbors.search(self._rows, 1, queries=Q[tied])[0][:, 0]]
            leads = votes[tied, closest] == most[tied]
            tied, closest = tied[leads], closest[leads]
            votes[tied, closest] += np.where(most[tied] > 0, TIE_BREAK * most[tied], 1.0)
        return votes

    # -- parameters ----------------------------------------------------------------------------------------------

    def _learner(self) -> Any:
        return MetricLearner(providing("radius", Labels), random_state=0) if self.learner is None else self.learner

    def _check_options(self) -> None:
        one_of(self.window, "window", [*WINDOWS, "learned"])
        number_or(self.radius, "radius", ["learned"], least=0)
        if not isinstance(self._learner(), MetricLearner | Metric):
            raise InputError(f"learner must be a MetricLearner, a Metric or None, got {shown(self.learner)}")

    def _takes_arrays(self, X: Any) -> bool:
        return bool(self.__sklearn_tags__().input_tags.two_d_array) and not _rows.is_dask(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        learner = self._learner()
        if isinstance(learner, Metric):
            learner = MetricLearner(kernel=learner.kernel)
        if isinstance(learner, MetricLearner):  # otherwise fit raises
            tags.input_tags = learner.__sklearn_tags__().input_tags
        return tags


def _embedded(metric: Metric, X: Any) -> Array:
    """Return the float64 embedding of X in memory; for a dask array the embedding is gathered, not the rows."""
    Z = metric.transform(X)
    if _rows.is_dask(Z):
        check_memory(8 * Z.shape[0] * Z.shape[1], f"a {Z.shape[0]} × {Z.shape[1]} embedding", "give fewer rows")
        Z = Z.compute()
    return np.asarray(Z, dtype=np.float64)


# ------------------------------------------------------------------------------------------------------------- windows
# κ as a function of u² and the dimension d; each may overwrite its argument.


def _naive(square: Array, d: int) -> Array:
    return (square <= 1).astype(np.float64)


def _gaussian(square: Array, d: int) -> Array:
    return np.exp(np.negative(square, out=square), out=square)


def _epanechnikov(square: Array, d: int) -> Array:
    return np.maximum(np.subtract(1, square, out=square), 0, out=square)


def _cauchy(square: Array, d: int) -> Array:
    with np.errstate(over="ignore"):  # a weight of 0 is intended
        np.power(square, (d + 1) / 2, out=square)
    square += 1
    return np.reciprocal(square, out=square)


WINDOWS: dict[str, Callable[[Array, int], Array]] = {
    "naive": _naive,
    "gaussian": _gaussian,
    "epanechnikov": _epanechnikov,
    "cauchy": _cauchy,
}
