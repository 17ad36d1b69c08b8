"""learn(): the join of rows, hints, kernel and solver."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from . import __version__, cluster
from . import rows as _rows
from .constraints import Constraint, Labels, Pairs
from .errors import InputError, UnknownNameError, first_rows, nearest, whole_number
from .kernels import Kernel
from .metric import Metric, Report
from .problem import Method, Problem, Solution, Solver
from .progress import Event
from .registry import registry
from .space import Space, represent

CUBIC = 1000
"""Rows beyond which factors of their full Gram matrix take most of the time, and BLAS may use all its threads."""
AUTO = {
    "labels": ("kcr", "krca"),
    "pairs": ("idealized", "krca"),
    "chunklets": ("krca",),
    "triplets": ("lpdesign", "krca"),
}
"""What ``method="auto"`` takes for each kind of hint, the first that is installed; ``euclidean`` where none is."""


def learn(
    X: Any,
    constraints: Any,
    *,
    method: str = "auto",
    kernel: Kernel | Metric | str | None = None,
    solver: Solver | None = None,
    rank: str | int = "auto",
    seed: int = 0,
    **options: Any,
) -> Metric:
    """Learn a metric on the rows of X from hints about their likeness.

    Parameters
    ----------
    X : rows
        A dense or CSR array, a pandas or polars frame, a list, a dask array; strings for kernels on strings.  A dask
        array is learned from chunk by chunk, on the active ``distributed.Client`` where there is one; with a client,
        rows in memory are sent to its workers.
    constraints : Labels, Pairs, Chunklets or Triplets
        Over the rows of X.  A bare 1-d array means Labels.  Kinds that the method cannot use are converted, and the
        report says so.
    method : str
        A registered method (see ``mf.methods()``); "auto" chooses by the kind of hint.
    kernel : Kernel, Metric or name, optional
        What to start from; default: the method's own.  A learned metric can be the start of the next fit.
    solver : Solver, optional
        A configured solver in place of the method's.
    rank : "auto", "exact" or int
        How the kernel is represented: see `metricforge.space.represent`.
    seed : int
        Same seed, same answer.
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
    solver: Solver | None = None,
) -> Metric:
    """Learn as `learn` does, on rows whose columns have these names; the report keeps them."""
    plan = make_plan(method, kernel, solver, constraints)
    configured = with_options(plan.solver, options, plan.name)
    seed = whole_number(seed, "seed", least=0)

    rows = plan.kernel.check(X, "X")
    relations = as_constraint(constraints, "constraints")
    relations.check(_rows.count(rows))
    if relations.size == 0:
        lost = f" ({relations.dropped} were dropped by slicing)" if relations.dropped else ""
        raise InputError(f"constraints holds no relation over these {relations.n} rows{lost}; give at least one")
    usable, converted = registry.convert(relations, configured.accepts, seed=seed)
    task = f"{plan.name} on {_rows.count(rows)} rows"
    started = time.perf_counter()
    registry.step(Event(task))
    try:
        with cluster.watched(_Tasks(task)):
            at_work = _rows.spread(rows) if plan.kernel.takes != "gram" else rows
            space = represent(plan.kernel.resolve(at_work, seed=seed), at_work, rank, seed=seed)
            _check_scale(space)
            solution = _solved(configured, Problem(space, usable, seed, _Steps(task)), plan)
    finally:
        registry.step(Event(task, done=True))
    seconds = time.perf_counter() - started

    told = {
        "method": plan.name,
        "kernel": _in_short(space.kernel),
        "solver": repr(configured),
        **_outcome(solution),
        "n": space.n,
        "representation": space.representation,
        "rank": space.rank,
        "seconds": seconds,
        "peak_memory": peak_memory(),
        "relations": usable.size,
        "converted": converted,
        "dropped": usable.dropped,
        "seed": seed,
        "notes": (*plan.notes, *_remarks(space, relations, names), *solution.notes),
        "version": __version__,
    }
    report = Report({**told, **({"columns": tuple(names)} if names else {}), **solution.report})
    return Metric(solution.kernel, report, rows=rows, solver=configured, rank=rank, seed=seed)


