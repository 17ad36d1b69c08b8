"""What a metric keeps of the table that it was learned from: how columns became numbers, and what rows are called."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..constraints import Labels
from ..errors import InputError
from ..rows import check_memory
from ..validation import one_of, plural
from .cells import RawTable, Texts, as_numbers, as_texts, is_missing

Array = NDArray[Any]

KINDS = ("number", "boolean", "date", "category")
MISSING = ("median", "drop", "error")
"""What to do with missing cells: fill in the median (of categories the commonest), drop the row, or refuse."""
AS_THEY_ARE = ("a number as it is", "numbers as they are")
"""What is said of plain numbers, one column or several."""
ALL_COLUMNS = "all columns"
"""The name under which `Preparation.describe` says what holds for every column."""
SHOWN = 5
"""Levels and columns that a sentence names."""
STYLES = {
    "iso": "2024-01-31",
    "year first": "2024/01/31",
    "dotted": "31.01.2024",
    "day first": "31/01/2024",
    "month first": "01/31/2024",
}
"""The ways in which dates are read, with an example of each."""
FORMATS = {"year first": "%Y/%m/%d", "dotted": "%d.%m.%Y", "day first": "%d/%m/%Y", "month first": "%m/%d/%Y"}
ISO = re.compile(r"\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}.*)?")
DAY = 86_400.0


@dataclass(frozen=True, eq=False)
class Preparation:
    """How the columns of a table become numbers.

    Parameters
    ----------
    columns : tuple of str
        The columns of the file that are used, in order.
    kinds : tuple of str
        One of `KINDS` for every column.
    fills : (d,) array
        What stands for a missing cell: the number of a level, or the median (of 10,000 rows, where no cell was missing
        among more).
    missing : str
        One of `MISSING`.
    levels : mapping of str to tuple of str
        The levels of every category; each is one column of 0 and 1.
    dates : mapping of str to str
        The style of every date, one of `STYLES`.
    thousands : mapping of str to str
        The character between groups of digits, for the columns that have one.
    left_out : mapping of str to str
        The columns that are not used, and why.
    holes : mapping of str to int
        The number of missing cells in the table that was learned from.
    missing_values : tuple of str
        Texts that stand for a missing cell, besides the usual ones.
    """

    columns: tuple[str, ...]
    kinds: tuple[str, ...]
    fills: Array
    missing: str = "median"
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    dates: Mapping[str, str] = field(default_factory=dict)
    thousands: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    holes: Mapping[str, int] = field(default_factory=dict)
    missing_values: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not all(isinstance(mark, str) for mark in self.missing_values):
            raise InputError("missing_values must be texts")
        one_of(self.missing, "missing", list(MISSING))
        if len(self.kinds) != len(self.columns) or np.shape(self.fills) != (len(self.columns),):
            raise InputError("a preparation needs one kind and one fill for every column")
        for name, kind in zip(self.columns, self.kinds, strict=True):
            one_of(kind, f"the kind of {name!r}", list(KINDS))
            if kind == "category" and not self.levels.get(name):
                raise InputError(f"the category {name!r} has no levels")
            if kind == "date" and self.dates.get(name) not in STYLES:
                raise InputError(f"the dates of {name!r} have no style")

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the prepared columns: ``species=Adelie`` for a level of a category."""
        return tuple(feature for name in self.columns for feature in self._features_of(name))

    def _features_of(self, name: str) -> Sequence[str]:
        return [f"{name}={level}" for level in self.levels[name]] if name in self.levels else [name]

    def describe(self) -> list[tuple[str, str]]:
        """Return what was done to each column: (column, sentence); plain numbers share one line."""
        plain, found = [], []
        for name, kind, fill in zip(self.columns, self.kinds, self.fills.tolist(), strict=True):
            if kind == "number" and not self.holes.get(name) and name not in self.thousands:
                plain.append(name)
            else:
                found.append((name, self._sentence(name, kind, fill)))
        if plain:
            found.insert(0, (_listed(plain), AS_THEY_ARE[len(plain) > 1]))
        found.extend((name, f"left out: {why}") for name, why in self.left_out.items())
        if self.missing_values:
            found.append((ALL_COLUMNS, f"a cell that holds {' or '.join(self.missing_values)} is missing"))
        return found

    def _sentence(self, name: str, kind: str, fill: float) -> str:
        words = {
            "number": "a number",
            "boolean": "true and false, yes and no as 1 and 0",
            "date": "a date, as days since 1970-01-01",
        }
        if kind == "category":
            levels = self.levels[name]
            words["category"] = f"{plural(len(levels), 'level')} ({_listed(levels)}), one column of 0 and 1 each"
        text = words[kind]
        if name in self.thousands:
            text += f", with {self.thousands[name]!r} between thousands"
        holes = self.holes.get(name, 0)
        if not holes:
            return text
        if self.missing == "drop":
            return f"{text}; {plural(holes, 'row')} without a value dropped"
        filled = f"the commonest, {self.levels[name][int(fill)]}" if kind == "category" else f"the median, {fill:.6g}"
        return f"{text}; {plural(holes, 'missing cell')} filled with {filled}"

    # -- applying --------------------------------------------------------------------------------------------------

    def apply(self, raw: RawTable) -> Prepared:
        """Return the rows of a table prepared as those that were learned from.

        Raises
        ------
        InputError
            At a cell that is of another kind, and at a missing cell with ``missing="error"``; it names the cell.
        """
        if raw.is_finite and set(self.kinds) == {"number"} and raw.matrix is not None:
            return Prepared(raw.matrix, None, ())
        width = len(self.features)
        check_memory(8 * raw.n * width, f"{raw.n} rows of {width} prepared columns", "leave columns out with --drop")
        A = np.empty((raw.n, width))
        empty = np.zeros(raw.n, dtype=bool)
        notes: list[str] = []
        place = 0
        for c, (name, kind) in enumerate(zip(self.columns, self.kinds, strict=True)):
            column = raw.columns[name]
            if kind == "category":
                codes, unseen = self._codes(column, name)
                if unseen:
                    notes.append(_unseen(name, unseen, int(np.isin(codes, [-2]).sum())))
                holes = codes == -1
                codes = np.where(holes, int(self.fills[c]), codes)
                size = len(self.levels[name])
                A[:, place : place + size] = codes[:, None] == np.arange(size)
                place += size
            else:
                values = self._numbers(column, name, kind, raw)
                holes = np.isnan(values)
                A[:, place] = np.where(holes, self.fills[c], values) if holes.any() else values
                place += 1
            if holes.any() and self.missing == "error":
                raw.refuse(int(np.argmax(holes)), name)
            empty |= holes
        if self.missing != "drop" or not empty.any():
            return Prepared(A, None, tuple(notes))
        if empty.all():
            raise InputError(f"{raw.shown}: every row has a missing cell, so that none is left; use --missing median")
        kept = np.flatnonzero(~empty)
        notes.append(f"{plural(raw.n - len(kept), 'row')} with a missing cell dropped, {len(kept)} left")
        return Prepared(A[kept], kept, tuple(notes))

    def _codes(self, column: Any, name: str) -> tuple[Array, list[str]]:
        """Return the number of each row's level (-1: missing, -2: unknown), and the unknown levels."""
        texts = column if isinstance(column, Texts) else as_texts(column)
        known = {level: i for i, level in enumerate(self.levels[name])}
        stripped = [text.strip() for text in texts.texts]
        table = np.array([-1 if is_missing(text) else known.get(text, -2) for text in stripped], dtype=np.int64)
        unseen = [text for text, code in zip(stripped, table, strict=True) if code == -2]
        return table[texts.codes], unseen

    def _numbers(self, column: Any, name: str, kind: str, raw: RawTable) -> Array:
        if kind == "date":
            values = as_days(column, self.dates[name])
        elif isinstance(column, Texts):
            values = as_numbers(column, self.thousands.get(name), boolean=kind == "boolean")
        else:
            values = np.asarray(column, dtype=np.float64)
        bad = np.isinf(values)
        if bad.any():
            row = int(np.argmax(bad))
            if kind == "date":
                where, cell = raw.locate(row, name)
                raise InputError(
                    f"{raw.shown}, {where}: column {name!r} holds {cell.strip()!r}, but the metric was learned on "
                    f"dates such as {STYLES[self.dates[name]]} there"
                )
            raw.refuse(row, name)
        return values


