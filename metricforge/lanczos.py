"""Thick-restart block Lanczos: many eigenpairs of a symmetric operator by matrix products instead of vectors.

ARPACK orthogonalises one vector at a time against its whole basis, which reads that basis from memory for every
product.  Here a block of 16 is orthogonalised at once, in float32 where ``tol`` allows it: a tenth of the traffic.
What is left of rounding goes in the float64 Rayleigh-Ritz step that `metricforge.eigen.top` ends every solve with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator

Floats = NDArray[np.float64]
Array = NDArray[Any]

SINGLE_TOL = 1e-5
"""A basis in float32 reaches residuals of some 1e-6; below this tolerance it is float64."""
_ROWS = 4096
"""Rows of the basis rotated at a time: their part of the basis stays in the cache."""


def lanczos_pairs(
    A: LinearOperator,
    k: int,
    *,
    tol: float,
    v0: Floats,
    stop: Callable[[], bool],
) -> tuple[Floats, Floats]:
    """Thick-restart block Lanczos with full orthogonalisation.

    The basis Q grows by a block W at a time: AW less its part in Q, made orthonormal, is the next block.  A full basis
    is rotated to its Ritz vectors Qs, of which the best are kept.  Only the last block is not mapped into Q, so with R
    its remainder ‖A Qs − θ Qs‖ = ‖R s_last‖ costs nothing.  Orthogonalisation is local first (what a three-term
    recurrence subtracts), then once against all of Q: two passes where they matter.

    Parameters
    ----------
    A, k, tol, v0, stop
        As of `metricforge.eigen.Eigensolver`.

    Notes
    -----
    Memory: `basis_size` vectors in float32 (float64 for tol < 1e-5) and the k returned.  Time for m basis vectors:
    4 n m flops for each product, and O(m³) for each full basis.

    Reference: Wu and Simon, SIAM J. Matrix Anal. Appl. 22(2), 2000; Zhou and Saad, Numer. Algorithms 47, 2008.
    """
    n = A.shape[0]
    width = block_width(k)
    size = basis_size(n, k)
    dtype = np.float32 if tol >= SINGLE_TOL else np.float64
    rng = np.random.default_rng(0)
    Q = np.empty((n, size), dtype=dtype, order="F")
    H = np.zeros((size, size))  # Q'AQ, of which the upper triangle counts
    new = _orthonormal(_start(v0, width, rng).astype(dtype))
    used = local = 0
    while True:
        span = slice(used, used + new.shape[1])
        used = span.stop
        Q[:, span] = new
        R = A @ np.ascontiguousarray(new)
        for part in (slice(local, used), slice(0, used)):
            overlap = Q[:, part].T @ R
            R -= Q[:, part] @ overlap
            H[part, span] += overlap
        local = span.start
        new = _orthonormal(R)
        ended = new.shape[1] == 0 or stop()
        if ended or used + new.shape[1] > size:
            theta, S = np.linalg.eigh(H[:used, :used], UPLO="U")
            theta, S = theta[::-1], S[:, ::-1]
            last = S[span, :k]
            G = R.T.astype(np.float64) @ R if n < _ROWS else np.asarray(R.T @ R, dtype=np.float64)
            residuals = np.sqrt(np.maximum(0.0, np.sum(last * (G @ last), axis=0)))
            if ended or (len(theta) >= k and residuals.max() <= tol):
                V = _rotated(Q, S[:, :k], np.empty((n, min(k, used))))
                return theta[:k].copy(), V
            # few beside the k wanted, and room for whole blocks
            keep = size - width * min(round(0.85 * (size - k) / width), (size - k) // width)
            _rotated(Q, S[:, :keep], Q)
            H[:] = 0.0
            H[:keep, :keep] = np.diag(theta[:keep])
            used, local = keep, 0


def block_width(k: int) -> int:
    """Return how many vectors are multiplied at a time."""
    return 16 if k > 100 else 8 if k > 16 else 4


def basis_size(n: int, k: int) -> int:
    """Return how many basis vectors are held."""
    return min(n, max(64, 2 * k + 32))


def _start(v0: Floats, width: int, rng: np.random.Generator) -> Floats:
    """Return as many columns as a block has: random sums of v0 where it has more, and noise, which misses nothing."""
    n, given = v0.shape
    noise = rng.standard_normal((n, width))
    noise /= np.sqrt(n)
    return np.asarray(v0 @ rng.standard_normal((given, width)) / np.sqrt(given) + 0.1 * noise)


def _orthonormal(R: Array) -> Array:
    """Return an orthonormal basis of the columns; those that rounding made are dropped.

    Products of the columns are taken in float64, so one pass leaves an error of eps times their condition number.
    """
    eps = float(np.finfo(R.dtype).eps)
    floor = 10 * eps  # of a column: A has norm 1
    for _ in range(2):
        W = R.astype(np.float64, copy=False)
        G = W.T @ W
        norms = np.sqrt(G.diagonal())
        there = norms > floor
        unit = np.where(there, norms, np.inf)
        s, U = np.linalg.eigh(G / unit[:, None] / unit)
        keep = s > 100 * eps
        R = R @ np.asarray(U[:, keep] / np.sqrt(s[keep]) / unit[:, None], dtype=R.dtype)
        if s.min(initial=1.0) > 1e-3:
            break
        floor = 0.0
    return R


def _rotated(Q: Array, S: Floats, out: Array) -> Array:
    """Write Q[:, :len(S)] S into the first columns of ``out``, which may be Q, a few rows at a time."""
    S = S.astype(Q.dtype)
    for i in range(0, len(Q), _ROWS):
        out[i : i + _ROWS, : S.shape[1]] = Q[i : i + _ROWS, : len(S)] @ S
    return out
