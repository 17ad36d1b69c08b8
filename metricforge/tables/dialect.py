"""Delimited text: separators, column names, decimal commas; read in blocks of lines."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from itertools import count, islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..files.untrusted import check_distinct
from ..rows import check_memory, memory_budget
from . import arrow
from .cells import (
    BOOLEAN,
    MISSING,
    as_finite,
    check_cell,
    check_text,
    is_missing,
    is_number,
    with_point,
)
from .raw import RawTable
from .sources import Dialect, count_lines, extension, open_text, size_of
from .table import Selection, Table, check_columns, feature_names, quoted
from .texts import GrowingTexts

Array = NDArray[Any]
Line = tuple[int, list[str]]
"""The number of a line, and its cells."""

BLOCK = 4096
"""Lines that are converted to numbers at a time, at most."""
SAMPLE = 100
"""Lines by which the type of a column is guessed."""
BLOCK_CELLS, SAMPLE_CELLS = 2**22, 2**18
"""Cells of such a block and of such a sample, at most."""
CELL_BYTES = 128
"""Memory of a cell of a block: its text, and what is made of it."""
CHARACTER_BYTES = 4
"""Memory of a character of a line, at most."""
BLOCK_SHARE = 8
"""A block of lines, and one line, may take at most 1/BLOCK_SHARE of the memory budget."""
TEXT_CELL = 32
"""Memory of a cell of a column of short texts: as read, as a number of the distinct texts, and as a value."""
ROW_COPIES = 2
"""Rows of numbers exist twice for a moment: as parts and joined, or in pyarrow and as an array."""


class TextFile:
    """A delimited file: its column names, and an iterator over its lines.

    Parameters
    ----------
    path : Path
    known : names of columns that the caller knows
        A first line that holds one of them names the columns.
    dialect : Dialect

    Attributes
    ----------
    names : list of str
    has_names : bool
        Whether the first line names the columns; otherwise they are numbered from 0.
    delimiter : str
    above : int
        The number of lines above the first row.
    sample : list of list of str
        The cells of the first rows.
    """

    def __init__(self, path: Path, known: Iterable[str] = (), dialect: Dialect | None = None) -> None:
        self.path, self._known = path, set(known)
        self.dialect = dialect or Dialect()
        self.delimiter = self.dialect.sep or ","  # until the first line shows it
        self._marks: dict[str, str] = {}
        self._file = open_text(path, self.dialect.encoding)
        try:
            self._start()
        except BaseException:
            self._file.close()
            raise

    def _start(self) -> None:
        first = next((line for line in self._lines() if line.strip()), None)
        if first is None:
            raise InputError(f"{quoted(self.path)} is empty; give a file with one row a line")
        tabs = extension(self.path) == ".tsv"
        self.delimiter = self.dialect.sep or ("\t" if tabs else find_delimiter(first))
        self._rewind()
        lines = [row for _, row in islice(self._rows(), 2)]
        lines += (row for _, row in islice(self._rows(), min(SAMPLE - 1, SAMPLE_CELLS // len(lines[0]))))
        head, *below = ([self.plain(cell).strip() for cell in row] for row in lines[:2])
        self.has_names = names_columns(head, below[0] if below else [], self._known)
        self.names = head if self.has_names else [str(c) for c in range(len(head))]
        if self.names.count("") > 1:  # separators at the end of every line, as spreadsheets write them
            self.names = [name or f"column {c}" for c, name in enumerate(self.names, start=1)]
        check_distinct(self.names, self.path)
        self._rewind()
        self.above = next(self._rows())[0] if self.has_names else 0
        self.sample = [row for row in lines[self.has_names :] if len(row) == len(self.names)]

    def plain(self, cell: str) -> str:
        """Return a number with a decimal point in place of a decimal comma, which only the separator ";" allows."""
        pointed = with_point(cell)
        return pointed if self.delimiter == ";" and pointed != cell and is_number(pointed) else cell

    def check_marks(self, block: list[Line], cells: list[Any]) -> None:
        """Raise if some numbers have a decimal comma and others a point: 1,500 with 2.75 more likely means 1500."""
        if self.delimiter != ";":
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
        self._reader = csv.reader(self._lines(), delimiter=self.delimiter, skipinitialspace=True)

    def _lines(self) -> Iterator[str]:
        """Yield the lines of the file; one that would not fit into memory is an error before it is split."""
        budget = memory_budget()
        most = max(1000, budget // (BLOCK_SHARE * CHARACTER_BYTES))
        for number in count(1):
            line = self._file.readline(most)
            cells = line.count(self.delimiter) if CELL_BYTES * len(line) > budget // BLOCK_SHARE else 0
            cut = len(line) == most and line[-1] not in "\r\n"
            if cut or CELL_BYTES * cells > budget // BLOCK_SHARE:
                needed = BLOCK_SHARE * (CHARACTER_BYTES * (len(line) + 1) + CELL_BYTES * cells)
                what = f"{quoted(self.path)}, line {number}, with {len(line)} characters{' or more' if cut else ''},"
                check_memory(needed, what, "correct its line ends or its extension")
            if not line:
                return
            yield line

    def blocks(self) -> Iterator[list[Line]]:
        """Yield the lines of the rows, some at a time."""
        lines, cells = iter(self), min(BLOCK_CELLS, memory_budget() // (BLOCK_SHARE * CELL_BYTES))
        step = max(1, min(BLOCK, cells // len(self.names)))
        while block := list(islice(lines, step)):
            yield block

    def check_rows(self, columns: int, texts: int) -> None:
        """Raise if the memory budget does not allow to read that many columns of numbers and of texts.

        The number of rows is estimated from the first rows, and counted only if it seems too large.
        """
        if not self.sample:
            return
        size = size_of(self.path)
        row_bytes = 8 * ROW_COPIES * columns + TEXT_CELL * texts
        length = sum(sum(map(len, row)) + len(row) for row in self.sample) / len(self.sample)
        if row_bytes * size / length > memory_budget():
            self.check_read(count_lines(self.path), row_bytes)

    def check_read(self, rows: int, row_bytes: int, more: int = 0) -> None:
        """Raise if so many rows, and ``more`` bytes beside them, exceed the memory budget."""
        what = f"reading {rows} rows of {quoted(self.path)}"
        check_memory(rows * row_bytes + more, what, "give a part of them, or leave columns out with --drop")

    def _rows(self) -> Iterator[Line]:
        try:
            for row in self._reader:
                # an empty line is []; [""] is an empty cell in quotes, as pandas writes one of a single column
                if row and (len(row) > 1 or not row[0] or row[0].strip()):
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
    with TextFile(path, selection.names, selection.dialect) as file:
        features = feature_names(file.names, selection, path, named=file.has_names)
        file.check_rows(len(features), len(selection.extra))
        quick = arrow.read_columns(file, features, selection.extra)
        if quick is not None and np.isfinite(quick.numbers).all():
            extra_values = {name: quick.texts[name].values() for name in selection.extra}
            return Table(quick.numbers, features, extra_values, named=file.has_names)
        place_of = {name: c for c, name in enumerate(file.names)}
        places = [place_of[name] for name in features]
        extra = {name: place_of[name] for name in selection.extra}
        cells_of = itemgetter(*places) if len(places) > 1 else lambda row: (row[places[0]],)
        found = _Growing(file, len(features), selection.extra)
        booleans: list[int] | None = None
        for block in file.blocks():
            cells = [cells_of(row) for _, row in block]
            booleans = _boolean_columns(cells) if booleans is None else booleans
            found.add(_numbers(block, cells, booleans, features, file, selection))
            for name, place in extra.items():
                found.texts[name].add([row[place] for _, row in block])
    if not found.n:
        raise InputError(f"{quoted(path)} has no rows below its column names; give at least one")
    values = {name: column.texts().values() for name, column in found.texts.items()}
    return Table(found.numbers(), features, values, named=file.has_names)


class _Growing:
    """Rows that are read block by block, as numbers and as texts, within the memory budget."""

    def __init__(self, file: TextFile, columns: int, texts: Iterable[str]) -> None:
        self.file, self.n = file, 0
        self.row_bytes = 8 * ROW_COPIES * columns
        self.parts: list[Array] = []
        self.texts = {name: GrowingTexts() for name in texts}

    def add(self, numbers: Array) -> None:
        self.n += len(numbers)
        self.parts.append(numbers)
        self.file.check_read(self.n, self.row_bytes, sum(column.nbytes for column in self.texts.values()))

    def numbers(self) -> Array:
        return np.concatenate(self.parts)


def raw_text(path: Path, selection: Selection, chosen: Sequence[str], texts: frozenset[str]) -> RawTable:
    """Read the columns of a delimited file as they are.

    Parameters
    ----------
    path, selection
    chosen : names of the only columns wanted; empty for all that the selection leaves
    texts : names of columns to read as text, also where they hold numbers
    """
    with TextFile(path, (*selection.names, *chosen), selection.dialect) as file:
        features = feature_names(file.names, selection, path, named=file.has_names)
        check_columns(chosen, file.names, path)
        wanted = set(chosen or features)
        features = tuple(name for name in features if name in wanted)
        words = _text_columns(file, features) | (texts & set(features))
        numbers = [name for name in features if name not in words]
        file.check_rows(len(numbers), len(words) + len(selection.extra))
        quick = arrow.read_columns(file, numbers, [*words, *selection.extra])
    if quick is None or np.isinf(quick.numbers).any():  # 1e999 and inf are numbers for pyarrow
        numbers, quick = _raw_cells(path, selection, features, words)
    n = len(quick.numbers)
    columns: dict[str, Any] = {name: quick.numbers[:, c] for c, name in enumerate(numbers)}
    columns |= {name: quick.texts[name] for name in features if name not in columns}
    extra = {name: quick.texts[name] for name in selection.extra}
    if not n:
        raise InputError(f"{quoted(path)} has no rows below its column names; give at least one")
    by_position = selection.only is not None and features != selection.only
    names = selection.only if by_position and selection.only is not None else features
    ordered = {name: columns[feature] for name, feature in zip(names, features, strict=True)}
    source_of = dict(zip(names, features, strict=True))

    def locate(row: int, name: str) -> tuple[str, str]:
        with TextFile(path, (*selection.names, *chosen), selection.dialect) as again:
            line, cells = next(islice(again, row, None))
            return f"line {line}", cells[again.names.index(source_of[name])]

    values = {name: column.values() for name, column in extra.items()}
    matrix = quick.numbers if len(numbers) == len(features) else None
    return RawTable(path, selection, n, ordered, values, file.has_names, locate, matrix)


def _text_columns(file: TextFile, features: Sequence[str]) -> set[str]:
    """Return the columns that hold text in the first rows."""
    place_of = {name: c for c, name in enumerate(file.names)}
    return {name for name in features if any(_is_text(row[place_of[name]], file) for row in file.sample)}


def _is_text(cell: str, file: TextFile) -> bool:
    return not is_missing(cell, file.dialect.missing_values) and not is_number(file.plain(cell.strip()))


def _raw_cells(
    path: Path, selection: Selection, features: Sequence[str], words: set[str]
) -> tuple[list[str], arrow.Found]:
    """Read columns cell by cell; return the names of those that hold numbers, and the columns.

    Columns that turn out to hold text make a second pass.
    """
    words, texts = set(words), set[str]()
    for _ in range(2):
        with TextFile(path, selection.names, selection.dialect) as file:
            place_of = {name: c for c, name in enumerate(file.names)}
            numbers = [name for name in features if name not in words]
            found = _Growing(file, len(numbers), (*words, *selection.extra))
            for block in file.blocks():
                A = np.empty((len(block), len(numbers)))
                for c, name in enumerate(numbers):
                    values = None if name in texts else _as_numbers([row[place_of[name]] for _, row in block], file)
                    if values is None:
                        texts.add(name)
                    else:
                        A[:, c] = values
                if texts:
                    continue  # the columns are all that this pass can find
                if numbers:
                    file.check_marks(block, [[row[place_of[name]] for name in numbers] for _, row in block])
                for name, column in found.texts.items():
                    column.add([row[place_of[name]] for _, row in block])
                found.add(A)
        if not texts:
            break
        words, texts = words | texts, set()
    joined = found.numbers() if found.n else np.empty((0, len(numbers)))
    return numbers, arrow.Found(joined, {name: column.texts() for name, column in found.texts.items()})


def _as_numbers(column: list[str], file: TextFile) -> Array | None:
    """Return cells as numbers, NaN where they are missing; None if one is neither, or not finite."""
    quick = as_finite([column])
    if quick is not None:
        return np.asarray(quick[0])
    marks = file.dialect.missing_values
    cells = [None if is_missing(cell, marks) else file.plain(cell.strip()) for cell in column]
    known = as_finite([[cell for cell in cells if cell is not None]])
    if known is None:
        return None
    found = np.full(len(cells), np.nan)
    found[[cell is not None for cell in cells]] = known[0]
    return found


def read_columns(path: Path, dialect: Dialect | None = None) -> dict[str, Array]:
    """Read every column of a small delimited file by name."""
    with TextFile(path, dialect=dialect) as file:
        file.check_rows(0, 2 * len(file.names))  # as texts and as values
        found = _Growing(file, 0, file.names)
        for block in file.blocks():
            for c, column in enumerate(found.texts.values()):
                column.add([row[c] for _, row in block])
            found.add(np.empty((len(block), 0)))
    if not found.n:
        raise InputError(f"{quoted(path)} has no rows")
    return {name: column.texts().values() for name, column in found.texts.items()}


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
