"""Names: of registered components, for rooms that do not import the registry, and of metricforge itself.

A numeric function that takes a component by name, such as `metricforge.eigen.top`, knows the names of its own room.
It asks here for any other name.  ``metricforge/__init__.py`` connects this module with the registry, which is imported
at the first lookup.  Code that runs inside a dask task receives the component itself, never its name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any, Protocol

from .errors import InputError, UnknownNameError
from .validation import nearest


class Named(Protocol):
    """A registered component: its name, and how to load it."""

    @property
    def name(self) -> str:
        """What users write."""

    @property
    def missing(self) -> tuple[str, ...]:
        """The modules that it needs and that are not installed."""

    def load(self) -> Any:
        """Import and return the component."""


Source = Callable[[str], Iterable[Named]]
"""Returns the registered components of a kind."""


def _nothing(kind: str) -> Iterable[Named]:
    return ()


_source: Source = _nothing


def connect(source: Source) -> None:
    """Set where `find` looks up names."""
    global _source
    _source = source


def check(kind: str, name: Any, own: Iterable[str], argument: str) -> None:
    """Raise unless a component of a kind is registered under a name.

    Parameters
    ----------
    kind : str
        A kind of the registry, for instance "eigensolver".
    name : str
    own : names that the caller resolves itself
        They are valid too, and listed with the registered names where ``name`` is unknown.
    argument : str
        The argument that holds the name, for the error message.
    """
    if not isinstance(name, str):
        raise InputError(f"{argument} must be a name, got {name!r}; {nearest('', own)}")
    if name not in own:
        _entry(kind, name, own, argument)


def find(kind: str, name: str, own: Iterable[str], argument: str) -> Any:
    """Return the component of a kind that is registered under a name; see `check` for the parameters."""
    return _entry(kind, name, own, argument).load()


def fastest(kind: str, own: Iterable[str], limit: float, *problem: Any) -> Named | None:
    """Return the registered component of a kind with the least ``forecast(*problem)`` below a limit; None without one.

    Components take part by an attribute ``forecast``; names that the caller compares itself are left out.
    """
    best = None
    for entry in _source(kind):
        forecast = None if entry.name in own or entry.missing else getattr(entry.load(), "forecast", None)
        if forecast is not None and (expected := forecast(*problem)) < limit:
            best, limit = entry, expected
    return best


def _entry(kind: str, name: str, own: Iterable[str], argument: str) -> Named:
    registered = {entry.name: entry for entry in _source(kind)}
    if name not in registered:
        raise UnknownNameError(f"{argument}={name!r} is unknown; {nearest(name, {*own, *registered})}")
    return registered[name]


def modules() -> frozenset[str]:
    """Return the names of the modules of metricforge, imported or not."""
    from pkgutil import iter_modules

    return frozenset(module.name for module in iter_modules(_package().__path__))


def of_package() -> frozenset[str]:
    """Return every name that belongs to metricforge itself: public names, modules, and what they import."""
    package = _package()
    return modules() | {*package.__all__, *vars(package)}


def _package() -> Any:
    assert __package__ is not None
    return import_module(__package__)


def attributes(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package.

    Parameters
    ----------
    package : str
        Its ``__name__``.
    homes : mapping of str to str
        For each public name the module of the package that defines it.
    """

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f".{homes[name]}", package), name)
        setattr(sys.modules[package], name, value)
        return value

    return load
