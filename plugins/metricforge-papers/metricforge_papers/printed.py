"""The five papers as printed: the values of their tables, and what they say about their figures."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Measure:
    """One measure of a printed table: its values by row and column, each a number or [mean, standard deviation].

    ``better`` is "higher" or "lower"; differences below ``grain`` do not count; ``marks`` names the column that the
    paper marks in a row; ``baseline`` names the column, or else the row, in which nothing is learned.
    """

    better: str
    grain: float
    digits: int
    values: dict[str, dict[str, Any]]
    marks: dict[str, str] = field(default_factory=dict)
    baseline: str = ""

    def mean(self, row: str, column: str) -> float | None:
        """Return the printed value, or None if there is none or it is illegible."""
        value = self.values.get(row, {}).get(column)
        return value[0] if isinstance(value, list) else value

    def std(self, row: str, column: str) -> float | None:
        """Return the printed standard deviation, if there is one."""
        value = self.values.get(row, {}).get(column)
        return value[1] if isinstance(value, list) else None

    def effect(self, row: str, column: str) -> float:
        """Return how much the paper gains in this cell over its baseline; 0 if it gains nothing or has none."""
        value = self.mean(row, column)
        start = self.mean(row, self.baseline)
        if start is None:
            start = self.mean(self.baseline, column)
        if value is None or start is None:
            return 0.0
        return max(0.0, value - start if self.better == "higher" else start - value)


@dataclass(frozen=True)
class Printed:
    """A table or figure as printed: its place, repeats and measures, and what the text claims about it."""

    where: str
    about: str
    repeats: int | None = None
    measures: dict[str, Measure] = field(default_factory=dict)
    says: tuple[str, ...] = ()


@cache
def paper_file(paper: str) -> dict[str, Any]:
    """Return the data file of a paper: its reference, and its tables and figures by name."""
    content: dict[str, Any] = json.loads(
        Path(__file__).with_name("papers").joinpath(f"{paper}.json").read_text(encoding="utf-8")
    )
    return content


def printed(paper: str, name: str) -> Printed:
    """Return a table or figure as printed."""
    content = dict(paper_file(paper)["entries"][name])
    measures = {key: Measure(**value) for key, value in content.pop("measures", {}).items()}
    return Printed(**{**content, "measures": measures, "says": tuple(content.get("says", ()))})
