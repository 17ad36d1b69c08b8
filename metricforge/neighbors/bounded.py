"""Exact search under a distance that takes long to compute, by lower bounds from coordinates of the rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..rows import beat, blocks
from .contract import Array, Found
from .single import left_operand, right_operand, smallest
from .tiles import TILE_BYTES

FIRST = 64
"""Rows with the smallest bounds, for each query, whose distances are computed first; or four for each neighbour."""
MOST_SHARE = 0.3
"""Share of the rows beyond which a query is compared with all of them, together with other such queries.  All queries
compute distances to as many rows as there are, at the most: comparing with all of them at once shares work."""
ROUNDING = 2e-7
"""Error of coordinates in float32, as a share of their norms."""


@dataclass(frozen=True, eq=False)
class Bounds:
    """Coordinates of rows whose Euclidean distances are at most the distances that a search is about.

    Attributes
    ----------
    right : (n, r + 2) float32 array
        See `single.right_operand`.
    centre : (r,) array
        What was subtracted from the coordinates.
    reach : float
        The largest norm of the coordinates about the centre.
    """

    right: Array
    centre: Array
    reach: float

    @classmethod
    def of(cls, coordinates: Array) -> Bounds:
        """Return the bounds from coordinates of the rows, (n, r) float32."""
        centre = coordinates.mean(axis=0, dtype=np.float64)
        Z = coordinates - centre.astype(np.float32)
        squares = np.vecdot(Z, Z, dtype=np.float64)
        return cls(right_operand(Z, squares, np.float32), centre, float(squares.max()) ** 0.5)

    def search(self, Q: Array, distance: Callable[[int, Array], Array], k: int) -> tuple[Found, Array]:
        """Return the k nearest rows of each query, and the queries for which the bounds do not help.

        Parameters
        ----------
        Q : (q, r) float array
            The coordinates of the queries.
        distance : callable
            ``distance(i, rows)`` returns the distances of query i to rows of these numbers.
        k : int

        Notes
        -----
        Time for each query: a product of r + 2 columns with all rows, and the distances to those rows whose bound is
        below the k-th distance.
        """
        n, (q, r) = len(self.right), Q.shape
        indices, distances = np.zeros((q, k), dtype=np.int64), np.zeros((q, k))
        Z = (Q - self.centre).astype(np.float32)
        squares = np.vecdot(Z, Z, dtype=np.float64)
        left = left_operand(Z, squares, np.float32)
        slack = ROUNDING * (self.reach + np.sqrt(squares))
        first, helped = min(n, max(FIRST, 4 * k)), np.ones(q, dtype=bool)
        floor, spent = smallest(r, np.float32), 0
        for part in blocks(q, 4 * n, TILE_BYTES):
            bounds = left[part] @ self.right.T  # (b, n)
            for i, row in zip(range(part.start, part.stop), bounds, strict=True):
                rows = np.argpartition(row, first - 1)[:first] if first < n else np.arange(n)
                D = distance(i, rows)
                if (row[rows] > (D + slack[i]) ** 2 + floor).any():
                    helped[i] = False  # no lower bounds: the kernel is not positive semidefinite
                    continue
                limit = (np.partition(D, k - 1)[k - 1] + slack[i]) ** 2 + floor
                row[rows] = np.inf
                more = np.flatnonzero(row <= limit)
                if len(more) > min(MOST_SHARE * n, n - spent):
                    helped[i] = False
                    continue
                spent += len(more)
                if len(more):
                    rows, D = np.append(rows, more), np.append(D, distance(i, more))
                order = np.lexsort((rows, D))[:k]
                indices[i], distances[i] = rows[order], D[order]
            beat(part.stop, q)
        return (indices, distances), np.flatnonzero(~helped)
