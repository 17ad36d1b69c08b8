"""The programs of the other cones; `program` and `optimise` are all that the solver uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from metricforge.rows import Array, as_float64, take
from metricforge.space import check_memory

from . import semidefinite
from .dominance import DENSE_BYTES, BlockedDominance, DenseDominance, Dominance, change_basis, gram_stack

if TYPE_CHECKING:
    from ..generation import BestDesign, ColumnGeneration
    from ..solver import Design, LPDesign

ROUNDS = 10
"""Maximal number of changes of basis; four give most of the gain between dominance and positive semidefiniteness."""
WORTHWHILE = 1e-3
"""Stop after a change of basis that lowers the cost by less than this share."""


def program(design: Design, solver: LPDesign) -> ColumnGeneration | semidefinite.SemidefiniteProgram:
    """Return the program of the solver's cone (the first one, for change-of-basis) without penalties."""
    if solver.cone == "sdp":
        times = design.times.astype(np.float64)
        return semidefinite.SemidefiniteProgram(
            design.margins, times, design.groups, design.sizes, _stack(design, solver)
        )
    return design.generation(solver, _condition(design, solver))


def optimise(design: Design, solver: LPDesign, penalties: Any, **limits: Any) -> tuple[BestDesign, tuple[str, ...]]:
    """Solve for the penalties; return the best design and notes."""
    best = program(design, solver).solve(*penalties, **limits)
    if solver.cone != "change-of-basis":
        return best, ()
    stack = _stack(design, solver)
    for done in range(ROUNDS):
        M = change_basis(stack, best.alpha)
        if M is None:
            return best, (f"the basis was changed {done} times: the last K is not positive definite",)
        found = design.generation(solver, DenseDominance(M, best.alpha)).solve(*penalties, **limits)
        gain = best.upper - found.upper
        if gain > 0:
            best = found
        if gain <= WORTHWHILE * best.upper:
            break
    return best, (f"the basis was changed {done + 1} times; the bounds are those of the best linear program",)


def _condition(design: Design, solver: LPDesign) -> Dominance:
    """Return the condition of the solver's linear program (of the first, for change-of-basis)."""
    b = len(design.kernels) + int(solver.white)
    if solver.cone == "dd" and 8 * b * design.n**2 > DENSE_BYTES:
        return BlockedDominance(design.kernels, design.sizes, design.condition_rows, white=solver.white)
    lift = np.append(np.zeros(b - 1), 1.0) if solver.white else None
    return DenseDominance(_stack(design, solver), lift)


def _stack(design: Design, solver: LPDesign) -> Array:
    """Return the Gram matrices of all bases."""
    b = len(design.kernels) + int(solver.white)
    copies = 1 if solver.cone == "dd" else 3
    repair = 'use cone="dd", which stores none, or rows="triples"'
    check_memory(8 * copies * b * design.n**2, f"{b} Gram matrices of {design.n} rows", repair)
    X = as_float64(take(design.condition_rows, np.arange(design.n)))
    return gram_stack(design.kernels, design.sizes, X, white=solver.white)
