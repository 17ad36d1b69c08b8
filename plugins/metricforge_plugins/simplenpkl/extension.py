"""The learned embedding of new rows: by ridge regression, or by the eigenvector equation of the graph."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from metricforge import rows as _rows
from metricforge.errors import InputError
from metricforge.kernels import ExplicitKernel, FittedKernel, Kernel, OverRows
from metricforge.rows import Array
from metricforge.space import FeatureMap, OverFeatures, explicit_map
from metricforge.validation import flag, whole_number

from .graph import nearest_to
from .unit import unit_rows

RIDGES = np.geomspace(1e-9, 1e3, 49)
"""Ridge parameters to choose from, as multiples of the mean eigenvalue of the covariance of the features."""


ZERO_VARIANCE = 1e-14
"""Features whose variance is below this share of their mean square are constant up to rounding."""


class Extension(FittedKernel, ExplicitKernel):
    """A kernel k(x, y) = e(x)'e(y) given by an embedding e of any row, of ``rank`` columns."""

    @property
    @abstractmethod
    def rank(self) -> int:
        """The number of columns r of e."""

    def embedding(self) -> FeatureMap:
        """Return e itself."""
        return explicit_map(self, self.rank)


# --------------------------------------------------------------------------------------------------- ridge regression


@dataclass(frozen=True, eq=False)
class RidgeExtension(OverFeatures, Extension):
    """The embedding e(x) = R'φ(x) + b on the features φ of the base kernel, divided by its norm if ``unit``.

    Parameters
    ----------
    map : FeatureMap
        φ, which also has the base kernel.
    weights : (m, r) array
        R.
    offset : (r,) array
        b.
    unit : bool
        Whether e(x) is divided by its norm.
    """

    map: FeatureMap
    weights: Array
    offset: Array
    unit: bool

    def __post_init__(self) -> None:
        flag(self.unit, "unit")
        m, r = self.map.columns, np.size(self.offset)
        if np.shape(self.offset) != (r,) or np.shape(self.weights) != (m, r):
            raise InputError(
                f"weights must be {m} × {r}, one row per feature and one column per entry of the offset, got shapes "
                f"{np.shape(self.weights)} and {np.shape(self.offset)}"
            )

    def features(self, X: Any) -> Array:
        """Return R'φ(x) + b."""
        E = self.map.block(X) @ self.weights + self.offset
        return unit_rows(E) if self.unit else E

    @property
    def rank(self) -> int:
        """The number of columns r."""
        return len(self.offset)

    def bilinear(self, d: int) -> Array:
        """Return E E' where e(x) = E'[x, 1], unless e(x) is divided by its norm."""
        if self.unit:
            raise InputError(
                "simplenpkl divides each embedded row by its norm, so its distance is not linear in the columns of X; "
                "learn with normalize=False and a linear kernel to get a Mahalanobis matrix"
            )
        E = self.map.affine(d) @ self.weights
        E[d] += self.offset
        return np.asarray(E @ E.T)


def ridge(map: FeatureMap, X: Any, E: Any, unit: bool) -> tuple[RidgeExtension, float]:
    """Regress the embedding on features: min Σ_i ‖e_i − R'φ_i − b‖² + ρ‖R‖², ρ by generalised cross-validation.

    Rows that neither the graph nor the pairs determine (e_i = 0) are ignored.  Returns the extension and the share of
    the variance of E that it explains.  Cost: one pass over X, O(n m²) time, O(m²) memory and a block of rows.
    """
    origin = map.block(_rows.gathered(X[:1]))[0]
    n, sum_f, sum_e, FF, FE, EE = _rows.fold(_Moments(map, origin), _added, X, E)
    mean_f, mean_e = sum_f / n, sum_e / n
    FF = FF - n * np.outer(mean_f, mean_f)
    FE = FE - n * np.outer(mean_f, mean_e)
    total = EE - n * float(mean_e @ mean_e)
    s, U = np.linalg.eigh((FF + FF.T) / 2)
    s = np.maximum(s, 0.0)
    if not s[-1] > ZERO_VARIANCE * (s[-1] + n * float(np.square(origin + mean_f).sum())):
        raise InputError(
            "kernel: all rows with a place in the embedding have the same features under the base kernel, so the "
            "embedding cannot be extended to other rows; choose another kernel"
        )
    if s[-1] < 1e-150:  # its square underflows
        raise InputError(
            f"kernel: the rows differ by about {s[-1]:.3g} under the base kernel; multiply it by a number that makes "
            "its values about 1"
        )
    Z = np.square(U.T @ FE).sum(axis=1)
    rho = RIDGES * max(float(s.mean()), np.finfo(np.float64).tiny)
    left = np.maximum(total - (Z[:, None] * (s[:, None] + 2 * rho) / np.square(s[:, None] + rho)).sum(axis=0), 0.0)
    freedom = (s[:, None] / (s[:, None] + rho)).sum(axis=0)
    score = left / np.square(n - 1 - np.minimum(freedom, (n - 1) / 2))
    # the score is meaningless close to interpolation, so at least half of the degrees of freedom must remain
    score[2 * freedom > n - 1] = np.inf
    # the largest ρ among equally good ones: where the score is flat, rounding must not decide
    best = int(np.flatnonzero(score <= (1 + 1e-4) * score.min())[-1])
    R = U @ ((U.T @ FE) / (s + rho[best])[:, None])
    explained = 1.0 - float(left[best]) / total if total > 0 else 0.0
    return RidgeExtension(map, R, mean_e - (origin + mean_f) @ R, unit), float(explained)


