"""Coordinates in which the problem is well conditioned, and the starting point of the descent in them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from metricforge.rows import Array

from . import separate

DIRECTIONS = 25
"""Maximal number of discriminant directions in the starting point."""
EQUAL = 1e-12
"""Class means whose distance is below this share of the size of the rows are equal."""
CLASSES = 200
"""Discriminant directions are computed from at most this many classes, the largest ones."""


@dataclass(frozen=True, eq=False)
class Coordinates:
    """f = C⁻¹ (φ − φ̄) with CC' = t (I + S / s), S the covariance of the rows, t its trace and s its mean eigenvalue.

    Directions of large variance are scaled down, directions of small variance are left to the penalty: a descent needs
    several times fewer steps than in φ.  The factor t makes the coordinates independent of the unit of φ.  With
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


def coordinates(Phi: Array, mean: Array, blocks: tuple[slice, ...] = ()) -> Coordinates:
    """Choose coordinates for the rows of Φ (n, m).  Cost: O(n m² + m³) time, O(m²) memory.

    ``blocks`` of features, where given, keep coordinates of their own.
    """
    from scipy.linalg import solve_triangular

    n, m = Phi.shape
    S = Phi.T @ Phi / n - np.outer(mean, mean)
    if blocks:
        S = separate.block_diagonal(S, blocks)
    identity = np.eye(m)
    root = np.linalg.cholesky(float(S.trace()) * identity + m * S)
    inverse = solve_triangular(root, identity, lower=True, check_finite=False)
    return Coordinates(root, inverse, inverse @ inverse.T)


def discriminant(F: Array, codes: Array, most: int = DIRECTIONS) -> Array:
    """Return a start (m, r): at most ``most`` discriminant directions, weighted by how well they separate classes.

    In these coordinates S + s I is a multiple of the identity, so the directions of linear discriminant analysis with
    the mean eigenvalue as ridge are the principal directions of the class means.  A smaller ridge overfits the training
    rows.  Cost: O(n m) time.
    """
    counts = np.bincount(codes)
    largest = np.argsort(-counts, kind="stable")[: min(CLASSES, int(np.count_nonzero(counts)))]
    sums = np.stack([np.bincount(codes, weights=row, minlength=len(counts))[largest] for row in F])
    U, s, _ = np.linalg.svd(sums / np.sqrt(counts[largest]), full_matrices=False)
    # class means may be equal or linearly dependent
    keep = min(len(counts) - 1, DIRECTIONS, most, int(np.count_nonzero(s > EQUAL * np.linalg.norm(F))))
    return np.asarray(U[:, :keep] * s[:keep])
