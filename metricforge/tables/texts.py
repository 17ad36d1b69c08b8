"""A column of text: every distinct text once, and which one each row has."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .cells import as_values

Array = NDArray[Any]

TEXT_BYTES = 150
"""Memory of a short text with its entry in a dictionary, in bytes."""


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
        growing = GrowingTexts()
        growing.add(cells)
        return growing.texts()

    def values(self) -> Array:
        """Return the column as `metricforge.tables.cells.as_values` does: integers, floats or strings."""
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


class GrowingTexts:
    """A column of text that is read block by block; a text that occurs often is kept once."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._codes: list[Array] = []
        self.nbytes = 0

    def add(self, cells: Sequence[str]) -> None:
        """Append the cells of a block."""
        numbers, before = self._numbers, len(self._numbers)
        self._codes.append(np.array([numbers.setdefault(cell, len(numbers)) for cell in cells], dtype=np.int64))
        new = islice(reversed(numbers), len(numbers) - before)
        self.nbytes += 8 * len(cells) + sum(TEXT_BYTES + len(text) for text in new)

    def texts(self) -> Texts:
        """Return the whole column."""
        codes = np.concatenate(self._codes) if self._codes else np.empty(0, dtype=np.int64)
        return Texts(codes, tuple(self._numbers))
