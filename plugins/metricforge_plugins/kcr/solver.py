"""Metric embedding for kernel classification rules: a metric and a radius, learned together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from metricforge import rows as _rows
from metricforge.constraints import Constraint, Labels, by_first_row
from metricforge.errors import InputError
from metricforge.kernels import RBF, Standardized
from metricforge.optimize import conclude
from metricforge.rows import Array, check_memory
from metricforge.solver import Certificate, Method, Problem, Solution, Solver, Status
from metricforge.space import (
    FeatureMap,
    Size,
    affordable_steps,
    rows_seconds,
    space_bytes,
    space_seconds,
)
from metricforge.validation import number_or, one_of, whole_number_or

from . import separate
from .coordinates import coordinates, discriminant
from .descent import CHECK_EVERY, SPARE, SPARE_SAMPLED, Descent, State
from .objective import Loss, Objective
from .pairs import Compared, all_pairs, neighbour_lists, random_groups
from .radius import validated
from .windows import WINDOWS

PAIRS = ("auto", "all", "random", "neighbors")
BANDWIDTHS = ("auto", "joint", "validated")
BOUNDS = ("hinge", "logistic")
MAXIMA = ("sum", "logsumexp")
KERNELS = ("sum", "separate")
NEIGHBOR_BYTES = 170
"""Measured peak memory of a listed pair: the search, the lists, and the vectors over pairs of the descent."""
N_PAIRS = 640_000
"""Default number of pairs: all pairs up to 800 rows."""
GROUP, EACH = 40, 10
"""The minimal number of rows that a row is compared with: 40, or 10 per class where these are fewer.  If ``n_pairs`` is
too small for that, rows are sampled."""
HELD_OUT, MOST_HELD_OUT = 0.1, 3000
"""The share and the maximal number of rows held out to validate the radius."""
MOST_REFERENCE = 100_000
"""The maximal number of rows that vote on the held-out ones."""
SCANNED_ROWS = 2**16
"""Rows scanned at a time for one of every class."""
MOST_STEPS, LEAST_STEPS = 2000, 200
"""The largest and the smallest number of steps that max_iter="auto" stands for: at 200, the objective is within about
1 % of the optimum, although the lower bound may not say so yet."""
TOL = 5e-2
"""The relative gap to reach: there, the objective is about 1 % above the optimum or nearer, and classification does not
improve any more; the rest is the lower bound, which takes several times as many steps."""
DEFINITION = "objective less a dual feasible value"
STATIONARITY = "largest decrease of the linear model of the smoothed objective over the better points"


@dataclass(frozen=True)
class KCR(Solver):
    """Learn a metric and a radius for the rule "the majority among the training rows within the radius".

    With φ the features of the base kernel, τ_ij = 1 where rows i and j share a class and −1 elsewhere (τ_ii = 1),
    n_i⁺ = #{j : τ_ij = 1}, ρ²_ij = (φ_i − φ_j)'W(φ_i − φ_j) and h the squared radius, minimise over W ⪰ 0 and h >= 0

        Σ_i [2 − n_i⁺ + Σ_j [1 + τ_ij (ρ²_ij − h)]₊]₊ + λ tr W,        (eq. 9)

    a convex upper bound on the number of rows that the rule misclassifies.  ``bound="logistic"`` replaces the outer
    [x]₊ by log(1 + e^(x−1)).  The constraint 1'Σ1 = 0 of the paper is omitted: because of λ tr W, the minimiser
    satisfies it anyway.  ``maximum``, ``window``, ``kernels`` and ``n_components`` are the paper's other choices.

    W = LL' is found by L-BFGS on L and h with smoothed hinges.  The certificate is a feasible point of the dual;
    ``gap`` is the exact objective minus its value, so optimum >= objective − gap always.

    Cost: O(n m² + m³) once, then O(n m r + p r) per step for p pairs and rank r, a few hundred steps; memory 16 n m
    bytes.  With the default ``n_pairs``, n is at most 32,000 here, even for more rows.

    Parameters
    ----------
    lam : "auto" or float > 0
        λ.  "auto" is √n · v, with n the number of rows compared and v their mean squared distance under the base
        kernel: relative to the sum over rows it decreases as 1/√n.
    pairs : {"auto", "all", "random", "neighbors"}
        The pairs in Σ_j and n_i⁺.  "random": rows are assigned at random to groups, and each is compared with its
        group.  "neighbors": half of the partners are the nearest of the same class, half the nearest of others.
        "auto": all if there are at most ``n_pairs``, else random.
    n_pairs : int, optional
        The maximal number of pairs, each row with itself included; default: 640,000, and for "neighbors" at most 40
        per row.  A row is compared with at least 40, or 10 per class where these are fewer; if ``n_pairs`` is too
        small for that, rows are sampled.
    bandwidth : {"auto", "joint", "validated"}
        "joint": h of the minimiser.  "validated": one row in ten (at most 3000) is held out of the fit, and the squared
        radius is the one of {1, 10^(-1/3), ..., 10^(-8/3)} h and 0 with the smallest error on them.  "auto": joint
        if all pairs are compared, else validated.
    bound : {"hinge", "logistic"}
        The outer function.
    maximum : {"sum", "logsumexp"}
        How the largest number of votes among the other classes is bounded: by their sum, or by the logarithm of the sum
        of their exponentials (footnote 6).  For two classes both are the same.
    window : {"naive", "gaussian", "epanechnikov", "cauchy"}
        The window κ of the rule (eq. 8).  With any but the naive one the data term is Σ_i Ψ(−Σ_j τ_ij κ(ρ_ij)) over
        j ≠ i, Ψ(x) = [1 + x]₊ or log(1 + e^x).  This is not convex, and the status is "stationary".  The radius is 1:
        κ depends on ρ²/h only, so a smaller h would let the penalty vanish and change nothing else.  "cauchy" needs
        ``n_components``, the dimension in its exponent.
    kernels : {"sum", "separate"}
        If the kernel is a sum: whether its features are one space, or each coordinate of the embedding belongs to one
        summand (Theorem 1), which makes W block diagonal.
    n_components : int, optional
        The largest dimension of the embedding, rank W.  The problem is then not convex; the gap remains true, and the
        status is "stationary" where it stays above ``tol``.
    tol : "auto" or float > 0
        The gap to reach, relative to the objective.  "auto" is 5e-2; most of that gap is due to the lower bound: the
        objective is then usually within 1 % of the optimum.
    max_iter : "auto" or int
        The maximal number of steps of L-BFGS.  "auto" is 2000, or as many as 4 forecast CPU seconds allow, at least
        200: some 550 for 500 rows, 250 for 1,000 rows and 400 features.

    References
    ----------
    B. K. Sriperumbudur, O. A. Lang, G. R. G. Lanckriet. Metric embedding for kernel classification rules. ICML 2008,
    Sec. 4 and eqs. (8)-(9).
    """

    lam: float | str = "auto"
    pairs: str = "auto"
    n_pairs: int | None = None
    bandwidth: str = "auto"
    bound: str = "hinge"
    maximum: str = "sum"
    window: str = "naive"
    kernels: str = "sum"
    n_components: int | None = None
    tol: float | str = "auto"
    max_iter: int | str = "auto"

    accepts: ClassVar[tuple[type[Constraint], ...]] = (Labels,)

    def __post_init__(self) -> None:
        for name in ("lam", "tol"):
            number_or(getattr(self, name), name, ["auto"], above=0)
        for name, known in (
            *(("pairs", PAIRS), ("bandwidth", BANDWIDTHS), ("bound", BOUNDS), ("maximum", MAXIMA)),
            *(("window", ("naive", *WINDOWS)), ("kernels", KERNELS)),
        ):
            one_of(getattr(self, name), name, known)
        if self.n_pairs is not None and self.pairs == "all":
            raise InputError(f'n_pairs={self.n_pairs!r} contradicts pairs="all"; give only one of them')
        whole_number_or(self.n_pairs, "n_pairs", [None])
        whole_number_or(self.n_components, "n_components", [None], most=10**9)
        whole_number_or(self.max_iter, "max_iter", ["auto"])
        if self.maximum == "logsumexp" and self.pairs == "neighbors":
            raise InputError('maximum="logsumexp" needs whole classes to compare with, but pairs="neighbors"')
        if self.window != "naive" and self.bandwidth == "validated":
            raise InputError(f'window={self.window!r} has the radius 1, so bandwidth="validated" contradicts it')
        if self.window == "cauchy" and self.n_components is None:
            raise InputError('window="cauchy" depends on the dimension of the embedding; give n_components')

    def _solve(self, problem: Problem) -> Solution:
        assert isinstance(problem.constraint, Labels)
        sample = self._sample(problem.constraint, problem.seed)
        tol = TOL if isinstance(self.tol, str) else float(self.tol)
        codes = by_first_row(problem.constraint.codes)[sample.rows]

        maps = separate.maps_of(problem) if self.kernels == "separate" else (problem.space.map,)

        def features(rows: Array) -> Array:
            parts = [part.of_rows(problem.rows, rows, copies=3 * len(maps), gather=True) for part in maps]
            return parts[0] if len(parts) == 1 else np.hstack(parts)

        if sample.pairs == "neighbors":
            needed = NEIGHBOR_BYTES * max(2 * len(codes), sample.n_pairs)
            check_memory(needed, f'pairs="neighbors" on {len(codes)} rows', "lower n_pairs")
            Phi = features(sample.rows)
            pairs: Compared = neighbour_lists(Phi, codes, max(2, sample.n_pairs // len(codes) - 1))
        else:
            rng = np.random.default_rng(problem.seed)
            size = sample.n_pairs / len(codes)
            pairs = all_pairs(codes) if sample.pairs == "all" else random_groups(codes, size, rng)
            Phi = features(sample.rows[pairs.order])
        codes = codes[pairs.order]
        mean = Phi.mean(axis=0)
        spread = _spread(Phi, mean)
        lam = float(np.sqrt(pairs.n)) * spread if isinstance(self.lam, str) else float(self.lam)

        blocks = separate.blocks_of(maps)
        axes = coordinates(Phi, mean, blocks)
        F = axes.features(Phi, mean)
        del Phi
        loss = Loss(self.bound == "logistic", self.maximum == "sum", self.window, self.n_components or 1)

        objective = Objective(F, pairs, lam * axes.trace, loss=loss)
        most = _most_steps(pairs.n, len(F), pairs.count) if isinstance(self.max_iter, str) else int(self.max_iter)
        descent = Descent(objective, axes.root, lam, tol, most, problem.step, blocks, self.n_components)
        spare = SPARE if pairs.count == pairs.n**2 else SPARE_SAMPLED
        state = descent.run(descent.start(discriminant(F, codes), spare))
        L = axes.factor(state.point[0])
        outcome = self._radius(problem, sample, maps, L, state.point[1])
        outcome |= {
            "lam": lam,
            **({"lower_bound": state.lower} if loss.convex else {"window": self.window}),
            "learned_rank": int(np.linalg.matrix_rank(L, tol=1e-3 * np.linalg.norm(L, 2))),
            "pairs": sample.pairs,
            "n_pairs": pairs.count,
            "rows_compared": pairs.n,
            "unlabelled": problem.n - problem.constraint.size,
        }
        return Solution(
            kernel=separate.learned(maps, L),
            status=_status(state, tol, loss.convex),
            objective=state.upper,
            certificate=_certificate(state),
            n_iter=state.n_iter,
            trace=tuple(state.trace),
            outcome=outcome,
            notes=_notes(outcome, sample, problem.constraint),
        )

    # -- which rows ----------------------------------------------------------------------------------------------

    def _sample(self, labels: Labels, seed: int) -> Sample:
        """Choose the pairs, the rows that are compared and those that are held out."""
        labelled = _labelled(labels.codes)
        n = len(labelled)
        if len(labels.classes) < 2:
            raise InputError(
                f"y has {len(labels.classes)} class over {n} labelled rows, so no two rows are known to be different; "
                "give labels of at least two classes"
            )
        if len(labels.classes) == n:
            raise InputError(
                f"y has {n} classes over {n} labelled rows, one row each, so no two rows are known to be alike; "
                "give labels that rows share (bin measured numbers into classes first)"
            )
        most = N_PAIRS if self.n_pairs is None else min(int(self.n_pairs), 2**62)
        pairs = self.pairs if self.pairs != "auto" else "all" if n * n <= most else "random"
        if pairs == "neighbors" and self.n_pairs is None:
            most = min(most, GROUP * n)
        sampled = pairs != "all"
        validate = self.bandwidth == "validated" or (self.bandwidth == "auto" and sampled)

        drawn = labelled.copy()
        np.random.default_rng(seed).shuffle(drawn)
        # one row of every class stays in the fit
        first = _first_of_each(labels.codes, drawn, len(labels.classes))
        kept = drawn[first]
        held = min(n - len(first), MOST_HELD_OUT, round(HELD_OUT * n) or 1) if validate else 0
        least = min(GROUP, EACH * len(labels.classes))
        most_rows = max(2, most // least) if sampled else n
        spare = np.delete(drawn[: held + most_rows + len(first)], first[first < held + most_rows + len(first)])
        del drawn
        held_out = np.sort(spare[:held]).astype(np.int64)
        rows = np.sort(np.concatenate([kept, spare[held:]])[:most_rows]).astype(np.int64)
        pool = np.delete(labelled, np.searchsorted(labelled, held_out))
        return Sample(rows, pool, held_out, pairs, most, sampled)

    def _radius(
        self, problem: Problem, sample: Sample, maps: tuple[FeatureMap, ...], L: Array, h: float
    ) -> dict[str, Any]:
        """Return the radius, joint or validated, as entries of the outcome."""
        joint_only: dict[str, Any] = {
            "radius": float(np.sqrt(h)),
            "joint_radius": float(np.sqrt(h)),
            "bandwidth": "joint",
        }
        if len(sample.held_out) == 0:
            return joint_only
        codes = problem.constraint.codes  # type: ignore[attr-defined]
        refer = sample.pool[_rows.draw(len(sample.pool), MOST_REFERENCE, problem.seed)]
        embed = [part.rotated(L[block]) for part, block in zip(maps, separate.slices(maps), strict=True)]
        Z, queries = (
            np.add.reduce([part.of_rows(problem.rows, index) for part in embed]) for index in (refer, sample.held_out)
        )
        found, error, joint = validated(Z, codes[refer], queries, codes[sample.held_out], h)
        return joint_only | {
            "radius": float(np.sqrt(found)),
            "bandwidth": "validated",
            "held_out": len(queries),
            "held_out_error": error,
            "joint_error": joint,
        }


@dataclass(frozen=True, eq=False)
class Sample:
    """The rows used: ``rows`` are compared, ``held_out`` validate the radius, ``pool`` are the other labelled rows."""

    rows: Array
    pool: Array
    held_out: Array
    pairs: str
    n_pairs: int
    sampled: bool


def _labelled(codes: Array) -> Array:
    """Return the numbers of labelled rows, in 4 bytes each: there may be as many as rows on a cluster."""
    small = np.int32 if len(codes) < 2**31 else np.int64
    unlabelled = codes < 0
    if not unlabelled.any():
        return np.arange(len(codes), dtype=small)
    return np.flatnonzero(~unlabelled).astype(small)


def _first_of_each(codes: Array, rows: Array, classes: int) -> Array:
    """Return the first position in ``rows`` of every class, ascending, looking at a few rows at a time."""
    first = np.full(classes, -1)
    for i in range(0, len(rows), SCANNED_ROWS):
        found, where = np.unique(codes[rows[i : i + SCANNED_ROWS]], return_index=True)
        new = first[found] < 0
        first[found[new]] = i + where[new]
        if (first >= 0).all():
            break
    return np.sort(first)


def _spread(Phi: Array, mean: Array) -> float:
    """Return the mean squared distance between rows of Φ, or raise InputError when it is 0."""
    square = float(np.einsum("ij,ij->", Phi, Phi)) / len(Phi)
    spread = 2 * (square - float(mean @ mean))
    if spread <= 1e-12 * square:
        raise InputError(
            "X: no two labelled rows differ under the kernel (all features are constant); check the columns of X"
        )
    return spread


def _status(state: State, tol: float, convex: bool) -> Status:
    converged, limited = state.within(tol), state.move == "limit"
    if state.move == "stationary" or (converged and not convex):
        return Status.OPTIMAL if converged and convex else Status.STATIONARY
    ended = f"after {state.n_iter} steps with a gap of {state.gap / state.upper:.2%} of the objective"
    repair = "raise max_iter or lam" if limited else "rounding prevents more, so raise lam"
    return conclude("kcr", converged, limited, f"{ended}, above tol={tol:g}", f"{repair}, or set a larger tol")


def _certificate(state: State) -> Certificate:
    if state.residual is None:
        return Certificate("gap", state.gap, abs(state.upper), DEFINITION)
    return Certificate("gradient", state.gap, abs(state.upper), STATIONARITY)


def _notes(outcome: dict[str, Any], sample: Sample, labels: Labels) -> tuple[str, ...]:
    notes = []
    if outcome["unlabelled"]:
        notes.append(f"{outcome['unlabelled']} row(s) have no label and were ignored")
    if sample.sampled and len(sample.rows) < len(sample.pool):
        other = f", besides {len(sample.held_out)} held out to choose the radius" if len(sample.held_out) else ""
        notes.append(
            f"{len(sample.rows)} of {len(sample.pool)} rows were sampled for the fit{other}; n_pairs sets how many"
        )
    alone = int(np.count_nonzero(np.bincount(labels.codes[labels.codes >= 0]) == 1))
    if alone:
        notes.append(
            f"{alone} class(es) have one row, which no metric can classify: each adds at least 1 to the objective"
        )
    if outcome["learned_rank"] == 0:
        notes.append(f"lam={outcome['lam']:.3g} is so large that the best metric is 0: every distance is 0; lower lam")
    if outcome["radius"] == 0:
        notes.append("the radius is 0: the nearest training row decides")
    return tuple(notes)


def _forecast(n: int, m: int, pairs: int) -> tuple[float, float]:
    """Return the forecast CPU seconds of a step and of a certificate on n rows compared, m features and some pairs.

    A step costs products of n × m features and of the n × r embedding, a pass over the pairs and vectors of L-BFGS, and
    the line search a quarter more; a certificate the eigenvalues of an m × m matrix.
    """
    r = 30
    step = 1.25 * (0.27 * r * (n * m + pairs) + pairs + 80 * r * m)
    return 1e-9 * step, 1e-9 * (0.16 * m**3 + 0.1 * n * m**2 + 60 * pairs)


def _most_steps(n: int, m: int, pairs: int) -> int:
    """Return what max_iter="auto" stands for."""
    step, check = _forecast(n, m, pairs)
    return affordable_steps(step + check / CHECK_EVERY, 2 * check, LEAST_STEPS, MOST_STEPS)


def seconds(size: Size) -> float:
    """Return the forecast CPU seconds of a fit with default options where classes overlap.

    All pairs need more steps than a sample of them; the more of all pairs are compared, the more.
    """
    everything = size.n**2 <= N_PAIRS
    n = min(size.n, N_PAIRS // GROUP)
    share = 1.0 if everything else N_PAIRS / size.n**2
    step, check = _forecast(n, size.m, n * n if everything else N_PAIRS)
    steps = max(200, 400 * share)
    features = space_seconds(size, n) + 1e-10 * n * size.m**2
    return rows_seconds(size) + features + steps * (step + check / CHECK_EVERY) + 2 * check


def _bytes(size: Size) -> float:
    """Return the forecast peak memory: vectors of L-BFGS over a factor of half as many rows as features."""
    return 8 * 60 * size.m**2 + space_bytes(size)


METHOD = Method(
    constraint=Labels,
    kernel=Standardized(RBF("median"), by="range"),
    solver=KCR(),
    order=2,
    cost=seconds,
    provides=("radius",),
    memory=_bytes,
)
