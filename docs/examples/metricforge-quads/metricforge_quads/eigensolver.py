"""An eigensolver: subspace iteration with Rayleigh-Ritz steps."""

import numpy as np


def subspace(A, k, *, tol, v0, stop):
    """Return the k largest eigenpairs of A, whose eigenvalues lie in [-1, 1]; see `metricforge.eigen.Eigensolver`."""
    n = A.shape[0]
    rest = np.random.default_rng(0).standard_normal((n, max(0, 2 * k - v0.shape[1])))
    V = np.linalg.qr(np.hstack([v0, rest]))[0]
    while True:
        AV = A @ V
        w, S = np.linalg.eigh(V.T @ AV)
        w, V, AV = w[::-1], V @ S[:, ::-1], AV @ S[:, ::-1]
        residuals = np.linalg.norm(AV[:, :k] - V[:, :k] * w[:k], axis=0)
        if residuals.max() <= tol or stop():
            return w[:k], V[:, :k]
        V = np.linalg.qr(AV + V)[0]  # A + I: the largest eigenvalues are the largest in magnitude
