"""Kernels on vectors: dense or CSR rows of numbers, and rows of a precomputed Gram matrix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .. import rows as _rows
from ..errors import InputError
from ..rows import Array, ComparedByContent, as_float64, quiet
from ..validation import first_rows, number, whole_number
from .arithmetic import (
    inner,
    manhattan,
    paired_inner,
    paired_manhattan,
    paired_squared_euclidean,
    squared_euclidean,
    squared_euclidean_to,
)
from .explicit import ExplicitKernel
from .interface import Kernel
from .parameters import check_gamma, check_is_kernel, inverse_median, median_rows, resolve_gamma, resolved


@dataclass(frozen=True)
class Linear(Kernel):
    """The inner product x'y; its distance is the Euclidean one."""

    def block(self, X: Any, Y: Any) -> Array:
        """Return X Y'."""
        return inner(X, Y)

    def paired(self, X: Any, Y: Any) -> Array:
        """Return x_i'y_i."""
        return paired_inner(X, Y)

    def squared_distance(self, X: Any, Y: Any) -> Array:
        """Return ‖x − y‖²."""
        return squared_euclidean(X, Y)

    def paired_squared_distance(self, X: Any, Y: Any) -> Array:
        """Return ‖x_i − y_i‖²."""
        return paired_squared_euclidean(X, Y)

    def features(self, X: Any) -> Any:
        """Return X: a row is its own feature vector."""
        return X

    def bilinear(self, d: int) -> Array:
        """Return the identity on the columns."""
        return np.diag(np.append(np.ones(d), 0.0))


@dataclass(frozen=True)
class RateKernel(Kernel):
    """A kernel that falls from k(x, x) = 1 with a distance, at the rate γ.

    Parameters
    ----------
    gamma : float or "median"
        The rate γ; ``"median"`` becomes 1 / (median of the distance) when the kernel is resolved on data.
    """

    gamma: float | str = "median"

    def __post_init__(self) -> None:
        check_gamma(self.gamma)

    def diag(self, X: Any) -> Array:
        """Return ones."""
        return np.ones(_rows.count(X), dtype=_rows.float_dtype(X))

    def _rate(self, dtype: Any = np.float64) -> float:
        """Return γ, at most the largest number of the precision: infinity times a distance of 0 is NaN."""
        return min(resolved(self.gamma), float(np.finfo(dtype).max))


def _exponential(D: Array) -> None:
    np.exp(D, out=D)


@dataclass(frozen=True)
class RBF(RateKernel):
    """The Gaussian exp(−γ d²(x, y)), on the Euclidean distance or on the distance of another kernel.

    Parameters
    ----------
    gamma : float or "median"
        The rate γ; ``"median"`` becomes 1 / (median squared distance) when the kernel is resolved on data.
    base : Kernel, optional
        The kernel whose distance is used; default: the Euclidean distance.
    """

    base: Kernel | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.base is not None:
            check_is_kernel(self.base, "base")

    @property
    def _base(self) -> Kernel:
        return Linear() if self.base is None else self.base

    @property
    def takes(self) -> str:
        """What the base kernel takes."""
        return self._base.takes

    def validate(self, X: Any, name: str) -> None:
        """Validate X against the base kernel."""
        self._base.validate(X, name)

    def resolve(self, X: Any, *, seed: int = 0) -> RBF:
        """Resolve the base kernel, then the median of its squared distance."""
        base = self.base.resolve(X, seed=seed) if self.base else None
        return replace(self, base=base, gamma=resolve_gamma(self.gamma, base or Linear(), X, seed))

    def block(self, X: Any, Y: Any) -> Array:
        """Return exp(−γ d²)."""
        if self.base is None:
            return squared_euclidean(X, Y, _exponential, times=-self._rate())
        D = self.base.squared_distance(X, Y)
        with quiet():
            D *= -self._rate(D.dtype)
        _exponential(D)
        return D

    def block_to(self, Y: Any) -> Callable[[Any], Array]:
        """Return the function X ↦ block(X, Y)."""
        if self.base is not None or _rows.is_sparse(Y):
            return super().block_to(Y)
        near = squared_euclidean_to(Y, _exponential, times=-self._rate())
        return lambda X: self.block(X, Y) if _rows.is_sparse(X) else near(X)

    def paired(self, X: Any, Y: Any) -> Array:
        """Return exp(−γ d²(x_i, y_i))."""
        with quiet():
            D = self._base.paired_squared_distance(X, Y)
            return np.exp(-self._rate(D.dtype) * D)

    def squared_distance(self, X: Any, Y: Any) -> Array:
        """Return 2 − 2 exp(−γ d²) without cancellation."""
        D = self._base.squared_distance(X, Y)
        with quiet():
            D *= -self._rate(D.dtype)
        np.expm1(D, out=D)
        D *= -2
        return D

    def paired_squared_distance(self, X: Any, Y: Any) -> Array:
        """Return 2 − 2 exp(−γ d²(x_i, y_i)) without cancellation."""
        with quiet():
            D = self._base.paired_squared_distance(X, Y)
            return -2 * np.expm1(-self._rate(D.dtype) * D)


