"""Equality and hashing by content, for dataclasses that hold arrays."""

from __future__ import annotations

import hashlib
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from .containers import is_dask, is_sparse


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
