"""Learned kernels on features: a·k(x, y) + φ(x)'Wφ(y)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from .. import psd
from .. import rows as _rows
from ..errors import InputError
from ..kernels import FittedKernel, Kernel, squared_euclidean
from ..rows import Array, check_memory
from ..validation import number
from .maps import FeatureMap

ORTHONORMAL = 1e-9
"""The largest deviation of V'V from the identity."""


class OverFeatures(FittedKernel):
    """A fitted kernel on features φ of a base kernel, in a field ``map``."""

    map: FeatureMap

    @property
    def start(self) -> Kernel:
        """The kernel that φ are the features of."""
        return self.map.kernel

    @property
    def learned_width(self) -> int | None:
        """The number of columns that φ takes."""
        return self.map.width

    @property
    def widest(self) -> int:
        """That of φ."""
        return self.map.widest


@dataclass(frozen=True, eq=False)
class LearnedKernel(OverFeatures):
    """The kernel a·k(x, y) + φ(x)'Wφ(y) with aI + W ⪰ 0, on the features φ of a base kernel k.

    Parameters
    ----------
    map : FeatureMap
        φ, which also holds the base kernel.
    W : (m, m) symmetric array
    a : float >= 0
        The weight of the base kernel, which contributes what the landmarks do not span.
    """

    map: FeatureMap
    W: Array
    a: float = 0.0

    def __post_init__(self) -> None:
        m = self.map.columns
        if np.shape(self.W) != (m, m):
            raise InputError(f"W must be {m} × {m}, one row per feature, got shape {np.shape(self.W)}")
        number(self.a, "a", least=0)
        if not np.isfinite(self.W).all():
            raise InputError("W must be finite")

    @staticmethod
    def of_factor(map: FeatureMap, L: Array) -> FactoredKernel:
        """Return the kernel φ(x)'L'Lφ(y) of an (r, m) factor L, which is kept as it is: ``root`` is L'."""
        return FactoredKernel(map, L)

    @property
    def base(self) -> Kernel:
        """The kernel k that φ are the features of."""
        return self.map.kernel

    @cached_property
    def root(self) -> Array:
        """R with RR' = aI + W."""
        return psd.factor(self.a * np.eye(len(self.W)) + self.W)

    def embedding(self) -> FeatureMap:
        """Return the map φ(x)'R, whose inner products are this kernel on the span of the landmarks."""
        return self.map.rotated(self.root, exact=self.a == 0 or self.map.exact)

    def block(self, X: Any, Y: Any) -> Array:
        """Return a K + Φ_X W Φ_Y'."""
        K = (self.map.block(X) @ self.W) @ self.map.block(Y).T
        if self.a:
            K += self.a * self.base.block(X, Y)
        return K.astype(_rows.float_dtype(X, Y), copy=False)

    def paired(self, X: Any, Y: Any) -> Array:
        """Return a k(x_i, y_i) + φ(x_i)'Wφ(y_i)."""
        k: Array = np.einsum("ij,ij->i", self.map.block(X) @ self.W, self.map.block(Y))
        if self.a:
            k += self.a * self.base.paired(X, Y)
        return k

    def squared_distance(self, X: Any, Y: Any) -> Array:
        """Return ‖R'(φ(x) − φ(y))‖², plus a times the part of the base distance outside the span of landmarks."""
        P, Q = self.map.block(X), self.map.block(Y)
        D = squared_euclidean(P @ self.root, Q @ self.root)
        if self.a and not self.map.exact:
            D += self.a * np.maximum(self.base.squared_distance(X, Y) - squared_euclidean(P, Q), 0)
        return D.astype(_rows.float_dtype(X, Y), copy=False)

    def paired_squared_distance(self, X: Any, Y: Any) -> Array:
        """Return the squared distances row by row."""
        Z = self.map.block(X) - self.map.block(Y)
        D: Array = np.square(Z @ self.root).sum(axis=1)
        if self.a and not self.map.exact:
            D += self.a * np.maximum(self.base.paired_squared_distance(X, Y) - np.square(Z).sum(axis=1), 0)
        return D

    def bilinear(self, d: int) -> Array:
        """Return a H + F W F' where φ(x) = F'[x, 1]."""
        F = self.map.affine(d)
        H: Array = F @ self.W @ F.T
        return H + self.a * self.base.bilinear(d) if self.a else H


