"""Parameters of kernels: checks, and the median rule for ``gamma="median"``."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import rows as _rows
from ..errors import InputError
from ..rows import Array
from ..rows.mapping import MEDIAN_ROWS, pair_values
from ..validation import number_or, shown, wrong
from .interface import Kernel

PAIR_BYTES = 14
"""Memory of the median over all pairs of rows, per entry of their matrix: the matrix, its half, and temporaries."""


def check_is_kernel(kernel: Any, name: str) -> None:
    """Raise InputError unless ``kernel`` is a Kernel."""
    if not isinstance(kernel, Kernel):
        raise InputError(f"{name} must be a kernel, got {shown(kernel)}; write for instance mf.kernels.Linear()")


def check_on_vectors(kernel: Any, name: str) -> None:
    """Raise InputError unless ``kernel`` is a Kernel on vectors."""
    if not isinstance(kernel, Kernel) or kernel.takes != "vectors":
        raise wrong(name, "a kernel on vectors", kernel)


def check_gamma(gamma: Any) -> None:
    """Raise InputError unless ``gamma`` is "median" or a positive number."""
    number_or(gamma, "gamma", ["median"], above=0)


def resolved(gamma: float | str) -> float:
    """Return gamma as a float, or raise InputError where it is still "median"."""
    if isinstance(gamma, str):
        raise InputError(f"gamma={gamma!r} is not a number yet; call kernel.resolve(X) with the data to take it from")
    return float(gamma)


def sample_rows(X: Any, seed: int) -> Any:
    """Return the rows of X, or a random sample of `MEDIAN_ROWS` of them, in memory."""
    return _rows.take(X, _rows.draw(_rows.count(X), MEDIAN_ROWS, seed))


def median_rows(X: Any, seed: int) -> Any:
    """Return the sample of rows for ``gamma="median"``, or raise MemoryBudgetError if their distances exceed it."""
    n = min(_rows.count(X), MEDIAN_ROWS)
    needed = PAIR_BYTES * n**2 + 2 * 8 * n * (_rows.width(X) or 1)
    _rows.check_memory(needed, f'gamma="median" on {n} rows', "give gamma a number")
    return sample_rows(X, seed)


def inverse_median(D: Array) -> float:
    """Return 1 / median of the distances D_ij, i < j, for ``gamma="median"``.

    Where more than half of the pairs are duplicates, it is the median of the positive distances.
    """
    distances = pair_values(D)
    if not np.isfinite(distances).all():
        raise InputError('gamma="median": some distances overflow; rescale the features, or give gamma a number')
    if len(distances) == 0:
        raise InputError('gamma="median" needs at least two rows, and X has 1 sample; give gamma a number')
    median = float(np.median(distances, overwrite_input=True))
    if median <= 0:
        median = float(np.median(distances[distances > 0])) if (distances > 0).any() else 0.0
    if median <= 0:
        raise InputError('gamma="median": all rows of X are identical (every feature is constant); give gamma a number')
    if median < np.finfo(np.float64).tiny:  # its inverse overflows
        raise InputError(f'gamma="median": the median of the distances is {median:.3g}; rescale the features')
    return 1 / median


def resolve_gamma(gamma: float | str, base: Kernel, X: Any, seed: int) -> float | str:
    """Return gamma, or 1 / (median squared distance under ``base``) where it is "median"."""
    if gamma != "median":
        return gamma
    sample = median_rows(X, seed)
    return inverse_median(base.squared_distance(sample, sample))
