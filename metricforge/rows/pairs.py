"""Statistics over the pairs of two different rows, from the square matrix of their values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

MEDIAN_ROWS = 1024
"""Rows to draw for a median over pairs: half a million pairs determine it to a fraction of a per cent."""


def pair_values(D: Array) -> Array:
    """Return the entries D_ij with i < j of a symmetric matrix as float64: one value per pair of two different rows."""
    n = len(D)
    values = np.empty(n * (n - 1) // 2)
    end = 0
    for i in range(n - 1):  # np.triu_indices would take three times the memory of D
        start, end = end, end + n - 1 - i
        values[start:end] = D[i, i + 1 :]
    return values


def median_of_pairs(D: Array) -> float:
    """Return the median of the entries D_ij with i < j of a symmetric matrix."""
    return float(np.median(pair_values(D)))