@dataclass(frozen=True, eq=False)
class ChangedKernel(OverFeatures):
    """The kernel k(x, y) + φ(x)'V W V'φ(y): a base kernel that was changed in r directions only.

    Parameters
    ----------
    map : FeatureMap
        φ, which also holds the base kernel.
    directions : (m, r) array
        V, with orthonormal columns.
    W : (r, r) symmetric array
        The change, with I + W ⪰ 0.
    """

    map: FeatureMap
    directions: Array
    W: Array

    def __post_init__(self) -> None:
        V, m = np.asarray(self.directions), self.map.columns
        if V.ndim != 2 or len(V) != m or V.shape[1] < 1:
            raise InputError(f"directions must have {m} rows, one per feature, and a column, got shape {V.shape}")
        if not np.isfinite(V).all() or np.abs(V.T @ V - np.eye(V.shape[1])).max() > ORTHONORMAL:
            raise InputError("directions must have orthonormal columns")
        self._inside  # noqa: B018 - checks W

    @cached_property
    def _inside(self) -> LearnedKernel:
        """The same kernel, on the features V'φ."""
        return LearnedKernel(self.map.rotated(self.directions), self.W, 1.0)

    @property
    def base(self) -> Kernel:
        """The kernel k that φ are the features of."""
        return self.map.kernel

    @cached_property
    def root(self) -> Array:
        """The (m, m) matrix R = I − VV' + VTV' with TT' = I + W, so that RR' = I + VWV'."""
        V, m = self.directions, self.map.columns
        check_memory(16 * m * m, f"the {m} × {m} matrix of the embedding", "learn again with fewer columns")
        T = self._inside.root  # its columns are fewer where I + W is singular
        R = (np.pad(T, ((0, 0), (0, len(T) - T.shape[1]))) - np.eye(len(T))) @ V.T
        R = V @ R
        R[np.diag_indices(m)] += 1
        return np.asarray(R)

    def embedding(self) -> FeatureMap:
        """Return the map φ(x)'R, whose inner products are this kernel on the span of the landmarks."""
        return self.map.rotated(self.root, exact=self.map.exact)

    def block(self, X: Any, Y: Any) -> Array:
        """Return K + Φ_X V W V'Φ_Y'."""
        return self._inside.block(X, Y)

    def paired(self, X: Any, Y: Any) -> Array:
        """Return k(x_i, y_i) + φ(x_i)'V W V'φ(y_i)."""
        return self._inside.paired(X, Y)

    def squared_distance(self, X: Any, Y: Any) -> Array:
        """Return the squared distance along the directions, plus that of the base kernel outside them."""
        return self._inside.squared_distance(X, Y)

    def paired_squared_distance(self, X: Any, Y: Any) -> Array:
        """Return the squared distances row by row."""
        return self._inside.paired_squared_distance(X, Y)

    def bilinear(self, d: int) -> Array:
        """Return H + F V W V'F' where φ(x) = F'[x, 1]."""
        return self._inside.bilinear(d)


@dataclass(frozen=True, eq=False)
class FactoredKernel(OverFeatures):
    """The kernel φ(x)'L'Lφ(y) on the features φ of a base kernel, for methods that learn L.

    L is not derived from W again: the embedding has the r axes that were learned, in their order and with their signs.

    Parameters
    ----------
    map : FeatureMap
        φ, which also holds the base kernel.
    L : (r, m) array
    """

    map: FeatureMap
    L: Array

    def __post_init__(self) -> None:
        m, shape = self.map.columns, np.shape(self.L)
        if len(shape) != 2 or shape[0] < 1 or shape[1] != m:
            raise InputError(f"L must have {m} columns, one per feature, and at least one row, got shape {shape}")
        if not np.isfinite(self.L).all():
            raise InputError("L must be finite")

    @property
    def base(self) -> Kernel:
        """The kernel that φ are the features of."""
        return self.map.kernel

    @property
    def W(self) -> Array:  # noqa: N802
        """The (m, m) matrix L'L."""
        return self.L.T @ self.L

    @property
    def root(self) -> Array:
        """L'."""
        return self.L.T

    def features(self, X: Any) -> Array:
        """Return Lφ(x): a fit that starts from this kernel works on the r axes that were learned."""
        return self._embed(X)

    def embedding(self) -> FeatureMap:
        """Return the map Lφ(x), whose inner products are this kernel for every row."""
        return self.map.rotated(self.root, exact=True)

    def block(self, X: Any, Y: Any) -> Array:
        """Return Φ_X L'L Φ_Y'."""
        K: Array = self._embed(X) @ self._embed(Y).T
        return K.astype(_rows.float_dtype(X, Y), copy=False)

    def paired(self, X: Any, Y: Any) -> Array:
        """Return φ(x_i)'L'Lφ(y_i)."""
        return np.asarray(np.einsum("ij,ij->i", self._embed(X), self._embed(Y)))

    def squared_distance(self, X: Any, Y: Any) -> Array:
        """Return ‖L(φ(x) − φ(y))‖²."""
        return squared_euclidean(self._embed(X), self._embed(Y)).astype(_rows.float_dtype(X, Y), copy=False)

    def paired_squared_distance(self, X: Any, Y: Any) -> Array:
        """Return the squared distances row by row."""
        return np.asarray(np.square((self.map.block(X) - self.map.block(Y)) @ self.root).sum(axis=1))

    def bilinear(self, d: int) -> Array:
        """Return F L'L F' where φ(x) = F'[x, 1]."""
        E = self.map.affine(d) @ self.root
        return np.asarray(E @ E.T)

    def _embed(self, X: Any) -> Array:
        return np.asarray(self.map.block(X) @ self.root)
