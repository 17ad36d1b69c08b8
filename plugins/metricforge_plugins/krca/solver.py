"""Kernel relevant component analysis: whiten the variation inside groups of rows that belong together."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from metricforge import rows as _rows
from metricforge.constraints import Chunklets, Constraint, Pairs
from metricforge.errors import InputError, UnknownNameError
from metricforge.kernels import RBF, Kernel, Linear, Standardized
from metricforge.rows import Array, as_float64
from metricforge.solver import Certificate, Method, Problem, Solution, Solver, Status, Use
from metricforge.space import Size, Space, explicit_width, rows_seconds, space_seconds
from metricforge.validation import nearest, number, number_or, one_of, whole_number

from .chunklets import Groups, contrasts, groups_of
from .kernel import ChunkletKernel, ScatterKernel
from .scatter import scatter
from .system import CHECKED_ORDER, DIGITS, append, check_digits, check_finite, direction, factorised, gram, relative

LARGEST_EPSILON = 1e150
"""With larger ones, squares of the factor of nεI + Q'KQ overflow."""
MULTIPLE, LEAST_MULTIPLE = 5.0, 0.02
"""epsilon="auto" in mean eigenvalues of C: the largest and, for explicit features, the smallest multiple.  With a
Gaussian kernel on the data sets of the paper's Table IV, 5 to 100 do well."""
VALUES, SQUARES = 1e-14, 1e-28
"""Below this share of the mean k(x, x), ε or an eigenvalue of C is rounding error: of values of k, or of squares of
explicit features."""
LEAST = 1e-150
"""The smallest ε: its inverse is squared."""
DEFINITION = "relative KKT residual ‖(Ĉ − M⁻¹)v‖ / ‖Ĉv‖ along a random v"
UPDATED = "relative KKT residual of the new columns along a random v, its norm estimated from random combinations"


@dataclass(frozen=True)
class GroupSolver(Solver):
    """What the methods that whiten inside groups share: ε, the scatter inside groups, and updates."""

    epsilon: float | str = "auto"

    accepts: ClassVar[tuple[type[Constraint], ...]] = (Chunklets,)

    def __post_init__(self) -> None:
        number_or(self.epsilon, "epsilon", ["auto"], least=0, most=LARGEST_EPSILON)

    def _multiple(self, width: int | None, contrasts: int) -> float:
        """Return epsilon="auto" in mean eigenvalues of C, for explicit features of this width or None for others."""
        return multiple(width, contrasts)

    def _scatter(self, problem: Problem, groups: Groups, space: Space) -> tuple[Array, float, dict[str, Any]]:
        """Return S of the features, ε, and the outcome so far."""
        S = scatter(space.map, problem.rows, groups, problem.step)
        mean = float(S.trace()) / groups.n / min(groups.contrasts, len(S))
        sample = as_float64(_rows.take(problem.rows, groups.order[_rows.draw(groups.n, 1000, problem.seed)]))
        rounding = SQUARES if space.map.exact else VALUES
        times = self._multiple(len(S) if space.map.exact else None, groups.contrasts)
        epsilon, choice = self._choose(mean, times, rounding * float(problem.kernel.diag(sample).mean()))
        if not space.map.exact:
            _check_positive(epsilon, "landmarks do not span the whole kernel", times * mean)
        return S, epsilon, {**_outcome(groups.n, epsilon, "features", groups), **choice, "left_out": space.left_out()}

    def _choose(self, mean: float, times: float, rounding: float) -> tuple[float, dict[str, Any]]:
        """Return ε, and the entries of the outcome that say how it was chosen."""
        if isinstance(self.epsilon, str):
            if not mean > rounding:
                raise InputError(
                    'epsilon="auto" is a multiple of the mean eigenvalue of C, and that is 0: under this kernel, the '
                    "rows of each group are identical; give epsilon a number, or groups of different rows"
                )
            if mean < LEAST:
                raise InputError(f"X: the mean eigenvalue of C is {mean:.3g}, and its inverse overflows; rescale X")
            return times * mean, {"epsilon_rule": f"{times:.3g} × mean eigenvalue of C", "mean_eigenvalue": mean}
        floor = max(rounding, LEAST)
        if 0 < self.epsilon <= floor:
            raise InputError(
                f"epsilon={self.epsilon:g} is lost to rounding: with these values of the kernel it must exceed "
                f'{floor:.1g}; give a larger one or "auto" ({times * mean:.3g} here)'
            )
        return float(self.epsilon), {"epsilon_rule": "given", "mean_eigenvalue": mean}

    # -- further groups ------------------------------------------------------------------------------------------

    @abstractmethod
    def _grown(self, metric: Any, X: Any, groups: Groups, hold: str) -> tuple[Any, float, float, str]:
        """Return the kernel with further groups, the objective, the residual and what the residual is."""

    def update(self, metric: Any, X: Any, constraint: Constraint, *, hold: str = "ridge", **options: Any) -> Solution:
        """Return the solution with further groups of new rows.

        The groups are new ones, as in Sec. III-B: an id that occurred before does not refer to the earlier group.  ε
        and the parameters of the base kernel are those of the first fit.

        Parameters
        ----------
        hold : {"ridge", "epsilon"}
            "ridge" keeps c = nε, as eq. (10) does, and appends to the factor: O(n²) for a small group, and ε = c/n
            decreases as n grows.  "epsilon" keeps ε of eq. (6); then every diagonal entry of the system changes, and
            the factor is computed again.  With features both cost O(m³).
        """
        if options:
            name = next(iter(options))
            raise UnknownNameError(f"option {name!r} is not an option of an update; {nearest(name, ('hold',))}")
        one_of(hold, "hold", ("ridge", "epsilon"))
        assert isinstance(constraint, Chunklets)
        groups = groups_of(constraint)
        before, counts = metric.report, ("singletons", "outside", "chunklets")
        # a file may hold any kernel and any report
        earlier = {name: whole_number(before.get(name), f"report.{name}", least=0) for name in counts}
        number(before.get("objective"), "report.objective")
        earlier_gap = number(before.get("gap"), "report.gap")
        learned, objective, gap, definition = self._grown(metric, X, groups, hold)
        outcome = {
            **_outcome(learned.n, learned.epsilon, str(before.get("route")), groups),
            **{name: earlier[name] + getattr(groups, name) for name in ("singletons", "outside")},
            "chunklets": earlier["chunklets"] + len(groups.sizes),
            "hold": hold,
        }
        condition = learned.condition if isinstance(learned, ScatterKernel) else 0.0
        notes = notes_on(groups, condition)
        return solution(learned, objective, max(gap, earlier_gap), outcome, notes, definition)


