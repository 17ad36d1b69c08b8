"""The table that a metric was learned from: what was done to its columns, and what its rows are called."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..constraints import Labels
from ..errors import InputError
from .preparation import Preparation

Array = NDArray[Any]


def _nothing() -> Array:
    return np.empty(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Origin:
    """The table that a metric was learned from.

    Parameters
    ----------
    preparation : Preparation or None
        How its columns became numbers; None if they were numbers.
    label : str
        The name of the column of labels; "" if there is none.
    codes : (n,) int array
        The number of each training row's class, -1 for none; empty if there are no labels.
    classes : array
        The classes.
    id : str
        The name of the column of identifiers; "" if there is none.
    ids : (n,) array of str
        The identifiers of the training rows; empty if there are none.
    numbers : (n,) int array
        The row of the file that each training row was; empty if they are all rows in order.
    """

    preparation: Preparation | None = None
    label: str = ""
    codes: Array = field(default_factory=_nothing)
    classes: Array = field(default_factory=_nothing)
    id: str = ""
    ids: Array = field(default_factory=_nothing)
    numbers: Array = field(default_factory=_nothing)

    def __post_init__(self) -> None:
        for name in ("codes", "classes", "ids", "numbers"):
            if np.ndim(getattr(self, name)) != 1:
                raise InputError(f"{name} of the table must be a list")
        for name in ("codes", "numbers"):
            if getattr(self, name).dtype.kind not in "iu":
                raise InputError(f"{name} of the table must be whole numbers")
        if len(self.codes) and not -1 <= self.codes.min() <= self.codes.max() < len(self.classes):
            raise InputError("a label of the table is of no class")

    @classmethod
    def of(
        cls, preparation: Preparation | None, *, kept: Array | None, label: Any = None, identifiers: Any = None
    ) -> Origin:
        """Build from columns.

        Parameters
        ----------
        preparation : Preparation or None
        kept : row numbers, or None for all
        label, identifiers : (name of the column, values), or None
        """
        found = cls(preparation, numbers=_nothing() if kept is None else kept)
        if label is not None:
            labels = Labels(label[1])
            classes = np.asarray(labels.classes)
            if classes.dtype == object:  # numbers too large for NumPy, for instance
                classes = np.array([str(value) for value in classes.tolist()])
            found = replace(found, label=label[0], codes=labels.codes, classes=classes)
        if identifiers is not None:
            texts = np.empty(len(identifiers[1]), dtype=object)
            texts[:] = ["" if value is None else str(value) for value in np.asarray(identifiers[1]).tolist()]
            found = replace(found, id=identifiers[0], ids=texts)
        return found

    def check(self, n: int) -> None:
        """Raise unless everything that is said about rows is said about n rows."""
        for name in ("codes", "ids", "numbers"):
            if len(getattr(self, name)) not in (0, n):
                raise InputError(f"{name} of the table is about {len(getattr(self, name))} rows, not {n}")

    def without_rows(self) -> Origin:
        """Return what stays true when the training rows change: the preparation."""
        return Origin(self.preparation)

    def labels_of(self, rows: Array) -> Array | None:
        """Return the labels of training rows, None for a row without one; None if there are no labels."""
        if not len(self.codes):
            return None
        codes = self.codes[rows]
        names = np.array([*self.classes.tolist(), None], dtype=object)  # -1 is the last
        return np.asarray(names[codes])

    def ids_of(self, rows: Array) -> Array | None:
        """Return the identifiers of training rows; None if there are none."""
        return self.ids[rows] if len(self.ids) else None

    def numbers_of(self, rows: Array) -> Array:
        """Return the numbers that training rows have in their file."""
        return self.numbers[rows] if len(self.numbers) else rows
