"""Choose C_S, C_D and ν by the score of the learned metric, over the grid that reproduces the paper's figures."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from metricforge import fitting, neighbors, psd
from metricforge.constraints import Labels, Pairs
from metricforge.errors import InputError
from metricforge.kernels import Kernel, Linear
from metricforge.registry.progress import progress
from metricforge.rows import Array, count, draw
from metricforge.solver import Problem, check_finite

from . import proximal
from .differences import differences
from .hints import Hints, Prepared, hints_of, prepare
from .solver import Idealized

_log = logging.getLogger(__name__)

C_DISSIMILAR = (1.0, 10.0, 100.0, 1000.0)
"""C_D in units of 1 / mean ‖z‖², so that it means the same on any scale of the features."""
RATIO = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
"""C_S / C_D."""
NU = (0.2, 0.6)
SCORED_ROWS = 2000
"""Rows that are classified by their nearest neighbour: the standard error of an error rate is then below 1.2 %."""
ROUGH = 1e-4
"""Relative gap of the fits that are compared."""


@dataclass(frozen=True, eq=False)
class Trial:
    """One point of the grid: the options, and the score of the metric learned with them."""

    solver: Idealized
    score: float
    alignment: float
    learned: bool


@dataclass(frozen=True, eq=False)
class Tuned:
    """The best solver and all trials.

    Attributes
    ----------
    solver : Idealized
        Pass it on: ``mf.learn(X, constraints, method="idealized", solver=tuned.solver)``.
    score : float
        Its error: of leave-one-out 1-nearest neighbour (labels), or the share of held-out (similar, dissimilar) couples
        of pairs of which the dissimilar one is closer (pairs).
    before : float
        The same for the metric before learning (for the kernel's own metric when M is a kernel).
    trials : tuple of Trial
    """

    solver: Idealized
    score: float
    before: float
    trials: tuple[Trial, ...]


def tune(
    X: Any,
    constraints: Any,
    *,
    kernel: Kernel | None = None,
    solver: Idealized | None = None,
    rank: str | int = "auto",
    c_dissimilar: Sequence[float] = C_DISSIMILAR,
    ratio: Sequence[float] = RATIO,
    nu: Sequence[float] = NU,
    held_out: float | Pairs = 0.3,
    seed: int = 0,
) -> Tuned:
    """Fit every point of a grid and return the one with the best score.

    With labels the score is the leave-one-out error of the nearest neighbour on (at most 2000 of) the labelled rows.
    With pairs a share of them is held out, and the score is the share of (similar, dissimilar) couples of held-out
    pairs of which the dissimilar one is closer.  Of equal scores the one with the higher alignment with the ideal
    kernel is taken.

    Parameters
    ----------
    X, kernel, rank, seed
        As in ``mf.learn``; the kernel is Linear() by default.
    constraints : Constraint, or labels y
        Labels or Pairs; other kinds are converted as in ``mf.learn``.
    solver : Idealized, optional
        The options that are not tuned.
    c_dissimilar, ratio, nu : sequences of numbers
        The grid: C_D in units of 1 / mean ‖z‖², C_S / C_D, and ν.
    held_out : float in (0, 1), or Pairs
        With pairs: the share of each kind that is held out, or other pairs of rows of X for the score.

    Notes
    -----
    Features and pairs are computed once, and then one fit to a relative gap of 1e-4 for each of the (by default 64)
    points of the grid.
    """
    kernel, solver = kernel or Linear(), solver or Idealized()
    grid = list(product(c_dissimilar, ratio, nu))
    if not grid:
        raise InputError("c_dissimilar, ratio and nu must each hold at least one number")
    rows = kernel.check(X, "X")
    n = count(rows)
    usable = fitting.relations(constraints, n, solver.accepts, seed=seed).usable
    if isinstance(usable, Pairs):
        usable, judged = _split(usable, held_out, seed)
        judged.check(n, "held_out")
    with progress(f"tuning of idealized on {n} rows") as step:
        space = fitting.make_space(kernel, rows, rank, seed=seed)
        with fitting.solving(solver, space.representation, n):
            prepared = prepare(solver, Problem(space, usable, seed))
            score: _Labelled | _HeldOut
            if isinstance(usable, Labels):
                score = _Labelled(prepared, seed)
            else:
                score = _HeldOut(hints_of(Problem(space, judged, seed), judged))
            trials = []
            for C, r, v in grid:
                trials.append(_trial(prepared, solver, score, C, r, v, seed))
                step(len(trials), len(grid), score=trials[-1].score)
            best = min(trials, key=lambda trial: (trial.score, -trial.alignment))
            M = np.eye(space.map.columns) if solver.M is None or isinstance(solver.M, Kernel) else solver.M
            return Tuned(best.solver, best.score, score(M), tuple(trials))


def _trial(
    prepared: Prepared, solver: Idealized, score: _Labelled | _HeldOut, C: float, ratio: float, nu: float, seed: int
) -> Trial:
    C, area = C / float(prepared.squares.mean()), prepared.unit**2  # in the unit of the program
    options = replace(solver, c_dissimilar=C / area, c_similar=C / area * ratio, nu=nu)
    program = replace(prepared.program, c_dissimilar=C, c_similar=C * ratio, nu=nu)
    exact = solver.psd == "exact"
    optimum = proximal.solve(program, psd=exact, tol=max(solver.tol, ROUGH), max_iter=solver.max_iter, seed=seed)
    B = optimum.B if exact else psd.project(optimum.B)
    W, aligned = prepared.matrix(B), prepared.alignment(B)
    check_finite(W, options, "W")
    trial = Trial(options, score(W), aligned, bool(np.abs(optimum.change).max() > 1e-3 * program.base.mean()))
    _log.info("c_dissimilar %.3g, c_similar %.3g, nu %.2g: score %.4f", C, C * ratio, nu, trial.score)
    return trial


class _Labelled:
    """The leave-one-out error of the nearest neighbour."""

    def __init__(self, prepared: Prepared, seed: int) -> None:
        hints = prepared.hints
        assert hints.codes is not None
        self.Phi, self.codes = hints.features, hints.codes
        self.queries = draw(len(self.codes), SCORED_ROWS, seed)

    def __call__(self, W: Array) -> float:
        E = self.Phi @ psd.factor(W)
        index, _ = neighbors.search(E, min(2, len(E)), queries=E[self.queries])
        # the nearest neighbour of a row is the row itself, unless a duplicate comes first
        other = np.where(index[:, 0] == self.queries, index[:, -1], index[:, 0])
        return float(np.mean(self.codes[other] != self.codes[self.queries]))


class _HeldOut:
    """1 − AUC: the share of couples of held-out pairs of which the dissimilar one is closer than the similar one."""

    def __init__(self, judged: Hints) -> None:
        self.z = differences(judged.features - judged.features.mean(axis=0), judged.i, judged.j)
        self.dissimilar = judged.dissimilar

    def __call__(self, W: Array) -> float:
        from sklearn.metrics import roc_auc_score

        return 1 - float(roc_auc_score(self.dissimilar, self.z.spread(W)))


def _split(pairs: Pairs, held_out: float | Pairs, seed: int) -> tuple[Pairs, Pairs]:
    """Return the pairs to learn from and the pairs for the score: the same share of both kinds unless given."""
    if isinstance(held_out, Pairs):
        if not (len(held_out.similar) and len(held_out.dissimilar)):
            raise InputError("held_out must hold similar and dissimilar pairs, to compare one kind with the other")
        return pairs, held_out
    if not 0 < held_out < 1:
        raise InputError(f"held_out must be between 0 and 1, or Pairs, got {held_out!r}")
    rng = np.random.default_rng(seed)
    kept, judged = [], []
    for name in ("similar", "dissimilar"):
        side = getattr(pairs, name)
        if len(side) < 2:
            raise InputError(f"constraints: {name} holds {len(side)} pair(s); tuning needs two to hold one out")
        order = rng.permutation(len(side))
        cut = min(max(1, round(held_out * len(side))), len(side) - 1)
        judged.append(side[order[:cut]])
        kept.append(side[order[cut:]])
    return Pairs(kept[0], kept[1], n=pairs.n), Pairs(judged[0], judged[1], n=pairs.n)
