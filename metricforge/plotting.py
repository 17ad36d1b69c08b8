"""Pictures of a metric, following scikit-learn's Display convention.

Create a display with ``from_metric`` (or ``from_estimator``).  It draws with ``plot(ax=...)`` on the given axes or on
new ones, and keeps them in ``ax_`` and ``figure_``::

    MapDisplay.from_metric(metric, X, y).figure_.savefig("map.png")

New figures live outside pyplot: no window, no global state.  Pictures of many rows show a sample, drawn by a seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from . import rows as _rows
from .constraints import Constraint, Labels, Satisfied
from .errors import InputError
from .figures import check_installed, colour, draw_lines, grid, legend_text, png, wrapped
from .kernels import Kernel, Linear
from .metric import Metric
from .space import OverFeatures
from .tasks import satisfied

Array = NDArray[Any]

MOST_NAMED = 12
"""Largest number of classes in a legend; more would hide the picture."""
MOST_LINES = 100
"""Largest number of lines of a kind in a map; of more, a sample is drawn."""

__all__ = [
    "ConvergenceDisplay",
    "KernelDisplay",
    "MapDisplay",
    "RelationsDisplay",
    "WeightsDisplay",
    "check_installed",
    "feature_weights",
    "grid",
    "png",
    "principal_plane",
]


class _Display:
    """Base of the displays: axes of the caller, or new ones."""

    ax_: Any
    figure_: Any

    def _on(self, ax: Any, width: float = 5.0, height: float = 4.2) -> Any:
        if ax is None:
            self.figure_, axes = grid(1, 1, width=width, height=height)
            ax = axes[0, 0]
        self.ax_, self.figure_ = ax, ax.figure
        return ax


class KernelDisplay(_Display):
    """The kernel matrix with rows ordered by class: a good one has a bright block per class on the diagonal.

    The matrix is centred and scaled to a unit diagonal: it shows cosines of two rows relative to the mean, which depend
    on the distances only and not on the origin of the kernel.

    Parameters
    ----------
    K : (n, n) array
    codes : (n,) int array
        Class numbers in ascending order, -1 for no class.
    """

    def __init__(self, K: Array, codes: Array) -> None:
        self.K = K
        self.codes = codes

    @classmethod
    def from_metric(
        cls, metric: Metric | Kernel, X: Any = None, y: Any = None, *, sample: int = 300, seed: int = 0, ax: Any = None
    ) -> Self:
        """Draw the kernel matrix of at most ``sample`` rows of X (by default the training rows), ordered by y."""
        kernel, rows, labels, _ = _sampled(metric, X, y, sample, seed)
        order = np.argsort(labels.codes, kind="stable")
        K = _centred(kernel, rows[order])
        scale = np.sqrt(np.maximum(np.diag(K), 0))
        scale = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 1e-9 * scale.max())
        return cls(K * scale[:, None] * scale[None, :], labels.codes[order]).plot(ax=ax)

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any, y: Any = None, **options: Any) -> Self:
        """Draw the kernel matrix of a fitted MetricLearner."""
        return cls.from_metric(_metric_of(estimator), X, y, **options)

    def plot(self, ax: Any = None, *, cmap: str = "viridis") -> Self:
        """Draw the matrix, with lines between classes."""
        ax = self._on(ax, height=4.6)
        ax.imshow(self.K, cmap=cmap, vmin=-1, vmax=1, interpolation="nearest")
        borders = np.flatnonzero(np.diff(self.codes)) + 0.5
        for end in borders:
            thin = 0.8 if len(borders) < MOST_NAMED else 0.3
            ax.axhline(end, color="white", lw=thin)
            ax.axvline(end, color="white", lw=thin)
        ax.set(xticks=[], yticks=[])
        return self


class MapDisplay(_Display):
    """The rows in the plane of largest variance under the metric (kernel PCA), coloured by class.

    Parameters
    ----------
    points : (n, 2) array
    labels : Labels
        Over these rows; unlabelled ones are grey.
    share : float
        The fraction of the variance in the plane.
    constraint : Constraint, optional
        Over these rows.  Its lines are drawn: solid if they should be short, dashed if long.
    """

    def __init__(self, points: Array, labels: Labels, share: float, constraint: Constraint | None = None) -> None:
        self.points = points
        self.labels = labels
        self.share = share
        self.constraint = constraint

    @classmethod
    def from_metric(
        cls,
        metric: Metric | Kernel,
        X: Any = None,
        y: Any = None,
        *,
        constraint: Constraint | None = None,
        pairs: Constraint | None = None,
        sample: int = 1000,
        seed: int = 0,
        ax: Any = None,
    ) -> Self:
        """Map at most ``sample`` rows of X (by default the training rows); one eigendecomposition of that size.

        The lines of ``constraint`` are drawn; ``pairs`` is an older name of it.
        """
        constraint = pairs if constraint is None else constraint
        kernel, rows, labels, chosen = _sampled(metric, X, y, sample, seed)
        points, share = principal_plane(_centred(kernel, rows))
        return cls(points, labels, share, None if constraint is None else constraint[chosen]).plot(ax=ax)

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any, y: Any = None, **options: Any) -> Self:
        """Map rows by a fitted MetricLearner."""
        return cls.from_metric(_metric_of(estimator), X, y, **options)

    def plot(self, ax: Any = None, *, title: str = "class") -> Self:
        """Draw the points, one colour per class, with a legend for up to a dozen classes."""
        ax = self._on(ax)
        names = self.labels.classes
        if (unknown := self.labels.codes < 0).any():
            ax.scatter(*self.points[unknown].T, s=10, alpha=0.6, color="0.7" if len(names) else "C0", linewidths=0)
        for code, name in enumerate(names):
            here = self.points[self.labels.codes == code]
            ax.scatter(*here.T, s=14, alpha=0.8, label=legend_text(name), color=colour(code, len(names)), linewidths=0)
        ax.set(xticks=[], yticks=[], xlabel=f"{self.share:.0%} of the variance")
        if 0 < len(names) <= MOST_NAMED:
            ax.add_artist(ax.legend(title=title, frameon=False, fontsize="small"))
        if self.constraint is not None:
            draw_lines(ax, self.points, self.constraint.lines(), MOST_LINES)
        return self


class ConvergenceDisplay(_Display):
    """The certificate over the iterations: a bound on objective minus optimum, or the optimality residual.

    Parameters
    ----------
    objective, gap : (t,) arrays
    certificate : str
        What ``gap`` is.
    """

    def __init__(self, objective: Array, gap: Array, certificate: str = "gap") -> None:
        self.objective = objective
        self.gap = gap
        self.certificate = certificate

    @classmethod
    def from_metric(cls, metric: Metric, *, ax: Any = None) -> Self:
        """Draw the convergence of a fit, from the trace in its report."""
        trace = np.asarray(metric.report.get("trace", ()), dtype=np.float64).reshape(-1, 2)
        if not len(trace):
            raise InputError("metric: its report has no trace, because the method does not iterate")
        return cls(trace[:, 0], trace[:, 1], str(metric.report["certificate"])).plot(ax=ax)

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> Self:
        """Draw the convergence of a fitted MetricLearner."""
        return cls.from_metric(_metric_of(estimator), ax=ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw the gap on a logarithmic scale."""
        ax = self._on(ax)
        floor = np.finfo(float).eps * max(float(np.abs(self.objective).max()), 1e-300)
        steps = np.arange(1, len(self.gap) + 1)
        ax.semilogy(steps, np.maximum(self.gap, floor), marker="o", ms=3.5, lw=1.5)
        ax.annotate(
            f"{self.gap[-1]:.2g}",
            (steps[-1], max(self.gap[-1], floor)),
            textcoords="offset points",
            xytext=(-7, -3),
            ha="right",
            va="top",
        )
        ax.set(xlabel="recorded step", ylabel="gap (logarithmic)")
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.margins(y=0.12)
        ax.grid(alpha=0.25)
        return self


