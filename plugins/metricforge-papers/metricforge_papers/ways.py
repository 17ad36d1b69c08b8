"""What the authors of simplenpkl may have done for Table 2 and do not print: features, pairs, rows of the embedding, C.

Each way learns by the linear loss with the printed k = 5 and B = 1, for every C of a grid.  C is then chosen by how
many of the given pairs k-means honours, or one for each set by the Rand index itself, which nobody could without the
labels: what no choice of C reaches, the way cannot reach.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .scores import standardised

Array = NDArray[Any]

WEIGHTS = (0.01, 0.03, 0.1, 0.3, 1.0, 2.0)
"""Values of C; 2 stands for 1 where each pair is counted in both triangles."""
STARTS = 5


def unit_range(X: Array) -> Array:
    """Return the features that vary, each divided by its range."""
    spread = np.ptp(X, axis=0)
    return np.asarray(X[:, spread > 0] / spread[spread > 0])


FEATURES: dict[str, Callable[[Array], Array]] = {
    "raw": lambda X: X,
    "standardised": standardised,
    "unit range": unit_range,
}
PAIRS = {"closed": True, "as drawn": False}
COLUMNS = ("all columns", "one for each class")
ROWS = ("rows as they are", "rows of norm 1")


def shapes(E: Array, classes: int) -> Iterator[tuple[str, Array]]:
    """Yield the embedding with its columns and rows treated in each way."""
    leading = E[:, np.argsort(-np.square(E).sum(axis=0))]
    for columns, rows in product(COLUMNS, ROWS):
        Z = leading if columns == COLUMNS[0] else leading[:, :classes]
        if rows == ROWS[1]:
            norms = np.linalg.norm(Z, axis=1, keepdims=True)
            Z = np.divide(Z, norms, out=np.zeros_like(Z), where=norms > 1e-9)
        yield f"{columns}, {rows}", Z


def clustered(Z: Array, classes: int, seed: int) -> Array:
    """Return the labels of k-means."""
    from sklearn.cluster import KMeans

    distinct = len(np.unique(Z.round(9), axis=0))
    return np.asarray(KMeans(min(classes, distinct), n_init=STARTS, random_state=seed).fit_predict(Z))


class Tried:
    """Rand index and share of pairs honoured, by way, set, C and draw."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, str, float, int], tuple[float, float]] = {}

    def add(self, way: str, name: str, C: float, seed: int, rand: float, honoured: float) -> None:
        """Add one clustering."""
        self.found[way, name, C, seed] = rand, honoured

    def by_pairs(self, way: str, name: str, seed: int) -> float:
        """Return the Rand index at the C that honours most pairs."""
        return max((both[1], both[0]) for (w, n, _, s), both in self.found.items() if (w, n, s) == (way, name, seed))[1]

    def best(self, way: str, name: str) -> float:
        """Return the largest mean over draws of the Rand index, over the values of C."""
        rands = [[r for (w, n, c, _), (r, _) in self.found.items() if (w, n, c) == (way, name, C)] for C in WEIGHTS]
        return max(float(np.mean(values)) for values in rands if values)

    @property
    def ways(self) -> list[str]:
        """The ways, in the order tried."""
        return list(dict.fromkeys(way for way, *_ in self.found))

    @property
    def sets(self) -> list[str]:
        """The sets, in the order tried."""
        return list(dict.fromkeys(name for _, name, *_ in self.found))

    @property
    def draws(self) -> list[int]:
        """The draws of pairs."""
        return list(dict.fromkeys(seed for *_, seed in self.found))