@dataclass(frozen=True)
class Laplacian(RateKernel):
    """The kernel exp(−γ ‖x − y‖₁); ``gamma="median"`` becomes 1 / (median 1-norm distance)."""

    def resolve(self, X: Any, *, seed: int = 0) -> Laplacian:
        """Resolve the median of the 1-norm distance."""
        if self.gamma != "median":
            return self
        sample = median_rows(X, seed)
        return replace(self, gamma=inverse_median(manhattan(sample, sample)))

    def block(self, X: Any, Y: Any) -> Array:
        """Return exp(−γ ‖x − y‖₁)."""
        D = manhattan(X, Y)
        with quiet():
            D *= -self._rate(D.dtype)
        return np.exp(D, out=D)

    def paired(self, X: Any, Y: Any) -> Array:
        """Return exp(−γ ‖x_i − y_i‖₁)."""
        with quiet():
            D = paired_manhattan(X, Y)
            return np.exp(-self._rate(D.dtype) * D)

    def squared_distance(self, X: Any, Y: Any) -> Array:
        """Return 2 − 2 exp(−γ ‖x − y‖₁) without cancellation."""
        D = manhattan(X, Y)
        with quiet():
            D *= -self._rate(D.dtype)
        np.expm1(D, out=D)
        D *= -2
        return D

    def paired_squared_distance(self, X: Any, Y: Any) -> Array:
        """Return 2 − 2 exp(−γ ‖x_i − y_i‖₁) without cancellation."""
        with quiet():
            D = paired_manhattan(X, Y)
            return -2 * np.expm1(-self._rate(D.dtype) * D)


@dataclass(frozen=True)
class Cauchy(RateKernel):
    """The kernel 1 / (1 + γ ‖x − y‖²); ``gamma="median"`` becomes 1 / (median squared distance)."""

    def resolve(self, X: Any, *, seed: int = 0) -> Cauchy:
        """Resolve the median squared distance."""
        return replace(self, gamma=resolve_gamma(self.gamma, Linear(), X, seed))

    def block(self, X: Any, Y: Any) -> Array:
        """Return 1 / (1 + γ d²)."""
        D = self._raised(squared_euclidean(X, Y))
        D += 1
        return np.reciprocal(D, out=D)

    def _raised(self, D: Array) -> Array:
        """Return γ d², at most 1e300, in place where possible."""
        with quiet():
            D *= self._rate(D.dtype)
        return np.minimum(D, 1e300 if D.dtype == np.float64 else 1e30, out=D)

    def paired(self, X: Any, Y: Any) -> Array:
        """Return 1 / (1 + γ d²(x_i, y_i))."""
        return np.asarray(1 / (1 + self._raised(paired_squared_euclidean(X, Y))))

    def squared_distance(self, X: Any, Y: Any) -> Array:
        """Return 2 − 2k = 2γd² / (1 + γd²) without cancellation."""
        D = self._raised(squared_euclidean(X, Y))
        D /= 1 + D
        D *= 2
        return D

    def paired_squared_distance(self, X: Any, Y: Any) -> Array:
        """Return 2γd² / (1 + γd²) row by row."""
        D = self._raised(paired_squared_euclidean(X, Y))
        return np.asarray(2 * (D / (1 + D)))


