"""The ideal kernel, the kernel made more ideal of eq. (2), and the alignment that compares a kernel with the ideal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricforge.constraints import Labels
from metricforge.errors import InputError
from metricforge.psd import symmetric
from metricforge.rows import blocks

Array = NDArray[Any]


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
    if not (isinstance(gamma, int | float | np.number) and 0 <= gamma < np.inf):
        raise InputError(f"gamma must be a finite number >= 0, got {gamma!r}")
    K = symmetric(K)
    ideal = ideal_matrix(y, weights=weights)
    if K.shape != ideal.shape:
        raise InputError(f"y has {len(ideal)} labels, but K is {K.shape[0]} × {K.shape[1]}; give one label a row")
    return np.asarray(K + gamma / 2 * ideal)


def alignment(K: Any, L: Any) -> float:
    """Return the alignment ⟨K, L⟩ / (‖K‖ ‖L‖) of two Gram matrices, between −1 and 1 (0 where either is zero)."""
    K, L = np.asarray(K, dtype=np.float64), np.asarray(L, dtype=np.float64)
    if K.shape != L.shape:
        raise InputError(f"K and L must have the same shape, got {K.shape} and {L.shape}")
    return _ratio(float((K * L).sum()), float(np.square(K).sum()), float(np.square(L).sum()))


def label_alignment(Phi: Array, codes: Array, *metrics: Array) -> list[float]:
    """Return the alignment of ΦBΦ' with the ideal kernel of the classes, for each metric B.

    ⟨ΦBΦ', K*⟩ = Σ_c s_c'Bs_c with s_c the sum of a class, and ‖ΦBΦ'‖² = tr(GBGB) with G = Φ'Φ: nothing n × n.
    Cost: O(n m²) time, m² memory.
    """
    order = np.argsort(codes, kind="stable")
    counts = np.bincount(codes)
    G = np.zeros((Phi.shape[1], Phi.shape[1]))
    sums = np.zeros((len(counts), Phi.shape[1]))
    for part in blocks(len(Phi), 8 * Phi.shape[1]):
        block, owner = Phi[order[part]], codes[order[part]]
        G += block.T @ block
        first = np.flatnonzero(np.diff(owner, prepend=-1))
        sums[owner[first]] += np.add.reduceat(block, first, axis=0)
    out = []
    for B in metrics:
        GB = G @ B
        inner = float(((sums @ B) * sums).sum())
        out.append(_ratio(inner, float((GB * GB.T).sum()), float(np.square(counts.astype(float)).sum())))
    return out


def pair_alignment(Phi: Array, i: Array, j: Array, dissimilar: Array, *metrics: Array) -> list[float]:
    """Return the alignment over the entries of the ideal kernel that pairs determine: 1 for similar, 0 for dissimilar.

    Every pair counts twice, (i, j) and (j, i), and the diagonal entry of every row of Φ, which is 1, once.
    Cost: O((n + N) m + n m²) time, n m memory.
    """
    out = []
    for B in metrics:
        E = Phi @ B
        own = np.einsum("ij,ij->i", E, Phi)
        k = np.empty(len(i))
        for part in blocks(len(i), 16 * Phi.shape[1]):
            k[part] = np.einsum("ij,ij->i", E[i[part]], Phi[j[part]])
        out.append(entry_alignment(own, k, dissimilar))
    return out


def entry_alignment(own: Array, k: Array, dissimilar: Array) -> float:
    """Return the alignment of a kernel with the values ``own`` on the diagonal and ``k`` at pairs, as above."""
    inner = own.sum() + 2 * k[~dissimilar].sum()
    squares = np.square(own).sum() + 2 * np.square(k).sum()
    return _ratio(float(inner), float(squares), float(len(own) + 2 * np.count_nonzero(~dissimilar)))


def _ratio(inner: float, first: float, second: float) -> float:
    scale = np.sqrt(max(first, 0.0)) * np.sqrt(max(second, 0.0))
    return inner / scale if scale > 0 else 0.0


def _class_weights(labels: Labels, weights: Mapping[Any, float] | None) -> Array:
    out = np.ones(max(len(labels.classes), 1))
    known = labels.classes.tolist()
    for name, weight in (weights or {}).items():
        if name not in known:
            raise InputError(f"weights names class {name!r}, which y does not have; it has {known[:10]}")
        if not (isinstance(weight, int | float | np.number) and 0 <= weight < np.inf):
            raise InputError(f"weights[{name!r}] must be a finite number >= 0, got {weight!r}")
        out[known.index(name)] = weight
    return out