@dataclass(frozen=True)
class KernelRCA(GroupSolver):
    """Learn k̃(x, y) = φ(x)'Ĉ⁻¹φ(y), Ĉ = εI + C, from groups of rows that belong together.

    C = (1/n) Σ_c Σ_i (φ(x_ci) − φ̄_c)(φ(x_ci) − φ̄_c)' is the covariance inside the groups, eq. (1), and n the number of
    rows in groups of at least two.  M = Ĉ⁻¹ is the minimiser over positive definite M of

        tr(M Ĉ) − log det M,

    the information-theoretic problem of relevant component analysis.  The objective in the report is this value minus
    that of the unlearned metric M = I/ε: log det(I + C/ε) − tr(C)/ε (with ε = 0: minus that of M = I).  The certificate
    is the residual of the optimality condition Ĉ = M⁻¹.

    Two routes lead to the same kernel.  *Exact*: one Cholesky factor of the symmetric system nεI + Q'KQ, QQ' = H, of
    order n − #groups; O(n³) time, 12n² bytes during the fit, 4n² bytes stored.  It is used where the rows are
    represented exactly, or where groups cover too few rows for landmarks to be cheaper.  *Features*: S = Φ'HΦ by
    blocks; O(n m²) time and O(m²) memory; rows of dask arrays are not moved.

    Parameters
    ----------
    epsilon : "auto" or float >= 0
        ε of eq. (6).  "auto" is a multiple of the mean of the min(n − #groups, d) eigenvalues of C that can differ from
        0, d the number of features.  With explicit features, such as those of a linear kernel, the multiple is
        (d / (n − #groups))², at least 0.02 and at most 5: the fewer rows there are for each feature, the less C is
        worth.  With other kernels it is 5.  0 is linear relevant component analysis without regularisation; it needs
        explicit features and groups that vary in every direction.
    weights : {"equal"}
        The method "krca-weighted" weighs the whitened directions by how much all rows vary along them.

    References
    ----------
    I. W. Tsang, P.-M. Cheung, J. T. Kwok. Kernel relevant component analysis for distance metric learning. IJCNN 2005,
    eqs. (1)-(10).
    """

    weights: str = "equal"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.weights, str) or self.weights != "equal":
            raise InputError(
                f'weights={self.weights!r} is no option of krca, which weighs all directions the same; "krca-weighted" '
                'weighs them by all rows: mf.learn(..., method="krca-weighted")'
            )

    def _solve(self, problem: Problem) -> Solution:
        assert isinstance(problem.constraint, Chunklets)
        groups = groups_of(problem.constraint)
        space = problem.space
        few = space.representation == "landmarks" and groups.contrasts <= space.rank
        if space.representation == "exact" or few:
            return self._exact(problem, groups)
        S, epsilon, outcome = self._scatter(problem, groups, space)
        learned = ScatterKernel.of(space.map, S, groups.n, epsilon)
        return solution(learned, *_check_scatter(learned, problem.seed), outcome, notes_on(groups, learned.condition))

    def _exact(self, problem: Problem, groups: Groups) -> Solution:
        kernel, rows = problem.kernel, as_float64(_rows.take(problem.rows, groups.order))
        problem.step(0, 2)
        G = gram(kernel, rows, groups.sizes)
        problem.step(1, 2)
        count = min(groups.contrasts, explicit_width(kernel, rows) or groups.contrasts)
        trace = float(G.trace()) / groups.n
        times = multiple(explicit_width(kernel, rows), groups.contrasts)
        epsilon, choice = self._choose(trace / count, times, VALUES * float(kernel.diag(rows).mean()))
        _check_positive(epsilon, "this kernel is represented by its values", times * trace / count)
        learned, objective, gap = factorised(kernel, rows, groups.sizes, groups.n * epsilon, problem.seed, G)
        check_digits(learned)
        outcome = {**_outcome(learned.n, epsilon, "exact", groups), **choice}
        return solution(learned, objective, gap, outcome, notes_on(groups, trace / epsilon))

    def _grown(self, metric: Any, X: Any, groups: Groups, hold: str) -> tuple[Any, float, float, str]:
        if isinstance(metric.kernel, ScatterKernel):
            learned = metric.kernel.grown(*added_scatter(metric.kernel, X, groups, hold))
            return learned, *_check_scatter(learned, metric.seed), DEFINITION
        if not isinstance(metric.kernel, ChunkletKernel):
            raise not_learned(metric.kernel, "krca")
        exact, objective, gap = _add_rows(metric, X, groups, hold)
        appended = hold == "ridge" and exact.triangle.order > CHECKED_ORDER
        return exact, objective, gap, UPDATED if appended else DEFINITION


