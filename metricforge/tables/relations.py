"""Constraints from files: one line per relation, or one value per row."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from numpy.typing import NDArray

from ..constraints import Constraint
from ..errors import InputError
from .formats import all_columns, existing
from .table import quoted

Array = NDArray[Any]
C = TypeVar("C", bound=Constraint)


def read_relations(path: str | os.PathLike[str], kind: type[C], n: int) -> C:
    """Read a file with one relation per line over ``n`` rows of data, counted from 0.

    The kind names its columns: ``table_columns`` and ``optional_columns``.  A file without column names is read by
    position.
    """
    path = existing(path)
    columns = _named(all_columns(path), kind.table_columns, kind.optional_columns, path)
    with _naming(path):
        return kind.from_table(columns, n)


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


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Name the file in errors that a constraint raises about its content."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{quoted(path)}: {error}") from None
