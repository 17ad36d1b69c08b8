"""Metric embedding for kernel classification rules: a metric and a radius, learned together."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from metricforge import rows as _rows
from metricforge.constraints import Constraint, Labels
from metricforge.errors import ConvergenceWarning, InputError, UnknownNameError, nearest
from metricforge.kernels import RBF, is_number
from metricforge.problem import Method, Problem, Solution, Solver, Status
from metricforge.space import LearnedKernel, check_memory

from .coordinates import Coordinates, coordinates, discriminant
from .descent import Descent, State
from .objective import Objective
from .pairs import Compared, Grouped, all_pairs, neighbour_lists, random_groups
from .radius import validated

Array = NDArray[Any]

PAIRS = ("auto", "all", "random", "neighbors")
BANDWIDTHS = ("auto", "joint", "validated")
BOUNDS = ("hinge", "logistic")
N_PAIRS = 640_000
"""Pairs compared by default: every pair up to 800 rows."""
GROUP, EACH = 40, 10
"""The least number of rows that a row is compared with: 40, or 10 for each class where these are fewer.  Where
``n_pairs`` is too few for that, rows are drawn."""
HELD_OUT, MOST_HELD_OUT = 0.1, 3000
"""The share, and the most, of rows that a validated radius is tried on."""
MOST_REFERENCE = 100_000
"""The most rows that vote on the held-out ones."""
TOL, SAMPLED_TOL = 1e-3, 5e-2
"""The relative gap to reach, for all pairs and for a sample of them."""
WARM = 100_000
"""Pairs of the part of the groups on which a descent with many more of them begins."""
CERTIFICATE = "objective less a dual feasible value"


@dataclass(frozen=True)
class KCR(Solver):
    """Learn a metric and a radius for the rule "the majority among the training rows within the radius".

    With φ the features of the base kernel, τ_ij = 1 where rows i and j share a class and −1 elsewhere (τ_ii = 1),
    n_i⁺ = #{j : τ_ij = 1}, ρ²_ij = (φ_i − φ_j)'W(φ_i − φ_j) and h the squared radius, minimise over W ⪰ 0 and h >= 0

        Σ_i [2 − n_i⁺ + Σ_j [1 + τ_ij (ρ²_ij − h)]₊]₊ + λ tr W,        (eq. 9)

    a convex upper bound on the number of rows that the rule gets wrong.  ``bound="logistic"`` puts log(1 + e^(x−1)) in
    place of the outer [x]₊.  The constraint 1'Σ1 = 0 of the paper is left out: it changes nothing, because λ tr W alone
    removes what it forbids.

    W = LL' is found by L-BFGS on L and h with smoothed hinges.  The certificate is a feasible point of the dual;
    ``gap`` is the exact objective less its value, so optimum >= objective − gap always.

    Cost: O(n m² + m³) once, then O(n m r + p r) a step for p pairs and rank r, a few hundred steps; memory 16 n m
    bytes.  At the default ``n_pairs`` n is at most 32,000 here, however many rows there are.

    Parameters
    ----------
    lam : "auto" or float > 0
        λ.  "auto" is √n · v, with n the rows compared and v their mean squared distance under the base kernel: its
        weight beside the sum over rows falls as 1/√n.
    pairs : {"auto", "all", "random", "neighbors"}
        Which pairs Σ_j, and n_i⁺, run over.  "random": rows are dealt at random into groups, and each is compared with
        its group.  "neighbors": half of the partners are the nearest of the same class, half the nearest of others.
        "auto": all where there are at most ``n_pairs``, else random.
    n_pairs : int, optional
        How many at the most, each row with itself included; default: 640,000, and for "neighbors" no more than 40 a
        row.  A row is compared with at least 40, or 10 for each class where these are fewer; where ``n_pairs`` does
        not suffice for that, rows are drawn.
    bandwidth : {"auto", "joint", "validated"}
        "joint": h is the minimiser's.  "validated": one row in ten (at most 3000) is held out of the fit, and of
        {1, 10^(-1/3), ..., 10^(-8/3)} h and 0 the squared radius with the least error on them is taken.  "auto": joint
        where all pairs are compared, else validated.
    bound : {"hinge", "logistic"}
        The outer bound.
    tol : "auto" or float > 0
        The gap to reach, relative to the objective.  "auto" is 1e-3 for all pairs and 5e-2 for a sample of them, which
        tells the objective no better; most of that gap is the bound's.
    max_iter : int
        Steps of L-BFGS.

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
    tol: float | str = "auto"
    max_iter: int = 2000

    accepts: ClassVar[tuple[type[Constraint], ...]] = (Labels,)

    def __post_init__(self) -> None:
        for name in ("lam", "tol"):
            value = getattr(self, name)
            if value != "auto" and not (is_number(value) and 0 < value < np.inf):
                raise InputError(f'{name} must be "auto" or a positive number, got {value!r}')
        for name, known in (("pairs", PAIRS), ("bandwidth", BANDWIDTHS), ("bound", BOUNDS)):
            value = getattr(self, name)
            if value not in known:
                raise UnknownNameError(f"{name}={value!r} is unknown; {nearest(str(value), known)}")
        if self.n_pairs is not None and self.pairs == "all":
            raise InputError(f'n_pairs={self.n_pairs!r} contradicts pairs="all"; leave one of them out')
        for name in ("n_pairs", "max_iter"):
            value = getattr(self, name)
            if value is None and name == "n_pairs":
                continue
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
                raise InputError(f"{name} must be a positive whole number, got {value!r}")

    def _solve(self, problem: Problem) -> Solution:
        assert isinstance(problem.constraint, Labels)
        sample = self._sample(problem.constraint, problem.seed)
        tol = (SAMPLED_TOL if sample.sampled else TOL) if isinstance(self.tol, str) else float(self.tol)
        codes = problem.constraint.codes[sample.rows]

        if sample.pairs == "neighbors":
            Phi = _features(problem, sample.rows)
            pairs: Compared = neighbour_lists(Phi, codes, max(2, sample.n_pairs // len(codes) - 1))
        else:
            rng = np.random.default_rng(problem.seed)
            size = sample.n_pairs / len(codes)
            pairs = all_pairs(codes) if sample.pairs == "all" else random_groups(codes, size, rng)
            Phi = _features(problem, sample.rows[pairs.order])
        codes = codes[pairs.order]
        mean = Phi.mean(axis=0)
        spread = _spread(Phi, mean)
        lam = float(np.sqrt(pairs.n)) * spread if isinstance(self.lam, str) else float(self.lam)

        axes = coordinates(Phi, mean)
        F = axes.features(Phi, mean)
        del Phi
        logistic = self.bound == "logistic"
        state = _descend(F, codes, pairs, axes, lam, tol, self.max_iter, logistic, problem)
        L = axes.factor(state.best[0])
        told = self._radius(problem, sample, L, state.best[1])
        told |= {
            "lam": lam,
            "lower_bound": state.bound,
            "learned_rank": int(np.linalg.matrix_rank(L, tol=1e-3 * np.linalg.norm(L, 2))),
            "pairs": sample.pairs,
            "n_pairs": pairs.count,
            "rows_compared": pairs.n,
            "unlabelled": problem.n - problem.constraint.size,
        }
        met = state.gap <= tol * state.value
        if not met:
            repair = "raise max_iter or lam" if state.move == "limit" else "rounding allows no more, so raise lam"
            warnings.warn(
                f"kcr stopped after {state.n_iter} steps with a gap of {state.gap / state.value:.2%} of the objective, "
                f"short of tol={tol:g}; {repair}, or accept a larger tol",
                ConvergenceWarning,
                stacklevel=3,
            )
        return Solution(
            kernel=LearnedKernel(problem.space.map, L @ L.T),
            status=Status.OPTIMAL if met else Status.ITERATION_LIMIT,
            objective=state.value,
            gap=state.gap,
            certificate=CERTIFICATE,
            n_iter=state.n_iter,
            trace=tuple(state.trace),
            report=told,
            notes=_remarks(codes, told, sample, problem.constraint),
        )

    # -- which rows ----------------------------------------------------------------------------------------------

    def _sample(self, labels: Labels, seed: int) -> Sample:
        """Choose the pairs, the rows that are compared and those that are held out."""
        labelled = np.flatnonzero(labels.codes >= 0)
        n = len(labelled)
        if len(labels.classes) < 2:
            raise InputError(
                f"y has {len(labels.classes)} class over {n} labelled rows, so nothing is known to be different; kcr "
                "needs at least two classes"
            )
        if len(labels.classes) == n:
            raise InputError(
                f"y has {n} classes over {n} labelled rows, one row each, so nothing is known to be alike and none can "
                "be classified; give labels that rows share (numbers that are measured are no classes: bin them first)"
            )
        most = N_PAIRS if self.n_pairs is None else int(self.n_pairs)
        pairs = self.pairs if self.pairs != "auto" else "all" if n * n <= most else "random"
        if pairs == "neighbors" and self.n_pairs is None:
            most = min(most, GROUP * n)
        sampled = pairs != "all"
        validate = self.bandwidth == "validated" or (self.bandwidth == "auto" and sampled)

        drawn = np.random.default_rng(seed).permutation(labelled)
        # one row of every class stays in the fit
        first = np.zeros(n, dtype=bool)
        first[np.unique(labels.codes[drawn], return_index=True)[1]] = True
        kept, spare = drawn[first], drawn[~first]
        held = spare[: min(MOST_HELD_OUT, round(HELD_OUT * n) or 1)] if validate else spare[:0]
        pool = np.concatenate([kept, spare[len(held) :]])
        least = min(GROUP, EACH * len(labels.classes))
        rows = np.sort(pool[: max(2, most // least)] if sampled else pool)
        return Sample(rows, np.sort(pool), np.sort(held), pairs, most, sampled)

    def _radius(self, problem: Problem, sample: Sample, L: Array, h: float) -> dict[str, Any]:
        """Return the radius, joint or validated, as entries of the report."""
        told: dict[str, Any] = {"radius": float(np.sqrt(h)), "joint_radius": float(np.sqrt(h)), "bandwidth": "joint"}
        if len(sample.held) == 0:
            return told
        codes = problem.constraint.codes  # type: ignore[attr-defined]
        refer = sample.pool[_rows.draw(len(sample.pool), MOST_REFERENCE, problem.seed)]
        Z, held = (_embedded(problem, L, part) for part in (refer, sample.held))
        found, error, joint = validated(Z, codes[refer], held, codes[sample.held], h)
        return told | {
            "radius": float(np.sqrt(found)),
            "bandwidth": "validated",
            "held_out": len(held),
            "held_out_error": error,
            "joint_error": joint,
        }


@dataclass(frozen=True, eq=False)
class Sample:
    """Which rows take part: ``rows`` are compared, ``held`` are held out, ``pool`` is all but these."""

    rows: Array
    pool: Array
    held: Array
    pairs: str
    n_pairs: int
    sampled: bool


def _features(problem: Problem, rows: Array) -> Array:
    """Return the float64 features of some rows; those of the others are never computed.

    They are computed here, in the same blocks wherever the rows live: descent on a problem that is not convex makes
    visible differences of other roundings.
    """
    space = problem.space
    n, m = len(rows), space.map.columns
    check_memory(24 * n * m, f"the features of {n} rows", "lower the rank, or n_pairs")
    return np.asarray(space.map(_rows.take(space.rows, rows)), dtype=np.float64)


def _embedded(problem: Problem, L: Array, rows: Array) -> Array:
    """Return the float64 features of some rows times L; of a dask array nothing wider than that is gathered."""
    embed = problem.space.map.rotated(L)
    return _rows.map_taken(embed.block, problem.rows, rows, embed.columns, np.float64)


def _spread(Phi: Array, mean: Array) -> float:
    """Return the mean squared distance between rows of Φ, or raise when there is none."""
    square = float(np.einsum("ij,ij->", Phi, Phi)) / len(Phi)
    spread = 2 * (square - float(mean @ mean))
    if spread <= 1e-12 * square:
        raise InputError(
            "X: the kernel cannot tell any two labelled rows apart (all features are constant); check the columns of X"
        )
    return spread


def _descend(
    F: Array,
    codes: Array,
    pairs: Compared,
    axes: Coordinates,
    lam: float,
    tol: float,
    max_iter: int,
    logistic: bool,
    problem: Problem,
) -> State:
    """Minimise; where there are many groups, over some of them first."""

    def descent(part: Compared, share: float, done: int) -> Descent:
        objective = Objective(np.ascontiguousarray(F[:, : part.n]), part, share * lam * axes.trace, logistic=logistic)

        def step(k: int, total: int, **info: float) -> None:
            problem.step(done + k, total, **info)

        return Descent(objective, axes.root, share * lam, tol, max(1, max_iter - done), step)

    P = discriminant(F, codes, problem.seed)
    if isinstance(pairs, Grouped) and pairs.count > 2 * WARM and len(pairs.starts) > 2:
        head = pairs.head(WARM)
        warm = descent(head, head.n / pairs.n, 0)
        start = warm.run(warm.start(P))
        whole = descent(pairs, 1.0, start.n_iter)
        state = whole.run(whole.resume(start))
        state.n_iter += start.n_iter
        return state
    whole = descent(pairs, 1.0, 0)
    return whole.run(whole.start(P))


def _remarks(codes: Array, told: dict[str, Any], sample: Sample, labels: Labels) -> tuple[str, ...]:
    said = []
    if told["unlabelled"]:
        said.append(f"{told['unlabelled']} row(s) have no label and were left out")
    if sample.sampled and len(sample.rows) < len(sample.pool):
        beside = f" beside {len(sample.held)} held out to choose the radius" if len(sample.held) else ""
        said.append(
            f"{len(sample.rows)} of {len(sample.pool)} rows were drawn for the fit{beside}; n_pairs decides how many"
        )
    alone = int(np.count_nonzero(np.bincount(labels.codes[labels.codes >= 0]) == 1))
    if alone:
        said.append(
            f"{alone} class(es) have one row, which no metric can classify: each adds at least 1 to the objective"
        )
    if told["learned_rank"] == 0:
        said.append(f"lam={told['lam']:.3g} is so large that the best metric is none: every distance is 0; lower lam")
    if told["radius"] == 0:
        said.append("the radius is 0: the nearest training row decides")
    return tuple(said)


METHOD = Method(constraint=Labels, kernel=RBF("median"), solver=KCR())
