"""Checks of files that anyone may have written, made before their content is used."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterable
from pathlib import Path
from tokenize import TokenError
from typing import IO, Any

import numpy as np

from ..errors import InputError
from ..rows import check_memory
from ..validation import check_sparse_indices


def check_regular(path: Path) -> None:
    """Raise if a path, or an entry of a folder, is a pipe, a socket or a device: opening it could wait for ever."""
    for entry in [path, *(path.iterdir() if path.is_dir() else ())]:
        if entry.exists() and not (entry.is_file() or entry.is_dir()):
            raise InputError(f"{str(entry)!r} is a pipe or a device, not a file; copy its content to a file first")


def check_array_size(file: IO[bytes], size: int, *, exact: bool = False) -> None:
    """Raise ValueError unless a file or zip member of ``size`` bytes is a whole ``.npy`` array of no Python objects.

    The header may declare any shape, and NumPy allocates what it declares before it reads.  With ``exact``, nothing may
    follow the array.
    """
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    try:
        shape, _, dtype = read(file)
    except (TokenError, SyntaxError, RecursionError, OverflowError, TypeError, MemoryError) as error:
        raise ValueError(f"its header cannot be read: {error}") from None
    if dtype.hasobject or min(shape, default=0) < 0:
        raise ValueError("it is not an array of numbers or strings")
    needed = math.prod(shape) * max(1, dtype.itemsize)
    if needed > size - file.tell() or (exact and needed < size - file.tell()):
        raise ValueError(f"its header declares {needed} bytes of data, but {size - file.tell()} follow")


def check_archive(path: Path) -> None:
    """Raise unless the arrays of a ``.npz`` file are whole and fit the memory budget.

    Compressed arrays may be a thousand times the size of the file.
    """
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        needed = 2 * sum(member.file_size for member in members)  # as read, and as CSR
        check_memory(needed, f"reading {str(path)!r}", "split the file")
        for member in members:
            with archive.open(member) as file:
                check_array_size(file, member.file_size)


def check_distinct(names: Iterable[str], path: Path) -> None:
    """Raise if two columns of a file have the same name; linear in the number of columns."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise InputError(f"{str(path)!r} has two columns called {name!r}; rename one")
        seen.add(name)


def as_csr(found: Any) -> Any:
    """Return a sparse matrix from a file as CSR, or raise ValueError if its indices are invalid."""
    check_sparse_indices(found)
    if found.ndim != 2 or found.dtype.kind not in "fiub":
        raise ValueError(f"a sparse array of {found.dtype} and shape {found.shape} is not a matrix of numbers")
    return found if found.format == "csr" else found.tocoo().tocsr()
