"""Where delimited text comes from: a file, a gzip file, or standard input; and how it is written there."""

from __future__ import annotations

import gzip
import io
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, cast

from ..errors import InputError

STANDARD_INPUT = "-"
"""The name of standard input, which is read as ``.csv``."""
COMPRESSED = ".gz"
DEFLATE = 1032
"""How many times the size of a gzip file its text can have."""
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


def size_of(path: Path) -> int:
    """Return the size of the text of a file in bytes; of a compressed file the largest that it can have."""
    if str(path) == STANDARD_INPUT:
        return len(standard_input())
    size = path.stat().st_size
    return DEFLATE * size if path.suffix.lower() == COMPRESSED else size


def count_lines(path: Path) -> int:
    """Return the number of line ends in a file, whichever kind it has."""
    ends = {b"\n": 0, b"\r": 0}
    with open_bytes(path) as file:
        while block := file.read(2**20):
            for end in ends:
                ends[end] += block.count(end)
    return max(ends.values())
