"""The ideal kernel of eq. (1), the idealized kernel of eq. (2), and the alignment of a kernel with the ideal one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from metricforge.constraints import Labels
from metricforge.errors import InputError
from metricforge.kernels.alignment import alignment, entry_alignment, label_alignment, pair_alignment
from metricforge.psd import symmetric
from metricforge.rows import Array
from metricforge.validation import number

__all__ = [
    "alignment",
    "entry_alignment",
    "ideal_matrix",
    "idealized_matrix",
    "label_alignment",
    "pair_alignment",
]


def ideal_matrix(y: Any, *, weights: Mapping[Any, float] | None = None) -> Array:
    """Return the ideal kernel of eq. (1): 1 (or the weight of the class) where two rows share it, 0 elsewhere.

    Parameters
    ----------
    y : labels of n rows, or `Labels`
        Unlabelled rows are similar to nothing.
    weights : mapping from class to number >= 0, optional
        How much each class counts (end of Sec. 3.1); 1 for a class that is not named.

    Notes
    -----
    n² memory.
    """
    labels = y if isinstance(y, Labels) else Labels(y)
    weight = _class_weights(labels, weights)
    same = (labels.codes[:, None] == labels.codes) & (labels.codes >= 0)
    return np.where(same, weight[np.maximum(labels.codes, 0)], 0.0)


def idealized_matrix(K: Any, y: Any, gamma: float, *, weights: Mapping[Any, float] | None = None) -> Array:
    """Return the idealized kernel K + (γ/2) K* of eq. (2), for the rows whose Gram matrix is K.

    Squared distances stay as they are inside a class and grow by γ between classes of weight 1 (eq. 3).  With γ > 0 its
    alignment with the ideal kernel is the higher one as soon as γ > −⟨K, K*⟩ / ‖K*‖² (Proposition 1).

    Parameters
    ----------
    K : (n, n) array
        A kernel on the n rows.
    y, weights
        As in `ideal_matrix`.
    gamma : float >= 0

    Notes
    -----
    n² memory.  It says nothing about other rows; the method `idealized` learns a metric that does.
    """
    gamma = number(gamma, "gamma", least=0)
    K = symmetric(K)
    ideal = ideal_matrix(y, weights=weights)
    if K.shape != ideal.shape:
        raise InputError(f"y has {len(ideal)} labels, but K is {K.shape[0]} × {K.shape[1]}; give one label a row")
    return np.asarray(K + gamma / 2 * ideal)


def _class_weights(labels: Labels, weights: Mapping[Any, float] | None) -> Array:
    out = np.ones(max(len(labels.classes), 1))
    known = labels.classes.tolist()
    for name, weight in (weights or {}).items():
        if name not in known:
            raise InputError(f"weights names class {name!r}, which y does not have; it has {known[:10]}")
        out[known.index(name)] = number(weight, f"weights[{name!r}]", least=0)
    return out
