"""Progress of a fit: the event, and the plugin that draws a bar on a terminal.

The bar is an ordinary plugin that implements the hook ``metricforge_step``.  It draws only if standard error is a
terminal and the fit has run for half a second, and never with ``METRICFORGE_PROGRESS=0``.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from .hooks import hookimpl


@dataclass(frozen=True)
class Event:
    """One step of a fit.

    Attributes
    ----------
    task : str
        The fit, for example "krca on 178 rows".
    step : int
    total : int or None
        None if unknown.
    done : bool
        Whether this is the last event of the task; it comes after errors too.
    info : mapping of str to float
        Figures of the solver, such as ``gap`` and ``objective``.
    """

    task: str
    step: int = 0
    total: int | None = None
    done: bool = False
    info: Mapping[str, float] = field(default_factory=dict)


class _Bar:
    delay = 0.5
    interval = 0.1

    def __init__(self) -> None:
        self.since: dict[str, float] = {}  # start of every running task; a fit may be part of a longer task
        self.last = 0.0
        self.drawn = False

    def __call__(self, event: Event) -> None:
        now = time.monotonic()
        since = self.since.setdefault(event.task, now)
        if event.done:
            del self.since[event.task]
            if self.drawn:
                sys.stderr.write("\r\x1b[K")
                sys.stderr.flush()
                self.drawn = False
        elif now - since >= self.delay and now - self.last >= self.interval:
            sys.stderr.write("\r\x1b[K" + line(event, now - since))
            sys.stderr.flush()
            self.last, self.drawn = now, True


def line(event: Event, seconds: float, width: int = 24) -> str:
    """Return the text of the bar for one event."""
    info = "".join(f"  {name} {value:.3g}" for name, value in event.info.items())
    if event.total:
        share = min(1.0, event.step / event.total)
        full = round(width * share)
        return f"{event.task}  [{'#' * full}{'.' * (width - full)}] {share:4.0%}{info}  {seconds:.0f} s"
    return f"{event.task}  step {event.step}{info}  {seconds:.0f} s"


_bar = _Bar()


@hookimpl
def metricforge_step(event: Event) -> None:
    """Draw the bar."""
    if sys.stderr is not None and sys.stderr.isatty() and os.environ.get("METRICFORGE_PROGRESS") != "0":
        _bar(event)