def multiple(width: int | None, contrasts: int) -> float:
    """Return epsilon="auto" in mean eigenvalues of C, for explicit features of this width or None for others.

    The eigenvalues of a covariance of ``contrasts`` = n − #groups differences in ``width`` dimensions are spread about
    the true ones by the ratio of the two.
    """
    return MULTIPLE if width is None else float(np.clip((width / contrasts) ** 2, LEAST_MULTIPLE, MULTIPLE))


def _add_rows(metric: Any, X: Any, groups: Groups, hold: str) -> tuple[ChunkletKernel, float, float]:
    old: ChunkletKernel = metric.kernel
    new = as_float64(_rows.take(X, groups.order))
    rows, sizes = _rows.stack(old.rows, new), np.concatenate([old.sizes, groups.sizes])
    if hold == "epsilon":
        return factorised(old.base, rows, sizes, old.epsilon * _rows.count(rows), metric.seed)
    before = old.triangle  # raises for a kernel that no solver made
    H = contrasts(contrasts(old.base.block(rows, new), groups.sizes).T, sizes)  # (q, r + q)
    check_finite(H)
    triangle, gained, gap = append(before, H[:, : -len(H)], H[:, -len(H) :], old.ridge, metric.seed)
    learned = ChunkletKernel(old.base, rows, sizes, triangle.packed, old.ridge)
    learned.__dict__["triangle"] = triangle  # with its spare storage
    return learned, metric.report["objective"] + gained, gap


def added_scatter(old: Any, X: Any, groups: Groups, hold: str) -> tuple[Array, int, float]:
    """Return S, n and ε after further groups."""
    n = old.n + groups.n
    epsilon = old.epsilon if hold == "epsilon" else old.epsilon * old.n / n
    with np.errstate(over="ignore", invalid="ignore"):
        total = old.scatter + scatter(old.map, X, groups)
    if not np.isfinite(total).all():
        raise InputError("X: the variation inside groups overflows; rescale X")
    return total, n, epsilon


