"""Dates as numbers: days since 1970-01-01, with the time of day as a fraction."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .cells import is_missing
from .texts import Texts

Array = NDArray[Any]

STYLES = {
    "iso": "2024-01-31",
    "year first": "2024/01/31",
    "dotted": "31.01.2024",
    "day first": "31/01/2024",
    "month first": "01/31/2024",
}
"""The ways in which dates are read, with an example of each."""
DAY = 86_400.0

_ISO = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}.*)?")
_YEAR_FIRST = re.compile(r"(\d{4})/(\d{1,2})/(\d{1,2})")
_DOTTED = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})")
_SLASHED = re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})")


def style_of(texts: Sequence[str]) -> str | None:
    """Return the style in which all texts are dates, "unclear" if two styles fit, None if they are no dates."""
    known = [text.strip() for text in texts if not is_missing(text)]
    if not known:
        return None
    fitting = [style for style in STYLES if all(_day(text, style) is not None for text in known)]
    if len(fitting) > 1:
        return "unclear"
    return fitting[0] if fitting else None


def as_days(column: Any, style: str) -> Array:
    """Return dates as days: NaN where a cell is missing, inf where it is no date of this style."""
    if isinstance(column, Texts):
        found = [_day(text.strip(), style) if not is_missing(text) else np.nan for text in column.texts]
        return np.array([np.inf if day is None else day for day in found])[column.codes]
    values = np.asarray(column)
    if values.dtype.kind != "M":
        return np.where(np.isnan(values), np.nan, np.inf)  # numbers where dates should be
    days: Array = values.astype("datetime64[us]").astype(np.float64) / (DAY * 1e6)
    days[np.isnat(values)] = np.nan
    return days


def _day(text: str, style: str) -> float | None:
    try:
        return _READERS[style](text)
    except (ValueError, OverflowError):
        return None


def _iso(text: str) -> float | None:
    if not _ISO.fullmatch(text):
        return None
    moment = datetime.fromisoformat(text)
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    return moment.timestamp() / DAY


def _parts(pattern: re.Pattern[str], day: int, month: int, year: int = 3) -> Callable[[str], float | None]:
    def read(text: str) -> float | None:
        found = pattern.fullmatch(text)
        if found is None:
            return None
        return datetime(int(found[year]), int(found[month]), int(found[day]), tzinfo=UTC).timestamp() / DAY

    return read


_READERS: dict[str, Callable[[str], float | None]] = {
    "iso": _iso,
    "year first": _parts(_YEAR_FIRST, 3, 2, 1),
    "dotted": _parts(_DOTTED, 1, 2),
    "day first": _parts(_SLASHED, 1, 2),
    "month first": _parts(_SLASHED, 2, 1),
}
