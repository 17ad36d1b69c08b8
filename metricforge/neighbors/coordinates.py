"""Where rows are among cells: dense coordinates of dense, CSR and packed binary rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..rows import is_sparse
from .binary import packed_rows, unpacked
from .choice import PLAIN
from .contract import Array

SKETCHED = 256
"""Coordinates of sparse and binary rows of more than `choice.PLAIN` columns."""


@dataclass(frozen=True, eq=False)
class Coordinates:
    """The coordinates of rows, on which their cells are learned and found; distances are those of the rows.

    Wide sparse or binary rows are sketched: column j is added to or subtracted from one of SKETCHED coordinates, which
    preserves squared distances on average.  Neighbours are found exactly in the cells searched, and the recall is
    estimated with true distances, so a poor sketch costs time, not recall.

    Attributes
    ----------
    width : int
        The number of columns of a row.
    binary : bool
        Whether rows are kept as packed bits: (n, words) uint64.
    sketch : (width, SKETCHED) csr_array or None
    """

    width: int
    binary: bool
    sketch: Any = None

    def rows(self, X: Any) -> Any:
        """Return rows as they are kept in cells."""
        return packed_rows(X) if self.binary else X

    def __call__(self, rows: Any) -> Array:
        """Return the dense coordinates of kept rows."""
        if self.binary:
            rows = unpacked(rows, self.width)
        if self.sketch is not None:
            found = rows @ self.sketch
            return np.asarray(found.toarray() if is_sparse(found) else found)
        return np.asarray(rows.toarray() if is_sparse(rows) else rows)

    @property
    def row_bytes(self) -> int:
        """Bytes of the coordinates of a row, while its cell is found."""
        return 8 * (self.width if self.sketch is None else SKETCHED)


def coordinates(width: int, *, sparse: bool, binary: bool, seed: int) -> Coordinates:
    """Return the coordinates of rows of so many columns; the sketch depends on the seed."""
    if not (sparse or binary) or width <= PLAIN:
        return Coordinates(width, binary)
    from scipy.sparse import csr_array

    rng = np.random.default_rng(seed)
    place, sign = rng.integers(SKETCHED, size=width), rng.choice([-1.0, 1.0], size=width)
    sketch = csr_array((sign, place, np.arange(width + 1)), shape=(width, SKETCHED))
    return Coordinates(width, binary, sketch)


def stacked(parts: list[Any]) -> Any:
    """Return the rows of all parts, all dense or all CSR."""
    if is_sparse(parts[0]):
        from scipy import sparse

        return sparse.vstack(parts, format="csr")
    return np.concatenate(parts)