@dataclass(frozen=True, eq=False)
class Prepared:
    """The result of `Preparation.apply`: rows, the numbers of the rows kept (None for all), and notes."""

    rows: Array
    kept: Array | None
    notes: tuple[str, ...]


def _unseen(name: str, levels: Sequence[str], rows: int) -> str:
    which = f"{'level' if len(levels) == 1 else 'levels'} {_listed(levels)}"
    return f"column {name!r}: the metric has not seen the {which}; in {plural(rows, 'row')} all its columns are 0"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f", … ({len(names)} in all)" if len(names) > SHOWN else "")


# --------------------------------------------------------------------------------------------------------------- dates


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
    """Return a date as days since 1970-01-01; None if it is no date of this style."""
    if style == "iso" and not ISO.fullmatch(text):
        return None
    try:
        moment = datetime.fromisoformat(text) if style == "iso" else datetime.strptime(text, FORMATS[style])
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() / DAY
    except (ValueError, OverflowError):
        return None


# -------------------------------------------------------------------------------------------------------------- origin


def _nothing() -> Array:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Origin:
    """The table that a metric was learned from.

    Parameters
    ----------
    preparation : Preparation or None
        How its columns became numbers; None if they were numbers.
    label : str
        The name of the column of labels; "" if there is none.
    codes : (n,) int array
        The number of each training row's class, -1 for none; empty if there are no labels.
    classes : array
        The classes.
    id : str
        The name of the column of identifiers; "" if there is none.
    ids : (n,) array of str
        The identifiers of the training rows; empty if there are none.
    numbers : (n,) int array
        The row of the file that each training row was; empty if they are all rows in order.
    """

    preparation: Preparation | None = None
    label: str = ""
    codes: Array = field(default_factory=_nothing)
    classes: Array = field(default_factory=_nothing)
    id: str = ""
    ids: Array = field(default_factory=_nothing)
    numbers: Array = field(default_factory=_nothing)

    def __post_init__(self) -> None:
        for name in ("codes", "classes", "ids", "numbers"):
            if np.ndim(getattr(self, name)) != 1:
                raise InputError(f"{name} of the table must be a list")
        for name in ("codes", "numbers"):
            if getattr(self, name).dtype.kind not in "iu":
                raise InputError(f"{name} of the table must be whole numbers")
        if len(self.codes) and not -1 <= self.codes.min() <= self.codes.max() < len(self.classes):
            raise InputError("a label of the table is of no class")

    @classmethod
    def of(
        cls, preparation: Preparation | None, *, kept: Array | None, label: Any = None, identifiers: Any = None
    ) -> Origin:
        """Build from columns.

        Parameters
        ----------
        preparation : Preparation or None
        kept : row numbers, or None for all
        label, identifiers : (name of the column, values), or None
        """
        found = cls(preparation, numbers=_nothing() if kept is None else kept)
        if label is not None:
            labels = Labels(label[1])
            classes = np.asarray(labels.classes)
            if classes.dtype == object:  # numbers too large for NumPy, for instance
                classes = np.array([str(value) for value in classes.tolist()])
            found = replace(found, label=label[0], codes=labels.codes, classes=classes)
        if identifiers is not None:
            texts = np.empty(len(identifiers[1]), dtype=object)
            texts[:] = ["" if value is None else str(value) for value in np.asarray(identifiers[1]).tolist()]
            found = replace(found, id=identifiers[0], ids=texts)
        return found

    def check(self, n: int) -> None:
        """Raise unless everything that is said about rows is said about n rows."""
        for name in ("codes", "ids", "numbers"):
            if len(getattr(self, name)) not in (0, n):
                raise InputError(f"{name} of the table is about {len(getattr(self, name))} rows, not {n}")

    def without_rows(self) -> Origin:
        """Return what stays true when the training rows change: the preparation."""
        return Origin(self.preparation)

    def labels_of(self, rows: Array) -> Array | None:
        """Return the labels of training rows, None for a row without one; None if there are no labels."""
        if not len(self.codes):
            return None
        codes = self.codes[rows]
        names = np.array([*self.classes.tolist(), None], dtype=object)  # -1 is the last
        return np.asarray(names[codes])

    def ids_of(self, rows: Array) -> Array | None:
        """Return the identifiers of training rows; None if there are none."""
        return self.ids[rows] if len(self.ids) else None

    def numbers_of(self, rows: Array) -> Array:
        """Return the numbers that training rows have in their file."""
        return self.numbers[rows] if len(self.numbers) else rows
