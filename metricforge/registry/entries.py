"""Registered components: kinds, names and targets.

The registry holds one `Entry` for each component, grouped by the `Plugin` that added it.  A target is a string that is
imported at first use, so that a hook module stays small, or the component itself.
"""

from __future__ import annotations

import importlib
import importlib.util
import keyword
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .. import names
from ..errors import InputError
from ..validation import one_of

KINDS = (
    "constraint",
    "conversion",
    "kernel",
    "solver",
    "method",
    "eigensolver",
    "neighbors",
    "command",
    "namespace",
)
RESERVED = {"method": ("auto",), "eigensolver": ("auto", "dense"), "neighbors": ("auto",)}
"""Names with a meaning of their own, which no component can have."""
_COMMAND = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


@dataclass(frozen=True)
class Entry:
    """One registered component.

    Attributes
    ----------
    kind, name : str
    target : str or object
        ``"package.module:attribute"``, or the component itself.
    plugin : str
        The plugin that registered it.
    requires : tuple of str
        Modules that must be installed.  They are looked up, not imported.
    install : str
        The command that installs them.
    """

    kind: str
    name: str
    target: Any
    plugin: str
    requires: tuple[str, ...] = ()
    install: str = ""

    @property
    def missing(self) -> tuple[str, ...]:
        """The required modules that are not installed."""
        return tuple(name for name in self.requires if not _installed(name))

    def load(self) -> Any:
        """Return the component, imported if need be.

        An exception of the import keeps its type and gains a note that names the plugin.
        """
        if self.missing:
            raise InputError(
                f"{self.kind} {self.name!r} of plugin {self.plugin!r} needs {', '.join(self.missing)}; "
                f"{self.install or 'pip install ' + ' '.join(self.missing)}"
            )
        if not isinstance(self.target, str):
            return self.target
        module, _, attribute = self.target.partition(":")
        try:
            value: Any = importlib.import_module(module)
            for part in filter(None, attribute.split(".")):
                value = getattr(value, part)
        except Exception as error:
            error.add_note(f"while loading {self.kind} {self.name!r} of plugin {self.plugin!r} from {self.target!r}")
            raise
        return value

    def __repr__(self) -> str:
        state = f", needs {', '.join(self.missing)}" if self.missing else ""
        return f"<{self.kind} {self.name!r} from {self.plugin}{state}>"


@dataclass(frozen=True)
class Plugin:
    """A plugin that was found.

    Attributes
    ----------
    name : str
        The name of its entry point, or the name given to `metricforge.register`.
    distribution, version : str
        The installed distribution; empty for a plugin registered by hand.
    entries : tuple of Entry
        What it registered.
    error : str
        Why it was refused; empty for a plugin in use.
    """

    name: str
    distribution: str = ""
    version: str = ""
    entries: tuple[Entry, ...] = field(default=(), repr=False)
    error: str = ""

    @property
    def ok(self) -> bool:
        """Whether the plugin is in use."""
        return not self.error


class Registrar:
    """The argument of the hook ``metricforge_register``: collects the components of one plugin."""

    def __init__(self, plugin: str) -> None:
        self.plugin = plugin
        self.entries: list[Entry] = []

    def add(self, kind: str, name: str, target: Any, *, requires: Iterable[str] = (), install: str = "") -> None:
        """Add a component.

        Parameters
        ----------
        kind : str
            "constraint", "conversion" (named "source->target"), "kernel", "solver", "method", "eigensolver",
            "neighbors", "command" or "namespace".
        name : str
            What users write.
        target : str or object
            ``"package.module:attribute"``, imported at first use; or the component itself.  For a namespace also
            ``"package.module"``.
        requires : names of modules that must be installed
        install : str
            The command that installs them.
        """
        one_of(kind, "kind", KINDS)
        _check_name(kind, name)
        if isinstance(target, str):
            _check_target(kind, name, target)
        requires = (requires,) if isinstance(requires, str) else tuple(requires)
        if not all(isinstance(module, str) and module for module in requires):
            raise InputError(f"requires of {kind} {name!r} must name modules, got {requires!r}")
        self.entries.append(Entry(kind, name, target, self.plugin, requires, install))


def _check_name(kind: str, name: Any) -> None:
    if not name or not isinstance(name, str):
        raise InputError(f"name must be a non-empty string, got {name!r}")
    if name in RESERVED.get(kind, ()):
        raise InputError(f"{kind} {name!r}: the name is reserved; choose another")
    if kind == "command" and not _COMMAND.fullmatch(name):
        raise InputError(f"command {name!r}: write lower-case letters, digits and single hyphens, as in 'my-command'")
    if kind == "namespace":
        if not name.isidentifier() or name.startswith("_") or keyword.iskeyword(name):
            raise InputError(f"namespace {name!r}: mf.<namespace> must be a public Python name, as in 'mine'")
        if name in names.of_package():
            raise InputError(f"namespace {name!r} would hide metricforge.{name}; choose another name")


def _check_target(kind: str, name: str, target: str) -> None:
    module, colon, attribute = target.partition(":")
    whole = bool(module) and not colon if kind == "namespace" else False
    if not whole and not (module and attribute):
        raise InputError(f"target of {kind} {name!r} must be 'package.module:attribute', got {target!r}")


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # the parent package is missing, or this is not a valid module name
        return False
