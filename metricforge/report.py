"""Report: what a fit recorded, and the page that shows it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import UnknownNameError

if TYPE_CHECKING:
    from .metric import Metric


class Report(Mapping[str, Any]):
    """The record of a fit, by name: ``report.gap`` or ``report["gap"]``.

    The core's own fields come first (method, status, objective, gap, n, ...).  What the method reports about its result
    is in the mapping ``report.outcome``; ``report.NAME`` also finds those values, unless the core has a field of that
    name.

    Parameters
    ----------
    values : mapping
        The fields of the core.
    outcome : mapping
        The values of the method.
    """

    def __init__(self, values: Mapping[str, Any], outcome: Mapping[str, Any] | None = None) -> None:
        self.__dict__["_core"] = MappingProxyType(dict(values))
        self.__dict__["outcome"] = MappingProxyType(dict(outcome or {}))

    _core: Mapping[str, Any]
    outcome: Mapping[str, Any]
    """The values of the method, which its page lists under Outcome."""

    def __getitem__(self, name: str) -> Any:
        for values in (self._core, self.outcome):
            if name in values:
                return values[name]
        raise UnknownNameError(f"the report has no {name!r}; it has {', '.join(self)}")

    def get(self, name: str, default: Any = None) -> Any:
        """Return a value, or ``default`` where the report has none of this name."""
        core = self._core
        return core[name] if name in core else self.outcome.get(name, default)

    def __iter__(self) -> Iterator[str]:
        yield from self._core
        yield from (name for name in self.outcome if name not in self._core)

    def __len__(self) -> int:
        return len(self._core.keys() | self.outcome.keys())

    def __getattr__(self, name: str) -> Any:
        if name in self.__dict__.get("_core", ()) or name in self.__dict__.get("outcome", ()):
            return self[name]
        known = ", ".join(self) if "outcome" in self.__dict__ else "nothing yet"
        raise AttributeError(f"the report has no {name!r}; it has {known}")

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("a report is read-only")

    def __reduce__(self) -> Any:
        return Report, (dict(self._core), dict(self.outcome))  # a mappingproxy cannot be pickled

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self]

    def __repr__(self) -> str:
        hidden = {f"outcome.{name}": value for name, value in self.outcome.items() if name in self._core}
        lines = {**self, **hidden}
        width = max((len(name) for name in lines), default=0)
        return "\n".join(f"{name:<{width}}  {short(value)}" for name, value in lines.items())


def short(value: Any) -> str:
    """Return a value of a report on one line."""
    if isinstance(value, np.ndarray):
        return f"array {value.shape} {value.dtype}"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, tuple | list) and len(value) > 6:
        return f"{len(value)} entries, last {value[-1]}"
    return str(value)


def html(metric: Metric, constraints: Any, **options: Any) -> str:
    """Return the page as text; see `metricforge.reports.page.html`."""
    from .reports import page

    return page.html(metric, constraints, **options)


def write(path: str | os.PathLike[str], metric: Metric, constraints: Any, **options: Any) -> None:
    """Write the page; see `metricforge.reports.page.html` for the options."""
    from .reports import page

    page.write(path, metric, constraints, **options)
