"""Names resolved to objects, once: the plan of a fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from . import rows as _rows
from .constraints import Constraint, Labels
from .errors import InputError, UnknownNameError
from .kernels import Kernel, strings
from .kernels.notation import parse_kernel
from .metric import Metric
from .registry import registry
from .solver import Method, Solver
from .validation import nearest, shown

START = "start"
"""The label of the plan that learns nothing."""


@dataclass(frozen=True)
class Plan:
    """All that a fit needs besides rows and hints.

    Attributes
    ----------
    name : str
        The method.
    method : Method
    kernel : Kernel
        The kernel to start from, not yet resolved on rows.
    solver : Solver
        With the options of the call.
    rank : str or int
        How the kernel is to be represented.
    label : str
        The method with its settings, as comparisons show it: "name", "name(kernel=standardized(rbf), option=0.1)".
    notes : tuple of str
        What the user should know about the choice.
    """

    name: str
    method: Method
    kernel: Kernel
    solver: Solver
    rank: str | int = "auto"
    label: str = ""
    notes: tuple[str, ...] = ()

    def noting(self, *notes: str) -> Plan:
        """Return the plan with further notes, which come first."""
        return replace(self, notes=(*notes, *self.notes))


def resolve(
    method: str,
    kernel: Any = None,
    solver: Solver | str | None = None,
    options: Mapping[str, Any] | None = None,
    *,
    rank: str | int = "auto",
    label: str = "",
) -> Plan:
    """Resolve a method by name, and a kernel and a solver that may take the place of its own."""
    found, name = find_method(method), method
    given = None if solver is None else find_solver(solver)
    notes: tuple[str, ...] = ()
    if given is not None and type(given) is not type(found.solver):
        entry = registry.entry_of("solver", type(given))
        name = type(given).__name__ if entry is None else entry.name
        notes = (f"{type(given).__name__} solves in place of the solver of method {method!r}",)
    start = found.kernel if kernel is None else find_kernel(kernel)
    return Plan(name, found, start, with_options(given or found.solver, options or {}, method), rank, label, notes)


def read_plan(given: Any, kernel: Kernel | None = None, rank: str | int = "auto") -> Plan:
    """Return the plan that a user means: the name of a method, or a dict with "method" and arguments of learn.

    ``kernel`` and ``rank`` are those of the call, unless the dict has its own.
    """
    if isinstance(given, str):
        given = {"method": given}
    if not isinstance(given, Mapping) or not isinstance(given.get("method"), str):
        raise InputError(
            f"candidates must be names of methods or dicts with one, got {given!r}; {nearest('', method_names())}"
        )
    settings = dict(given)
    method = settings.pop("method")
    named = label(method, settings)
    kernel, rank = settings.pop("kernel", kernel), settings.pop("rank", rank)
    return resolve(method, kernel, None, settings, rank=rank, label=named)


def start_plan(kernel: Kernel | None, rank: str | int) -> Plan | None:
    """Return the plan that learns nothing, or None if no method for it is installed."""
    name = next((name for name, method in declared_methods()[0].items() if method.baseline), None)
    return None if name is None else resolve(name, kernel, rank=rank, label=START)


def label(method: str, settings: Mapping[str, Any]) -> str:
    """Return the name of a candidate: "name", "name(kernel=standardized(rbf), option=0.1)"."""
    shown = ", ".join(f"{name}={_shown(value)}" for name, value in settings.items())
    return f"{method}({shown})" if shown else method


def _shown(value: Any) -> str:
    if isinstance(value, str) or not isinstance(value, Kernel):
        return str(value)
    inside = ", ".join(_shown(part) for _, part in value._kernel_fields())
    return type(value).__name__.lower() + (f"({inside})" if inside else "")


def start_kernel(kernel: Any, method: Any, X: Any) -> Any:
    """Return the kernel that was given; without one, that for strings if rows are strings; None: the method's own."""
    if kernel is not None or not _rows.holds_strings(X):
        return kernel
    named = isinstance(method, str) and method != "auto"
    return strings.START if not named or find_method(method).kernel.takes == "vectors" else None


def as_constraint(value: Any, name: str = "constraints", kind: type[Constraint] = Labels) -> Constraint:
    """Return a Constraint; a bare 1-d array is what it means to a method for this kind, usually Labels."""
    if isinstance(value, Constraint):
        return value
    if value is None:
        raise InputError(
            f"{name} is missing: give labels y, or mf.Pairs, mf.Chunklets or mf.Triplets over the rows of X"
        )
    try:
        shape = np.shape(value) if not hasattr(value, "shape") else value.shape
    except (TypeError, ValueError):
        if isinstance(value, list | tuple) and any(isinstance(part, Constraint) for part in value):
            raise InputError(
                f"{name} must be one constraint, got a {type(value).__name__} of several; give one"
            ) from None
        raise InputError(f"{name} must be labels (1-d) or a constraint, got lists of unequal lengths") from None
    if not isinstance(shape, tuple):  # for instance a class, whose shape is a property
        raise InputError(f"{name} must be labels (1-d) or a constraint, got {shown(value)}")
    if len(shape) == 1 or (len(shape) == 2 and shape[1] == 1):
        return kind.of_values(value)
    wrap = {
        2: "mf.Pairs(similar=..., n=len(X))",
        3: "mf.Triplets(..., n=len(X))",
        4: "mf.Quadruplets(..., n=len(X))",
    }.get(shape[-1] if shape else 0)
    raise InputError(
        f"{name} must be labels (1-d) or a constraint, got an array of shape {tuple(shape)}; "
        f"wrap row numbers as {wrap or 'mf.Pairs or mf.Triplets'}"
    )