# ------------------------------------------------------------------------------------------------------- before the fit


@dataclass(frozen=True)
class Plan:
    """Names resolved to objects."""

    name: str
    kernel: Kernel
    solver: Solver
    origin: str = ""
    notes: tuple[str, ...] = ()


def make_plan(method: str, kernel: Any, solver: Solver | None, constraints: Any) -> Plan:
    """Resolve method, kernel and solver to objects."""
    if not isinstance(method, str):
        raise InputError(f"method must be the name of a method, got {method!r}; {nearest('', _method_names())}")
    if solver is not None and not isinstance(solver, Solver):
        raise InputError(f"solver must be a Solver instance or None, got {solver!r}")
    notes: tuple[str, ...] = ()
    if method == "auto":
        method, notes = _choose(as_constraint(constraints, "constraints"), solver)
    triple = find_method(method)
    if solver is not None and type(solver) is not type(triple.solver):
        notes = (*notes, f"{type(solver).__name__} was asked to solve in place of {method}'s own solver")
    chosen = find_kernel(kernel) if kernel is not None else triple.kernel
    entry = registry.entry("method", method)
    return Plan(method, chosen, solver or triple.solver, f" (plugin {entry.plugin!r})", notes)


def find_method(name: str) -> Method:
    """Return a registered method."""
    found = registry.get("method", name)
    if not isinstance(found, Method):
        raise InputError(f"method {name!r} is registered as a {type(found).__name__}; its target must be a mf.Method")
    return found


def find_kernel(kernel: Any) -> Kernel:
    """Return the kernel that a user meant: an instance, a registered name, or a learned metric."""
    if isinstance(kernel, Metric):
        return kernel.kernel
    if isinstance(kernel, Kernel):
        return kernel
    if not isinstance(kernel, str):
        example = f"{kernel.__name__}()" if isinstance(kernel, type) else "mf.kernels.RBF()"
        raise InputError(f"kernel must be a Kernel, a Metric or a name, got {kernel!r}; write for instance {example}")
    made = registry.get("kernel", kernel)
    try:
        return made() if isinstance(made, type) else made  # type: ignore[no-any-return]
    except TypeError as error:
        raise InputError(f"kernel={kernel!r} needs parameters ({error}); give an instance instead") from None


def as_constraint(value: Any, name: str) -> Constraint:
    """Return a Constraint; a bare 1-d array means Labels."""
    if isinstance(value, Constraint):
        return value
    if value is None:
        raise InputError(
            f"{name} is missing: give labels y, or mf.Pairs, mf.Chunklets or mf.Triplets over the rows of X"
        )
    try:
        shape = np.shape(value) if not hasattr(value, "shape") else value.shape
    except ValueError:
        raise InputError(f"{name} must be labels (1-d) or a constraint, got lists of unequal lengths") from None
    if len(shape) == 1 or (len(shape) == 2 and shape[1] == 1):
        return Labels(value)
    wrap = {2: "mf.Pairs(similar=..., n=len(X))", 3: "mf.Triplets(..., n=len(X))"}.get(shape[-1] if shape else 0)
    raise InputError(
        f"{name} must be labels (1-d) or a constraint, got an array of shape {tuple(shape)}; "
        f"wrap row numbers as {wrap or 'mf.Pairs or mf.Triplets'}"
    )


def with_options(solver: Solver, options: Mapping[str, Any], method: str) -> Solver:
    """Return the solver with the given options set; unknown ones are an error that names the nearest."""
    if not options:
        return solver
    known = [f.name for f in fields(solver) if f.init]  # type: ignore[arg-type]
    unknown = [name for name in options if name not in known]
    if unknown:
        raise UnknownNameError(f"option {unknown[0]!r} is unknown to method {method!r}; {nearest(unknown[0], known)}")
    return replace(solver, **options)  # type: ignore[type-var]


def method_of(solver: Solver) -> str | None:
    """Return the method that a solver belongs to, or None for a solver of nobody's."""
    names = (name for name in _method_names() if type(find_method(name).solver) is type(solver))
    return next(names, None)


