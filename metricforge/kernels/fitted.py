"""Kernels that a fit has made."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Self

from .. import rows as _rows
from ..errors import InputError
from ..rows import ComparedByContent
from .interface import Kernel


class FittedKernel(ComparedByContent, Kernel):
    """A kernel that a fit has made on top of another one.

    It takes the rows that its start takes, refuses rows of another width, and has no parameters left to resolve.
    Subclasses are frozen dataclasses (``eq=False``); they hold arrays, so messages do not offer them as text.
    """

    offered: ClassVar[bool] = False

    @property
    @abstractmethod
    def start(self) -> Kernel:
        """The resolved kernel that the fit started from."""

    @property
    @abstractmethod
    def learned_width(self) -> int | None:
        """The number of columns of the rows of the fit; None where rows have none, or where it is not known."""

    @property
    def takes(self) -> str:
        """What the start takes."""
        return self.start.takes

    def validate(self, X: Any, name: str) -> None:
        """Validate X against the start, and compare its width with that of the rows of the fit."""
        d, found = self.learned_width, _rows.width(X)
        if d is not None and found is not None and found != d:
            raise InputError(f"{name} has {found} features, but the metric was learned on {d}")
        self.start.validate(X, name)

    def resolve(self, X: Any, *, seed: int = 0) -> Self:
        """Return itself: the fit has resolved it."""
        return self


class OverRows(FittedKernel):
    """A fitted kernel that keeps its base kernel and the rows of the fit, in fields ``base`` and ``rows``."""

    base: Kernel
    rows: Any

    @property
    def start(self) -> Kernel:
        """The base kernel."""
        return self.base

    @property
    def learned_width(self) -> int | None:
        """The number of columns of the rows."""
        return _rows.width(self.rows)

    @property
    def widest(self) -> int:
        """The number of rows of the fit, which a block compares every row with."""
        return max(self.base.widest, _rows.count(self.rows))
