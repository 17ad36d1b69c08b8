"""Rows from files, by extension.

====================================  ==========================================================================
``.csv`` ``.tsv`` ``.txt``            one row a line; the first line names the columns, unless it looks like a row;
                                      compressed with gzip as ``.csv.gz``; ``-`` is standard input
``.parquet``                          a file or a folder of files; read by pyarrow or polars, whichever is installed
``.npy`` ``.zarr``                    a 2-d array; columns are called 0, 1, 2, ...
``.npz``                              a sparse matrix of ``scipy.sparse.save_npz``
``.svm`` ``.libsvm`` ``.svmlight``    sparse rows of LIBSVM; the target is the column ``label``
``.fasta`` ``.fa`` ``.faa``           strings; the heading gives the columns ``id`` and ``description``
====================================  ==========================================================================

A file that cannot be read is an `InputError` that names the file, the column, the line and the repair.
"""

from __future__ import annotations

import gzip
import importlib
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from .. import rows as _rows
from ..constraints import Constraint
from ..distributed import storage
from ..errors import InputError, MemoryBudgetError
from ..files.untrusted import as_csr, check_archive, check_array_size, check_regular
from ..rows import check_memory
from .cells import RawTable, Texts, as_values, check_array, check_cell
from .delimited import read_columns, read_text
from .table import (
    COMPRESSED,
    STANDARD_INPUT,
    Dialect,
    Selection,
    Table,
    check_columns,
    extension,
    feature_names,
    quoted,
)

Array = NDArray[Any]
C = TypeVar("C", bound=Constraint)


def read(
    path: str | os.PathLike[str],
    *,
    extra: Iterable[str] = (),
    drop: Iterable[str] = (),
    only: Sequence[str] | None = None,
    width: int | None = None,
    flags: Iterable[str] = (),
    dialect: Dialect | None = None,
    lazy: bool = False,
) -> Table:
    """Read the rows of a file.

    Parameters
    ----------
    path : path
        With one of the extensions above.
    extra, drop, only, width, flags, dialect
        As in `Selection`.
    lazy : bool
        Leave the rows of ``.npy``, ``.parquet`` and ``.zarr`` files on disk: tasks read them, and raise the same errors
        at a bad cell.  Only the extra columns are read at once.

    Notes
    -----
    One pass.  Text needs twice the memory of the rows for a moment, when its blocks are joined.
    """
    path = existing(path)
    wanted = None if only is None else tuple(only)
    selection = Selection(tuple(extra), tuple(drop), wanted, width, tuple(flags), dialect or Dialect())
    suffix = extension(path)
    reader = (OPENERS if lazy else READERS).get(suffix, READERS[suffix])
    with reading(path, selection.dialect):
        return reader(path, selection)


@contextmanager
def reading(path: Path, dialect: Dialect) -> Iterator[None]:
    """Raise what goes wrong with the bytes of a file as an InputError."""
    try:
        yield
    except UnicodeError as error:
        at = f" (byte {error.start})" if isinstance(error, UnicodeDecodeError) else ""
        if dialect.encoding is not None:
            raise InputError(f"{quoted(path)} is not {dialect.encoding} text{at}; give another --encoding") from None
        raise InputError(
            f"{quoted(path)} is not UTF-8 text{at}: save it as UTF-8, name its encoding (--encoding latin-1), or "
            "correct its extension"
        ) from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{quoted(path)} is not a whole gzip file: {error}") from None
    except OSError as error:
        raise InputError(f"cannot read {quoted(path)}: {error.strerror or error}") from None


def read_column(path: str | os.PathLike[str]) -> Array:
    """Read a file of one column: labels or groups, one value per row."""
    path = existing(path)
    if extension(path) == ".npy":
        A = _load_npy(path)
        if A.ndim != 1:
            raise InputError(f"{quoted(path)} has shape {A.shape}; give one value a row")
        return A
    columns = all_columns(path)
    if len(columns) != 1:
        raise InputError(f"{quoted(path)} has {len(columns)} columns; give a file of one, with one value a row")
    return next(iter(columns.values()))


def all_columns(path: Path, dialect: Dialect | None = None) -> dict[str, Array]:
    """Return every column of a small file by name."""
    suffix = extension(path)
    if suffix == ".npy":
        A = _load_npy(path)
        A = A[:, None] if A.ndim == 1 else A
        return {str(c): A[:, c] for c in range(A.shape[1])}
    if suffix == ".parquet":
        return _parquet_values(path)
    if suffix not in TEXT:
        raise InputError(f"{quoted(path)}: give this as .csv, .npy or .parquet")
    return read_columns(path, dialect)


