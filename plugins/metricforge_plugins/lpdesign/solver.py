"""Design a sparse mixture of kernels from triples "i is more similar to j than to k"."""

from __future__ import annotations

import logging
import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from metricforge.constraints import Constraint, Triplets
from metricforge.errors import ConvergenceWarning, InputError
from metricforge.kernels import RBF, Kernel, Mixture, Standardized
from metricforge.rows import Array, as_float64, count, draw, take, width
from metricforge.rows.threads import sum_chunks
from metricforge.solver import Certificate, Method, Problem, Solution, Solver, Status, Use
from metricforge.space import check_memory
from metricforge.validation import flag, number, numbers, one_of, whole_number, whole_number_or

from .bases import (
    as_groups,
    check_rows,
    check_values,
    directed_kernels,
    feature_weights,
    margins,
    telling_features,
    triple_directions,
    weak_kernels,
)
from .budget import DIRECTED_COLUMNS, MARGINS, WIDE_COLUMNS, affordable_triples, fit_bytes, fit_seconds
from .budget import bases as default_bases
from .cones import programs
from .cones.dominance import Dominance
from .generation import BestDesign, ColumnGeneration
from .highs import FEASIBILITY, SECONDS

log = logging.getLogger(__name__)

LARGEST_PENALTY = 1e6
"""The largest sparsity and trace: all weights are 0 far below it, and the programs are too badly scaled above it."""
CONES = ("nonneg", "dd", "change-of-basis", "sdp")
SPECTRUM_ROWS = 500
"""Number of rows on which the eigenvalues of a mixture with negative weights are computed."""


