"""Cells and columns of a table as they are in the file: numbers, texts, missing cells, and the error messages."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from .table import Selection, quoted

Array = NDArray[Any]

MISSING = {"?", "-", "na", "n/a", "nan", "null"}
"""Marks of a missing number, in any case."""
BOOLEAN = {"true": "1", "yes": "1", "false": "0", "no": "0"}
"""Numbers for the cells of a column that holds nothing else."""

TEXT_BYTES, TEXT_CELL = 150, 32
"""Memory of a short text with its entry in a dictionary, and of a cell that has it, also as a value."""
LONG = 256
"""Characters from which texts are Python objects: an array of strings has the width of its longest one in every row."""

GROUPED = re.compile(r"[+-]?[1-9][0-9]{0,2}(,[0-9]{3})+(\.[0-9]*)?")
"""Digits with a comma between groups of three."""


def is_number(cell: str) -> bool:
    """Return whether a cell is a number; ``1_0``, which Python accepts, is not."""
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell


def is_missing(cell: str, marks: Sequence[str] = ()) -> bool:
    """Return whether a cell is empty or marked as missing, by one of the usual marks or of those given."""
    text = cell.strip()
    return not text or text.lower() in MISSING or text in marks


def with_point(cell: str) -> str:
    """Return a cell with its commas replaced by points."""
    return cell.replace(",", ".")


def as_finite(cells: Sequence[Sequence[str]]) -> Array | None:
    """Return rows of cells as numbers, or None unless all of them are finite numbers."""
    if "_" in " ".join(map(" ".join, cells)):
        return None  # NumPy reads 1_0 as ten
    try:
        A = np.array(cells, dtype=np.float64)
    except ValueError:
        return None
    return A if np.isfinite(A).all() else None


def as_values(cells: Sequence[str]) -> Array:
    """Return cells as integers or floats if all are, else as strings; None for empty cells and nan."""
    texts = [cell.strip() for cell in cells]
    missing = [not text or text.lower() == "nan" for text in texts]
    known = [text for text, gone in zip(texts, missing, strict=True) if not gone]
    convert: Callable[[str], Any] = str
    for kind in (int, float):
        try:
            for text in known:
                kind(text)
        except ValueError:
            continue
        if not any("_" in text for text in known):  # Python reads 1_0 as ten
            convert = kind
        break
    if convert is int and any(abs(int(text)) >= 2**63 for text in known):
        return _as_objects(int, texts, missing)  # NumPy would round some of them to floats
    long = convert is str and max(map(len, known), default=0) > LONG
    if len(known) == len(texts) and not long:
        return np.array([convert(text) for text in texts])
    return _as_objects(convert, texts, missing)


def _as_objects(convert: Callable[[str], Any], texts: Sequence[str], missing: Sequence[bool]) -> Array:
    values = np.empty(len(texts), dtype=object)
    values[:] = [None if gone else convert(text) for text, gone in zip(texts, missing, strict=True)]
    return values


# -------------------------------------------------------------------------------------------------------------- checks


def check_array(rows: Array, names: Sequence[str], path: Path, selection: Selection, first: int = 0) -> None:
    """Raise if an array holds a number that is not finite; ``first`` is the number of its first row."""
    if not np.isfinite(rows).all():
        r, c = np.argwhere(~np.isfinite(rows))[0]
        check_cell(rows[r, c], names[c], f"row {first + r} (counted from 0)", path, selection)


def check_cell(cell: Any, name: str, where: str, path: Path, selection: Selection) -> None:
    """Raise unless a cell is a finite number; the message has the column, the position and the repair."""
    text = "" if cell is None else str(int(cell) if isinstance(cell, bool) else cell).strip()
    at = f"{quoted(path)}, {where}: column {name!r}"
    if not is_missing(text) and not is_number(text):
        if has_comma(text):
            raise InputError(f"{at} holds {text!r} {_without_comma(text)}")
        raise InputError(f"{at} holds the text {_clipped(text)!r}; {_instead_of_text([name], selection)}")
    if is_missing(text) or not np.isfinite(float(text)):
        repairs = filter(None, ("fill it in", "remove the row", selection.how_to_drop(name)))
        raise InputError(f"{at} {f'holds {text!r}' if text else 'is empty'}; {_either(*repairs)}")


def check_text(row: dict[str, str], where: str, path: Path, selection: Selection) -> None:
    """Raise if several cells of a row are text: one message with one repair for all of them."""
    texts = [name for name, cell in row.items() if not (is_missing(cell) or is_number(cell) or has_comma(cell.strip()))]
    if len(texts) > 1:
        raise InputError(
            f"{quoted(path)}, {where}: columns {', '.join(map(repr, texts))} hold text (first "
            f"{_clipped(row[texts[0]].strip())!r}); {_instead_of_text(texts, selection)}"
        )


def has_comma(text: str) -> bool:
    """Return whether a text is a number with a decimal comma, or with commas between thousands."""
    return is_number(with_point(text)) or GROUPED.fullmatch(text) is not None


def _without_comma(text: str) -> str:
    decimal, grouped = with_point(text), text.replace(",", "")
    if not GROUPED.fullmatch(text):
        return f"with a decimal comma; write a point, as in {decimal}"
    if not is_number(decimal):
        return f"with commas between thousands; write {grouped}"
    return f"with a comma; write {grouped} if it separates thousands, or {decimal} if it is a decimal comma"


def _instead_of_text(names: Sequence[str], selection: Selection) -> str:
    if selection.only is not None:
        return "the metric was learned on numbers there; write numbers"
    it = "it" if len(names) == 1 else "one"
    hint = f"name {it} as {' or '.join(selection.flags)}" if selection.flags else ""
    return _either(*filter(None, (selection.how_to_drop(*names), hint)))


def _either(*repairs: str) -> str:
    *first, last = repairs
    return f"{', '.join(first)}, or {last}" if first else last


def _clipped(text: str, most: int = 40) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


# ------------------------------------------------------------------------------------------------------------ columns


@dataclass(frozen=True, eq=False)
class Texts:
    """A column of text.

    Attributes
    ----------
    codes : (n,) int array
        The number of each row's text.
    texts : tuple of str
        The distinct texts as they are written in the file.
    """

    codes: Array
    texts: tuple[str, ...]

    @classmethod
    def of(cls, cells: Sequence[str]) -> Texts:
        """Build from the cells of a column."""
        growing = GrowingTexts()
        growing.add(cells)
        return growing.texts()

    def values(self) -> Array:
        """Return the column as `as_values` does: integers, floats or strings."""
        return as_values(self.texts)[self.codes]

    def without(self, marks: Collection[str]) -> Texts:
        """Return the column with empty cells in the place of these texts."""
        return Texts(self.codes, tuple("" if text.strip() in marks else text for text in self.texts))

    def counts(self) -> Array:
        """Return how many rows have each text."""
        return np.bincount(self.codes, minlength=len(self.texts))

    def first_row(self, code: int) -> int:
        """Return the first row that has a text."""
        return int(np.argmax(self.codes == code))


class GrowingTexts:
    """A column of text that is read block by block; a text that occurs often is kept once."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._codes: list[Array] = []
        self.nbytes = 0

    def add(self, cells: Sequence[str]) -> None:
        """Append the cells of a block."""
        numbers, before = self._numbers, len(self._numbers)
        self._codes.append(np.array([numbers.setdefault(cell, len(numbers)) for cell in cells], dtype=np.int64))
        new = islice(reversed(numbers), len(numbers) - before)
        self.nbytes += TEXT_CELL * len(cells) + sum(TEXT_BYTES + len(text) for text in new)

    def texts(self) -> Texts:
        """Return the whole column."""
        codes = np.concatenate(self._codes) if self._codes else np.empty(0, dtype=np.int64)
        return Texts(codes, tuple(self._numbers))


