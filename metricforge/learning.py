"""learn(): resolve names, prepare the problem, solve it, and conclude with a Metric and its report."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import __version__, join
from . import rows as _rows
from .checks import first_rows, nearest, shown, whole_number
from .constraints import Constraint, Distances
from .errors import InputError, UnknownNameError
from .join import Relations, as_constraint
from .kernels import Kernel
from .metric import Metric, Report
from .problem import Method, Problem, Solution, Solver
from .registry import registry
from .registry.notation import read_kernel
from .space import BUDGET, Space

Array = NDArray[Any]

WIDE = 30
"""How many times as wide as the median column one must spread for a note."""


def learn(
    X: Any,
    constraints: Any,
    *,
    method: str = "auto",
    kernel: Kernel | Metric | str | None = None,
    solver: Solver | str | None = None,
    rank: str | int = "auto",
    seed: int = 0,
    **options: Any,
) -> Metric:
    """Learn a metric on the rows of X from side information about their similarity.

    Parameters
    ----------
    X : rows
        A dense or CSR array, a pandas or polars frame, a list, a dask array; strings for kernels on strings.  A dask
        array is processed chunk by chunk, on the active ``distributed.Client`` if there is one; with a client, rows in
        memory are sent to its workers.
    constraints : Constraint, or 1-d array with a value per row
        Over the rows of X: Labels, Pairs, Chunklets, Triplets, Quadruplets, Targets, or a kind that a plugin registers.
        A bare array means labels, or what the method declares (Targets for methods of regression).  A kind that the
        method cannot use is converted, and ``report.converted`` says how.
    method : str
        A registered method (see ``mf.methods()``).  "auto" takes the first method that declares itself for this kind
        of constraint, or for the nearest kind to which it can be converted; a note in the report says so.
    kernel : Kernel, Metric or str, optional
        The kernel to start from; default: the method's own.  A str names a kernel, with parameters where it has them:
        "rbf", "rbf(gamma=0.5)", "standardized(rbf)".  A learned metric can be the start of the next fit.
    solver : Solver or name, optional
        A configured solver, or the name of a registered one, in place of the method's.
    rank : "auto", "exact" or int
        How the kernel is represented: see `metricforge.space.represent`.
    seed : int
        The same seed gives the same answer.
    **options
        Options of the solver, for instance ``nu=0.3``.

    Returns
    -------
    Metric
    """
    return learn_named(
        X,
        _rows.column_names(X),
        constraints,
        method=method,
        kernel=kernel,
        solver=solver,
        rank=rank,
        seed=seed,
        options=options,
    )


def learn_named(
    X: Any,
    names: Sequence[str] | None,
    constraints: Any,
    *,
    method: str,
    kernel: Kernel | Metric | str | None,
    rank: str | int,
    seed: int,
    options: Mapping[str, Any],
    solver: Solver | str | None = None,
) -> Metric:
    """Learn as `learn` does, on rows whose columns have these names, which ``metric.columns`` keeps."""
    columns = () if names is None else tuple(map(str, names))
    plan = resolve(method, kernel, solver, constraints, options)
    seed = whole_number(seed, "seed", least=0)
    rows = plan.kernel.check(X, "X")
    n = _rows.count(rows)
    relations = join.relations(constraints, n, plan.solver.accepts, seed=seed, kind=plan.method.constraint)
    started = time.perf_counter()
    with join.progress(f"{plan.name} on {n} rows") as step:
        spread = _spread(rows, plan.kernel)
        space = join.make_space(plan.kernel, rows, rank, seed=seed, method=plan.method, constraint=relations.usable)
        with join.solving(plan.solver, space.representation, n, plan.name):
            solution = plan.solver.solve(Problem(space, relations.usable, seed, step))
    seconds = time.perf_counter() - started
    notes = (*plan.notes, *_remarks(plan, space, relations.given, spread, columns), *solution.notes)
    return Metric(
        solution.kernel,
        _report(plan, space, relations, solution, notes, columns, seconds=seconds, seed=seed),
        rows=rows,
        solver=plan.solver,
        rank=rank,
        seed=seed,
        start=space.kernel,
        columns=columns,
    )


# -------------------------------------------------------------------------------------------------------------- resolve


@dataclass(frozen=True)
class Plan:
    """Names resolved to objects.

    Attributes
    ----------
    name : str
        The method.
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
    method: str,
    kernel: Kernel | Metric | str | None,
    solver: Solver | str | None,
    constraints: Any,
    options: Mapping[str, Any] | None = None,
) -> Plan:
    """Resolve method, kernel and solver to objects; the constraints decide what "auto" means."""
    if not isinstance(method, str):
        raise InputError(f"method must be the name of a method, got {shown(method)}; {nearest('', _method_names())}")
    solver = None if solver is None else find_solver(solver)
    notes: tuple[str, ...] = ()
    if method == "auto":
        own = None if solver is None else method_of(solver)
        method, notes = (own, ()) if own is not None else choose(as_constraint(constraints))
    found = find_method(method)
    if solver is not None and type(solver) is not type(found.solver):
        notes = (*notes, f"{type(solver).__name__} solves in place of the solver of method {method!r}")
    chosen = find_kernel(kernel) if kernel is not None else found.kernel
    return Plan(method, found, chosen, with_options(solver or found.solver, options or {}, method), notes)


