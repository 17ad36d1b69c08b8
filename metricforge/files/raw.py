"""The columns of a table as they are in the file: numbers, dates or texts, nothing encoded and nothing filled in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from .cells import check_cell
from .table import Selection, quoted

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class RawTable:
    """The columns of a table.

    Attributes
    ----------
    path : Path
    selection : Selection
        The columns that were asked for.
    n : int
        The number of rows.
    columns : dict of str to (n,) float array with NaN for missing cells, (n,) datetime64 array, or Texts
    extra : dict of str to (n,) array
        As in `Table`.
    named : bool
        Whether the file itself names its columns.
    matrix : (n, k) array or None
        All columns in order as one array, where they are numbers.
    locate : callable
        ``locate(row, column)`` returns where a cell is ("line 12") and what is written there.
    """

    path: Path
    selection: Selection
    n: int
    columns: dict[str, Any]
    extra: dict[str, Array]
    named: bool
    locate: Callable[[int, str], tuple[str, str]]
    matrix: Array | None = None

    @cached_property
    def is_finite(self) -> bool:
        """Whether all columns are numbers, and none is missing or infinite."""
        return self.matrix is not None and bool(np.isfinite(self.matrix).all())

    @property
    def shown(self) -> str:
        """The file as it is written in messages."""
        return quoted(self.path)

    def refuse(self, row: int, name: str) -> NoReturn:
        """Raise the error message for a cell that is not a number."""
        where, cell = self.locate(row, name)
        check_cell(cell, name, where, self.path, self.selection)
        raise InputError(f"{self.shown}, {where}: column {name!r} holds {cell.strip()!r}, which is not a number")
