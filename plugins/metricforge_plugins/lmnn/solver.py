"""Large margin nearest neighbours: rows nearer to target neighbours of their class than to rows of other classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from metricforge.constraints import Constraint, Labels
from metricforge.kernels import Linear, Standardized
from metricforge.optimize import Bounds, conclude, minimize
from metricforge.rows import Array, beat
from metricforge.solver import Certificate, Method, Problem, Solution, Solver, Status
from metricforge.space import LearnedKernel, Size, affordable_steps, rows_seconds, space_seconds, steps_seconds
from metricforge.validation import number, number_or, whole_number, whole_number_or

from .problem import Margins, coordinates, target_neighbours

WIDTHS = (0.5, 0.1, 0.02, 0.004, 0.001, 2e-4)
"""Widths on which the hinge is smoothed, one stage after the other."""
STEPS = 40
"""Steps of L-BFGS between two passes over all pairs of rows."""
FIRST_STEPS = 10
"""The same while many impostors are new: steps over an incomplete list lead astray."""
NEW = 0.01
"""The share of new impostors up to which the list counts as complete."""
ROUNDS = 12
"""The largest number of passes in one stage."""
FTOL = 1e-11
"""L-BFGS ends when a step gains less than this share; larger shares leave the dual point too far from feasible."""
MEMORY = 20
"""Gradients that L-BFGS keeps."""
MOST_STEPS, TYPICAL_STEPS, LEAST_STEPS = 2000, 300, 60
"""Steps that max_iter="auto" stands for at the most, that a fit takes where classes overlap, and at the least."""
DEFINITION = "objective minus the value of a dual feasible point"


@dataclass(frozen=True)
class LMNN(Solver):
    """Learn a metric in which rows are nearer to their targets than to rows of other classes, by a margin.

    With φ the features of the base kernel, d_ij = (φ_i − φ_j)'M(φ_i − φ_j), T(i) the ``k`` nearest rows of the class of
    row i under the base kernel, and l over the rows of other classes, minimise over M ⪰ 0

        (1 − μ) Σ_i Σ_{j∈T(i)} d_ij + μ Σ_i Σ_{j∈T(i)} Σ_l [1 + d_ij − d_il]₊.

    The problem is convex in M.  M = L'L is found by L-BFGS on L, in coordinates in which the first sum is ‖L‖², with
    hinges smoothed on ever smaller widths, over the impostors l that pass so far; passes over all pairs of rows add
    those that are missing.  The certificate is a duality gap of the whole problem.

    Cost: 5 to 15 passes of O(n² r) time in float32; O(q r + n r m) a step for q listed impostors, a few hundred steps;
    memory 16 n m bytes and at most 0.2 GB for the list.

    Parameters
    ----------
    k : int
        Target neighbours of a row; classes with fewer other rows use all of these.
    mu : float in (0, 1)
        The weight μ of the margins.
    n_components : int, optional
        The rank of L.  Default: all directions.  With fewer, the problem is not convex; the gap is then relative to the
        best metric of any rank.
    ridge : "auto", "least" or float >= 0
        Added to the first sum as ``ridge`` · c · tr M, with c the mean eigenvalue of Σ (φ_i − φ_j)(φ_i − φ_j)' over
        targets.  "least" is 0, or 1e-6 where this matrix is singular and the metric would be unbounded.  "auto" is
        (4 m / n)² for m directions of n labelled rows, at most 1, and "least" below 0.01: test errors on wide rows are
        much lower with it.  Where components of wide features are taken, m is the number of features.
    tol : float in (0, 1]
        The gap to reach, relative to the objective.
    max_iter : "auto" or int
        The largest number of steps of L-BFGS.  "auto" is 2000, or as many as 4 forecast CPU seconds allow, at least 60.

    References
    ----------
    K. Q. Weinberger, L. K. Saul. Distance metric learning for large margin nearest neighbor classification. JMLR 10,
    2009, eqs. (11)-(14).
    """

    k: int = 3
    mu: float = 0.5
    n_components: int | None = None
    ridge: float | str = "auto"
    tol: float = 5e-3
    max_iter: int | str = "auto"

    accepts: ClassVar[tuple[type[Constraint], ...]] = (Labels,)

    def __post_init__(self) -> None:
        whole_number(self.k, "k")
        number(self.mu, "mu", above=0, below=1)
        whole_number_or(self.n_components, "n_components", [None])
        number_or(self.ridge, "ridge", ["auto", "least"], least=0)
        number(self.tol, "tol", above=0, most=1)
        whole_number_or(self.max_iter, "max_iter", ["auto"])

    def _solve(self, problem: Problem) -> Solution:
        assert isinstance(problem.constraint, Labels)
        labels = problem.constraint
        labels.check_two_classes()
        rows = np.flatnonzero(labels.codes >= 0)
        codes = labels.codes[rows]
        Phi = problem.space.map.of_rows(problem.rows, rows, copies=3, gather=True)
        i, j = target_neighbours(Phi, codes, self.k)
        axes = coordinates(Phi, i, j, self.ridge, problem.space.width)
        margins = Margins(np.ascontiguousarray(Phi @ axes.back.T), codes, i, j, float(self.mu))
        del Phi
        start = self._start(margins, axes.root)
        most = _most_steps(*margins.F.shape) if isinstance(self.max_iter, str) else int(self.max_iter)
        state = _descend(margins, start, float(self.tol), most, problem)
        L = state.point @ axes.back
        converged, limited = state.within(self.tol), state.n_iter >= most
        if len(L) < len(axes.root) and not converged and not limited:
            status = Status.TRUNCATED
        else:
            ended = f"after {state.n_iter} steps with a gap of {state.gap / state.upper:.2%} of the objective"
            status = conclude("lmnn", converged, limited, f"{ended}, above tol={self.tol:g}")
        alone = int(np.count_nonzero(np.bincount(codes) == 1))
        notes: tuple[str, ...] = (f"{alone} class(es) have one row, which has no target neighbour",) if alone else ()
        if axes.ridge:
            notes += (f"a ridge of {axes.ridge:.3g} tr M was added, for the targets do not determine all directions",)
        outcome: dict[str, Any] = {
            "lower_bound": state.lower,
            "impostors": int(margins.listed.nnz),
            "targets": len(i),
            "passes": len(state.trace),
            "ridge": axes.ridge,
            "learned_rank": int(np.linalg.matrix_rank(L, tol=1e-3 * np.linalg.norm(L, 2))),
        }
        return Solution(
            kernel=LearnedKernel.of_factor(problem.space.map, L),
            status=status,
            objective=state.upper,
            certificate=Certificate("gap", state.gap, abs(state.upper), DEFINITION),
            n_iter=state.n_iter,
            trace=tuple(state.trace),
            outcome=outcome,
            notes=notes,
        )

    def _start(self, margins: Margins, root: Array) -> Array:
        """Return the base metric, or its principal axes, scaled to the margin."""
        L = root
        if self.n_components is not None and self.n_components < len(root):
            Z = margins.F @ root.T
            Z -= Z.mean(axis=0)
            axes = np.linalg.eigh(Z.T @ Z)[1][:, ::-1][:, : self.n_components]
            L = axes.T @ root
        return np.asarray(margins.scale(L) * L)


def _descend(margins: Margins, L: Array, tol: float, max_iter: int, problem: Problem) -> Bounds:
    """Minimise the objective from L until the gap is within ``tol``."""
    state = Bounds(point=L, lower=0.0)
    value, _ = margins.scan(L)
    allowed = FIRST_STEPS
    for width in WIDTHS:
        for _ in range(ROUNDS):
            allowed = min(allowed, max_iter - state.n_iter)
            L, steps = _steps(margins, L, width, allowed, state, problem)
            state.n_iter += steps
            before, (value, added) = value, margins.scan(L)
            beat(state.n_iter, max_iter)  # each of these may take a second
            bound, direction = margins.lower_bound(L, width)
            beat(state.n_iter, max_iter)
            state.offer(value, L)
            state.record(bound)
            if state.within(tol) or state.n_iter >= max_iter:
                return state
            complete = added <= NEW * margins.listed.nnz
            settled = complete and (steps < allowed or abs(before - value) < 0.1 * tol * value)
            allowed = STEPS if complete else FIRST_STEPS
            wider = margins.widened(L, direction, width) if settled and len(L) == L.shape[1] else L
            # the gap of a smoothed objective stays above what smoothing costs: do not wait for it
            done = settled and (wider is L or width > WIDTHS[-1])
            L = wider
            if done:
                break
    return state


def _steps(margins: Margins, L: Array, width: float, steps: int, state: Bounds, problem: Problem) -> tuple[Array, int]:
    """Take some steps of L-BFGS over the listed impostors; return the factor and the number of steps."""
    done = state.n_iter

    def value(L: Array) -> tuple[float, Array]:
        found = margins.value(L, width)
        beat(done, state.n_iter + steps)  # a line search may take several
        return found

    def after(L: Array) -> None:
        nonlocal done
        done += 1
        problem.step(done, objective=state.upper, gap=state.gap) if np.isfinite(state.upper) else problem.step(done)

    return minimize(value, L, steps, after=after, memory=MEMORY, ftol=FTOL, gtol=1e-12)


def _forecast(n: int, m: int) -> tuple[float, float]:
    """Return the forecast CPU seconds of a step, with its share of passes over all pairs, and of the rest."""
    step = 0.4 * n * m**2 + 130 * m**2 + n**2 * (0.15 + 0.004 * m) + 300 * n * m
    return 1e-9 * step, 1e-9 * (2e7 + 50 * n**2 + 2 * n * m**2 + 3 * m**3)


def _most_steps(n: int, m: int) -> int:
    """Return what max_iter="auto" stands for."""
    return affordable_steps(*_forecast(n, m), LEAST_STEPS, MOST_STEPS)


def _seconds(size: Size) -> float:
    """Return the forecast CPU seconds of a fit where classes overlap; see docs/scaling.md."""
    step, rest = _forecast(size.n, size.m)
    return rows_seconds(size) + space_seconds(size) + steps_seconds(step, rest, LEAST_STEPS, TYPICAL_STEPS)


METHOD = Method(
    constraint=Labels,
    kernel=Standardized(Linear(), by="range"),
    solver=LMNN(),
    rank=200,
    cost=_seconds,
    # vectors of L-BFGS, rows in coordinates, and lists of active triplets
    memory={"mm": 8 * (2 * MEMORY + 28), "nm": 160, "n": 9000},
)
