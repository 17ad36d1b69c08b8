"""The learned embedding on rows that were not there: by ridge regression, or by the graph's own equation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricforge import rows as _rows
from metricforge.errors import InputError
from metricforge.kernels import Kernel, squared_euclidean
from metricforge.rows import ComparedByContent, as_float64
from metricforge.space import FeatureMap, explicit_map

from .graph import nearest_to

Array = NDArray[Any]

RIDGES = np.geomspace(1e-9, 1e3, 49)
"""Ridge parameters tried, in mean eigenvalues of the covariance of the features."""


class Extension(ComparedByContent, Kernel):
    """A kernel k(x, y) = e(x)'e(y) given by an embedding e of any row."""

    columns: int

    def features(self, X: Any) -> Array:
        """Return the (len(X), r) embedding."""
        raise NotImplementedError

    def embedding(self) -> FeatureMap:
        """Return e itself."""
        return explicit_map(self, self.columns)

    def block(self, X: Any, Y: Any) -> Array:
        """Return e(x)'e(y)."""
        E, F = self._both(X, Y)
        return (E @ F.T).astype(_dtype(X, Y), copy=False)

    def paired(self, X: Any, Y: Any) -> Array:
        """Return e(x_i)'e(y_i)."""
        return np.asarray(np.vecdot(*self._both(X, Y)))

    def squared_distance(self, X: Any, Y: Any) -> Array:
        """Return ‖e(x) − e(y)‖²."""
        E, F = self._both(X, Y)
        return squared_euclidean(E, F).astype(_dtype(X, Y), copy=False)

    def paired_squared_distance(self, X: Any, Y: Any) -> Array:
        """Return ‖e(x_i) − e(y_i)‖²."""
        E, F = self._both(X, Y)
        return np.asarray(np.square(E - F).sum(axis=1))

    def _both(self, X: Any, Y: Any) -> tuple[Array, Array]:
        E = self.features(as_float64(X))
        return E, E if X is Y else self.features(as_float64(Y))


def _dtype(X: Any, Y: Any) -> Any:
    return np.result_type(_rows.float_dtype(X), _rows.float_dtype(Y))


def unit_rows(E: Array) -> Array:
    """Return the rows divided by their norms; a row of zeros stays one."""
    norms = np.sqrt(np.vecdot(E, E))
    return np.asarray(E / np.where(norms > 0, norms, 1.0)[:, None])


# --------------------------------------------------------------------------------------------------- ridge regression


@dataclass(frozen=True, eq=False)
class RidgeExtension(Extension):
    """e(x) = R'φ(x) + b on the features φ of the base kernel, divided by its norm where asked.

    Parameters
    ----------
    map : FeatureMap
        φ, which also holds the base kernel.
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

    @property
    def columns(self) -> int:  # type: ignore[override]
        """The rank r."""
        return len(self.offset)

    @property
    def takes(self) -> str:
        """What the base takes."""
        return self.map.kernel.takes

    def validate(self, X: Any, name: str) -> None:
        """Let the base look at the rows, and compare their width with the training rows'."""
        self.map.kernel.validate(X, name)
        d = len(self.weights) if self.map.landmarks is None else _rows.width(self.map.landmarks)
        if d is not None and _rows.width(X) not in (d, None) and self.map.mix is None:
            raise InputError(f"{name} has {_rows.width(X)} features, but the metric was learned on {d}")

    def resolve(self, X: Any, *, seed: int = 0) -> RidgeExtension:
        """Return itself: it was resolved when it was learned."""
        return self

    def features(self, X: Any) -> Array:
        """Return R'φ(x) + b."""
        E = self.map.block(X) @ self.weights + self.offset
        return unit_rows(E) if self.unit else E


