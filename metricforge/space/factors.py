"""The start of methods that learn a factor L (r, m) of the metric M = L'L on m features by descent."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..checks import rows_of_numbers
from ..errors import InputError
from ..rows import Array


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


def start_factor(Phi: Array, n_components: int | None, start: tuple[tuple[float, ...], ...] | None) -> Array:
    """Return L (r, m): what is given, the identity, or the leading principal axes of centred features Phi (n, m)."""
    m = Phi.shape[1]
    if start is not None:
        if len(start[0]) != m:
            raise InputError(f"start must have {m} columns, one per feature, got {len(start[0])}")
        return np.array(start)
    if n_components is None or n_components >= m:
        return np.eye(m)
    return np.ascontiguousarray(np.linalg.eigh(Phi.T @ Phi)[1][:, ::-1][:, :n_components].T)
