"""The Euclidean embedding of a kernel, and its principal axes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import rows as _rows
from ..errors import InputError
from ..kernels import Kernel, Mixture
from ..rows import Array
from .maps import FeatureMap, Stacked, explicit_map, explicit_width, parts_of
from .representation import EXPLICIT_COLUMNS, represent


def embedding(kernel: Kernel, X: Any, rank: str | int, *, seed: int = 0) -> FeatureMap | Stacked:
    """Return a map whose Euclidean distances are those of the kernel: its own map, or one over landmarks among X."""
    own: FeatureMap | None = kernel.embedding()
    if own is not None:
        return own
    if X is None:
        raise InputError("the metric has no training rows to take landmarks from; learn it again")
    if isinstance(kernel, Mixture) and any(_has_map(part, X) for part in kernel.kernels):
        return _stack(kernel, X, rank, seed)
    width = explicit_width(kernel, X)
    if rank == "auto" and width is not None and width <= EXPLICIT_COLUMNS:
        return explicit_map(kernel, width)  # exact for new rows too, so also where there are fewer rows than columns
    return represent(kernel, X, rank, seed=seed).map


def _has_map(kernel: Kernel, X: Any) -> bool:
    return kernel.embedding() is not None or explicit_width(kernel, X) is not None


def _stack(kernel: Mixture, X: Any, rank: str | int, seed: int) -> Stacked:
    maps: list[FeatureMap] = []
    for weight, part in zip(kernel.weights, kernel.kernels, strict=True):
        if weight < 0:
            raise InputError(
                "kernel: a sum with a negative weight has no Euclidean embedding; use distance() or kernel()"
            )
        if weight == 0 and any(kernel.weights):  # a sum of zeros is embedded in zeros
            continue
        inside = embedding(part, X, rank, seed=seed)
        maps.extend(one.scaled(weight) for one in parts_of(inside))
    return Stacked(tuple(maps))


def principal_axes(embedding: FeatureMap | Stacked, X: Any) -> tuple[Array, Array]:
    """Return the principal axes of the embedded rows of X as columns, and the variances along them, largest first.

    Cost: one pass over the rows, O(n m² + m³) time and 8 m² bytes for m features; the (n, m) features never exist.
    """
    scatter = _rows.fold(_BlockScatter(embedding), _joined_scatter, X)[2]
    variances, axes = np.linalg.eigh(scatter / _rows.count(X))
    return axes[:, ::-1], np.maximum(variances[::-1], 0)


@dataclass(frozen=True, eq=False)
class _BlockScatter:
    """Number, mean and scatter matrix of the features of a chunk of rows."""

    embedding: FeatureMap | Stacked

    def __call__(self, X: Any) -> tuple[int, Array, Array]:
        sums: tuple[int, Array, Array] | None = None
        for part in _rows.wide_blocks(_rows.count(X), max(self.embedding.widest, _rows.width(X) or 1)):
            features = self.embedding.block(X[part])
            mean = features.mean(axis=0)
            features = features - mean  # in a new array: these may be the rows themselves
            more = len(features), mean, features.T @ features
            sums = more if sums is None else _joined_scatter([sums, more])  # never all of the (m, m) matrices
        assert sums is not None  # there is no chunk without rows
        return sums


def _joined_scatter(parts: list[tuple[int, Array, Array]]) -> tuple[int, Array, Array]:
    total, mean, scatter = parts[0]
    for n, other, more in parts[1:]:
        shift = other - mean
        scatter = scatter + more + np.outer(shift, shift) * (total * n / (total + n))
        mean = mean + shift * (n / (total + n))
        total += n
    return total, mean, scatter
