"""Rows that scikit-learn's users pass: its checks, with the library's errors and without warnings of overflow."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import validate_data

from .. import rows as _rows
from ..errors import InputError


def validated(estimator: Any, X: Any, *y: Any, reset: bool = True) -> Any:
    """Return what scikit-learn's ``validate_data`` does, for rows of numbers; the errors name rows and columns."""
    if _rows.is_sparse(X):
        X = _rows.as_vectors(X)  # before compiled code meets invalid indices
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # scikit-learn adds up all cells
            return validate_data(estimator, X, *y, accept_sparse="csr", dtype=[np.float64, np.float32], reset=reset)
    except Exception as error:
        # scikit-learn asks for a TypeError of its own where cells are no numbers
        if not isinstance(error, TypeError) or isinstance(X, dict):
            _rows.as_vectors(X)
        if type(error) in (ValueError, TypeError):
            raise
        raise InputError(f"X: {error}") from None  # for instance two columns of one name
