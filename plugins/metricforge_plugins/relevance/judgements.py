"""Triplets over rows, grouped by query: what repeats in them is computed once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from metricforge.rows import Array, beat

BLOCK = 2**17
"""Numbers of a block of gathered rows, small enough for a processor's cache."""


@dataclass(frozen=True, eq=False)
class Judgements:
    """Triplets (i, j, k) as pairs of a query and a document, each pair once.

    Attributes
    ----------
    queries : (u,) int array
        The rows that occur as i.
    query, document : (s,) int arrays
        The pairs, sorted by query; ``query`` is a position in ``queries``, ``document`` a row.
    nearer, farther : (p,) int arrays
        The pairs (i, j) and (i, k) of each triplet.
    """

    queries: Array
    query: Array
    document: Array
    nearer: Array
    farther: Array

    @classmethod
    def of(cls, i: Array, j: Array, k: Array) -> Judgements:
        """Group triplets of rows."""
        queries, place = np.unique(i, return_inverse=True)
        n = int(max(j.max(), k.max())) + 1
        pairs, index = np.unique(np.concatenate([place * n + j, place * n + k]), return_inverse=True)
        nearer, farther = np.split(index, 2)
        return cls(queries, pairs // n, pairs % n, nearer, farther)

    def mixture(self, alpha: Array, n: int) -> Any:
        """Return the sparse (u, n) matrix Σ_t α_t e(i_t)(e(j_t) − e(k_t))'."""
        from scipy.sparse import csr_matrix

        size = len(self.query)
        weights = np.bincount(self.nearer, alpha, size) - np.bincount(self.farther, alpha, size)
        ends = np.searchsorted(self.query, np.arange(len(self.queries) + 1))
        return csr_matrix((weights, self.document, ends), shape=(len(self.queries), n))

    def dots(self, mapped: Array, Z: Array) -> Array:
        """Return the inner products of ``mapped``, one row per query, with the documents of every pair."""
        return paired_dots(mapped, self.query, Z, self.document)

    def differences(self, scores: Array) -> Array:
        """Return the score of (i, j) less that of (i, k) for each triplet."""
        return np.asarray(scores[self.nearer] - scores[self.farther])


def paired_dots(X: Array, x: Array, Y: Array, y: Array) -> Array:
    """Return the inner products of X[x] and Y[y], row by row, in float64."""
    found = np.empty(len(x))
    rows = max(1, BLOCK // X.shape[1])
    for start in range(0, len(found), rows):
        part = slice(start, start + rows)
        found[part] = np.einsum("tr,tr->t", X[x[part]], Y[y[part]])
        beat(start, len(found))
    return found