def ridge(map: FeatureMap, X: Any, E: Array, unit: bool) -> tuple[RidgeExtension, float]:
    """Regress the embedding on features: min Σ_i ‖e_i − R'φ_i − b‖² + ρ‖R‖², ρ by generalised cross-validation.

    Rows that the graph and the pairs say nothing about (e_i = 0) are left out.  Also returns the share of the variance
    of E that is explained.  One pass over X; O(n m²) time, O(m²) memory and a block of rows.
    """
    moments = _rows.fold(_Moments(map), _added, X, E)
    n, sum_f, sum_e, FF, FE, EE = moments
    mean_f, mean_e = sum_f / n, sum_e / n
    FF = FF - n * np.outer(mean_f, mean_f)
    FE = FE - n * np.outer(mean_f, mean_e)
    total = EE - n * float(mean_e @ mean_e)
    s, U = np.linalg.eigh((FF + FF.T) / 2)
    s = np.maximum(s, 0.0)
    Z = np.square(U.T @ FE).sum(axis=1)
    rho = RIDGES * max(float(s.mean()), np.finfo(np.float64).tiny)
    left = np.maximum(total - (Z[:, None] * (s[:, None] + 2 * rho) / np.square(s[:, None] + rho)).sum(axis=0), 0.0)
    freedom = (s[:, None] / (s[:, None] + rho)).sum(axis=0)
    score = left / np.square(n - 1 - np.minimum(freedom, (n - 1) / 2))
    # an interpolation says nothing about itself, so half of the rows must stay free
    score[2 * freedom > n - 1] = np.inf
    # the largest ρ that is as good: where the score is flat, rounding must not choose
    best = int(np.flatnonzero(score <= (1 + 1e-4) * score.min())[-1])
    R = U @ ((U.T @ FE) / (s + rho[best])[:, None])
    explained = 1.0 - float(left[best]) / total if total > 0 else 0.0
    return RidgeExtension(map, R, mean_e - mean_f @ R, unit), float(explained)


@dataclass(frozen=True, eq=False)
class _Moments:
    """Sums over a block of rows, around which ridge regression needs nothing else."""

    map: FeatureMap

    def __call__(self, X: Any, E: Array) -> tuple[Any, ...]:
        m, r = self.map.columns, E.shape[1]
        sums: tuple[Any, ...] = (0, np.zeros(m), np.zeros(r), np.zeros((m, m)), np.zeros((m, r)), 0.0)
        for part in _rows.blocks(len(E), 8 * (m + (_rows.width(X) or 1))):
            known = np.flatnonzero(E[part].any(axis=1))
            F, e = self.map.block(X[part])[known], E[part][known]
            sums = _added(
                [sums, (len(known), F.sum(axis=0), e.sum(axis=0), F.T @ F, F.T @ e, float(np.square(e).sum()))]
            )
        return sums


def _added(parts: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    return tuple(sum(values[1:], start=values[0]) for values in zip(*parts, strict=True))


# ------------------------------------------------------------------------------------------------------ graph Nystroem


@dataclass(frozen=True, eq=False)
class GraphExtension(Extension):
    """e(x) = Σ_j u_j / sqrt(k) over the k training rows nearest to x, divided by its norm where asked.

    An eigenvector of A with eigenvalue λ satisfies (1 + λ) v_x = Σ_j S_xj v_j / sqrt(d_x d_j) at a row x without pairs;
    for a new row this is the definition, with d_x = k and u_j = v_j sqrt(μ/d_j)/(1 + λ), μ the eigenvalue of K.

    Parameters
    ----------
    base : Kernel
        Whose distance decides who is near.
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

    @property
    def columns(self) -> int:  # type: ignore[override]
        """The rank r."""
        return int(self.vectors.shape[1])

    @property
    def takes(self) -> str:
        """What the base takes."""
        return self.base.takes

    def validate(self, X: Any, name: str) -> None:
        """Let the base look at the rows, and compare their width with the training rows'."""
        self.base.validate(X, name)
        _rows.check_widths(X, self.rows, (name, "the training data"))

    def resolve(self, X: Any, *, seed: int = 0) -> GraphExtension:
        """Return itself: it was resolved when it was learned."""
        return self

    def features(self, X: Any) -> Array:
        """Return the sums over nearest training rows; O(n d) time a row."""
        near = nearest_to(self.base, self.rows, X, self.n_neighbors)
        E = np.empty((len(near), self.columns))
        for part in _rows.blocks(len(near), 8 * self.n_neighbors * self.columns):
            E[part] = self.vectors[near[part]].sum(axis=1) / np.sqrt(self.n_neighbors)
        return unit_rows(E) if self.unit else E
