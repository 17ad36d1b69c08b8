"""A score that ranks relevant rows above others by a margin: W near the identity, from triplets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from metricforge.checks import number, number_or, whole_number, whole_number_or
from metricforge.constraints import Constraint, Triplets
from metricforge.errors import InputError
from metricforge.kernels import Linear
from metricforge.problem import Certificate, Method, Problem, Solution, Solver, Status
from metricforge.rows import Array
from metricforge.space import LearnedKernel, Size

from .program import Optimum, Program, directions, solve

WIDEST = 256
"""Features, or directions of them, in which W is learned by default."""
MARGIN = 0.5
"""The margin of ``margin="auto"``, in standard deviations of the scores of triplets before learning."""
STRENGTH = 0.03
"""C of ``C="auto"``."""
VANISHED = 1e-10
"""Entries of W below this are lost in the digits of the start, which has the weight 1."""


@dataclass(frozen=True)
class Relevance(Solver):
    """Learn the score s(q, x) = φ(q)'Wφ(x) from triplets "for the query i, row j is more relevant than row k".

    W ⪰ 0 minimises

        ½‖W − I‖² + c/2 Σ_t [m − s(i_t, j_t) + s(i_t, k_t)]₊²,    c = C / mean ‖A_t‖²,

    with A_t = sym(φ(i_t)(φ(j_t) − φ(k_t))'), so that C does not depend on the scale of the features.
    The program is convex; the certificate is its duality gap.  With more than ``directions`` features, W differs from
    the identity only in that many directions: those in which the loss falls fastest at W = I.  The report then names
    the program, and the certificate is about it.

    Neighbours by score (``by="kernel"``) are what is learned.  Distances in the learned kernel also depend on k(x, x);
    they rank alike if rows have the same length.

    Cost: 4 p r² flops and an eigenproblem of order r per iteration, for p triplets and r directions; 16 p r bytes
    beside the features of the rows that occur in triplets.

    Parameters
    ----------
    C : "auto" or float > 0
        The weight of the triplets; "auto" is 0.03.
    margin : "auto" or float >= 0
        m; "auto" is half a standard deviation of the scores s(i, j) − s(i, k) before learning.
    directions : "auto" or int
        "auto": 256 with ``rank="auto"``, all features otherwise.
    tol : float in (0, 1]
        The relative duality gap to reach.
    max_iter : int

    References
    ----------
    G. Chechik, V. Sharma, U. Shalit, S. Bengio. Large scale online learning of image similarity through ranking. JMLR
    11, 2010, for the loss on triplets of scores, there without a constraint on W and by an online method.
    """

    C: float | str = "auto"
    margin: float | str = "auto"
    directions: int | str = "auto"
    tol: float = 1e-3
    max_iter: int = 500

    accepts: ClassVar[tuple[type[Constraint], ...]] = (Triplets,)

    def __post_init__(self) -> None:
        number_or(self.C, "C", ["auto"], above=0, most=1e100)
        number_or(self.margin, "margin", ["auto"], least=0, most=1e100)
        whole_number_or(self.directions, "directions", ["auto"])
        number(self.tol, "tol", above=0, most=1)
        whole_number(self.max_iter, "max_iter")

    def _solve(self, problem: Problem) -> Solution:
        triplets = problem.constraint
        assert isinstance(triplets, Triplets)
        space = problem.space
        problem.step(0, None)
        rows, place = np.unique(triplets.triples, return_inverse=True)
        Phi = space.map.of_rows(space.rows, rows, copies=3)
        i, j, k = place.reshape(-1, 3).T
        start = np.einsum("tm,tm->t", Phi[i], Phi[j] - Phi[k])  # s(i, j) − s(i, k) at W = I
        norms = _squared_norms(Phi, i, j, k, start)
        total = float(norms.sum())
        if not total > 0:
            raise InputError("X: all rows of the triplets are identical under this kernel, so no score can be learned")
        spread = float(np.sqrt(np.mean(np.square(start)))) or float(np.sqrt(total / len(start)))
        margin = MARGIN * spread if isinstance(self.margin, str) else float(self.margin)
        strength = STRENGTH if isinstance(self.C, str) else float(self.C)
        V = self._basis(Phi, (i, j, k), np.maximum(margin - start, 0), problem)
        Z = Phi if V is None else Phi @ V
        Q, D = Z[i], Z[j] - Z[k]
        outside = start - np.einsum("tr,tr->t", Q, D)
        program = Program(Q, D, margin - outside, strength * len(start) / total)
        found = solve(program, tol=self.tol, max_iter=self.max_iter, step=lambda n, gap: problem.step(n, None, gap=gap))
        return self._solution(problem, found, V, margin, strength, start, Phi.shape[1])

    def _basis(self, Phi: Array, triples: tuple[Array, ...], weights: Array, problem: Problem) -> Array | None:
        """Return the directions in which W is learned, or None for all features."""
        m = Phi.shape[1]
        r = self.directions
        if isinstance(r, str):
            r = WIDEST if problem.space.automatic else m
        if r >= m:
            return None
        i, j, k = triples
        thin = Phi.astype(np.float32)
        used = weights if weights.any() else np.ones(len(i))
        return directions(thin[i], thin[j] - thin[k], used, r, problem.seed)

    def _solution(
        self,
        problem: Problem,
        found: Optimum,
        V: Array | None,
        margin: float,
        strength: float,
        start: Array,
        m: int,
    ) -> Solution:
        space, r = problem.space, len(found.W)
        map_ = space.map if V is None else space.map.rotated(V)
        # the start stays outside the directions; where there is nothing outside, W alone loses no digits
        whole = V is None and map_.exact
        learned = LearnedKernel(map_, found.W) if whole else LearnedKernel(map_, found.W - np.eye(r), 1.0)
        status = Status.OPTIMAL if found.converged else Status.STALLED if found.stalled else Status.ITERATION_LIMIT
        gap = max(found.objective - found.bound, 0.0)
        notes: tuple[str, ...] = ()
        if V is not None:
            notes = (
                f"the score was learned in {r} of {m} directions; directions=... or rank='exact' for more, and the "
                "certificate is about these",
            )
        if np.abs(found.W).max() < VANISHED and not whole:
            notes += (
                "W is 0 up to rounding: what is left of the kernel on these rows are the last digits of the start; "
                "lower C or margin",
            )
        return Solution(
            learned,
            status,
            objective=found.objective,
            certificate=Certificate("gap", gap, scale=max(abs(found.objective), 1e-300)),
            n_iter=found.n_iter,
            trace=found.trace,
            outcome={
                "margin": margin,
                "C": strength,
                "directions": r,
                "ranked_before": float(np.mean(start > 0)),
                "active": int(np.count_nonzero(found.alpha > 0)),
                "change": float(np.linalg.norm(found.W - np.eye(r))),
            },
            notes=notes,
        )


def _squared_norms(Phi: Array, i: Array, j: Array, k: Array, start: Array) -> Array:
    """Return ‖A_t‖² = ½(‖q‖²‖d‖² + (q'd)²) of every triplet."""
    q = np.square(Phi).sum(axis=1)
    d = np.square(Phi[j] - Phi[k]).sum(axis=1)
    return np.asarray((q[i] * d + np.square(start)) / 2)


def cost(size: Size) -> float:
    """Return the forecast CPU seconds of a fit with three triplets a row."""
    r = min(size.m, WIDEST)
    p = 3 * size.n
    return 0.05 + 1e-9 * (2 * p * size.m + 40 * (4 * p * r**2 / 8 + 20 * r**3))


METHOD: Any = Method(constraint=Triplets, kernel=Linear(), solver=Relevance(), explicit_columns=8192, cost=cost)
