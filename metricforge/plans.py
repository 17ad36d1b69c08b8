"""Names resolved to objects: method, kernel and solver of a fit, and which methods suit a constraint."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from . import rows as _rows
from .checks import nearest, shown
from .constraints import Constraint
from .errors import InputError, UnknownNameError
from .kernels import Kernel, strings
from .metric import Metric
from .problem import Method, Solver, Use
from .registry import registry
from .registry.notation import read_kernel


@dataclass(frozen=True)
class Plan:
    """Names resolved to objects.

    Attributes
    ----------
    name : str
        The method, or a solver that was given in place of the method's.
    method : Method
    kernel : Kernel
        The kernel to start from, not yet resolved on rows.
    solver : Solver
        With the options of the call.
    notes : tuple of str
        What the user should know about the choice.
    """

    name: str
    method: Method
    kernel: Kernel
    solver: Solver
    notes: tuple[str, ...] = ()


def resolve(
    method: str, kernel: Any, solver: Solver | str | None = None, options: Mapping[str, Any] | None = None
) -> Plan:
    """Resolve a method by name, and a kernel and a solver that may take the place of its own."""
    found, name = find_method(method), method
    own = None if solver is None else find_solver(solver)
    notes: tuple[str, ...] = ()
    if own is not None and type(own) is not type(found.solver):
        entry = registry.entry_of("solver", type(own))
        name = type(own).__name__ if entry is None else entry.name
        notes = (f"{type(own).__name__} solves in place of the solver of method {method!r}",)
    chosen = find_kernel(kernel) if kernel is not None else found.kernel
    return Plan(name, found, chosen, with_options(own or found.solver, options or {}, method), notes)


def start_kernel(kernel: Any, method: Any, X: Any) -> Any:
    """Return the kernel that was given; without one, that for strings if rows are strings; None: the method's own."""
    if kernel is not None or not _rows.holds_strings(X):
        return kernel
    named = isinstance(method, str) and method != "auto"
    return strings.START if not named or find_method(method).kernel.takes == "vectors" else None


# ------------------------------------------------------------------------------------------------ methods for "auto"


@dataclass(frozen=True)
class Situation:
    """What decides which methods suit: the constraint, and the number, type and place of the rows."""

    constraint: Constraint
    n: int
    takes: str = "vectors"
    dask: bool = False

    def admits(self, use: Use) -> bool:
        """Return whether a use is within its declared limits here."""
        return (
            (use.most_rows is None or self.n <= use.most_rows)
            and (not use.takes or self.takes in use.takes)
            and (use.dask or not self.dask)
            and (use.when is None or (isinstance(self.constraint, use.constraint) and use.when(self.constraint)))
        )


@dataclass(frozen=True)
class Suited:
    """A method that suits a situation, in the order in which "auto" tries it."""

    name: str
    use: Use
    steps: int
    """The number of conversions from the given kind to that of the use."""


def suited(situation: Situation) -> tuple[list[Suited], tuple[str, ...]]:
    """Return the methods that declare themselves for a situation, first choice first, and why others cannot be loaded.

    Methods for the kind itself come before those for a kind that it can be converted to, then the declared order
    counts.  A method occurs once, with the best of its uses.
    """
    declared, failed = declared_methods()
    kind = type(situation.constraint)
    found: list[tuple[int, int, str, Use]] = []
    for name, method in declared.items():
        for use in method.declared_uses:
            path = registry.path(kind, (use.constraint,))
            if path is not None and situation.admits(use):
                found.append((len(path), use.order, name, use))
    ordered: dict[str, Suited] = {}
    for steps, _, name, use in sorted(found, key=lambda entry: entry[:3]):
        ordered.setdefault(name, Suited(name, use, steps))
    return list(ordered.values()), failed


def first_suited(situation: Situation) -> tuple[list[Suited], tuple[str, ...]]:
    """Return what `suited` finds and notes on the choice, or raise if there is nothing."""
    found, failed = suited(situation)
    kind = type(situation.constraint).__name__
    if not found:
        raise InputError(
            f"method='auto' finds no method for {kind}: none declares itself for this kind, or for one that it can be "
            f"converted to{''.join(f'; {reason}' for reason in failed)}; name a method that accepts {kind}"
        )
    first = found[0]
    if first.steps == 0:
        return found, ()
    wanted = first.use.constraint.__name__
    over = "" if situation.takes == "vectors" else f" over {situation.takes}"
    return found, (
        f"no method declares itself for {kind}{over}: {first.name!r}, which is for {wanted}, was chosen",
        *failed,
    )


def knowing(options: Iterable[str], situation: Situation) -> tuple[str, tuple[str, ...]]:
    """Return the first method that has all the options, and a note if it is not the one "auto" would take.

    Raises
    ------
    UnknownNameError
        If no method that can learn from this kind has them; the message names the methods that do.
    """
    wanted = list(options)
    ranked = [entry.name for entry in suited(situation)[0]]
    declared = declared_methods()[0]
    kind = type(situation.constraint)
    usable = [name for name, m in declared.items() if registry.path(kind, m.solver.accepts) is not None]
    have = [name for name in (*ranked, *sorted(set(usable) - set(ranked))) if _has(declared[name], wanted)]
    if have:
        given = ", ".join(wanted)
        note = f"method {have[0]!r} was chosen, because {given} {'is' if len(wanted) == 1 else 'are'} among its options"
        return have[0], () if ranked and have[0] == ranked[0] else (note,)
    for option in wanted:
        owners = [name for name, m in declared.items() if _has(m, [option])]
        if not owners:
            known = sorted({name for m in declared.values() for name in _options(m)})
            raise UnknownNameError(f"option {option!r} is unknown to every method; {nearest(option, known)}")
        if not set(owners) & set(usable):
            raise UnknownNameError(
                f"option {option!r} belongs to method {' and '.join(map(repr, owners))}, which cannot learn from "
                f"{kind.__name__}; give other hints, or leave the option out"
            )
    owners_of = {option: [name for name in usable if _has(declared[name], [option])] for option in wanted}
    belong = "; ".join(f"{option} belongs to {', '.join(names)}" for option, names in owners_of.items())
    raise UnknownNameError(f"options {', '.join(map(repr, wanted))} belong to different methods ({belong}); name one")


def _options(method: Method) -> list[str]:
    return [f.name for f in fields(method.solver) if f.init]  # type: ignore[arg-type]


def _has(method: Method, wanted: Iterable[str]) -> bool:
    return set(wanted) <= set(_options(method))


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


def baseline() -> str | None:
    """Return the method that learns nothing, or None if there is none."""
    return next((name for name, method in declared_methods()[0].items() if method.baseline), None)


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
