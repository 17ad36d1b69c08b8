"""Rows and relations from files, by extension.

====================================  =======================================================================
``.csv`` ``.tsv`` ``.txt``            one row a line; the first names the columns, unless it looks like a row
``.parquet``                          a file or a folder of them; read by pyarrow or polars, whichever is installed
``.npy`` ``.zarr``                    a 2-d array; columns are called 0, 1, 2, ...
``.npz``                              a sparse matrix of ``scipy.sparse.save_npz``
``.svm`` ``.libsvm`` ``.svmlight``    sparse rows of LIBSVM; the target is the column ``label``
``.fasta`` ``.fa`` ``.faa``           strings; the heading gives the columns ``id`` and ``description``
====================================  =======================================================================

What cannot be read is an `InputError` that names the file, the column, the line and the repair.
"""

from __future__ import annotations

import csv
import importlib
import importlib.util
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from . import rows as _rows
from . import storage
from .constraints import Pairs, Triplets
from .errors import InputError, UnknownNameError, nearest

Array = NDArray[Any]

BLOCK = 4096
"""How many lines of text become numbers at a time."""
MISSING = {"?", "-", "na", "n/a", "nan", "null"}
"""What people write, in any case, where a number is missing."""
TRUTH = {"true": "1", "yes": "1", "false": "0", "no": "0"}
"""What is a number in a column that holds nothing else."""


@dataclass(frozen=True, eq=False)
class Table:
    """What a file holds.

    Attributes
    ----------
    rows : (n, d) array, CSR matrix, or (n,) array of strings; a dask array where the rows were left on disk
    names : tuple of str
        The columns of ``rows``; empty where they have no names.
    aside : dict of str to (n,) array
        The columns that were asked for beside the rows: numbers where all are, else strings; None where empty.
    named : bool
        Whether the file itself says what its columns are called; otherwise they are numbered from 0.
    """

    rows: Any
    names: tuple[str, ...] = ()
    aside: dict[str, Array] = field(default_factory=dict)
    named: bool = False

    @property
    def holds_strings(self) -> bool:
        """Whether a row is a string, not a vector."""
        return len(self.rows.shape) == 1


@dataclass(frozen=True)
class Choice:
    """Which columns of a file are wanted.

    Attributes
    ----------
    aside : names of columns that are no features: labels, groups
    drop : names of columns to leave out
    only : names of the features, in order; None means all that are left.  A file that names no columns and has just
        as many is taken as it is.
    width : the number of features, for files of sparse rows, which do not say
    """

    aside: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    only: tuple[str, ...] | None = None
    width: int | None = None

    def without(self, *names: str) -> str:
        """Return how to do without columns, in words; "" where they are needed."""
        if self.only is not None:
            return ""
        them = "the column" if len(names) == 1 else "them"
        if self.width is not None:  # for a metric that is there already
            return f"take {them} out of the file"
        return f"leave {them} out with {' '.join(f'--drop {_quoted(name)}' for name in names)}"


def read(
    path: str | os.PathLike[str],
    *,
    aside: Iterable[str] = (),
    drop: Iterable[str] = (),
    only: Sequence[str] | None = None,
    width: int | None = None,
    lazy: bool = False,
) -> Table:
    """Read the rows of a file; see `Choice` for the other arguments.

    One pass; text needs twice the memory of the rows for a moment, when its blocks are joined.  With ``lazy`` the rows
    of `OPENERS` stay on disk: tasks read them, and say of a bad cell what would be said here; only the columns aside
    are read at once.
    """
    path = _existing(path)
    wanted = Choice(tuple(aside), tuple(drop), None if only is None else tuple(only), width)
    reader = (OPENERS if lazy else READERS).get(path.suffix.lower(), READERS[path.suffix.lower()])
    try:
        return reader(path, wanted)
    except UnicodeDecodeError as error:
        raise InputError(
            f"{_show(path)} is not UTF-8 text (byte {error.start}): save it as UTF-8, or name it by what it is"
        ) from None
    except OSError as error:
        raise InputError(f"cannot read {_show(path)}: {error.strerror or error}") from None