def as_numbers(column: Texts, thousands: str | None = None, *, boolean: bool = False) -> Array:
    """Return texts as numbers: NaN where a cell is missing, inf where it is no finite number."""
    found = np.full(len(column.texts), np.inf)
    for i, text in enumerate(map(str.strip, column.texts)):
        if is_missing(text):
            found[i] = np.nan
        elif boolean:
            found[i] = float(BOOLEAN.get(text.lower(), "inf"))
        else:
            number = text if thousands is None else text.replace(thousands, "")
            try:
                found[i] = float(number) if "_" not in number else np.inf
            except ValueError:
                continue
    found[np.isneginf(found)] = np.inf
    return found[column.codes]


def as_texts(values: Array) -> Texts:
    """Return a column of numbers as text: 3 for 3.0, nothing for NaN."""
    distinct, codes = np.unique(np.asarray(values, dtype=np.float64), return_inverse=True)
    shown = ("" if np.isnan(v) else str(int(v)) if v == int(v) else repr(v) for v in distinct.tolist())
    return Texts(codes, tuple(shown))


def numbers_in(marks: Sequence[str]) -> list[float]:
    """Return the numbers among the marks of missing cells."""
    return [float(mark) for mark in marks if is_number(mark)]


@dataclass(frozen=True, eq=False)
class RawTable:
    """The columns of a table.

    Attributes
    ----------
    path : Path
    selection : Selection
        The columns that were asked for.
    n : int
        The number of rows.
    columns : dict of str to (n,) float array with NaN for missing cells, (n,) datetime64 array, or Texts
    extra : dict of str to (n,) array
        As in `Table`.
    named : bool
        Whether the file itself names its columns.
    matrix : (n, k) array or None
        All columns in order as one array, where they are numbers.
    locate : callable
        ``locate(row, column)`` returns where a cell is ("line 12") and what is written there.
    """

    path: Path
    selection: Selection
    n: int
    columns: dict[str, Any]
    extra: dict[str, Array]
    named: bool
    locate: Callable[[int, str], tuple[str, str]]
    matrix: Array | None = None

    def without_marks(self) -> RawTable:
        """Return the table with missing cells in the place of the marks that the dialect names, in all columns."""
        marks = self.selection.dialect.missing_values
        if not marks:
            return self
        numbers = numbers_in(marks)
        columns = dict(self.columns)
        for name, column in columns.items():
            if isinstance(column, Texts):
                columns[name] = column.without(marks)
            elif column.dtype.kind == "f" and numbers:
                column[np.isin(column, numbers)] = np.nan  # in place: the columns may be parts of the matrix
        extra = {name: _unmarked(values, marks, numbers) for name, values in self.extra.items()}
        return replace(self, columns=columns, extra=extra)

    @cached_property
    def is_finite(self) -> bool:
        """Whether all columns are numbers, and none is missing or infinite."""
        return self.matrix is not None and bool(np.isfinite(self.matrix).all())

    @property
    def shown(self) -> str:
        """The file as it is written in messages."""
        return quoted(self.path)

    def refuse(self, row: int, name: str) -> NoReturn:
        """Raise the error message for a cell that is not a number."""
        where, cell = self.locate(row, name)
        marks, number = self.selection.dialect.missing_values, with_point(cell.strip())
        if cell.strip() in marks or (is_number(number) and float(number) in numbers_in(marks)):
            raise InputError(
                f"{self.shown}, {where}: column {name!r} holds {cell.strip()!r}, which stands for a missing cell here; "
                "fill it in, or remove the row"
            )
        check_cell(cell, name, where, self.path, self.selection)
        raise InputError(f"{self.shown}, {where}: column {name!r} holds {cell.strip()!r}, which is not a number")


def _unmarked(values: Array, marks: Sequence[str], numbers: Sequence[float]) -> Array:
    """Return the values of a column with None in the place of marks."""
    if values.dtype.kind in "fiu":
        gone = np.isin(values, numbers)
    else:
        gone = np.array([isinstance(value, str) and value.strip() in marks for value in values.tolist()], dtype=bool)
    if not gone.any():
        return values
    found = values.astype(object)
    found[gone] = None
    return found
