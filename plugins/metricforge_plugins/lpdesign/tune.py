"""Choose sparsity and trace by cross-validation over triples."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricforge.constraints import Triplets
from metricforge.errors import ConvergenceWarning, InputError, whole_number
from metricforge.kernels import Kernel, is_number
from metricforge.problem import Problem, Status
from metricforge.rows import as_float64, count, take
from metricforge.space import represent

from .solver import METHOD, Design, LPDesign, margins

Array = NDArray[Any]

SPARSITIES = TRACES = (1e-4, 1e-3, 1e-2, 1e-1)
"""Values tried by default, in the scale of `LPDesign`."""


@dataclass(frozen=True, eq=False)
class Tuned:
    """What `tune` found.

    Attributes
    ----------
    solver : LPDesign
        With the best penalties, ready for ``mf.learn(..., solver=...)``.
    sparsities, traces : tuples
        What was tried.
    accuracy : (len(sparsities), len(traces)) array
        The part of the triples left out that K_ij > K_ik holds for, averaged over folds.
    """

    solver: LPDesign
    sparsities: tuple[float, ...]
    traces: tuple[float, ...]
    accuracy: Array


def tune(
    X: Any,
    triplets: Triplets,
    *,
    kernel: Kernel | None = None,
    solver: LPDesign | None = None,
    sparsities: Any = SPARSITIES,
    traces: Any = TRACES,
    folds: int = 2,
    seed: int = 0,
) -> Tuned:
    """Try every pair of penalties on each fold of the triples, and keep the pair that meets most of those left out.

    The triples are split, not the rows.  Bases and directions are built from the triples of the fold's training part
    only; the linear program keeps its columns and basis from one pair of penalties to the next, so a grid costs little
    more than its first fit.  Among equals the largest penalties win: fewer features, smaller weights.

    Parameters
    ----------
    X : rows
    triplets : Triplets
        At least one for each fold.
    kernel : Kernel, optional
        What to start from; default: the method's.
    solver : LPDesign, optional
        The other options.  With ``LPDesign.paper`` the values are γ1 and γ2.
    sparsities, traces : sequences of numbers >= 0
    folds : int >= 2
    seed : int

    References
    ----------
    Fung, Rosales & Rao (2007), Sec. 3.1: two halves, and six values for either.
    """
    solver = LPDesign() if solver is None else solver
    kernel = METHOD.kernel if kernel is None else kernel
    if not isinstance(triplets, Triplets):
        raise InputError(f"triplets must be Triplets, got {type(triplets).__name__}; write mf.Triplets(..., n=len(X))")
    if solver.cone == "change-of-basis":
        raise InputError('solver has cone="change-of-basis", which is no single program; tune it with cone="dd"')
    grid = _penalties(sparsities, "sparsities"), _penalties(traces, "traces")
    whole_number(folds, "folds", least=2)
    if triplets.size < folds:
        raise InputError(f"triplets: {triplets.size} cannot be split into {folds} folds; give more, or fewer folds")
    rows = kernel.check(X, "X")
    triplets.check(count(rows), "triplets")
    kernel = kernel.resolve(rows, seed=seed)
    space = represent(kernel, rows, seed=seed)
    part = np.random.default_rng(seed).permutation(triplets.size) % folds
    accuracy = np.zeros((len(grid[0]), len(grid[1])))
    for fold in range(folds):
        training = Triplets(triplets.triples[part != fold], n=triplets.n)
        problem = Problem(space, training, seed)
        accuracy += _scores(problem, solver, triplets.triples[part == fold], *grid) / folds
    # the last of the largest: argmax finds the first
    s, t = np.unravel_index(int(accuracy[::-1, ::-1].argmax()), accuracy.shape)
    best = replace(solver, sparsity=grid[0][::-1][s], trace=grid[1][::-1][t])
    return Tuned(best, *grid, accuracy)


def _scores(
    problem: Problem,
    solver: LPDesign,
    left_out: Array,
    sparsities: tuple[float, ...],
    traces: tuple[float, ...],
) -> Array:
    """Return the accuracy on the triples left out for every pair of penalties."""
    design = Design.of(solver, problem)
    used, position = np.unique(left_out, return_inverse=True)
    D = margins(design.kernels, as_float64(take(problem.rows, used)), position.reshape(left_out.shape)) / design.sizes
    program = design.generation(solver, design.condition(solver))
    scores = np.empty((len(sparsities), len(traces)))
    unfinished = 0
    for s, sparsity in enumerate(sparsities):
        # there and back, so that neighbours in the grid follow each other
        for t in range(len(traces))[:: 1 if s % 2 == 0 else -1]:
            tried = replace(solver, sparsity=sparsity, trace=traces[t])
            gamma1, cost = design.penalties(tried)
            found = program.solve(gamma1, cost, tol=solver.tol, max_iter=solver.max_iter, step=problem.step)
            scores[s, t] = np.mean(D @ found.alpha[: len(design.kernels)] > 0)
            unfinished += found.status != Status.OPTIMAL
    if unfinished:
        warnings.warn(
            f"tune: {unfinished} of {scores.size} pairs of penalties stopped at a limit, and are judged by the best "
            "design until then; raise max_iter, or accept it by a larger tol",
            ConvergenceWarning,
            stacklevel=3,
        )
    return scores


def _penalties(values: Any, name: str) -> tuple[float, ...]:
    given = tuple(values) if isinstance(values, list | tuple | np.ndarray) else ()
    if not given or not all(is_number(v) and 0 <= v < np.inf for v in given):
        raise InputError(f"{name} must be a list of numbers >= 0, got {values!r}")
    return tuple(sorted(float(v) for v in given))
