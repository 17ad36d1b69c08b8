"""Signs of work between the steps of a solver, in long passes over rows: a progress bar shall not seem to hang."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

INTERVAL = 0.5
"""Seconds between two signs, at the least."""


@dataclass(eq=False)
class _Listener:
    call: Callable[[int, int], None]
    last: float


_listener: ContextVar[_Listener | None] = ContextVar("listener", default=None)


@contextmanager
def listening(call: Callable[[int, int], None]) -> Iterator[None]:
    """Call ``call(done, total)`` about twice a second while blocks of rows are worked through inside the block."""
    token = _listener.set(_Listener(call, time.monotonic()))
    try:
        yield
    finally:
        _listener.reset(token)


def beat(done: int, total: int) -> None:
    """Report that ``done`` of ``total`` equal parts of a pass are finished; cheap enough for every block."""
    listener = _listener.get()
    if listener is None:
        return
    now = time.monotonic()
    if now - listener.last >= INTERVAL:
        listener.last = now
        listener.call(done, total)
