"""Learning with idealized kernels: a PSD metric under which dissimilar pairs are further apart by a margin.

`hints` makes a convex program (`program`) of rows and hints, `proximal` solves it; this file holds the options and goes
from the optimum to a kernel and a report.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from metricforge import psd as _psd
from metricforge.checks import number, number_or, one_of, whole_number
from metricforge.constraints import Constraint, Labels, Pairs
from metricforge.errors import ConvergenceWarning, InputError
from metricforge.kernels import Kernel, Linear
from metricforge.problem import Certificate, Method, Problem, Solution, Solver, Status
from metricforge.rows import ComparedByContent
from metricforge.space import LearnedKernel

from . import proximal
from .hints import Prepared, prepare
from .ideal import label_alignment, pair_alignment
from .selection import check_selection
from .unprojected import Unprojected

Array = NDArray[Any]

PSD = ("exact", "project", "paper")


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
    nu : float in [0, 1], default=0.2
        ν: a lower bound on the share of dissimilar pairs that support the solution and, when γ > 0, an upper bound on
        the share that violates the margin (Proposition 3).
    c_similar, c_dissimilar : float > 0, optional
        C_S and C_D; default 1000 / mean ‖z‖².  They mean what the problem above says on the features as they are.
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
    tol : float > 0, default=1e-6
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

    nu: float = 0.2
    c_similar: float | None = None
    c_dissimilar: float | None = None
    psd: str = "exact"
    neighbors: int | str | None = "auto"
    radius: float | str | None = "median"
    M: Any = None
    tol: float = 1e-6
    max_iter: int = 1000

    def __post_init__(self) -> None:
        number(self.nu, "nu", least=0, most=1)
        for name in ("c_similar", "c_dissimilar"):
            number_or(getattr(self, name), name, [None], above=0)
        one_of(self.psd, "psd", PSD)
        check_selection(self.neighbors, self.radius)
        if self.M is not None and not isinstance(self.M, Kernel):
            object.__setattr__(self, "M", _as_metric(self.M))
        number(self.tol, "tol", above=0)
        whole_number(self.max_iter, "max_iter")

    def _solve(self, problem: Problem) -> Solution:
        prepared = prepare(self, problem)
        optimum = proximal.solve(
            prepared.program,
            psd=self.psd == "exact",
            tol=self.tol,
            max_iter=int(self.max_iter),
            seed=problem.seed,
            step=problem.step,
        )
        if not optimum.converged:
            limit = optimum.n_iter >= self.max_iter
            where, repair = (f"at max_iter={self.max_iter}", "max_iter or tol") if limit else ("at rounding", "tol")
            message = (
                f"idealized stopped {where} with a duality gap of {optimum.gap:.3g} "
                f"(objective {optimum.objective:.6g}); raise {repair}"
            )
            warnings.warn(message, ConvergenceWarning, stacklevel=4)
        B = _psd.project(optimum.B) if self.psd == "project" else optimum.B
        learned = LearnedKernel(problem.space.map, prepared.matrix(B))
        outcome, notes = self._outcome(prepared, optimum, B)
        return Solution(
            Unprojected(learned) if self.psd == "paper" and _indefinite(B) else learned,
            Status.OPTIMAL if optimum.converged else Status.ITERATION_LIMIT,
            objective=optimum.objective,
            certificate=Certificate(
                "gap",
                optimum.gap,
                optimum.scale,
                "" if self.psd == "exact" else "duality gap of the program without B ⪰ 0",
            ),
            n_iter=optimum.n_iter,
            trace=optimum.trace,
            outcome=outcome,
            notes=(*prepared.hints.notes, *notes),
        )

    def _outcome(
        self, prepared: Prepared, optimum: proximal.Optimum, B: Array
    ) -> tuple[dict[str, Any], tuple[str, ...]]:
        hints, program = prepared.hints, prepared.program
        D, S = program.dissimilar, ~program.dissimilar
        support, error = optimum.alpha > 0, optimum.alpha >= program.cap
        change, learned = self._learned(prepared, optimum)
        w = np.linalg.eigvalsh(optimum.B)
        outcome: dict[str, Any] = {
            "gamma": optimum.gamma,
            "relative_gap": optimum.gap / optimum.scale if optimum.scale > 0 else 0.0,
            "learned": learned,
            "change": change,
            **self._alignments(prepared, prepared.matrix(B)),
            "nu": program.nu,
            "c_similar": program.c_similar,
            "c_dissimilar": program.c_dissimilar,
            "mean_squared_difference": float(program.z.squares.mean()),
            "similar_pairs": int(S.sum()),
            "dissimilar_pairs": int(D.sum()),
            "zero_pairs": hints.zeros,
            "support_similar": int((support & S).sum()),
            "support_dissimilar": int((support & D).sum()),
            "errors_similar": int((error & S).sum()),
            "errors_dissimilar": int((error & D).sum()),
            "support_share": float((support & D).sum() / D.sum()),
            "error_share": float((error & D).sum() / D.sum()),
            "support": hints.rows[np.stack([hints.i[support], hints.j[support]], axis=1)],
            "multipliers": program.sign[support] * optimum.alpha[support],
            "learned_rank": int((np.linalg.eigvalsh(B) > 1e-9 * max(w[-1], 0.0)).sum()),
        }
        notes = []
        if hints.zeros:
            notes.append(f"{hints.zeros} pair(s) join rows with equal features and were dropped")
        if not learned:
            notes.append(
                "nothing was learned: the metric is the one before learning, because c_similar = "
                f"{program.c_similar:.3g} and c_dissimilar = {program.c_dissimilar:.3g} are wide enough to reach it; "
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

    def _alignments(self, prepared: Prepared, W: Array) -> dict[str, float]:
        """Return the alignment with the ideal kernel before and after: of all rows for labels, else of the pairs."""
        hints, M = prepared.hints, self.M
        if prepared.aligned is not None:
            (after,) = pair_alignment(hints.Phi, hints.i, hints.j, hints.dissimilar, W)
            return {"alignment_before": prepared.aligned, "alignment_after": after}
        metrics = np.eye(len(W)) if M is None else M, W
        if hints.codes is not None:
            before, after = label_alignment(hints.Phi, hints.codes, *metrics)
        else:
            before, after = pair_alignment(hints.Phi, hints.i, hints.j, hints.dissimilar, *metrics)
        return {"alignment_before": before, "alignment_after": after}

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


def _indefinite(B: Array) -> bool:
    w = np.linalg.eigvalsh(B)
    return bool(w[0] < -1e-12 * max(abs(w[0]), abs(w[-1])))


def _as_metric(M: Any) -> Array:
    try:
        A = _psd.symmetric(M)
    except (ValueError, TypeError) as error:
        raise InputError(f"M must be a symmetric PSD matrix or a Kernel: {error}") from None
    w = np.linalg.eigvalsh(A)
    if w[-1] <= 0 or w[0] < -1e-8 * w[-1]:
        raise InputError(
            f"M must be positive semidefinite and not zero, got eigenvalues from {w[0]:.3g} to {w[-1]:.3g}; "
            "project it first with mf.psd.project(M)"
        )
    A.setflags(write=False)
    return A


METHOD = Method(constraint=Pairs, kernel=Linear(), solver=Idealized(), order=1)