class RelationsDisplay(_Display):
    """The share of relations that a metric satisfies, before and after learning.

    Parameters
    ----------
    after : sequence of Satisfied
    before : sequence of Satisfied, optional
        Of the same types of relations.
    """

    def __init__(self, after: Sequence[Satisfied], before: Sequence[Satisfied] = ()) -> None:
        self.after = tuple(after)
        self.before = tuple(before)

    @classmethod
    def from_metric(
        cls,
        metric: Metric,
        X: Any,
        constraints: Constraint,
        *,
        before: Metric | Kernel | None = None,
        seed: int = 0,
        ax: Any = None,
    ) -> Self:
        """Count the relations over the rows of X that a metric satisfies and, for comparison, those of ``before``."""
        after = satisfied(metric, X, constraints, seed=seed)
        if not after:
            raise InputError(
                f"constraints: no relation of {constraints.describe()} can be counted; give more relations, or define "
                f"{type(constraints).__name__}.satisfied(distances)"
            )
        return cls(after, () if before is None else satisfied(before, X, constraints, seed=seed)).plot(ax=ax)

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any, constraints: Constraint, **options: Any) -> Self:
        """Count the relations that the metric of a fitted MetricLearner satisfies."""
        return cls.from_metric(_metric_of(estimator), X, constraints, **options)

    def plot(self, ax: Any = None) -> Self:
        """Draw bars, one pair per type of relation."""
        ax = self._on(ax, height=1.1 + 0.95 * len(self.after))
        place = np.arange(len(self.after))
        for shift, label, shade, parts in ((-0.18, "before", "0.7", self.before), (0.18, "after", "C0", self.after)):
            if parts:
                shares = [100 * part.share for part in parts]
                bars = ax.barh(place + shift, shares, height=0.34, color=shade, label=label)
                ax.bar_label(bars, fmt="%.1f %%", padding=3, fontsize="small")
        ax.set_yticks(place, [wrapped(part.condition) for part in self.after])
        ax.set(xlim=(0, 118), xticks=range(0, 101, 25), xlabel="satisfied relations, %")
        ax.invert_yaxis()
        if self.before:
            ax.legend(frameon=False, fontsize="small", loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
        ax.spines[["top", "right"]].set_visible(False)
        return self


class WeightsDisplay(_Display):
    """The weight of each feature in the learned distance.

    Parameters
    ----------
    weights : (d,) array
    names : sequence of d str
    """

    def __init__(self, weights: Array, names: Sequence[str]) -> None:
        self.weights = weights
        self.names = tuple(names)

    @classmethod
    def from_metric(cls, metric: Metric, names: Sequence[str] | None = None, *, most: int = 20, ax: Any = None) -> Self:
        """Draw the weights of the ``most`` heaviest features."""
        weights = feature_weights(metric)
        if weights is None:
            raise InputError("metric: it is not a sum over features, so features have no weights")
        names = [str(i) for i in range(len(weights))] if names is None else names
        if len(names) != len(weights):
            raise InputError(f"names holds {len(names)} names for {len(weights)} features; give one per feature")
        return cls(weights, names).plot(ax=ax, most=most)

    @classmethod
    def from_estimator(cls, estimator: Any, names: Sequence[str] | None = None, **options: Any) -> Self:
        """Draw the weights of a fitted MetricLearner."""
        return cls.from_metric(_metric_of(estimator), names, **options)

    def plot(self, ax: Any = None, *, most: int = 20) -> Self:
        """Draw bars, the heaviest feature on top."""
        top = np.argsort(-self.weights, kind="stable")[:most]
        ax = self._on(ax, height=1.0 + 0.26 * len(top))
        ax.barh(np.arange(len(top)), self.weights[top], color="C0")
        ax.set_yticks(np.arange(len(top)), [legend_text(self.names[i]) for i in top])
        ax.set(xlabel="share of the weight")
        ax.invert_yaxis()
        ax.spines[["top", "right"]].set_visible(False)
        return self


# ------------------------------------------------------------------------------------------------------------ numbers


def principal_plane(K: Array) -> tuple[Array, float]:
    """Return the (n, 2) coordinates in the plane of largest variance, and its share, from a centred Gram matrix."""
    w, V = np.linalg.eigh(K)
    w, V = np.maximum(w[::-1], 0), V[:, ::-1]
    points = np.zeros((len(K), 2))
    points[:, : min(2, len(w))] = V[:, :2] * np.sqrt(w[:2])
    # a fixed sign, so that pictures are reproducible
    points *= np.where(np.abs(points).max(axis=0) == points.max(axis=0), 1, -1)
    return points, float(w[:2].sum() / max(w.sum(), 1e-300))


def feature_weights(metric: Metric) -> Array | None:
    """Return the share of each feature in the squared distance, or None if the metric is not a sum over features.

    If the method reports weights (``report.features``), these.  For a learned linear kernel
    d² = (x − y)' M (x − y), M_ff times the variance of feature f in the training rows, without cross terms.
    """
    reported = metric.report.get("features")
    if isinstance(reported, np.ndarray) and reported.ndim == 1 and len(reported) == metric.width:
        return reported / max(float(reported.sum()), 1e-300)
    kernel = metric.kernel
    linear = isinstance(kernel, Linear) or (isinstance(kernel, OverFeatures) and isinstance(kernel.start, Linear))
    if not linear or metric.rows is None or _rows.is_sparse(metric.rows) or _rows.is_dask(metric.rows):
        return None
    weight = kernel.diag(np.eye(metric.rows.shape[1])) * metric.rows.var(axis=0)
    return np.asarray(weight / max(float(weight.sum()), 1e-300))


def _centred(kernel: Kernel, rows: Any) -> Array:
    K = np.asarray(kernel(rows), dtype=np.float64)
    mean = K.mean(axis=0)
    return np.asarray(K - mean[:, None] - mean[None, :] + mean.mean())


def _sampled(metric: Metric | Kernel, X: Any, y: Any, sample: int, seed: int) -> tuple[Kernel, Any, Labels, Array]:
    """Return the kernel, the rows to draw, their labels and their numbers."""
    kernel = metric.kernel if isinstance(metric, Metric) else metric
    if X is None:
        X = metric.rows if isinstance(metric, Metric) else None
    if X is None:
        raise InputError("X is missing: this metric keeps no training rows; pass the rows to draw")
    X = kernel.check(X, "X")
    n = _rows.count(X)
    labels = Labels.of(np.full(n, np.nan) if y is None else y)
    if labels.n != n:
        raise InputError(f"y has {labels.n} labels for the {n} rows of X; give one per row")
    rows = _rows.draw(n, sample, seed)
    return kernel, _rows.take(X, rows), labels[rows], rows


def _metric_of(estimator: Any) -> Metric:
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(estimator, "metric_")
    metric: Metric = estimator.metric_
    return metric