# ---------------------------------------------------------------------------------------------------------------- names


def find_method(name: str) -> Method:
    """Return a registered method."""
    found = registry.get("method", name)
    if not isinstance(found, Method):
        raise InputError(f"method {name!r} is registered as a {type(found).__name__}; its target must be a mf.Method")
    return found


def method_of(solver: Solver) -> str | None:
    """Return the method with this type of solver, or None if no method uses it."""
    return next((name for name, method in declared_methods()[0].items() if type(method.solver) is type(solver)), None)


def find_solver(solver: Any) -> Solver:
    """Return the solver that the user means: an instance, or a registered name, which stands for its defaults."""
    if isinstance(solver, Solver):
        return solver
    if not isinstance(solver, str):
        raise InputError(f"solver must be a Solver instance, the name of a solver or None, got {shown(solver)}")
    made = registry.get("solver", solver)
    try:
        return made() if isinstance(made, type) else made  # type: ignore[no-any-return]
    except TypeError as error:
        raise InputError(f"solver={solver!r} needs parameters ({error}); give an instance instead") from None


def find_kernel(kernel: Any) -> Kernel:
    """Return the kernel of an argument: an instance, a text such as "rbf(gamma=0.5)", or a learned metric."""
    if isinstance(kernel, Metric):
        return kernel.kernel
    if isinstance(kernel, Kernel):
        return kernel
    if not isinstance(kernel, str):
        example = f"{kernel.__name__}()" if isinstance(kernel, type) else "mf.kernels.RBF()"
        raise InputError(
            f"kernel must be a Kernel, a Metric or a name, got {shown(kernel)}; write for instance {example}"
        )
    return read_kernel(kernel)


def with_options(solver: Solver, options: Mapping[str, Any], method: str) -> Solver:
    """Return the solver with the given options set; an unknown one is an error that names the nearest."""
    if not options:
        return solver
    known = [f.name for f in fields(solver) if f.init]  # type: ignore[arg-type]
    unknown = [name for name in options if name not in known]
    if unknown:
        raise UnknownNameError(f"option {unknown[0]!r} is unknown to method {method!r}; {nearest(unknown[0], known)}")
    return replace(solver, **options)  # type: ignore[type-var]


def declared_methods() -> tuple[dict[str, Method], tuple[str, ...]]:
    """Return the methods that can be loaded, by name, and why others cannot."""
    return registry.derived("declared methods", _load_methods)


def _load_methods() -> tuple[dict[str, Method], tuple[str, ...]]:
    found, failed = {}, []
    for entry in registry.entries("method"):
        try:
            found[entry.name] = find_method(entry.name)
        except Exception as error:  # one broken plugin must not stop the others
            failed.append(f"method {entry.name!r} cannot be loaded: {' '.join(str(error).split())}")
    return found, tuple(failed)


def method_names() -> list[str]:
    """Return the names of all registered methods."""
    return [e.name for e in registry.entries("method")]


def providing(fact: str, kind: type[Constraint]) -> str:
    """Return the first method for a kind that declares this value in its outcome."""
    found = sorted(
        (use.order, name)
        for name, method in declared_methods()[0].items()
        if fact in method.provides
        for use in method.declared_uses
        if use.constraint is kind
    )
    if not found:
        raise InputError(f"no installed method for {kind.__name__} reports a {fact}; install one, or name a method")
    return found[0][1]


def read_kernel(text: str) -> Kernel:
    """Return the kernel that a text such as "rbf" or "rbf(gamma=0.5)" denotes among the registered ones."""
    return parse_kernel(text, kernel_named)


def kernel_named(name: str) -> Any:
    """Return the registered kernel class of a name; the name of the class, as in a ``repr``, is a name too."""
    entries = registry.entries("kernel")
    found = (
        next((e for e in entries if e.name == name), None)
        or next((e for e in entries if str(e.target).rpartition(":")[2] == name), None)
        or next((e for e in entries if e.name == name.lower()), None)
    )
    if found is None:
        # a kernel that cannot be loaded here is offered too: loading it then says what is missing
        offered = [e.name for e in entries if e.missing or getattr(e.load(), "offered", True)]
        raise registry.unknown("kernel", name, offered)
    return found.load()