def read_relations(path: str | os.PathLike[str], kind: type[C], n: int) -> C:
    """Read a file with one relation per line over ``n`` rows of data, counted from 0.

    The kind names its columns: ``table_columns`` and ``optional_columns``.  A file without column names is read by
    position.
    """
    path = existing(path)
    columns = _named(all_columns(path), kind.table_columns, kind.optional_columns, path)
    try:
        return kind.from_table(columns, n)
    except InputError as error:
        raise InputError(f"{quoted(path)}: {error}") from None


def _named(
    columns: dict[str, Array], needed: tuple[str, ...], optional: tuple[str, ...], path: Path
) -> dict[str, Array]:
    """Return columns by lower-case name; by position if the file has no names."""
    found = {name.lower(): values for name, values in columns.items()}
    if list(found) == [str(p) for p in range(len(found))]:
        found = dict(zip((*needed, *optional), found.values(), strict=False))
    missing = [name for name in needed if name not in found]
    if missing:
        raise InputError(
            f"{quoted(path)} has no column {missing[0]!r}, only {', '.join(map(repr, found))}; "
            f"it needs {', '.join(needed)}" + (f" and may have {', '.join(optional)}" if optional else "")
        )
    return found


def is_table(name: str) -> bool:
    """Return whether a name is that of a file which `read` takes."""
    return extension(Path(name)) in READERS and Path(name).is_file()


def existing(path: str | os.PathLike[str]) -> Path:
    """Return the path of a file that exists and has a known extension, or raise."""
    found = Path(path)
    if str(found) == STANDARD_INPUT:
        return found
    if extension(found) not in READERS:
        raise InputError(
            f"{quoted(found)} has an unknown extension; known: {', '.join(READERS)}, and {', '.join(TEXT)} with "
            f"{COMPRESSED} (rename the file, or convert it)"
        )
    if found.is_dir() and found.suffix.lower() not in (".parquet", ".zarr"):
        raise InputError(f"{quoted(found)} is a folder; give the name of a file")
    if not found.exists():
        raise InputError(f"there is no file {quoted(found)}; check the name and the folder")
    check_regular(found)
    return found


# ------------------------------------------------------------------------------------------------------------- parquet


def _read_parquet(path: Path, selection: Selection) -> Table:
    columns = _parquet_values(path)
    features = feature_names(list(columns), selection, path, named=True)
    n = len(next(iter(columns.values())))
    if n == 0:
        raise InputError(f"{quoted(path)} has no rows; give at least one")
    A = np.empty((n, len(features)))
    for c, name in enumerate(features):
        values = columns[name]
        if values.dtype.kind not in "fiub" or not np.isfinite(values).all():
            _check_column(values, name, path, selection)
        A[:, c] = values
    return Table(A, features, {name: columns[name] for name in selection.extra}, named=True)


def raw_parquet(path: Path, selection: Selection, chosen: Sequence[str], texts: frozenset[str]) -> RawTable:
    """Read the columns of a Parquet file as they are; the parameters are those of `delimited.raw_text`."""
    found = _parquet_values(path)
    check_columns(chosen, list(found), path)
    features = feature_names(list(found), selection, path, named=True)
    wanted = set(chosen or features)
    columns = {name: _raw_column(found[name]) for name in features if name in wanted}
    n = len(next(iter(found.values())))
    if n == 0:
        raise InputError(f"{quoted(path)} has no rows; give at least one")

    def locate(row: int, name: str) -> tuple[str, str]:
        cell = found[name][row]
        return f"row {row} (counted from 0)", "" if cell is None else str(cell)

    return RawTable(path, selection, n, columns, {name: found[name] for name in selection.extra}, True, locate)


def _raw_column(values: Array) -> Any:
    if values.dtype.kind in "fiub":
        return values.astype(np.float64)
    if values.dtype.kind == "M":
        return values
    cells = values.tolist()
    if any(isinstance(cell, list | dict | tuple | np.ndarray) for cell in cells):
        return Texts.of([str(cell) for cell in cells])  # nested cells, which are no numbers
    return Texts.of(["" if cell is None or cell != cell else str(cell) for cell in cells])  # NaN differs from itself


def _open_parquet(path: Path, selection: Selection) -> Table:
    if not storage.installed("pyarrow"):
        return _read_parquet(path, selection)  # by polars, or with the command that installs pyarrow
    numeric = storage.parquet_columns(path)
    features = feature_names(list(numeric), selection, path, named=True)
    for name in features:
        if not numeric[name]:
            _check_column(_parquet_values(path, [name])[name], name, path, selection)
    rows = storage.open_rows(path, columns=list(features))
    extra = _parquet_values(path, selection.extra) if selection.extra else {}
    return Table(_checked(rows, features, path, selection), features, extra, named=True)


def _check_column(values: Array, name: str, path: Path, selection: Selection) -> None:
    for row, cell in enumerate(values.tolist()):
        check_cell(cell, name, f"row {row} (counted from 0)", path, selection)


