"""Targets: a real value per row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..rows import draw
from ..validation import first_rows, generator, plural
from .drawing import MOST_TRIPLETS, PER_ROW
from .indices import as_column, deal, freeze, is_missing, row_values
from .interface import Constraint
from .scoring import Distances, Satisfied

Array = NDArray[Any]

ROUNDS = 20
"""How often triplets are drawn again in place of ties, which are frequent where few values are distinct."""


@dataclass(frozen=True, eq=False, repr=False)
class Targets(Constraint):
    """A real value per row: rows are the more similar, the nearer their values.

    A triplet of rows i, j, k with ``|y_i − y_j| < |y_i − y_k|`` is satisfied when i is nearer to j than to k.  The
    score is the share satisfied of ten random triplets per row.

    Parameters
    ----------
    y : array of n numbers
        NaN and None mean "unknown".
    """

    flag: ClassVar[str | None] = "target"
    flag_help: ClassVar[str] = "the column with a number per row, or a file of one column"
    table_columns: ClassVar[tuple[str, ...]] = ("target",)
    per_row: ClassVar[bool] = True

    y: Any
    dropped: int = 0

    def __post_init__(self) -> None:
        y = as_column(self.y, "y")
        if y.dtype.kind == "c":
            raise InputError("y holds complex numbers; give real ones")
        missing = is_missing(y)
        values = np.full(len(y), np.nan)
        try:
            values[~missing] = y[~missing].astype(np.float64)
        except (TypeError, ValueError):
            bad = next(p for p in np.flatnonzero(~missing) if not _is_number(y[p]))
            raise InputError(f"y holds {y[bad]!r} in row {bad}, which is no number; classes are mf.Labels(y)") from None
        infinite = np.flatnonzero(np.isinf(values))
        if len(infinite):
            raise InputError(f"y is infinite in {len(infinite)} row(s), first {first_rows(infinite)}; use NaN there")
        freeze(self, y=values)

    @property
    def n(self) -> int:  # type: ignore[override]
        """The number of rows."""
        return len(self.y)

    @property
    def known(self) -> Array:
        """The numbers of the rows whose value is known."""
        return np.flatnonzero(~np.isnan(self.y))

    @property
    def size(self) -> int:
        """The number of rows whose value is known."""
        return int(np.count_nonzero(~np.isnan(self.y)))

    def _select(self, rows: Array, position: Array) -> Targets:
        # a value involves one row only: the rows that stay lose nothing, so nothing counts as dropped
        return Targets(self.y[rows], dropped=self.dropped)

    @classmethod
    def of_values(cls, y: Any) -> Targets:
        """Return ``Targets(y)``."""
        return Targets(y)

    @classmethod
    def from_table(cls, columns: Mapping[str, Array], n: int) -> Targets:
        """Build from the column ``target``."""
        return Targets(row_values(columns, "target", n))

    def describe(self) -> str:
        """Return the number of values and their range."""
        known = self.y[self.known]
        extent = f" from {known.min():.4g} to {known.max():.4g}" if len(known) else ""
        return f"{plural(self.size, 'value')}{extent}"

    def triples(self, seed: int = 0) -> Array:
        """Draw (i, j, k) with ``|y_i − y_j| < |y_i − y_k|``: ten per known value and no more than 20,000.

        There are fewer where values tie often, and none where all are equal.
        """
        known = self.known
        return self._drawn(known, known, min(PER_ROW * len(known), MOST_TRIPLETS), seed)

    def _drawn(self, asked: Array, others: Array, size: int, seed: int) -> Array:
        """Draw triplets whose i is one of ``asked`` and whose j and k are among ``others``."""
        rng = generator(seed)
        found = np.empty((0, 3), dtype=np.int64)
        if not len(asked) or len(others) < 2:
            return found
        y = self.y / 2  # differences of halves do not overflow
        grain = 1e-12 * float(np.abs(y[others]).max())  # rounding must not order equal differences
        for _ in range(ROUNDS):
            i = rng.choice(asked, size=size)
            j, k = rng.choice(others, size=(2, size))
            near, far = np.abs(y[i] - y[j]), np.abs(y[i] - y[k])
            swap = near > far
            j, k = np.where(swap, k, j), np.where(swap, j, k)
            keep = (i != j) & (i != k) & (np.abs(far - near) > grain)
            found = np.concatenate([found, np.column_stack([i, j, k])[keep]])
            if len(found) >= size:
                break
        return found[:size]

    def satisfied(self, distances: Distances) -> tuple[Satisfied, ...]:
        """Count random triplets with i nearer to j than to k, where the value of j is nearer to that of i."""
        return self._counted(self.triples(distances.seed), distances)

    def _counted(self, T: Array, distances: Distances) -> tuple[Satisfied, ...]:
        if not len(T):
            return ()
        near, far = np.split(distances.pairs(np.concatenate([T[:, :2], T[:, ::2]])), 2)
        return (Satisfied("triplets ordered by distance as by value", int((near < far).sum()), len(T)),)

    def remarks(self, distances: Distances) -> tuple[str, ...]:
        """Report that all known values are equal."""
        known = self.y[self.known]
        return ("all values of y are equal, so none is nearer than another",) if len(set(known)) == 1 else ()

    def some_rows(self, most: int, *, seed: int = 0) -> Array:
        """Return at most ``most`` rows with a value, drawn at random."""
        return np.asarray(self.known[draw(len(self.known), most, seed)])

    def folds(self, k: int = 3, seed: int = 0) -> Iterator[tuple[Array, Constraint]]:
        """Split the rows with a value, small and large values evenly; a held-out row is compared with training rows."""
        known = self.known
        group = np.argsort(np.argsort(self.y[known], kind="stable"), kind="stable") // max(1, k)
        return self._row_folds(deal(known, k, seed, by=group))

    def _touching(self, rows: Array) -> Constraint:
        return HeldOutTargets(self.y, dropped=self.dropped, held_out=rows)


@dataclass(frozen=True, eq=False, repr=False)
class HeldOutTargets(Targets):
    """Targets of which some are held out: their rows are compared with the other known rows only.

    Parameters
    ----------
    held_out : (n,) bool array
    """

    flag: ClassVar[str | None] = None

    held_out: Any = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        freeze(self, held_out=np.array(self.held_out, dtype=bool))

    @property
    def size(self) -> int:
        """The number of known values that are held out."""
        return int(np.count_nonzero(~np.isnan(self.y) & self.held_out))

    def _select(self, rows: Array, position: Array) -> HeldOutTargets:
        return HeldOutTargets(self.y[rows], dropped=self.dropped, held_out=self.held_out[rows])

    def triples(self, seed: int = 0) -> Array:
        """Draw triplets whose i is held out and whose j and k are not."""
        known = ~np.isnan(self.y)
        asked, others = np.flatnonzero(known & self.held_out), np.flatnonzero(known & ~self.held_out)
        return self._drawn(asked, others, min(PER_ROW * len(asked), MOST_TRIPLETS), seed)


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True
