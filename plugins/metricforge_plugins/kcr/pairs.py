"""Which pairs of rows are compared, and the sums over them in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricforge.kernels import squared_euclidean
from metricforge.rows import blocks

Array = NDArray[Any]
Slope = Callable[[Array], tuple[Array, Array]]


def hinge(x: Array, mu: float) -> tuple[Array, Array]:
    """Return φ(x) >= [x]₊, which differs from it by at most μ/8 and only where |x| < μ/2, and φ'(x).

    φ(x) = max over 0 <= b <= 1 of b x + μ b (1 − b) / 2, attained at b = φ'(x).
    """
    b = np.clip(0.5 + x / mu, 0.0, 1.0)
    return b * x + 0.5 * mu * b * (1 - b), b


@dataclass(frozen=True, eq=False)
class Grouped:
    order: Array
    group: Array
    same: Array

    @property
    def plus(self):
        return (self.same[:, 1] - self.same[:, 0]).astype(float)

    @property
    def count(self):
        return int((self.group[:, 1] - self.group[:, 0]).sum())

    def spans(self):
        lo = 0
        n = len(self.group)
        while lo < n:
            hi = int(self.group[lo, 1])
            yield lo, hi
            lo = hi

    def blocks(self, Y, h, mu, outer):
        for lo, hi in self.spans():
            cols = slice(lo, hi)
            for part in blocks(hi - lo, 64 * (hi - lo)):
                rows = slice(lo + part.start, lo + part.stop)
                j = np.arange(lo, hi)
                tau = np.where((j >= self.same[rows, :1]) & (j < self.same[rows, 1:]), 1.0, -1.0)
                D = squared_euclidean(Y[rows], Y[cols])
                if rows == cols: np.fill_diagonal(D, 0)
                v, b = hinge(1 + tau * (D - h), mu)
                psi, a = outer(rows, v.sum(axis=1))
                yield rows, cols, float(psi.sum()), tau * b * a[:, None]


def deal(codes, size, lot, rng):
    """Deal rows into groups of about size rows in lots of at least `lot` rows of one class."""
    n = len(codes)
    C = codes.max() + 1
    n_groups = max(1, round(n / size))
    if n_groups == 1:
        order = np.argsort(codes, kind="stable")
        gid = np.zeros(n, int)
    else:
        lots = []
        for c in range(C):
            rows = rng.permutation(np.flatnonzero(codes == c))
            if not len(rows): continue
            k = max(1, min(n_groups, len(rows) // lot))
            lots += [(r, c) for r in np.array_split(rows, k)]
        # place each lot in the smallest group, larger first
        import heapq
        perm = rng.permutation(len(lots))
        perm = sorted(perm, key=lambda q: -len(lots[q][0]))
        heap = [(0, g) for g in range(n_groups)]
        gid = np.empty(n, int)
        for q in perm:
            s, g = heapq.heappop(heap)
            gid[lots[q][0]] = g
            heapq.heappush(heap, (s + len(lots[q][0]), g))
        order = np.lexsort((codes, gid))
    g, c = gid[order], codes[order]
    key = g * np.int64(C) + c
    def ranges(k):
        st = np.flatnonzero(np.append(True, k[1:] != k[:-1])); en = np.append(st[1:], n)
        return np.repeat(np.stack([st, en], 1), en - st, axis=0)
    return Grouped(order, ranges(g), ranges(key))
