"""Rows that scikit-learn's users pass: its checks, with the library's errors and without warnings of overflow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from sklearn.utils.validation import check_consistent_length, column_or_1d, validate_data

from .. import rows as _rows
from ..errors import InputError, InputTypeError

LONGEST = 300
"""Characters of a message that are shown."""
OTHER_NAMES = "The feature names should match"
"""How scikit-learn's error for other column names than in fit begins."""


def validated(estimator: Any, X: Any, *y: Any, reset: bool = True) -> Any:
    """Return what scikit-learn's ``validate_data`` does, for rows of numbers; the errors name rows and columns."""
    if _rows.is_sparse(X):
        X = _rows.as_vectors(X)  # before compiled code meets invalid indices
    with own_errors():
        try:
            return validate_data(estimator, X, *y, accept_sparse="csr", dtype=[np.float64, np.float32], reset=reset)
        except Exception as error:
            # scikit-learn asks for a TypeError of its own where cells are no numbers
            if not isinstance(error, TypeError) or isinstance(X, dict):
                _rows.as_vectors(X)
            if type(error) in (ValueError, TypeError):
                raise
            raise InputError(f"X: {error}") from None  # for instance two columns of one name


def one_column(y: Any) -> Any:
    """Return labels as a 1-d array; a column is flattened with scikit-learn's warning."""
    with own_errors():
        return column_or_1d(y, warn=True)


def check_lengths(*arrays: Any) -> None:
    """Raise InputError if arrays have different numbers of rows."""
    with own_errors():
        check_consistent_length(*arrays)


@contextmanager
def own_errors() -> Iterator[None]:
    """Turn errors of scikit-learn's checks into the library's.

    The error for other column names is left as it is: scikit-learn's battery reads its lines, and `InputError` has one.
    """
    try:
        with np.errstate(over="ignore", invalid="ignore"):  # scikit-learn adds up all cells
            yield
    except (ValueError, TypeError) as error:
        if type(error) not in (ValueError, TypeError) or str(error).startswith(OTHER_NAMES):
            raise
        raise (InputTypeError if isinstance(error, TypeError) else InputError)(_short(str(error))) from None


def _short(message: str) -> str:
    """Return a message of scikit-learn's on one line, without all of the array that it may quote."""
    line = " ".join(message.split())
    return line if len(line) <= LONGEST else f"{line[:LONGEST]} ..."
