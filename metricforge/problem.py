"""What a solver is given, what it gives back, and what a method is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import StrEnum
from typing import Any, ClassVar

import numpy as np

from .constraints import Constraint
from .errors import NotAcceptedError, NotUpdatableError, SolverError
from .kernels import Kernel
from .rows import count, is_dask, is_sparse
from .space import Space


class Status(StrEnum):
    """How a solver ended."""

    OPTIMAL = "optimal"
    ITERATION_LIMIT = "iteration_limit"
    TIME_LIMIT = "time_limit"


def _silent(step: int, total: int | None = None, **info: float) -> None:
    """Report progress to nobody."""


@dataclass(frozen=True, eq=False)
class Problem:
    """A kernel on rows and a constraint over them.

    Attributes
    ----------
    space : Space
        The rows, the resolved base kernel and, when asked for, its features: ``space.features`` (n, m),
        ``space.map``.  On a dask array the features are lazy.
    constraint : Constraint
        Of a kind the solver accepts, over ``n`` rows.
    seed : int
    step : callable
        ``step(k, total, gap=...)`` reports progress; call it once an iteration.
    """

    space: Space
    constraint: Constraint
    seed: int = 0
    step: Callable[..., None] = _silent

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


@dataclass(frozen=True, eq=False)
class Solution:
    """What a solver returns.

    Attributes
    ----------
    kernel : Kernel
        The learned one.
    status : Status
    objective : float
        In the terms of the solver's documentation.
    gap : float
        The certificate: an upper bound on objective − optimum, or the norm of the KKT residual.
    certificate : str
        Which of the two, in words.
    n_iter : int
    trace : tuple of (objective, gap)
        One entry an iteration, or as the solver documents.
    report : mapping
        What the method's page lists under Outcome; numbers, strings and arrays.
    notes : tuple of str
        Sentences the user should read.
    """

    kernel: Kernel
    status: Status
    objective: float
    gap: float
    certificate: str = "duality gap"
    n_iter: int = 0
    trace: tuple[tuple[float, float], ...] = ()
    report: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class Solver(ABC):
    """Learns a kernel from a Problem.  Subclasses are frozen dataclasses whose fields are the options.

    A solver names the kinds of constraint it can use in ``accepts`` and defines ``_solve``.  It takes features or Gram
    rows from ``problem.space`` and never builds an n × n array itself.
    """

    accepts: ClassVar[tuple[type[Constraint], ...]]

    @abstractmethod
    def _solve(self, problem: Problem) -> Solution:
        """Return the solution of a problem whose constraint has been checked."""

    def solve(self, problem: Problem) -> Solution:
        """Check the constraint, solve, and refuse to hand on anything that is not finite."""
        if not isinstance(problem.constraint, self.accepts):
            wanted = " or ".join(kind.__name__ for kind in self.accepts)
            got = type(problem.constraint).__name__
            raise NotAcceptedError(
                f"{type(self).__name__} accepts {wanted}, got {got}; convert first, "
                f"for instance with constraint.to(mf.{self.accepts[0].__name__}), or choose another method"
            )
        problem.constraint.check(problem.n)
        solution = self._solve(problem)
        bad = _not_finite(solution)
        if bad:
            raise SolverError(f"{type(self).__name__} returned a solution that is not finite: {bad}")
        return solution

    @property
    def can_update(self) -> bool:
        """Whether a metric learned by this solver can take new rows."""
        return type(self).update is not Solver.update

    def update(self, metric: Any, X: Any, constraint: Constraint, **options: Any) -> Solution:
        """Return the solution after new rows and relations; only solvers that can do so define it.

        ``metric.kernel`` is what this solver returned; all it needs of the earlier rows must be in there.  ``metric``
        must stay as it is, and the new solution must be finite.
        """
        raise NotUpdatableError(
            f"a metric learned by {type(self).__name__} cannot be updated; learn again on all rows with mf.learn"
        )


@dataclass(frozen=True)
class Method:
    """A named triple: the kind of hint it is meant for, the kernel it starts from, and the solver."""

    constraint: type[Constraint]
    kernel: Kernel
    solver: Solver


def _not_finite(value: Any, path: str = "solution") -> str:
    """Return the path of the first number or array inside a component that is not finite, or ''."""
    if is_dask(value):
        return ""
    if is_sparse(value):
        value = value.data
    if isinstance(value, np.ndarray | float | np.floating):
        kind = np.asarray(value).dtype.kind
        return path if kind == "f" and not np.isfinite(value).all() else ""
    if is_dataclass(value) and not isinstance(value, type):
        inside = [(f.name, getattr(value, f.name)) for f in fields(value)]
    elif isinstance(value, Mapping):
        inside = [(str(k), v) for k, v in value.items()]
    elif isinstance(value, list | tuple):
        inside = [(str(i), v) for i, v in enumerate(value)]
    else:
        return ""
    return next((bad for name, part in inside if (bad := _not_finite(part, f"{path}.{name}"))), "")
