"""Delimited text: separators, column names, decimal commas; read in blocks of lines."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from .cells import BOOLEAN, MISSING, as_finite, as_values, check_cell, check_text, is_number, with_point
from .table import Selection, Table, feature_names, quoted
from .untrusted import check_distinct

Array = NDArray[Any]
Line = tuple[int, list[str]]
"""The number of a line, and its cells."""

BLOCK = 4096
"""Lines that are converted to numbers at a time, at most."""
BLOCK_CELLS = 2**22
"""Cells of such a block, at most: a cell of text takes about 60 bytes."""


class TextFile:
    """A delimited file: its column names, and an iterator over its lines.

    Parameters
    ----------
    path : Path
    known : names of columns that the caller knows
        A first line that holds one of them names the columns.

    Attributes
    ----------
    names : list of str
    has_names : bool
        Whether the first line names the columns; otherwise they are numbered from 0.
    """

    def __init__(self, path: Path, known: Iterable[str] = ()) -> None:
        self.path, self._known = path, set(known)
        self._marks: dict[str, str] = {}
        self._file = path.open(newline="", encoding="utf-8-sig")
        try:
            self._start()
        except BaseException:
            self._file.close()
            raise

    def _start(self) -> None:
        first = next((line for line in self._file if line.strip()), None)
        if first is None:
            raise InputError(f"{quoted(self.path)} is empty; give a file with one row a line")
        self._delimiter = "\t" if self.path.suffix.lower() == ".tsv" else find_delimiter(first)
        self._rewind()
        head, *below = ([self.plain(cell).strip() for cell in row] for _, row in islice(self._rows(), 2))
        self.has_names = names_columns(head, below[0] if below else [], self._known)
        self.names = head if self.has_names else [str(c) for c in range(len(head))]
        check_distinct(self.names, self.path)
        self._rewind()
        if self.has_names:
            next(self._rows())

    def plain(self, cell: str) -> str:
        """Return a number with a decimal point in place of a decimal comma, which only the separator ";" allows."""
        pointed = with_point(cell)
        return pointed if self._delimiter == ";" and pointed != cell and is_number(pointed) else cell

    def check_marks(self, block: list[Line], cells: list[Any]) -> None:
        """Raise if some numbers have a decimal comma and others a point: 1,500 with 2.75 more likely means 1500."""
        if self._delimiter != ";":
            return
        for mark in {",", "."} - self._marks.keys():
            each = ((cell, line) for (line, _), row in zip(block, cells, strict=True) for cell in row)
            if found := next((f"{cell.strip()!r} in line {line}" for cell, line in each if mark in cell), None):
                self._marks[mark] = found
        if len(self._marks) > 1:
            raise InputError(
                f"{quoted(self.path)} holds numbers with a comma ({self._marks[',']}) and with a point "
                f"({self._marks['.']}); write all with a decimal point, and none with a comma"
            )

    def _rewind(self) -> None:
        self._file.seek(0)
        self._reader = csv.reader(self._file, delimiter=self._delimiter, skipinitialspace=True)

    def _rows(self) -> Iterator[Line]:
        try:
            for row in self._reader:
                if row and (len(row) > 1 or row[0].strip()):
                    yield self._reader.line_num, row
        except csv.Error as error:
            raise InputError(f"{quoted(self.path)}, line {self._reader.line_num}: {error}") from None

    def __iter__(self) -> Iterator[Line]:
        width = len(self.names)
        for line, row in self._rows():
            if len(row) != width:
                raise InputError(
                    f"{quoted(self.path)}, line {line} has {len(row)} cells, but the first line has {width}; "
                    "correct the line"
                )
            yield line, row

    def __enter__(self) -> TextFile:
        return self

    def __exit__(self, *_: Any) -> None:
        self._file.close()


def find_delimiter(first: str) -> str:
    """Return the separator of a first line; 1,5;2,5 are two numbers with decimal commas, not three cells."""
    numbers = [is_number(with_point(cell.strip().strip('"'))) for cell in first.split(";")]
    return ";" if len(numbers) > 1 and 2 * sum(numbers) > len(numbers) else max(",;\t", key=first.count)


def names_columns(head: list[str], below: list[str], known: set[str]) -> bool:
    """Return whether a first line names the columns, judged by the line below it.

    ``5.1,3.5,setosa`` above ``4.9,3.0,setosa`` is a row like any other; ``width,length,0`` would not be.
    """
    numbers = [is_number(cell) or cell.lower() in MISSING for cell in head]
    for c, cell in enumerate(below[: len(head)]):  # yes above no is a row; yes above 3 may be a name above a count
        numbers[c] |= head[c].lower() in BOOLEAN and cell.lower() in BOOLEAN
    if all(numbers):
        return False
    over_numbers = any(is_number(b) and not number for number, b in zip(numbers, below, strict=False))
    mentioned = known - {str(c) for c in range(len(head))}
    return over_numbers or not any(numbers) or bool(mentioned & set(head))


# ------------------------------------------------------------------------------------------------------------- reading


def read_text(path: Path, selection: Selection) -> Table:
    """Read the rows of a delimited file."""
    with TextFile(path, selection.names) as file:
        features = feature_names(file.names, selection, path, named=file.has_names)
        place_of = {name: c for c, name in enumerate(file.names)}
        places = [place_of[name] for name in features]
        extra = {name: place_of[name] for name in selection.extra}
        cells_of = itemgetter(*places) if len(places) > 1 else lambda row: (row[places[0]],)
        blocks: list[Array] = []
        kept: dict[str, list[str]] = {name: [] for name in extra}
        lines, booleans = iter(file), None
        step = max(1, min(BLOCK, BLOCK_CELLS // len(file.names)))
        while block := list(islice(lines, step)):
            cells = [cells_of(row) for _, row in block]
            booleans = _boolean_columns(cells) if booleans is None else booleans
            blocks.append(_numbers(block, cells, booleans, features, file, selection))
            for name, place in extra.items():
                kept[name].extend(row[place] for _, row in block)
    if not blocks:
        raise InputError(f"{quoted(path)} has no rows below its column names; give at least one")
    values = {name: as_values(cells) for name, cells in kept.items()}
    return Table(np.concatenate(blocks), features, values, named=file.has_names)


def read_columns(path: Path) -> dict[str, Array]:
    """Read every column of a small delimited file by name."""
    with TextFile(path) as file:
        names = file.names
        cells = [row for _, row in file]
    if not cells:
        raise InputError(f"{quoted(path)} has no rows")
    return {name: as_values([row[c] for row in cells]) for c, name in enumerate(names)}


def _boolean_columns(cells: list[Any]) -> list[int]:
    """Return the positions of the columns whose cells are true or false, yes or no, or missing."""
    possible = [c for c, cell in enumerate(cells[0]) if cell.strip().lower() in {"", *MISSING, *BOOLEAN}]
    values = {c: {row[c].strip().lower() for row in cells} - {"", *MISSING} for c in possible}
    return [c for c in possible if values[c] and values[c] <= BOOLEAN.keys()]


def _numbers(
    block: list[Line],
    cells: list[Any],
    booleans: list[int],
    names: Sequence[str],
    file: TextFile,
    selection: Selection,
) -> Array:
    """Return the cells of a block of lines as numbers, or raise at the first that is not one."""
    if booleans:
        cells = [list(row) for row in cells]
        for (line, _), row in zip(block, cells, strict=True):
            for c in booleans:
                row[c] = _boolean(row[c], names[c], line, file.path)
    written = cells
    if (A := as_finite(cells)) is None:
        cells = [[file.plain(cell) for cell in row] for row in cells]
        A = as_finite(cells)
    if A is not None:
        file.check_marks(block, written)
        return A
    for (line, _), row in zip(block, cells, strict=True):
        check_text(dict(zip(names, row, strict=True)), line, file.path, selection)
        for name, cell in zip(names, row, strict=True):
            check_cell(cell, name, f"line {line}", file.path, selection)
    raise InputError(f"{quoted(file.path)} cannot be read as numbers")  # NumPy and Python disagree about a cell


def _boolean(cell: str, name: str, line: int, path: Path) -> str:
    """Return a cell of a boolean column as "1" or "0"; other text stays and is refused later, numbers are refused."""
    text = cell.strip().lower()
    if text not in MISSING and is_number(with_point(text)):
        raise InputError(
            f"{quoted(path)}, line {line}: column {name!r} holds {text!r} below values such as yes and no; "
            "write one or the other"
        )
    return BOOLEAN.get(text, cell)
