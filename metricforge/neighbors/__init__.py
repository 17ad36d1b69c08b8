"""Nearest neighbours and neighbour graphs of rows under the Euclidean distance.

Every search returns the ``k`` nearest rows sorted by (distance, index).  Equal distances, which binary and integer data
have in great number, therefore never make two runs differ.  The exact searches on dense rows agree to the last bit:
whichever proposes the candidates, they are ranked by the difference of the two rows in float64 (for whole numbers,
without any rounding).

Files: `api` has the functions to call, `choice` the rule of method="auto", `exhaustive` the search by products over
the tiles of `scanning`, with the bounds of `single`; `approximate` the search by the cells of `partition` in the
`coordinates` of rows, a few of which `probing` searches for each row, `coarse` for small batches of queries; `refining`
passes over neighbours of neighbours, with the loops of `hops`; `cell_chunks` both on dask, by the steps of `shards` and
`hop_chunks`; `index` rows kept for the search of new ones; `candidates` the KD tree and the ranking of
candidates, `nndescent` NN-descent, `binary` and `bits` the search of packed rows, `chunks` the search of dask rows,
`bounded` the search by lower bounds of other distances, `graphs` the neighbour graphs, `classes` the nearest rows of
the same class and of others, and the rows of others within a radius.
"""

from __future__ import annotations

from .api import (
    METHODS,
    Searcher,
    cells,
    descent,
    exact,
    hamming,
    recall,
    search,
    search_blocks,
    search_with_recall,
    tree,
)
from .bounded import Bounds
from .choice import choose
from .classes import ClassNeighbors, nearest_by_class, other_classes_within
from .contract import DistanceBlock, Found, Search
from .graphs import graph, isolated

__all__ = [
    "METHODS",
    "Bounds",
    "ClassNeighbors",
    "DistanceBlock",
    "Found",
    "Search",
    "Searcher",
    "cells",
    "choose",
    "descent",
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
