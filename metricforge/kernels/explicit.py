"""Kernels that are given by explicit features."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from .. import rows as _rows
from ..rows import Array, as_float64
from .arithmetic import inner, paired_inner, paired_squared_euclidean, squared_euclidean
from .interface import Kernel


class ExplicitKernel(Kernel):
    """A kernel k(x, y) = φ(x)'φ(y) given by its features: subclasses define ``features``.

    All is computed from the features in float64; blocks are stored in the precision of the rows.
    """

    @abstractmethod
    def features(self, X: Any) -> Array:
        """Return the (len(X), m) features φ."""

    def block(self, X: Any, Y: Any) -> Array:
        """Return φ(x)'φ(y)."""
        return self._cast(inner(*self._features_of(X, Y)), X, Y)

    def paired(self, X: Any, Y: Any) -> Array:
        """Return φ(x_i)'φ(y_i)."""
        return paired_inner(*self._features_of(X, Y))

    def squared_distance(self, X: Any, Y: Any) -> Array:
        """Return ‖φ(x) − φ(y)‖²."""
        return self._cast(squared_euclidean(*self._features_of(X, Y)), X, Y)

    def paired_squared_distance(self, X: Any, Y: Any) -> Array:
        """Return ‖φ(x_i) − φ(y_i)‖²."""
        return paired_squared_euclidean(*self._features_of(X, Y))

    def _features_of(self, X: Any, Y: Any) -> tuple[Array, Array]:
        P = np.asarray(self.features(as_float64(X)))
        return P, P if X is Y else np.asarray(self.features(as_float64(Y)))

    @staticmethod
    def _cast(values: Array, X: Any, Y: Any) -> Array:
        return values.astype(_rows.float_dtype(X, Y), copy=False)
