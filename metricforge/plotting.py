"""Pictures of a metric, by scikit-learn's Display convention.

Each display is made by ``from_metric`` (or ``from_estimator``), draws with ``plot(ax=...)`` on axes of your own or on
new ones, and keeps what it drew on in ``ax_`` and ``figure_``::

    MapDisplay.from_metric(metric, X, y).figure_.savefig("map.png")

New figures live outside pyplot: no window, no global state.  Pictures of many rows are of a sample, drawn by a seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from . import rows as _rows
from .constraints import Constraint, Labels, Pairs
from .errors import InputError
from .kernels import Kernel, Linear
from .metric import Metric
from .relations import Held, held
from .space import LearnedKernel

Array = NDArray[Any]

MOST_NAMED = 12
"""How many classes a legend names; more would hide the picture."""
MOST_LINES = 100
"""How many pairs of a kind a map draws; of more, a sample."""


class _Display:
    """What the displays share: axes of the caller's or new ones, and the estimator's door."""

    ax_: Any
    figure_: Any

    def _on(self, ax: Any, width: float = 5.0, height: float = 4.2) -> Any:
        if ax is None:
            self.figure_, axes = grid(1, 1, width=width, height=height)
            ax = axes[0, 0]
        self.ax_, self.figure_ = ax, ax.figure
        return ax


class KernelDisplay(_Display):
    """The kernel matrix with rows ordered by class: a good one has a bright block a class on the diagonal.

    The matrix is centred and scaled to a unit diagonal, so that it shows what the distances say (the cosine of two rows
    seen from the mean), whatever the kernel's origin.

    Parameters
    ----------
    K : (n, n) array
    codes : (n,) int array
        Class numbers in ascending order, -1 where there is none.
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
    """The rows in the plane that holds most of the metric's variance, coloured by class (kernel PCA).

    Parameters
    ----------
    points : (n, 2) array
    labels : Labels
        Over these rows; unlabelled ones are grey.
    share : float
        The part of the variance that the plane holds.
    pairs : Pairs, optional
        Over these rows; drawn as lines, solid between similar and dashed between dissimilar ones.
    """

    def __init__(self, points: Array, labels: Labels, share: float, pairs: Pairs | None = None) -> None:
        self.points = points
        self.labels = labels
        self.share = share
        self.pairs = pairs

    @classmethod
    def from_metric(
        cls,
        metric: Metric | Kernel,
        X: Any = None,
        y: Any = None,
        *,
        pairs: Pairs | None = None,
        sample: int = 1000,
        seed: int = 0,
        ax: Any = None,
    ) -> Self:
        """Map at most ``sample`` rows of X (by default the training rows); one eigendecomposition of that size."""
        kernel, rows, labels, chosen = _sampled(metric, X, y, sample, seed)
        points, share = principal_plane(_centred(kernel, rows))
        return cls(points, labels, share, None if pairs is None else pairs[chosen]).plot(ax=ax)

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any, y: Any = None, **options: Any) -> Self:
        """Map rows by a fitted MetricLearner."""
        return cls.from_metric(_metric_of(estimator), X, y, **options)

    def plot(self, ax: Any = None, *, title: str = "class") -> Self:
        """Draw the points, a colour a class, and a legend where there are a dozen classes at the most."""
        ax = self._on(ax)
        names = self.labels.classes
        if (unknown := self.labels.codes < 0).any():
            ax.scatter(*self.points[unknown].T, s=10, alpha=0.6, color="0.7" if len(names) else "C0", linewidths=0)
        for code, name in enumerate(names):
            here = self.points[self.labels.codes == code]
            ax.scatter(*here.T, s=14, alpha=0.8, label=_clip(name), color=_colour(code, len(names)), linewidths=0)
        ax.set(xticks=[], yticks=[], xlabel=f"{self.share:.0%} of the variance")
        if 0 < len(names) <= MOST_NAMED:
            ax.add_artist(ax.legend(title=title, frameon=False, fontsize="small"))
        if self.pairs is not None:
            self._draw_pairs(ax, self.pairs)
        return self

    def _draw_pairs(self, ax: Any, pairs: Pairs) -> None:
        """Draw some of the pairs as thin lines below the points, and name them above the picture."""
        from matplotlib.collections import LineCollection

        drawn = []
        for kind, ends, colour, style in (
            ("similar", pairs.similar, "0.2", "solid"),
            ("dissimilar", pairs.dissimilar, "C3", (0, (4, 3))),
        ):
            if len(ends):
                some = ends[_rows.draw(len(ends), MOST_LINES, 0)]
                lines = LineCollection(
                    self.points[some], colors=colour, linestyles=[style], linewidths=0.8, alpha=0.6, zorder=0.5
                )
                lines.set_label(f"{kind} pair")
                drawn.append(ax.add_collection(lines, autolim=False))
        if drawn:
            above = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "ncols": 2, "handlelength": 3}
            ax.legend(handles=drawn, frameon=False, **above)


