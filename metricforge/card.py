"""A small card in HTML, as notebooks show it for the last value of a cell."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .metric import Metric

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
