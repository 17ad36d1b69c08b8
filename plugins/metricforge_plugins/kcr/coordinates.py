"""Coordinates in which the problem is well conditioned, and where the descent starts in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

DIRECTIONS = 25
"""The most discriminant directions a descent starts from."""
CLASSES = 200
"""Discriminant directions are those of at most this many classes, the largest ones."""
SPARE = 4
"""Columns beyond those directions: a factor with room to spare has no spurious minima in practice."""


@dataclass(frozen=True, eq=False)
class Coordinates:
    """f = C⁻¹ (φ − φ̄) with CC' = t (I + S / s), S the covariance of the rows, t its trace and s its mean eigenvalue.

    Directions in which the rows vary much are scaled down, those in which they hardly vary are left to the penalty: a
    descent needs several times fewer steps than in φ.  The factor t makes them the same in any unit of φ.  With
    W = C⁻ᵀ P P' C⁻¹, tr W = ⟨P, Q P⟩ where Q = C⁻¹ C⁻ᵀ.

    Attributes
    ----------
    root, inverse : (m, m) arrays
        C, lower triangular, and C⁻¹.
    trace : (m, m) array
        Q.
    """

    root: Array
    inverse: Array
    trace: Array

    def features(self, Phi: Array, mean: Array) -> Array:
        """Return the (m, n) coordinates of rows of Φ."""
        return np.ascontiguousarray(self.inverse @ (Phi - mean).T)

    def factor(self, P: Array) -> Array:
        """Return L with W = LL' from a factor in these coordinates."""
        return np.asarray(self.inverse.T @ P)


def coordinates(Phi: Array, mean: Array) -> Coordinates:
    """Choose coordinates for the rows of Φ (n, m).  Cost: O(n m² + m³) time, O(m²) memory."""
    from scipy.linalg import solve_triangular

    n, m = Phi.shape
    S = Phi.T @ Phi / n - np.outer(mean, mean)
    identity = np.eye(m)
    root = np.linalg.cholesky(float(S.trace()) * identity + m * S)
    inverse = solve_triangular(root, identity, lower=True, check_finite=False)
    return Coordinates(root, inverse, inverse @ inverse.T)


def discriminant(F: Array, codes: Array, seed: int) -> Array:
    """Return a start (m, r): discriminant directions weighted by how far they set classes apart, and a few random ones.

    In these coordinates S + s I is a multiple of the identity, so the directions of linear discriminant analysis with a
    ridge of the mean eigenvalue are the principal ones of the class means.  Less of a ridge fits the rows learned from
    too well to start from.  Cost: O(n m) time.
    """
    m = len(F)
    counts = np.bincount(codes)
    largest = np.argsort(-counts, kind="stable")[:CLASSES]
    sums = np.stack([np.bincount(codes, weights=row, minlength=len(counts))[largest] for row in F])
    U, s, _ = np.linalg.svd(sums / np.sqrt(counts[largest]), full_matrices=False)
    # classes may have the same mean, or means that depend on each other
    keep = min(len(counts) - 1, DIRECTIONS, int(np.count_nonzero(s)))
    V = U[:, :keep] * s[:keep]
    noise = np.random.default_rng(seed).normal(size=(m, min(SPARE, m - keep)))
    size = np.linalg.norm(V) or 1.0
    return np.hstack([V, 0.1 * size / np.sqrt(m) * noise])
