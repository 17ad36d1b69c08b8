"""The objective of NCA: over all pairs of rows, or over the nearest neighbours of each row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from metricforge.neighbors import search
from metricforge.rows import Array, blocks
from metricforge.space import add_transposed_product

BLOCK = 2**25
"""Memory of a block of distances, in bytes."""
LISTED = 2**28
"""Differences of listed neighbours between two signs of progress, in bytes: less than half a second."""
ARRAYS = 2
"""Arrays of the size of a block that exist at the same time."""


@dataclass(eq=False)
class Softmax:
    """f(L) = Σ_i p_i − ρ‖L‖² with p_i = Σ_j p_ij over the rows j ≠ i of the class of i, p_ij ∝ exp(−‖L(x_i − x_j)‖²).

    Attributes
    ----------
    F : (n, m) array
    codes : (n,) int array
    penalty : float
        ρ.
    queries : (q,) int array
        The rows i that `exact` and `search` compare with all rows, to estimate the sum from them; default: all.
    near : (n, k) int array or None
        The rows j that `listed` compares each row with; `search` sets them.
    coverage : float
        The mean share of Σ_j exp(−d_ij) that they hold.
    """

    F: Array
    codes: Array
    penalty: float
    queries: Array = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    near: Array | None = None
    coverage: float = 0.0
    _total: Array = field(init=False)

    def __post_init__(self) -> None:
        if not len(self.queries):
            self.queries = np.arange(len(self.F))
        self._total = np.zeros(len(self.queries))

    def exact(self, L: Array) -> tuple[float, Array]:
        """Return f and its gradient in L (r, m).  Cost: three products of O(q n r), one block of 16 MB."""
        from .loops import weigh

        Z = self.F @ L.T
        G, columns = np.zeros_like(Z), np.zeros(len(Z))
        f = 0.0
        for part, W in self._distances(Z):
            rows = self.queries[part]
            f += weigh(W, rows, self.codes, self._total[part])
            # −Σ_j (w_ij + w_ji)(z_i − z_j), where Σ_j w_ij = 0
            G[rows] += W @ Z
            add_transposed_product(G, W, Z[rows])
            columns += W.sum(axis=0)
        G -= columns[:, None] * Z
        return self._penalised(f, G, L, self._times)

    def search(self, L: Array, neighbours: int) -> float:
        """Return f, and list the nearest ``neighbours`` of each row.  Cost: one product of O(q n r), one search."""
        from .loops import weigh

        n, q = len(self.F), len(self.queries)
        Z = self.F @ L.T
        if q < n:
            self.near = search(Z, neighbours, method="exact")[0]
        else:
            self.near = np.empty((n, neighbours), dtype=np.int64)
        f, covered = 0.0, 0.0
        for part, W in self._distances(Z):
            rows = self.queries[part]
            W[np.arange(len(W)), rows] = np.inf
            if q == n:
                self.near[rows] = np.argpartition(W, neighbours - 1, axis=1)[:, :neighbours]
            held = np.take_along_axis(W, self.near[rows], axis=1)
            f += weigh(W, rows, self.codes, self._total[part])
            covered += float(np.exp(-held - self._total[part, None]).sum())
        self.coverage = covered / q
        return self._times * f - self.penalty * float(np.vdot(L, L))

    @property
    def _times(self) -> float:
        """How many rows a query stands for."""
        return len(self.F) / len(self.queries)

    def _distances(self, Z: Array) -> Iterator[tuple[slice, Array]]:
        """Yield blocks of squared distances of queries to all rows, which the caller may overwrite."""
        n, norms = len(Z), np.square(Z).sum(axis=1)
        for part in blocks(len(self.queries), ARRAYS * 8 * n, BLOCK):
            rows = self.queries[part]
            D = Z[rows] @ Z.T
            D *= -2
            D += norms
            D += norms[rows, None]
            yield part, np.maximum(D, 0, out=D)

    def listed(self, L: Array) -> tuple[float, Array]:
        """Return f and its gradient with p_ij over the listed neighbours only.  Cost: O(n k r + n r m)."""
        from .loops import listed

        assert self.near is not None
        Z = self.F @ L.T
        G = np.zeros_like(Z)
        f = 0.0
        for part in blocks(len(Z), 8 * self.near.shape[1] * Z.shape[1], LISTED):
            f += listed(Z, self.near, self.codes, G, part.start, part.stop)
        return self._penalised(f, G, L)

    def _penalised(self, f: float, G: Array, L: Array, times: float = 1.0) -> tuple[float, Array]:
        return times * f - self.penalty * float(np.vdot(L, L)), 2 * times * (G.T @ self.F) - 2 * self.penalty * L
