"""Coordinates in which the problem is well conditioned, and where the descent starts in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

ROTATE = 1000
"""Features up to which coordinates are principal ones (an m × m eigenproblem); beyond, features are only scaled."""
DIRECTIONS = 25
"""The most discriminant directions a descent starts from."""
CLASSES = 200
"""Discriminant directions are those of at most this many classes, the largest ones."""
SPARE = 4
"""Columns beyond those directions: a factor with room to spare has no spurious minima in practice."""
RIDGE = 1e-3
"""Ridge of the scatter inside classes, in mean eigenvalues."""


@dataclass(frozen=True, eq=False)
class Coordinates:
    """φ − φ̄ = R diag(1/s) f: rotate to principal axes, scale by s_k = (1 + σ_k / mean σ)^(-1/2).

    Directions in which the rows vary much are scaled down, those in which they hardly vary are left to the penalty: a
    descent needs several times fewer steps than in φ.  With W = R diag(s) P P' diag(s) R', tr W = Σ_k s_k² ‖P_k‖².
    """

    rotation: Array | None
    scale: Array

    def features(self, Phi: Array, mean: Array) -> Array:
        """Return the (m, n) scaled coordinates of rows of Φ."""
        F = Phi - mean
        F = F.T.copy() if self.rotation is None else self.rotation.T @ F.T
        F *= self.scale[:, None]
        return np.ascontiguousarray(F)

    def factor(self, P: Array) -> Array:
        """Return L with W = LL' from a factor in scaled coordinates."""
        L = self.scale[:, None] * P
        return L if self.rotation is None else self.rotation @ L


def coordinates(Phi: Array, mean: Array) -> Coordinates:
    """Choose coordinates for the rows of Φ (n, m).  Cost: O(n m² + m³) time, O(m²) memory and a block of rows."""
    n, m = Phi.shape
    if m > ROTATE:
        spread = np.square(Phi).mean(axis=0) - mean**2
        return Coordinates(None, _scale(np.maximum(spread, 0)))
    S = Phi.T @ Phi / n - np.outer(mean, mean)
    spread, R = np.linalg.eigh((S + S.T) / 2)
    return Coordinates(R, _scale(np.maximum(spread, 0)))


def _scale(spread: Array) -> Array:
    return np.asarray(1 / np.sqrt(1 + spread / spread.mean()))


def discriminant(F: Array, codes: Array, seed: int) -> Array:
    """Return a start (m, r): the directions of linear discriminant analysis, and a little of random ones.

    The first are scaled to unit variance inside classes.  Cost: O(n m²) time, O(m²) memory.
    """
    m, n = F.shape
    counts = np.bincount(codes)
    largest = np.argsort(-counts, kind="stable")[:CLASSES]
    sums = np.zeros((len(counts), m))
    for row in range(m):
        sums[:, row] = np.bincount(codes, weights=F[row], minlength=len(counts))
    B = (sums / np.sqrt(counts)[:, None]).T / np.sqrt(n)  # BB' is the scatter between classes
    S = F @ F.T / n - B @ B.T
    S += (RIDGE * max(float(S.trace()), 0.0) / m + np.finfo(np.float64).eps * float((F * F).mean()) * m) * np.eye(m)
    T = np.linalg.solve(S, B[:, largest])
    _, U = np.linalg.eigh(B[:, largest].T @ T)
    keep = min(len(counts) - 1, m, DIRECTIONS, len(largest))
    V = T @ U[:, ::-1][:, :keep]
    V /= np.sqrt(np.einsum("ij,ij->j", V, S @ V).clip(1e-300))
    spare = min(SPARE, m - keep)
    noise = np.random.default_rng(seed).normal(size=(m, spare))
    return np.hstack([V, 0.1 * np.linalg.norm(V) / np.sqrt(m) * noise])
