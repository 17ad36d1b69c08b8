"""Constraints: pairs, chunks and triplets drawn from labels, under metric-learn's names."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from metricforge.constraints import by_first_row
from metricforge.constraints.drawing import sample_pairs
from metricforge.errors import InputError
from metricforge.neighbors import nearest_by_class

from .rows import Array


class Constraints:
    """Draws tuples of rows from labels; negative labels mean "unknown".

    Parameters
    ----------
    partial_labels : (n,) array
        Whole numbers, or values of any kind, which then are all known.
    """

    def __init__(self, partial_labels: Any) -> None:
        self.partial_labels = np.asarray(partial_labels)
        labels = self.partial_labels
        unknown = labels < 0 if labels.dtype.kind in "if" else np.zeros(len(labels), dtype=bool)
        self._codes = np.full(len(labels), -1, dtype=np.int64)
        self._classes, self._codes[~unknown] = np.unique(labels[~unknown], return_inverse=True)

    def positive_negative_pairs(
        self, n_constraints: int, same_length: bool = False, random_state: Any = None
    ) -> tuple[Array, Array, Array, Array]:
        """Return rows a, b of one class and c, d of two classes, up to ``n_constraints`` distinct pairs of each kind.

        With ``same_length`` both kinds are cut to the smaller number.
        """
        rng = np.random.default_rng(check_random_state(random_state).randint(2**31 - 1))
        same, different = (sample_pairs(self._codes, kind, n_constraints, rng) for kind in (True, False))
        for name, found in (("positive", same), ("negative", different)):
            if len(found) < n_constraints:
                warnings.warn(
                    f"only {len(found)} {name} pairs exist, fewer than n_constraints={n_constraints}", stacklevel=2
                )
        same, different = rng.permutation(same), rng.permutation(different)
        if same_length:
            size = min(len(same), len(different))
            same, different = same[:size], different[:size]
        return same[:, 0], same[:, 1], different[:, 0], different[:, 1]

    def chunks(self, n_chunks: int = 100, chunk_size: int = 2, random_state: Any = None) -> Array:
        """Return an (n,) array of chunk numbers, −1 for rows in no chunk; a chunk has rows of one class."""
        rng = check_random_state(random_state)
        pieces = []
        codes = by_first_row(self._codes)
        for c in range(len(self._classes)):
            rows = rng.permutation(np.flatnonzero(codes == c))
            pieces += [rows[k : k + chunk_size] for k in range(0, len(rows) - chunk_size + 1, chunk_size)]
        if len(pieces) < n_chunks:
            raise InputError(
                f"n_chunks={n_chunks} chunks of chunk_size={chunk_size} rows of one class do not exist; at most "
                f"{len(pieces)} do"
            )
        found = np.full(len(self._codes), -1)
        for number, piece in enumerate(rng.permutation(len(pieces))[:n_chunks]):
            found[pieces[piece]] = number
        return found

    def generate_knntriplets(self, X: Any, k_genuine: int, k_impostor: int) -> Array:
        """Return triplets (i, one of the nearest rows of its class, one of the nearest rows of other classes)."""
        X = np.asarray(X, dtype=np.float64)
        known = np.flatnonzero(self._codes >= 0)
        codes = self._codes[known]
        found = []
        for near in nearest_by_class(X[known], codes, max(k_genuine, k_impostor)):
            name = self._classes[codes[near.queries[0]]]
            same, other = near.same[0][:, :k_genuine], near.other[0][:, :k_impostor]
            for kind, wanted, rows in (("genuine", k_genuine, same), ("impostor", k_impostor, other)):
                if rows.shape[1] < wanted:
                    warnings.warn(
                        f"class {name} has {rows.shape[1]} rows to be {kind} neighbours, fewer than k_{kind}={wanted}",
                        stacklevel=2,
                    )
            q, a, b = len(near.queries), same.shape[1], other.shape[1]
            i = np.repeat(near.queries, a * b)
            j = np.repeat(same, b, axis=1).ravel()
            k = np.tile(other, (1, a)).ravel()
            found.append(known[np.column_stack([i, j, k])].reshape(q * a * b, 3))
        return np.concatenate(found)


def default_number(y: Array) -> int:
    """Return 20 times the squared number of classes, metric-learn's default number of constraints."""
    return 20 * len(np.unique(y)) ** 2
