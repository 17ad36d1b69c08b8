"""The differences z_t = φ_i − φ_j of pairs, as the linear map α ↦ Σ α_t z_t z_t' and its adjoint.

Everything the solver needs of the pairs goes through four operations: ``gather``, ``spread``, ``select`` and
``rotated``.  Two representations share them: `Dense` keeps the N × p differences, `Graph` keeps the n × p features and
the pairs as edges, which is smaller and faster where N pairs join fewer than N / 2 rows of many features.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from metricforge.rows import Array, blocks
from metricforge.space import compact

DENSE_BYTES = 2**28
"""Up to here differences are kept as such: one pass over them costs half of what forming them again does."""
NARROW = 64
"""Up to this many features forming a block of differences costs as much as the product that it would save."""
BLOCK_BYTES = 2**19
"""What a block of rows may take: it should stay in cache between the product and what follows."""


@dataclass(frozen=True, eq=False)
class Dense:
    """Differences kept as the rows of an (N, p) array, stored by column: loops then run along the pairs."""

    Z: Array

    def __post_init__(self) -> None:
        object.__setattr__(self, "Z", np.asfortranarray(self.Z))

    @property
    def size(self) -> int:
        """The number of pairs N."""
        return len(self.Z)

    @property
    def width(self) -> int:
        """The number of features p."""
        return int(self.Z.shape[1])

    @cached_property
    def squares(self) -> Array:
        """‖z_t‖²."""
        return np.asarray(np.einsum("ij,ij->i", self.Z, self.Z))

    def gather(self, weights: Array) -> Array:
        """Return Σ_t w_t z_t z_t'.  Cost: N p² multiplications, a block of memory."""
        out = np.zeros((self.width, self.width))
        for part in blocks(self.size, 8 * self.width, BLOCK_BYTES):
            Zt = self.Z[part].T
            out += (Zt * weights[part]) @ Zt.T
        return (out + out.T) / 2

    def spread(self, B: Array) -> Array:
        """Return z_t' B z_t for each t.  Cost as `gather`."""
        out = np.empty(self.size)
        for part in blocks(self.size, 8 * self.width, BLOCK_BYTES):
            Zt = self.Z[part].T
            np.einsum("ij,ij->j", B @ Zt, Zt, out=out[part])
        return out

    def product(self, weights: Array, X: Array) -> Array:
        """Return Σ_t w_t z_t z_t'X.  Cost: 2 N p k multiplications for k columns."""
        out = np.zeros(X.shape)
        for part in blocks(self.size, 8 * self.width, BLOCK_BYTES):
            Zt = self.Z[part].T
            out += Zt @ (weights[part, None] * (Zt.T @ X))
        return out

    def select(self, index: Array) -> Dense:
        """Return the differences of some of the pairs."""
        return Dense(np.take(self.Z.T, index, axis=1).T)

    def rotated(self, V: Array) -> Dense:
        """Return V'z_t."""
        return Dense((V.T @ self.Z.T).T)

    def dense(self) -> Dense:
        """Return itself."""
        return self

    def curvature(self, weights: Array) -> Array:
        """Return Σ_t w_t svec(z_t z_t') svec(z_t z_t')', q × q with q = p(p + 1)/2, for weights >= 0.

        svec stacks the upper triangle, off-diagonal entries times √2, so that svec(A)'svec(B) = ⟨A, B⟩.
        Cost: N q² multiplications.
        """
        p = self.width
        scale = _factors(p)
        H = np.zeros((len(scale), len(scale)))
        root = np.sqrt(np.sqrt(weights))
        for part in blocks(self.size, 8 * len(scale), BLOCK_BYTES):
            Y = self.Z[part].T * root[part]  # (p, rows)
            U = np.empty((len(scale), Y.shape[1]))
            row = 0
            for a in range(p):
                np.multiply(Y[a], Y[a:], out=U[row : row + p - a])
                row += p - a
            H += U @ U.T
        return H * scale * scale[:, None]


