"""Points and tuples of points, formed or by a preprocessor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array

from metricforge.errors import InputError
from metricforge.estimators.learner import own_errors

Array = NDArray[Any]


class ArrayIndexer:
    """A preprocessor that takes rows of an array by their numbers."""

    def __init__(self, X: Any) -> None:
        with own_errors():
            self.X = check_array(X, accept_sparse=True, dtype=None, ensure_2d=False, allow_nd=True)

    def __call__(self, indices: Any) -> Any:
        """Return the rows with these numbers."""
        return self.X[indices]


def as_preprocessor(given: Any) -> Callable[[Any], Any] | None:
    """Return a function from indicators of points to rows, or None."""
    if given is None:
        return None
    if callable(given):
        return given  # type: ignore[no-any-return]
    if hasattr(given, "__getitem__"):
        return ArrayIndexer(given)
    raise InputError(f"preprocessor must be an array, a function or None, got {given!r}")


def points(given: Any, preprocessor: Callable[[Any], Any] | None, who: str) -> Array:
    """Return (n, d) rows from formed rows, or from a 1-d array of what the preprocessor takes."""
    X = _checked(given, preprocessor is None)
    if X.ndim == 1 and preprocessor is not None:
        X = _formed(preprocessor, X)
    if X.ndim != 2:
        raise InputError(
            f"X of {who} must be rows of features (2-d), or indicators of rows (1-d) with a preprocessor; "
            f"got an array of shape {X.shape}. Reshape your data"
        )
    return X


def tuples(given: Any, preprocessor: Callable[[Any], Any] | None, size: int | None, who: str) -> Array:
    """Return (p, size, d) tuples from formed ones, or from a (p, size) array of what the preprocessor takes."""
    X = _checked(given, preprocessor is None)
    if X.ndim == 2 and preprocessor is not None:
        X = np.stack([_formed(preprocessor, X[:, c]) for c in range(X.shape[1])], axis=1)
    if X.ndim != 3:
        raise InputError(
            f"X of {who} must be tuples of rows (3-d), or tuples of indicators (2-d) with a preprocessor; "
            f"got an array of shape {X.shape}. Reshape your data"
        )
    if size is not None and X.shape[1] != size:
        raise InputError(f"X of {who} must have {size} rows in each tuple, got {X.shape[1]}")
    return X


def _checked(X: Any, numeric: bool) -> Array:
    dtype = [np.float64, np.float32] if numeric else None
    try:
        with own_errors():
            return np.asarray(check_array(X, accept_sparse=False, dtype=dtype, ensure_2d=False, allow_nd=True))
    except Exception as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"X: {error}") from None  # for instance two columns of one name


def _formed(preprocessor: Callable[[Any], Any], indicators: Array) -> Array:
    try:
        formed = preprocessor(indicators)
    except Exception as error:
        raise PreprocessorError(error) from error
    with own_errors():
        return np.asarray(check_array(formed, dtype=[np.float64, np.float32]))


class PreprocessorError(InputError):
    """The preprocessor raised an exception."""

    def __init__(self, original: Exception) -> None:
        super().__init__(f"the preprocessor raised {type(original).__name__}: {original}")
        self.original = original
