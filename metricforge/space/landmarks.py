"""Landmarks: which rows span a kernel well, and the features over them."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import rows as _rows
from ..errors import InputError
from ..kernels import Kernel
from ..rows import Array, as_float64, check_memory
from ..validation import generator, one_of
from .costs import PIVOTS, SAMPLE_ROWS, Size, space_bytes
from .maps import FeatureMap

RANK_TOL = 1e-12
"""A pivot below this share of the largest k(x, x) counts as zero: φ then keeps about ten digits."""
LARGEST = 1e120
"""A kernel that is larger, or smaller than the inverse, is refused: solvers square and divide its values."""


def landmark_map(kernel: Kernel, landmarks: Any) -> FeatureMap:
    """Return the features over given landmarks, dropping those that depend on the others.

    Cost: O(l³) time and 3l² memory for l landmarks.
    """
    from scipy.linalg import solve_triangular

    landmarks = as_float64(landmarks)
    chosen, L = pivoted_cholesky(kernel.block(landmarks, landmarks))
    mix = solve_triangular(L, np.eye(len(L)), lower=True).T
    return FeatureMap(kernel, landmarks[chosen], mix, len(L))


def pivoted_cholesky(K: Array, *, tol: float = RANK_TOL) -> tuple[Array, Array]:
    """Return pivots p and lower triangular L with K[p, p] = LL', as far as K has numerical rank.

    Greedy complete pivoting (LAPACK pstrf): the trace of what is left out is at most (n − r) · tol · max k(x, x).
    """
    from scipy.linalg.lapack import dpstrf

    K = np.asfortranarray(K, dtype=np.float64)
    diagonal = K.diagonal().copy()
    largest = check_diagonal(diagonal)
    C, pivots, rank, _ = dpstrf(K, tol=tol * largest, lower=1)
    pivots = np.asarray(pivots) - 1
    left = diagonal[pivots[rank:]] - np.square(C[rank:, :rank]).sum(axis=1)
    if len(left) and left.min() < -1e-6 * largest:
        raise InputError(
            "kernel is not positive semidefinite on these rows, so it has no Euclidean embedding; "
            "use distance() and kernel(), which need none, or another kernel"
        )
    return pivots[:rank], np.tril(C[:rank, :rank])


def check_diagonal(diagonal: Array) -> float:
    """Return the largest k(x, x), or raise InputError when the values give no features."""
    if not np.isfinite(diagonal).all():
        raise InputError("X: k(x, x) overflows on some rows; rescale X, for instance with StandardScaler")
    largest = float(diagonal.max()) if len(diagonal) else 0.0
    if not largest > 0:
        raise InputError("kernel: every k(x, x) is zero on these rows, so they have no features; choose another kernel")
    if largest < 1 / LARGEST or largest > LARGEST:
        raise InputError(
            f"kernel: the largest k(x, x) on these rows is {largest:.3g}, whose powers leave the range of numbers; "
            "multiply the kernel by a number that makes it about 1, or rescale X"
        )
    return largest


def choose_landmarks(kernel: Kernel, X: Any, m: int, *, how: str = "rpcholesky", seed: int = 0) -> Array:
    """Return the sorted numbers of up to m rows of X that span the kernel well.

    Parameters
    ----------
    how : {"rpcholesky", "kmeans++", "uniform"}
        Randomly pivoted Cholesky (near-optimal trace error, the default), k-means++ seeding, or uniform draws.

    At most 20,000 candidates are drawn by row number: the choice depends on n, the rows and the seed, not on chunks or
    on where the rows are.  Cost for s of those rows: O(s m) kernel values, O(s m²) flops, 8 s m bytes.

    References
    ----------
    Chen, Epperly, Tropp & Webber (2025), randomly pivoted Cholesky; Epperly, Tropp & Webber (2024), its block form.
    """
    n = _rows.count(X)
    one_of(how, "how", list(_LANDMARKS))
    if how == "uniform" or m >= n:
        return _rows.draw(n, m, seed)
    sample = _rows.draw(n, max(SAMPLE_ROWS, 2 * m), seed)
    size = Size(n, _rows.width(X) or 1, m)
    check_memory(space_bytes(size), f"choosing {m} landmarks among {len(sample)} rows", "lower the rank")
    everything = len(sample) == n and not _rows.is_dask(X)  # then no copy is needed
    drawn = as_float64(X if everything else _rows.take(X, sample))
    _rows.beat(0, m)
    kernel, rows = kernel.applied(drawn)
    _rows.beat(0, m)
    chosen = _LANDMARKS[how](kernel, rows, m, generator(seed))
    return np.sort(sample[chosen])


def _randomly_pivoted(kernel: Kernel, X: Any, m: int, rng: np.random.Generator) -> Array:
    """Draw pivots with probability proportional to the residual diagonal, a block at a time."""
    s, width = _rows.count(X), min(PIVOTS, m)
    F = np.zeros((s, m), order="F")
    left = np.maximum(kernel.diag(X).astype(np.float64), 0)  # below 0 where the kernel is not PSD
    floor = RANK_TOL * check_diagonal(left)
    chosen: list[int] = []
    while len(chosen) < m and left.max() > floor:
        draws = np.unique(rng.choice(s, size=width, p=left / left.sum()))
        r = len(chosen)
        block = kernel.block(X[draws], X[draws]) - F[draws, :r] @ F[draws, :r].T
        # a block may contain near-copies of one pivot: keep those that still add something after the others
        accepted, L = _accept(block, m - r)
        pivots = draws[accepted]
        if not len(pivots):  # the residual of these rows is rounding
            left[draws] = 0
            continue
        G = kernel.block(X, X[pivots]) - F[:, :r] @ F[pivots, :r].T
        F[:, r : r + len(pivots)] = np.linalg.solve(L, G.T).T
        left = np.maximum(left - np.square(F[:, r : r + len(pivots)]).sum(axis=1), 0)
        left[pivots] = 0
        chosen.extend(pivots.tolist())
        _rows.beat(len(chosen), m)
    return np.asarray(chosen, dtype=int)


def _accept(block: Array, most: int) -> tuple[Array, Array]:
    """Pivot inside a block until its residual trace is 1/b of the initial trace; return pivots and factor."""
    b = len(block)
    left = np.maximum(block.diagonal().copy(), 0)
    stop = left.sum() / b
    L = np.zeros((b, b))
    accepted: list[int] = []
    while len(accepted) < min(b, most):
        p = int(left.argmax())
        if left[p] <= 0 or (accepted and left.sum() <= stop):
            break
        r = len(accepted)
        column = (block[:, p] - L[:, :r] @ L[p, :r]) / np.sqrt(left[p])
        L[:, r] = column
        left = np.maximum(left - column**2, 0)
        accepted.append(p)
        left[accepted] = 0
    index = np.asarray(accepted, dtype=int)
    return index, L[index, : len(index)]


def _spread_out(kernel: Kernel, X: Any, m: int, rng: np.random.Generator) -> Array:
    """Draw each landmark with probability proportional to its squared distance from those chosen (k-means++)."""
    s = _rows.count(X)
    chosen = [int(rng.integers(s))]
    nearest = kernel.squared_distance(X, X[chosen])[:, 0]
    while len(chosen) < m and nearest.sum() > 0:
        chosen.append(int(rng.choice(s, p=nearest / nearest.sum())))
        nearest = np.minimum(nearest, kernel.squared_distance(X, X[chosen[-1:]])[:, 0])
        nearest[chosen] = 0
    return np.asarray(chosen)


_LANDMARKS: dict[str, Any] = {"rpcholesky": _randomly_pivoted, "kmeans++": _spread_out, "uniform": None}
