"""Rows ordered by group, and orthonormal contrasts inside each group."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np

from metricforge.constraints import Chunklets
from metricforge.errors import InputError
from metricforge.rows import Array


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
    sizes = np.bincount(codes[codes >= 0], minlength=chunklets.size)
    order = np.argsort(codes, kind="stable")
    order = order[np.count_nonzero(codes < 0) :]
    order = order[sizes[codes[order]] > 1]
    singletons = int(np.count_nonzero(sizes == 1))
    if not len(order):
        raise InputError(
            f"constraints: no group has two rows ({singletons} sample(s) are alone in their group), so there is no "
            "variation inside groups to learn from; give groups of at least two rows"
        )
    return Groups(order, sizes[sizes > 1], singletons, int(np.count_nonzero(codes < 0)))


def contrasts(K: Array, sizes: Array) -> Array:
    """Return K Q, (q, n − #groups), for the (q, n) values K on rows ordered by group.

    Q (n × (n − #groups)) has orthonormal columns with QQ' = H, eq. (5).  Inside a group of s rows it is an orthonormal
    basis of the vectors that sum to 0, here the one of the Householder reflection that swaps 1/√s and the first axis:

        (x'Q)_j = d_j − Σ_i d_i / (s + √s)      with the differences d_j = x_j − x_1, j = 2 .. s.

    Like Helmert's basis it starts from differences, so nearly equal values lose no digits; unlike it, it treats groups
    of different sizes in one pass.  Cost: O(q n) time, three times the result in memory.
    """
    size = int(sizes[0])
    if (
        sizes == size
    ).all():  # groups of equal size, as in a stream of pairs, need no index arrays: faster for small updates
        each = K.reshape(len(K), len(sizes), size)
        D: Array = each[:, :, 1:] - each[:, :, :1]
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
