"""Operations on index arrays: (p, k) int64 arrays of row numbers, one relation per line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..rows import draw
from ..validation import first_rows, generator, shown, whole_number

Array = NDArray[Any]


def components_of(pairs: Array, n: int) -> Array:
    """Return the connected component of each of ``n`` rows in the graph of ``pairs``, numbered by first row."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    i, j = pairs.T if len(pairs) else (np.empty(0, int), np.empty(0, int))
    graph = coo_array((np.ones(len(i), dtype=np.int8), (i, j)), shape=(n, n))
    component: Array = connected_components(graph, directed=False)[1].astype(np.int64)
    return component


def groups_of(pairs: Array, n: int) -> Array:
    """Return the connected component of each row that occurs in ``pairs``, and -1 for the other rows."""
    touched = np.zeros(n, dtype=bool)
    touched[pairs.ravel()] = True
    return np.where(touched, components_of(pairs, n), -1)


def by_first_row(codes: Array) -> Array:
    """Return class numbers in the order in which classes occur first, -1 where there is none.

    What is drawn from them depends on the partition of the rows only, not on the names of the classes.
    """
    rows = np.flatnonzero(codes >= 0)[::-1]
    first = np.full(int(codes.max(initial=-1)) + 1, len(codes))
    first[codes[rows]] = rows  # of several rows the last one stands, which is the first of the class
    number = np.empty(len(first), dtype=np.int64)
    number[np.argsort(first, kind="stable")] = np.arange(len(first))
    if (number == np.arange(len(number))).all():
        return codes
    return np.where(codes >= 0, number[np.maximum(codes, 0)], -1)


def members_of(codes: Array) -> list[Array]:
    """Return the rows of each code ``0 .. codes.max()``; rows with code -1 belong to none."""
    order = np.argsort(codes, kind="stable")
    order = order[codes[order] >= 0]
    if not len(order):
        return []
    return np.split(order, np.cumsum(np.bincount(codes[order]))[:-1])


def pair_keys(pairs: Array, n: int) -> Array:
    """Return one number per pair, i * n + j."""
    return pairs[:, 0] * np.int64(n) + pairs[:, 1]


def keyed_pairs(keys: Array, n: int) -> Array:
    """Return the pairs of `pair_keys`."""
    return np.stack([keys // n, keys % n], axis=1)


def inside(relations: Array, position: Array) -> Array:
    """Return the relations whose rows all have a new number in ``position``, renumbered."""
    moved: Array = position[relations]
    return moved[(moved >= 0).all(axis=1)]


def stack_pairs(parts: list[Array]) -> Array:
    """Return one (p, 2) array of several, which may be none."""
    return np.concatenate(parts) if parts else np.empty((0, 2), dtype=np.int64)


def all_pairs(rows: Array) -> Array:
    """Return every pair of the given rows."""
    i, j = np.triu_indices(len(rows), k=1)
    return np.stack([rows[i], rows[j]], axis=1)


def cross_pairs(a: Array, b: Array) -> Array:
    """Return every pair of a row of ``a`` and a row of ``b``."""
    return np.stack([np.repeat(a, len(b)), np.tile(b, len(a))], axis=1)


def deal(rows: Array, k: int, seed: int, *, by: Array | None = None, what: str = "row") -> list[Array]:
    """Split ``rows`` at random into ``k`` parts of equal size, up to one.

    With ``by``, one value per row, rows of equal value are spread evenly over the parts.
    """
    k = whole_number(k, "k", least=2)
    if len(rows) < k:
        raise InputError(f"k is {k}, but the relations name {len(rows)} {what}(s); ask for fewer folds")
    order = generator(seed).permutation(len(rows))
    if by is not None:
        order = order[np.argsort(by[order], kind="stable")]
    return [np.sort(rows[order[part::k]]) for part in range(k)]


def partners(first: Array, second: Array) -> tuple[Array, list[Array]]:
    """Return the distinct values of ``first``, and the distinct values of ``second`` that stand beside each."""
    pairs = np.unique(np.stack([first, second], axis=1), axis=0)
    rows, starts = np.unique(pairs[:, 0], return_index=True)
    return rows, np.split(pairs[:, 1], starts[1:]) if len(rows) else []


SMALL = 20
"""Whole groups are drawn if so many of their mean size are at most what is wanted."""


def draw_groups(codes: Array, most: int, seed: int) -> Array:
    """Return at most ``most`` rows in ascending order, drawn at random such that rows of one group are among them.

    ``codes`` has the number of each row's group, -1 for none.  Rows of large groups are drawn one by one, small groups
    as a whole: single rows of many small groups would have no partner.
    """
    codes = by_first_row(codes)
    rows = np.flatnonzero(codes >= 0)
    sizes = np.bincount(codes[rows])
    if SMALL * len(rows) > most * np.count_nonzero(sizes):
        return np.asarray(rows[draw(len(rows), most, seed)])
    order = np.random.default_rng(seed).permutation(len(sizes))
    taken = np.zeros(len(sizes), dtype=bool)
    taken[order[np.cumsum(sizes[order]) <= most]] = True
    return np.asarray(rows[taken[codes[rows]]])


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
