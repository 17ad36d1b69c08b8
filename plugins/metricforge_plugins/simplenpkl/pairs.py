"""Pairs as signed and weighted entries of a matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from metricforge import rows as _rows
from metricforge.constraints import Pairs
from metricforge.rows import Array
from metricforge.solver import Problem
from metricforge.space import compact

if TYPE_CHECKING:
    from scipy.sparse import csr_array


@dataclass(frozen=True, eq=False)
class SignedPairs:
    """Each unordered pair once: rows i and j, sign t (+1 similar, −1 dissimilar) and weight w > 0."""

    i: Array
    j: Array
    t: Array
    w: Array
    n: int

    @property
    def p(self) -> int:
        """The number of pairs."""
        return len(self.t)

    def matrix(self, alpha: Array) -> csr_array:
        """Return Σ α_ij t_ij (E_ij + E_ji)/2, so that tr(matrix K) = Σ α_ij t_ij K_ij."""
        from scipy.sparse import coo_array

        rows, columns, values = self.entries(alpha)
        return coo_array((values, (rows, columns)), shape=(self.n, self.n)).tocsr()

    def entries(self, alpha: Array) -> tuple[Array, Array, Array]:
        """Return rows, columns and values of the entries of `matrix`."""
        half = alpha * self.t / 2
        # int32 like those of the graph: sparse products read indices and values
        i, j = self.i.astype(np.int32), self.j.astype(np.int32)
        return np.concatenate([i, j]), np.concatenate([j, i]), np.concatenate([half, half])

    def among_their_rows(self) -> tuple[Array, SignedPairs]:
        """Return the rows that have a pair, ascending, and the pairs with these rows numbered from 0."""
        touched, (i, j) = compact(np.stack([self.i, self.j]))
        return touched, SignedPairs(i, j, self.t, self.w, len(touched))

    def agreement(self, V: Array, w: Array) -> Array:
        """Return t_ij K_ij for K = V diag(w) V', on the pairs only."""
        out = np.empty(self.p)
        for part in _rows.blocks(self.p, 24 * max(1, V.shape[1])):
            out[part] = np.vecdot(V[self.i[part]] * w, V[self.j[part]])
        return np.asarray(out * self.t)

    def select(self, kept: Array) -> SignedPairs:
        """Return some of the pairs, with their weights."""
        return SignedPairs(self.i[kept], self.j[kept], self.t[kept], self.w[kept], self.n)

    def renumbered(self, number: Array) -> SignedPairs:
        """Return the pairs with row r renumbered as number[r]."""
        return SignedPairs(number[self.i], number[self.j], self.t, self.w, self.n)


def signed_pairs(constraint: Pairs, weights: str) -> SignedPairs:
    """Return the pairs of a constraint.

    ``weights="degree"`` gives a pair the weight 1/sqrt(l_i l_j), l_i the number of pairs at row i.  The matrix of the
    pairs then has a norm of at most 1/2, so C has the same meaning on every data set.
    """
    rows = np.concatenate([constraint.similar, constraint.dissimilar])
    t = np.repeat([1.0, -1.0], [len(constraint.similar), len(constraint.dissimilar)])
    i, j = rows[:, 0], rows[:, 1]
    w = np.ones(len(t))
    if weights == "degree":
        # not a count for each of the n rows: few of them may have a pair
        place = compact(rows)[1]
        at = np.bincount(place.ravel())[place].astype(np.float64)  # (p, 2)
        w = 1 / np.sqrt(at[:, 0] * at[:, 1])
    return SignedPairs(i, j, t, w, constraint.n)


def uncertain_pairs(problem: Problem, pairs: SignedPairs, share: float) -> Array:
    """Return the pairs at the rows for whose pairs the base kernel has the smallest margins (Sec. 3.2.4).

    The margin of row i is |Σ_j t_ij k(x_i, x_j)| / l_i over its pairs, with k divided by sqrt(k(x_i, x_i) k(x_j, x_j)).
    Rows are added by ascending margin, each with all of its pairs, until ``share`` of the pairs is selected.
    """
    kernel, X = problem.kernel, problem.rows
    both = np.stack([pairs.i, pairs.j], axis=1)
    k = _rows.map_relations(kernel.paired, X, both)
    touched, place = compact(both)
    diagonal = _rows.map_relations(kernel.paired, X, np.stack([touched, touched], axis=1))
    size = np.sqrt(np.maximum(diagonal, 0))[place].prod(axis=1)
    size[size == 0] = 1.0
    total = np.zeros(len(touched))
    for end in (0, 1):
        np.add.at(total, place[:, end], pairs.t * k / size)
    margin = np.abs(total) / np.bincount(place.ravel())
    rank = np.empty(len(touched))
    rank[np.argsort(margin, kind="stable")] = np.arange(len(touched))
    # a pair is added with the first of its two rows
    joined = rank[place].min(axis=1)
    order = np.argsort(joined, kind="stable")
    last = joined[order[max(0, int(np.ceil(share * pairs.p)) - 1)]]
    return np.flatnonzero(joined <= last)
