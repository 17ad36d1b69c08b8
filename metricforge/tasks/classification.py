"""Classify rows by the training rows nearest to them in a learned metric."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..constraints import Labels
from ..distributed import cluster
from ..errors import InputError
from ..rows import blocks, count, is_dask
from ..validation import number, whole_number

if TYPE_CHECKING:
    from ..metric import Metric
    from ..neighbors import Search

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Classified:
    """The result of `classify`.

    Attributes
    ----------
    classes : (c,) array
    codes : (n,) int array
        The number of each row's class, -1 for "none of these".
    probabilities : (n, c) array
        The share of the votes; of a row that is none of these, 0.
    nearest : (n,) array
        The distance of the nearest training row.
    nearest_codes : (n,) int array
        The number of the class of the nearest training row.
    """

    classes: Array
    codes: Array
    probabilities: Array
    nearest: Array
    nearest_codes: Array

    @property
    def labels(self) -> Array:
        """The class of each row, None for "none of these"."""
        names = np.array([*self.classes.tolist(), None], dtype=object)
        return np.asarray(names[self.codes])


def classify(
    metric: Metric, y: Any, X: Any, *, k: int = 5, radius: float | None = None, method: str | Search = "auto"
) -> Classified:
    """Classify rows by the votes of the k nearest training rows.

    A tie goes to the class of the nearest row among those that tie.

    Parameters
    ----------
    metric : Metric
        With training rows.
    y : labels of the training rows, or Labels
        Rows without a label do not vote.
    X : rows
        To classify; the result is in memory.
    k : int
        The number of neighbours; fewer if there are fewer labelled rows.
    radius : float, optional
        A row whose nearest labelled training row is further away is none of these.  Methods that learn a radius have
        it as ``metric.report.radius``.
    method : str or callable
        The neighbour search, as `Metric.neighbors` takes it; "cells" is approximate and quick among many rows.

    Notes
    -----
    Time and memory of `Metric.neighbors`, and O(n (k² + c)) for the votes.
    """
    if radius is not None and not (isinstance(radius, float) and radius == np.inf):
        number(radius, "radius", least=0)
    metric, voting, classes = voters(metric, y)
    k = min(whole_number(k, "k"), len(voting))
    indices, distances = metric.neighbors(X, k, method=method)
    if is_dask(indices):  # k numbers a row
        indices, distances = cluster.compute(indices, distances)
    near = voting[indices]  # (n, k), nearest first
    c = len(classes)
    codes, probabilities = np.empty(len(near), dtype=np.int64), np.empty((len(near), c))
    for part in blocks(len(near), 8 * (c + k * k)):
        votes = (near[part][:, :, None] == near[part][:, None, :]).sum(axis=2)
        # argmax finds the first of the largest: among classes with equal votes, the one with the nearest row
        codes[part] = np.take_along_axis(near[part], votes.argmax(axis=1)[:, None], axis=1)[:, 0]
        probabilities[part] = (near[part][:, :, None] == np.arange(c)).sum(axis=1) / k
    if radius is not None:
        beyond = distances[:, 0] > radius
        codes[beyond], probabilities[beyond] = -1, 0.0
    return Classified(classes, codes, probabilities, distances[:, 0], near[:, 0])


def voters(metric: Metric, y: Any) -> tuple[Metric, Array, Array]:
    """Return a metric whose training rows all have a label, the number of the class of each, and the classes."""
    if metric.rows is None:
        raise InputError("metric keeps no training rows to vote; learn it with rows in memory")
    labels = Labels.of(y)
    labels.check(count(metric.rows), "y")
    labelled = np.flatnonzero(labels.codes >= 0)
    if not len(labelled):
        raise InputError("y has no label, so no row can vote; give at least one")
    if len(labelled) < labels.n:
        from dataclasses import replace

        metric = replace(metric, rows=metric.rows[labelled], stored_map=None, origin=None)
    return metric, labels.codes[labelled], np.asarray(labels.classes)
