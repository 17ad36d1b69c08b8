"""The registry of components: hooks, entries, plugins, conversions, the core's own entries and progress.

Names are imported when first used.  A plugin's module needs the hook marker only and so does not load the registry on a
dask worker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..names import attributes

if TYPE_CHECKING:
    from .components import Registry, convert, methods, plugins, register, registry
    from .entries import KINDS, Entry, Plugin, Registrar
    from .hooks import hookimpl
    from .progress import Event

_HOME = {
    "KINDS": "entries",
    "Entry": "entries",
    "Event": "progress",
    "Plugin": "entries",
    "Registrar": "entries",
    "Registry": "components",
    "convert": "components",
    "hookimpl": "hooks",
    "methods": "components",
    "plugins": "components",
    "register": "components",
    "registry": "components",
}

__all__ = [
    "KINDS",
    "Entry",
    "Event",
    "Plugin",
    "Registrar",
    "Registry",
    "convert",
    "hookimpl",
    "methods",
    "plugins",
    "register",
    "registry",
]

__getattr__ = attributes(__name__, _HOME)
