"""A column of text: every distinct text once, and which one each row has."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .cells import as_values

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Texts:
    """A column of text.

    Attributes
    ----------
    codes : (n,) int array
        The number of each row's text.
    texts : tuple of str
        The distinct texts as they are written in the file.
    """

    codes: Array
    texts: tuple[str, ...]

    @classmethod
    def of(cls, cells: Sequence[str]) -> Texts:
        """Build from the cells of a column."""
        numbers: dict[str, int] = {}
        codes = [numbers.setdefault(cell, len(numbers)) for cell in cells]
        return cls(np.array(codes, dtype=np.int64), tuple(numbers))

    def values(self) -> Array:
        """Return the column as `metricforge.files.cells.as_values` does: integers, floats or strings."""
        return as_values(self.texts)[self.codes]

    def without(self, marks: Collection[str]) -> Texts:
        """Return the column with empty cells in the place of these texts."""
        return Texts(self.codes, tuple("" if text.strip() in marks else text for text in self.texts))

    def counts(self) -> Array:
        """Return how many rows have each text."""
        return np.bincount(self.codes, minlength=len(self.texts))

    def first_row(self, code: int) -> int:
        """Return the first row that has a text."""
        return int(np.argmax(self.codes == code))
