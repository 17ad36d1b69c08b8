"""Rows ordered by group, and orthonormal contrasts inside each group."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np

from metricforge.constraints import Chunklets
from metricforge.errors import InputError
from metricforge.rows import Array

FEW_ROWS = 64
"""Rows that are ordered without regard to memory."""
ORDERED_ROWS = 2**16
"""Rows ordered at a time: an array of as many row numbers as there are rows may be large in a client of a cluster."""


@dataclass(frozen=True, eq=False)
class Groups:
    """The groups of at least two rows.

    Attributes
    ----------
    order : (n,) int array
        The numbers of their rows, ordered by group.
    sizes : (c,) int array
        The number of rows of each group.
    singletons, outside : int
        The numbers of groups of one row, which are ignored, and of rows in no group.
    """

    order: Array
    sizes: Array
    singletons: int
    outside: int

    @property
    def n(self) -> int:
        """The number of rows in groups: the n of eq. (1)."""
        return len(self.order)

    @property
    def contrasts(self) -> int:
        """The rank of H: the number of rows less one per group."""
        return self.n - len(self.sizes)


def groups_of(chunklets: Chunklets) -> Groups:
    """Return the groups of at least two rows, or raise InputError when there is none.

    A group of one row adds nothing to C of eq. (1), but would count in n and so scale C down.
    """
    codes = chunklets.codes
    if len(codes) <= FEW_ROWS:
        return _few_groups(codes)
    sizes = np.zeros(chunklets.size, dtype=np.int64)
    for i in range(0, len(codes), ORDERED_ROWS):
        found, count = np.unique(codes[i : i + ORDERED_ROWS], return_counts=True)
        sizes[found[found >= 0]] += count[found >= 0]
    return _groups(_ordered(codes, sizes), sizes, codes)


def _few_groups(codes: Array) -> Groups:
    """Return the groups of few rows, as in a stream of small updates: calls of NumPy would cost more than a loop."""
    members: dict[int, list[int]] = {}
    for row, code in enumerate(codes.tolist()):
        if code >= 0:
            members.setdefault(code, []).append(row)
    groups = [rows for _, rows in sorted(members.items()) if len(rows) > 1]
    singletons = len(members) - len(groups)
    outside = len(codes) - sum(map(len, members.values()))
    order = np.array([row for rows in groups for row in rows], dtype=np.int64)
    return _checked(Groups(order, np.array([len(rows) for rows in groups], dtype=np.int64), singletons, outside))


def _groups(order: Array, sizes: Array, codes: Array) -> Groups:
    singletons = int(np.count_nonzero(sizes == 1))
    return _checked(Groups(order, sizes[sizes > 1], singletons, len(codes) - int(sizes.sum())))


def _checked(groups: Groups) -> Groups:
    if not groups.n:
        raise InputError(
            f"constraints: no group has two rows ({groups.singletons} sample(s) are alone in their group), so there is "
            "no variation inside groups to learn from; give groups of at least two rows"
        )
    return groups


def _ordered(codes: Array, sizes: Array) -> Array:
    """Return the rows of groups of at least two rows, by group and row number, with 4 bytes per row in all."""
    used = np.append(sizes > 1, False)  # the last entry is for code -1
    small = np.int32 if len(codes) < 2**31 else np.int64
    free = np.where(used[:-1], sizes, 0).astype(small)
    order = np.empty(int(free.sum()), dtype=small)
    free[1:] = np.cumsum(free, dtype=small)[:-1]  # the next place of every group
    free[:1] = 0
    for i in range(0, len(codes), ORDERED_ROWS):
        part = codes[i : i + ORDERED_ROWS]
        rows = np.argsort(part, kind="stable")
        rows = rows[used[part[rows]]]
        groups, first, count = np.unique(part[rows], return_index=True, return_counts=True)
        rank = np.arange(len(rows)) - np.repeat(first, count)
        order[np.repeat(free[groups], count) + rank] = rows + i
        free[groups] += count
    return order


def contrasts(K: Array, sizes: Array) -> Array:
    """Return K Q, (q, n − #groups), for the (q, n) values K on rows ordered by group.

    Q (n × (n − #groups)) has orthonormal columns with QQ' = H, eq. (5).  Inside a group of s rows it is an orthonormal
    basis of the vectors that sum to 0, here the one of the Householder reflection that swaps 1/√s and the first axis:

        (x'Q)_j = d_j − Σ_i d_i / (s + √s)      with the differences d_j = x_j − x_1, j = 2 .. s.

    Like Helmert's basis it starts from differences, so nearly equal values lose no digits; unlike it, it treats groups
    of different sizes in one pass.  Cost: O(q n) time, three times the result in memory.
    """
    K = K if K.dtype.kind == "f" else K.astype(np.float64)  # a kernel may return whole numbers
    size = int(sizes[0])
    if size * len(sizes) == K.shape[1] and (len(sizes) == 1 or (sizes == size).all()):
        # groups of equal size, as in a stream of pairs, need no index arrays: faster for small updates
        if size == 2:
            D: Array = K[:, 1::2] - K[:, ::2]
            D *= sqrt(0.5)
            return D
        each = K.reshape(len(K), len(sizes), size)
        D = each[:, :, 1:] - each[:, :, :1]
        D -= D.sum(axis=2, keepdims=True) / (size + sqrt(size))
        return D.reshape(len(K), -1)
    starts = np.cumsum(sizes) - sizes
    free = sizes - 1
    others = np.ones(K.shape[1], dtype=bool)
    others[starts] = False
    D = K[:, others]
    D -= np.repeat(K[:, starts], free, axis=1)
    shift = np.add.reduceat(D, np.cumsum(free) - free, axis=1)
    shift /= sizes + np.sqrt(sizes)
    D -= np.repeat(shift, free, axis=1)
    return D
