"""A small card in HTML, as notebooks show it for the last value of a cell."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

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
