"""The content of a file of rows, the columns that a caller selects from it, and the text that it is read from."""

from __future__ import annotations

import gzip
import io
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from .. import rows as _rows
from ..errors import InputError, UnknownNameError
from ..validation import nearest

if TYPE_CHECKING:
    from .preparation import Preparation

Array = NDArray[Any]

STANDARD_INPUT = "-"
"""The name of standard input, which is read as ``.csv``."""
COMPRESSED = ".gz"
SEPARATORS = {"tab": "\t", "\\t": "\t", "space": " ", "comma": ",", "semicolon": ";", "pipe": "|"}
"""Separators by name, for shells in which they are hard to type."""


@dataclass(frozen=True)
class Dialect:
    """How a delimited file is written, where the file does not show it.

    Attributes
    ----------
    sep : str or None
        The character between cells, or its name in `SEPARATORS`; None finds it in the first line.
    encoding : str or None
        Default: UTF-8, or UTF-16 if the file begins with its byte order mark.
    thousands : str or None
        The character between groups of three digits.  Default: a comma in columns where it can mean nothing else.
    missing_values : tuple of str
        Texts that stand for a missing cell, besides the usual ones; a number such as -200 also where it is written
        otherwise (-200.0).
    """

    sep: str | None = None
    encoding: str | None = None
    thousands: str | None = None
    missing_values: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("sep", "thousands"):
            text = getattr(self, name)
            if name == "sep" and text in SEPARATORS:
                object.__setattr__(self, name, SEPARATORS[text])
            elif text is not None and (len(text) != 1 or text in '"\n\r' or text.isalnum()):
                known = f" or one of {', '.join(SEPARATORS)}" if name == "sep" else ""
                raise InputError(f"--{name} must be one character such as ,{known}, got {text!r}")
        if self.thousands is not None and self.thousands == self.sep:
            raise InputError(f"--thousands and --sep are both {self.sep!r}; a character can only be one of them")
        if self.encoding is not None:
            try:
                "".encode(self.encoding)
            except LookupError:
                raise InputError(
                    f"--encoding {self.encoding!r} is unknown; write for instance utf-8, latin-1 or cp1252"
                ) from None


@dataclass(frozen=True, eq=False)
class Table:
    """The rows of a file.

    Attributes
    ----------
    rows : (n, d) array, CSR matrix, or (n,) array of strings; a dask array if the rows were left on disk
    names : tuple of str
        The columns of ``rows``; empty if they have no names.
    extra : dict of str to (n,) array
        The columns that were requested in addition to the rows, such as labels: numbers if all cells are numbers, else
        strings; None for empty cells.
    named : bool
        Whether the file itself names its columns; otherwise they are numbered from 0.
    preparation : Preparation or None
        What was done to the columns; None if they were numbers and nothing was done.
    kept : (n,) int array or None
        The numbers of the rows that were kept; None if no row was dropped.
    total : int
        The number of rows in the file, with those that were dropped; 0 if none was.
    notes : tuple of str
        What the user should know about the rows.
    """

    rows: Any
    names: tuple[str, ...] = ()
    extra: dict[str, Array] = field(default_factory=dict)
    named: bool = False
    preparation: Preparation | None = None
    kept: Array | None = None
    total: int = 0
    notes: tuple[str, ...] = ()

    @property
    def row_numbers(self) -> Array:
        """The number that each row has in the file, counted from 0."""
        return np.arange(self.rows.shape[0]) if self.kept is None else self.kept

    @property
    def nbytes(self) -> int:
        """The memory that the rows and the extra columns take."""
        return sum(map(_rows.bytes_of, (self.rows, *self.extra.values())))

    @property
    def holds_strings(self) -> bool:
        """Whether a row is a string, not a vector."""
        return len(self.rows.shape) == 1