@dataclass(frozen=True)
class LPDesign(Solver):
    """Learn the weights α of K = Σ_p α_p K_p from triples, by linear programming.

        minimise (1/T) Σ_t ε_t + sparsity · Σ_g max_{p in g} |α_p| + trace · Σ_i K_ii / n^q
        subject to K_ij − K_ik + ε_t >= 1 for every triple t = (i, j, k),  ε >= 0,  and a cone:

    ``"nonneg"``: α >= 0, so that K is a kernel on new rows too (q = 1).  ``"dd"``: K_ii >= Σ_{j≠i} |K_ij| for every
    row, as in the paper (q = 2).  ``"change-of-basis"``: dominance of L⁻¹ K L⁻ᵀ for the Cholesky factor L of the last
    K, repeated a few times (q = 2).  ``"sdp"``: every positive semidefinite K, formulation (2), by Clarabel (q = 2, the
    extra ``metricforge[sdp]``, at most 300 rows).  The objective in the report is this value, and the gap is the
    difference of the upper and the lower bound in the report.

    Cost: nonneg O(T k) kernel values and numbers, seconds for T = 40,000.  dd adds n² k / 2 kernel values for each pass
    over all rows, usually one to three, and no n × n array; change-of-basis stores 3 k n² numbers and is for at most a
    thousand rows.

    Parameters
    ----------
    bases : "auto", "weak", "weak+directions" or a list of kernels
        The base kernel on each feature; these and the base kernel on directions learned from the triples; or any
        kernels, which under dd need not be positive semidefinite.  "auto" is "weak+directions" for the cone "nonneg"
        and up to 500 features, beyond which directions cost more than the program; otherwise "weak".  Of more than
        500 features it takes the 200 in which dissimilar rows differ most compared with similar ones.
    widths : numbers
        The rates of weak kernels, as multiples of the median rule on each feature or direction.
    cone : "nonneg", "dd", "change-of-basis" or "sdp"
    sparsity : float, 0 to 1e6
        γ1/T: the penalty of using a group.
    trace : float, 0 to 1e6
        γ2 n^q/T: the penalty of the diagonal.
    white : bool
        Whether the cones but nonneg may add a multiple of the identity, which affects no triple and is not penalised
        by sparsity.  It is not part of the learned kernel; ``report.white`` is its weight.
    groups : list of ids, one per base, or None
        By default the bases on the same feature or direction share a group, and any other base has its own.
    rows : "all" or "triples"
        The rows in the trace and in the dominance condition; "triples" is the set S of the paper.
    n_directions : int
    n_triples : "auto", "all" or int
        The largest number of distinct triples that are used; of more, a random sample.  "auto" is as many as 4 forecast
        CPU seconds allow, at least 2,000, and all of them with any cone but "nonneg": some 15,000 with 4 columns,
        9,000 with 100.
    tol : float
        Stop at this gap, relative to the objective.
    max_iter : int
        The maximal number of linear programs, after each change of basis.

    References
    ----------
    G. Fung, R. Rosales, R. B. Rao. Feature selection and kernel design via linear programming. IJCAI 2007,
    eqs. (1)-(8).
    """

    bases: Any = "auto"
    widths: Any = (0.125, 1.0, 8.0)
    cone: str = "nonneg"
    sparsity: float = 1e-3
    trace: float = 1e-2
    white: bool = True
    groups: Any = None
    rows: str = "all"
    n_directions: int = 50
    n_triples: int | str = "auto"
    tol: float = 1e-6
    max_iter: int = 1000

    accepts: ClassVar[tuple[type[Constraint], ...]] = (Triplets,)

    @property
    def definite(self) -> bool:
        """Whether weights are at least 0; without its white part, another design may be indefinite."""
        return self.cone == "nonneg"

    def __post_init__(self) -> None:
        object.__setattr__(self, "bases", _as_bases(self.bases))
        object.__setattr__(self, "widths", numbers(self.widths, "widths", above=0))
        if self.groups is not None:
            object.__setattr__(self, "groups", _as_ids(self.groups))
        one_of(self.cone, "cone", CONES)
        one_of(self.rows, "rows", ("all", "triples"))
        for name in ("sparsity", "trace"):
            number(getattr(self, name), name, least=0, most=LARGEST_PENALTY)
        number(self.tol, "tol", above=0, below=1)
        flag(self.white, "white")
        whole_number(self.n_directions, "n_directions", most=10**12)
        whole_number_or(self.n_triples, "n_triples", ["auto", "all"])
        whole_number(self.max_iter, "max_iter")

    @classmethod
    def paper(cls, gamma1: float, gamma2: float, **options: Any) -> PaperLPDesign:
        """Return the solver of formulations (4) and (7) with their printed γ1 and γ2: diagonal dominance, no white.

        Groups are features for weak kernels, formulation (7), and single bases for a list of other kernels, (4); give
        ``groups=range(k)`` for (4) over weak kernels.  The report is in the scale of `LPDesign`; the printed objective
        is T times as large.
        """
        printed = {"bases": "weak", "cone": "dd", "white": False}
        return PaperLPDesign(**{**printed, **options, "sparsity": gamma1, "trace": gamma2})

    def penalties(self, T: int, n: int) -> tuple[float, float]:
        """Return γ1 and γ2 of the paper for T triples and n rows."""
        return T * float(self.sparsity), T * float(self.trace) / float(n) ** (1 if self.cone == "nonneg" else 2)

    def most_triples(self, T: int, d: int | None) -> int:
        """Return how many of T distinct triples of rows with d columns are used at most."""
        if isinstance(self.n_triples, int):
            return self.n_triples
        automatic = self.n_triples == "auto" and self.cone == "nonneg" and isinstance(self.bases, str)
        if not automatic or d is None:
            return T
        if self.bases == "auto":
            k = default_bases(d, self.n_directions, len(self.widths))
        else:
            k = len(self.widths) * (d if self.bases == "weak" else d + self.n_directions)
        return affordable_triples(T, d, k)

    def _solve(self, problem: Problem) -> Solution:
        design = Design.of(self, problem)
        best, notes = design.optimise(self, problem.step)
        return design.solution(self, problem, best, notes)


