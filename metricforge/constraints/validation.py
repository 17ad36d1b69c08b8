"""Checks of what users pass to the constructors of constraints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..validation import first_rows, shown, whole_number
from .indices import keyed_pairs, pair_keys

Array = NDArray[Any]

NARROW, ENCODED_ROWS = 2**16, 2**16
"""Whole numbers within this range, or a quarter of the number of rows, are encoded by a table; rows encoded at a time.
"""
LONG = 256
"""Characters of a label from which labels are kept as Python objects."""
MOST_ROWS = 3 * 10**9
"""The number i n + j of a pair of rows must be below 2⁶³."""


def freeze(target: Any, **values: Any) -> None:
    """Set fields of a frozen dataclass and make arrays of numbers read-only."""
    for name, value in values.items():
        if isinstance(value, np.ndarray) and value.dtype != object:
            value.setflags(write=False)
        object.__setattr__(target, name, value)


def check_n(n: Any, kind: str) -> int:
    """Return the number of rows as an int, or raise if it is missing."""
    if n is None:
        raise InputError(f"n is missing: {kind} needs the number of rows, write {kind}(..., n=len(X))")
    return whole_number(n, "n", most=MOST_ROWS, most_is="pairs of more rows cannot be numbered")


def as_column(values: Any, name: str) -> Array:
    """Return a 1-d array of n values; a column of shape (n, 1) is flattened."""
    if hasattr(values, "to_numpy"):
        values = values.to_numpy()
    if isinstance(values, list | tuple) and any(isinstance(v, str) and len(v) > LONG for v in values):
        values = _as_objects(values)  # as an array of strings, every row would be as wide as the longest
    try:
        A = np.array(values) if not isinstance(values, np.ndarray) else values if _is_frozen(values) else values.copy()
    except (TypeError, ValueError):
        raise InputError(f"{name} must be 1-d with one value per row, got {shown(values)}") from None
    if A.dtype.kind in "US" and not isinstance(values, np.ndarray) and not all(isinstance(v, str) for v in values):
        A = np.array(values, dtype=object)  # NumPy would have written 'None' and 'nan'
    if A.ndim == 2 and A.shape[1] == 1:
        A = A.ravel()
    if A.ndim != 1 or len(A) == 0:
        raise InputError(f"{name} must be 1-d with one value per row, got shape {A.shape}")
    return A


def _as_objects(values: Sequence[Any]) -> Array:
    A = np.empty(len(values), dtype=object)
    A[:] = values
    return A


def _is_frozen(values: Array) -> bool:
    """Return whether an array is read-only and owns its data, as those that `freeze` made: it need not be copied."""
    return values.base is None and not values.flags.writeable and values.dtype != object


def is_missing(values: Array) -> Array:
    """Return the mask of NaN, NaT, None and pandas' NA."""
    if values.dtype.kind == "f":
        return np.isnan(values)
    if values.dtype.kind in "mM":
        return np.isnat(values)
    if values.dtype == object:
        # NaN and NaT differ from themselves; comparing pandas' NA gives no bool
        return np.asarray([v is None or not _equals(v, v) for v in values.tolist()], dtype=bool)
    return np.zeros(len(values), dtype=bool)


def _equals(v: Any, w: Any) -> bool:
    """Return whether comparing two values gives True, Python's or NumPy's."""
    equal = v == w
    return isinstance(equal, bool | np.bool_) and bool(equal)


def encode(values: Array, missing: Array, name: str) -> tuple[Array, Array]:
    """Return class numbers (-1 where missing) and the sorted distinct values.

    Whole numbers in a small range take 8 bytes per row, and none where they are class numbers already.
    """
    known = values[~missing] if missing.any() else values
    if known.dtype.kind in "iu" and len(known):
        low, high = int(known.min()), int(known.max())
        if high - low < NARROW + len(known) // 4:
            return _encode_narrow(values, missing, low, high)
    codes = np.full(len(values), -1, dtype=np.int64)
    try:
        classes = _distinct(known)
        if classes.dtype == object and not all(a < b for a, b in pairwise(classes.tolist())):
            kind = type(classes[0]).__name__  # sets are compared by inclusion
            raise InputError(f"{name} holds values of the type {kind}, which have no order; convert all to str")
        for part in _parts(len(values)):
            there = ~missing[part]
            codes[part][there] = np.searchsorted(classes, values[part][there])
    except TypeError:
        kinds = sorted({type(v).__name__ for v in known.tolist()})
        raise InputError(f"{name} mixes {' and '.join(kinds)}, which cannot be ordered; convert all to str") from None
    return codes, classes


