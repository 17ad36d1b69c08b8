"""What a neighbour search receives and returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray

Array = NDArray[Any]
Found = tuple[Array, Array]
"""Indices (q, k) int64 and distances (q, k) float64 of the nearest rows, each row ascending by (distance, index)."""
Search = Callable[..., Found]
"""Called as ``method(X, k, queries=queries, seed=seed)``; what a plugin registers as ``neighbors``."""


class DistanceBlock(Protocol):
    """Distances of queries ``q0:q1`` to rows ``c0:c1``, as a (q1 - q0, c1 - c0) array."""

    def __call__(self, q0: int, q1: int, c0: int, c1: int, /) -> Array:
        """Return the block; the caller does not write to it."""


class HopLists(NamedTuple):
    """Lists of some rows, of k entries each.

    Attributes
    ----------
    positions : (n, k) int32 array
    squares : (n, k) float32 array
        Squared distances; infinite where there is no entry.
    fresh : (n, k) bool array
        Which entries the last pass added.
    """

    positions: Array
    squares: Array
    fresh: Array