def read_column(path: str | os.PathLike[str]) -> Array:
    """Read a file of one column: labels or groups that lie beside their rows."""
    path = _existing(path)
    if path.suffix.lower() == ".npy":
        A = _load_npy(path)
        if A.ndim != 1:
            raise InputError(f"{_show(path)} has shape {A.shape}; give one value a row")
        return A
    columns = _columns(path)
    if len(columns) != 1:
        raise InputError(f"{_show(path)} has {len(columns)} columns; give a file of one, with one value a row")
    return next(iter(columns.values()))


def is_table(name: str) -> bool:
    """Tell whether a name is that of a file `read` takes."""
    return Path(name).suffix.lower() in READERS and Path(name).is_file()


# ----------------------------------------------------------------------------------------------------------- relations

SIMILAR = {"1", "+1", "1.0", "true", "yes", "similar", "same"}
DISSIMILAR = {"0", "-1", "0.0", "-1.0", "false", "no", "dissimilar", "different"}


def read_pairs(path: str | os.PathLike[str], n: int) -> Pairs:
    """Read pairs of rows, counted from 0: columns ``i``, ``j`` and, unless all are similar, ``similar``.

    ``similar`` is 1 or true where two rows are alike, and 0, -1 or false where they are not.
    """
    path = _existing(path)
    columns = _relation_columns(path, ("i", "j"), ("similar",))
    pairs = np.column_stack([_row_numbers(columns[name], name, path) for name in ("i", "j")])
    alike = np.ones(len(pairs), dtype=bool)
    if "similar" in columns:
        words = [str(value).lower() for value in columns["similar"].tolist()]
        bad = next((p for p, word in enumerate(words) if word not in SIMILAR | DISSIMILAR), None)
        if bad is not None:
            raise InputError(
                f"{_show(path)}: column 'similar' holds {words[bad]!r} in pair {bad} (counted from 0); "
                "write 1 for similar and 0 (or -1) for dissimilar"
            )
        alike = np.array([word in SIMILAR for word in words])
    with _about(path):
        return Pairs(pairs[alike], pairs[~alike], n=n)


def read_triplets(path: str | os.PathLike[str], n: int) -> Triplets:
    """Read judgements "row i is more like row j than like row k", counted from 0: columns ``i``, ``j``, ``k``."""
    path = _existing(path)
    columns = _relation_columns(path, ("i", "j", "k"), ())
    triples = np.column_stack([_row_numbers(columns[name], name, path) for name in ("i", "j", "k")])
    with _about(path):
        return Triplets(triples, n=n)


