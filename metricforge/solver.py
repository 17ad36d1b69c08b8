"""The interface between the core and a method: Problem, Solution, Certificate, Solver and Method."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field, fields, is_dataclass, replace
from enum import StrEnum
from typing import Any, ClassVar, Literal, Self
from weakref import WeakKeyDictionary

import numpy as np

from .constraints import Constraint
from .errors import InputError, NotAcceptedError, NotUpdatableError, SolverError
from .kernels import Kernel
from .rows import Array, count, draw, is_dask, is_sparse, quiet, take
from .space import Size, Space, Terms, evaluate, rows_seconds, space_bytes, space_seconds
from .validation import one_of

MEASURED_ROWS = 100
"""Rows whose distances are computed to check a learned kernel."""
INDEFINITE = 1e-6
"""A squared distance below minus this share of the largest k(x, y) is no rounding."""
ROUNDED = 1e-12
"""The same as a share of the largest k(x, y) before learning: a learned kernel may be 0 up to rounding."""


class Status(StrEnum):
    """Why a solver stopped."""

    OPTIMAL = "optimal"
    """The certificate is within the tolerance that the user asked for."""
    STATIONARY = "stationary"
    """The problem is not convex: the gradient is within the tolerance, and other local optima may exist."""
    TRUNCATED = "truncated"
    """Restricted to the rank that was asked for; the certificate is about kernels of any rank."""
    STALLED = "stalled"
    """No step improved the certificate further, before it was within the tolerance and before the limits."""
    ITERATION_LIMIT = "iteration_limit"
    TIME_LIMIT = "time_limit"


def _silent(step: int, total: int | None = None, **info: float) -> None:
    """Discard a progress report."""


@dataclass(frozen=True, eq=False)
class Problem:
    """A kernel on rows, and a constraint over the rows.

    Attributes
    ----------
    space : Space
        The rows, the resolved base kernel and its features: ``space.features`` (n, m) and ``space.map`` are computed
        on first use.  On a dask array the features are lazy.
    constraint : Constraint
        Of a kind that the solver accepts, over ``n`` rows.
    seed : int
    step : callable
        ``step(k, total=None, **info)`` reports progress: iteration ``k`` of ``total`` (None if unknown), and numbers
        by name, for instance ``gap``.  Call it once per iteration.
    """

    space: Space
    constraint: Constraint
    seed: int = 0
    # a factory, because a function as class attribute would be documented as a method without its first argument
    step: Callable[..., None] = field(default_factory=lambda: _silent)

    @property
    def kernel(self) -> Kernel:
        """The base kernel."""
        return self.space.kernel

    @property
    def rows(self) -> Any:
        """The checked rows of X."""
        return self.space.rows

    @property
    def n(self) -> int:
        """The number of rows."""
        return count(self.space.rows)


# ------------------------------------------------------------------------------------------------------------ solutions

_NOUNS = {
    "gap": "duality gap",
    "bound": "objective minus lower bound",
    "residual": "residual of the optimality conditions",
    "gradient": "gradient norm",
}


@dataclass(frozen=True, eq=False)
class Certificate:
    """A number that bounds or measures how far a solution is from an optimum.

    Parameters
    ----------
    kind : str
        "gap": objective minus the value of a dual feasible point.  "bound": objective minus another lower bound on the
        optimum.  "residual": norm of the residual of the optimality conditions.  "gradient": norm of the gradient, for
        problems that are not convex.  Any other string is shown as it is.
    value : float
    scale : float, optional
        The magnitude that ``value`` is relative to, usually that of the objective; None if there is none, or if
        ``value`` is relative already.
    definition : str, optional
        What exactly ``value`` is, for instance "relative KKT residual along a random direction".  ``str(certificate)``
        returns it; default: the usual term for the kind.

    Notes
    -----
    A certificate is equal to another one with the same fields, and to the string that it prints as.
    """

    kind: str
    value: float
    scale: float | None = None
    definition: str = ""

    @property
    def relative(self) -> float | None:
        """``value / scale``, or None without a scale."""
        return self.value / self.scale if self.scale else None

    def describe(self) -> str:
        """Return kind and value as a part of a sentence: "duality gap 1e-06, relative 2e-07"."""
        if self.kind not in _NOUNS and self.value == 0:
            return self.kind  # such as "closed form"
        relative = "" if self.relative is None else f", relative {self.relative:.2g}"
        return f"{_NOUNS.get(self.kind, self.kind)} {self.value:.2g}{relative}"

    def __str__(self) -> str:
        return self.definition or _NOUNS.get(self.kind, self.kind)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return str(self) == other
        if not isinstance(other, Certificate):
            return NotImplemented
        return all(getattr(self, f.name) == getattr(other, f.name) for f in fields(self))

    def __hash__(self) -> int:
        return hash(str(self))


@dataclass(frozen=True, eq=False)
class Solution:
    """The result of a solver.

    Attributes
    ----------
    kernel : Kernel
        The learned kernel.
    status : Status
    objective : float
        The value that the solver's documentation defines.
    gap : float
        The value of the certificate; may be left out if ``certificate`` is a Certificate.
    certificate : Certificate or str
        A string is the kind of a certificate with the value ``gap``.
    n_iter : int
    trace : tuple of (objective, gap)
        One entry per iteration, or as the solver documents.
    outcome : mapping
        What the method's page lists under Outcome: numbers, strings, arrays.  ``metric.report.outcome`` shows it.
    notes : tuple of str
        Sentences that the user should read.
    report : mapping
        An earlier name of ``outcome``.
    """

    kernel: Kernel
    status: Status
    objective: float
    gap: float = math.nan
    certificate: Certificate | str = "gap"
    n_iter: int = 0
    trace: tuple[tuple[float, float], ...] = ()
    outcome: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    report: InitVar[Mapping[str, Any] | None] = None

    def __post_init__(self, report: Mapping[str, Any] | None) -> None:
        certificate, gap = self.certificate, self.gap
        if not isinstance(certificate, Certificate):
            certificate = Certificate(certificate, gap)
        elif math.isnan(gap):
            gap = certificate.value
        elif gap != certificate.value:
            raise SolverError(f"a Solution has gap={gap}, but the value of its certificate is {certificate.value}")
        object.__setattr__(self, "certificate", certificate)
        object.__setattr__(self, "gap", gap)
        if report is not None and not self.outcome:
            object.__setattr__(self, "outcome", report)


Solution.report = property(lambda solution: solution.outcome)  # type: ignore[attr-defined]


# -------------------------------------------------------------------------------------------------- solvers and methods


class Solver(ABC):
    """Learns a kernel from a Problem.  Subclasses are frozen dataclasses whose fields are the options.

    A solver lists the kinds of constraint it can use in ``accepts`` and defines ``_solve``.  It takes features or Gram
    rows from ``problem.space`` and never builds an n × n array itself.
    """

    accepts: ClassVar[tuple[type[Constraint], ...]]

    @abstractmethod
    def _solve(self, problem: Problem) -> Solution:
        """Return the solution of a problem whose constraint has been checked."""

    def solve(self, problem: Problem) -> Solution:
        """Check the constraint, solve, and raise if the solution is not finite or has no distances."""
        if not isinstance(problem.constraint, self.accepts):
            wanted = " or ".join(kind.__name__ for kind in self.accepts)
            got = type(problem.constraint).__name__
            raise NotAcceptedError(
                f"{type(self).__name__} accepts {wanted}, got {got}; convert first, "
                f"for instance with constraint.to(mf.{self.accepts[0].__name__}), or choose another method"
            )
        problem.constraint.check(problem.n)
        solution = self.checked(self.plain()._solve(problem))
        if not is_dask(problem.rows) and problem.kernel.takes != "gram":
            X = take(problem.rows, draw(problem.n, MEASURED_ROWS, problem.seed))
            self._check_distances(solution.kernel, problem.kernel, X)
        return solution

    @property
    def definite(self) -> bool:
        """Whether what it learns is positive semidefinite."""
        return True

    def _check_distances(self, kernel: Kernel, start: Kernel, X: Any) -> None:
        """Raise unless a learned kernel has finite distances between some of the rows that it was learned from."""
        name, reason = type(self).__name__, "they overflow"
        try:
            with quiet():
                lowest = _lowest(kernel, X)
                if lowest and self.definite and lowest < -ROUNDED * np.abs(start.block(X, X)).max():
                    if _lowest(start, X):
                        raise InputError("kernel: it is indefinite, no squared distance between rows of X is positive")
                    raise SolverError(
                        f"{name} returned an indefinite kernel, with squared distances down to {lowest:.3g} between "
                        "rows of X; project its matrix with mf.psd.project"
                    )
                if np.isfinite(kernel.squared_distance(X, X)).all():
                    return
        except InputError as error:
            reason = str(error)
        raise InputError(
            f"X: {name} learns distances that cannot be computed ({reason}); rescale X, for instance with "
            "StandardScaler"
        )

    def plain(self) -> Self:
        """Return this solver with NumPy's numbers in its options as Python's, whose arithmetic does not overflow."""
        # a solver without options need be no dataclass
        names: list[str] = [f.name for f in fields(self) if f.init] if is_dataclass(self) else []
        options = {name: getattr(self, name) for name in names}
        numpy = {name: value.item() for name, value in options.items() if isinstance(value, np.number)}
        return replace(self, **numpy) if numpy else self  # type: ignore[type-var]

    def checked(self, solution: Solution, since: Kernel | None = None) -> Solution:
        """Return the solution, or raise SolverError if it is not a Solution or not finite.

        ``since`` is a kernel that was checked before: what the solution shares with it is not checked again.
        """
        if not isinstance(solution, Solution):
            raise SolverError(f"{type(self).__name__} returned a {type(solution).__name__}, expected mf.Solution")
        check_finite(solution, self, since=since)
        return solution

    @property
    def can_update(self) -> bool:
        """Whether a metric learned by this solver can be updated with new rows."""
        return type(self).update is not Solver.update

    def update(self, metric: Any, X: Any, constraint: Constraint, **options: Any) -> Solution:
        """Return the solution after new rows and relations; optional.

        ``metric.kernel`` is the kernel that this solver returned; it must contain all that is needed of the earlier
        rows.  ``constraint`` is of an accepted kind, over the rows of X.  ``metric`` must not be changed.
        """
        raise NotUpdatableError(
            f"a metric learned by {type(self).__name__} cannot be updated; learn again on all rows with mf.learn"
        )


def _lowest(kernel: Kernel, X: Any) -> float:
    """Return the lowest squared distance where none is positive and some are negative beyond rounding; else 0."""
    K = kernel.block(X, X)
    D = K.diagonal()[:, None] + K.diagonal() - 2.0 * K
    negative = D.max() <= 0 and D.min() < -INDEFINITE * np.abs(K).max()
    return float(D.min()) if negative else 0.0


@dataclass(frozen=True)
class Use:
    """A kind of constraint for which ``method="auto"`` may take a method, and within which limits that was measured.

    Parameters
    ----------
    constraint : Constraint class
    order : int
        The position in which "auto" tries the method for this kind, smallest first.
    most_rows : int, optional
        The largest number of rows.
    takes : tuple of str
        What rows may be, as `Kernel.takes` says; default: anything.
    dask : bool
        Whether rows may be on dask.
    when : callable, optional
        Takes a constraint of this kind; returns whether it has the relations that the method needs.
    check_from : float
        The number of relations per row from which a check on held-out relations is fair.  With fewer, the part of the
        relations that a fold learns from is too small to say what all of them give.
    rival : bool
        Whether "auto" compares the method with its first choice where relations are too few to compare that one with
        the start: two metrics that learn from the same part of the relations can be compared.
    setting : dict
        Keyword arguments of ``mf.learn`` that "auto" passes here, where others than the method's defaults are better
        within these limits.  A kernel or a rank of the call takes the place of that of the setting.
    """

    constraint: type[Constraint]
    order: int
    _: KW_ONLY
    most_rows: int | None = None
    takes: tuple[str, ...] = ()
    dask: bool = True
    when: Callable[[Any], bool] | None = None
    check_from: float = 0.0
    rival: bool = False
    setting: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Method:
    """A named triple of constraint, kernel and solver, and what the method declares about itself.

    Parameters
    ----------
    constraint : Constraint class
        The kind that the method is meant for.
    kernel : Kernel
        The kernel it starts from by default.
    solver : Solver
        With its default options.
    order : int, optional
        The position in which ``method="auto"`` tries this method for constraints of this kind, whatever the rows,
        smallest first; None: "auto" does not choose it, except for ``uses``.
    uses : sequence of Use
        Further kinds, or the same kind within limits, for which "auto" may choose the method.
    settings : sequence of dict
        A few other settings worth trying: keyword arguments of ``mf.learn``.
    rank : "exact" or int, optional
        What ``rank="auto"`` means for this method on kernels without explicit features; default: as in
        `metricforge.space.represent`.
    cost : dict or callable, optional
        The forecast CPU time of a fit with default options; ``rank="auto"`` is the largest rank whose forecast is
        within the budget.  A dict has nanoseconds by products of sizes, for instance ``{"pmm": 8, "": 5e6}`` for
        8 p m² + 5·10⁶ with p relations and m features, and n rows of d columns, beside what the features of all rows
        cost.  A callable takes a `metricforge.space.Size` and returns the seconds of the whole fit; it must depend on
        nothing else, and must not decrease in ``m``.  Default: what the features cost.
    memory : dict or callable, optional
        The forecast of the peak memory of a fit with default options in bytes, blocks of rows not included.  A dict is
        as above, and the forecast is at least that of the features; a callable returns the whole.  A fit on rows in
        memory that would exceed the memory budget is refused.  Default: that of the features.
    explicit_columns : int, optional
        The widest explicit features that ``rank="auto"`` passes to the solver; default 1000.
    scale_free : bool or callable
        Whether the learned metric does not depend on the scales of the columns; a callable takes the kernel and the
        solver of the fit.
    baseline : bool
        Whether the method learns nothing and only serves for comparison.
    provides : tuple of str
        Values of its outcome that other parts of the library ask for by name, for instance "radius".
    ranks_by : {"distance", "kernel"}
        What the method learns to rank rows by: a small distance, or a large k(x, y).  ``metric.report.ranks_by`` has
        it, and commands that rank rows follow it.
    """

    constraint: type[Constraint]
    kernel: Kernel
    solver: Solver
    _: KW_ONLY
    order: int | None = None
    settings: Sequence[Mapping[str, Any]] = field(default=(), hash=False)
    rank: str | int | None = None
    cost: Terms | Callable[[Size], float] = field(default_factory=dict, hash=False)
    memory: Terms | Callable[[Size], float] = field(default_factory=dict, hash=False)
    explicit_columns: int | None = None
    scale_free: bool | Callable[[Kernel, Solver], bool] = False
    baseline: bool = False
    uses: Sequence[Use] = field(default=(), hash=False)
    provides: tuple[str, ...] = ()
    ranks_by: Literal["distance", "kernel"] = "distance"

    def __post_init__(self) -> None:
        one_of(self.ranks_by, "ranks_by", ("distance", "kernel"))
        for name, terms in (("cost", self.cost), ("memory", self.memory)):
            wrong = [term for term in (() if callable(terms) else terms) if set(term) - set("ndmp")]
            if wrong:
                raise InputError(
                    f"{name} has the term {wrong[0]!r}; write products of n, d, m and p, for instance 'nmm'"
                )

    @property
    def declared_uses(self) -> tuple[Use, ...]:
        """All uses, that of ``order`` included."""
        own = () if self.order is None else (Use(self.constraint, self.order),)
        return (*self.uses, *own)

    def forecast(self, size: Size) -> float:
        """Return the forecast CPU seconds of a fit of this size."""
        if callable(self.cost):
            return self.cost(size)
        return rows_seconds(size) + space_seconds(size) + 1e-9 * evaluate(self.cost, size)

    def peak(self, size: Size) -> int:
        """Return the forecast peak memory of a fit of this size in bytes."""
        return int(self.memory(size) if callable(self.memory) else max(space_bytes(size), evaluate(self.memory, size)))

    def ignores_scales(self, kernel: Kernel, solver: Solver) -> bool:
        """Return whether a fit with this kernel and solver does not depend on the scales of the columns."""
        return self.scale_free(kernel, solver) if callable(self.scale_free) else self.scale_free


def check_finite(value: Any, solver: Solver, name: str = "solution", since: Any = None) -> None:
    """Raise SolverError if a number or array inside a solver's result is not finite; ``since`` is not checked again."""
    bad = _not_finite([(name, value)], _Shared(since))
    if bad:
        raise SolverError(f"{type(solver).__name__} returned a solution that is not finite: {bad}")


