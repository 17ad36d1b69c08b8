"""The metric before learning, with which every other method is compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from metricforge.constraints import Constraint, Labels
from metricforge.kernels import Linear, Standardized
from metricforge.solver import Certificate, Method, Problem, Solution, Solver, Status
from metricforge.space import rows_seconds


@dataclass(frozen=True)
class Euclidean(Solver):
    """Return the base kernel unchanged; the constraint is checked and otherwise not used.

    Nothing is optimised, so the objective and the gap are 0.  Cost: none.
    """

    accepts: ClassVar[tuple[type[Constraint], ...]] = (Constraint,)

    def _solve(self, problem: Problem) -> Solution:
        certificate = Certificate("nothing is optimised", 0.0)
        return Solution(problem.kernel, Status.OPTIMAL, objective=0.0, certificate=certificate)


METHOD = Method(
    constraint=Labels,
    kernel=Standardized(Linear(), by="range"),
    solver=Euclidean(),
    baseline=True,
    cost=rows_seconds,
    memory=lambda size: 0,  # features are computed when they are asked for
)
