"""Choose sparsity and trace by cross-validation over triples."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from metricforge import fitting
from metricforge.constraints import Constraint, Triplets
from metricforge.errors import ConvergenceWarning, InputError
from metricforge.kernels import Kernel
from metricforge.registry.progress import progress
from metricforge.rows import Array, as_float64, count, take
from metricforge.solver import Problem, Status, check_finite
from metricforge.space import compact
from metricforge.validation import numbers, whole_number

from .bases import margins
from .solver import LARGEST_PENALTY, METHOD, Design, LPDesign

SPARSITIES = TRACES = (1e-4, 1e-3, 1e-2, 1e-1)
"""Values tried by default, in the scale of `LPDesign`."""


@dataclass(frozen=True, eq=False)
class Tuned:
    """The result of `tune`.

    Attributes
    ----------
    solver : LPDesign
        With the best penalties, ready for ``mf.learn(..., solver=...)``.
    sparsities, traces : tuples
        The values tried.
    accuracy : (len(sparsities), len(traces)) array
        The share of the held-out triples with K_ij > K_ik, averaged over folds.
    """

    solver: LPDesign
    sparsities: tuple[float, ...]
    traces: tuple[float, ...]
    accuracy: Array


def tune(
    X: Any,
    triplets: Constraint,
    *,
    kernel: Kernel | None = None,
    solver: LPDesign | None = None,
    sparsities: Any = SPARSITIES,
    traces: Any = TRACES,
    folds: int = 2,
    seed: int = 0,
) -> Tuned:
    """Try every pair of penalties on each fold of the triples, and keep the pair that satisfies most held-out triples.

    The triples are split, not the rows.  Bases and directions are built from the triples of the fold's training part
    only.  The linear program keeps its columns and basis from one pair of penalties to the next, so a grid costs little
    more than its first fit.  Of equal accuracies the one with the largest penalties is taken: it has fewer features and
    smaller weights.

    Parameters
    ----------
    X : rows
    triplets : Triplets
        At least one for each fold.  Other kinds are converted as in ``mf.learn``.
    kernel : Kernel, optional
        The kernel to start from; default: the method's.
    solver : LPDesign, optional
        The options that are not tuned.  With ``LPDesign.paper`` the values are γ1 and γ2.
    sparsities, traces : sequences of numbers from 0 to 1e6
    folds : int >= 2
    seed : int

    References
    ----------
    Fung, Rosales & Rao (2007), Sec. 3.1: two halves, and six values for either.
    """
    solver = LPDesign() if solver is None else solver
    kernel = METHOD.kernel if kernel is None else kernel
    if solver.cone == "change-of-basis":
        raise InputError('solver has cone="change-of-basis", which is no single program; tune it with cone="dd"')
    grid = _penalties(sparsities, "sparsities"), _penalties(traces, "traces")
    whole_number(folds, "folds", least=2)
    rows = kernel.check(X, "X")
    n = count(rows)
    usable = fitting.relations(triplets, n, solver.accepts, seed=seed, name="triplets").usable
    assert isinstance(usable, Triplets)
    if usable.size < folds:
        raise InputError(f"triplets: {usable.size} cannot be split into {folds} folds; give more, or fewer folds")
    part = np.random.default_rng(seed).permutation(usable.size) % folds
    accuracy = np.zeros((len(grid[0]), len(grid[1])))
    with progress(f"tuning of lpdesign on {n} rows") as step:
        space = fitting.make_space(kernel, rows, "auto", seed=seed)
        with fitting.solving(solver, space.representation, n):
            for fold in range(folds):
                step(fold, folds)
                training = Triplets(usable.triples[part != fold], n=n)
                problem = Problem(space, training, seed)
                accuracy += _scores(problem, solver, usable.triples[part == fold], *grid) / folds
    # argmax returns the first of equal values; the last has the largest penalties
    s, t = np.unravel_index(int(accuracy[::-1, ::-1].argmax()), accuracy.shape)
    best = replace(solver, sparsity=grid[0][::-1][s], trace=grid[1][::-1][t])
    return Tuned(best, *grid, accuracy)


def _scores(
    problem: Problem,
    solver: LPDesign,
    held_out: Array,
    sparsities: tuple[float, ...],
    traces: tuple[float, ...],
) -> Array:
    """Return the accuracy on the held-out triples for every pair of penalties."""
    design = Design.of(solver, problem)
    used, positions = compact(held_out)
    D = margins(design.kernels, as_float64(take(problem.rows, used)), positions) / design.sizes
    program = design.program(solver)
    scores = np.empty((len(sparsities), len(traces)))
    unfinished = 0
    for s, sparsity in enumerate(sparsities):
        # forwards and backwards in turn, so that consecutive pairs are neighbours in the grid
        for t in range(len(traces))[:: 1 if s % 2 == 0 else -1]:
            tried = replace(solver, sparsity=sparsity, trace=traces[t])
            gamma1, cost = design.penalties(tried)
            found = program.solve(gamma1, cost, tol=solver.tol, max_iter=solver.max_iter, step=problem.step)
            check_finite(found.alpha, tried, "alpha")
            scores[s, t] = np.mean(D @ found.alpha[: len(design.kernels)] > 0)
            unfinished += found.status != Status.OPTIMAL
    if unfinished:
        warnings.warn(
            f"tune: {unfinished} of {scores.size} pairs of penalties stopped at a limit, and are scored by the best "
            "design found; raise max_iter, or accept it by a larger tol",
            ConvergenceWarning,
            stacklevel=3,
        )
    return scores


def _penalties(values: Any, name: str) -> tuple[float, ...]:
    return tuple(sorted(numbers(values, name, least=0, most=LARGEST_PENALTY)))
