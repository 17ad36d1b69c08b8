"""The rule of method="auto": the search with the least expected time in a new process."""

from __future__ import annotations

from typing import Any

from ..rows import is_sparse
from .distances import is_binary
from .exhaustive import SearchedRows

TREE_FEATURES = 7
"""Up to this many features a tree is faster.  Gaussian rows are its worst case: 20,000 take 0.7 s (exact search: 1.8 s)
at 7 features, and 2.4 s (exact: 1.9 s) at 10."""
HAMMING_SECONDS = 2.0
"""Time on one core from which packed rows are faster in a new process: that of importing numba and loading the loop."""
DESCENT_SECONDS = 45.0
"""Time on one core from which NN-descent is faster in a new process: 33 s to compile, 2 to import, 4 to 10 to run."""
CELLS_SECONDS = 8.0
"""Time on one core from which cells are faster than comparing all pairs: measured at 60,000 rows of 16 columns."""
PLAIN = 512
"""Up to this many columns sparse and binary rows have themselves as coordinates among cells; wider ones a sketch, whose
cells tell rows apart less well."""


def choose(X: Any, Q: Any, itself: bool, recall: float = 0.95) -> str:
    """Return the name of the method with the least expected time in a new process.

    Parameters
    ----------
    X : dense or CSR rows, or SearchedRows
        The rows searched.
    Q : dense or CSR rows
        The queries.
    itself : bool
        Whether the queries are the rows themselves.
    recall : float
        The share of true neighbours to find; 1 excludes approximate searches.
    """
    rows = X if isinstance(X, SearchedRows) else SearchedRows(X)
    X = rows.X
    n, d = X.shape
    if not is_sparse(X) and d <= TREE_FEATURES and not rows.few_distinct:
        return "tree"
    # nanoseconds per pair on one core: the product, and the comparison with the k-th distance
    pair = 2 + 0.03 * d if rows.multiplies_dense else 9 + min(60.0, 10 * (X.nnz / n) ** 2 / d)
    pairs = n * Q.shape[0]
    packed = 0.5 + 0.2 * (d // 64 + 1)  # measured at 2 and at 16 words
    approximate = itself and recall < 1  # with queries an index would be built for one use
    if 1e-9 * pair * pairs > HAMMING_SECONDS and rows.binary and (Q is X or is_binary(Q)):
        return "cells" if approximate and 1e-9 * packed * pairs > CELLS_SECONDS else "hamming"
    if not approximate:
        return "exact"
    if not is_sparse(X) or d <= PLAIN:
        # where squares are tiny or huge, bounds in float32 are of no use
        return "cells" if 1e-9 * pair * pairs > CELLS_SECONDS and 1e-3 < rows.largest < 1e9 else "exact"
    return "pynndescent" if 1e-9 * pair * pairs > DESCENT_SECONDS else "exact"
