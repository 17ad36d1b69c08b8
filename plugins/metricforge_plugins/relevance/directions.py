"""The directions in which the objective of `relevance` falls fastest at W = I."""

from __future__ import annotations

import numpy as np

from metricforge.rows import Array, beat

from .program import Program

EXTRA = 16
"""Columns of subspace iteration beyond those that are returned."""


def leading(program: Program, r: int, seed: int, steps: int = 2) -> Array:
    """Return r orthonormal columns that span the largest eigenvectors, of either sign, of the gradient at B = 0.

    Subspace iteration with r + 16 columns: 8 u d (r + 16) flops a step for u queries, in the precision of the features.
    """
    Z = program.Z
    alpha = program.first()
    if not alpha.any():
        alpha = np.ones(len(alpha))
    X = np.random.default_rng(seed).standard_normal((Z.shape[1], min(r + EXTRA, Z.shape[1]))).astype(Z.dtype)

    def product(X: Array) -> Array:
        """Return S(α)X without forming S(α)."""
        found = np.zeros_like(X)
        for Q, mixed in program.blocks(alpha):
            D = mixed @ Z
            first = Q.T @ (D @ X)
            beat(1, 2)
            found += first + D.T @ (Q @ X)
        return found

    for _ in range(steps):
        X = np.linalg.qr(product(X))[0]
    H = np.asarray(X.T @ product(X), dtype=np.float64)
    w, U = np.linalg.eigh((H + H.T) / 2)
    order = np.argsort(-np.abs(w), kind="stable")[:r]
    return np.linalg.qr(np.asarray(X, dtype=np.float64) @ U[:, order])[0]
