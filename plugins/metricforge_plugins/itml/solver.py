"""Information-theoretic metric learning: the metric nearest to the base metric that respects bounds on pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from metricforge import rows as _rows
from metricforge.constraints import Constraint, Pairs
from metricforge.errors import InputError
from metricforge.kernels import Linear, Standardized
from metricforge.optimize import Bounds, conclude, minimize
from metricforge.rows import Array
from metricforge.solver import Certificate, Method, Problem, Solution, Solver
from metricforge.space import LearnedKernel, Size, affordable, check_memory, compact, rows_seconds, space_seconds
from metricforge.validation import number, numbers, whole_number, whole_number_or

from .dual import Dual

NEWTON = 300
"""Up to this many pairs Newton steps on the dual are taken, above it steps of L-BFGS on the primal."""
MEMORY = 30
"""Gradients that L-BFGS keeps."""
LEAST_PAIRS = 10_000
"""Pairs that n_pairs="auto" takes in any case."""
SAMPLE = 20_000
"""Random pairs of rows whose distances give the bounds."""
DEFINITION = "objective minus the value of a dual feasible point"


@dataclass(frozen=True)
class ITML(Solver):
    """Learn the metric nearest to the base metric in which similar pairs are near and dissimilar pairs are not.

    With φ the features of the base kernel, v_t the difference of pair t, b_t = u for similar and l for dissimilar pairs
    and D(A, B) = tr(AB⁻¹) − log det(AB⁻¹) − m, minimise over A ≻ 0 and ξ > 0

        D(A, I) + γ D(diag ξ, diag b)   with   v_t'Av_t <= ξ_t (similar),  v_t'Av_t >= ξ_t (dissimilar).

    Projected Newton steps on the dual up to 300 pairs; above, L-BFGS on a factor of A with ξ eliminated.  The
    certificate is the duality gap.

    Cost for p pairs, F of which have a multiplier: O(p m² + F² m + F³) time a Newton step, 10 to 35 steps, 16 F² bytes;
    O(p m² + m³) a step of L-BFGS, up to some hundred.  Memory: 16 p m bytes.

    Parameters
    ----------
    gamma : float > 0
        γ: how much a bound counts against the base metric.
    bounds : "auto" or (u, l)
        Squared distances in the base metric: similar pairs shall be nearer than u, dissimilar pairs further than l.
        "auto": the 5th and the 95th percentile over random pairs of rows.
    n_pairs : "auto", "all" or int
        How many of the pairs are used at the most, drawn at random.  "auto": as many as 4 forecast CPU seconds allow,
        at least 10,000.
    tol : float in (0, 1]
        The gap to reach, relative to the objective (absolute where that is below 1).
    max_iter : int
        The largest number of steps.

    References
    ----------
    J. V. Davis, B. Kulis, P. Jain, S. Sra, I. S. Dhillon. Information-theoretic metric learning. ICML 2007, eq. (3.3).
    """

    gamma: float = 1.0
    bounds: tuple[float, float] | str = "auto"
    n_pairs: int | str = "auto"
    tol: float = 1e-6
    max_iter: int = 1000

    accepts: ClassVar[tuple[type[Constraint], ...]] = (Pairs,)

    def __post_init__(self) -> None:
        number(self.gamma, "gamma", least=1e-100, most=1e100)
        automatic = isinstance(self.bounds, str) and self.bounds == "auto"  # an array compares entry by entry
        if not automatic and len(numbers(self.bounds, "bounds", above=0)) != 2:
            raise InputError(f'bounds must be "auto" or two squared distances (u, l), got {self.bounds!r}')
        whole_number_or(self.n_pairs, "n_pairs", ["auto", "all"])
        number(self.tol, "tol", above=0, most=1)
        whole_number(self.max_iter, "max_iter")

    def _solve(self, problem: Problem) -> Solution:
        assert isinstance(problem.constraint, Pairs)
        given = problem.constraint
        used = _drawn(given, self._most_pairs(given.size, problem.space.map.columns), problem.seed)
        V, sign, same = _differences(problem, used)
        near, far = self._bounds(problem)
        dual = Dual(V, sign, np.where(sign > 0, near, far), float(self.gamma))
        newton = len(V) <= NEWTON
        solve = _newton if newton else _descend
        root, state = solve(dual, float(self.tol), int(self.max_iter), problem)
        ended = f"after {state.n_iter} steps with a gap of {state.gap:.3g} for an objective of {state.upper:.3g}"
        status = conclude("itml", state.within(self.tol, 1.0), state.n_iter >= self.max_iter, ended)
        outcome: dict[str, Any] = {
            "bounds": (near, far),
            "active": int(np.count_nonzero(dual.multiplier)),
            "route": "newton" if newton else "factor",
            "identical": same,
            "pairs_used": used.size,
        }
        notes: tuple[str, ...] = ()
        if same:
            notes += (f"{same} pair(s) join identical rows, which no metric changes, and were ignored",)
        if used.size < given.size:
            notes += (f'{used.size} of {given.size} pairs were drawn; n_pairs="all" takes them all',)
        return Solution(
            kernel=LearnedKernel.of_factor(problem.space.map, root),
            status=status,
            objective=state.upper,
            certificate=Certificate("gap", state.gap, max(abs(state.upper), 1.0), DEFINITION),
            n_iter=state.n_iter,
            trace=tuple(state.trace),
            outcome=outcome,
            notes=notes,
        )

    def _most_pairs(self, p: int, m: int) -> int:
        if isinstance(self.n_pairs, int):
            return self.n_pairs
        return p if self.n_pairs == "all" else _affordable_pairs(p, m)

    def _bounds(self, problem: Problem) -> tuple[float, float]:
        if not isinstance(self.bounds, str):
            return float(self.bounds[0]), float(self.bounds[1])
        n, rng = problem.n, np.random.default_rng(problem.seed)
        rows = _rows.draw(n, 2000, problem.seed)
        Phi = problem.space.map.of_rows(problem.rows, rows)
        if len(rows) * (len(rows) - 1) // 2 <= SAMPLE:  # all pairs, whatever the order of rows
            i, j = np.triu_indices(len(rows), 1)
        else:
            i = rng.integers(len(rows), size=SAMPLE)
            j = (i + 1 + rng.integers(len(rows) - 1, size=SAMPLE)) % len(rows)
        squared = np.square(Phi[i] - Phi[j]).sum(axis=1)
        squared = squared[squared > 0]
        if not len(squared):
            raise InputError("X: no two rows differ under the kernel; check the columns of X")
        near, far = np.percentile(squared, [5, 95])
        return float(near), float(far)


def _drawn(pairs: Pairs, most: int, seed: int) -> Pairs:
    """Return at most so many of the pairs, drawn at random."""
    if pairs.size <= most:
        return pairs
    kept, similar = _rows.draw(pairs.size, most, seed), len(pairs.similar)
    near, far = kept[kept < similar], kept[kept >= similar] - similar
    return Pairs(similar=pairs.similar[near], dissimilar=pairs.dissimilar[far], n=pairs.n)


def _differences(problem: Problem, pairs: Pairs) -> tuple[Array, Array, int]:
    """Return v_t and s_t of the pairs, and how many pairs of identical rows were left out."""
    index = np.concatenate([pairs.similar, pairs.dissimilar])
    used, positions = compact(index)
    Phi = problem.space.map.of_rows(problem.rows, used, gather=True)
    check_memory(16 * len(index) * Phi.shape[1], f"the differences of {len(index)} pairs", "give fewer pairs")
    V = Phi[positions[:, 0]] - Phi[positions[:, 1]]
    sign = np.where(np.arange(len(index)) < len(pairs.similar), 1.0, -1.0)
    size = np.square(V).sum(axis=1)
    differ = size > 1e-20 * max(float(np.square(Phi).sum(axis=1).max()), 1e-300)
    if not differ.any():
        raise InputError("constraints: every pair joins identical rows, which no metric changes; give other pairs")
    return np.ascontiguousarray(V[differ]), sign[differ], int(np.count_nonzero(~differ))


def _newton(dual: Dual, tol: float, max_iter: int, problem: Problem) -> tuple[Array, Bounds]:
    """Maximise the dual; return the factor R⁻¹ of the best primal point A = R⁻ᵀR⁻¹, and the bounds."""
    from scipy.linalg import solve_triangular

    state = Bounds()
    while True:
        upper, lower, R, moved = dual.newton()
        state.offer(upper, R)
        state.record(lower)
        if state.within(tol, 1.0) or not moved or state.n_iter >= max_iter:
            return np.asarray(solve_triangular(state.point, np.eye(len(R)), lower=True)), state
        state.n_iter += 1
        problem.step(state.n_iter, max_iter, objective=state.upper, gap=state.gap)


def _descend(dual: Dual, tol: float, max_iter: int, problem: Problem) -> tuple[Array, Bounds]:
    """Minimise the primal over factors of A until the gap is within ``tol``; return as `_newton`."""
    start = np.eye(dual.V.shape[1])
    state = Bounds(point=start)

    def value(L: Array) -> tuple[float, Array]:
        upper, G, multiplier = dual.over_factors(L)
        if state.offer(upper, L.copy()):
            dual.multiplier = multiplier
        return upper, G

    def after(L: Array) -> bool:
        state.n_iter += 1
        problem.step(state.n_iter, max_iter, objective=state.upper)
        if state.n_iter % 10:
            return False
        state.record(dual.feasible(dual.multiplier))
        return state.within(tol, 1.0)

    minimize(value, start, max_iter, after=after, memory=MEMORY, ftol=1e-15, gtol=1e-10, maxfun=2 * max_iter)
    state.record(dual.feasible(dual.multiplier))
    return state.point, state


def _solve_seconds(p: int, m: int) -> float:
    """Return the forecast CPU seconds of a solve with p pairs."""
    return 1e-9 * p * (8 * m**2 + 400 * m)


def _affordable_pairs(p: int, m: int) -> int:
    """Return how many of p pairs n_pairs="auto" takes."""
    return min(p, affordable(lambda t: _solve_seconds(t, m), LEAST_PAIRS, max(p, LEAST_PAIRS)))


def _seconds(size: Size) -> float:
    """Return the forecast CPU seconds of a fit; see docs/scaling.md."""
    p = _affordable_pairs(size.p or 20 * size.n, size.m)
    return rows_seconds(size) + space_seconds(size) + _solve_seconds(p, size.m)


METHOD = Method(
    constraint=Pairs,
    kernel=Standardized(Linear(), by="range"),
    solver=ITML(),
    rank=200,
    cost=_seconds,
    # a sample of differences, vectors of L-BFGS, and all differences
    memory={"m": 8 * 3 * SAMPLE, "mm": 8 * (2 * MEMORY + 30), "pm": 32, "p": 600},
)