def _choose(constraint: Constraint, solver: Solver | None) -> tuple[str, tuple[str, ...]]:
    own = method_of(solver) if solver is not None else None
    if own is not None:
        return own, ()
    entry = registry.entry_of("constraint", type(constraint))
    wanted = AUTO.get(entry.name if entry else "", ())
    taken = next((name for name in wanted if name in _method_names()), "euclidean")
    if not wanted or taken == wanted[0]:
        return taken, ()
    return taken, (f"method {wanted[0]!r} is not installed: {taken!r} was taken instead",)


def _method_names() -> list[str]:
    return [e.name for e in registry.entries("method")]


# ----------------------------------------------------------------------------------------------------- during and after


def _solved(solver: Solver, problem: Problem, plan: Plan) -> Solution:
    try:
        with _threads(problem.space):
            return solver.solve(problem)
    except Exception as error:
        error.add_note(f"in solver {type(solver).__name__} of method {plan.name!r}{plan.origin}")
        raise


def _threads(space: Space) -> AbstractContextManager[None]:
    """Return the context in which a problem is solved: one thread of BLAS, unless cubic work on all rows awaits."""
    return nullcontext() if space.representation == "exact" and space.n > CUBIC else cluster.one_thread()


@dataclass(frozen=True)
class _Tasks:
    """What is told of dask tasks: how many of those sent off are done."""

    task: str

    def __call__(self, finished: int, total: int) -> None:
        registry.step(Event(self.task, finished, total, info={"tasks": total}))


@dataclass(frozen=True)
class _Steps:
    """What a solver calls once an iteration."""

    task: str

    def __call__(self, step: int, total: int | None = None, **info: float) -> None:
        registry.step(Event(self.task, step, total, info=info))


def _check_scale(space: Space) -> None:
    """Raise early where the kernel overflows on the rows, seen on a sample of them."""
    sample = _rows.take(space.rows, _rows.draw(space.n, 1000, space.seed))
    with np.errstate(over="ignore", invalid="ignore"):
        if not np.isfinite(space.kernel.diag(sample)).all():
            raise InputError("X: k(x, x) overflows on some rows; rescale X, for instance with StandardScaler")


def _outcome(solution: Solution) -> dict[str, Any]:
    return {
        "status": str(solution.status),
        "objective": float(solution.objective),
        "gap": float(solution.gap),
        "certificate": solution.certificate,
        "n_iter": int(solution.n_iter),
        "trace": solution.trace,
    }


def _in_short(kernel: Kernel) -> str:
    """Return the text of a kernel on one line, with the ends of arrays only: a learned one holds whole matrices."""
    with np.printoptions(threshold=6, edgeitems=1):
        return " ".join(repr(kernel).split())


def _remarks(space: Space, constraint: Constraint, names: Sequence[str] | None) -> tuple[str, ...]:
    """Return what is odd about the data without being wrong."""
    if _rows.is_dask(space.rows):
        return ()
    said = []
    if space.kernel.takes == "vectors" and space.n > 1:
        X = space.rows
        low, high = X.min(axis=0), X.max(axis=0)
        if _rows.is_sparse(X):
            low, high = low.toarray().ravel(), high.toarray().ravel()
        constant = np.flatnonzero(low == high)
        if len(constant):
            where = first_rows(constant).replace("row", "column")
            if names:
                where = ", ".join(repr(names[c]) for c in constant[:5]) + ", ..." * (len(constant) > 5)
            said.append(f"{len(constant)} feature(s) are constant and carry no information ({where})")
    if isinstance(constraint, Pairs) and len(constraint.dissimilar):
        apart = _rows.map_relations(space.kernel.paired_squared_distance, space.rows, constraint.dissimilar)
        stuck = np.flatnonzero(apart == 0)
        if len(stuck):
            said.append(
                f"{len(stuck)} dissimilar pair(s) join identical rows, which no metric can tell apart "
                f"(first pair {tuple(constraint.dissimilar[stuck[0]].tolist())})"
            )
    return tuple(said)


def peak_memory() -> int:
    """Return the largest resident size this process has had, in bytes (0 where the system does not tell)."""
    try:
        import resource
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else 1024 * peak)