@dataclass(frozen=True)
class Polynomial(Kernel):
    """The kernel (x'y + coef0)^degree; of degree 1, the linear kernel with a constant column √coef0."""

    degree: int = 2
    coef0: float = 1.0

    def __post_init__(self) -> None:
        whole_number(self.degree, "degree", most=10**9)
        number(self.coef0, "coef0", least=0)  # a negative one does not give a kernel

    def block(self, X: Any, Y: Any) -> Array:
        """Return (X Y' + coef0)^degree."""
        with quiet():
            G = inner(X, Y)
            G += self.coef0
            return np.power(G, self.degree, out=G)

    def paired(self, X: Any, Y: Any) -> Array:
        """Return (x_i'y_i + coef0)^degree."""
        with quiet():
            return (paired_inner(X, Y) + self.coef0) ** self.degree

    def squared_distance(self, X: Any, Y: Any) -> Array:
        """Return the squared distances; of degree 1 the Euclidean ones, whose digits a large offset does not cost."""
        return squared_euclidean(X, Y) if self.degree == 1 else super().squared_distance(X, Y)

    def paired_squared_distance(self, X: Any, Y: Any) -> Array:
        """Return the squared distances row by row, likewise."""
        return paired_squared_euclidean(X, Y) if self.degree == 1 else super().paired_squared_distance(X, Y)

    def features(self, X: Any) -> Any | None:
        """Return the columns and a constant √coef0, where the degree is 1."""
        if self.degree != 1:
            return None
        with quiet():  # √coef0 may exceed single precision
            constant = np.full((X.shape[0], 1), np.sqrt(self.coef0), dtype=X.dtype)
        if not _rows.is_sparse(X):
            return np.hstack([X, constant])
        from scipy.sparse import hstack

        return hstack([X, constant], format="csr")

    def bilinear(self, d: int) -> Array:
        """Return the identity on the columns and coef0 on the constant, where the degree is 1."""
        if self.degree != 1:
            return super().bilinear(d)
        return np.diag(np.append(np.ones(d), self.coef0))


GRAM_COPIES = 6
"""Matrices of the size of a Gram matrix while its root is computed: its copy, the eigenvectors, and LAPACK's."""


@dataclass(frozen=True, eq=False)
class Precomputed(ComparedByContent, ExplicitKernel):
    """A kernel given by its Gram matrix: a row of X holds the similarities to all training rows.

    Fit on the (n, n) Gram matrix K; later rows are their (n,) similarities to the training rows, as in scikit-learn.
    Two rows are compared through the training rows, k(x, y) = x' K⁺ y = (R'x)'(R'y) with RR' = K⁺, which is exact when
    either of them is a training row.

    Cost: one n × n eigendecomposition when the kernel is resolved on K, and 8nr bytes besides K for rank r.
    """

    root: Array | None = None

    @property
    def takes(self) -> str:
        """Rows of a Gram matrix."""
        return "gram"

    def validate(self, X: Any, name: str) -> None:
        """Raise unless rows have one similarity for each training row."""
        if self.root is not None and X.shape[1] != len(self.root):
            raise InputError(
                f"{name} must hold the similarities to the {len(self.root)} training rows, got {X.shape[1]} columns"
            )

    def resolve(self, X: Any, *, seed: int = 0) -> Precomputed:
        """Check that X is a Gram matrix, and keep a root of its pseudo-inverse."""
        if self.root is not None:
            return self
        if _rows.is_dask(X):
            raise InputError("X: a precomputed Gram matrix must be in memory; give X.compute(), or rows and a kernel")
        K = X.toarray() if _rows.is_sparse(X) else X
        n = len(K)
        if K.shape != (n, n):
            raise InputError(f"X must be the square Gram matrix for a precomputed kernel, got shape {K.shape}")
        _rows.check_memory(GRAM_COPIES * 8 * n * n, f"the root of a {n} × {n} Gram matrix", "give rows and a kernel")
        K = K.astype(np.float64)
        scale = float(np.abs(K).max()) or 1.0
        skew = np.abs(K - K.T).max(axis=1)
        if skew.max() > 1e-6 * scale:
            bad = first_rows(np.flatnonzero(skew > 1e-6 * scale))
            raise InputError(
                f"X is not symmetric ({bad}), so it is not a Gram matrix; use (X + X.T) / 2 if that is meant"
            )
        w, V = np.linalg.eigh((K + K.T) / 2)
        if w[0] < -1e-6 * max(w[-1], scale):
            raise InputError(
                f"X is not positive semidefinite: its smallest eigenvalue is {w[0]:.3g} (largest {w[-1]:.3g}); "
                "take the nearest kernel with mf.psd.project(X)"
            )
        # smaller eigenvalues are rounding of K itself, which is larger in single precision
        keep = w > n * np.finfo(X.dtype).eps * max(w[-1], 0.0)
        if not keep.any():
            raise InputError("X is a Gram matrix of zeros, in which no two rows differ; give another kernel")
        return replace(self, root=V[:, keep] / np.sqrt(w[keep]))

    def features(self, X: Any) -> Array:
        """Return R'x, one feature for each non-zero eigenvalue of K."""
        if self.root is None:
            raise InputError("kernel Precomputed() has no Gram matrix yet; call kernel.resolve(K) first")
        return np.asarray(as_float64(X) @ self.root)
