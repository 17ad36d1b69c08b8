"""Kernels on strings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..rows import Array
from ..validation import whole_number
from .interface import Kernel


@dataclass(frozen=True)
class Spectrum(Kernel):
    """The k-spectrum kernel on strings: the inner product of the counts of all substrings of length k.

    Strings shorter than k have no counts: their similarity to every string, themselves included, is 0.

    Cost: O(total length · k) to count, then one sparse product.
    """

    k: int = 3

    def __post_init__(self) -> None:
        whole_number(self.k, "k")

    @property
    def takes(self) -> str:
        """Strings."""
        return "strings"

    def block(self, X: Any, Y: Any) -> Array:
        """Return the inner products of the counts."""
        A, B = self._counts(X, Y)
        return np.asarray((A @ B.T).toarray())

    def paired(self, X: Any, Y: Any) -> Array:
        """Return the inner products of the counts, row by row."""
        A, B = self._counts(X, Y)
        return np.asarray(A.multiply(B).sum(axis=1)).ravel()

    def _counts(self, X: Any, Y: Any) -> tuple[Any, Any]:
        if X is Y:
            counts = substring_counts(list(X), self.k)
            return counts, counts
        counts = substring_counts([*X, *Y], self.k)
        return counts[: len(X)], counts[len(X) :]


START = Spectrum(3).normalized()
"""What learning on strings starts from unless a kernel is given.  Without normalisation distances are mostly those of
the lengths: the nearest of 400 proteins then shares the superfamily in 2 % of the cases, normalised in 14 %."""


def substring_counts(strings: list[str], k: int) -> Any:
    """Return the (len(strings), distinct substrings) CSR counts of all substrings of length k.

    Substrings are numbered by rank doubling: the number of a substring of length l + 1 is the rank of the pair
    (number of its first l letters, next letter).  That works for any alphabet and any k without hashing.
    """
    from scipy.sparse import csr_array

    lengths = np.array([len(s) for s in strings], dtype=np.int64)
    letters = np.frombuffer("".join(strings).encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    k = min(k, int(lengths.max(initial=0)) + 1)  # no string is longer: an empty table
    counts = np.maximum(lengths - k + 1, 0)
    owner = np.repeat(np.arange(len(strings)), counts)
    starts = np.concatenate([[0], np.cumsum(lengths)])[:-1]
    # position of each substring: the start of its string plus its offset inside it
    place = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(starts, counts)
    letter, alphabet = _ranks(letters)
    number, distinct = np.zeros(len(place), dtype=np.int64), 1
    for offset in range(k if len(place) else 0):
        number, distinct = _ranks(number * alphabet + letter[place + offset])
    shape = (len(strings), distinct)
    table = csr_array((np.ones(len(number)), (owner, number)), shape=shape)
    table.sum_duplicates()
    return table


def _ranks(values: Array) -> tuple[Array, int]:
    """Return the rank of each value among the distinct ones, and how many these are; whole numbers from 0 on."""
    span = int(values.max(initial=0)) + 1
    if span > 4 * len(values) + 2**16:  # a table of all numbers would be larger than the values
        distinct, rank = np.unique(values, return_inverse=True)
        return rank, len(distinct)
    there = np.zeros(span, dtype=bool)
    there[values] = True
    rank = np.cumsum(there) - 1
    return rank[values], int(rank[-1]) + 1
