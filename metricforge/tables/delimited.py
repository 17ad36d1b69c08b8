"""Delimited text: separators, column names and decimal commas are found here, and pandas reads the columns."""

from __future__ import annotations

import csv
import re
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..files.untrusted import check_distinct
from ..rows import check_memory, memory_budget
from .cells import (
    BOOLEAN,
    MISSING,
    GrowingTexts,
    RawTable,
    Texts,
    as_numbers,
    check_text,
    is_missing,
    is_number,
    with_point,
)
from .table import (
    Dialect,
    Selection,
    Table,
    check_columns,
    extension,
    feature_names,
    open_text,
    quoted,
)

Array = NDArray[Any]
Line = tuple[int, list[str]]
"""The number of a line, and its cells."""

SAMPLE = 100
"""Lines by which the type of a column is guessed."""
BLOCK_CELLS, SAMPLE_CELLS = 2**22, 2**18
"""Cells that pandas reads at a time, and cells of the sample, at most."""
CELL_BYTES = 128
"""Memory of a cell while it is read."""
CHARACTER_BYTES = 4
"""Memory of a character of a line, at most."""
BLOCK_SHARE = 8
"""A block of lines, and one line, may take at most 1/BLOCK_SHARE of the memory budget."""
COLUMN_BYTES = 10_000
"""Memory that pandas takes for a column."""
ROW_COPIES = 2
"""Rows of numbers exist twice for a moment: as parts and joined."""
NULLS = ["", "NaN", *sorted({form for mark in MISSING for form in (mark, mark.upper(), mark.title())})]
"""Marks of a missing number as pandas needs them: in every case that occurs."""


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
    sample : list of list of str
        The cells of the first rows.
    """

    def __init__(self, path: Path, known: Iterable[str] = (), dialect: Dialect | None = None) -> None:
        self.path, self._known = path, set(known)
        self.dialect = dialect or Dialect()
        self.delimiter = self.dialect.sep or ","  # until the first line shows it
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
        head, *below = ([self.plain(cell).strip() for cell in row] for _, row in islice(self._rows(), 2))
        self.has_names = names_columns(head, below[0] if below else [], self._known)
        self.names = head if self.has_names else [str(c) for c in range(len(head))]
        if self.names.count("") > 1:  # separators at the end of every line, as spreadsheets write them
            self.names = [name or f"column {c}" for c, name in enumerate(self.names, start=1)]
        check_distinct(self.names, self.path)
        self.sample = [row for _, row in islice(self, 1 + min(SAMPLE, SAMPLE_CELLS // len(head)))]

    def plain(self, cell: str) -> str:
        """Return a number with a decimal point in place of a decimal comma, which only the separator ";" allows."""
        pointed = with_point(cell)
        return pointed if self.delimiter == ";" and pointed != cell and is_number(pointed) else cell

    def _rewind(self, *, below_names: bool = False) -> None:
        self._file.seek(0)
        self._unfinished = 0
        self._reader = csv.reader(self._lines(), delimiter=self.delimiter, skipinitialspace=True)
        if below_names and self.has_names:
            next(self._rows())

    def _lines(self) -> Iterator[str]:
        """Yield the lines of the file; one that would not fit into memory is an error before it is split."""
        budget = memory_budget()
        most = max(1000, budget // (BLOCK_SHARE * CHARACTER_BYTES))
        for number in count(1):
            line = self._file.readline(most)
            cells = line.count(self.delimiter) if CELL_BYTES * len(line) > budget // BLOCK_SHARE else 0
            cut = len(line) == most and line[-1] not in "\r\n"
            if cut or CELL_BYTES * cells > budget // BLOCK_SHARE:
                self._refuse_line(f", line {number},", len(line), cells, cut)
            if not line:
                return
            yield line

    def read(self, size: int) -> str:
        """Return the next characters, as pandas asks for them; a line that does not fit into memory is an error."""
        most = max(1000, memory_budget() // (BLOCK_SHARE * CHARACTER_BYTES))
        block = self._file.read(min(size, most))
        end = max(block.rfind("\n"), block.rfind("\r"))
        self._unfinished = len(block) - 1 - end + (self._unfinished if end < 0 else 0)
        if self._unfinished >= most:
            self._refuse_line(": a line", self._unfinished, 0, True)
        return block

    def _refuse_line(self, where: str, length: int, cells: int, cut: bool) -> None:
        needed = BLOCK_SHARE * (CHARACTER_BYTES * (length + 1) + CELL_BYTES * cells)
        what = f"{quoted(self.path)}{where} with {length} characters{' or more' if cut else ''},"
        check_memory(needed, what, "correct its line ends or its extension")

    def _rows(self) -> Iterator[Line]:
        try:
            for row in self._reader:
                # an empty line is []; [""] is an empty cell in quotes, as pandas writes one of a single column
                if row and (len(row) > 1 or not row[0] or row[0].strip()):
                    yield self._reader.line_num, row
        except csv.Error as error:
            raise InputError(f"{quoted(self.path)}, line {self._reader.line_num}: {error}") from None

    def __iter__(self) -> Iterator[Line]:
        """Yield the rows, always from the first."""
        self._rewind(below_names=True)
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

    # -- columns ---------------------------------------------------------------------------------------------------

    def columns(self, numbers: Sequence[str], texts: Iterable[str]) -> tuple[list[str], Array, dict[str, Texts]]:
        """Read columns.

        Parameters
        ----------
        numbers : names of columns that hold numbers, as far as the sample shows
        texts : names of columns to read as text

        Returns
        -------
        numbers : list of str
            Those of ``numbers`` whose cells pandas reads as numbers; the others are texts.
        matrix : (n, len(numbers)) array
            NaN where a cell is missing.
        texts : dict of str to Texts
        """
        texts = list(dict.fromkeys(texts))
        decimal = "."
        if self.delimiter == ";" and numbers:
            marks = self._marks()
            decimal = "," if marks == {","} and not self._is_wide else "."
            if len(marks) > 1:  # in one column of numbers, or one of them in a column of text
                numbers, texts = [], [*numbers, *texts]
        try:
            if not self._is_wide:
                return list(numbers), *self._read(numbers, texts, decimal)
        except ValueError as error:  # pandas names neither the column nor the line
            if isinstance(error, InputError | UnicodeError):
                raise
        words = self._words(numbers, decimal)
        numbers = [name for name in numbers if name not in words]
        return numbers, *self._read(numbers, [*texts, *words], decimal)

    def _words(self, numbers: Sequence[str], decimal: str) -> set[str]:
        """Return the columns that have a cell which pandas might not read as a number."""
        number = re.compile(
            rf"[+-]?(\d+({re.escape(decimal)}\d*)?|{re.escape(decimal)}\d+)(e[+-]?\d+)?", re.ASCII | re.I
        )
        words, nulls = set[str](), [] if self._is_wide else NULLS
        for chunk in self._chunks([], decimal):
            words |= {
                name
                for name, column in chunk.items()
                if not all(number.fullmatch(cell) or cell in nulls for cell in set(column))
            }
        return words & {*numbers}

    @property
    def _is_wide(self) -> bool:
        """Whether pandas would need too much memory, however short the columns are."""
        return COLUMN_BYTES * len(self.names) > memory_budget() // BLOCK_SHARE

    def _marks(self) -> set[str]:
        """Return which of comma and point occur in the file."""
        with open_text(self.path, self.dialect.encoding) as file:
            return {mark for block in iter(lambda: file.read(2**20), "") for mark in ",." if mark in block}

    def _read(self, numbers: Sequence[str], texts: Sequence[str], decimal: str) -> tuple[Array, dict[str, Texts]]:
        parts, found, n, short = [], {name: GrowingTexts() for name in texts}, 0, False
        for chunk in self._chunks(numbers, decimal):
            last = chunk[self.names[-1]]
            n += len(last)
            if isinstance(chunk, dict):
                part = np.array([chunk[name] for name in numbers], dtype=np.float64).reshape(len(numbers), len(last)).T
            else:  # pandas lends columns, and not to write
                part = np.array(chunk if len(numbers) == len(self.names) else chunk[numbers], dtype=np.float64)
                short |= bool((last.isna() | (last == "")).any())
            parts.append(np.ascontiguousarray(part))
            for name, column in chunk.items() if found else ():
                if name in found:
                    found[name].add(column)
            size = n * 8 * ROW_COPIES * len(numbers) + sum(column.nbytes for column in found.values())
            advice = "give a part of them, or leave columns out with --drop"
            check_memory(size, f"reading the first {n} rows of {quoted(self.path)}", advice)
        if short:  # pandas fills up lines that are too short
            deque(self, maxlen=0)
        matrix = parts[0] if len(parts) == 1 else np.concatenate([np.empty((0, len(numbers))), *parts])
        return matrix, {name: column.texts() for name, column in found.items()}

    def _chunks(self, numbers: Sequence[str], decimal: str = ".") -> Iterator[Any]:
        """Yield the columns of some rows by name: numbers, and all others as text; of wide rows all are text."""
        if not self.sample:
            return
        self._rewind(below_names=True)
        step = max(1, min(BLOCK_CELLS, memory_budget() // (BLOCK_SHARE * CELL_BYTES)) // len(self.names))
        if self._is_wide:
            rows = (row for _, row in self)
            while block := list(islice(rows, step)):
                yield dict(zip(self.names, zip(*block, strict=True), strict=True))
            return
        import pandas as pd

        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "The 'float_precision'")  # since pandas 3 the default is exact
                chunks = pd.read_csv(
                    self,
                    sep=self.delimiter,
                    header=None,
                    names=self.names,
                    index_col=False,
                    dtype=dict.fromkeys(self.names, object) | dict.fromkeys(numbers, np.float64),
                    na_values={key: [*NULLS, *self.dialect.missing_values] for key in numbers},
                    keep_default_na=False,
                    decimal=decimal,
                    skipinitialspace=True,
                    float_precision="round_trip",
                    low_memory=False,
                    chunksize=step,
                )
            with chunks:
                yield from chunks
        except pd.errors.ParserError as error:
            deque(self, maxlen=0)  # names the line
            raise InputError(
                f"{quoted(self.path)} cannot be read as a table: {error}; check its quotation marks"
            ) from None

    def line_of(self, row: int) -> Line:
        """Return the line of a row, counted from 0."""
        with TextFile(self.path, self._known, self.dialect) as again:
            return next(islice(again, row, None))


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
    """Read the rows of a delimited file of numbers; the first cell that is none is an error."""
    raw = raw_text(path, selection)
    if raw.is_finite and raw.matrix is not None:
        return Table(raw.matrix, tuple(raw.columns), raw.extra, named=raw.named)
    names = list(raw.columns)
    with TextFile(path, selection.names, selection.dialect) as file:
        A = np.column_stack([_strict(raw, name, file) for name in names])
    rows = np.flatnonzero(~np.isfinite(A).all(axis=1))
    if len(rows):
        row = int(rows[0])
        bad = [names[c] for c in np.flatnonzero(~np.isfinite(A[row]))]
        texts = {name: column for name in bad if isinstance(column := raw.columns[name], Texts)}
        cells = {name: column.texts[column.codes[row]] for name, column in texts.items()}
        check_text(cells, raw.locate(row, bad[0])[0], path, selection)
        raw.refuse(row, bad[0])
    return Table(A, tuple(names), raw.extra, named=raw.named)


def _strict(raw: RawTable, name: str, file: TextFile) -> Array:
    """Return a column as numbers, also of true and false or yes and no; a cell that is no number is NaN or inf."""
    column = raw.columns[name]
    if not isinstance(column, Texts):
        return np.asarray(column)
    numbers, booleans = as_numbers(_with_points(column, file)), as_numbers(column, boolean=True)
    if 2 * np.isfinite(booleans).sum() <= (~np.isnan(booleans)).sum():
        return numbers
    if len(others := np.flatnonzero(np.isinf(booleans) & np.isfinite(numbers))):
        where, cell = raw.locate(int(others[0]), name)
        raise InputError(
            f"{raw.shown}, {where}: column {name!r} holds {cell.strip()!r} below values such as yes and no; "
            "write one or the other"
        )
    return booleans


def raw_text(
    path: Path, selection: Selection, chosen: Sequence[str] = (), texts: frozenset[str] = frozenset()
) -> RawTable:
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
        numbers = [name for name in features if name not in words and name not in selection.extra]
        others = {*features} - {*numbers}
        numbers, matrix, found = file.columns(numbers, [*selection.extra, *others])
    if not len(matrix):
        raise InputError(f"{quoted(path)} has no rows below its column names; give at least one")
    columns: dict[str, Any] = {name: matrix[:, c] for c, name in enumerate(numbers)} | found
    converted = {name: _converted(found[name], file) for name in features if name in found and name not in texts}
    converted = {name: column for name, column in converted.items() if column is not None}
    if file.delimiter == ";":
        _check_marks(path, {name: found[name] for name in converted}, file)
    columns |= converted
    names = features
    if selection.only is not None and features != selection.only:  # a file without names, taken in order
        names = selection.only
    source_of = dict(zip(names, features, strict=True))

    def locate(row: int, name: str) -> tuple[str, str]:
        line, cells = file.line_of(row)
        return f"line {line}", cells[file.names.index(source_of[name])]

    return RawTable(
        path,
        selection,
        len(matrix),
        {name: columns[feature] for name, feature in source_of.items()},
        {name: found[name].values() for name in selection.extra},
        file.has_names,
        locate,
        matrix if tuple(numbers) == features else None,
    )


def _text_columns(file: TextFile, features: Sequence[str]) -> set[str]:
    """Return the columns that hold text in the first rows."""
    place_of = {name: c for c, name in enumerate(file.names)}
    marks = file.dialect.missing_values
    return {
        name
        for name in features
        for row in file.sample
        if not is_missing(cell := row[place_of[name]], marks) and not is_number(file.plain(cell.strip()))
    }


def _converted(column: Texts, file: TextFile) -> Array | None:
    """Return a column as numbers, NaN where a cell is missing; None if one is neither."""
    values = as_numbers(_with_points(column.without(file.dialect.missing_values), file))
    return None if np.isinf(values).any() else values


def _with_points(column: Texts, file: TextFile) -> Texts:
    return Texts(column.codes, tuple(file.plain(text.strip()) for text in column.texts))


def _check_marks(path: Path, columns: Mapping[str, Texts], file: TextFile) -> None:
    """Raise if some numbers have a decimal comma and others a point: 1,500 with 2.75 more likely means 1500."""
    first: dict[str, tuple[int, str]] = {}
    for column in columns.values():
        for code, text in enumerate(column.texts):
            for mark in ",.":
                if mark in text:
                    first[mark] = min(first.get(mark, (len(column.codes), "")), (column.first_row(code), text.strip()))
    if len(first) > 1:
        comma, point = (f"{text!r} in line {file.line_of(row)[0]}" for row, text in (first[","], first["."]))
        raise InputError(
            f"{quoted(path)} holds numbers with a comma ({comma}) and with a point ({point}); "
            "write all with a decimal point, and none with a comma"
        )


def read_columns(path: Path, dialect: Dialect | None = None) -> dict[str, Array]:
    """Read every column of a small delimited file by name."""
    with TextFile(path, dialect=dialect) as file:
        _, matrix, found = file.columns([], file.names)
    if not len(matrix):
        raise InputError(f"{quoted(path)} has no rows")
    return {name: found[name].values() for name in file.names}
