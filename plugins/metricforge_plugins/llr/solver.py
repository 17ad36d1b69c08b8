"""The log-likelihood ratio of similar and dissimilar pairs: a Mahalanobis metric in closed form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from metricforge import rows as _rows
from metricforge.constraints import Constraint, Pairs
from metricforge.errors import InputError
from metricforge.kernels import Linear, Standardized
from metricforge.rows import Array
from metricforge.solver import Certificate, Method, Problem, Solution, Solver, Status
from metricforge.space import LearnedKernel, Size, check_memory, compact, rows_seconds, space_seconds
from metricforge.validation import number, number_or

PRIOR_SIMILAR, PRIOR_DISSIMILAR = 0.7, 1.1
"""The prior of S in mean variances of the rows, and that of D in covariances of the rows: before any pair is known,
rows that are alike differ a little less than two rows at random, in every direction alike, and others a little more."""
RIDGE = 1e-6
"""Added to the covariance of the rows, in mean variances: D is then invertible where columns depend on each other."""
PRIOR_ROWS = 10_000
"""The number of rows from which the covariance of all rows is measured."""
DEFINITION = "relative residual of Sv = A⁻¹v and Dv = B⁻¹v along a random v, the larger of the two"


@dataclass(frozen=True)
class LikelihoodRatio(Solver):
    """Learn M = S⁻¹ − D⁻¹ from similar and dissimilar pairs.

    S and D are half the covariances of the differences z = φ(x_i) − φ(x_j) of similar and of dissimilar pairs, each
    shrunk towards a prior with the weight of ``prior`` further pairs:

        S = (Σ_S ½zz' + k₀ S₀) / (N_S + k₀),    D = (Σ_D ½zz' + k₀ D₀) / (N_D + k₀),

    S₀ = 0.7 v I and D₀ = 1.1 T, with T the covariance of all rows and v its mean eigenvalue.  A = S⁻¹ and B = D⁻¹
    minimise tr(SA) − log det A + tr(DB) − log det B, the objective in the report, which has a closed form.  If
    differences are normal with covariances 2S and 2D, then z'(A − B)z is, up to a constant, four times the logarithm
    of how much more likely z is for a dissimilar pair than for a similar one.  The learned metric is A − B with
    eigenvalues raised to ``floor`` times the largest, so that no direction is ignored.

    Cost: one pass over the rows that occur in pairs, O(n m² + p m + m³) time and 16 n m bytes for n such rows, p pairs
    and m features: milliseconds for a hundred columns.

    Parameters
    ----------
    prior : "auto", "independent" or float > 0
        k₀, a number of pairs; "auto" is the number of features.  "independent" counts differences that do not follow
        from others instead of pairs: the pairs of a group of n rows are n (n − 1) / 2, but n − 1 differences determine
        them all.  k₀ is then the number of features times the pairs for each such difference.  Use it where pairs come
        from groups; of loose pairs all are independent.
    floor : float in (0, 1]
        The smallest eigenvalue of the metric, relative to the largest.

    References
    ----------
    M. Köstinger, M. Hirzer, P. Wohlhart, P. M. Roth, H. Bischof. Large scale metric learning from equivalence
    constraints. CVPR 2012, for M = S⁻¹ − D⁻¹ without priors.
    """

    prior: float | str = "auto"
    floor: float = 0.02

    accepts: ClassVar[tuple[type[Constraint], ...]] = (Pairs,)

    def __post_init__(self) -> None:
        number_or(self.prior, "prior", ["auto", "independent"], above=0)
        number(self.floor, "floor", above=0, most=1)

    def _prior(self, m: int, pairs: Array) -> float:
        """Return k₀ for m features."""
        if not isinstance(self.prior, str):
            return float(self.prior)
        return float(m) if self.prior == "auto" or not len(pairs) else m * len(pairs) / independent(pairs)

    def _solve(self, problem: Problem) -> Solution:
        pairs = problem.constraint
        assert isinstance(pairs, Pairs)
        space = problem.space
        problem.step(0, 1)
        T = covariance(space, problem.seed)
        m = len(T)
        variance = float(T.trace()) / m
        if not variance > 0:
            raise InputError("X: all rows are identical under this kernel, so no metric can be learned; check X")
        k0, k1 = (self._prior(m, part) for part in (pairs.similar, pairs.dissimilar))
        eye = np.eye(m)
        S = shrunk(scatter(space, pairs.similar), len(pairs.similar), PRIOR_SIMILAR * variance * eye, k0)
        D = shrunk(
            scatter(space, pairs.dissimilar), len(pairs.dissimilar), PRIOR_DISSIMILAR * (T + RIDGE * variance * eye), k1
        )
        A, B = inverse(S), inverse(D)
        w, V = np.linalg.eigh(A - B)
        learned = bool(w[-1] > 0)
        least = self.floor * float(w[-1]) if learned else 1 / variance
        raised = int(np.count_nonzero(w < least))
        w = np.maximum(w, least) if learned else np.full(m, least)
        objective = 2.0 * m + _log_determinant(S) + _log_determinant(D)
        gap = max(_residual(S, A, problem.seed), _residual(D, B, problem.seed))
        problem.step(1, 1)
        # the floor also weighs what the features leave out, if they are landmarks
        kernel = LearnedKernel(space.map, (V * (w - least)) @ V.T, least)
        return Solution(
            kernel,
            Status.OPTIMAL,
            objective=objective,
            certificate=Certificate("residual", gap, definition=DEFINITION),
            n_iter=1,
            trace=((objective, gap),),
            outcome={
                "learned": learned,
                "prior": k0,
                "similar_pairs": len(pairs.similar),
                "dissimilar_pairs": len(pairs.dissimilar),
                "eigenvalues": w[::-1].copy(),
                "raised": raised,
                "threshold": 2 * (_log_determinant(D) - _log_determinant(S)),
            },
            notes=_notes(pairs, learned),
        )


def independent(pairs: Array) -> int:
    """Return the number of differences of pairs that do not follow from others: rows minus connected parts."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    rows, (i, j) = compact(pairs.T)
    graph = coo_array((np.ones(len(i)), (i, j)), shape=(len(rows), len(rows)))
    return len(rows) - int(connected_components(graph, directed=False)[0])


