"""Checks of single arguments, and the parts of error messages that several rooms share.

Every check returns the value in its plain type, or raises an `InputError` that names the argument, what it must be, and
what was given.
"""

from __future__ import annotations

import math
import operator
import reprlib
import sys
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from numbers import Real
from typing import Any, TypedDict, Unpack

from .errors import InputError, UnknownNameError


class Limits(TypedDict, total=False):
    """Limits of a number: ``least`` and ``most`` are included, ``above`` and ``below`` are not."""

    least: float
    above: float
    most: float
    below: float


_COMPARE = {"least": operator.ge, "above": operator.gt, "most": operator.le, "below": operator.lt}
_SAY = {"least": "of at least", "above": "above", "most": "at most", "below": "below"}


# ------------------------------------------------------------------------------------------------------------- numbers


def is_number(value: Any) -> bool:
    """Return whether ``value`` is a real number; booleans are not."""
    return isinstance(value, Real) and not _is_boolean(value)


def number(value: Any, name: str, **bounds: Unpack[Limits]) -> float:
    """Return ``value`` as a float where it is finite and within the `Limits`."""
    if not _within(value, bounds):
        raise wrong(name, _describe(bounds), value)
    return float(value)


def number_or(value: Any, name: str, others: Sequence[str | None], **bounds: Unpack[Limits]) -> Any:
    """Return ``value`` where it is one of ``others`` (such as "auto" or None), else what `number` returns."""
    if _is_one_of(value, others):
        return value
    if not _within(value, bounds):
        raise wrong(name, _either(others, _describe(bounds)), value)
    return float(value)


def numbers(values: Any, name: str, **bounds: Unpack[Limits]) -> tuple[float, ...]:
    """Return a non-empty list, tuple or array of numbers, each of which passes `number`, as a tuple of floats."""
    given = tuple(values) if _is_list(values) else ()
    if not given or not all(_within(value, bounds) for value in given):
        raise wrong(name, f"a list, each entry {_describe(bounds)}", values)
    return tuple(float(value) for value in given)


def rows_of_numbers(values: Any, name: str) -> tuple[tuple[float, ...], ...]:
    """Return a non-empty list or array of rows of numbers, as tuples of floats."""
    if not _is_list(values) or not len(values):
        raise wrong(name, "a list of rows of numbers", values)
    return tuple(numbers(row, name) for row in values)


def whole_number(value: Any, name: str, least: int = 1, most: int | None = None, most_is: str = "") -> int:
    """Return ``value`` as an int of at least ``least`` and, where given, at most ``most``.

    ``most_is`` tells the user what the upper bound is, for instance "the number of training rows".
    """
    found = _as_whole(value, least, most)
    if found is None:
        raise wrong(name, _describe_whole(least, most) + (f" ({most_is})" if most_is else ""), value)
    return found


def generator(seed: Any) -> Any:
    """Return NumPy's random generator of a seed, or raise if it is none."""
    import numpy as np

    try:
        return np.random.default_rng(seed)
    except (TypeError, ValueError):
        raise wrong("seed", "a whole number of at least 0", seed) from None


def whole_number_or(
    value: Any, name: str, others: Sequence[str | None], least: int = 1, most: int | None = None
) -> Any:
    """Return ``value`` where it is one of ``others``, else what `whole_number` returns."""
    if _is_one_of(value, others):
        return value
    found = _as_whole(value, least, most)
    if found is None:
        raise wrong(name, _either(others, _describe_whole(least, most)), value)
    return found


def _is_list(values: Any) -> bool:
    import numpy as np

    return isinstance(values, list | tuple) or (isinstance(values, np.ndarray) and values.ndim > 0)


def _within(value: Any, bounds: Limits) -> bool:
    if not is_number(value):
        return False
    try:
        found = float(value)
    except OverflowError:  # a whole number beyond 1e308
        return False
    return math.isfinite(found) and all(_COMPARE[side](found, limit) for side, limit in _limits(bounds))


def _describe(bounds: Limits) -> str:
    limits = " and ".join(f"{_SAY[side]} {limit:g}" for side, limit in _limits(bounds))
    bounded = "most" in bounds or "below" in bounds
    return f"a {'' if bounded else 'finite '}number {limits}".rstrip()


