"""The road of a fit: prepare rows and hints, solve, conclude with a Metric and its report; `update` walks it too.

*Prepare* checks rows and constraint, converts the constraint to a kind that the solver accepts, and represents the
kernel on the rows.  *Solve* runs the solver with a limit on threads and notes on errors, and checks its solution.
*Conclude* writes the report.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from . import __version__
from . import rows as _rows
from .constraints import Constraint, Labels
from .diagnostics import column_deviations, on_one_line, remarks, scaling
from .distributed import cluster
from .distributed.chunks import spread
from .errors import InputError, MissingPluginError
from .kernels import FittedKernel, Kernel
from .metric import Metric, Report
from .registry import registry
from .registry.progress import progress
from .resolve import Plan, as_constraint, declared_methods
from .rows import Array
from .rows.threads import one_thread
from .solver import Method, Problem, Solution, Solver
from .space import Contrast, FeatureMap, Size, Space, represent, space_seconds

CUBIC = 1000
"""With more rows, the factorisations of an exact Gram matrix dominate the cost, and BLAS may use all its threads."""
LARGEST = 1e100
"""The largest k(x, x) with which products in a solver stay finite."""
SAMPLE = 1000
"""Rows on which the kernel is tested for overflow."""

# -------------------------------------------------------------------------------------------------------------- prepare


@dataclass(frozen=True, eq=False)
class Relations:
    """A constraint in two forms.

    Attributes
    ----------
    given : Constraint
        As the user gave it.
    usable : Constraint
        Of a kind that the solver accepts.
    converted : tuple of str
        A description of each conversion between the two.
    """

    given: Constraint
    usable: Constraint
    converted: tuple[str, ...]


def relations(
    constraints: Any,
    n: int,
    accepts: tuple[type[Constraint], ...],
    *,
    seed: int,
    name: str = "constraints",
    kind: type[Constraint] = Labels,
) -> Relations:
    """Check a constraint over n rows and convert it to one of the accepted kinds; ``kind`` says what a bare y means.

    Raises
    ------
    InputError
        If it is about another number of rows, if no conversion leads to an accepted kind, or if there is no relation,
        before or after conversion.
    """
    given = as_constraint(constraints, name, kind)
    given.check(n, name)
    if given.size == 0:
        lost = f" ({given.dropped} were dropped by slicing)" if given.dropped else ""
        raise InputError(f"{name} holds no relation over these {n} rows{lost}; give at least one")
    usable, converted = registry.convert(given, accepts, seed=seed)
    if usable.size == 0:
        wanted = type(usable).__name__
        raise InputError(
            f"{name} holds no relation after conversion ({'; '.join(converted)}); give relations from which {wanted} "
            "follow, or choose a method that uses those given"
        )
    return Relations(given, usable, converted)


def make_space(
    kernel: Kernel,
    rows: Any,
    rank: str | int,
    *,
    seed: int,
    method: Method | None = None,
    constraint: Constraint | None = None,
) -> Space:
    """Resolve a kernel on checked rows and represent it; with an active client, on its workers.

    ``rank="auto"`` follows from what the method declares and from the number of relations; a rank that the method
    declares is for kernels without explicit features.
    """
    if not isinstance(kernel, FittedKernel):  # those hold arrays that are expensive to pickle, and can be
        cluster.check_sendable(kernel, "kernel")
    placed = spread(rows) if kernel.takes != "gram" else rows
    cost, columns = _forecast(method, constraint)
    resolved = kernel.resolve(placed, seed=seed)
    hints = None if constraint is None else partial(contrast, constraint, seed=seed)
    space = represent(resolved, placed, rank, seed=seed, cost=cost, explicit_columns=columns, hints=hints)
    explicit = space.representation in ("explicit", "components")
    if method is not None and method.rank is not None and rank == "auto" and not explicit:
        space = represent(resolved, placed, method.rank, seed=seed)
    diagonal, some = _sampled_values(space, seed)
    if not np.isfinite(some).all():
        raise InputError("X: k(x, y) overflows on some rows; rescale X, or choose smaller parameters of the kernel")
    if not np.isfinite(diagonal).all():
        raise InputError("X: k(x, x) overflows on some rows; rescale X, for instance with StandardScaler")
    if float(np.abs(diagonal).max(initial=0.0)) > LARGEST:  # as a float: LARGEST overflows in float32
        raise InputError(
            f"X: k(x, x) is up to {np.abs(diagonal).max():.2g} on some rows, and solvers square it, which overflows; "
            "rescale X, for instance with StandardScaler"
        )
    return space


def contrast(constraint: Constraint, *, seed: int) -> Contrast | None:
    """Return the like and unlike rows of a constraint, or of the pairs that it converts to; None without any."""
    lines = constraint.lines()
    if not lines:
        try:
            lines = constraint.to("pairs", seed=seed).lines()
        except InputError:  # a kind of a plugin, which no conversion leads from
            return None
    found = [[part.pairs for part in lines if part.short == short and len(part.pairs)] for short in (True, False)]
    if not any(found):
        return None
    none = np.empty((0, 2), dtype=np.int64)
    # there may be millions of pairs: one array of them is not copied
    return Contrast(*(pairs[0] if len(pairs) == 1 else np.concatenate([none, *pairs]) for pairs in found))


def _sampled_values(space: Space, seed: int) -> tuple[_rows.Array, _rows.Array]:
    """Return k(x, x) of a sample of rows, and k(x, y) of pairs of them."""
    kernel, X, chosen = space.kernel, space.rows, _rows.draw(space.n, SAMPLE, seed)
    if _rows.is_dask(X):
        X, chosen = _rows.take(X, chosen), np.arange(len(chosen))
    pairs = np.stack([chosen, chosen[::-1]], axis=1)
    diagonal = _rows.map_relations(lambda A, _: kernel.diag(A), X, pairs, widest=kernel.widest)
    return diagonal, _rows.map_relations(kernel.paired, X, pairs, widest=kernel.widest)


def _forecast(method: Method | None, constraint: Constraint | None) -> tuple[Callable[[Size], float], int | None]:
    """Return the cost of a fit as a function of the size of its space, and the widest explicit features."""
    if method is None:
        return space_seconds, None
    p, kind = (0, None) if constraint is None else (constraint.size, type(constraint))
    return lambda size: method.forecast(replace(size, p=p, kind=kind)), method.explicit_columns


# ---------------------------------------------------------------------------------------------------------------- solve


@dataclass(frozen=True, eq=False)
class Solved:
    """A plan solved on rows, before the report.

    Attributes
    ----------
    space : Space
    relations : Relations
    solution : Solution
    deviations : (d,) array or None
        The standard deviations of the columns, unless the kernel measured the columns itself.
    """

    space: Space
    relations: Relations
    solution: Solution
    deviations: Array | None = None


@_rows.quiet()
def solve(plan: Plan, rows: Any, relations: Relations, *, seed: int, step: Any = None) -> Solved:
    """Solve a plan on checked rows, from relations that its solver accepts."""
    deviations = column_deviations(rows, plan.kernel)
    space = make_space(plan.kernel, rows, plan.rank, seed=seed, method=plan.method, constraint=relations.usable)
    _check_memory(plan, space, relations)
    steps = {} if step is None else {"step": step}
    with solving(plan.solver, space.representation, space.n, plan.name):
        solution = plan.solver.solve(Problem(space, relations.usable, seed, **steps))
    return Solved(space, relations, solution, deviations)


def _check_memory(plan: Plan, space: Space, relations: Relations) -> None:
    """Raise MemoryBudgetError if the forecast of the fit exceeds the memory budget; workers have their own limits."""
    if _rows.is_dask(space.rows):
        return
    usable, d = relations.usable, _rows.width(space.rows) or 1
    size = Size(space.n, d, space.rank, usable.size, space.representation, type(usable))
    blocks = min(_rows.block_bytes(), 4 * 8 * space.n * max(d, space.rank))
    _rows.check_memory(
        plan.method.peak(size) + blocks,
        f"{plan.name} on {space.n} rows with {space.rank} features and {usable.size} relations",
        "lower the rank, or give fewer rows or relations",
    )


@contextmanager
def solving(solver: Solver, representation: str, n: int, method: str | None = None) -> Iterator[None]:
    """Limit BLAS to one thread unless O(n³) work on an exact Gram matrix awaits; add a note to errors.

    NumPy's warnings are off: the solution is checked, and what is not finite is refused.

    The note names the solver, the method, and the plugin that registered them.
    """
    cubic = representation == "exact" and n > CUBIC
    try:
        with nullcontext() if cubic else one_thread(), _rows.quiet():
            yield
    except np.linalg.LinAlgError as error:
        name = method or type(solver).__name__
        raise InputError(
            f"X: {name} met a matrix that it cannot factorise ({error}); rescale the features, for instance with "
            "mf.kernels.Standardized, and look for rows or columns that are far out, constant or copies"
        ) from error
    except Exception as error:
        error.add_note(f"in solver {type(solver).__name__}{_origin(solver, method)}")
        raise


def _origin(solver: Solver, method: str | None) -> str:
    named = "" if method is None else f" of method {method!r}"
    known = (e for e in registry.entries("method") if e.name == method)
    entry = registry.entry_of("solver", type(solver)) or next(known, None)
    return named if entry is None else f"{named} (plugin {entry.plugin!r})"


# ------------------------------------------------------------------------------------------------------------- conclude


@_rows.quiet()
def fit(
    plan: Plan,
    rows: Any,
    constraints: Any,
    *,
    seed: int,
    columns: tuple[str, ...] = (),
    choice: Mapping[str, Any] | None = None,
) -> Metric:
    """Return the metric that a plan learns on checked rows; ``choice`` are fields of the report on the choice."""
    n, rows = _rows.count(rows), cluster.renamed(rows)
    usable = relations(constraints, n, plan.solver.accepts, seed=seed, kind=plan.method.constraint)
    started = time.perf_counter()
    with progress(f"{plan.name} on {n} rows") as step:
        solved = solve(plan, rows, usable, seed=seed, step=step)
    seconds = time.perf_counter() - started
    space, solution = solved.space, solved.solution
    values = {
        "method": plan.name,
        "kernel": on_one_line(space.kernel),
        "solver": repr(plan.solver),
        **_facts(solution),
        "n": space.n,
        "representation": space.representation,
        "rank": space.rank,
        **_components_left_out(space),
        "scaling": scaling(space.kernel),
        "ranks_by": plan.method.ranks_by,
        "seconds": seconds,
        "peak_memory": peak_memory(),
        "relations": usable.usable.size,
        "converted": usable.converted,
        "dropped": usable.usable.dropped,
        "seed": seed,
        "notes": (*plan.notes, *remarks(plan, solved, columns), *solution.notes),
        "version": __version__,
        **(choice or {}),
        **({"columns": columns} if columns else {}),
    }
    return Metric(
        solution.kernel,
        Report(values, solution.outcome),
        rows=rows,
        solver=plan.solver,
        rank=plan.rank,
        seed=seed,
        start=space.kernel,
        columns=columns,
    )


def update(metric: Metric, rows: Any, constraints: Any, options: Mapping[str, Any]) -> Metric:
    """Return the metric that has also learned from checked rows; see `Metric.update`."""
    if "solver" in metric.missing:
        raise MissingPluginError(metric.missing["solver"].message)
    solver, before = metric.solver, metric.report
    if solver is None:
        raise InputError("a sum of metrics cannot be updated; update its parts and add them again")
    n, method = _rows.count(rows), before.get("method")
    if not solver.can_update:
        solver.update(metric, rows, as_constraint(constraints), **options)  # raises, and says why
    known = declared_methods()[0].get(str(method))
    kind = Labels if known is None else known.constraint
    found = relations(constraints, n, solver.accepts, seed=metric.seed, kind=kind)
    started = time.perf_counter()
    total, exact = n + int(before.get("n", 0)), str(before.get("representation"))
    with progress(f"update of {method} by {n} rows"), solving(solver, exact, total, method):
        solution = solver.checked(solver.update(metric, rows, found.usable, **options), metric.kernel)
    values = {
        **before._core,
        **_facts(solution),
        "n": before["n"] + n,
        "seconds": time.perf_counter() - started,
        "relations": before["relations"] + found.usable.size,
        "converted": tuple(dict.fromkeys((*before["converted"], *found.converted))),
        "dropped": before["dropped"] + found.usable.dropped,
        "notes": tuple(dict.fromkeys((*before["notes"], *solution.notes))),
        "updates": before.get("updates", 0) + 1,
    }
    stored = None
    if metric.rows is None and isinstance(metric.stored_map, FeatureMap):  # over its landmarks and the new rows
        new = _rows.take(rows, np.arange(n))
        over = _rows.stack(metric.stored_map.landmarks, new)
        stored = represent(solution.kernel, over, metric.rank, seed=metric.seed).map
    return replace(
        metric,
        kernel=solution.kernel,
        rows=None if metric.rows is None else _rows.stack(metric.rows, rows),
        report=Report(values, {**before.outcome, **solution.outcome}),
        stored_map=stored,
        origin=None if metric.origin is None else metric.origin.without_rows(),
    )


def _facts(solution: Solution) -> dict[str, Any]:
    """Return the fields of a report that a solution gives."""
    return {
        "status": str(solution.status),
        "objective": float(solution.objective),
        "gap": float(solution.gap),
        "certificate": solution.certificate,
        "n_iter": int(solution.n_iter),
        "trace": solution.trace,
    }


def _components_left_out(space: Space) -> dict[str, Any]:
    """Return the fields of a report on components: the features they are made of, and what they leave out."""
    if space.width is None or not space.has_map:
        return {}
    return {"features": space.width, "energy_left_out": space.left_out()}


def peak_memory() -> int:
    """Return the largest resident size of this process so far, in bytes (0 if the system does not report it)."""
    try:
        import resource
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else 1024 * peak)
