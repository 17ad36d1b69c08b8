"""Parts of methods that learn a factor L (r, m) of the metric M = L'L on m features by descent."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..checks import rows_of_numbers
from ..errors import InputError
from ..rows import Array, quiet


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


def add_transposed_product(G: Array, W: Array, Z: Array) -> None:
    """Add W'Z to G (n, r) in place, without an array of its size; all are C-ordered arrays of float64."""
    from scipy.linalg.blas import dgemm

    dgemm(1.0, Z.T, W.T, beta=1.0, c=G.T, trans_b=True, overwrite_c=True)  # G.T is in Fortran order: no copy
