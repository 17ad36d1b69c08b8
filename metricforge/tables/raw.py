"""The columns of a table as they are in the file: numbers, dates or texts, nothing encoded and nothing filled in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from .cells import check_cell, is_number, with_point
from .table import Selection, quoted
from .texts import Texts

Array = NDArray[Any]


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
