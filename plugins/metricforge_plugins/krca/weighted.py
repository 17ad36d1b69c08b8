"""Whitened directions weighed by how much all rows vary along them: k̃(x, y) = φ(x)'Ĉ⁻¹TĈ⁻¹φ(y)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from metricforge import rows as _rows
from metricforge.constraints import Chunklets, Pairs
from metricforge.errors import InputError
from metricforge.kernels import RBF, Linear, Standardized
from metricforge.rows import Array
from metricforge.solver import Method, Problem, Solution, Use
from metricforge.space import FactoredKernel, FeatureMap, Space, represent
from metricforge.validation import number, whole_number

from .chunklets import Groups, groups_of
from .kernel import LARGEST_COUNT, inverse_root
from .solver import MULTIPLE, GroupSolver, added_scatter, forecast, not_learned, notes_on, similar_only, solution
from .system import direction, relative

ANY, LEAST, TIMES = 1.0, 0.1, 6.0
"""epsilon="auto" in mean eigenvalues of C without explicit features (0.3 to 2 do well with a Gaussian on
18 data sets), and with them, the smallest and the factor of (d / (n − #groups))²."""
LANDMARKS = 300
"""The most features that ``rank="auto"`` means here: T and Ĉ are dense, and cost O(n m² + m³)."""
MOST_ROWS = 10_000
"""The number of rows from which T is measured."""
NEGLIGIBLE = 1e-12
"""Axes along which the whitened rows vary less, relative to the first, are rounding error."""
DEFINITION = "relative KKT residual ‖(ĈMĈ − T)v‖ / ‖Tv‖ along a random v"


@dataclass(frozen=True)
class WeightedRCA(GroupSolver):
    """Learn k̃(x, y) = φ(x)'Mφ(y), M = Ĉ⁻¹TĈ⁻¹, from groups of rows that belong together.

    Ĉ = εI + C is that of `KernelRCA`, and T the covariance of all rows, also of those in no group.  M minimises

        ½ tr(MĈMĈ) − tr(MT),

    so directions in which rows differ no more than groups do lose their weight.  This is not the method of the paper,
    which weighs all whitened directions the same.  It takes features, with ``rank="auto"`` at most 300 of them unless
    they are explicit.

    Parameters
    ----------
    epsilon : "auto" or float >= 0
        ε, as for krca.  "auto" is a multiple of the mean eigenvalue of C: 1, and for d explicit features
        6 (d / (n − #groups))², at least 0.1 and at most 5.
    """

    def _multiple(self, width: int | None, contrasts: int) -> float:
        return ANY if width is None else float(np.clip(TIMES * (width / contrasts) ** 2, LEAST, MULTIPLE))

    def _solve(self, problem: Problem) -> Solution:
        assert isinstance(problem.constraint, Chunklets)
        groups, space = groups_of(problem.constraint), limited(problem.space)
        S, epsilon, outcome = self._scatter(problem, groups, space)
        T = covariance(space.map, problem.rows, problem.seed)
        learned = WeightedKernel.of(space.map, S, groups.n, epsilon, T)
        outcome |= {"features": len(S), "axes": len(learned.L)}
        return solution(learned, *learned.checked(problem.seed), outcome, notes_on(groups), DEFINITION)

    def _grown(self, metric: Any, X: Any, groups: Groups, hold: str) -> tuple[Any, float, float, str]:
        if not isinstance(metric.kernel, WeightedKernel):
            raise not_learned(metric.kernel, "krca-weighted")
        learned = metric.kernel.grown(*added_scatter(metric.kernel, X, groups, hold))
        return learned, *learned.checked(metric.seed), DEFINITION


@dataclass(frozen=True, eq=False)
class WeightedKernel(FactoredKernel):
    """k̃(x, y) = φ(x)'Mφ(y) with M = Ĉ⁻¹TĈ⁻¹, Ĉ = εI + S/n, in the form to which further groups can be added.

    With RR' = Ĉ⁻¹ and R'TR = UΛU', the rows of L are √λ u'R', the largest λ first: along a whitened axis u the groups
    vary by 1 at the most and all rows by λ.

    Parameters
    ----------
    map, L
        As in `metricforge.space.FactoredKernel`; LL' has the eigenvalues of M.
    scatter : (m, m) array
        S, the scatter inside groups.
    total : (m, m) array
        T, the covariance of all rows of the first fit.
    n : int
        The number of rows in groups.
    epsilon : float >= 0
    """

    scatter: Array = field(kw_only=True)
    total: Array = field(kw_only=True)
    n: int = field(kw_only=True)
    epsilon: float = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        m = self.map.columns
        for name in ("scatter", "total"):
            value = getattr(self, name)
            if np.shape(value) != (m, m) or not np.isfinite(value).all():
                raise InputError(f"{name} must be finite and {m} × {m}, one row per feature")
        whole_number(self.n, "n", most=LARGEST_COUNT)
        number(self.epsilon, "epsilon", least=0)

    @classmethod
    def of(cls, map: FeatureMap, scatter: Array, n: int, epsilon: float, total: Array) -> WeightedKernel:
        """Return the kernel of a scatter and of the covariance of all rows; two eigendecompositions, O(m³)."""
        R = inverse_root(scatter / n, epsilon)
        w, U = np.linalg.eigh(R.T @ total @ R)
        w, U = w[::-1], U[:, ::-1]
        kept = w > NEGLIGIBLE * w[0]
        L = (R @ (U[:, kept] * np.sqrt(w[kept]))).T
        return cls(map, np.ascontiguousarray(L), scatter=scatter, total=total, n=n, epsilon=epsilon)

    def grown(self, scatter: Array, n: int, epsilon: float) -> WeightedKernel:
        """Return the kernel of another scatter; T stays, as the features do."""
        return self.of(self.map, scatter, n, epsilon, self.total)

    def checked(self, seed: int) -> tuple[float, float]:
        """Return the objective −½ tr(MT), and the residual ‖(ĈMĈ − T)v‖ / ‖Tv‖ along a random v."""
        v = direction(len(self.scatter), seed)

        def whitening(u: Array) -> Array:  # Ĉu
            return np.asarray(self.scatter @ u / self.n + self.epsilon * u)

        truth = self.total @ v
        found = whitening(self.L.T @ (self.L @ whitening(v)))
        return -float(((self.L @ self.total) * self.L).sum()) / 2, relative(found, truth)


def limited(space: Space) -> Space:
    """Return a space with at most `LANDMARKS` features, unless they are explicit or the user asked for their number."""
    if not space.automatic or space.representation == "explicit" or space.rank <= LANDMARKS:
        return space
    return represent(space.kernel, space.rows, LANDMARKS, seed=space.seed)


def covariance(map: FeatureMap, X: Any, seed: int) -> Array:
    """Return T, the (m, m) covariance of the features of checked rows, from at most `MOST_ROWS` of them.

    Cost: O(n m (l + m)) time for l landmarks; memory O(m²) and one block of rows.
    """
    index = _rows.draw(_rows.count(X), MOST_ROWS, seed)
    first: Array | None = None
    total, products = np.zeros(map.columns), np.zeros((map.columns, map.columns))
    for part in _rows.blocks(len(index), 32 * map.widest):
        Phi = map.of_rows(X, index[part], copies=2)
        first = Phi.mean(axis=0) if first is None else first  # so that a mean far from 0 costs no digits
        Phi = Phi - first
        total += Phi.sum(axis=0)
        products += Phi.T @ Phi
    mean = total / len(index)
    return np.asarray(products / len(index) - np.outer(mean, mean))


def _some_similar(pairs: Pairs) -> bool:
    return bool(len(pairs.similar))


_MEASURED: dict[str, Any] = {"most_rows": 10_000, "takes": ("vectors",), "dask": False}

METHOD = Method(
    constraint=Chunklets,
    kernel=Standardized(RBF("median"), by="range"),
    solver=WeightedRCA(),
    uses=(
        Use(Chunklets, 1, **_MEASURED),
        Use(Pairs, 1, when=similar_only, **_MEASURED),
        Use(Pairs, 3, when=_some_similar, rival=True, **_MEASURED),
    ),
    settings=({"kernel": Standardized(Linear(), by="range")},),
    cost=forecast,
)
"""What "auto" takes for groups: with groups over a third of the rows it gains several times as much as krca."""
