"""Write a 2-d array as text, ``.npy``, ``.parquet`` or ``.zarr``."""

from __future__ import annotations

import csv
import io
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
    """Yield the text of a delimited file: column names, then rows, with the columns of text after the others.

    Cells are made for `BLOCK` rows at a time: as Python objects they take ten times the memory of the numbers.
    """
    further, text = texts or {}, io.StringIO(newline="")
    lines = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    lines.writerow((*columns, *further))
    for start in range(0, len(values), BLOCK):
        part = slice(start, start + BLOCK)
        cells = [_cells(column) for column in (*values[part].T, *(column[part] for column in further.values()))]
        lines.writerows(zip(*cells, strict=True))
        yield text.getvalue()
        text.seek(0)
        text.truncate()
    yield text.getvalue()


def _cells(column: Array) -> list[Any]:
    """Return the cells of a column; a whole number has no decimal point."""
    if column.dtype.kind == "f":
        with np.errstate(invalid="ignore"):
            whole = (np.rint(column) == column) & (np.abs(column) < MOST_WHOLE)
        if whole.all():
            column = column.astype(np.int64)
    return [
        int(cell) if isinstance(cell, float) and cell.is_integer() and abs(cell) < MOST_WHOLE else cell
        for cell in column.tolist()
    ]
