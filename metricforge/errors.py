"""Every error the library raises on purpose, and the sentence each must carry.

Bad input is an ``InputError`` (a ``ValueError``): its message names the argument, what was wrong, where, and the
repair.  The other classes exist because a caller handles them differently.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any


class InputError(ValueError):
    """The caller's argument is wrong; the message names it and says how to repair it."""


class UnknownNameError(InputError, KeyError):
    """A name is not registered; the message offers the nearest known one."""

    def __str__(self) -> str:
        # KeyError would print the repr of the sentence.
        return str(self.args[0]) if self.args else ""


class NotAcceptedError(InputError):
    """A solver was given a kind of constraint that it cannot use."""


class MemoryBudgetError(InputError, MemoryError):
    """The call would need more memory than the budget allows; the message says how much."""


class ModelFileError(InputError):
    """A saved metric cannot be read: truncated, damaged, foreign, or from a later version."""


class MissingPluginError(ModelFileError):
    """A saved metric needs a component whose plugin is not installed."""


class PluginError(RuntimeError):
    """A plugin was refused; the message names it and the reason."""


class NotUpdatableError(InputError, NotImplementedError):
    """The method that learned a metric cannot take new rows without a new fit."""


class SolverError(RuntimeError):
    """A solver broke its contract, for instance by returning a NaN."""


class ConvergenceWarning(UserWarning):
    """A solver stopped at a limit; its certificate says how far from the optimum."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the tail of an "unknown name" message: the nearest known name, or all of them."""
    names = sorted(known)
    close = get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]!r}? Known: {', '.join(names)}"
    return f"known: {', '.join(names) or 'none'}"


def whole_number(value: Any, name: str, least: int = 1) -> int:
    """Return ``value`` as an int of at least ``least``, or raise naming the argument."""
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if isinstance(value, bool) or number < least:
        raise InputError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return number


def first_rows(rows: Iterable[int], limit: int = 5) -> str:
    """Return ``'rows 3, 8, 11, ...'``: where the trouble is, without printing a million numbers."""
    shown = [int(r) for _, r in zip(range(limit + 1), rows, strict=False)]
    word = "row" if len(shown) == 1 else "rows"
    tail = ", ..." if len(shown) > limit else ""
    return f"{word} {', '.join(map(str, shown[:limit]))}{tail}"
