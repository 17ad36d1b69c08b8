"""The memory budget of one call: how large it is, and the error when a request exceeds it."""

from __future__ import annotations

import os
import sys
from contextvars import ContextVar

from ..errors import InputError, MemoryBudgetError

_HELD: ContextVar[int] = ContextVar("held", default=0)


def free_memory() -> int:
    """Return the number of bytes available on this machine."""
    import psutil

    return int(psutil.virtual_memory().available)


def resident_memory() -> int:
    """Return the memory of this process, in bytes."""
    import psutil

    return int(psutil.Process().memory_info().rss)


def memory_budget() -> int:
    """Return how many bytes one call may allocate: ``METRICFORGE_MEMORY`` ("2GB"), or half of the free memory."""
    requested = requested_budget()
    return free_memory() // 2 if requested is None else requested


def requested_budget() -> int | None:
    """Return the budget that ``METRICFORGE_MEMORY`` sets, or None; sizes of blocks follow no other one.

    Results differ by rounding where blocks do, and must not depend on the memory that happens to be free.
    """
    requested = os.environ.get("METRICFORGE_MEMORY")
    return max(0, parse_bytes(requested) - _HELD.get()) if requested else None


def hold(nbytes: int) -> None:
    """Count memory that a caller keeps against the requested budget, until the current context (`contextvars`) ends.

    A command holds the rows that it has read while it learns from them.
    """
    _HELD.set(_HELD.get() + nbytes)


def parse_bytes(text: str) -> int:
    """Return the number of bytes in "500MB", "2 GiB" or "1000000"."""
    units = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
    digits = text.strip().rstrip("kmgibKMGIB ")
    unit = text.strip()[len(digits) :].strip().lower()
    try:
        size = int(float(digits) * units[unit])
    except (KeyError, ValueError, OverflowError):
        size = -1
    if not 0 <= size <= sys.maxsize:
        raise InputError(f"METRICFORGE_MEMORY={text!r} is not an amount of memory; write for instance 2GB")
    return size


def show_bytes(size: int) -> str:
    """Return an amount of memory as text, in MB or GB."""
    if size >= 10**15:  # also what no float can hold
        return "more than a million GB"
    return f"{size / 1e9:.1f} GB" if size >= 10**9 else f"{size / 1e6:.3g} MB"


def check_memory(needed: int, what: str, repair: str) -> None:
    """Raise MemoryBudgetError if ``needed`` bytes exceed the budget.

    Parameters
    ----------
    needed : int
        Bytes that the call would allocate.
    what : str
        What needs them, as the subject of the message.
    repair : str
        How the user can need less, as an imperative.
    """
    budget = memory_budget()
    if needed > budget:
        held = _HELD.get() if requested_budget() is not None else 0
        whole = show_bytes(budget + held) + (f" less {show_bytes(held)} that are in use" if held else "")
        raise MemoryBudgetError(
            f"{what} would take {show_bytes(needed)}, and the memory budget is {whole}; {repair}, or raise the budget "
            "with the environment variable METRICFORGE_MEMORY"
        )