@dataclass(frozen=True)
class PaperLPDesign(LPDesign):
    """`LPDesign` with ``sparsity`` and ``trace`` in the scale of the paper, γ1 and γ2; made by ``LPDesign.paper``."""

    def penalties(self, T: int, n: int) -> tuple[float, float]:
        """Return γ1 and γ2 as given."""
        return float(self.sparsity), float(self.trace)


# ---------------------------------------------------------------------------------------------------------- the design


@dataclass(frozen=True, eq=False)
class Design:
    """The data that do not depend on the penalties: bases, margins, and the rows of the conditions.

    Attributes
    ----------
    kernels : tuple of k kernels
    sizes : (k,) array
        The mean |k(x, x)| of each base, or its largest margin where that is 0; margins and conditions use bases divided
        by it.
    groups : (k,) int array
    X : rows
        The rows that occur in triples, in memory.
    triples, times : (T', 3) and (T',) arrays
        The distinct triples that are used, as row numbers of X, and their multiplicities.
    origin : (T',) array
        The position of each among the given triples.
    margins : (T', k) array
        K_ij − K_ik.
    condition_rows : rows
        The rows in the trace and in the dominance condition; possibly a dask array.
    diagonal : (k,) array
        Σ_i K_ii over them.
    seed : int
    distinct : int
        The number of distinct triples given; ``n_triples`` of them are used.
    """

    kernels: tuple[Kernel, ...]
    sizes: Array
    groups: Array
    X: Any
    triples: Array
    times: Array
    origin: Array
    margins: Array
    condition_rows: Any
    diagonal: Array
    seed: int
    distinct: int

    @classmethod
    def of(cls, solver: LPDesign, problem: Problem) -> Design:
        """Build the bases on the rows of a problem, and their margins on its triples."""
        assert isinstance(problem.constraint, Triplets)
        if not problem.constraint.size:
            raise InputError("constraints holds no triplet; give at least one")
        distinct, origin, times = np.unique(problem.constraint.triples, axis=0, return_index=True, return_counts=True)
        # in the order given, not of row numbers: directions are drawn by the position of a triple
        given = np.argsort(origin)
        total = len(given)
        given = given[draw(total, solver.most_triples(total, width(problem.rows)), problem.seed)]
        distinct, origin, times = distinct[given], origin[given], times[given]
        used = np.unique(distinct)
        X = as_float64(take(problem.rows, used))
        triples = np.searchsorted(used, distinct)
        kernels = make_bases(solver, problem, X, np.repeat(triples, times, axis=0))
        condition_rows = problem.rows if solver.rows == "all" else X
        diagonal, absolute = sum_chunks(_DiagonalSums(kernels), condition_rows)
        n = count(condition_rows)
        check_memory(
            MARGINS * 8 * len(triples) * len(kernels), f"{len(triples)} triples × {len(kernels)} bases", "use fewer"
        )
        problem.step(0, None)
        D = margins(kernels, X, triples)
        sizes = np.where(absolute > 0, absolute / n, np.maximum(D.max(axis=0), -D.min(axis=0)))
        sizes[sizes == 0] = 1.0
        D /= sizes
        groups = as_groups(kernels, solver.groups)
        return cls(
            *(kernels, sizes, groups, X, triples, times, origin, D, condition_rows),
            diagonal=diagonal / sizes,
            seed=problem.seed,
            distinct=total,
        )

    @property
    def n(self) -> int:
        """The number of rows in the trace and in the dominance condition."""
        return count(self.condition_rows)

    def traces(self, solver: LPDesign) -> Array:
        """Return Σ_i K_ii of every normalised base, white last."""
        white = solver.white and solver.cone != "nonneg"
        return np.append(self.diagonal, float(self.n)) if white else self.diagonal

    def penalties(self, solver: LPDesign) -> tuple[float, Array]:
        """Return γ1, and γ2 Σ_i K_ii of every normalised base."""
        gamma1, gamma2 = solver.penalties(int(self.times.sum()), self.n)
        return gamma1, gamma2 * self.traces(solver)

    def program(self, solver: LPDesign) -> Any:
        """Return the program of the solver's cone (the first one, for change-of-basis) without penalties."""
        return self.generation(solver, None) if solver.cone == "nonneg" else programs.program(self, solver)

    def generation(self, solver: LPDesign, condition: Dominance | None) -> ColumnGeneration:
        """Return a linear program without penalties."""
        times, diagonal = self.times.astype(np.float64), self.traces(solver)
        return ColumnGeneration(self.margins, times, self.groups, self.sizes, condition, diagonal, seed=self.seed)

    def optimise(self, solver: LPDesign, step: Any) -> tuple[BestDesign, tuple[str, ...]]:
        """Solve for the penalties of the solver; return the best design and notes."""
        penalties = self.penalties(solver)
        limits = {"tol": solver.tol, "max_iter": solver.max_iter, "step": step}
        if solver.cone == "nonneg":
            return self.program(solver).solve(*penalties, **limits), ()
        return programs.optimise(self, solver, penalties, **limits)

    # -- the outcome ---------------------------------------------------------------------------------------------

    def solution(self, solver: LPDesign, problem: Problem, best: BestDesign, notes: tuple[str, ...]) -> Solution:
        """Return the learned kernel, and the outcome in the scale of `LPDesign`."""
        T, k = float(self.times.sum()), len(self.kernels)
        weights = best.alpha[:k] / self.sizes
        kernel = Mixture(self.kernels, tuple(weights.tolist()))
        upper, lower = best.upper / T, best.lower / T
        if best.status != Status.OPTIMAL:
            warnings.warn(
                f"lpdesign stopped after {best.n_iter} linear programs with a gap of {upper - lower:.3g} (objective "
                f"{upper:.3g}); {_advice(solver, best)}, or set a larger tol",
                ConvergenceWarning,
                stacklevel=2,
            )
        by_kernel, by_distance = self._accuracy(kernel, best.alpha[:k])
        features = feature_weights(self.kernels, weights, self.X)
        outcome = {
            "lower_bound": lower,
            "upper_bound": upper,
            "accuracy_by_kernel": by_kernel,
            "accuracy_by_distance": by_distance,
            "features": features,
            "unused": tuple(np.flatnonzero(features == 0).tolist()),
            "white": float(best.alpha[k]) if len(best.alpha) > k else 0.0,
            "bases": k,
            "bases_kept": int(np.count_nonzero(weights)),
            "cuts": best.cuts,
            "passes": best.passes,
            "triples_entered": best.entered,
            "triples_used": len(self.triples),
            "repeated": int(T) - len(self.triples),
            "contradicting": self._contradicting(),
        }
        if not best.strict:
            notes = (
                *notes,
                "no better mixture of these bases is strictly dominant (identical rows, perhaps), so dominance holds "
                "only to 1e-9 of its terms; white=True makes it hold exactly"
                if solver.cone != "sdp"
                else "K is positive semidefinite to the tolerance of Clarabel; white=True makes it so exactly",
            )
        if not weights.any():
            log.warning("all weights are 0: see the notes of the report")
            notes = (*notes, self._collapse(solver, best.status))
        notes = (*notes, *self._notes(solver, problem, kernel))
        return Solution(
            kernel,
            best.status,
            upper,
            certificate=Certificate(
                "bound",
                upper - lower,
                abs(upper),
                "upper minus lower bound of the linear program"
                if solver.cone != "sdp"
                else "upper minus lower bound of the semidefinite program",
            ),
            n_iter=best.n_iter,
            trace=tuple((u / T, g / T) for u, g in best.trace),
            outcome=outcome,
            notes=notes,
        )

    def _accuracy(self, kernel: Mixture, alpha: Array) -> tuple[float, float]:
        """Return the share of the triples with K_ij > K_ik, and with d_ij < d_ik; ties do not count."""
        margin = self.margins @ alpha
        i, j, k = self.triples.T
        if alpha.min() >= 0:  # d_ij² < d_ik² if and only if 2 (K_ij − K_ik) > K_jj − K_kk
            own = kernel.diag(self.X)
            nearer = 2 * margin > own[j] - own[k]
        else:  # squared distances below 0 count as 0, so some triples are ties
            near, far = (kernel.paired_squared_distance(self.X[i], self.X[other]) for other in (j, k))
            nearer = near < far
        by_kernel, by_distance = self.times @ np.stack([margin > 0, nearer], axis=1) / self.times.sum()
        return float(by_kernel), float(by_distance)

    def _contradicting(self) -> int:
        """Return the number of distinct triples (i, j, k) for which (i, k, j) is given too."""
        both = np.concatenate([self.triples, self.triples[:, [0, 2, 1]]])
        return int(np.count_nonzero(np.unique(both, axis=0, return_counts=True)[1] == 2))

    def _collapse(self, solver: LPDesign, status: Status) -> str:
        """Return a note that explains α = 0 and names the option to change."""
        if status != Status.OPTIMAL:
            return "all weights are 0, because a limit was reached before a better design was found; see the warning"
        what = "all weights are 0 at the optimum, so all distances are equal: "
        T = self.times.sum()
        gain = self.times @ self.margins / T  # the decrease of the loss per unit of each normalised base
        if solver.cone != "nonneg" and not solver.white:
            return (
                what + "no mixture of these bases that is diagonally dominant over all rows lowers the objective; "
                'give white=True, or cone="nonneg", which has no such condition'
            )
        balanced = (
            "the triples contradict each other (report.contradicting), or compare rows that are equal under all bases"
        )
        if np.abs(gain).max() <= FEASIBILITY:
            return what + balanced
        if solver.cone == "nonneg" and gain.max() <= FEASIBILITY:
            return (
                what + "no base agrees with the triples on average; give other bases, for instance "
                'bases="weak+directions", and check the order of i, j, k'
            )
        if solver.cone != "nonneg":
            return what + f"the penalties outweigh the triples; lower trace={solver.trace} first, then sparsity"
        gamma1, gamma2 = solver.penalties(int(T), self.n)
        left = np.maximum(gain - gamma2 * self.diagonal / T, 0) * self.sizes
        most = T * float(np.bincount(self.groups, weights=left).max())
        if most > 0 and gamma1 > 0:
            return what + f"sparsity outweighs the triples; give a value below {solver.sparsity * most / gamma1:.3g}"
        priced = self.diagonal > 0
        most = T * float((gain[priced] / self.diagonal[priced]).max(initial=0.0))
        if most > 0 and gamma2 > 0:
            value = solver.trace * most / gamma2
            return what + f"trace outweighs the triples; give a value below {value:.3g}, and a small sparsity"
        return what + balanced

    def _notes(self, solver: LPDesign, problem: Problem, kernel: Mixture) -> tuple[str, ...]:
        assert isinstance(problem.constraint, Triplets)
        notes = []
        d = width(self.X) or 0
        if solver.bases == "auto" and d > DIRECTED_COLUMNS:
            notes.append(
                f"kernels on {WIDE_COLUMNS} of {d} columns, those in which dissimilar rows differ most compared with "
                'similar ones; bases="weak" takes all'
            )
        if len(self.triples) < self.distinct:
            notes.append(
                f"the linear program has a sample of {len(self.triples)} of {self.distinct} distinct triples; "
                'n_triples="all" takes them all'
            )
        blind = np.abs(self.margins).max(axis=1) <= 1e-12
        if blind.any():
            first = tuple(problem.constraint.triples[self.origin[blind].min()].tolist())
            notes.append(
                f"{int(self.times @ blind)} triple(s) compare rows that are equal under all bases (first {first})"
            )
        if min(kernel.weights) < 0:
            sample = as_float64(take(problem.rows, draw(problem.n, SPECTRUM_ROWS, problem.seed)))
            w = np.linalg.eigvalsh(kernel.block(sample, sample))
            if w[0] < -1e-9 * w[-1]:
                notes.append(
                    "with negative weights the mixture is positive semidefinite only together with white: without it, "
                    f"the smallest eigenvalue is {w[0] / w[-1]:.2g} of the largest on {count(sample)} training rows, "
                    "squared distances below 0 count as 0, and new rows have no white"
                )
        return tuple(notes)


