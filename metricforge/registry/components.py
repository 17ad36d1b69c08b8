"""The registry: all components of all plugins, by kind and name.

Plugins are found through the entry-point group ``metricforge``.  Each is loaded under its own guard: one that fails is
refused as a whole and listed with its error, and the others are unaffected.  Numeric modules do not import this one:
`metricforge.learning` resolves names and passes objects on.
"""

from __future__ import annotations

import importlib.metadata
import logging
import sys
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar

import pluggy

from ..errors import InputError, PluginError, UnknownNameError
from ..validation import nearest
from . import hooks as hookspecs
from .entries import Entry, Plugin, Registrar

if TYPE_CHECKING:
    from ..constraints import Constraint
    from .progress import Event


def shortest_path(edges: Iterable[Entry], source: str, targets: set[str]) -> Sequence[Entry] | None:
    """Return the fewest conversions that lead from a kind to one of several, or None where no chain does."""
    edges = list(edges)
    paths: deque[tuple[str, list[Entry]]] = deque([(source, [])])
    visited = {source}
    while paths:
        kind, path = paths.popleft()
        for edge in edges:
            start, _, end = edge.name.partition("->")
            if start != kind or end in visited:
                continue
            if end in targets:
                return [*path, edge]
            visited.add(end)
            paths.append((end, [*path, edge]))
    return None


C = TypeVar("C", bound="Constraint")
T = TypeVar("T")
log = logging.getLogger(__name__)