def _distinct(values: Array) -> Array:
    """Return the sorted distinct values, a block at a time: sorting all takes six times their memory."""
    found = [np.unique(values[part]) for part in _parts(len(values))] or [values]
    few = 2 * sum(map(len, found)) <= len(values)
    return np.unique(np.concatenate(found) if few else values)


def _parts(n: int) -> list[slice]:
    return [slice(i, i + ENCODED_ROWS) for i in range(0, n, ENCODED_ROWS)]


def _encode_narrow(values: Array, missing: Array, low: int, high: int) -> tuple[Array, Array]:
    """Return class numbers and distinct values of whole numbers in low .. high, a block at a time."""
    kind = values.dtype.type

    def shifted(part: slice) -> Array:
        known = values[part][~missing[part]]
        return (known - kind(low)).astype(np.int64) if kind(0).dtype.kind == "u" else known.astype(np.int64) - low

    parts = _parts(len(values))
    present = np.zeros(high - low + 1, dtype=bool)
    for part in parts:
        present[shifted(part)] = True
    classes = np.asarray([low + i for i in np.flatnonzero(present).tolist()], dtype=values.dtype)
    numbered = low == 0 and present.all() and values.dtype == np.int64 and _is_frozen(values)
    if numbered and (values[missing] == -1).all():
        return values, classes
    number = np.cumsum(present) - 1
    codes = np.full(len(values), -1, dtype=np.int64)
    for part in parts:
        codes[part][~missing[part]] = number[shifted(part)]
    return codes, classes


def as_indices(values: Any, n: int, name: str, columns: int) -> Array:
    """Return a (p, columns) int64 array of row numbers inside ``range(n)``."""
    try:
        A = np.asarray(sorted(values) if isinstance(values, set | frozenset) else values)
        A = A if A.ndim else np.asarray(list(values))
    except (TypeError, ValueError):
        raise InputError(f"{name} must be a list of {columns} row numbers each, got {shown(values)}") from None
    if A.size == 0:
        return np.empty((0, columns), dtype=np.int64)
    if columns == 1 and A.ndim == 1:
        A = A[:, None]
    if A.ndim != 2 or A.shape[1] != columns:
        shape = ", ".join("ijkl"[:columns]) if columns <= 4 else f"{columns} per relation"
        raise InputError(f"{name} must be a list of ({shape}) row numbers, got an array of shape {A.shape}")
    if A.dtype.kind not in "iu" and not (A.dtype.kind == "f" and np.array_equal(A, np.rint(A))):
        raise InputError(f"{name} must hold whole row numbers, got dtype {A.dtype}; convert names to positions first")
    bad = np.flatnonzero(((A < 0) | (n <= A)).any(axis=1))
    if len(bad):
        first = tuple(int(v) if abs(v) < 2**63 else v for v in A[bad[0]].tolist())
        raise InputError(
            f"{name}: {len(bad)} of {len(A)} name a row outside 0 .. {n - 1}, first entry {bad[0]} = {first}; "
            "rows are counted from 0, and n is the number of rows of X"
        )
    return A.astype(np.int64)


def unique_pairs(values: Any, n: int, name: str) -> tuple[Array, int]:
    """Return the distinct pairs with i < j in lexicographic order, and the number of repeats."""
    pairs = np.sort(as_indices(values, n, name, 2), axis=1)
    itself = np.flatnonzero(pairs[:, 0] == pairs[:, 1])
    if len(itself):
        raise InputError(
            f"{name}: {len(itself)} pair(s) join a row with itself, first {first_rows(pairs[itself, 0])}; remove them"
        )
    keys = np.unique(pair_keys(pairs, n))
    return keyed_pairs(keys, n), len(pairs) - len(keys)


def row_numbers(columns: Mapping[str, Array], names: Sequence[str]) -> Array:
    """Return columns of a table as a (p, len(names)) array of row numbers; text and fractions are errors."""
    for name in names:
        values = columns[name]
        if values.dtype.kind not in "iu":
            bad = next((p for p, v in enumerate(values.tolist()) if not isinstance(v, int) or abs(v) >= 2**63), 0)
            raise InputError(
                f"column {name!r} holds {values[bad]!r} in entry {bad}, which is no row number; "
                "write the position of the row in the data, counted from 0"
            )
    return np.column_stack([columns[name] for name in names])


def row_values(columns: Mapping[str, Array], name: str, n: int) -> Array:
    """Return a column of a table that has one value for each of ``n`` rows."""
    values = columns[name]
    if len(values) != n:
        raise InputError(f"column {name!r} has {len(values)} values for {n} rows; give one per row")
    return values