@dataclass(frozen=True, eq=False)
class _Moments:
    """The sums over a chunk of rows that ridge regression needs: numbers, means and products of φ and e.

    φ is measured from the features of one row: beside a large offset, the products lose the digits of the differences.
    """

    map: FeatureMap
    origin: Array

    def __call__(self, X: Any, E: Array) -> tuple[Any, ...]:
        m, r = self.map.columns, E.shape[1]
        sums: tuple[Any, ...] = (0, np.zeros(m), np.zeros(r), np.zeros((m, m)), np.zeros((m, r)), 0.0)
        for part in _rows.blocks(len(E), 8 * (m + (_rows.width(X) or 1))):
            known = np.flatnonzero(E[part].any(axis=1))
            F, e = self.map.block(X[part])[known] - self.origin, E[part][known]
            sums = _added(
                [sums, (len(known), F.sum(axis=0), e.sum(axis=0), F.T @ F, F.T @ e, float(np.square(e).sum()))]
            )
        return sums


def _added(parts: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    return tuple(sum(values[1:], start=values[0]) for values in zip(*parts, strict=True))


# ------------------------------------------------------------------------------------------------------- graph Nyström


@dataclass(frozen=True, eq=False)
class GraphExtension(OverRows, Extension):
    """The embedding e(x) = Σ_j u_j / sqrt(k) over the k training rows nearest to x, divided by its norm if ``unit``.

    An eigenvector of A with eigenvalue λ satisfies (1 + λ) v_x = Σ_j S_xj v_j / sqrt(d_x d_j) at a row x without pairs.
    This equation defines e at a new row, with d_x = k and u_j = v_j sqrt(μ/d_j)/(1 + λ), μ the eigenvalue of K.

    Parameters
    ----------
    base : Kernel
        The kernel whose distance defines the neighbours.
    rows : rows
        The training rows.
    vectors : (n, r) array
        u.
    n_neighbors : int
    unit : bool
        Whether e(x) is divided by its norm.
    """

    base: Kernel
    rows: Any
    vectors: Array
    n_neighbors: int
    unit: bool

    def __post_init__(self) -> None:
        n = _rows.count(self.rows)
        if np.ndim(self.vectors) != 2 or len(self.vectors) != n:
            raise InputError(f"vectors must have {n} rows, one per training row, got shape {np.shape(self.vectors)}")
        whole_number(self.n_neighbors, "n_neighbors", most=n)
        flag(self.unit, "unit")

    def features(self, X: Any) -> Array:
        """Return the sums over the nearest training rows; O(n d) time per row."""
        near = nearest_to(self.base, self.rows, X, self.n_neighbors)
        E = np.empty((len(near), self.rank))
        for part in _rows.blocks(len(near), 8 * self.n_neighbors * self.rank):
            E[part] = self.vectors[near[part]].sum(axis=1) / np.sqrt(self.n_neighbors)
        return unit_rows(E) if self.unit else E

    @property
    def rank(self) -> int:
        """The number of columns r."""
        return int(self.vectors.shape[1])
