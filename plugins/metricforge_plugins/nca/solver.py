"""Neighbourhood components analysis: a metric for nearest neighbours that are drawn at random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from metricforge.constraints import Constraint, Labels
from metricforge.errors import InputError
from metricforge.kernels import Linear, Standardized
from metricforge.optimize import Bounds, minimize, stationarity
from metricforge.rows import Array, beat, draw
from metricforge.solver import Certificate, Method, Problem, Solution, Solver
from metricforge.space import (
    LearnedKernel,
    Size,
    affordable_queries,
    affordable_steps,
    check_start,
    feature_unit,
    rows_seconds,
    space_seconds,
    start_factor,
    steps_seconds,
)
from metricforge.validation import number, whole_number_or

from .objective import Softmax

EXACT = 500
"""Up to this many rows all pairs are compared in every step."""
NEIGHBOURS = 100
"""Rows that a row is compared with otherwise.  Fewer than 40 make the objective fall."""
STEPS = 15
"""Steps between two searches for neighbours."""
COVERED = 0.9
"""The share of the sum over all rows that the neighbours must hold; below it, steps compare all pairs."""
EXACT_STEPS = 5
"""The same where steps compare all pairs: the neighbours soon hold enough."""
MOST_STEPS, LEAST_STEPS = 300, 45
"""The largest and the smallest number of steps that max_iter="auto" stands for."""
LEAST_QUERIES = 2000
"""Rows from which an objective over all pairs is estimated, at the least."""
MEMORY = 10
"""Gradients that L-BFGS keeps."""
DEFINITION = "norm of the gradient of the mean accuracy, times the norm of L"


@dataclass(frozen=True)
class NCA(Solver):
    """Learn a metric that maximises the expected leave-one-out accuracy of a random nearest neighbour.

    With φ the features of the base kernel and p_ij ∝ exp(−‖L(φ_i − φ_j)‖²) over j ≠ i, maximise over L

        Σ_i Σ_{j of the class of i} p_ij − ρ‖L‖².

    L-BFGS from the base metric, or a multiple of it where distances are so small or large that weights do not differ
    (unless there is a penalty, which depends on the unit of L).  Beyond 500 rows, steps compare a row with its 100
    nearest, which are searched anew every 15 steps; while these hold less than 0.9 of Σ_j exp(−d_ij), steps compare all
    pairs.  Beyond 3,000 rows, the latter and the result are those of a part of the rows i.  The problem is not convex:
    the certificate is the norm of the gradient, and another start may end elsewhere.

    Cost: O(n² r) for each search of neighbours, O(100 n r + n r m) a step; memory 16 n m bytes and 16 MB.

    Parameters
    ----------
    n_components : int, optional
        The number of rows of L; default: all features.  The start is then the principal axes.
    penalty : float >= 0
        ρ.  Without it, training accuracy tends to 1 and distances grow.
    tol : float in (0, 1]
        Stop when a round of steps gains less than this share of the objective, or the gradient of the mean accuracy
        times the norm of L is this small.
    max_iter : "auto" or int
        The largest number of steps.  "auto" is 300, or as many as 4 forecast CPU seconds allow, at least 45: 300
        for 2,000 rows of 10 features, 45 for 3,000 of 100.
    queries : "auto" or int
        Rows drawn at random from which the sum is estimated where all pairs are compared; the nearest of a row are
        those of all rows.  "auto": all up to 3,000; of more rows, as many as 4 forecast CPU seconds allow, at least
        2,000.
    start : (r, m) nested tuple or array, optional
        L to start from, on the m features (all of them, also where components are taken); not together with
        ``n_components``.

    References
    ----------
    J. Goldberger, S. Roweis, G. Hinton, R. Salakhutdinov. Neighbourhood components analysis. NIPS 2004, eqs. (1)-(5).
    """

    n_components: int | None = None
    penalty: float = 0.0
    tol: float = 1e-3
    max_iter: int | str = "auto"
    queries: int | str = "auto"
    start: tuple[tuple[float, ...], ...] | None = None

    accepts: ClassVar[tuple[type[Constraint], ...]] = (Labels,)

    def __post_init__(self) -> None:
        whole_number_or(self.n_components, "n_components", [None])
        number(self.penalty, "penalty", least=0, most=1e100)
        number(self.tol, "tol", above=0, most=1)
        whole_number_or(self.max_iter, "max_iter", ["auto"])
        whole_number_or(self.queries, "queries", ["auto"])
        object.__setattr__(self, "start", check_start(self.start, self.n_components))

    def _solve(self, problem: Problem) -> Solution:
        assert isinstance(problem.constraint, Labels)
        labels = problem.constraint
        labels.check_two_classes()
        rows = np.flatnonzero(labels.codes >= 0)
        if len(labels.classes) == len(rows):
            raise InputError("y: every class has one labelled row, so no neighbour can be right; label more rows")
        Phi = problem.space.map.of_rows(problem.rows, rows, copies=2, gather=True)
        Phi -= Phi.mean(axis=0)  # distances do not change, and products keep more digits
        start = start_factor(Phi, self.n_components, self.start, problem.space.basis)
        # a penalty on L depends on the unit of the features, so they keep it
        unit = 1.0 if self.penalty > 0 else feature_unit(Phi, problem.seed)
        if unit != 1:
            Phi /= unit
            start = start if self.start is None else start * unit
        n, m, r = *Phi.shape, len(start)
        q = _most_queries(n, m, r) if isinstance(self.queries, str) else int(self.queries)
        softmax = Softmax(Phi, labels.codes[rows], float(self.penalty), draw(n, q, problem.seed))
        q = len(softmax.queries)
        most = _most_steps(n, m, r, q) if isinstance(self.max_iter, str) else int(self.max_iter)
        state = _ascend(softmax, start, float(self.tol), most, problem)
        L = state.point
        f, G = softmax.exact(L)
        slope = float(np.linalg.norm(G) * np.linalg.norm(L)) / n
        outcome: dict[str, Any] = {
            "accuracy": (f + self.penalty * float(np.vdot(L, L))) / n,
            "coverage": softmax.coverage if softmax.near is not None else 1.0,
            "neighbours": 0 if softmax.near is None else softmax.near.shape[1],
            "queries": q,
        }
        notes = (f"the objective is estimated from {q} rows of {n}; queries={n} takes all",) if q < n else ()
        return Solution(
            kernel=LearnedKernel.of_factor(problem.space.map, L / unit),
            status=stationarity(slope, self.tol, state.n_iter >= most),
            objective=f,
            certificate=Certificate("gradient", slope, None, DEFINITION),
            n_iter=state.n_iter,
            trace=tuple(state.trace),
            outcome=outcome,
            notes=notes,
        )


def _ascend(softmax: Softmax, L: Array, tol: float, max_iter: int, problem: Problem) -> Bounds:
    """Maximise f, which is to minimise −f, from L; the trace has exact values of f and what the round gained."""
    n = len(softmax.F)
    state = Bounds(point=L)
    if n <= EXACT:
        L, state.n_iter = _steps(softmax.exact, L, max_iter, tol, state, n, problem)
        value = softmax.exact(L)[0]
        state.offer(-value, L)
        state.trace = [(value, 0.0)]
        return state
    while True:
        value = softmax.search(L, min(NEIGHBOURS, n - 1))
        gain = value + state.upper
        state.offer(-value, L)
        state.trace.append((value, gain if np.isfinite(gain) else 0.0))
        if gain <= tol * abs(value) or state.n_iter >= max_iter:
            return state
        near = softmax.coverage >= COVERED
        compared, steps = (softmax.listed, STEPS) if near else (softmax.exact, EXACT_STEPS)
        L, steps = _steps(compared, L, min(steps, max_iter - state.n_iter), tol, state, n, problem)
        state.n_iter += steps
        if steps == 0:
            return state


def _steps(
    function: Any, L: Array, steps: int, tol: float, state: Bounds, n: int, problem: Problem
) -> tuple[Array, int]:
    """Take steps of L-BFGS until the slope over n rows is within ``tol``; return the factor and the number of steps."""
    done, slope = 0, np.inf

    def value(L: Array) -> tuple[float, Array]:
        nonlocal slope
        f, G = function(L)
        beat(done, steps)  # a step may take several values
        slope = float(np.linalg.norm(G) * np.linalg.norm(L)) / n
        return -f, -G

    def after(L: Array) -> bool:
        nonlocal done
        done += 1
        problem.step(state.n_iter + done, **({"objective": -state.upper} if np.isfinite(state.upper) else {}))
        return slope <= 0.5 * tol

    return minimize(value, L, steps, after=after, memory=MEMORY, ftol=1e-4 * tol, gtol=1e-9)


def _forecast(n: int, m: int, r: int, q: int) -> tuple[float, float]:
    """Return the forecast CPU seconds of a step, line search and searches for neighbours included, and of the rest."""
    whole = q * n * (15 + 0.15 * r)  # all pairs, with the gradient
    products, vectors = 0.1 * n * m * r, 100 * m * r
    if n <= EXACT:
        return 1e-9 * (whole + products + vectors), 2e-9 * whole
    search = q * n * (18 + 0.05 * r) + (n**2 * (7 + 0.05 * r) if q < n else 0)
    step = NEIGHBOURS * n * (8 + 1.2 * r) + search / STEPS + products + vectors
    return 1e-9 * step, 1e-9 * ((EXACT_STEPS + 2) * whole + 2 * search)


def _most_queries(n: int, m: int, r: int) -> int:
    """Return what queries="auto" stands for."""

    def seconds(q: int) -> float:
        step, rest = _forecast(n, m, r, q)
        return rest + LEAST_STEPS * step

    return affordable_queries(seconds, n, LEAST_QUERIES)


def _most_steps(n: int, m: int, r: int, q: int) -> int:
    """Return what max_iter="auto" stands for."""
    return affordable_steps(*_forecast(n, m, r, q), LEAST_STEPS, MOST_STEPS)


def _seconds(size: Size) -> float:
    """Return the forecast CPU seconds of a fit where classes overlap; see docs/scaling.md."""
    n, m = size.n, size.m
    step, rest = _forecast(n, m, m, _most_queries(n, m, m))
    return rows_seconds(size) + space_seconds(size) + steps_seconds(step, rest, LEAST_STEPS, MOST_STEPS)


METHOD = Method(
    constraint=Labels,
    kernel=Standardized(Linear(), by="range"),
    solver=NCA(),
    rank=200,
    cost=_seconds,
    memory={"mm": 8 * (2 * MEMORY + 28), "nm": 40},
)