class ConvergenceDisplay(_Display):
    """The certificate over the iterations: an upper bound on what is left to gain, or the optimality residual.

    Parameters
    ----------
    objective, gap : (t,) arrays
    certificate : str
        What ``gap`` is, in words.
    """

    def __init__(self, objective: Array, gap: Array, certificate: str = "gap") -> None:
        self.objective = objective
        self.gap = gap
        self.certificate = certificate

    @classmethod
    def from_metric(cls, metric: Metric, *, ax: Any = None) -> Self:
        """Draw how a fit came to its end; the report must hold a trace."""
        trace = np.asarray(metric.report.get("trace", ()), dtype=np.float64).reshape(-1, 2)
        if not len(trace):
            raise InputError("metric: its report holds no trace, because nothing was iterated: there is no curve")
        return cls(trace[:, 0], trace[:, 1], str(metric.report["certificate"])).plot(ax=ax)

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> Self:
        """Draw how the fit of a MetricLearner came to its end."""
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
    """The share of relations that hold, before and after.

    Parameters
    ----------
    after : sequence of Held
    before : sequence of Held, optional
        Of the same kinds.
    """

    def __init__(self, after: Sequence[Held], before: Sequence[Held] = ()) -> None:
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
        """Count the relations over the rows of X that hold under a metric and, for comparison, under another."""
        other = () if before is None else held(before, X, constraints, seed=seed)
        return cls(held(metric, X, constraints, seed=seed), other).plot(ax=ax)

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any, constraints: Constraint, **options: Any) -> Self:
        """Count the relations that hold under a fitted MetricLearner."""
        return cls.from_metric(_metric_of(estimator), X, constraints, **options)

    def plot(self, ax: Any = None) -> Self:
        """Draw bars, one pair a kind of relation."""
        ax = self._on(ax, height=1.1 + 0.95 * len(self.after))
        place = np.arange(len(self.after))
        for shift, kind, colour, values in ((-0.18, "before", "0.7", self.before), (0.18, "after", "C0", self.after)):
            if values:
                bars = ax.barh(place + shift, [100 * h.share for h in values], height=0.34, color=colour, label=kind)
                ax.bar_label(bars, fmt="%.1f %%", padding=3, fontsize="small")
        ax.set_yticks(place, [_wrapped(h.what) for h in self.after])
        ax.set(xlim=(0, 118), xticks=range(0, 101, 25), xlabel="relations that hold, %")
        ax.invert_yaxis()
        if self.before:
            ax.legend(frameon=False, fontsize="small", loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
        ax.spines[["top", "right"]].set_visible(False)
        return self


class WeightsDisplay(_Display):
    """What each feature weighs in the learned distance.

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
        """Draw the weights of the ``most`` heaviest features of a metric that has any."""
        weights = feature_weights(metric)
        if weights is None:
            raise InputError("metric: it is not a sum over features, so they have no weights")
        names = [str(i) for i in range(len(weights))] if names is None else names
        if len(names) != len(weights):
            raise InputError(f"names holds {len(names)} names for {len(weights)} features; give one each")
        return cls(weights, names).plot(ax=ax, most=most)

    @classmethod
    def from_estimator(cls, estimator: Any, names: Sequence[str] | None = None, **options: Any) -> Self:
        """Draw the weights of a fitted MetricLearner."""
        return cls.from_metric(_metric_of(estimator), names, **options)

    def plot(self, ax: Any = None, *, most: int = 20) -> Self:
        """Draw bars, the heaviest on top."""
        top = np.argsort(-self.weights, kind="stable")[:most]
        ax = self._on(ax, height=1.0 + 0.26 * len(top))
        ax.barh(np.arange(len(top)), self.weights[top], color="C0")
        ax.set_yticks(np.arange(len(top)), [_clip(self.names[i]) for i in top])
        ax.set(xlabel="share of the weight")
        ax.invert_yaxis()
        ax.spines[["top", "right"]].set_visible(False)
        return self


# ------------------------------------------------------------------------------------------------------------ numbers


def principal_plane(K: Array) -> tuple[Array, float]:
    """Return the (n, 2) coordinates of the plane with the largest variance, and its share, from a centred Gram."""
    w, V = np.linalg.eigh(K)
    w, V = np.maximum(w[::-1], 0), V[:, ::-1]
    points = np.zeros((len(K), 2))
    points[:, : min(2, len(w))] = V[:, :2] * np.sqrt(w[:2])
    points *= np.where(np.abs(points).max(axis=0) == points.max(axis=0), 1, -1)  # a fixed sign: pictures repeat
    return points, float(w[:2].sum() / max(w.sum(), 1e-300))


def feature_weights(metric: Metric) -> Array | None:
    """Return the share of each feature in the squared distance, or None for a metric that is no sum over features.

    Where the method tells weights of its own (``report.features``), those.  For a learned linear kernel
    d² = (x − y)' M (x − y) it is M_ff times the variance of feature f in the training rows: cross terms are left out.
    """
    told = metric.report.get("features")
    if isinstance(told, np.ndarray) and told.ndim == 1 and len(told) == metric.width:
        return told / max(float(told.sum()), 1e-300)
    kernel = metric.kernel
    linear = isinstance(kernel, Linear) or (isinstance(kernel, LearnedKernel) and isinstance(kernel.base, Linear))
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
        raise InputError("X is missing: this metric keeps no training rows to draw; give the rows")
    X = kernel.check(X, "X")
    n = _rows.count(X)
    labels = y if isinstance(y, Labels) else Labels(np.full(n, np.nan) if y is None else y)
    if labels.n != n:
        raise InputError(f"y has {labels.n} labels for the {n} rows of X; give one each")
    rows = _rows.draw(n, sample, seed)
    return kernel, _rows.take(X, rows), labels[rows], rows


def _metric_of(estimator: Any) -> Metric:
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(estimator, "metric_")
    metric: Metric = estimator.metric_
    return metric


# ------------------------------------------------------------------------------------------------------------ drawing


def grid(rows: int, columns: int, *, width: float = 5.0, height: float = 4.6) -> tuple[Any, Any]:
    """Return a new figure (outside pyplot: no window, no global state) and its (rows, columns) axes."""
    check_installed()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def png(figure: Any, dpi: int = 110) -> bytes:
    """Return a figure as the bytes of a PNG file."""
    import io
    import warnings

    out = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # a name in a script the font lacks
        figure.savefig(out, dpi=dpi, format="png")
    return out.getvalue()


def check_installed() -> None:
    """Raise where pictures cannot be drawn."""
    import importlib.util

    if importlib.util.find_spec("matplotlib") is None:
        raise InputError("pictures need matplotlib, which is not installed; pip install 'metricforge[plot]'")


def _colour(code: int, classes: int) -> Any:
    if classes <= 10:
        return f"C{code}"
    from matplotlib import colormaps

    return colormaps["turbo"](0.05 + 0.9 * code / (classes - 1))


def _clip(name: Any, most: int = 24) -> str:
    # matplotlib sets text between dollar signs as mathematics, and hides a legend entry that starts with _
    text = str(name).replace("$", r"\$")
    text = text if len(text) <= most else text[: most - 1] + "…"
    return f" {text}" if text.startswith("_") else text


def _wrapped(text: str, most: int = 26) -> str:
    import textwrap

    return "\n".join(textwrap.wrap(text, most))
