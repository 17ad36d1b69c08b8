"""Symmetric matrices with known eigenvalues, and the comparison with LAPACK, for the tests of the eigensolvers."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, aslinearoperator

HAS_PRIMME = find_spec("primme") is not None
needs_primme = pytest.mark.skipif(not HAS_PRIMME, reason="PRIMME is not installed: it has no wheel")
PRIMME = pytest.param("primme", marks=needs_primme)
ITERATIVE = ["arpack", "lanczos", PRIMME]
SOLVERS = ["auto", "dense", *ITERATIVE]

CLIQUES = sp.csr_array(sp.block_diag([sp.coo_array(np.ones((4, 4)))] * 60))


def symmetric(eigenvalues, seed=0):
    """A full matrix with the given eigenvalues."""
    d = np.asarray(eigenvalues, dtype=float)
    Q = np.linalg.qr(np.random.default_rng(seed).standard_normal((len(d), len(d))))[0]
    A = (Q * d) @ Q.T
    return (A + A.T) / 2


def laplacian(components, size, seed=0):
    """The normalised Laplacian of a graph with that many connected components."""
    rng = np.random.default_rng(seed)
    blocks = []
    for _ in range(components):
        W = np.triu(rng.random((size, size)) < 0.2, 1) | np.eye(size, k=1, dtype=bool)
        blocks.append(W | W.T)
    W = sp.csr_array(sp.block_diag([sp.coo_array(block) for block in blocks])).astype(float)
    scale = sp.diags_array(1 / np.sqrt(W.sum(axis=1)))
    return sp.csr_array(sp.eye_array(components * size) - scale @ W @ scale)


def full(A):
    if isinstance(A, LinearOperator):
        return A @ np.eye(A.shape[0])
    return A.toarray() if sp.issparse(A) else np.asarray(A, dtype=float)


def check(found, A, k, tol=1e-8):
    """Compare with LAPACK: eigenvalues, residuals, orthonormality, and the subspace where a gap defines one."""
    w, V = found
    D = full(A)
    exact, U = np.linalg.eigh(D)
    exact, U = exact[::-1], U[:, ::-1]
    scale = max(np.abs(exact).max(), np.finfo(float).tiny)
    assert found.status == "converged"
    assert w.shape == found.residuals.shape == (k,)
    assert V.shape == (len(D), k)
    assert (np.diff(w) <= 0).all()
    np.testing.assert_allclose(w / scale, exact[:k] / scale, rtol=0, atol=max(tol, 1e-12))
    np.testing.assert_allclose(V.T @ V, np.eye(k), rtol=0, atol=1e-12)
    residuals = np.linalg.norm(D @ V - V * w, axis=0) / scale
    assert residuals.max() <= max(tol, 1e-12)
    np.testing.assert_allclose(found.residuals / scale, residuals, rtol=0, atol=1e-13)
    if k < len(D) and exact[k - 1] - exact[k] > 1e-3 * scale:
        np.testing.assert_allclose(V @ V.T, U[:, :k] @ U[:, :k].T, rtol=0, atol=1e4 * max(tol, 1e-12))
    largest = np.abs(V).max(axis=0)
    assert (V.max(axis=0) >= (1 - 2e-6) * largest).all()


def hard(n=1000):
    """An operator whose top is dense: thousands of products at tol = 1e-10."""
    d = -(np.linspace(0, 1, n) ** 2)
    return aslinearoperator(sp.diags_array(d))


def eigenpairs_without(A, dropped):
    """A backend that is exact, but leaves out what it is told to: every residual is zero, the answer is wrong."""
    _, U = np.linalg.eigh(full(A))
    kept = np.delete(U[:, ::-1], dropped, axis=1)

    def forgetful(operator, k, *, tol, v0, stop):
        V = kept[:, :k]
        return np.sum(V * (operator @ V), axis=0), V

    return forgetful
