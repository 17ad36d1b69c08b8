"""Pictures of a metric, each on matplotlib axes of your own or on new ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from .constraints import Labels
from .metric import Metric


def plot_map(metric: Metric, X: Any, y: Any, *, ax: Any = None) -> Any:
    """Draw the rows in the plane that holds most of the metric's variance, coloured by class; return the axes."""
    E = np.asarray(metric.transform(X), dtype=np.float64)
    E = np.column_stack([E - E.mean(axis=0), np.zeros((len(E), 2))])  # two columns at the least
    U, s, _ = np.linalg.svd(E, full_matrices=False)
    flat = np.zeros((len(E), 2))
    flat[:, : len(s)] = (U * s)[:, :2]
    flat *= np.where(np.abs(flat).max(axis=0) == flat.max(axis=0), 1, -1)  # a fixed sign, so that pictures repeat
    ax = _axes(ax)
    labels = Labels(y)
    for code, name in enumerate(labels.classes):
        here = labels.codes == code
        ax.scatter(*flat[here].T, s=14, alpha=0.8, label=str(name), color=f"C{code}")
    ax.set(xticks=[], yticks=[], xlabel=f"{100 * (s[:2] ** 2).sum() / max((s**2).sum(), 1e-300):.0f} % of the variance")
    ax.legend(title="class", frameon=False)
    return ax


def plot_kernel(metric: Metric, X: Any, y: Any, *, ax: Any = None) -> Any:
    """Draw the normalised kernel matrix with rows ordered by class; ideal is one bright block a class."""
    codes = Labels(y).codes
    order = np.argsort(codes, kind="stable")  # unlabelled rows first
    K = np.asarray(metric.kernel.normalized()(metric.kernel.check(X)[order]))
    ax = _axes(ax)
    ax.imshow(K, cmap="viridis", interpolation="nearest")
    ends = np.cumsum(np.bincount(codes + 1))[:-1]
    for end in ends - 0.5:
        ax.axhline(end, color="white", lw=0.8)
        ax.axvline(end, color="white", lw=0.8)
    ax.set(xticks=[], yticks=[])
    return ax


def grid(rows: int, columns: int) -> tuple[Any, Any]:
    """Return a new figure (outside pyplot: no window, no global state) and its (rows, columns) axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5 * columns, 4.6 * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def _axes(ax: Any) -> Any:
    return ax if ax is not None else grid(1, 1)[1][0, 0]
