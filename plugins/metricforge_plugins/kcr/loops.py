"""Compiled loops over pairs; the only file here that imports numba.

`grouped` and `listed` run over a range of rows i and sum, for x_ij = 1 + τ_ij (‖y_i − y_j‖² − h), the smoothed data
term, its slope in h and its gradient in Y.  They release the GIL, so ranges run in threads; no two ranges write to the
same entries, so the result does not depend on the number of threads.  `weighted` does the same for a large group, but
leaves the products of matrices to the caller.  `shells` counts votes.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from metricforge.rows import Array

# Sums may be reordered, which allows vectorisation; NaN and infinity are respected.
_FAST = {"reassoc", "contract", "arcp", "nsz"}


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _outer(x: float, width: float) -> tuple[float, float]:  # pragma: no cover
    """Return Ψ(x) and Ψ'(x): the hinge smoothed over ``width``, or the logistic bound where width is 0."""
    if width > 0.0:
        a = min(1.0, max(0.0, 0.5 + x / width))
        return a * x + 0.5 * width * a * (1.0 - a), a
    if x > 0.0:
        e = np.exp(-x)
        return x + np.log1p(e), 1.0 / (1.0 + e)
    e = np.exp(x)
    return np.log1p(e), e / (1.0 + e)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _longest(begin: Array, end: Array) -> int:  # pragma: no cover
    """Return the length of the longest of some ranges."""
    longest = 0
    for i in range(len(begin)):
        longest = max(longest, end[i] - begin[i])
    return longest


@njit(cache=True, nogil=True, fastmath=_FAST)  # type: ignore[untyped-decorator]
def _span(d: Array, c: Array, tau: float, h: float, mu: float) -> float:  # pragma: no cover
    """Return Σ_j φ(x_j) over rows that all have the same τ, and write τ φ'(x_j) into ``c``."""
    total = 0.0
    inverse = 1.0 / mu
    for j in range(len(d)):
        x = 1.0 + tau * (d[j] - h)
        b = min(1.0, max(0.0, 0.5 + x * inverse))
        c[j] = tau * b
        total += b * x + 0.5 * mu * b * (1.0 - b)
    return total


@njit(cache=True, nogil=True, fastmath=_FAST)  # type: ignore[untyped-decorator]
def grouped(
    Yt: Array,
    group: Array,
    same: Array,
    offset: Array,
    h: float,
    mu: float,
    width: float,
    cap: float,
    i0: int,
    i1: int,
    Gt: Array,
) -> tuple[float, float]:  # pragma: no cover
    """Add rows i0:i1, each compared with its group: rows ``group[i]``, of which ``same[i]`` share its class.

    ``Yt`` and the gradient ``Gt`` are (r, n), so the loops over j access contiguous memory.
    """
    r = len(Yt)
    longest = _longest(group[i0:i1, 0], group[i0:i1, 1])
    d = np.empty(longest)
    c = np.empty(longest)
    value = 0.0
    slope = 0.0
    for i in range(i0, i1):
        g0, g1 = group[i, 0], group[i, 1]
        size = g1 - g0
        first, last = same[i, 0] - g0, same[i, 1] - g0
        d[:size] = 0.0
        for k in range(r):
            row = Yt[k, g0:g1]
            own = Yt[k, i]
            for j in range(size):
                t = row[j] - own
                d[j] += t * t
        total = _span(d[:first], c[:first], -1.0, h, mu)
        total += _span(d[first:last], c[first:last], 1.0, h, mu)
        total += _span(d[last:size], c[last:size], -1.0, h, mu)
        psi, a = _outer(offset[i] + total, width)
        value += cap * psi
        a *= cap
        if a == 0.0:
            continue
        pull = 0.0
        for j in range(size):
            c[j] *= a
            pull += c[j]
        slope -= pull
        for k in range(r):
            row, out = Yt[k, g0:g1], Gt[k, g0:g1]
            own = Yt[k, i]
            back = 0.0
            for j in range(size):
                t = 2.0 * c[j] * (row[j] - own)
                out[j] += t
                back += t
            Gt[k, i] -= back
    return value, slope


@njit(cache=True, nogil=True, fastmath=_FAST)  # type: ignore[untyped-decorator]
def weighted(
    T: Array,
    rows: Array,
    cols: Array,
    same: Array,
    offset: Array,
    h: float,
    mu: float,
    width: float,
    cap: float,
    out: Array,
    back: Array,
) -> tuple[float, float]:  # pragma: no cover
    """Overwrite T = y_i'y_j with the weights C_ij = τ_ij a_i b_ij of rows i and columns j of one group.

    ``rows`` and ``cols`` are ‖y_i‖² and ‖y_j‖², ``same`` the columns of the class of row i.  The sums of the rows of C
    are written to ``out``, those of its columns added to ``back``.
    """
    size = len(cols)
    d = np.empty(size)
    value = 0.0
    slope = 0.0
    for i in range(len(T)):
        c = T[i]
        own = rows[i]
        for j in range(size):
            d[j] = max(0.0, own + cols[j] - 2.0 * c[j])
        first, last = same[i, 0], same[i, 1]
        total = _span(d[:first], c[:first], -1.0, h, mu)
        total += _span(d[first:last], c[first:last], 1.0, h, mu)
        total += _span(d[last:], c[last:], -1.0, h, mu)
        psi, a = _outer(offset[i] + total, width)
        value += cap * psi
        a *= cap
        pull = 0.0
        for j in range(size):
            c[j] *= a
            pull += c[j]
            back[j] += c[j]
        out[i] = pull
        slope -= pull
    return value, slope


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def listed(
    Y: Array,
    begin: Array,
    split: Array,
    partner: Array,
    offset: Array,
    h: float,
    mu: float,
    width: float,
    cap: float,
    i0: int,
    i1: int,
    G: Array,
) -> tuple[float, float]:  # pragma: no cover
    """Add rows i0:i1, each compared with its list of partners: of its class up to ``split[i]``, then of others."""
    r = Y.shape[1]
    c = np.empty(_longest(begin[i0:i1], begin[i0 + 1 : i1 + 1]))
    value = 0.0
    slope = 0.0
    for i in range(i0, i1):
        total = 0.0
        for p in range(begin[i], begin[i + 1]):
            j = partner[p]
            d = 0.0
            for k in range(r):
                t = Y[i, k] - Y[j, k]
                d += t * t
            tau = 1.0 if p < split[i] else -1.0
            x = 1.0 + tau * (d - h)
            b = min(1.0, max(0.0, 0.5 + x / mu))
            c[p - begin[i]] = tau * b
            total += b * x + 0.5 * mu * b * (1.0 - b)
        psi, a = _outer(offset[i] + total, width)
        value += cap * psi
        a *= cap
        if a == 0.0:
            continue
        for p in range(begin[i], begin[i + 1]):
            w = a * c[p - begin[i]]
            if w != 0.0:
                j = partner[p]
                slope -= w
                for k in range(r):
                    t = 2.0 * w * (Y[i, k] - Y[j, k])
                    G[i, k] += t
                    G[j, k] -= t
    return value, slope


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def shells(D: Array, radii: Array, codes: Array, votes: Array) -> None:  # pragma: no cover
    """Count for each query, a row of D, the rows of each class between two of the descending radii."""
    for i in range(len(D)):
        for j in range(D.shape[1]):
            k = 0
            while k < len(radii) and D[i, j] <= radii[k]:
                k += 1
            if k > 0:
                votes[i, k - 1, codes[j]] += 1
