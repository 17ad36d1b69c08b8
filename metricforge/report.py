"""Report: what a fit recorded, and the page that shows it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import UnknownNameError

if TYPE_CHECKING:
    from .metric import Metric


class Report(Mapping[str, Any]):
    """The record of a fit, by name: ``report.gap`` or ``report["gap"]``.

    The core's own fields come first (method, status, objective, gap, n, ...).  What the method reports about its result
    is in the mapping ``report.outcome``; ``report.NAME`` also finds those values, unless the core has a field of that
    name.

    Parameters
    ----------
    values : mapping
        The fields of the core.
    outcome : mapping
        The values of the method.
    """

    def __init__(self, values: Mapping[str, Any], outcome: Mapping[str, Any] | None = None) -> None:
        self.__dict__["_core"] = MappingProxyType(dict(values))
        self.__dict__["outcome"] = MappingProxyType(dict(outcome or {}))

    _core: Mapping[str, Any]
    outcome: Mapping[str, Any]
    """The values of the method, which its page lists under Outcome."""

    def __getitem__(self, name: str) -> Any:
        for values in (self._core, self.outcome):
            if name in values:
                return values[name]
        raise UnknownNameError(f"the report has no {name!r}; it has {', '.join(self)}")

    def get(self, name: str, default: Any = None) -> Any:
        """Return a value, or ``default`` where the report has none of this name."""
        core = self._core
        return core[name] if name in core else self.outcome.get(name, default)

    def __iter__(self) -> Iterator[str]:
        yield from self._core
        yield from (name for name in self.outcome if name not in self._core)

    def __len__(self) -> int:
        return len(self._core.keys() | self.outcome.keys())

    def __getattr__(self, name: str) -> Any:
        if name in self.__dict__.get("_core", ()) or name in self.__dict__.get("outcome", ()):
            return self[name]
        known = ", ".join(self) if "outcome" in self.__dict__ else "nothing yet"
        raise AttributeError(f"the report has no {name!r}; it has {known}")

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("a report is read-only")

    def __reduce__(self) -> Any:
        return Report, (dict(self._core), dict(self.outcome))  # a mappingproxy cannot be pickled

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self]

    def __repr__(self) -> str:
        hidden = {f"outcome.{name}": value for name, value in self.outcome.items() if name in self._core}
        lines = {**self, **hidden}
        width = max((len(name) for name in lines), default=0)
        return "\n".join(f"{name:<{width}}  {short(value)}" for name, value in lines.items())


def short(value: Any) -> str:
    """Return a value of a report on one line."""
    if isinstance(value, np.ndarray):
        return f"array {value.shape} {value.dtype}"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, tuple | list) and len(value) > 6:
        return f"{len(value)} entries, last {value[-1]}"
    return str(value)


def html(metric: Metric, constraints: Any, **options: Any) -> str:
    """Return the page as text; see `metricforge.reports.page.html`."""
    from .reports import page

    return page.html(metric, constraints, **options)


def write(path: str | os.PathLike[str], metric: Metric, constraints: Any, **options: Any) -> None:
    """Write the page; see `metricforge.reports.page.html` for the options."""
    from .reports import page

    page.write(path, metric, constraints, **options)


# the ink of the page around it, so that it can be read on a light and on a dark one
FRAME = "display:inline-block;border:1px solid rgba(127,127,127,.45);border-radius:6px;padding:.6em .9em;max-width:46em"
NAME = "opacity:.65;padding:.1em 1em .1em 0;text-align:left;vertical-align:top;font-weight:400;white-space:nowrap"
VALUE = "text-align:left;padding:.1em 0;overflow-wrap:anywhere"


def card(title: str, lines: Iterable[tuple[str, str]]) -> str:
    """Return a card with a title and names beside values; everything is escaped."""
    inside = "".join(
        f'<tr style="background:none"><th style="{NAME}">{escape(name)}</th>'
        f'<td style="{VALUE}">{escape(value)}</td></tr>'
        for name, value in lines
    )
    return (
        f'<div class="metricforge-card" style="{FRAME}"><div style="font-weight:600;margin-bottom:.3em">{escape(title)}'
        f'</div><table style="border:0;border-collapse:collapse;margin:0;font-size:.92em">{inside}</table></div>'
    )


def lines_of(metric: Metric) -> list[tuple[str, str]]:
    """Return what the card of a metric says."""
    facts, lines = metric.report, []
    if "relations" in facts:
        lines.append(("from", f"{facts['relations']} relations over {facts['n']} rows"))
    if metric.width is not None:
        names = ", ".join(metric.columns[:5]) + (", ..." if len(metric.columns) > 5 else "")
        lines.append(("features", f"{metric.width}: {names}" if names else str(metric.width)))
    if metric.start is not None:
        lines.append(("start", rounded(str(facts.get("kernel", type(metric.start).__name__)))[:200]))
    if "choice" in facts:
        lines.append(("choice", str(facts["choice"])))
    if "certificate" in facts:
        status = str(facts.get("status", "")).replace("_", " ")
        lines.append(("certificate", f"{status}: {facts['certificate'].describe()}"))
    for score in facts.get("held_out_scores", ()):
        shares = f"{100 * score['before']:.1f} % → {100 * score['after']:.1f} ± {100 * score['error'][1]:.1f} %"
        lines.append(("held out", f"{shares} {score['what']}"))
    if "seconds" in facts:
        lines.append(("time", f"{facts['seconds']:.2g} s"))
    lines.extend(("note", str(note)) for note in facts.get("notes", ()))
    return lines


def rounded(text: str) -> str:
    """Return the repr of a component with four digits, without fields that are None and without array contents."""
    text = re.sub(r"array\((?:[^()]|\([^()]*\))*\)", "array(…)", text)
    digits = re.sub(r"\d+\.\d{4,}(e[-+]?\d+)?", lambda number: f"{float(number[0]):.4g}", text)
    return re.sub(r"(, )?\w+=None", "", digits)
