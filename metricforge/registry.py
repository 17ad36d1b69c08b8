"""The registry: who offers which component, under which name.

Plugins are found through the entry-point group ``metricforge`` and loaded one by one, each under its own guard: one
that fails is refused whole and listed with its error, the others are unharmed.  Targets are strings, imported on first
use.  Numeric files never see this one: `metricforge.learning` resolves names and passes objects on.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import logging
import sys
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar

import pluggy

from . import hookspecs
from .errors import InputError, PluginError, UnknownNameError, nearest

if TYPE_CHECKING:
    from .constraints import Constraint
    from .progress import Event

C = TypeVar("C", bound="Constraint")
log = logging.getLogger(__name__)

GROUP = "metricforge"
KINDS = ("constraint", "conversion", "kernel", "solver", "method", "eigensolver", "neighbors")
HOOKS = ("metricforge_register", "metricforge_step")


@dataclass(frozen=True)
class Entry:
    """One registered component.

    Attributes
    ----------
    kind, name : str
    target : str or object
        ``"package.module:attribute"``, or the object itself.
    plugin : str
        Who registered it.
    requires : tuple of str
        Modules that must be importable; looked up, not imported.
    install : str
        What a user types when one is missing.
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
        """Import the target; errors keep their type and gain a note that names the plugin."""
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
            for part in attribute.split("."):
                value = getattr(value, part)
        except Exception as error:
            error.add_note(f"while loading {self.kind} {self.name!r} of plugin {self.plugin!r} from {self.target!r}")
            raise
        return value

    def __repr__(self) -> str:
        state = f", needs {', '.join(self.missing)}" if self.missing else ""
        return f"<{self.kind} {self.name!r} from {self.plugin}{state}>"


class Registrar:
    """Handed to ``metricforge_register``: collects what one plugin adds."""

    def __init__(self, plugin: str) -> None:
        self.plugin = plugin
        self.entries: list[Entry] = []

    def add(self, kind: str, name: str, target: Any, *, requires: Iterable[str] = (), install: str = "") -> None:
        """Add a component.

        Parameters
        ----------
        kind : str
            "constraint", "conversion" (named "source->target"), "kernel", "solver", "method", "eigensolver" or
            "neighbors".
        name : str
            What users write.
        target : str or object
            ``"package.module:Class"``, imported on first use; or the object itself.
        requires : names of modules that must be installed
        install : str
            The command that installs them.
        """
        if kind not in KINDS:
            raise UnknownNameError(f"kind {kind!r} is unknown; {nearest(kind, KINDS)}")
        if not name or not isinstance(name, str):
            raise InputError(f"name must be a non-empty string, got {name!r}")
        if isinstance(target, str) and not all(target.partition(":")):
            raise InputError(f"target of {kind} {name!r} must read 'package.module:Class', got {target!r}")
        requires = (requires,) if isinstance(requires, str) else tuple(requires)
        if not all(isinstance(module, str) and module for module in requires):
            raise InputError(f"requires of {kind} {name!r} must name modules, got {requires!r}")
        self.entries.append(Entry(kind, name, target, self.plugin, requires, install))


@dataclass(frozen=True)
class Plugin:
    """A plugin that was found: what it offers, or why it was refused."""

    name: str
    distribution: str = ""
    version: str = ""
    entries: tuple[Entry, ...] = field(default=(), repr=False)
    error: str = ""

    @property
    def ok(self) -> bool:
        """Whether the plugin is in use."""
        return not self.error