class _Shared:
    """The fields of a component that was checked before, to recognise them in another."""

    def __init__(self, component: Any) -> None:
        values = [getattr(component, name) for name in _field_names(type(component))]
        self._objects = {id(value) for value in values}
        self._views = {id(v.base): v for v in values if isinstance(v, np.ndarray) and v.ndim == 1}

    def contains(self, value: Any) -> bool:
        """Return whether ``value`` is one of the fields."""
        return id(value) in self._objects

    def rest(self, value: Array) -> Array:
        """Return what follows in an array whose first entries are the memory of a field, both views of a buffer."""
        known = None if value.base is None else self._views.get(id(value.base))
        if known is None or value.ndim != 1 or _address(known) != _address(value):
            return value
        return value[len(known) :]


def _address(value: Array) -> tuple[int, np.dtype[Any], tuple[int, ...]]:
    return value.__array_interface__["data"][0], value.dtype, value.strides  # value.ctypes takes ten times as long


def _field_names(kind: type[Any]) -> tuple[str, ...]:
    """Return the fields of a type of component; none for other types."""
    if kind not in _FIELDS:
        _FIELDS[kind] = tuple(f.name for f in fields(kind)) if is_dataclass(kind) else ()
    return _FIELDS[kind]


_FIELDS: WeakKeyDictionary[type[Any], tuple[str, ...]] = WeakKeyDictionary()


