"""A score that ranks relevant rows above others by a margin: W near the identity, from triplets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from metricforge.constraints import Constraint, Triplets
from metricforge.errors import InputError
from metricforge.kernels import Kernel, Linear
from metricforge.rows import Array, float_dtype
from metricforge.solver import Certificate, Method, Problem, Solution, Solver, Status
from metricforge.space import ChangedKernel, LearnedKernel, Size, compact, space_bytes
from metricforge.validation import number, number_or, whole_number, whole_number_or

from .directions import leading
from .judgements import Judgements, paired_dots
from .program import Optimum, Program, solve

WIDEST = 1024
"""Features up to which W is learned in all of them by default."""
DIRECTIONS = 512
"""Directions in which W is learned by default if there are more features."""
MARGIN = 2.0
"""The margin of ``margin="auto"``, in units of the root mean square of the scores of triplets before learning."""
STRENGTH = 1.0
"""C of ``C="auto"``."""
SMALLEST = 1e-9
"""Fourth powers of features, which the dual needs, stay above the smallest number of single precision."""
LARGEST = 1e8
"""The largest feature: the iteration multiplies four of them in single precision."""
VANISHED = 1e-10
"""Entries of W below this are lost in the digits of the start, which has the weight 1."""


@dataclass(frozen=True)
class Relevance(Solver):
    """Learn the score s(q, x) = φ(q)'Wφ(x) from triplets "for the query i, row j is more relevant than row k".

    W ⪰ 0 minimises

        ½‖W − I‖² + c/2 Σ_t [m − s(i_t, j_t) + s(i_t, k_t)]₊²,    c = C / mean ‖A_t‖²,

    with A_t = sym(φ(i_t)(φ(j_t) − φ(k_t))'), so that C does not depend on the scale of the features.
    The program is convex; the certificate is its duality gap.  With fewer ``directions`` than features, W differs from
    the identity only in that many directions: those in which the loss falls fastest at W = I.  The report then names
    the program, and the certificate is about it.

    Neighbours by score (``by="kernel"``) are what is learned.  Distances in the learned kernel also depend on k(x, x);
    they rank alike if rows have the same length.

    Cost of an iteration: 4 u r² flops for u queries and r directions, 4 r for each pair of a query and a row, and an
    eigenproblem of order r unless W is positive definite.  Memory: three copies of the features of the rows that occur
    in triplets.

    Parameters
    ----------
    C : "auto" or float > 0
        The weight of the triplets; "auto" is 1.
    margin : "auto" or float >= 0
        m; "auto" is twice the root mean square of s(i, j) − s(i, k) before learning.
    directions : "auto" or int
        "auto": all features, but 512 directions of more than 1024 features with ``rank="auto"``.
    tol : float in (0, 1]
        The relative duality gap to reach.  Below 1e-4 all iterations are in float64; else those before the last are in
        float32.
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
        rows, positions = compact(triplets.triples)
        Phi = space.map.of_rows(space.rows, rows, copies=3, dtype=float_dtype(space.rows))
        largest = float(max(Phi.max(initial=0), -Phi.min(initial=0)))
        if largest > LARGEST:
            raise InputError(f"X: features exceed {LARGEST:g}, and products overflow in single precision; rescale X")
        if 0 < largest < SMALLEST:
            raise InputError(f"X: features are below {SMALLEST:g}, and products underflow; rescale X")
        i, j, k = positions.T
        judgements = Judgements.of(i, j, k)
        start = judgements.differences(judgements.dots(Phi[judgements.queries], Phi))  # s(i, j) − s(i, k) at W = I
        size = float(np.mean(_squared_norms(Phi, (i, j, k), start)))
        if not size > 0:
            raise InputError("X: all rows of the triplets are identical under this kernel, so no score can be learned")
        spread = float(np.sqrt(np.mean(np.square(start)))) or float(np.sqrt(size))
        margin = MARGIN * spread if isinstance(self.margin, str) else float(self.margin)
        strength = STRENGTH if isinstance(self.C, str) else float(self.C)
        program = Program(Phi, judgements, margin - start, np.full(len(start), strength / size))
        problem.step(0, None)
        V = self._basis(program, problem)
        problem.step(0, None)
        if V is not None:
            program = replace(program, Z=Phi @ V)
        found = solve(program, tol=self.tol, max_iter=self.max_iter, step=lambda n, gap: problem.step(n, None, gap=gap))
        return self._solution(problem, found, V, margin, strength, start, Phi.shape[1], _share(program.Z, found.W))

    def _basis(self, program: Program, problem: Problem) -> Array | None:
        """Return the directions in which W is learned, or None for all features."""
        m = program.Z.shape[1]
        r = self.directions
        if isinstance(r, str):
            r = m if m <= WIDEST or not problem.space.automatic else DIRECTIONS
        if r >= m:
            return None
        return leading(replace(program, Z=program.Z.astype(np.float32, copy=False)), r, problem.seed)

    def _solution(
        self,
        problem: Problem,
        found: Optimum,
        V: Array | None,
        margin: float,
        strength: float,
        start: Array,
        m: int,
        share: float,
    ) -> Solution:
        space, r = problem.space, len(found.W)
        # the start stays outside the directions; where there is nothing outside, W alone loses no digits
        whole = V is None and space.map.exact
        learned: Kernel
        if V is not None:
            learned = ChangedKernel(space.map, V, found.B)
        else:
            learned = LearnedKernel(space.map, found.W) if whole else LearnedKernel(space.map, found.B, 1.0)
        status = Status.OPTIMAL if found.converged else Status.STALLED if found.stalled else Status.ITERATION_LIMIT
        gap = max(found.objective - found.bound, 0.0)
        notes: tuple[str, ...] = ()
        if V is not None:
            notes = (
                f"the score was learned in {r} of {m} directions; directions=... or rank='exact' for more, and the "
                "certificate is about these",
            )
        if share < VANISHED or (np.abs(found.W).max() < VANISHED and not whole):
            notes += (
                "W is 0 up to rounding on these rows: what is left of the kernel are the last digits of the start; "
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
                "change": float(np.linalg.norm(found.B)),
            },
            notes=notes,
        )


