"""Progress of a fit: the event, and the plugin that draws a bar on a terminal.

The bar is an ordinary plugin that implements the hook ``metricforge_step``.  It draws if standard error is a terminal
or belongs to a notebook, and the fit has run for half a second.  ``METRICFORGE_PROGRESS=0`` silences it, and
``METRICFORGE_PROGRESS=1`` draws it anywhere, for instance into the log of a job.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from .components import registry
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


@contextmanager
def progress(task: str) -> Iterator[Callable[..., None]]:
    """Send progress events for a task; yields the ``step`` of a Problem.

    The first event comes at once and the last one also after an error.  Dask tasks inside the block are counted, and
    long passes over rows repeat the last step, with the part of the pass that is done.
    """
    from ..distributed import cluster
    from ..rows import listening  # not where the command line is parsed

    registry.step(Event(task))
    steps = _Steps(task)
    try:
        with cluster.watched(_Tasks(task)), listening(steps.working):
            yield steps
    finally:
        registry.step(Event(task, done=True))


@dataclass(frozen=True)
class _Tasks:
    """Sends the number of finished dask tasks."""

    task: str

    def __call__(self, finished: int, total: int) -> None:
        registry.step(Event(self.task, finished, total, info={"tasks": total}))


@dataclass
class _Steps:
    """The ``step`` of a Problem: sends one iteration of a solver."""

    task: str
    last: Event | None = None

    def __call__(self, step: int, total: int | None = None, **info: float) -> None:
        self.last = Event(self.task, step, total, info=info)
        registry.step(self.last)

    def working(self, done: int, total: int) -> None:
        """Send the last iteration again, with the part of a pass over rows that is done since."""
        last = self.last or Event(self.task)
        registry.step(replace(last, info={**last.info, "pass": done / total}))


class _Bar:
    delay = 0.5
    interval = 0.1
    idle = 1.0
    """Without an event for this long, the line is drawn again with the seconds so far: it never seems to hang."""

    def __init__(self) -> None:
        self.since: dict[str, float] = {}  # start of every running task; a fit may be part of a longer task
        self.events: dict[str, Event] = {}  # the last event of every running task
        self.last = 0.0
        self.drawn = False
        self.width = 0
        self.shown: tuple[int, Any] | None = None  # in notebooks: the number of the cell, and the line below it
        self.lock = threading.RLock()
        self.ticking = False
        self.show_warning: Any = None  # what showed warnings before the bar was drawn

    def __call__(self, event: Event) -> None:
        now = time.monotonic()
        with self.lock:
            since = self.since.setdefault(event.task, now)
            self.events[event.task] = event
            if event.done:
                del self.since[event.task], self.events[event.task]
                self.clear()
            elif now - since >= self.delay and now - self.last >= self.interval:
                self._draw(event, now)
            if self.since and not self.ticking:
                self.ticking = True
                threading.Thread(target=self._tick, name="metricforge-progress", daemon=True).start()

    def _draw(self, event: Event, now: float) -> None:
        text = line(event, now - self.since[event.task])
        if warnings.showwarning != self._warn:
            self.show_warning, warnings.showwarning = warnings.showwarning, self._warn
        self._write(text)
        self.last, self.drawn, self.width = now, True, len(text)

    def _warn(self, *about: Any, **options: Any) -> None:
        """Remove the bar before a warning that a solver raises: the tail of the bar would stay behind a shorter one."""
        self.clear()
        self.show_warning(*about, **options)

    def _write(self, text: str) -> None:
        """Replace the line by a text."""
        if _is_notebook():
            self._show(text)
            return
        if sys.stderr.isatty():
            # the cursor stays at the margin: what others print is written over the bar, not behind it
            sys.stderr.write(f"\r\x1b[K{text}\r" if text else "\r\x1b[K")
        else:
            sys.stderr.write("\r" + " " * self.width + "\r" + text)
        sys.stderr.flush()

    def _show(self, text: str) -> None:
        """Replace the line in a notebook: pages made from it show all that a carriage return overwrites."""
        from IPython import display, get_ipython

        cell = get_ipython().execution_count
        if self.shown is None or self.shown[0] != cell:
            self.shown = cell, display.display({"text/plain": text}, raw=True, display_id=True)
        else:
            self.shown[1].update({"text/plain": text}, raw=True)

    def clear(self) -> None:
        """Remove the bar, so that the next line of text starts at the margin."""
        with self.lock:
            if self.drawn:
                self._write("")
                self.drawn, self.width = False, 0
            if warnings.showwarning == self._warn:
                warnings.showwarning = self.show_warning

    def _tick(self) -> None:
        """Draw the latest event of the innermost task again, until no task is running."""
        while True:
            time.sleep(self.idle)
            now = time.monotonic()
            with self.lock:
                if not self.since:
                    self.ticking = False
                    return
                task = next(reversed(self.since))
                if now - self.since[task] >= self.delay and now - self.last >= self.idle:
                    self._draw(self.events[task], now)


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
    if _wanted():
        _bar(event)


def clear() -> None:
    """Remove the bar, before something else is written to the terminal."""
    _bar.clear()


def _wanted() -> bool:
    asked = os.environ.get("METRICFORGE_PROGRESS")
    if sys.stderr is None or asked == "0":
        return False
    return asked == "1" or sys.stderr.isatty() or _is_notebook()


def _is_notebook() -> bool:
    return type(sys.stderr).__module__.startswith("ipykernel.")