class Registry:
    """All components of all plugins."""

    def __init__(self, *, discover: bool = True) -> None:
        self._lock = RLock()
        self._discovered = not discover
        self._discovering = False
        self._manager = pluggy.PluginManager(GROUP)
        self._manager.add_hookspecs(hookspecs)
        self._entries: dict[tuple[str, str], Entry] = {}
        self._plugins: dict[str, Plugin] = {}
        self._refused: dict[tuple[str, str], Plugin] = {}
        self._silenced: set[str] = set()

    # -- loading -------------------------------------------------------------------------------------------------

    def _discover(self) -> None:
        with self._lock:
            if self._discovered or self._discovering:
                return
            self._discovering = True
            try:
                self._load_all()
                self._discovered = True
            finally:
                self._discovering = False

    def _load_all(self) -> None:
        found = {(e.name, e.value): e for e in importlib.metadata.entry_points(group=GROUP)}
        # what ships with metricforge first, so that nobody else can take its names
        for point in sorted(found.values(), key=lambda e: (_distribution(e)[0] != "metricforge", e.name, e.value)):
            if point.name not in self._plugins or _distribution(point)[0] != self._plugins[point.name].distribution:
                self._load(point)

    def _load(self, point: importlib.metadata.EntryPoint) -> None:
        name, version = _distribution(point)
        try:
            # a plugin that calls sys.exit on import must not end the program
            module = point.load()
        except (Exception, SystemExit) as error:
            log.warning(
                "%s", self._refuse(point.name, f"import of {point.value!r} failed: {_say(error)}", name, version)
            )
            return
        try:
            self.register(module, name=point.name, distribution=name, version=version)
        except PluginError as error:
            log.warning("%s", error)

    def register(self, plugin: Any, *, name: str, distribution: str = "", version: str = "") -> Plugin:
        """Take a plugin in, whole or not at all.

        Raises
        ------
        PluginError
            When it is refused; `plugins` then lists it with its error.
        """
        with self._lock:
            holder = self._plugins.get(name)
            try:
                if holder is not None:
                    raise _RefusedError(f"its name is taken{_by(holder)}; choose another for the entry point")
                entries = self._admit(plugin, name)
            except _RefusedError as refused:
                told = self._refuse(name, str(refused), distribution, version)
                raise PluginError(told) from refused.__cause__
            for entry in entries:
                self._entries[entry.kind, entry.name] = entry
            self._plugins[name] = Plugin(name, distribution, version, tuple(entries))
            self._refused.pop((name, distribution), None)
            return self._plugins[name]

    def _admit(self, plugin: Any, name: str) -> list[Entry]:
        manager = self._manager
        try:
            hash(plugin)
        except TypeError as error:
            raise _RefusedError(
                f"it is a {type(plugin).__name__}, which cannot be hashed; freeze the dataclass"
            ) from error
        taken_in = False
        try:
            manager.register(plugin, name=name)
            self._check_hooks(plugin)
            registrar = Registrar(name)
            others = [p for p in manager.get_plugins() if p is not plugin]
            try:
                manager.subset_hook_caller("metricforge_register", remove_plugins=others)(registrar=registrar)
            except (Exception, SystemExit) as error:
                raise _RefusedError(f"its hook metricforge_register raised {_say(error)}") from error
            self._check_names(registrar.entries)
            taken_in = True
        except pluggy.PluginValidationError as error:
            raise _RefusedError(f"its hook has a wrong signature: {error}") from error
        except _RefusedError:
            raise
        except Exception as error:
            raise _RefusedError(f"looking at it raised {_say(error)}") from error
        finally:
            # after a failed signature check pluggy keeps the name
            if not taken_in and manager.get_plugin(name) is plugin:
                manager.unregister(name=name)
        return registrar.entries

    def _check_hooks(self, plugin: Any) -> None:
        callers = self._manager.get_hookcallers(plugin) or []
        unknown = [c.name for c in callers if not c.has_spec()]
        if unknown:
            raise _RefusedError(f"it implements an unknown hook {unknown[0]!r}; {nearest(unknown[0], HOOKS)}")
        if callers:
            return
        unmarked = [a for a in dir(plugin) if a.startswith("metricforge_") and callable(getattr(plugin, a, None))]
        if unmarked:
            raise _RefusedError(f"its function {unmarked[0]!r} lacks the decorator @mf.hookimpl")
        raise _RefusedError(f"it implements no hook; define one of {', '.join(HOOKS)} and mark it with @mf.hookimpl")

    def _check_names(self, entries: list[Entry]) -> None:
        taken = dict(self._entries)
        for entry in entries:
            other = taken.setdefault((entry.kind, entry.name), entry)
            if other is not entry:
                raise _RefusedError(
                    f"{entry.kind} {entry.name!r} of plugin {entry.plugin!r} is taken by plugin {other.plugin!r}; "
                    "rename it"
                )

    def _refuse(self, name: str, reason: str, distribution: str, version: str) -> str:
        text = f"plugin {name!r} was refused: {reason}"
        self._refused[name, distribution] = Plugin(name, distribution, version, error=text)
        return text

    # -- looking up ----------------------------------------------------------------------------------------------

    def plugins(self) -> list[Plugin]:
        """Return every plugin that was found, the refused ones with their error."""
        self._discover()
        return [*self._plugins.values(), *self._refused.values()]

    def entries(self, kind: str) -> list[Entry]:
        """Return the components of one kind, by name."""
        self._discover()
        return sorted((e for e in self._entries.values() if e.kind == kind), key=lambda e: e.name)

    def entry(self, kind: str, name: str) -> Entry:
        """Return one component, or raise with the nearest known name."""
        self._discover()
        found = self._entries.get((kind, name))
        if found is None:
            known = [e.name for e in self.entries(kind)]
            broken = [p.name for p in self._refused.values()]
            hint = f" (plugins that failed to load: {', '.join(broken)}; see mf.plugins())" if broken else ""
            raise UnknownNameError(f"{kind}={name!r} is unknown; {nearest(name, known)}{hint}")
        return found

    def get(self, kind: str, name: str) -> Any:
        """Return the object registered under a name."""
        return self.entry(kind, name).load()

    def entry_of(self, kind: str, cls: type) -> Entry | None:
        """Return the entry whose target is this class, without importing any target."""
        self._discover()
        path = f"{cls.__module__}:{cls.__qualname__}"
        return next((e for e in self.entries(kind) if e.target in (path, cls) or _is_alias(e, cls)), None)

    def plugin(self, name: str) -> Plugin:
        """Return a plugin by name."""
        self._discover()
        return self._plugins[name]

    # -- conversions ---------------------------------------------------------------------------------------------

    def convert(
        self, constraint: Constraint, kinds: tuple[type[Any], ...], *, seed: int
    ) -> tuple[Any, tuple[str, ...]]:
        """Walk the shortest chain of conversions to one of ``kinds``; return the result and what was done, in words."""
        if isinstance(constraint, kinds):
            return constraint, ()
        source = self.entry_of("constraint", type(constraint))
        goals = {e.name for k in kinds if (e := self.entry_of("constraint", k)) is not None}
        path = self._path(source.name, goals) if source else None
        if path is None:
            wanted = " or ".join(k.__name__ for k in kinds)
            raise InputError(
                f"constraints: no conversion leads from {type(constraint).__name__} to {wanted}; "
                f"give {wanted}, or choose a method that accepts {type(constraint).__name__}"
            )
        said = []
        for edge in path:
            before = constraint
            constraint = edge.load()(before, seed=seed)
            lost = constraint.dropped - before.dropped
            said.append(
                f"{type(before).__name__} ({before.size}) → {type(constraint).__name__} ({constraint.size})"
                + (f", {lost} dropped" if lost else "")
            )
        return constraint, tuple(said)

    def _path(self, source: str, goals: set[str]) -> list[Entry] | None:
        edges = self.entries("conversion")
        paths: deque[tuple[str, list[Entry]]] = deque([(source, [])])
        seen = {source}
        while paths:
            here, path = paths.popleft()
            for edge in edges:
                start, _, end = edge.name.partition("->")
                if start != here or end in seen:
                    continue
                if end in goals:
                    return [*path, edge]
                seen.add(end)
                paths.append((end, [*path, edge]))
        return None

    # -- progress ------------------------------------------------------------------------------------------------

    def step(self, event: Event) -> None:
        """Tell every plugin that listens; one that raises is logged once and not called again."""
        self._discover()
        for impl in self._manager.hook.metricforge_step.get_hookimpls():
            if impl.plugin_name in self._silenced:
                continue
            try:
                impl.function(*[event for _ in impl.argnames])
            except Exception:
                self._silenced.add(impl.plugin_name)
                log.exception("plugin %r failed in metricforge_step and will not be called again", impl.plugin_name)