def choose(constraint: Constraint) -> tuple[str, tuple[str, ...]]:
    """Return the method that "auto" stands for, and notes on the choice.

    It is the first in the declared order among the methods for this kind of constraint.  If there is none, it is the
    first among those for the kind that the fewest conversions lead to.
    """
    declared, failed = declared_methods()
    ranked = sorted(
        (len(path), method.order, name)
        for name, method in declared.items()
        if method.order is not None and (path := registry.path(type(constraint), (method.constraint,))) is not None
    )
    kind = type(constraint).__name__
    if not ranked:
        raise InputError(
            f"method='auto' finds no method for {kind}: none declares itself for this kind, or for one that it can be "
            f"converted to{''.join(f'; {reason}' for reason in failed)}; name a method that accepts {kind}"
        )
    steps, _, name = ranked[0]
    if steps == 0:
        return name, ()
    wanted = declared[name].constraint.__name__
    return name, (f"no method declares itself for {kind}: {name!r}, which is for {wanted}, was chosen", *failed)


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
    found, failed = {}, []
    for entry in registry.entries("method"):
        try:
            found[entry.name] = find_method(entry.name)
        except Exception as error:  # one broken plugin must not stop the others
            failed.append(f"method {entry.name!r} cannot be loaded: {' '.join(str(error).split())}")
    return found, tuple(failed)


def _method_names() -> list[str]:
    return [e.name for e in registry.entries("method")]


# ------------------------------------------------------------------------------------------------------------- conclude


def _report(
    plan: Plan,
    space: Space,
    relations: Relations,
    solution: Solution,
    notes: tuple[str, ...],
    columns: tuple[str, ...],
    *,
    seconds: float,
    seed: int,
) -> Report:
    values = {
        "method": plan.name,
        "kernel": _on_one_line(space.kernel),
        "solver": repr(plan.solver),
        **join.facts(solution),
        "n": space.n,
        "representation": space.representation,
        "rank": space.rank,
        "seconds": seconds,
        "peak_memory": peak_memory(),
        "relations": relations.usable.size,
        "converted": relations.converted,
        "dropped": relations.usable.dropped,
        "seed": seed,
        "notes": notes,
        "version": __version__,
    }
    return Report(values | ({"columns": columns} if columns else {}), solution.outcome)


def _on_one_line(kernel: Kernel) -> str:
    """Return the repr of a kernel on one line; of the matrices of a learned kernel only the corners are shown."""
    with np.printoptions(threshold=6, edgeitems=1):
        return " ".join(repr(kernel).split())


def _spread(rows: Any, kernel: Kernel) -> Array | None:
    """Return the standard deviation of every column, or None for rows without dense columns.

    On dask this is the pass that checks every cell.
    """
    if kernel.takes != "vectors" or _rows.is_sparse(rows):
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        return _rows.moments(rows)[1]


def _remarks(
    plan: Plan, space: Space, constraint: Constraint, spread: Array | None, columns: tuple[str, ...]
) -> tuple[str, ...]:
    """Return notes on data that are unusual but valid."""
    return (
        *_left_out(space),
        *_constant_columns(space, columns),
        *_wide_columns(plan, space.kernel, spread, columns),
        *(() if _rows.is_dask(space.rows) else constraint.remarks(Distances(space.kernel, space.rows, space.seed))),
    )


def _left_out(space: Space) -> tuple[str, ...]:
    """Return a note on what ``rank="auto"`` gave up where it took landmarks."""
    if not (space.automatic and space.representation == "landmarks" and space.has_map):
        return ()
    lost = "" if _rows.is_dask(space.rows) else f"; they leave out {space.left_out():.2g} of k(x, x)"
    return (
        f'rank="auto" took {space.rank} landmarks of {space.n} rows, the most within {BUDGET:g} forecast CPU '
        f'seconds{lost}; rank="exact" keeps all rows',
    )


def _constant_columns(space: Space, columns: tuple[str, ...]) -> tuple[str, ...]:
    X = space.rows
    if _rows.is_dask(X) or space.kernel.takes != "vectors" or space.n < 2:
        return ()
    low, high = _rows.column_range(X)
    constant = np.flatnonzero(low == high)
    if not len(constant):
        return ()
    where = first_rows(constant).replace("row", "column")
    if columns:
        where = ", ".join(repr(columns[c]) for c in constant[:5]) + ", ..." * (len(constant) > 5)
    return (f"{len(constant)} feature(s) are constant and carry no information ({where})",)


def _wide_columns(plan: Plan, kernel: Kernel, spread: Array | None, columns: tuple[str, ...]) -> tuple[str, ...]:
    """Return a note if one column dominates the distances and neither kernel nor method corrects for it."""
    if spread is None or kernel.scale_free or plan.method.ignores_scales(kernel, plan.solver):
        return ()
    widest, typical = int(spread.argmax()), float(np.median(spread))
    if not 0 < WIDE * typical < spread[widest] < np.inf:
        return ()
    column = f"column {columns[widest]!r}" if columns else f"column {widest}"
    others = _scale_free_methods()
    choice = f", or choose a method that does not depend on scales ({'; '.join(others)})" if others else ""
    return (
        f"{column} spreads {spread[widest] / typical:.0f} times as wide as the typical one and decides most "
        f"distances; if that is not meant, standardize the columns (kernel=mf.kernels.Standardized(...), or "
        f"--standardize in the shell){choice}",
    )


def _scale_free_methods() -> list[str]:
    """Return the methods, with settings, that declare that they do not depend on the scales of the columns."""
    found = []
    for name, method in declared_methods()[0].items():
        for setting in ({}, *method.settings):
            options = {option: value for option, value in setting.items() if option not in ("kernel", "rank")}
            kernel = find_kernel(setting.get("kernel", method.kernel))
            if method.ignores_scales(kernel, with_options(method.solver, options, name)):
                given = ", ".join(f"{option}={value!r}" for option, value in setting.items())
                found.append(f"{name} with {given}" if given else name)
    return found


def peak_memory() -> int:
    """Return the largest resident size of this process so far, in bytes (0 if the system does not report it)."""
    try:
        import resource
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else 1024 * peak)
