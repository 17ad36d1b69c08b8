"""Chunklets as the mathematics needs them: rows group by group, and contrasts inside each group."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricforge.constraints import Chunklets
from metricforge.errors import InputError

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Groups:
    """The groups of at least two rows.

    Attributes
    ----------
    order : (n,) int array
        The numbers of their rows, group by group.
    sizes : (c,) int array
        How many rows each group has.
    singletons, outside : int
        Groups of one row, which are left out, and rows in no group.
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
        """The rank of H: one less than its rows for each group."""
        return self.n - len(self.sizes)


def groups_of(chunklets: Chunklets) -> Groups:
    """Return the groups of at least two rows, or raise when there is none.

    A group of one row adds nothing to C of eq. (1) but would count in its n, and so only scale C down.
    """
    codes = chunklets.codes
    sizes = np.bincount(codes[codes >= 0], minlength=chunklets.size)
    order = np.argsort(codes, kind="stable")
    order = order[np.count_nonzero(codes < 0) :]
    order = order[sizes[codes[order]] > 1]
    singletons = int(np.count_nonzero(sizes == 1))
    if not len(order):
        raise InputError(
            f"constraints: no group has two rows ({singletons} sample(s) are alone in theirs), so nothing is known "
            "about how rows of one group vary; give groups of at least two rows"
        )
    return Groups(order, sizes[sizes > 1], singletons, int(np.count_nonzero(codes < 0)))


def contrasts(K: Array, sizes: Array) -> Array:
    """Return K Q for the (q, n) values K on rows that lie group by group: (q, n − #groups).

    Q (n × (n − #groups)) has orthonormal columns with QQ' = H, eq. (5).  Inside a group of s rows it is an orthonormal
    basis of the vectors that sum to 0, here the one of the Householder reflection that swaps 1/√s and the first axis:

        (x'Q)_j = d_j − Σ_i d_i / (s + √s)      with the differences d_j = x_j − x_1, j = 2 .. s.

    Like Helmert's basis it begins with differences, so values that are nearly equal lose no digits; unlike it, all
    groups go at once whatever their sizes.  Cost: O(q n) time, three times the result in memory.
    """
    size = int(sizes[0])
    if (sizes == size).all():  # the usual stream of pairs: no index arrays, so a small update is not all overhead
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
