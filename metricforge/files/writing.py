"""Write a 2-d array as text, ``.npy``, ``.parquet`` or ``.zarr``."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import rows as _rows
from ..errors import InputError
from . import atomic, storage

Array = NDArray[Any]

EXTENSIONS = (".csv", ".tsv", *storage.STORED)
"""The extensions that `write` knows."""


def write(path: str | os.PathLike[str], columns: Sequence[str], values: Array) -> None:
    """Write a 2-d array in the format of the file's extension, atomically; numbers keep every digit."""
    suffix = check_output(path)
    if suffix in (".parquet", ".zarr"):
        storage.store(_rows.as_dask(np.asarray(values)), path, columns)
        return
    with atomic.writing(path) as file:
        if suffix == ".npy":
            np.save(file, np.asarray(values), allow_pickle=False)
        else:
            file.writelines(line.encode() for line in as_text(columns, values, "\t" if suffix == ".tsv" else ","))


def check_output(path: str | os.PathLike[str]) -> str:
    """Return the extension of a file to be written, or raise if it cannot be written."""
    suffix = Path(path).suffix.lower()
    if suffix not in EXTENSIONS:
        raise InputError(f"cannot write {str(path)!r}: its extension must be {', '.join(EXTENSIONS)}")
    if suffix in storage.STORED:
        storage.check_storable(path)
    atomic.check_writable(path)
    return suffix


def as_text(columns: Sequence[str], values: Array, delimiter: str = ",") -> Iterator[str]:
    """Yield the lines of a delimited file: column names, then rows."""
    yield delimiter.join(_quoted(name, delimiter) for name in columns) + "\n"
    for row in values:
        yield delimiter.join(_cell(value, delimiter) for value in row.tolist()) + "\n"


def _cell(value: Any, delimiter: str) -> str:
    if isinstance(value, str):
        return _quoted(value, delimiter)
    return "" if value is None else _digits(value)


def _quoted(text: str, delimiter: str) -> str:
    return f'"{text.replace(chr(34), chr(34) * 2)}"' if set(text) & {delimiter, '"', "\n", "\r"} else text


def _digits(value: Any) -> str:
    return repr(int(value)) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else str(value)