class _about:  # noqa: N801 - reads as the words it is
    """Name the file in front of what a constraint says about its content."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, InputError):
            raise InputError(f"{_show(self.path)}: {error}") from None


def _relation_columns(path: Path, needed: tuple[str, ...], optional: tuple[str, ...]) -> dict[str, Array]:
    found = {name.lower(): values for name, values in _columns(path).items()}
    if list(found) == [str(p) for p in range(len(found))]:  # no names: by place
        found = dict(zip((*needed, *optional), found.values(), strict=False))
    missing = [name for name in needed if name not in found]
    if missing:
        raise InputError(
            f"{_show(path)} has no column {missing[0]!r}, only {', '.join(map(repr, found))}; "
            f"it needs {', '.join(needed)}" + (f" and may have {', '.join(optional)}" if optional else "")
        )
    return found


def _row_numbers(values: Array, name: str, path: Path) -> Array:
    if values.dtype.kind in "iu":
        return values
    bad = next(p for p, v in enumerate(values.tolist()) if not isinstance(v, int))
    raise InputError(
        f"{_show(path)}: column {name!r} holds {values[bad]!r} in entry {bad}, which is no row number; "
        "write the position of the row in the data, counted from 0"
    )


def _columns(path: Path) -> dict[str, Array]:
    """Return every column of a small file by name."""
    suffix = path.suffix.lower()
    if suffix == ".npy":
        A = _load_npy(path)
        A = A[:, None] if A.ndim == 1 else A
        return {str(c): A[:, c] for c in range(A.shape[1])}
    if suffix == ".parquet":
        return _frame(path)
    if suffix not in TEXT:
        raise InputError(f"{_show(path)}: give this as .csv, .npy or .parquet")
    with _opened(path) as lines:
        names = lines.names
        cells = [row for _, row in lines]
    if not cells:
        raise InputError(f"{_show(path)} has no rows")
    return {name: as_values([row[c] for row in cells]) for c, name in enumerate(names)}


# ---------------------------------------------------------------------------------------------------------------- text


class _opened:  # noqa: N801 - reads as the words it is
    """A delimited file: its column names, and its lines with their numbers.

    ``asked`` are names that the caller knows: a first line that holds one of them names the columns.
    """

    def __init__(self, path: Path, asked: Iterable[str] = ()) -> None:
        self.path, self.asked = path, set(asked)
        self.marks: dict[str, str] = {}
        self.file = path.open(newline="", encoding="utf-8-sig")
        try:
            self._start()
        except BaseException:
            self.file.close()
            raise

    def _start(self) -> None:
        first = next((line for line in self.file if line.strip()), None)
        if first is None:
            raise InputError(f"{_show(self.path)} is empty; give a file with one row a line")
        self.delimiter = "\t" if self.path.suffix.lower() == ".tsv" else _delimiter(first)
        self._rewind()
        head, *below = ([self.plain(cell).strip() for cell in row] for _, row in islice(self._rows(), 2))
        self.has_names = _names_columns(head, below[0] if below else [], self.asked)
        self.names = head if self.has_names else [str(c) for c in range(len(head))]
        twice = next((name for name in self.names if self.names.count(name) > 1), None)
        if twice is not None:
            raise InputError(f"{_show(self.path)} has two columns called {twice!r}; rename one")
        self._rewind()
        if self.has_names:
            next(self._rows())

    def plain(self, cell: str) -> str:
        """Return a cell with a decimal point in place of a decimal comma, which only other separators allow."""
        pointed = cell.replace(",", ".")
        return pointed if self.delimiter == ";" and pointed != cell and _is_number(pointed) else cell

    def check_marks(self, block: list[tuple[int, list[str]]], cells: list[Any]) -> None:
        """Raise where numbers have decimal commas and points: 1,500 beside 2.75 is more likely 1500 than 1.5."""
        if self.delimiter != ";":
            return
        for mark in {",", "."} - self.marks.keys():
            each = ((cell, line) for (line, _), row in zip(block, cells, strict=True) for cell in row)
            if found := next((f"{cell.strip()!r} in line {line}" for cell, line in each if mark in cell), None):
                self.marks[mark] = found
        if len(self.marks) > 1:
            raise InputError(
                f"{_show(self.path)} holds numbers with a comma ({self.marks[',']}) and with a point "
                f"({self.marks['.']}); write all with a decimal point, and none with a comma"
            )

    def _rewind(self) -> None:
        self.file.seek(0)
        self.reader = csv.reader(self.file, delimiter=self.delimiter, skipinitialspace=True)

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        try:
            for row in self.reader:
                if row and (len(row) > 1 or row[0].strip()):
                    yield self.reader.line_num, row
        except csv.Error as error:
            raise InputError(f"{_show(self.path)}, line {self.reader.line_num}: {error}") from None

    def __iter__(self) -> Iterator[tuple[int, list[str]]]:
        width = len(self.names)
        for line, row in self._rows():
            if len(row) != width:
                raise InputError(
                    f"{_show(self.path)}, line {line} has {len(row)} cells where the first line has {width}; mend it"
                )
            yield line, row

    def __enter__(self) -> _opened:
        return self

    def __exit__(self, *_: Any) -> None:
        self.file.close()


def _delimiter(first: str) -> str:
    """Return what separates the cells of a first line; 1,5;2,5 are two numbers with decimal commas, not three cells."""
    numbers = [_is_number(cell.strip().strip('"').replace(",", ".")) for cell in first.split(";")]
    return ";" if len(numbers) > 1 and 2 * sum(numbers) > len(numbers) else max(",;\t", key=first.count)


def _names_columns(head: list[str], below: list[str], asked: set[str]) -> bool:
    """Tell whether a first line names the columns, by the line below it; one of numbers and words alike does not.

    ``5.1,3.5,setosa`` over ``4.9,3.0,setosa`` is a row like any other; ``width,length,0`` over it would not be.
    """
    numbers = [_is_number(cell) or cell.lower() in MISSING for cell in head]
    for c, cell in enumerate(below[: len(head)]):  # yes over no is a row, yes over 3 may be how many said so
        numbers[c] |= head[c].lower() in TRUTH and cell.lower() in TRUTH
    if all(numbers):
        return False
    over_numbers = any(_is_number(b) and not number for number, b in zip(numbers, below, strict=False))
    known = asked - {str(c) for c in range(len(head))}
    return over_numbers or not any(numbers) or bool(known & set(head))


def _read_text(path: Path, wanted: Choice) -> Table:
    with _opened(path, (*wanted.aside, *wanted.drop, *(wanted.only or ()))) as lines:
        features = _features(lines.names, wanted, path, named=lines.has_names)
        places = [lines.names.index(name) for name in features]
        aside = {name: lines.names.index(name) for name in wanted.aside}
        cells_of = itemgetter(*places) if len(places) > 1 else lambda row: (row[places[0]],)
        blocks: list[Array] = []
        beside: dict[str, list[str]] = {name: [] for name in aside}
        text, truths = iter(lines), None
        while block := list(islice(text, BLOCK)):
            cells = [cells_of(row) for _, row in block]
            truths = _truths(cells) if truths is None else truths
            blocks.append(_numbers(block, cells, truths, features, lines, wanted))
            for name, place in aside.items():
                beside[name].extend(row[place] for _, row in block)
    if not blocks:
        raise InputError(f"{_show(path)} has no rows below its column names; give at least one")
    values = {name: as_values(cells) for name, cells in beside.items()}
    return Table(np.concatenate(blocks), features, values, named=lines.has_names)


def _truths(cells: list[Any]) -> list[int]:
    """Return the places of the columns that hold true and false, or yes and no, where they hold anything."""
    known = [c for c, cell in enumerate(cells[0]) if cell.strip().lower() in {"", *MISSING, *TRUTH}]
    values = {c: {row[c].strip().lower() for row in cells} - {"", *MISSING} for c in known}
    return [c for c in known if values[c] and values[c] <= TRUTH.keys()]


def _numbers(
    block: list[tuple[int, list[str]]],
    cells: list[Any],
    truths: list[int],
    names: Sequence[str],
    lines: _opened,
    wanted: Choice,
) -> Array:
    if truths:
        cells = [list(row) for row in cells]
        for (line, _), row in zip(block, cells, strict=True):
            for c in truths:
                row[c] = _truth(row[c], names[c], line, lines.path)
    written = cells
    if (A := _finite(cells)) is None:
        cells = [[lines.plain(cell) for cell in row] for row in cells]
        A = _finite(cells)
    if A is not None:
        lines.check_marks(block, written)
        return A
    for (line, _), row in zip(block, cells, strict=True):
        _check_text(dict(zip(names, row, strict=True)), line, lines.path, wanted)
        for name, cell in zip(names, row, strict=True):
            _check_number(cell, name, f"line {line}", lines.path, wanted)
    raise InputError(f"{_show(lines.path)} cannot be read as numbers")  # NumPy and Python disagree on what one is


def _truth(cell: str, name: str, line: int, path: Path) -> str:
    """Return a cell of a column of truths as 1 or 0; what is neither stays, to be refused, but a number would pass."""
    word = cell.strip().lower()
    if word not in MISSING and _is_number(word.replace(",", ".")):
        raise InputError(
            f"{_show(path)}, line {line}: column {name!r} holds {word!r} below words such as yes and no; write one kind"
        )
    return TRUTH.get(word, cell)


def _finite(cells: list[Any]) -> Array | None:
    """Return cells as numbers where all are finite ones."""
    if "_" in " ".join(map(" ".join, cells)):
        return None  # to NumPy 1_0 is ten, to people a name
    try:
        A = np.array(cells, dtype=np.float64)
    except ValueError:
        return None
    return A if np.isfinite(A).all() else None


def _check_text(row: dict[str, str], line: int, path: Path, wanted: Choice) -> None:
    """Raise where more than one cell of a line is text: one message, and one repair, for all of them."""
    words = [name for name, cell in row.items() if not (_is_missing(cell) or _is_number(cell.replace(",", ".")))]
    if len(words) > 1:
        raise InputError(
            f"{_show(path)}, line {line}: columns {', '.join(map(repr, words))} hold text (first "
            f"{_clip(row[words[0]].strip())!r}); {_instead_of_text(words, wanted)}"
        )


def _check_number(cell: Any, name: str, where: str, path: Path, wanted: Choice) -> None:
    """Raise where a cell is no finite number, with the column, the place and the repair."""
    text = "" if cell is None else str(int(cell) if isinstance(cell, bool) else cell).strip()
    at = f"{_show(path)}, {where}: column {name!r}"
    pointed = text.replace(",", ".")
    if not _is_missing(text) and not _is_number(text):
        if _is_number(pointed):
            raise InputError(f"{at} holds {text!r} with a decimal comma; write a point, as in {pointed}")
        raise InputError(f"{at} holds the text {_clip(text)!r}; {_instead_of_text([name], wanted)}")
    if _is_missing(text) or not np.isfinite(float(text)):
        repairs = filter(None, ("fill it in", "remove the row", wanted.without(name)))
        raise InputError(f"{at} {f'holds {text!r}' if text else 'is empty'}; {_either(*repairs)}")


def _instead_of_text(names: Sequence[str], wanted: Choice) -> str:
    if wanted.only is not None:
        return "the metric was learned on numbers there; write numbers"
    # where a column was named as hint, another may have been meant
    named = f"name {'it' if len(names) == 1 else 'one'} as --label or --groups" if wanted.aside else ""
    return _either(*filter(None, (wanted.without(*names), named)))


def _either(*repairs: str) -> str:
    *first, last = repairs
    return f"{', '.join(first)}, or {last}" if first else last


def _is_missing(cell: str) -> bool:
    return not cell.strip() or cell.strip().lower() in MISSING


def as_values(cells: Sequence[str]) -> Array:
    """Return cells as whole numbers or numbers where all are, else as strings; empty cells and nan are None."""
    words = [cell.strip() for cell in cells]
    missing = [not word or word.lower() == "nan" for word in words]
    known = [word for word, gone in zip(words, missing, strict=True) if not gone]
    convert: Callable[[str], Any] = str
    for kind in (int, float):
        try:
            for word in known:
                kind(word)
        except ValueError:
            continue
        if not any("_" in word for word in known):  # to Python 1_0 is ten, to people a name
            convert = kind
        break
    if len(known) == len(words):
        return np.array([convert(word) for word in words])
    values = np.empty(len(words), dtype=object)
    values[:] = [None if gone else convert(word) for word, gone in zip(words, missing, strict=True)]
    return values


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell


# --------------------------------------------------------------------------------------------------------- other files


def _read_parquet(path: Path, wanted: Choice) -> Table:
    columns = _frame(path)
    features = _features(list(columns), wanted, path, named=True)
    n = len(next(iter(columns.values())))
    if n == 0:
        raise InputError(f"{_show(path)} has no rows; give at least one")
    A = np.empty((n, len(features)))
    for c, name in enumerate(features):
        values = columns[name]
        if values.dtype.kind not in "fiub" or not np.isfinite(values).all():
            for row, cell in enumerate(values.tolist()):
                _check_number(cell, name, f"row {row} (counted from 0)", path, wanted)
        A[:, c] = values
    return Table(A, features, {name: columns[name] for name in wanted.aside}, named=True)


def _frame(path: Path, only: Sequence[str] | None = None) -> dict[str, Array]:
    """Return columns of a Parquet file or folder, empty cells as None or NaN."""
    known = {"pyarrow": "pyarrow.parquet", "polars": "polars"}
    package = next((name for name in known if importlib.util.find_spec(name) is not None), None)
    if package is None:
        raise InputError(f"{_show(path)}: reading Parquet needs pyarrow; pip install pyarrow, or save it as .csv")
    module = importlib.import_module(known[package])
    read = module.read_table if package == "pyarrow" else module.read_parquet
    chosen = None if only is None else list(only)
    parts = storage.parquet_files(path)
    if package == "pyarrow":
        storage.parquet_columns(path)  # says what is wrong with their names
    try:
        frames = [read(file, columns=chosen) for file in parts]
    except Exception as error:  # whatever a foreign file makes a parser raise
        raise InputError(f"{_show(path)} is no Parquet file: {' '.join(str(error).split())[:100]}") from None
    names = [str(name) for name in (frames[0].column_names if package == "pyarrow" else frames[0].columns)]
    if not names:
        raise InputError(f"{_show(path)} has no columns")
    for part, frame in zip(parts, frames, strict=True):
        held = frame.column_names if package == "pyarrow" else frame.columns
        if lacking := [name for name in names if name not in held]:
            raise InputError(f"{_show(part)} has no column {lacking[0]!r}, which {_show(parts[0])} has; mend it")
    return {name: np.concatenate([np.asarray(frame[name].to_numpy()) for frame in frames]) for name in names}


def _read_npy(path: Path, wanted: Choice) -> Table:
    A = _load_npy(path)
    if A.dtype.kind == "U" and A.ndim == 1:
        return Table(A.astype(object))
    rows, features = _columns_of(A, wanted, path)
    _check_cells(rows, features, path, wanted)
    return Table(rows, features, {name: A[:, int(name)] for name in wanted.aside})


def _columns_of(A: Any, wanted: Choice, path: Path) -> tuple[Any, tuple[str, ...]]:
    """Return the features of an array without names, and what they are called."""
    if A.ndim != 2 or A.dtype.kind not in "fiub":
        raise InputError(f"{_show(path)} holds {A.dtype} of shape {A.shape}; give a 2-d array of numbers, one row each")
    features = _features([str(c) for c in range(A.shape[1])], wanted, path, named=False)
    return A if len(features) == A.shape[1] else A[:, [int(name) for name in features]], features


def _check_cells(rows: Array, names: Sequence[str], path: Path, wanted: Choice, first: int = 0) -> None:
    if not np.isfinite(rows).all():
        r, c = np.argwhere(~np.isfinite(rows))[0]
        _check_number(rows[r, c], names[c], f"row {first + r} (counted from 0)", path, wanted)


def _load_npy(path: Path, mmap_mode: Literal["r"] | None = None) -> Array:
    try:
        A = np.load(path, mmap_mode=mmap_mode, allow_pickle=False)
    except (ValueError, EOFError):
        raise InputError(
            f"{_show(path)} is no array of numpy.save, or holds Python objects; save numbers, or strings of one width "
            "(dtype=str)"
        ) from None
    if not isinstance(A, np.ndarray) or A.size == 0:
        raise InputError(f"{_show(path)} is empty; give at least one row")
    return A


def _read_npz(path: Path, wanted: Choice) -> Table:
    from scipy import sparse

    try:
        X: Any = sparse.csr_matrix(sparse.load_npz(path))
    except Exception:  # whatever a foreign file makes zipfile, NumPy and SciPy raise
        raise InputError(
            f"{_show(path)} is no sparse matrix of scipy.sparse.save_npz; save dense rows and labels as two files, "
            "np.save('X.npy', X) and np.save('y.npy', y), for learn X.npy --label y.npy"
        ) from None
    names = [str(c) for c in range(X.shape[1])]
    features = _features(names, wanted, path, named=False)
    beside = {name: X[:, [int(name)]].toarray().ravel() for name in wanted.aside}
    return Table(X if len(features) == len(names) else X[:, [int(name) for name in features]], features, beside)


def _read_libsvm(path: Path, wanted: Choice) -> Table:
    from sklearn.datasets import load_svmlight_file

    _check_aside(("label",), wanted, path)
    if not path.stat().st_size:
        raise InputError(f"{_show(path)} is empty; give at least one row")
    try:
        X, y = load_svmlight_file(str(path), n_features=wanted.width)
    except ValueError as error:
        raise InputError(f"{_show(path)} is no LIBSVM file: {' '.join(str(error).split())}") from None
    y = y.astype(np.int64) if np.array_equal(y, np.rint(y)) else y
    return Table(X, (), dict.fromkeys(wanted.aside, y))


def _read_fasta(path: Path, wanted: Choice) -> Table:
    _check_aside(("id", "description"), wanted, path)
    headings: list[str] = []
    parts: list[list[str]] = []
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            text = line.strip()
            if text.startswith(">"):
                headings.append(text[1:].strip())
                parts.append([])
            elif text and not parts:
                raise InputError(f"{_show(path)}, line {number}: a FASTA file starts with a heading, '>name'")
            elif text:
                parts[-1].append(text)
    if not parts:
        raise InputError(f"{_show(path)} is empty; give at least one sequence under a heading, '>name'")
    rows = np.empty(len(parts), dtype=object)
    rows[:] = ["".join(lines) for lines in parts]
    if not all(rows):
        bare = next(p for p, sequence in enumerate(rows) if not sequence)
        raise InputError(f"{_show(path)}: the heading {headings[bare]!r} has no sequence below it")
    split = [heading.partition(" ") for heading in headings]
    known = {"id": [first for first, _, _ in split], "description": [rest.strip() for _, _, rest in split]}
    return Table(rows, (), {name: as_values(known[name]) for name in wanted.aside}, named=True)


# ---------------------------------------------------------------------------------------------- rows that stay on disk


def _open_npy(path: Path, wanted: Choice) -> Table:
    A = _load_npy(path, mmap_mode="r")
    if A.ndim == 1:
        return _read_npy(path, wanted)  # strings; rows of numbers have two axes
    _columns_of(A, wanted, path)  # says what is wrong with them
    return _open_array(path, wanted)


def _open_array(path: Path, wanted: Choice) -> Table:
    A = storage.open_rows(path)
    rows, features = _columns_of(A, wanted, path)
    beside = {name: _rows.gathered(A[:, int(name)]) for name in wanted.aside}
    return Table(_checked(rows, features, path, wanted), features, beside)


def _open_parquet(path: Path, wanted: Choice) -> Table:
    if not storage.installed("pyarrow"):
        return _read_parquet(path, wanted)  # by polars, or with a word on what to install
    numeric = storage.parquet_columns(path)
    features = _features(list(numeric), wanted, path, named=True)
    for name in features:
        if not numeric[name]:
            for row, cell in enumerate(_frame(path, [name])[name].tolist()):
                _check_number(cell, name, f"row {row} (counted from 0)", path, wanted)
    rows = storage.open_rows(path, columns=list(features))
    beside = _frame(path, wanted.aside) if wanted.aside else {}
    return Table(_checked(rows, features, path, wanted), features, beside, named=True)


def _checked(rows: Any, names: tuple[str, ...], path: Path, wanted: Choice) -> Any:
    """Return dask rows whose tasks look at every cell."""
    about = {"names": names, "path": path, "wanted": wanted}
    return rows.map_blocks(_checked_block, dtype=rows.dtype, meta=np.empty((0, 0), dtype=rows.dtype), **about)


def _checked_block(block: Array, names: tuple[str, ...], path: Path, wanted: Choice, block_info: Any = None) -> Array:
    _check_cells(block, names, path, wanted, first=block_info[0]["array-location"][0][0])
    return block


def _read_zarr(path: Path, wanted: Choice) -> Table:
    found = _open_array(path, wanted)
    return replace(found, rows=_rows.gathered(found.rows))


OPENERS: dict[str, Callable[[Path, Choice], Table]] = {
    ".npy": _open_npy,
    ".parquet": _open_parquet,
    ".zarr": _open_array,
}
"""What is left on disk where a cluster is to read it."""

TEXT = (".csv", ".tsv", ".txt")
READERS: dict[str, Callable[[Path, Choice], Table]] = {
    **dict.fromkeys(TEXT, _read_text),
    ".parquet": _read_parquet,
    ".npy": _read_npy,
    ".zarr": _read_zarr,
    ".npz": _read_npz,
    **dict.fromkeys((".svm", ".libsvm", ".svmlight"), _read_libsvm),
    **dict.fromkeys((".fasta", ".fa", ".faa"), _read_fasta),
}


# ------------------------------------------------------------------------------------------------------------- writing


WRITTEN = (".csv", ".tsv", *storage.STORED)
"""The extensions that `write` knows."""


def write(path: str | os.PathLike[str], columns: Sequence[str], values: Array) -> None:
    """Write a 2-d array by the extension of its file, atomically; numbers keep every digit."""
    from . import files

    suffix = check_output(path)
    if suffix in (".parquet", ".zarr"):
        storage.store(_rows.as_dask(np.asarray(values)), path, columns)
        return
    with files.writing(path) as file:
        if suffix == ".npy":
            np.save(file, np.asarray(values), allow_pickle=False)
        else:
            file.writelines(line.encode() for line in as_text(columns, values, "\t" if suffix == ".tsv" else ","))


def check_output(path: str | os.PathLike[str]) -> str:
    """Return the extension of a file to be written, or raise where it cannot be."""
    from . import files

    suffix = Path(path).suffix.lower()
    if suffix not in WRITTEN:
        raise InputError(f"cannot write {str(path)!r}: its extension must be {', '.join(WRITTEN)}")
    if suffix in storage.STORED:
        storage.check_storable(path)
    files.check_writable(path)
    return suffix


def as_text(columns: Sequence[str], values: Array, delimiter: str = ",") -> Iterator[str]:
    """Yield the lines of a delimited file: column names, then rows."""
    quoted = (f'"{c.replace(chr(34), chr(34) * 2)}"' if set(c) & {delimiter, '"', "\n"} else c for c in columns)
    yield delimiter.join(quoted) + "\n"
    for row in values:
        yield delimiter.join(map(_digits, row.tolist())) + "\n"


def _digits(value: Any) -> str:
    return repr(int(value)) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else str(value)


# -------------------------------------------------------------------------------------------------------------- pieces


def _existing(path: str | os.PathLike[str]) -> Path:
    found = Path(path)
    if found.suffix.lower() not in READERS:
        raise InputError(
            f"{_show(found)} has no extension this reads; known: {', '.join(READERS)} (rename it, or convert it)"
        )
    if found.is_dir() and found.suffix.lower() not in (".parquet", ".zarr"):
        raise InputError(f"{_show(found)} is a folder; give the name of a file")
    if not found.exists():
        raise InputError(f"there is no file {_show(found)}; check the name and the folder")
    return found


def _features(names: Sequence[str], wanted: Choice, path: Path, *, named: bool) -> tuple[str, ...]:
    """Return the names of the columns that are features."""
    if wanted.only is not None and not named and len(names) == len(wanted.only):
        return tuple(names)
    for name in (*wanted.aside, *wanted.drop, *(wanted.only or ())):
        if name not in names:
            raise UnknownNameError(f"{_show(path)} has no column {name!r}; {nearest(name, names)}")
    if wanted.only is not None:
        return wanted.only
    left = tuple(name for name in names if name not in (*wanted.aside, *wanted.drop))
    if named and wanted.only is None and "" in left:
        raise InputError(
            f"{_show(path)}: column {names.index('')} (counted from 0) has no name, as a row index has none; "
            "leave it out with --drop '', or name it"
        )
    if not left:
        raise InputError(f"{_show(path)} has no columns besides {', '.join(map(repr, names))}: nothing to learn from")
    return left


def _check_aside(known: tuple[str, ...], wanted: Choice, path: Path) -> None:
    for name in (*wanted.aside, *wanted.drop):
        if name not in known:
            raise UnknownNameError(f"{_show(path)} has no column {name!r}; {nearest(name, known)}")


def _show(path: Path) -> str:
    return repr(str(path))


def _quoted(name: str) -> str:
    import shlex

    return shlex.quote(name)


def _clip(text: str, most: int = 40) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