@dataclass(frozen=True, eq=False)
class Graph:
    """Differences of the rows of an (n, p) array along the edges (i_t, j_t)."""

    Phi: Array
    i: Array
    j: Array

    @property
    def size(self) -> int:
        """The number of pairs N."""
        return len(self.i)

    @property
    def width(self) -> int:
        """The number of features p."""
        return int(self.Phi.shape[1])

    @cached_property
    def squares(self) -> Array:
        """‖z_t‖²."""
        out = np.empty(self.size)
        for part in blocks(self.size, 8 * self.width, BLOCK_BYTES):
            out[part] = np.square(self.Phi[self.i[part]] - self.Phi[self.j[part]]).sum(axis=1)
        return out

    def gather(self, weights: Array) -> Array:
        """Return Σ_t w_t z_t z_t' = Φ'LΦ with the Laplacian L of the weighted graph.

        Cost: n p² multiplications and 2 N p for the sparse product; a block of memory.
        """
        degree, W = self._laplacian(weights)
        out = np.zeros((self.width, self.width))
        for part in blocks(len(self.Phi), 8 * self.width, BLOCK_BYTES):
            out += self.Phi[part].T @ (degree[part, None] * self.Phi[part] - W[part] @ self.Phi)
        return (out + out.T) / 2

    def product(self, weights: Array, X: Array) -> Array:
        """Return Σ_t w_t z_t z_t'X.  Cost: 2 n p k multiplications for k columns, and 2 N k for the sparse product."""
        degree, W = self._laplacian(weights)
        E = self.Phi @ X
        return np.asarray(self.Phi.T @ (degree[:, None] * E - W @ E))

    def _laplacian(self, weights: Array) -> tuple[Array, Any]:
        """Return the degrees and the weighted adjacency matrix of the graph."""
        from scipy.sparse import csr_array

        n = len(self.Phi)
        degree = np.bincount(self.i, weights, n) + np.bincount(self.j, weights, n)
        ends = np.concatenate([self.i, self.j]), np.concatenate([self.j, self.i])
        return degree, csr_array((np.concatenate([weights, weights]), ends), shape=(n, n))

    def spread(self, B: Array) -> Array:
        """Return z_t' B z_t for each t.  Cost: n p² and N p multiplications, n p memory."""
        G = self.Phi @ B
        out = np.empty(self.size)
        for part in blocks(self.size, 16 * self.width, BLOCK_BYTES):
            i, j = self.i[part], self.j[part]
            out[part] = np.einsum("ij,ij->i", G[i] - G[j], self.Phi[i] - self.Phi[j])
        return out

    def select(self, index: Array) -> Dense | Graph:
        """Return the differences of some of the pairs, on the rows that these touch."""
        return differences(self.Phi, self.i[index], self.j[index])

    def rotated(self, V: Array) -> Graph:
        """Return V'z_t."""
        return Graph(self.Phi @ V, self.i, self.j)

    def dense(self) -> Dense:
        """Return the differences themselves."""
        return Dense(self.Phi[self.i] - self.Phi[self.j])


Differences = Dense | Graph


def differences(Phi: Array, i: Array, j: Array) -> Differences:
    """Return the differences of the rows of Phi along pairs, in the cheaper representation."""
    rows, place = compact(np.stack([i, j]))
    n, N, p = len(rows), len(i), Phi.shape[1]
    if 8 * N * p <= DENSE_BYTES and (p <= NARROW or 2 * n >= N):
        return Dense(Phi[i] - Phi[j])
    return Graph(Phi if n == len(Phi) else Phi[rows], *((i, j) if n == len(Phi) else place))


@cache
def upper(p: int) -> tuple[Array, Array]:
    """Return the rows and the columns of the entries that svec takes from a p × p matrix."""
    return np.triu_indices(p)


@cache
def _factors(p: int) -> Array:
    """Return what svec multiplies these entries by."""
    i, j = upper(p)
    return np.where(i == j, 1.0, np.sqrt(2.0))


def svec(B: Array) -> Array:
    """Return the upper triangle of a symmetric matrix as a vector with ⟨A, B⟩ = svec(A)'svec(B)."""
    return np.asarray(B[upper(len(B))] * _factors(len(B)))


def smat(b: Array, p: int) -> Array:
    """Return the symmetric p × p matrix whose svec is b."""
    i, j = upper(p)
    B = np.empty((p, p))
    B[i, j] = B[j, i] = b / _factors(p)
    return B
