"""The objective of NCA: over all pairs of rows, or over the nearest neighbours of each row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from metricforge.rows import Array, blocks

BLOCK = 2**25
"""Memory of a block of distances, in bytes."""
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
    near : (n, k) int array or None
        The rows j that `listed` compares row i with; `search` sets them.
    coverage : float
        The mean share of Σ_j exp(−d_ij) that they hold.
    """

    F: Array
    codes: Array
    penalty: float
    near: Array | None = None
    coverage: float = 0.0
    _total: Array = field(init=False)

    def __post_init__(self) -> None:
        self._total = np.zeros(len(self.F))

    def exact(self, L: Array) -> tuple[float, Array]:
        """Return f and its gradient in L (r, m).  Cost: three products of O(n² r), one block of 16 MB."""
        from .loops import weigh

        Z = self.F @ L.T
        G = np.zeros_like(Z)
        f = 0.0
        for part, W in self._distances(Z):
            f += weigh(W, part.start, self.codes, self._total)
            # −Σ_j (w_ij + w_ji)(z_i − z_j), where Σ_j w_ij = 0
            G[part] += W @ Z
            G += W.T @ Z[part]
            G -= W.sum(axis=0)[:, None] * Z
        return self._penalised(f, G, L)

    def search(self, L: Array, neighbours: int) -> float:
        """Return f, and list the nearest ``neighbours`` of each row.  Cost: one product of O(n² r)."""
        from .loops import weigh

        n = len(self.F)
        self.near = np.empty((n, neighbours), dtype=np.int64)
        f, covered = 0.0, 0.0
        for part, W in self._distances(self.F @ L.T):
            held = self._list(W, part.start, neighbours)
            f += weigh(W, part.start, self.codes, self._total)
            covered += float(np.exp(-held - self._total[part, None]).sum())
        self.coverage = covered / n
        return f - self.penalty * float(np.vdot(L, L))

    def _distances(self, Z: Array) -> Iterator[tuple[slice, Array]]:
        """Yield blocks of squared distances to all rows, which the caller may overwrite."""
        n, norms = len(Z), np.square(Z).sum(axis=1)
        for part in blocks(n, ARRAYS * 8 * n, BLOCK):
            D = Z[part] @ Z.T
            D *= -2
            D += norms
            D += norms[part, None]
            yield part, np.maximum(D, 0, out=D)

    def _list(self, D: Array, start: int, k: int) -> Array:
        """Note the k nearest rows of rows start .. start + len(D), and return their squared distances."""
        assert self.near is not None
        own = np.arange(len(D))
        D[own, start + own] = np.inf
        near = np.argpartition(D, k - 1, axis=1)[:, :k]
        self.near[start : start + len(D)] = near
        return np.take_along_axis(D, near, axis=1)

    def listed(self, L: Array) -> tuple[float, Array]:
        """Return f and its gradient with p_ij over the listed neighbours only.  Cost: O(n k r + n r m)."""
        from .loops import listed

        assert self.near is not None
        Z = self.F @ L.T
        G = np.zeros_like(Z)
        return self._penalised(listed(Z, self.near, self.codes, G), G, L)

    def _penalised(self, f: float, G: Array, L: Array) -> tuple[float, Array]:
        return f - self.penalty * float(np.vdot(L, L)), 2 * (G.T @ self.F) - 2 * self.penalty * L
