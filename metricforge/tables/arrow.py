"""Delimited text through pyarrow, where it is installed: several times as fast as reading cell by cell.

pyarrow decides nothing here.  The columns, the separator and the decimal mark are found before, and where pyarrow
refuses a file, or could read it otherwise than `dialect` does, the answer is None: the careful reader then finds the
value, or the line and the words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..distributed.storage import installed
from ..rows import memory_budget
from .cells import MISSING, has_comma
from .sources import found_encoding, open_bytes
from .texts import Texts

if TYPE_CHECKING:
    from .dialect import TextFile

Array = NDArray[Any]

BLOCK_BYTES = 2**20
"""Text that is parsed at a time, unless a line is longer."""
CELL_BYTES = 128
"""Bytes of a cell, at most, where a line is longer than that block; longer cells are left to the careful reader."""
COLUMN_BYTES, SHARE = 12_000, 8
"""Memory that pyarrow takes for every column, however short; columns may take 1/SHARE of the memory budget."""
NULLS = ["", "NaN", *sorted({form for mark in MISSING for form in (mark, mark.upper(), mark.title())})]
"""Marks of a missing number as pyarrow needs them: in every case that occurs."""


class Found(NamedTuple):
    """Columns of a file: numbers, NaN where a cell is missing, and texts."""

    numbers: Array  # (n, len(numbers)) float64
    texts: dict[str, Texts]


def read_columns(file: TextFile, numbers: Sequence[str], texts: Sequence[str]) -> Found | None:
    """Return columns of a delimited file, or None if the careful reader has to read it.

    Parameters
    ----------
    file : TextFile
        Open, at its first row.
    numbers, texts : names of columns
        What to read as numbers and what as text.
    """
    if not installed("pyarrow") or len(file.names) < 2 or file.dialect.thousands is not None:
        return None
    if not set(numbers).isdisjoint(texts):  # pyarrow reads a column once
        return None
    if COLUMN_BYTES * len(file.names) > memory_budget() // SHARE:
        return None
    import pyarrow as pa
    from pyarrow import csv

    encoding = file.dialect.encoding or found_encoding(file.path)
    line = CELL_BYTES * len(file.names)
    types = {**dict.fromkeys(texts, pa.string()), **dict.fromkeys(numbers, pa.float64())}
    try:
        with open_bytes(file.path) as source:
            found = csv.read_csv(
                source,
                csv.ReadOptions(
                    use_threads=False,
                    block_size=max(BLOCK_BYTES, 4 * line),
                    skip_rows=file.above,
                    column_names=file.names,
                    encoding="utf8" if encoding == "utf-8-sig" else encoding,
                ),
                csv.ParseOptions(delimiter=file.delimiter, newlines_in_values=True),
                csv.ConvertOptions(
                    column_types=types,
                    include_columns=list(types),
                    null_values=[*NULLS, *file.dialect.missing_values],
                    strings_can_be_null=False,
                    decimal_point="," if _has_decimal_commas(file, numbers) else ".",
                ),
            )
    except (pa.ArrowException, ValueError, OSError):  # OSError: a damaged gzip file
        return None
    if not found.num_rows:
        return None
    words = {name: _texts(found.column(name)) for name in texts}
    if any('"' in text for column in words.values() for text in column.texts):
        return None  # a quote after a space, as in 1, "a", is part of the text for pyarrow only
    matrix = _matrix(found.select(list(numbers)))
    del found
    pa.default_memory_pool().release_unused()
    return Found(matrix, words)


def _has_decimal_commas(file: TextFile, numbers: Sequence[str]) -> bool:
    if file.delimiter != ";":
        return False
    wanted = set(numbers)
    places = [c for c, name in enumerate(file.names) if name in wanted]
    return any(has_comma(row[c].strip()) for row in file.sample for c in places)


def _matrix(table: Any) -> Array:
    """Return the columns of a table as one array, batch by batch: each is still in the processor's cache."""
    A = np.empty((table.num_rows, table.num_columns))
    start = 0
    for batch in table.to_batches():
        block = A[start : start + batch.num_rows]
        for c, column in enumerate(batch.columns):
            block[:, c] = column.to_numpy(zero_copy_only=False)
        start += batch.num_rows
    return A


def _texts(column: Any) -> Texts:
    encoded = column.combine_chunks().dictionary_encode()
    return Texts(encoded.indices.to_numpy(), tuple(encoded.dictionary.to_pylist()))