def not_learned(kernel: Kernel, method: str) -> InputError:
    """Return the error for a kernel in a file that the method did not learn."""
    return InputError(f"the kernel of this metric is a {type(kernel).__name__}, which {method} did not learn")


def _check_positive(epsilon: float, why: str, automatic: float) -> None:
    if epsilon == 0:
        raise InputError(
            'epsilon=0 needs explicit features, no more of them than rows (kernel=mf.kernels.Linear(), rank="auto"), '
            f'but {why}; give a positive epsilon or "auto" ({automatic:.3g} here)'
        )


# ---------------------------------------------------------------------------------------------------------- the report


def _check_scatter(kernel: ScatterKernel, seed: int) -> tuple[float, float]:
    """Return the objective, and the residual Ĉv − (RR')⁻¹v, which the orthogonal columns of R give without a solve."""
    R, epsilon = kernel.root, kernel.epsilon
    w = 1 / np.square(R).sum(axis=0)  # the eigenvalues of Ĉ: R = V (εI + Λ)^(−1/2)
    V = R * np.sqrt(w)
    v = direction(len(R), seed)
    truth = kernel.scatter @ v / kernel.n + epsilon * v
    ratio = w / (epsilon or 1.0)
    return float((np.log(ratio) - (ratio - 1)).sum()), relative(V @ (w * (v @ V)), truth)


def _outcome(n: int, epsilon: float, route: str, groups: Groups) -> dict[str, Any]:
    return {
        "epsilon": epsilon,
        "ridge": n * epsilon,
        "route": route,
        "chunklets": len(groups.sizes),
        "chunklet_rows": n,
        "singletons": groups.singletons,
        "outside": groups.outside,
    }


def notes_on(groups: Groups, condition: float = 0.0) -> tuple[str, ...]:
    """Return notes on groups that were ignored, and on digits lost where tr(C)/ε is large."""
    notes = []
    if groups.singletons:
        notes.append("groups of one row have no variation inside and were ignored; singletons is their number")
    digits = -np.log10(max(condition, 1.0) * np.finfo(np.float64).eps)
    if digits < DIGITS:
        notes.append(
            f"epsilon is small compared with C: distances may have only {max(digits, 0):.0f} correct digits; explicit "
            "features (a linear kernel) or a larger epsilon would keep all"
        )
    return tuple(notes)


def solution(
    kernel: Kernel,
    objective: float,
    gap: float,
    outcome: dict[str, Any],
    notes: tuple[str, ...],
    definition: str = DEFINITION,
) -> Solution:
    """Return the solution in closed form with its residual."""
    return Solution(
        kernel,
        Status.OPTIMAL,
        objective=objective,
        certificate=Certificate("residual", gap, definition=definition),
        n_iter=1,
        trace=((objective, gap),),
        outcome=outcome,
        notes=notes,
    )


def _scale_free(kernel: Kernel, solver: Solver) -> bool:
    """Return whether M = C⁻¹ undoes the scales of the columns: on the columns themselves, and without a ridge."""
    return isinstance(kernel, Linear) and isinstance(solver, KernelRCA) and solver.epsilon == 0


def forecast(size: Size) -> float:
    """Return the forecast CPU seconds of a fit; see docs/scaling.md."""
    n, d, m = size.n, size.d, size.m
    if size.representation == "exact":  # a Gram matrix and its factor, no features
        return rows_seconds(size) + 1e-9 * (0.02 * n**3 + 0.15 * n * n * d + 10 * n * n)
    return rows_seconds(size) + space_seconds(size) + 1e-9 * (4.6 * n * m + 0.3 * m**3)


def similar_only(pairs: Pairs) -> bool:
    """Return whether dissimilar pairs, which the methods for groups do not use, are missing."""
    return not len(pairs.dissimilar)


METHOD = Method(
    constraint=Chunklets,
    kernel=Standardized(Linear(), by="range"),
    solver=KernelRCA(),
    order=2,
    uses=(Use(Pairs, 2, when=similar_only),),
    settings=({"kernel": Standardized(RBF("median"), by="range")}, {"kernel": Linear(), "epsilon": 0.0}),
    scale_free=_scale_free,
    cost=forecast,
)
