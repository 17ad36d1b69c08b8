"""Side information about similarity, as typed index sets over the rows of X.

There are four kinds: `Labels` (a class per row), `Pairs` (similar and dissimilar), `Chunklets` (groups of rows that
belong together) and `Triplets` ("i is more similar to j than to k").  Plugins add kinds by subclassing `Constraint`.
All kinds slice by row: ``len(c)`` is the number of rows and ``c[rows]`` keeps the relations inside ``rows``,
renumbered, so scikit-learn's splitters and metadata routing treat them like any array of length n.  Relations lost by
slicing or conversion are counted in ``dropped``.
"""

from __future__ import annotations

from .chunklets import Chunklets
from .conversions import (
    chunklets_to_pairs,
    labels_to_chunklets,
    labels_to_pairs,
    labels_to_triplets,
    pairs_to_chunklets,
    triplets_to_pairs,
)
from .distances import Distances
from .indices import components_of
from .interface import Constraint, Lines, Links
from .labels import Labels
from .pairs import Pairs
from .scoring import Satisfied, pair_auc, row_auc, separating
from .triplets import Triplets
from .validation import as_indices, check_n, freeze, row_numbers

__all__ = [
    "Chunklets",
    "Constraint",
    "Distances",
    "Labels",
    "Lines",
    "Links",
    "Pairs",
    "Satisfied",
    "Triplets",
    "as_indices",
    "check_n",
    "chunklets_to_pairs",
    "components_of",
    "freeze",
    "labels_to_chunklets",
    "labels_to_pairs",
    "labels_to_triplets",
    "pair_auc",
    "pairs_to_chunklets",
    "row_auc",
    "row_numbers",
    "separating",
    "triplets_to_pairs",
]
