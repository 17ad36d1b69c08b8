"""Parts of methods that learn a factor L (r, m) of the metric M = L'L on m features by descent."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import InputError
from ..kernels import squared_euclidean
from ..rows import Array, draw, quiet
from ..rows.mapping import pair_values
from ..validation import rows_of_numbers

NEAR, FAR = 0.1, 100.0
"""The range of the median squared distance within which weights exp(−d²) tell rows apart."""
SAMPLED = 500
"""Rows of which distances are measured."""


def check_start(start: Any, n_components: int | None) -> tuple[tuple[float, ...], ...] | None:
    """Return the option ``start`` of a solver as a nested tuple, which can be hashed and saved; None stays None.

    Raises
    ------
    InputError
        If it is no table of finite numbers, or if the number of components is given too.
    """
    if start is None:
        return None
    if n_components is not None:
        raise InputError("start and n_components are both given; the rows of start are the components")
    return rows_of_numbers(start, "start")


def start_factor(
    Phi: Array, n_components: int | None, start: tuple[tuple[float, ...], ...] | None, mix: Array | None = None
) -> Array:
    """Return L (r, m): what is given, the identity, or the leading principal axes of centred features Phi (n, m).

    Where the features are components x'mix of explicit ones (``mix`` of the feature map), ``start`` is on the latter.
    """
    m = Phi.shape[1]
    if start is not None:
        width = m if mix is None else len(mix)
        if len(start[0]) != width:
            raise InputError(f"start must have {width} columns, one per feature, got {len(start[0])}")
        L = np.array(start) if mix is None else np.array(start) @ mix
        with quiet():
            largest = 4 * np.square(L).sum() * np.vecdot(Phi, Phi).max(initial=0.0)
        if not np.isfinite(largest):  # it bounds the squared distances
            raise InputError("start: squared distances between the rows overflow; give smaller numbers")
        return L
    if n_components is None or n_components >= m:
        return np.eye(m)
    return np.ascontiguousarray(np.linalg.eigh(Phi.T @ Phi)[1][:, ::-1][:, :n_components].T)


def feature_unit(Phi: Array, seed: int) -> float:
    """Return the unit of features Phi (n, m) in which weights exp(−‖x − y‖²) differ between rows; usually 1.

    Where distances are next to 0, weights are equal for every map near the identity, and where they are huge, one row
    has all the weight.  Either way gradients vanish, far from any optimum.  The unit brings the median squared distance
    into `NEAR` .. `FAR`.
    """
    largest = float(np.abs(Phi).max(initial=0.0))
    if not largest > 0:
        return 1.0
    some = Phi[draw(len(Phi), SAMPLED, seed)] / largest
    squared = pair_values(squared_euclidean(some, some))
    squared = squared[squared > 0]
    median = largest * np.sqrt(np.median(squared)) if len(squared) else 1.0
    return float(median / np.clip(median, np.sqrt(NEAR), np.sqrt(FAR)))


def add_transposed_product(G: Array, W: Array, Z: Array) -> None:
    """Add W'Z to G (n, r) in place, without an array of its size; all are C-ordered arrays of float64."""
    from scipy.linalg.blas import dgemm

    dgemm(1.0, Z.T, W.T, beta=1.0, c=G.T, trans_b=True, overwrite_c=True)  # G.T is in Fortran order: no copy