def _advice(solver: LPDesign, best: BestDesign) -> str:
    """Return what to change after a limit was reached."""
    if best.status == Status.TIME_LIMIT:
        return f"one of them took {SECONDS:.0f} s: give fewer triples or bases"
    if best.n_iter < solver.max_iter:
        return "rounding prevents more: scale the rows, or raise sparsity and trace"
    return "raise max_iter"


def make_bases(solver: LPDesign, problem: Problem, X: Any, triples: Array) -> tuple[Kernel, ...]:
    """Return the bases of a solver on the rows of a problem; X are the rows in triples, ``triples`` refer to X."""
    rows, kernel, seed = problem.rows, problem.kernel, problem.seed
    definite = solver.cone == "nonneg"
    if not isinstance(solver.bases, str):
        check_rows(solver.bases, kernel, rows)
        given = tuple(base.resolve(rows, seed=seed) for base in solver.bases)
        check_values(given, rows, definite=definite, seed=seed)
        return given
    wide = (width(rows) or 0) > DIRECTED_COLUMNS
    features = telling_features(X, triples, WIDE_COLUMNS) if wide and solver.bases == "auto" else None
    made = weak_kernels(kernel, rows, solver.widths, seed=seed, features=features)
    check_values(made[:1], rows, definite=definite, seed=seed)
    if solver.bases == "weak+directions" or (solver.bases == "auto" and definite and not wide):
        directions = triple_directions(X, triples, solver.n_directions, seed=seed)
        made += directed_kernels(kernel, rows, solver.widths, directions, seed=seed)
    return tuple(made)