def _parquet_values(path: Path, only: Sequence[str] | None = None) -> dict[str, Array]:
    """Return columns of a Parquet file or folder; empty cells are None or NaN."""
    modules = {"pyarrow": "pyarrow.parquet", "polars": "polars"}
    package = next((name for name in modules if storage.installed(name)), None)
    if package is None:
        raise InputError(f"{quoted(path)}: reading Parquet needs pyarrow; pip install pyarrow, or save it as .csv")
    module = importlib.import_module(modules[package])
    read = module.read_table if package == "pyarrow" else module.read_parquet
    chosen = None if only is None else list(only)
    parts = storage.parquet_files(path)
    if package == "pyarrow":
        storage.parquet_columns(path)  # raises if two columns have one name
    try:
        if package == "pyarrow":
            storage.check_parquet_size(path, only)
        frames = [read(file, columns=chosen) for file in parts]
    except MemoryBudgetError:
        raise
    except Exception as error:  # parsers raise errors of many types on broken files
        raise InputError(f"{quoted(path)} is not a Parquet file: {' '.join(str(error).split())[:100]}") from None
    found = [frame.column_names if package == "pyarrow" else frame.columns for frame in frames]
    names = [str(name) for name in found[0]]
    if not names:
        raise InputError(f"{quoted(path)} has no columns")
    for part, columns in zip(parts, map(set, found), strict=True):
        if lacking := [name for name in names if name not in columns]:
            raise InputError(
                f"{quoted(part)} has no column {lacking[0]!r}, but {quoted(parts[0])} has; give both the same columns"
            )
    return {name: np.concatenate([np.asarray(frame[name].to_numpy()) for frame in frames]) for name in names}


# ------------------------------------------------------------------------------------------------------ arrays on disk


def _read_npy(path: Path, selection: Selection) -> Table:
    A = _load_npy(path)
    if A.dtype.kind == "U" and A.ndim == 1:
        return Table(A.astype(object))
    rows, features = _features_of(A, selection, path)
    check_array(rows, features, path, selection)
    return Table(rows, features, {name: A[:, int(name)] for name in selection.extra})


def _open_npy(path: Path, selection: Selection) -> Table:
    A = _load_npy(path, mmap_mode="r")
    if A.ndim == 1:
        return _read_npy(path, selection)  # strings; rows of numbers have two axes
    _check_table(A, path)
    return _open_array(path, selection)


def _open_array(path: Path, selection: Selection) -> Table:
    A = storage.open_rows(path)
    rows, features = _features_of(A, selection, path)
    extra = {name: _rows.gathered(A[:, int(name)]) for name in selection.extra}
    return Table(_checked(rows, features, path, selection), features, extra)


def _read_zarr(path: Path, selection: Selection) -> Table:
    found = _open_array(path, selection)
    check_memory(found.rows.nbytes, f"reading {quoted(path)}", "give a part of it")
    return replace(found, rows=_rows.gathered(found.rows))


def _check_table(A: Any, path: Path) -> None:
    if A.ndim != 2 or A.dtype.kind not in "fiub":
        raise InputError(f"{quoted(path)} holds {A.dtype} of shape {A.shape}; give a 2-d array of numbers")


def _features_of(A: Any, selection: Selection, path: Path) -> tuple[Any, tuple[str, ...]]:
    """Return the features of an array without column names, and their numbers as names."""
    _check_table(A, path)
    features = feature_names([str(c) for c in range(A.shape[1])], selection, path, named=False)
    if len(features) == A.shape[1]:
        return A, features
    if isinstance(A, np.ndarray):
        check_memory(2 * A.nbytes, f"a part of the columns of {quoted(path)}", "give a file without the others")
    return A[:, [int(name) for name in features]], features


def _load_npy(path: Path, mmap_mode: Literal["r"] | None = None) -> Array:
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            check_array_size(file, size)
        if mmap_mode is None:
            check_memory(size, f"reading {quoted(path)}", "give a part of it, or learn on a --scheduler")
        A = np.load(path, mmap_mode=mmap_mode, allow_pickle=False)
    except MemoryBudgetError:
        raise
    except (ValueError, EOFError) as error:
        raise InputError(
            f"{quoted(path)} is not an array of numpy.save, or holds Python objects ({' '.join(str(error).split())}); "
            "save numbers, or strings of one width (dtype=str)"
        ) from None
    if not isinstance(A, np.ndarray) or A.size == 0:
        raise InputError(f"{quoted(path)} is empty; give at least one row")
    return A


def _checked(rows: Any, names: tuple[str, ...], path: Path, selection: Selection) -> Any:
    """Return dask rows whose tasks check every cell."""
    options = {"names": names, "path": path, "selection": selection}
    return rows.map_blocks(_checked_block, dtype=rows.dtype, meta=np.empty((0, 0), dtype=rows.dtype), **options)


