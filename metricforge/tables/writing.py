"""Write a 2-d array as text, ``.npy``, ``.parquet`` or ``.zarr``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..distributed import storage
from ..distributed.chunks import as_dask
from ..errors import InputError
from ..files import atomic

Array = NDArray[Any]

EXTENSIONS = (".csv", ".tsv", *storage.STORED)
"""The extensions that `write` knows."""
BLOCK = 4096
"""Rows that are turned into text at a time."""
MOST_WHOLE = 1e15
"""Whole numbers below this are written without a decimal point."""


def write(
    path: str | os.PathLike[str], columns: Sequence[str], values: Array, texts: Mapping[str, Array] | None = None
) -> None:
    """Write a 2-d array in the format of the file's extension, atomically; numbers keep every digit.

    ``texts`` are further columns by name, which may hold text: only delimited text has them.
    """
    suffix = check_output(path)
    if suffix in (".parquet", ".zarr"):
        storage.store(as_dask(np.asarray(values)), path, columns)
        return
    with atomic.writing(path) as file:
        if suffix == ".npy":
            np.save(file, np.asarray(values), allow_pickle=False)
        else:
            lines = as_text(columns, values, texts, delimiter="\t" if suffix == ".tsv" else ",")
            file.writelines(line.encode() for line in lines)


def check_output(path: str | os.PathLike[str]) -> str:
    """Return the extension of a file to be written, or raise if it cannot be written."""
    suffix = Path(path).suffix.lower()
    if suffix not in EXTENSIONS:
        raise InputError(f"cannot write {str(path)!r}: its extension must be {', '.join(EXTENSIONS)}")
    if suffix in storage.STORED:
        storage.check_storable(path)
    atomic.check_writable(path)
    return suffix


def as_text(
    columns: Sequence[str], values: Array, texts: Mapping[str, Array] | None = None, *, delimiter: str = ","
) -> Iterator[str]:
    """Yield the lines of a delimited file: column names, then rows, with the columns of text after the others.

    Cells are made for `BLOCK` rows at a time: as Python objects they take ten times the memory of the numbers.
    """
    further = texts or {}
    yield delimiter.join(_quoted(name, delimiter) for name in (*columns, *further)) + "\n"
    for start in range(0, len(values), BLOCK):
        part = slice(start, start + BLOCK)
        cells = [_cells(column, delimiter) for column in (*values[part].T, *(text[part] for text in further.values()))]
        yield from (delimiter.join(row) + "\n" for row in zip(*cells, strict=True))


def _cells(column: Array, delimiter: str) -> list[str]:
    """Return the cells of a column as text."""
    if column.dtype.kind in "iu":
        return list(map(str, column.tolist()))
    if column.dtype.kind == "f":
        with np.errstate(invalid="ignore"):
            whole = (np.rint(column) == column) & (np.abs(column) < MOST_WHOLE)
        if whole.all():
            return list(map(str, column.astype(np.int64).tolist()))
    return [_cell(value, delimiter) for value in column.tolist()]


def _cell(value: Any, delimiter: str) -> str:
    if isinstance(value, str):
        return _quoted(value, delimiter)
    return "" if value is None else _digits(value)


def _quoted(text: str, delimiter: str) -> str:
    return f'"{text.replace(chr(34), chr(34) * 2)}"' if set(text) & {delimiter, '"', "\n", "\r"} else text


def _digits(value: Any) -> str:
    return (
        repr(int(value)) if isinstance(value, float) and value.is_integer() and abs(value) < MOST_WHOLE else str(value)
    )
