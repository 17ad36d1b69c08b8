"""Whitened directions weighed by how much all rows vary along them: k̃(x, y) = φ(x)'Ĉ⁻¹TĈ⁻¹φ(y)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from metricforge import rows as _rows
from metricforge.errors import InputError
from metricforge.rows import Array
from metricforge.space import FactoredKernel, FeatureMap, Space, represent
from metricforge.validation import number, whole_number

from .kernel import LARGEST_COUNT, inverse_root
from .system import direction, relative

LANDMARKS = 300
"""The most features that ``rank="auto"`` means here: T and Ĉ are dense, and cost O(n m² + m³)."""
MOST_ROWS = 10_000
"""The number of rows from which T is measured."""
NEGLIGIBLE = 1e-12
"""Axes along which the whitened rows vary less, relative to the first, are rounding error."""


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
