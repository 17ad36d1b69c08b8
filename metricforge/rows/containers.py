"""What a row container is: recognise its type, count its rows and columns, convert its precision, hash its content."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def is_dask(X: Any) -> bool:
    """Return whether X is a dask collection; dask is not imported for this (no collection exists before that)."""
    if type(X) is np.ndarray:  # asked of every array in a stream of small updates
        return False
    return "dask" in sys.modules and hasattr(X, "__dask_graph__")


def is_sparse(X: Any) -> bool:
    """Return whether X is a SciPy sparse matrix or array; SciPy is not imported for this."""
    if type(X) is np.ndarray or "scipy.sparse" not in sys.modules:
        return False
    from scipy.sparse import issparse

    return bool(issparse(X))


def count(X: Any) -> int:
    """Return the number of rows."""
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def width(X: Any) -> int | None:
    """Return the number of features, or None where rows have none (strings, objects)."""
    shape: tuple[int, ...] = getattr(X, "shape", ())
    return int(shape[1]) if len(shape) == 2 else None


def bytes_of(X: Any) -> int:
    """Return the memory that rows, or a column, take in this process: none on dask."""
    if X is None or is_dask(X):
        return 0
    if is_sparse(X):
        return int(X.data.nbytes + X.indices.nbytes + X.indptr.nbytes)
    if isinstance(X, np.ndarray) and X.dtype != object:
        return int(X.nbytes)
    return sum(8 + sys.getsizeof(x) for x in X)


def as_float64(X: Any) -> Any:
    """Return float32 rows as float64, and any other rows unchanged."""
    return X.astype(np.float64) if getattr(X, "dtype", None) == np.float32 else X


def float_dtype(*rows: Any) -> np.dtype[Any]:
    """Return float32 where all these rows are float32, and float64 otherwise."""
    single = all(getattr(X, "dtype", None) == np.float32 for X in rows)
    return np.dtype(np.float32 if single else np.float64)


def column_names(X: Any) -> tuple[str, ...] | None:
    """Return the column names of a data frame if all are strings; None for other rows."""
    # looked up on the type: a dask Delayed has an attribute of any name
    names = tuple(X.columns) if hasattr(type(X), "columns") else ()
    return names if names and all(isinstance(name, str) for name in names) else None


def quiet() -> np.errstate:
    """Return a context, or a decorator, without NumPy's warnings; whoever uses the numbers checks that they are finite.

    It holds for the current thread only, so that what runs in another thread or in a task enters its own.
    """
    return np.errstate(over="ignore", invalid="ignore", divide="ignore")


# -------------------------------------------------------------------------------------------------- equality by content


class ComparedByContent:
    """Equality and hash by a digest of the fields, for frozen dataclasses that hold arrays (``eq=False``)."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and digest(self) == digest(other)

    def __hash__(self) -> int:
        return int.from_bytes(digest(self)[:8], "little")


def digest(value: Any) -> bytes:
    """Return a hash of the content of arrays, numbers, strings, and dataclasses of these."""
    state = hashlib.blake2b(digest_size=16)
    _feed(state, value)
    return state.digest()


def _feed(state: Any, value: Any) -> None:
    if is_dask(value):
        state.update(f"dask:{value.name}".encode())
    elif is_sparse(value):
        for part in (value.indptr, value.indices, value.data, np.asarray(value.shape)):
            _feed(state, part)
    elif isinstance(value, np.ndarray) and value.dtype != object:
        state.update(f"array:{value.dtype.str}:{value.shape}".encode())
        plain = value.view(np.int64) if value.dtype.kind in "mM" else value  # dates have no buffer
        state.update(np.ascontiguousarray(plain).data.cast("B") if value.size else b"")
    elif isinstance(value, np.ndarray | list | tuple):
        state.update(f"sequence:{len(value)}".encode())
        for item in value:
            _feed(state, item)
    elif isinstance(value, dict):
        for key in sorted(value, key=str):
            _feed(state, str(key))
            _feed(state, value[key])
    elif is_dataclass(value) and not isinstance(value, type):
        state.update(f"{type(value).__module__}.{type(value).__qualname__}".encode())
        for field in fields(value):
            _feed(state, getattr(value, field.name))
    elif isinstance(value, bool | np.bool_):
        state.update(f"bool:{bool(value)};".encode())
    elif isinstance(value, int | float | np.number):
        # 1, 1.0 and np.float64(1) are one number
        number = float(value)
        state.update(f"number:{number if abs(number) < 2**53 else value!r};".encode())
    else:
        state.update(f"{type(value).__name__}:{value!r};".encode())