@dataclass(frozen=True)
class Selection:
    """The columns that are wanted from a file.

    Attributes
    ----------
    extra : names of columns that are not features: labels, groups
    drop : names of columns to leave out
    only : names of the features, in order; None means all other columns.  A file without column names that has exactly
        as many columns is taken as it is.
    width : the number of features, for sparse formats, which do not store it
    flags : options of the command line that name an extra column; offered for a column of text
    dialect : how a delimited file is written
    unnamed : whether a column without a name is read; the caller checks that it numbers the rows, and leaves it out
    """

    extra: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    only: tuple[str, ...] | None = None
    width: int | None = None
    flags: tuple[str, ...] = ()
    dialect: Dialect = field(default_factory=Dialect)
    unnamed: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Every column that is mentioned."""
        return (*self.extra, *self.drop, *(self.only or ()))

    def how_to_drop(self, *names: str) -> str:
        """Return the advice to leave columns out; "" if the columns are required."""
        if self.only is not None:
            return ""
        them = "the column" if len(names) == 1 else "them"
        if self.width is not None:  # the rows are for a metric that exists already
            return f"take {them} out of the file"
        return f"leave {them} out with {' '.join(f'--drop {shlex.quote(name)}' for name in names)}"


def feature_names(names: Sequence[str], selection: Selection, path: Path, *, named: bool) -> tuple[str, ...]:
    """Return the names of the columns that are features; ``named`` is that of `Table`."""
    if selection.only is not None and not named and len(names) == len(selection.only):
        check_columns(selection.extra, names, path)
        return tuple(names)
    check_columns(selection.names, names, path)
    if selection.only is not None:
        return selection.only
    out = {*selection.extra, *selection.drop}
    left = tuple(name for name in names if name not in out)
    if named and "" in left and not selection.unnamed:
        raise without_name(path, names.index(""))
    if not left:
        raise InputError(f"{quoted(path)} has no columns except {', '.join(map(repr, names))}: nothing to learn from")
    return left


def without_name(path: Path, column: int) -> InputError:
    """Return the error for a column without a name."""
    return InputError(f"{quoted(path)}: column {column} (counted from 0) has no name; name it in the first line")


def check_columns(wanted: Sequence[str], known: Sequence[str], path: Path) -> None:
    """Raise if a file lacks a column."""
    there = set(known)
    for name in wanted:
        if name not in there:
            raise UnknownNameError(f"{quoted(path)} has no column {name!r}; {nearest(name, known)}")


def row_counters(table: Table) -> list[str]:
    """Return the columns that number the rows of a table in order, from any whole number; none for sparse rows."""
    X, names, n = table.rows, table.names, table.rows.shape[0]
    if not names or n < 3 or _rows.is_sparse(X):
        return []
    first, second, last = np.asarray(_rows.gathered(X[[0, 1, n - 1]]), dtype=np.float64)
    may = (first == np.rint(first)) & (second == first + 1) & (last == first + n - 1)
    columns = {int(c): np.asarray(_rows.gathered(X[:, int(c)])) for c in np.flatnonzero(may)}
    return [names[c] for c, values in columns.items() if np.array_equal(values, np.arange(n) + first[c])]


def quoted(path: Path) -> str:
    """Return a path as it is written in messages."""
    return "standard input" if str(path) == STANDARD_INPUT else repr(str(path))


# --------------------------------------------------------------------------------------------------------------- files


def extension(path: Path) -> str:
    """Return the extension that decides how a file is read: ``.csv`` for standard input and for ``.csv.gz``."""
    if str(path) == STANDARD_INPUT:
        return ".csv"
    suffix = path.suffix.lower()
    if suffix == COMPRESSED:
        inner = Path(path.stem).suffix.lower()
        return inner if inner in (".csv", ".tsv", ".txt") else suffix
    return suffix


@cache
def standard_input() -> bytes:
    """Return everything that standard input holds; it can be read once only, and tables are read in passes."""
    return sys.stdin.buffer.read()


def open_bytes(path: Path) -> IO[bytes]:
    """Open a file for reading, decompressed."""
    if str(path) == STANDARD_INPUT:
        return io.BytesIO(standard_input())
    if path.suffix.lower() == COMPRESSED:
        return cast(IO[bytes], gzip.open(path, "rb"))
    return path.open("rb")


def open_text(path: Path, encoding: str | None) -> IO[str]:
    """Open a file as text, with its line ends as they are."""
    file = open_bytes(path)
    try:
        return io.TextIOWrapper(file, encoding=encoding or found_encoding(path), newline="")
    except BaseException:
        file.close()
        raise


def found_encoding(path: Path) -> str:
    """Return UTF-16 for a file that begins with its byte order mark, else UTF-8 with or without one."""
    with open_bytes(path) as file:
        return "utf-16" if file.read(2) in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
