"""The join of rows, constraint, kernel and solver: what `learn`, `Metric.update` and tuning have in common.

A fit has four steps.  *Resolve* finds method, kernel and solver by name (`metricforge.learning`).  *Prepare* checks
rows and constraint, converts the constraint to a kind that the solver accepts, and represents the kernel on the rows.
*Solve* runs the solver with progress, a limit on threads and notes on errors, and checks its solution.  *Conclude*
writes the report.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from . import rows as _rows
from .checks import shown
from .constraints import Constraint, Labels
from .errors import InputError
from .kernels import FittedKernel, Kernel
from .problem import Method, Solution, Solver
from .registry import registry
from .registry.progress import Event
from .rows import cluster
from .space import Contrast, Size, Space, represent, space_seconds

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
    placed = _rows.spread(rows) if kernel.takes != "gram" else rows
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


@contextmanager
def progress(task: str) -> Iterator[Callable[..., None]]:
    """Send progress events for a task; yields the ``step`` of a Problem.

    The first event comes at once and the last one also after an error.  Dask tasks inside the block are counted, and
    long passes over rows repeat the last step, with the part of the pass that is done.
    """
    registry.step(Event(task))
    steps = _Steps(task)
    try:
        with cluster.watched(_Tasks(task)), _rows.listening(steps.working):
            yield steps
    finally:
        registry.step(Event(task, done=True))


@dataclass(frozen=True)
class _Tasks:
    """Sends the number of finished dask tasks."""

    task: str

    def __call__(self, finished: int, total: int) -> None:
        registry.step(Event(self.task, finished, total, info={"tasks": total}))


@dataclass
class _Steps:
    """The ``step`` of a Problem: sends one iteration of a solver."""

    task: str
    last: Event | None = None

    def __call__(self, step: int, total: int | None = None, **info: float) -> None:
        self.last = Event(self.task, step, total, info=info)
        registry.step(self.last)

    def working(self, done: int, total: int) -> None:
        """Send the last iteration again, with the part of a pass over rows that is done since."""
        last = self.last or Event(self.task)
        registry.step(replace(last, info={**last.info, "pass": done / total}))


@contextmanager
def solving(solver: Solver, representation: str, n: int, method: str | None = None) -> Iterator[None]:
    """Limit BLAS to one thread unless O(n³) work on an exact Gram matrix awaits; add a note to errors.

    NumPy's warnings are off: the solution is checked, and what is not finite is refused.

    The note names the solver, the method, and the plugin that registered them.
    """
    cubic = representation == "exact" and n > CUBIC
    try:
        with nullcontext() if cubic else cluster.one_thread(), _rows.quiet():
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


def facts(solution: Solution) -> dict[str, Any]:
    """Return the fields of a report that a solution gives."""
    return {
        "status": str(solution.status),
        "objective": float(solution.objective),
        "gap": float(solution.gap),
        "certificate": solution.certificate,
        "n_iter": int(solution.n_iter),
        "trace": solution.trace,
    }