def _limits(bounds: Limits) -> list[tuple[str, float]]:
    return [(side, float(limit)) for side, limit in bounds.items() if isinstance(limit, int | float)]


def _as_whole(value: Any, least: int, most: int | None) -> int | None:
    if _is_boolean(value):
        return None
    try:
        found = operator.index(value)
    except TypeError:
        return None
    return None if found < least or (most is not None and found > most) else found


def _describe_whole(least: int, most: int | None) -> str:
    return f"a whole number of at least {least}" + ("" if most is None else f" and at most {most}")


# -------------------------------------------------------------------------------------------------------- other values


def one_of(value: Any, name: str, known: Sequence[str]) -> str:
    """Return ``value`` where it is one of the ``known`` strings, else raise with the nearest of them."""
    if not isinstance(value, str) or value not in known:
        raise UnknownNameError(
            f"{name}={shown(value)} is unknown; {nearest(value[:200] if isinstance(value, str) else '', known)}"
        )
    return value


def flag(value: Any, name: str) -> bool:
    """Return ``value`` where it is True or False; 0, 1 and other stand-ins are refused."""
    if not _is_boolean(value):
        raise wrong(name, "True or False", value)
    return bool(value)


def check_sparse_indices(A: Any) -> None:
    """Raise ValueError if the indices of a sparse matrix are invalid.

    SciPy accepts indices that are out of range, and its compiled code then reads and writes outside its arrays: the
    check has to come before the first conversion.  It takes two passes over the indices.
    """
    import numpy as np

    if hasattr(A, "indptr"):  # CSR, CSC and BSR; COO checks its indices when it is made
        if (np.diff(A.indptr) < 0).any():  # SciPy skips this check if the last pointer is 0
            raise ValueError("the index pointers decrease")
        A.check_format(full_check=True)


def wrong(name: str, wanted: str, value: Any) -> InputError:
    """Return the error of an argument: ``"{name} must be {wanted}, got {value!r}"``."""
    return InputError(f"{name} must be {wanted}, got {shown(value)}")


def _is_one_of(value: Any, others: Sequence[str | None]) -> bool:
    # an array compares entry by entry, so its type is asked first
    return (value is None or isinstance(value, str)) and value in others


def _either(others: Sequence[str | None], last: str) -> str:
    quoted = ["None" if other is None else f'"{other}"' for other in others]
    return f"{', '.join(quoted)} or {last}"


def _is_boolean(value: Any) -> bool:
    if type(value) is int or type(value) is float:
        return False
    # NumPy is not imported for this: the command line checks names before it loads NumPy
    numpy = sys.modules.get("numpy")
    return isinstance(value, bool) or (numpy is not None and isinstance(value, numpy.bool_))


# --------------------------------------------------------------------------------------------------- parts of messages


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the tail of an "unknown name" message: the nearest known name, and all of them."""
    names = sorted(known)
    close = get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]!r}? Known: {', '.join(names)}"
    return f"known: {', '.join(names) or 'none'}"


def shown(value: Any, most: int = 200) -> str:
    """Return the repr of any value as a user passed it, in one line of at most ``most`` characters."""
    long = isinstance(value, str | bytes | list | tuple | set | frozenset | dict) and len(value) > most
    try:
        text = " ".join((reprlib.repr if long else repr)(value).split())
    except Exception:  # the value's own code
        text = f"an object of type {type(value).__name__}"
    return text if len(text) <= most else text[: most - 1] + "…"


def first_rows(rows: Iterable[int], limit: int = 5) -> str:
    """Return ``'rows 3, 8, 11, ...'``: the first row numbers, at most ``limit`` of them."""
    shown = [int(r) for _, r in zip(range(limit + 1), rows, strict=False)]
    word = "row" if len(shown) == 1 else "rows"
    tail = ", ..." if len(shown) > limit else ""
    return f"{word} {', '.join(map(str, shown[:limit]))}{tail}"


def plural(count: int, noun: str, nouns: str = "") -> str:
    """Return ``'1 row'`` or ``'3 rows'``; ``nouns`` is the plural where it is not the noun with an s."""
    return f"{count} {noun if count == 1 else nouns or noun + 's'}"