GROUP = "metricforge"
HOOKS = ("metricforge_register", "metricforge_step")


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
        self._derived: dict[Any, Any] = {}

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
        for point in sorted(found.values(), key=_order):
            if point.name not in self._plugins or _distribution(point)[0] != self._plugins[point.name].distribution:
                self._load(point)

    def _load(self, point: importlib.metadata.EntryPoint) -> None:
        name, version = _distribution(point)
        try:
            module = point.load()
        except (Exception, SystemExit) as error:  # a plugin that calls sys.exit must not end the program
            reason = f"import of {point.value!r} failed: {_describe(error)}"
            log.warning("%s", self._refuse(point.name, reason, name, version))
            return
        try:
            self.register(module, name=point.name, distribution=name, version=version)
        except PluginError as error:
            log.warning("%s", error)

    def register(self, plugin: Any, *, name: str, distribution: str = "", version: str = "") -> Plugin:
        """Add a plugin with all its components, or nothing of it.

        Raises
        ------
        PluginError
            When it is refused; `plugins` then lists it with its error.
        """
        with self._lock:
            holder = self._plugins.get(name)
            try:
                if holder is not None:
                    raise _RefusedError(f"its name is taken{_by(holder)}; choose another name")
                entries = self._admit(plugin, name)
            except _RefusedError as refused:
                message = self._refuse(name, str(refused), distribution, version)
                raise PluginError(message) from refused.__cause__
            for entry in entries:
                self._entries[entry.kind, entry.name] = entry
            self._derived.clear()
            self._plugins[name] = Plugin(name, distribution, version, tuple(entries))
            self._refused.pop((name, distribution), None)
            return self._plugins[name]

    def unregister(self, name: str) -> None:
        """Remove a plugin and all it registered; nothing happens where no plugin has this name."""
        with self._lock:
            if self._plugins.pop(name, None) is None:
                return
            self._manager.unregister(name=name)
            self._silenced.discard(name)
            self._entries = {key: entry for key, entry in self._entries.items() if entry.plugin != name}
            self._derived.clear()

    def _admit(self, plugin: Any, name: str) -> list[Entry]:
        manager = self._manager
        try:
            hash(plugin)
        except TypeError as error:
            raise _RefusedError(
                f"it is a {type(plugin).__name__}, which cannot be hashed; freeze the dataclass"
            ) from error
        accepted = False
        try:
            manager.register(plugin, name=name)
            self._check_hooks(plugin)
            registrar = Registrar(name)
            others = [p for p in manager.get_plugins() if p is not plugin]
            try:
                manager.subset_hook_caller("metricforge_register", remove_plugins=others)(registrar=registrar)
            except (Exception, SystemExit) as error:
                raise _RefusedError(f"its hook metricforge_register raised {_describe(error)}") from error
            self._check_names(registrar.entries)
            accepted = True
        except pluggy.PluginValidationError as error:
            raise _RefusedError(f"its hook has a wrong signature: {error}") from error
        except _RefusedError:
            raise
        except Exception as error:
            raise _RefusedError(f"inspecting it raised {_describe(error)}") from error
        finally:
            # after a failed signature check pluggy keeps the name
            if not accepted and manager.get_plugin(name) is plugin:
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
        # a plugin without a kind of its own may convert to one of a plugin that is loaded later
        if any(entry.kind == "constraint" for entry in entries):
            known = [name for kind, name in taken if kind == "constraint"]
            for entry in (one for one in entries if one.kind == "conversion"):
                for end in entry.name.split("->"):
                    if end not in known:
                        raise _RefusedError(
                            f"conversion {entry.name!r} names a constraint {end!r}, which is not registered; "
                            f"{nearest(end, known)}"
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
        entries = self._entries.values()
        return self.derived(kind, lambda: sorted((e for e in entries if e.kind == kind), key=lambda e: e.name))

    def derived(self, key: Any, make: Callable[[], T]) -> T:
        """Return ``make()``, which depends on the entries only: computed once, until a plugin comes or goes."""
        if key not in self._derived:
            made = make()
            if self._discovering:  # not all plugins are there yet
                return made
            self._derived[key] = made
        found: T = self._derived[key]
        return found

    def entry(self, kind: str, name: str) -> Entry:
        """Return one component, or raise with the nearest known name."""
        self._discover()
        found = self._entries.get((kind, name))
        if found is None:
            raise self.unknown(kind, name, [e.name for e in self.entries(kind)])
        return found

    def unknown(self, kind: str, name: str, known: Iterable[str]) -> UnknownNameError:
        """Return the error for an unknown name, with the nearest known one and the plugins that failed to load."""
        broken = [p.name for p in self._refused.values()]
        hint = f" (plugins that failed to load: {', '.join(broken)}; see mf.plugins())" if broken else ""
        return UnknownNameError(f"{kind}={name!r} is unknown; {nearest(name, known)}{hint}")

    def get(self, kind: str, name: str) -> Any:
        """Return the object registered under a name."""
        return self.entry(kind, name).load()

    def entry_of(self, kind: str, cls: type) -> Entry | None:
        """Return the entry whose target is this class, without importing any target."""
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
        """Convert a constraint to one of ``kinds`` along the shortest chain of conversions.

        Returns
        -------
        converted : Constraint
        steps : tuple of str
            A description of each conversion, with the number of relations before and after.
        """
        edges = self.path(type(constraint), kinds)
        if edges is None:
            wanted = " or ".join(kind.__name__ for kind in kinds)
            raise InputError(
                f"constraints: no conversion leads from {type(constraint).__name__} to {wanted}; "
                f"give {wanted}, or choose a method that accepts {type(constraint).__name__}"
            )
        steps = []
        for edge in edges:
            before = constraint
            constraint = edge.load()(before, seed=seed)
            lost = constraint.dropped - before.dropped
            steps.append(
                f"{type(before).__name__} ({before.size}) → {type(constraint).__name__} ({constraint.size})"
                + (f", {lost} dropped" if lost else "")
            )
        return constraint, tuple(steps)

    def path(self, kind: type[Any], kinds: tuple[type[Any], ...]) -> Sequence[Entry] | None:
        """Return the shortest chain of conversions from a kind to one of ``kinds``, or None if there is none."""
        return self.derived((kind, kinds), lambda: self._path(kind, kinds))

    def _path(self, kind: type[Any], kinds: tuple[type[Any], ...]) -> Sequence[Entry] | None:
        if issubclass(kind, kinds):
            return []
        source = self.entry_of("constraint", kind)
        targets = {e.name for other in kinds if (e := self.entry_of("constraint", other)) is not None}
        return shortest_path(self.entries("conversion"), source.name, targets) if source else None

    # -- progress ------------------------------------------------------------------------------------------------

    def step(self, event: Event) -> None:
        """Send an event to every plugin with ``metricforge_step``; one that raises is logged and not called again."""
        if not self._discovered:
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
    """The reason why a plugin is refused."""


def _distribution(point: importlib.metadata.EntryPoint) -> tuple[str, str]:
    return (point.dist.name, point.dist.version) if point.dist else ("", "")


def _order(point: importlib.metadata.EntryPoint) -> tuple[bool, bool, str, str]:
    """Return the sorting key of plugins: the core, its distribution, others; so that no other takes their names."""
    core = point.value.startswith("metricforge.")
    return _distribution(point)[0] != "metricforge", not core, point.name, point.value


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _by(plugin: Plugin) -> str:
    return f" by {plugin.distribution} {plugin.version}" if plugin.distribution else ""


def _is_alias(entry: Entry, cls: type) -> bool:
    """Return whether a loaded module re-exports ``cls`` under the entry's target."""
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
    return list(registry.entries("method"))


def convert(constraint: Constraint, kind: type[C], *, seed: int = 0) -> C:
    """Convert a constraint to another kind along the registered conversions."""
    result: C = registry.convert(constraint, (kind,), seed=seed)[0]
    return result
