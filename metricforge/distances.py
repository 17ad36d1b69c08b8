"""Distances by a kernel, as objects that can be sent to a worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from . import neighbors
from . import rows as _rows
from .errors import InputError
from .kernels import Kernel
from .rows import Array
from .space import FeatureMap, Stacked


@dataclass(frozen=True, eq=False)
class PairedDistance:
    """d(a_i, b_i), row by row."""

    kernel: Kernel

    def __call__(self, A: Any, B: Any) -> Array:
        """Return the (len(A),) distances."""
        return np.sqrt(self.kernel.paired_squared_distance(A, B))


@dataclass(frozen=True, eq=False)
class BoundCoordinates:
    """Coordinates in a map, and the norm of what it leaves out: their distances are at most those of the kernel."""

    kernel: Kernel
    map: FeatureMap | Stacked

    def __call__(self, X: Any) -> Array:
        """Return the (len(X), columns + 1) coordinates."""
        Z = self.map.block(X)
        rest = np.maximum(self.kernel.diag(X) - np.square(Z).sum(axis=1), 0)
        return np.column_stack([Z, np.sqrt(rest)])


@dataclass(frozen=True, eq=False)
class NearestByKernel:
    """The nearest rows of a chunk by a kernel's distance."""

    kernel: Kernel

    def __call__(self, X: Any, k: int, *, queries: Any) -> tuple[Array, Array]:
        """Return the numbers and distances of the k nearest rows of X."""
        block = DistanceBlock(self.kernel, queries, X)
        return neighbors.search_blocks(block, _rows.count(X), _rows.count(queries), k)


@dataclass(frozen=True, eq=False)
class DistanceBlock:
    """Distances from a slice of the queries to a slice of the training rows."""

    kernel: Kernel
    queries: Any
    rows: Any

    def __call__(self, q0: int, q1: int, c0: int, c1: int) -> Array:
        """Return the distances from queries q0 to q1 to rows c0 to c1, or raise where some overflow."""
        with _rows.quiet():
            D = self.kernel.distance(self.queries[q0:q1], self.rows[c0:c1])
        return finite_distances(D)


def finite_distances(D: Array) -> Array:
    """Return distances, or raise where they overflow."""
    if not np.isfinite(D).all():
        raise InputError("A: some distances overflow; rescale the features, for instance with StandardScaler")
    return D