def covariance(space: Any, seed: int) -> Array:
    """Return the (m, m) covariance of the features of the rows, or of `PRIOR_ROWS` of them."""
    Phi = space.map.of_rows(space.rows, _rows.draw(space.n, PRIOR_ROWS, seed), copies=2)
    Phi = Phi - Phi.mean(axis=0)
    return np.asarray(Phi.T @ Phi / len(Phi))


def scatter(space: Any, pairs: Array) -> Array:
    """Return Σ ½zz' = ½ Φ'LΦ over pairs, with L the Laplacian of their graph: each row's features are computed once."""
    from scipy.sparse import coo_array, diags_array

    m = space.map.columns
    if not len(pairs):
        return np.zeros((m, m))
    check_memory(8 * m * m, f"a {m} × {m} covariance", "lower the rank")
    rows, (i, j) = compact(pairs.T)
    W = coo_array((np.ones(len(i)), (i, j)), shape=(len(rows), len(rows))).tocsr()
    W = W + W.T
    L = diags_array(np.asarray(W.sum(axis=1)).ravel()) - W
    Phi = space.map.of_rows(space.rows, rows, copies=2)
    Phi = Phi - Phi.mean(axis=0)  # L1 = 0, up to rounding that grows with the mean
    half = Phi.T @ (L @ Phi)
    return np.asarray(half + half.T) / 4


def shrunk(total: Array, count: int, prior: Array, weight: float) -> Array:
    """Return (total + weight · prior) / (count + weight)."""
    return np.asarray((total + weight * prior) / (count + weight))


def inverse(C: Array) -> Array:
    """Return the inverse of a positive definite matrix."""
    from scipy.linalg import cho_factor, cho_solve

    try:
        found = cho_solve(cho_factor(C), np.eye(len(C)))
    except np.linalg.LinAlgError:
        raise InputError(
            "X: the covariance of the pairs is singular in double precision; rescale X, or give a larger prior"
        ) from None
    return np.asarray((found + found.T) / 2)


def _log_determinant(C: Array) -> float:
    return float(np.linalg.slogdet(C)[1])


def _residual(C: Array, inverse: Array, seed: int) -> float:
    """Return ‖C(C⁻¹v) − v‖ / ‖v‖ for a random v."""
    v = np.random.default_rng(seed).standard_normal(len(C))
    return float(np.linalg.norm(C @ (inverse @ v) - v) / np.linalg.norm(v))


def _notes(pairs: Pairs, learned: bool) -> tuple[str, ...]:
    notes = []
    for name in ("similar", "dissimilar"):
        if not len(getattr(pairs, name)):
            notes.append(f"there is no {name} pair; the prior took the place of their covariance")
    if not learned:
        notes.append(
            "nothing was learned: similar pairs differ at least as much as dissimilar pairs in every direction; check "
            "that the two kinds are not exchanged"
        )
    return tuple(notes)


def _seconds(size: Size) -> float:
    """Return the forecast CPU seconds of a fit; see docs/scaling.md."""
    rows = min(size.n, 2 * size.p)
    solve = 0.07 * rows * size.m**2 + 0.6 * size.m**3
    return rows_seconds(size) + space_seconds(size, rows) + 1e-9 * solve


METHOD = Method(
    constraint=Pairs,
    kernel=Standardized(Linear(), by="range"),
    solver=LikelihoodRatio(),
    cost=_seconds,
    memory={"mm": 88, "p": 40},
)
