"""The hinge losses, which the paper treats beside the linear one: `solve` is all that the solver uses of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from metricforge.optimize import conclude
from metricforge.solver import Problem

from ..laplacian import Laplacian
from ..pairs import SignedPairs
from ..spectrum import SpectralSolution
from .dual import Dual
from .published import RULES, climb

if TYPE_CHECKING:
    from ..solver import SimpleNPKL

__all__ = ["RULES", "solve"]

LARGEST_BOUND = 1e4
"""The largest bound that stands for none, in n²."""


def solve(
    solver: SimpleNPKL, problem: Problem, L: Laplacian, pairs: SignedPairs, B: float, find: Any
) -> SpectralSolution:
    """Solve a hinge loss within tr(KK) ≤ B, or for B that stands for none, within bounds until one is not active."""
    found = _within(solver, problem, L, pairs, B, find)
    unbounded = solver.B == "unbounded"
    while unbounded and found.converged and 2 * found.squares > found.B < LARGEST_BOUND * problem.n**2:
        found = _within(solver, problem, L, pairs, 8 * found.B, find)
    value, gap = found.trace[-1]
    ended = f"after {len(found.trace)} eigenproblems with a gap of {gap:.2g} (value {value:.6g})"
    limited = len(found.trace) >= solver.max_iter
    conclude("simplenpkl", found.converged, limited, ended, "raise max_iter or tol, or lower B or C")
    return found


def _within(
    solver: SimpleNPKL, problem: Problem, L: Laplacian, pairs: SignedPairs, B: float, find: Any
) -> SpectralSolution:
    """Solve a hinge loss within tr(KK) ≤ B."""

    def step(count: int, value: float, gap: float) -> None:
        problem.step(count, solver.max_iter, objective=value, gap=gap)

    squared = solver.loss == "squared_hinge"
    dual = Dual(L, pairs, solver.C, B, squared, find, solver.tol, step)
    published = solver.steps != "bundle"
    closed = climb(dual, solver.steps, solver.max_iter) if published else dual.solve(solver.max_iter)
    assert dual.best is not None
    # the point returned has n_components columns, so the certificate is about them
    part, full = dual.best
    part = replace(part, V=L.array(L.columns.signed(dual.block(part))))
    value, factor = dual.restricted(solver.n_components or len(part.w))
    short = closed and not dual.optimal(value)
    squares = float(np.square(full * part.w).sum())
    rest = dual.products, closed, short, B, squares
    return SpectralSolution(part, factor, value, dual.lower, dual.trace, *rest)