def _checked_block(
    block: Array, names: tuple[str, ...], path: Path, selection: Selection, block_info: Any = None
) -> Array:
    check_array(block, names, path, selection, first=block_info[0]["array-location"][0][0])
    return block


# -------------------------------------------------------------------------------------------- sparse rows and strings


def _read_npz(path: Path, selection: Selection) -> Table:
    from scipy import sparse

    try:
        check_archive(path)
        X: Any = sparse.csr_matrix(as_csr(sparse.load_npz(path)))
    except MemoryBudgetError:
        raise
    except Exception:  # zipfile, NumPy and SciPy raise errors of many types on broken files
        raise InputError(
            f"{quoted(path)} is not a sparse matrix of scipy.sparse.save_npz; save dense rows and labels as two files, "
            "np.save('X.npy', X) and np.save('y.npy', y), for learn X.npy --label y.npy"
        ) from None
    _check_width(X, path)
    names = [str(c) for c in range(X.shape[1])]
    features = feature_names(names, selection, path, named=False)
    extra = {name: X[:, [int(name)]].toarray().ravel() for name in selection.extra}
    return Table(X if len(features) == len(names) else X[:, [int(name) for name in features]], features, extra)


def _read_libsvm(path: Path, selection: Selection) -> Table:
    from sklearn.datasets import load_svmlight_file

    check_columns((*selection.extra, *selection.drop), ("label",), path)
    if not path.stat().st_size:
        raise InputError(f"{quoted(path)} is empty; give at least one row")
    _check_entries(path)
    try:
        X, y = load_svmlight_file(str(path), n_features=selection.width)
    except (ValueError, OverflowError) as error:
        raise InputError(f"{quoted(path)} is not a LIBSVM file: {' '.join(str(error).split())}") from None
    _check_width(X, path)
    y = y.astype(np.int64) if np.array_equal(y, np.rint(y)) else y
    return Table(X, (), dict.fromkeys(selection.extra, y))


def _check_entries(path: Path) -> None:
    """Raise if the entries of a LIBSVM file do not fit into memory; their number is estimated from its beginning."""
    with path.open("rb") as file:
        start = file.read(2**20)
    size = path.stat().st_size
    entries = start.count(b":") / max(1, len(start)) * size
    # a value and an index, in arrays that grow by copying, and as CSR
    check_memory(int(40 * entries), f"reading {quoted(path)} with about {entries:.0f} entries", "give a part of it")


def _check_width(X: Any, path: Path) -> None:
    """Raise if statistics of the columns do not fit into memory: one index of 2e9 makes 2e9 columns."""
    width = X.shape[1]
    # eight vectors, such as mean, variance, least, largest and their intermediates
    check_memory(
        64 * width, f"{quoted(path)} with {width} columns", "correct its largest index, or number its columns anew"
    )


def _read_fasta(path: Path, selection: Selection) -> Table:
    check_columns((*selection.extra, *selection.drop), ("id", "description"), path)
    headings: list[str] = []
    parts: list[list[str]] = []
    # lines and what they are joined to, each with its overhead as a Python string
    check_memory(4 * path.stat().st_size, f"reading {quoted(path)}", "give a part of it")
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            text = line.strip()
            if text.startswith(">"):
                headings.append(text[1:].strip())
                parts.append([])
            elif text and not parts:
                raise InputError(f"{quoted(path)}, line {number}: a FASTA file starts with a heading, '>name'")
            elif text:
                parts[-1].append(text)
    if not parts:
        raise InputError(f"{quoted(path)} is empty; give at least one sequence under a heading, '>name'")
    rows = np.empty(len(parts), dtype=object)
    rows[:] = ["".join(lines) for lines in parts]
    if not all(rows):
        bare = next(p for p, sequence in enumerate(rows) if not sequence)
        raise InputError(f"{quoted(path)}: the heading {headings[bare]!r} has no sequence below it")
    split = [heading.partition(" ") for heading in headings]
    known = {"id": [first for first, _, _ in split], "description": [rest.strip() for _, _, rest in split]}
    return Table(rows, (), {name: as_values(known[name]) for name in selection.extra}, named=True)


Reader = Callable[[Path, Selection], Table]

TEXT = (".csv", ".tsv", ".txt")
OPENERS: dict[str, Reader] = {".npy": _open_npy, ".parquet": _open_parquet, ".zarr": _open_array}
"""Formats whose rows can stay on disk."""
READERS: dict[str, Reader] = {
    **dict.fromkeys(TEXT, read_text),
    ".parquet": _read_parquet,
    ".npy": _read_npy,
    ".zarr": _read_zarr,
    ".npz": _read_npz,
    **dict.fromkeys((".svm", ".libsvm", ".svmlight"), _read_libsvm),
    **dict.fromkeys((".fasta", ".fa", ".faa"), _read_fasta),
}