class _RefusedError(Exception):
    """Why a plugin is not taken in."""


def _distribution(point: importlib.metadata.EntryPoint) -> tuple[str, str]:
    return (point.dist.name, point.dist.version) if point.dist else ("", "")


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # a parent package is missing, or the name is no module's
        return False


def _say(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _by(plugin: Plugin) -> str:
    return f" by {plugin.distribution} {plugin.version}" if plugin.distribution else ""


def _is_alias(entry: Entry, cls: type) -> bool:
    """Tell whether a loaded module re-exports ``cls`` under the entry's target."""
    if not isinstance(entry.target, str):
        return False
    module, _, attribute = entry.target.partition(":")
    return getattr(sys.modules.get(module), attribute, None) is cls


registry = Registry()
"""The one registry of the process."""


def register(plugin: Any, *, name: str) -> Plugin:
    """Register a module or object that implements the hooks, as if it were an installed plugin.

    Raises `PluginError` when it is refused; nothing of it is kept then.
    """
    registry.plugins()  # installed plugins come first
    return registry.register(plugin, name=name)


def plugins() -> list[Plugin]:
    """Return the installed plugins: what each offers, or why it was refused."""
    return registry.plugins()


def methods() -> list[Entry]:
    """Return the registered methods, by name."""
    return registry.entries("method")


def convert(constraint: Constraint, kind: type[C], *, seed: int = 0) -> C:
    """Convert a constraint to another kind along the registered conversions."""
    result: C = registry.convert(constraint, (kind,), seed=seed)[0]
    return result