@dataclass(frozen=True, eq=False)
class _DiagonalSums:
    """Σ_i K_ii and Σ_i |K_ii| of every base over a chunk."""

    kernels: tuple[Kernel, ...]

    def __call__(self, chunk: Any) -> Array:
        chunk = as_float64(chunk)
        own = [kernel.diag(chunk) for kernel in self.kernels]
        return np.asarray([[d.sum() for d in own], [np.abs(d).sum() for d in own]])


# ------------------------------------------------------------------------------------------------------------- options


def _as_bases(bases: Any) -> Any:
    if isinstance(bases, str):
        if bases in ("auto", "weak", "weak+directions"):
            return bases
        raise InputError(f'bases must be "auto", "weak", "weak+directions" or a list of kernels, got {bases!r}')
    kernels = tuple(bases) if isinstance(bases, list | tuple) else ()
    if not kernels or not all(isinstance(kernel, Kernel) for kernel in kernels):
        raise InputError(f'bases must be "auto", "weak", "weak+directions" or a list of kernels, got {bases!r}')
    return kernels


def _as_ids(groups: Any) -> tuple[Any, ...]:
    if isinstance(groups, str) or not hasattr(groups, "__len__") or getattr(groups, "ndim", 1) != 1:
        raise InputError(f"groups must be a list of ids, one per base, or None, got {groups!r}")
    ids = tuple(g.item() if isinstance(g, np.generic) else g for g in groups)
    if not ids or not all(isinstance(g, int | str) for g in ids):
        raise InputError(f"groups must contain numbers or names, one per base, got {groups!r}")
    return ids


METHOD = Method(
    constraint=Triplets,
    kernel=Standardized(RBF("median"), by="range"),
    solver=LPDesign(),
    uses=(Use(Triplets, 2, takes=("vectors",)),),  # rows of other types need bases
    scale_free=True,
    cost=fit_seconds,
    memory=fit_bytes,
)
