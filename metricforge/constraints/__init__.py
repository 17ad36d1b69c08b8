"""Side information about similarity, as typed index sets over the rows of X.

There are six kinds: `Labels` (a class per row), `Pairs` (similar and dissimilar), `Chunklets` (groups of rows that
belong together), `Triplets` ("i is more similar to j than to k"), `Quadruplets` ("a and b are more similar than c and
d") and `Targets` (a real value per row).  Plugins add kinds by subclassing `Constraint`.
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
    labels_to_quadruplets,
    labels_to_triplets,
    pairs_to_chunklets,
    pairs_to_quadruplets,
    quadruplets_to_triplets,
    targets_to_triplets,
    triplets_to_pairs,
    triplets_to_quadruplets,
)
from .indices import as_indices, by_first_row, check_n, components_of, freeze, row_numbers
from .interface import Constraint, Lines, Links
from .labels import Labels
from .pairs import Pairs
from .quadruplets import Quadruplets
from .scoring import Distances, Satisfied, balanced, pair_auc, row_auc, separating
from .targets import Targets
from .triplets import Triplets

__all__ = [
    "Chunklets",
    "Constraint",
    "Distances",
    "Labels",
    "Lines",
    "Links",
    "Pairs",
    "Quadruplets",
    "Satisfied",
    "Targets",
    "Triplets",
    "as_indices",
    "balanced",
    "by_first_row",
    "check_n",
    "chunklets_to_pairs",
    "components_of",
    "freeze",
    "labels_to_chunklets",
    "labels_to_pairs",
    "labels_to_quadruplets",
    "labels_to_triplets",
    "pair_auc",
    "pairs_to_chunklets",
    "pairs_to_quadruplets",
    "quadruplets_to_triplets",
    "row_auc",
    "row_numbers",
    "separating",
    "targets_to_triplets",
    "triplets_to_pairs",
    "triplets_to_quadruplets",
]