def _share(Z: Array, W: Array) -> float:
    """Return the largest z'Wz as a share of what W makes of other rows of this size."""
    size = float(np.einsum("ij,ij->i", Z, Z, dtype=np.float64).max(initial=0)) * float(np.abs(W).max(initial=0))
    return float(np.einsum("ij,ij->i", Z @ W, Z, dtype=np.float64).max(initial=0)) / size if size > 0 else 1.0


def _squared_norms(Phi: Array, triples: tuple[Array, Array, Array], start: Array) -> Array:
    """Return ‖A_t‖² = ½(‖q‖²‖d‖² + (q'd)²) of every triplet."""
    i, j, k = triples
    norm = np.einsum("um,um->u", Phi, Phi, dtype=np.float64)
    apart = np.maximum(norm[j] + norm[k] - 2 * paired_dots(Phi, j, Phi, k), 0)
    return np.asarray((norm[i] * apart + np.square(start)) / 2)


def cost(size: Size) -> float:
    """Return the forecast CPU seconds of a fit with three triplets a row."""
    r = size.m if size.m <= WIDEST else DIRECTIONS
    return (
        0.05
        + 1e-4 * size.n
        + 1e-10 * (4 * size.n * size.m * (r if r < size.m else 1) + 15 * (4 * size.n * r**2 + 10 * r**3))
    )


def _bytes(size: Size) -> float:
    """Return the forecast peak memory: features of rows in triplets, and matrices over the directions."""
    r = size.m if size.m <= WIDEST else DIRECTIONS
    return max(
        space_bytes(size),
        8 * (3 * min(size.n, 3 * size.p) * size.m + 12 * max(r, min(size.m, 1000)) ** 2 + 6 * size.p * r),
    )


METHOD: Any = Method(
    constraint=Triplets,
    kernel=Linear(),
    solver=Relevance(),
    explicit_columns=8192,
    cost=cost,
    memory=_bytes,
    ranks_by="kernel",
)
