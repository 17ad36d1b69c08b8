"""Nearest neighbours and neighbour graphs of rows under the Euclidean distance.

Every search returns the ``k`` nearest rows sorted by (distance, index).  Equal distances, which binary and integer data
have in great number, therefore never make two runs differ.  The exact searches on dense rows agree to the last bit:
whichever proposes the candidates, they are ranked by the difference of the two rows in float64 (for whole numbers,
without any rounding).

Files: `api` has the functions to call and the rule of method="auto", `exhaustive` the exact searches over the tiles of
`scanning`, `approximate` the search by the cells of `partition`, a few of which `probing` searches for each row,
`index` rows that are kept for the search of new ones, `loops` compiled loops, `graphs` what is made of lists.
"""

from __future__ import annotations

from .api import (
    METHODS,
    Searcher,
    cells,
    choose,
    exact,
    hamming,
    recall,
    search,
    search_blocks,
    search_with_recall,
    tree,
)
from .contract import DistanceBlock, Found, Search
from .exhaustive import LowerBounds
from .graphs import ClassNeighbors, graph, isolated, nearest_by_class, other_classes_within

__all__ = [
    "METHODS",
    "ClassNeighbors",
    "DistanceBlock",
    "Found",
    "LowerBounds",
    "Search",
    "Searcher",
    "cells",
    "choose",
    "exact",
    "graph",
    "hamming",
    "isolated",
    "nearest_by_class",
    "other_classes_within",
    "recall",
    "search",
    "search_blocks",
    "search_with_recall",
    "tree",
]
