"""The metric before learning: what every other method is compared with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from metricforge.constraints import Constraint, Labels
from metricforge.kernels import Linear
from metricforge.problem import Method, Problem, Solution, Solver, Status


@dataclass(frozen=True)
class Euclidean(Solver):
    """Return the base kernel unchanged; the hints are checked and otherwise not used.

    Nothing is optimised, so the objective and the gap are 0.  Cost: none.
    """

    accepts: ClassVar[tuple[type[Constraint], ...]] = (Constraint,)

    def _solve(self, problem: Problem) -> Solution:
        return Solution(problem.kernel, Status.OPTIMAL, objective=0.0, gap=0.0, certificate="nothing is optimised")


METHOD = Method(constraint=Labels, kernel=Linear(), solver=Euclidean())
