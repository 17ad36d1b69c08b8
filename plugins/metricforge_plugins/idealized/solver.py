"""Learning with idealized kernels: a PSD metric under which dissimilar pairs are further apart by a margin.

`hints` makes a convex program (`program`) of rows and hints, `proximal` solves it; this file holds the options and goes
from the optimum to a kernel and a report.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from metricforge import psd as _psd
from metricforge.constraints import Constraint, Labels, Pairs
from metricforge.errors import InputError
from metricforge.kernels import Kernel, Linear, Standardized
from metricforge.optimize import conclude
from metricforge.rows import Array, ComparedByContent
from metricforge.solver import Certificate, Method, Problem, Solution, Solver
from metricforge.space import DENSE_WIDTH, Size, space_bytes
from metricforge.validation import number, number_or, one_of, whole_number

from . import proximal
from .hints import KEPT_BYTES, Prepared, Restriction, prepare, refined
from .selection import check_selection
from .subspace import fit_seconds
from .unprojected import Unprojected

PSD = ("exact", "project", "paper")
FULL_GAP_WORK = 3e9
"""Multiplications that the gap to the full program may cost."""


@dataclass(frozen=True, eq=False)
class Idealized(ComparedByContent, Solver):
    """Learn a metric from similar and dissimilar pairs, with a margin between the two kinds.

    Minimise over B ⪰ 0, γ >= 0 and ξ >= 0, with z_t = φ_i − φ_j the difference of a pair in the features of the kernel
    and d_t² = z_t'Mz_t its squared distance before learning,

        ½‖B‖² + (C_S / N_S) Σ_S ξ_t + C_D (−νγ + (1 / N_D) Σ_D ξ_t)
        z_t'Bz_t <= d_t² + ξ_t on similar pairs,   z_t'Bz_t >= d_t² + γ − ξ_t on dissimilar pairs.

    The learned kernel is φ(x)'Bφ(y).  The objective is the primal value of the B returned; objective − gap is the dual
    value of feasible multipliers, so that the optimum lies between the two, always.

    Parameters
    ----------
    nu : float in [0, 1], default=0.8
        ν: a lower bound on the share of dissimilar pairs that support the solution and, when γ > 0, an upper bound on
        the share that violates the margin (Proposition 3).
    c_similar, c_dissimilar : float > 0, optional
        C_S and C_D; default 100 / mean ‖z‖².  They mean what the problem above says on the features as they are.
    psd : {"exact", "project", "paper"}, default="exact"
        "exact" imposes B ⪰ 0; "project" solves without it and takes the PSD part of the optimum; "paper" leaves that
        optimum as it is: distances may then be zero between different rows, and there is no embedding.
    neighbors : int, "auto" or None, default="auto"
        How many of its closest similar and of its closest dissimilar pairs each row contributes (Sec. 3.2.5); "auto" is
        every pair that was given, and 5 where pairs are built from labels; None is every pair.
    radius : float, "median" or None, default="median"
        Pairs further apart are left out; "median" is the median distance of all pairs, and applies only where pairs are
        chosen by ``neighbors``.
    M : PSD matrix or Kernel, optional
        The metric before learning, which gives the d_t²: a matrix on the features, or another kernel on the rows;
        default the kernel's own metric, the identity on its features.
    tol : float in (0, 1], default=1e-3
        Stop when gap <= tol · max(|objective|, ½‖B‖²).
    max_iter : int, default=1000
        Newton steps at the most.

    Notes
    -----
    Time: two passes over the pairs, 4 N p² multiplications, for each of some 20 to 60 Newton steps, and p³ for the
    eigenvalues of B; p is the number of features, or of rows in pairs where those are fewer.  Memory: features of the
    rows that occur in pairs (n × p), their differences (N × p, at most 256 MB) and about fifteen vectors of length N.

    References
    ----------
    J. T. Kwok and I. W. Tsang. Learning with idealized kernels. ICML 2003; eq. (2), (8)-(16), Propositions 1-3.
    """

    accepts: ClassVar[tuple[type[Constraint], ...]] = (Pairs, Labels)

    nu: float = 0.8
    c_similar: float | None = None
    c_dissimilar: float | None = None
    psd: str = "exact"
    neighbors: int | str | None = "auto"
    radius: float | str | None = "median"
    M: Any = None
    tol: float = 1e-3
    max_iter: int = 1000

    def __post_init__(self) -> None:
        number(self.nu, "nu", least=0, most=1)
        for name in ("c_similar", "c_dissimilar"):
            number_or(getattr(self, name), name, [None], above=0)
        one_of(self.psd, "psd", PSD)
        check_selection(self.neighbors, self.radius)
        if self.M is not None and not isinstance(self.M, Kernel):
            object.__setattr__(self, "M", _as_metric(self.M))
        number(self.tol, "tol", above=0, most=1)
        whole_number(self.max_iter, "max_iter")

    def _solve(self, problem: Problem) -> Solution:
        prepared = prepare(self, problem)
        optimum = self._optimum(prepared, problem)
        second = refined(problem, prepared, optimum.alpha) if optimum.n_iter < self.max_iter else None
        if second is not None:
            better = self._optimum(second, problem, optimum.n_iter)
            if better.objective < optimum.objective:
                prepared, optimum = second, better
        limited = optimum.n_iter >= self.max_iter
        where, repair = (f"at max_iter={self.max_iter}", "max_iter or tol") if limited else ("at rounding", "tol")
        ended = f"{where} with a duality gap of {optimum.gap:.3g} (objective {optimum.objective:.6g})"
        status = conclude("idealized", optimum.converged, limited, ended, f"raise {repair}")
        B = _psd.project(optimum.B) if self.psd == "project" else optimum.B
        learned = prepared.kernel(problem.space.map, B)
        outcome, notes = self._outcome(prepared, optimum, B)
        return Solution(
            Unprojected(learned) if self.psd == "paper" and _indefinite(B) else learned,
            status,
            objective=optimum.objective,
            certificate=Certificate(
                "gap",
                optimum.gap,
                optimum.scale,
                _definition(prepared, exact=self.psd == "exact"),
            ),
            n_iter=optimum.n_iter,
            trace=optimum.trace,
            outcome=outcome,
            notes=(*prepared.hints.notes, *notes),
        )

    def _optimum(self, prepared: Prepared, problem: Problem, done: int = 0) -> proximal.Optimum:
        """Solve a program, after some Newton steps on another one."""
        optimum = proximal.solve(
            prepared.program,
            psd=self.psd == "exact",
            tol=self.tol,
            max_iter=int(self.max_iter) - done,
            seed=problem.seed,
            step=lambda i, most, **info: problem.step(done + i, done + most, **info),
        )
        return replace(optimum, n_iter=done + optimum.n_iter)

    def _outcome(
        self, prepared: Prepared, optimum: proximal.Optimum, B: Array
    ) -> tuple[dict[str, Any], tuple[str, ...]]:
        hints, program = prepared.hints, prepared.program
        D, S = program.dissimilar, ~program.dissimilar
        support, error = optimum.alpha > 0, optimum.alpha >= program.cap
        change, learned = self._learned(prepared, optimum)
        area = prepared.unit**2
        w = np.linalg.eigvalsh(optimum.B)
        outcome: dict[str, Any] = {
            "gamma": area * optimum.gamma,
            "relative_gap": optimum.gap / optimum.scale if optimum.scale > 0 else 0.0,
            "learned": learned,
            "change": change,
            "alignment_before": prepared.aligned,
            "alignment_after": prepared.alignment(B),
            "nu": program.nu,
            "c_similar": program.c_similar / area,
            "c_dissimilar": program.c_dissimilar / area,
            "mean_squared_difference": area * float(prepared.squares.mean()),
            "similar_pairs": program.n_similar,
            "dissimilar_pairs": program.n_dissimilar,
            "zero_pairs": sum(hints.zeros),
            "support_similar": int((support & S).sum()),
            "support_dissimilar": int((support & D).sum()),
            "errors_similar": int((error & S).sum()),
            "errors_dissimilar": int((error & D).sum()),
            "support_share": float(((support & D).sum() + hints.zeros[1]) / program.n_dissimilar),
            "error_share": float(((error & D).sum() + hints.zeros[1]) / program.n_dissimilar),
            "support": hints.rows[np.stack([hints.i[support], hints.j[support]], axis=1)],
            "multipliers": program.sign[support] * optimum.alpha[support] / area,
            "learned_rank": int((np.linalg.eigvalsh(B) > 1e-9 * max(w[-1], 0.0)).sum()),
        }
        notes = []
        if prepared.restriction is not None:
            outcome |= self._restricted(prepared, prepared.restriction, optimum)
            notes.append(_restriction_note(outcome))
        if sum(hints.zeros):
            notes.append(f"{sum(hints.zeros)} pair(s) join rows with equal features, which no metric can tell apart")
        if not learned:
            before = "the one before learning" if prepared.restriction is None else "the projection alone"
            constants = f"c_similar = {outcome['c_similar']:.3g} and c_dissimilar = {outcome['c_dissimilar']:.3g}"
            notes.append(
                f"nothing was learned: the metric is {before}, because {constants} are wide enough to reach it; "
                "try a tenth of both, then less, or a larger nu, or let metricforge_plugins.idealized.tune choose"
            )
        if self.psd != "exact":
            negative = int((optimum.change + program.base < 0).sum())
            projected = _psd.project(optimum.B)
            outcome["smallest_eigenvalue"] = float(w[0])
            outcome["negative_pairs"] = negative
            outcome["objective_projected"] = program.primal(projected, program.z.spread(projected) - program.base)[0]
            if negative and self.psd == "paper":
                notes.append(f"{negative} pair(s) have a negative squared distance under B, which counts as 0")
        return outcome, tuple(notes)

    def _restricted(
        self, prepared: Prepared, restriction: Restriction, optimum: proximal.Optimum
    ) -> dict[str, float | int | None]:
        """Return what the program leaves out, and the gap to the full program where that is cheap.

        The B of the restricted program is feasible in the full one, and so are its multipliers.
        """
        program, full = prepared.program, restriction.full
        gap = None
        if full is not None and (full.size + 10 * full.width) * full.width**2 <= FULL_GAP_WORK:
            G = full.gather(program.sign * optimum.alpha)
            norm = float(np.square(np.maximum(np.linalg.eigvalsh(G), 0) if self.psd == "exact" else G).sum())
            gap = (optimum.objective - program.scaled_dual(optimum.alpha, norm)) / optimum.scale
        return {
            "components": restriction.directions,
            "features": restriction.features,
            "energy_left_out": restriction.left_out,
            "alignment_projected": prepared.alignment(np.eye(restriction.directions)),
            "full_gap": gap,
        }

    def _learned(self, prepared: Prepared, optimum: proximal.Optimum) -> tuple[float, bool]:
        """Return how far B is from M, relative to M, and whether that is more than the certificate leaves open.

        By strong convexity ‖B − optimal B‖² <= 2 gap, so a B closer to M than that may be M.  The two are compared on
        the span of the differences.  A kernel M is no matrix there: the changes of squared distances decide.
        """
        program, basis = prepared.program, prepared.basis
        reach = np.sqrt(2 * optimum.gap)
        if isinstance(self.M, Kernel):
            size = float(np.linalg.norm(program.base))
            change = float(np.linalg.norm(optimum.change))
            reach *= float(np.linalg.norm(program.z.squares))
        else:
            w, V = np.linalg.eigh(program.z.gather(np.ones(program.size)))
            V = V[:, w > 1e-12 * w[-1]]
            seen = V if basis is None else basis @ V
            M = seen.T @ seen if self.M is None else seen.T @ self.M @ seen
            size = float(np.linalg.norm(M))
            change = float(np.linalg.norm(V.T @ optimum.B @ V - M))
        return change / size, not (optimum.converged and change <= max(self.tol * size, reach))


def _definition(prepared: Prepared, *, exact: bool) -> str:
    """Return what the certificate is about, where that is not the full program with B ⪰ 0."""
    if exact and prepared.restriction is None:
        return ""
    where = [] if exact else ["without B ⪰ 0"]
    if prepared.restriction is not None:
        where.append(f"restricted to {prepared.restriction.directions} of {prepared.restriction.features} directions")
    return f"duality gap of the program {' and '.join(where)}"


def _restriction_note(outcome: dict[str, Any]) -> str:
    gap, lost = outcome["full_gap"], 100 * outcome["energy_left_out"]
    full = "" if gap is None else f", and its objective is within {100 * gap:.2g} % of the optimum of the full program"
    return (
        f"the program was restricted to {outcome['components']} of {outcome['features']} directions of the features, "
        f"chosen by the pairs; they leave out {lost:.2g} % of ‖z‖²{full}; "
        'rank="exact" solves the full program'
    )


def _indefinite(B: Array) -> bool:
    w = np.linalg.eigvalsh(B)
    return bool(w[0] < -1e-12 * max(abs(w[0]), abs(w[-1])))


def _as_metric(M: Any) -> Array:
    try:
        A = _psd.symmetric(M)
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(f"M must be a symmetric PSD matrix or a Kernel: {error}") from None
    w = np.linalg.eigvalsh(A)
    if w[-1] <= 0 or w[0] < -1e-8 * w[-1]:
        raise InputError(
            f"M must be positive semidefinite and not zero, got eigenvalues from {w[0]:.3g} to {w[-1]:.3g}; "
            "project it first with mf.psd.project(M)"
        )
    A.setflags(write=False)
    return A


def _bytes(size: Size) -> float:
    """Return the forecast peak memory: features of rows in pairs, scatters of a subspace, and numbers for each pair."""
    features = 3 * 8 * size.n * size.m
    if size.representation == "explicit":  # beyond this they are computed again in every pass
        features = min(features, 3 * KEPT_BYTES)
    return max(space_bytes(size), features + 8 * (26 * min(size.m, DENSE_WIDTH) ** 2 + 12 * size.p))


METHOD = Method(
    constraint=Pairs,
    kernel=Standardized(Linear(), by="range"),
    solver=Idealized(),
    order=2,
    explicit_columns=10_000,
    cost=fit_seconds,
    memory=_bytes,
)
