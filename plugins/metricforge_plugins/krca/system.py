"""The system cI + Q'KQ of the exact route: formed from slices of K, factorised, enlarged, and checked."""

from __future__ import annotations

from functools import lru_cache
from math import log
from typing import Any

import numpy as np

from metricforge import rows as _rows
from metricforge.errors import InputError
from metricforge.kernels import Kernel
from metricforge.rows import Array
from metricforge.space import check_memory

from .chunklets import contrasts
from .factor import Factor
from .kernel import ChunkletKernel

CHECKED_ORDER = 300
"""Beyond this order an update estimates its residual from random combinations of the entries."""
DIGITS = 6
"""Refuse a learned kernel with fewer correct digits, and add a note where distances may have fewer."""


def gram(kernel: Kernel, rows: Any, sizes: Array) -> Array:
    """Return Q'KQ (r × r) on rows ordered by group, computed from slices of K."""
    r = int(sizes.sum()) - len(sizes)
    G = np.empty((r, r))
    starts = np.concatenate([[0], np.cumsum(sizes)])
    done = 0
    for part in _whole_groups(starts, 4 * 8 * int(starts[-1])):
        inside = sizes[part]
        here = rows if len(inside) == len(sizes) else rows[starts[part.start] : starts[part.stop]]
        H = contrasts(contrasts(kernel.block(rows, here), inside).T, sizes)
        G[done : done + len(H)] = H
        done += len(H)
    check_finite(G)
    return G


def check_finite(values: Array) -> None:
    """Raise InputError if values of the kernel overflow."""
    if not (np.isfinite(values.min()) and np.isfinite(values.max())):
        raise InputError("X: values of the kernel overflow on these rows; rescale X, for instance with StandardScaler")


def _whole_groups(starts: Array, row_bytes: int) -> Any:
    """Yield slices of groups whose rows fit into a block (at least one group each)."""
    step = max(1, _rows.block_bytes() // row_bytes)
    first, last = 0, len(starts) - 1
    while first < last:
        stop = max(first + 1, int(np.searchsorted(starts, starts[first] + step, side="right")) - 1)
        yield slice(first, stop)
        first = stop


def factorised(
    kernel: Kernel, rows: Any, sizes: Array, ridge: float, seed: int, G: Array | None = None
) -> tuple[ChunkletKernel, float, float]:
    """Return the kernel of the system cI + Q'KQ, its objective and its residual."""
    if G is None:
        r = _rows.count(rows) - len(sizes)
        check_memory(12 * r * r, f"a factor of order {r}", 'hold="ridge", or learn with a number of landmarks as rank')
    A = gram(kernel, rows, sizes) if G is None else G
    trace, r = float(A.trace()), len(A)
    if ridge <= np.finfo(np.float64).eps * trace:
        raise _too_small(ridge, trace)
    A.flat[:: r + 1] += ridge
    diagonal = A.diagonal().copy()
    try:
        triangle = Factor.of(A)
    except np.linalg.LinAlgError:
        raise _too_small(ridge, trace) from None
    # the upper triangle of A is intact, but its diagonal was overwritten by that of the factor
    A.flat[:: r + 1] = diagonal
    v = direction(r, seed)
    gap = relative(triangle.times(v), _upper_times(A, v))
    objective = triangle.log_determinant_from(0) - r * np.log(ridge) - trace / ridge
    learned = ChunkletKernel(kernel, rows, sizes, triangle.packed, ridge)
    learned.__dict__["triangle"] = triangle
    return learned, float(objective), gap


def _upper_times(A: Array, v: Array) -> Array:
    """Return Av for the symmetric matrix given by the upper triangle of a C-ordered A."""
    from scipy.linalg.blas import dsymv

    return np.asarray(dsymv(1.0, A.T, v, lower=1))


def check_digits(learned: ChunkletKernel) -> None:
    """Raise InputError when k̃ = (k − w'w)/ε cancels, as it does with few features and a tiny ε."""
    sample = learned.rows[:: max(1, learned.n // 8)]
    k = float(learned.base.diag(sample).max())
    left = float(learned.diag(sample).max()) * learned.epsilon
    if np.finfo(np.float64).eps * k > 10**-DIGITS * left:
        raise InputError(
            f"epsilon={learned.epsilon:g} is lost to rounding: the learned kernel would keep fewer than {DIGITS} "
            'digits; give a larger one or "auto", or use explicit features (kernel=mf.kernels.Linear(), rank="auto")'
        )


def append(old: Factor, B: Array, D: Array, ridge: float, seed: int = 0) -> tuple[Factor, float, float]:
    """Return the factor of cI + Q'KQ with new rows (B, D), the change of the objective, and the residual.

    The residual is that of the new columns along a random direction: its norm, or an estimate of it where the norm
    would take as long as the rest of an update.
    """
    q, r = len(D), old.order
    D = D.copy()
    D.flat[:: q + 1] += ridge
    try:
        new = old.append(B, D)
    except np.linalg.LinAlgError:
        raise _too_small(ridge, float(D.diagonal().max())) from None
    gained = new.log_determinant_from(r) - q * log(ridge) - (float(D.trace()) / ridge - q)
    v = direction(q, seed)
    truth = np.concatenate([v @ B, D @ v])
    return new, gained, new.residual(r, v, truth, probes=r > CHECKED_ORDER)


def _too_small(ridge: float, scale: float) -> InputError:
    return InputError(
        f"epsilon is lost to rounding: nε = {ridge:.3g}, and Q'KQ has trace {scale:.3g}; multiply epsilon by at least "
        f'{max(10, 1e-14 * scale / ridge):.0e}, or give "auto"'
    )


@lru_cache(maxsize=8)
def direction(size: int, seed: int) -> Array:
    """Return the random direction of a residual; a stream of updates asks for the same one again."""
    return np.random.default_rng(seed).standard_normal(size)


def relative(found: Array, truth: Array) -> float:
    """Return ‖found − truth‖ / ‖truth‖."""
    scale = np.abs(truth).max()  # divided by before squaring: C may have any magnitude
    return float(np.linalg.norm((found - truth) / scale) / np.linalg.norm(truth / scale))
