"""Decide how the columns of a table become numbers, and read later tables in the same way."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from .cells import BOOLEAN, GROUPED, RawTable, Texts, as_numbers, as_texts, check_cell, is_missing
from .delimited import raw_text
from .formats import TEXT, existing, raw_parquet, read, reading
from .preparation import STYLES, Preparation, as_days, style_of
from .table import Dialect, Selection, Table, check_columns, extension, without_name

Array = NDArray[Any]

MEDIAN_ROWS = 10_000
"""Rows whose median stands for missing cells of later files, if no cell is missing among more rows."""
MOST_LEVELS = 50
"""A column of text with more levels is left out: it is an identifier or free text, not a category."""


@dataclass(frozen=True)
class Choices:
    """What a user decides about the columns of a table.

    Attributes
    ----------
    columns : names of the only columns to use; empty for all
    drop : names of columns to leave out
    categories : names of columns to treat as categories, also where they hold numbers
    missing : one of `metricforge.tables.preparation.MISSING`
    dialect : Dialect
    """

    columns: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    missing: str = "median"
    dialect: Dialect = field(default_factory=Dialect)


def read_prepared(
    path: str | os.PathLike[str],
    choices: Choices,
    *,
    extra: Iterable[str] = (),
    flags: Iterable[str] = (),
    lazy: bool = False,
) -> Table:
    """Read the rows of a table of numbers, categories, dates and missing cells.

    Formats that hold numbers only, and rows that are left on disk (``lazy``), are read as `read` does.
    """
    found = existing(path)
    extra = tuple(extra)
    if lazy or extension(found) not in (*TEXT, ".parquet"):
        _check_plain(choices, found)
        only = choices.columns or None
        return read(found, extra=extra, drop=choices.drop, only=only, flags=flags, lazy=lazy, dialect=choices.dialect)
    chosen = tuple(name for name in choices.columns if name not in {*choices.drop, *extra})
    selection = Selection(extra, choices.drop, flags=tuple(flags), dialect=choices.dialect, unnamed=True)
    raw = _raw(found, selection, chosen, choices.categories)
    if "" not in raw.columns or not raw.named:
        return _applied(prepare(raw, choices), raw)
    counter = raw.columns[""]  # pandas writes its index so
    if isinstance(counter, Texts) or not np.array_equal(counter, counter[0] + np.arange(raw.n)):
        raise without_name(found, list(raw.columns).index(""))
    others = {name: column for name, column in raw.columns.items() if name}
    raw = replace(raw, columns=others, matrix=None)
    table = _applied(prepare(raw, choices), raw)
    return replace(table, notes=(*table.notes, "a column without a name numbers the rows and was left out"))


def read_again(
    path: str | os.PathLike[str],
    preparation: Preparation,
    *,
    extra: Iterable[str] = (),
    dialect: Dialect | None = None,
) -> Table:
    """Read the rows of a later table, prepared as those that a metric was learned from."""
    found = existing(path)
    written = replace(dialect or Dialect(), missing_values=preparation.missing_values)
    selection = Selection(tuple(extra), only=preparation.columns, dialect=written)
    categories = tuple(preparation.levels)
    if extension(found) in (*TEXT, ".parquet"):
        return _applied(preparation, _raw(found, selection, (), categories))
    plain = read(found, extra=selection.extra, only=preparation.columns)
    if plain.holds_strings:
        raise InputError(f"{str(found)!r} holds strings, but the metric was learned on columns")
    columns = dict(zip(preparation.columns, np.asarray(plain.rows, dtype=np.float64).T, strict=True))
    raw = RawTable(found, selection, plain.rows.shape[0], columns, plain.extra, plain.named, _by_row)
    return _applied(preparation, raw)


def _by_row(row: int, name: str) -> tuple[str, str]:
    return f"row {row} (counted from 0)", ""


def _raw(path: Path, selection: Selection, chosen: Sequence[str], categories: Sequence[str]) -> RawTable:
    reader = raw_parquet if extension(path) == ".parquet" else raw_text
    with reading(path, selection.dialect):
        return reader(path, selection, tuple(chosen), frozenset(categories)).without_marks()


def _applied(preparation: Preparation, raw: RawTable) -> Table:
    done = preparation.apply(raw)
    extra = raw.extra if done.kept is None else {name: values[done.kept] for name, values in raw.extra.items()}
    return Table(
        done.rows,
        preparation.features,
        extra,
        raw.named,
        preparation=preparation,
        kept=done.kept,
        total=0 if done.kept is None else raw.n,
        notes=done.notes,
    )


def _check_plain(choices: Choices, path: Path) -> None:
    option = "--categories" if choices.categories else "--missing-values" if choices.dialect.missing_values else ""
    if option:
        raise InputError(
            f"{option}: {str(path)!r} holds numbers only, or is left on disk; give a {', '.join(TEXT)} or .parquet "
            "file, and no --scheduler"
        )


# ------------------------------------------------------------------------------------------------------------ deciding


def prepare(raw: RawTable, choices: Choices) -> Preparation:
    """Decide how each column becomes numbers."""
    check_columns(choices.categories, tuple(raw.columns), raw.path)
    plan = _Plan(raw, choices)
    for name, column in raw.columns.items():
        plan.add(name, column)
    if not plan.columns:
        why = "; ".join(f"{name!r}: {reason}" for name, reason in list(plan.left_out.items())[:3])
        raise InputError(f"{raw.shown}: no column is left to learn from ({why})")
    return plan.preparation()


class _Plan:
    """Collects what is decided about each column."""

    def __init__(self, raw: RawTable, choices: Choices) -> None:
        self.raw, self.choices = raw, choices
        self.columns: list[str] = []
        self.kinds: list[str] = []
        self.fills: list[float] = []
        self.levels: dict[str, tuple[str, ...]] = {}
        self.dates: dict[str, str] = {}
        self.thousands: dict[str, str] = {}
        self.left_out: dict[str, str] = {}
        self.holes: dict[str, int] = {}

    def preparation(self) -> Preparation:
        about = {name: getattr(self, name) for name in ("levels", "dates", "thousands", "left_out", "holes")}
        marks, missing = self.choices.dialect.missing_values, self.choices.missing
        fills = np.array(self.fills)
        return Preparation(
            tuple(self.columns), tuple(self.kinds), fills, missing=missing, missing_values=marks, **about
        )

    def add(self, name: str, column: Any) -> None:
        if name in self.choices.categories:
            self._category(name, column if isinstance(column, Texts) else as_texts(column), forced=True)
        elif isinstance(column, Texts):
            self._texts(name, column)
        elif column.dtype.kind == "M":
            self._dates(name, column, "iso")
        else:
            self._numbers(name, column, "number")

    def _use(self, name: str, kind: str, fill: float, holes: int) -> None:
        self.columns.append(name)
        self.kinds.append(kind)
        self.fills.append(fill)
        if holes:
            self.holes[name] = holes

    def _numbers(self, name: str, values: Array, kind: str) -> None:
        if self.raw.is_finite:
            step = max(1, len(values) // MEDIAN_ROWS)
            self._use(name, kind, float(np.median(values[::step])), 0)
            return
        gone = np.isnan(values)
        if gone.all():
            self.left_out[name] = "every cell is missing"
            return
        if np.isinf(values).any():
            self.raw.refuse(int(np.argmax(np.isinf(values))), name)
        holes = int(gone.sum())
        self._use(name, kind, float(np.median(values[~gone] if holes else values)), holes)

    def _dates(self, name: str, column: Any, style: str) -> None:
        self.dates[name] = style
        self._numbers(name, as_days(column, style), "date")

    def _texts(self, name: str, column: Texts) -> None:
        counts = column.counts()
        known = [(text.strip(), int(count)) for text, count in zip(column.texts, counts, strict=True) if count]
        known = [(text, count) for text, count in known if not is_missing(text)]
        if not known:
            self.left_out[name] = "every cell is missing"
            return
        texts = [text for text, _ in known]
        if all(text.lower() in BOOLEAN for text in texts):
            self._numbers(name, as_numbers(column, boolean=True), "boolean")
            return
        style = style_of(texts)
        if style == "unclear":
            self.left_out[name] = (
                f"dates such as {texts[0]}, whose day and month cannot be told apart; write {STYLES['iso']}"
            )
            return
        if style is not None:
            self._dates(name, column, style)
            return
        thousands = self._thousands(texts)
        values = as_numbers(column, thousands)
        numbers, cells = int(np.isfinite(values).sum()), sum(count for _, count in known)
        if numbers == cells:
            if thousands is not None:
                self.thousands[name] = thousands
            self._numbers(name, values, "number")
        elif 2 * numbers >= cells:
            self._refuse(name, values, cells - numbers)
        else:
            self._category(name, column)

    def _thousands(self, texts: Sequence[str]) -> str | None:
        """Return the character between thousands: the one given, or a comma where it can mean nothing else."""
        if self.choices.dialect.thousands is not None:
            return self.choices.dialect.thousands
        grouped = [text for text in texts if GROUPED.fullmatch(text)]
        certain = any(text.count(",") > 1 or "." in text for text in grouped)
        return "," if certain and all("," not in text or GROUPED.fullmatch(text) for text in texts) else None

    def _refuse(self, name: str, values: Array, others: int) -> None:
        """Raise at the first cell that is no number in a column that holds mostly numbers."""
        row = int(np.argmax(np.isinf(values)))
        where, cell = self.raw.locate(row, name)
        selection = self.raw.selection
        try:
            check_cell(cell, name, where, self.raw.path, selection)
        except InputError as error:
            raise InputError(f"{error}; if it is a category, --categories {shlex.quote(name)}") from None
        self.raw.refuse(row, name)

    def _category(self, name: str, column: Texts, *, forced: bool = False) -> None:
        counts: dict[str, int] = {}
        for text, count in zip(map(str.strip, column.texts), column.counts().tolist(), strict=True):
            counts[text] = counts.get(text, 0) + count
        holes = sum(count for text, count in counts.items() if is_missing(text))
        levels = tuple(sorted(text for text, count in counts.items() if count and not is_missing(text)))
        rows = self.raw.n - holes
        if not levels:
            self.left_out[name] = "every cell is missing"
        elif not forced and len(levels) == 1 and not holes:
            self.left_out[name] = f"every cell is {levels[0]!r}"
        elif not forced and 2 * holes > self.raw.n:
            self.left_out[name] = f"{holes} of {self.raw.n} cells are missing ({_anyway(name)})"
        elif not forced and (len(levels) > MOST_LEVELS or 2 * len(levels) > max(rows, 4)):
            self.left_out[name] = f"text with {len(levels)} different values in {rows} rows ({_anyway(name)})"
        else:
            self.levels[name] = levels
            commonest = max(range(len(levels)), key=lambda i: counts[levels[i]])
            self._use(name, "category", float(commonest), holes)


def _anyway(name: str) -> str:
    return f"--categories {shlex.quote(name)} uses it anyway"