_PLAIN = frozenset((str, int, bool, type(None)))
"""Types of values that have nothing to check: asked first, because most values are of these."""
_WHOLE, _NUMPY = (str, int), (np.ndarray, np.floating)


def _not_finite(parts: Iterable[tuple[Any, Any]], shared: _Shared) -> str:
    """Return the path of the first number or array among named parts, or inside one, that is not finite; or ''."""
    for name, part in parts:
        kind = type(part)
        if kind in _PLAIN:
            continue
        if kind is float or isinstance(part, float):
            if not math.isfinite(part):
                return str(name)
        elif isinstance(part, _WHOLE) or shared.contains(part) or is_dask(part):
            continue
        elif isinstance(part, _NUMPY) or is_sparse(part):
            values = np.asarray(part.data if is_sparse(part) else part)
            if values.dtype.kind == "f" and not np.isfinite(shared.rest(values)).all():
                return str(name)
        else:
            bad = _not_finite(_inside(part), shared)
            if bad:
                return f"{name}.{bad}"
    return ""


def _inside(value: Any) -> Iterable[tuple[Any, Any]]:
    """Return the parts of a value, with their names or numbers."""
    if isinstance(value, list | tuple):
        return enumerate(value)
    if isinstance(value, Mapping):
        return value.items()
    return [(field, getattr(value, field)) for field in _field_names(type(value))]
