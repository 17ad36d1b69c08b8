"""The neighbour graph of the rows under the base kernel's distance, and its normalised Laplacian."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from metricforge import neighbors
from metricforge import rows as _rows
from metricforge.distributed.neighbors import across
from metricforge.kernels import RBF, Cauchy, Kernel, Linear, Standardized
from metricforge.kernels.arithmetic import inverse_root
from metricforge.rows import Array
from metricforge.space import Space, explicit_map, explicit_width

from .chunked_graph import ChunkedGraph, chunked_graph
from .laplacian import LaplacianInMemory
from .pairs import SignedPairs
from .unit import unit_rows

if TYPE_CHECKING:
    from scipy.sparse import csr_array


EVERY_PAIR = 2 * 10**9
"""Up to this many kernel values all pairs of rows are compared; beyond, landmark features are searched.  This concerns
kernels whose neighbours cannot be searched in vectors."""
ORDERED_ROWS = 20_000
"""Reorder this many rows or more for a small bandwidth: block products of 2e5 rows take a third of the time."""


GATHERED_ROWS = 20_000
"""Up to this many dask rows the graph, about 20 MB, is gathered and the eigenproblem solved in this process."""


@dataclass(frozen=True, eq=False)
class NeighborGraph:
    """A graph on n rows, which are reordered for a small bandwidth.

    Attributes
    ----------
    laplacian : (n, n) csr_array
        L = P − D^-1/2 S D^-1/2, eq. (3), with P_ii = 1 where row i has a neighbour.  An isolated row has L_ii = 0: it
        is a component of its own, and L_ii = 1 would penalise it for having no neighbour.
    degrees : (n,) array
    order : (n,) int array
        Row ``order[p]`` of X is at position p.
    recall : float
        The estimated share of true neighbours in the lists behind the graph.
    """

    laplacian: csr_array
    degrees: Array
    order: Array
    recall: float = 1.0

    @property
    def isolated(self) -> int:
        """The number of rows without a neighbour."""
        return int(np.count_nonzero(self.degrees == 0))

    @property
    def edges(self) -> int:
        """The number of edges, if all have the weight 1."""
        return int(self.degrees.sum()) // 2

    def placed(self, pairs: SignedPairs) -> SignedPairs:
        """Return the pairs by position."""
        return pairs.renumbered(self.positions(np.arange(len(self.order))))

    @property
    def operator(self) -> LaplacianInMemory:
        """The Laplacian, for pairs by position."""
        return LaplacianInMemory(self.laplacian)

    def embedded(self, V: Array, scale: Array, pairs: SignedPairs, normalize: bool) -> Array:
        """Return V diag(scale) in the order of the rows of X; rows that no path connects with a pair are 0."""
        E = V[:, : len(scale)] * scale
        # eigenvectors vanish there up to rounding, which normalisation would turn into a direction
        E[~connected_to_pairs(self.laplacian, pairs)] = 0.0
        return self.by_row(unit_rows(E) if normalize else E)

    def positions(self, rows: Array) -> Array:
        """Return the positions of rows of X."""
        place = np.empty(len(self.order), dtype=np.int64)
        place[self.order] = np.arange(len(self.order))
        return np.asarray(place[rows])

    def by_row(self, values: Array) -> Array:
        """Return values given by position in the order of the rows of X."""
        out = np.empty_like(values)
        out[self.order] = values
        return out


def neighbor_graph(
    space: Space, k: int, kind: Literal["mutual", "union"], seed: int, recall: float = 0.95
) -> NeighborGraph | ChunkedGraph:
    """Connect each row with its k nearest (mutual: if each is among the nearest of the other), ties by row number.

    Many rows are searched approximately, to the given recall.  The graph of many dask rows stays on the workers.  Cost:
    that of the search; then O(nk) time and at most 28 bytes per neighbour.
    """
    (lists, _), found = nearest_rows(space, k, seed, recall)
    if _rows.is_dask(lists) and space.n > GATHERED_ROWS:
        return chunked_graph(lists, kind, found)
    return graph_of(neighbors.graph(_rows.gathered(lists), kind=kind), found)


def graph_of(S: csr_array, recall: float = 1.0) -> NeighborGraph:
    """Return the graph of a symmetric matrix of weights >= 0."""
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    n = S.shape[0]
    order = np.arange(n)
    if n >= ORDERED_ROWS:
        order = reverse_cuthill_mckee(S, symmetric_mode=True).astype(np.int64)
        S = S[order][:, order]
    degrees = np.asarray(S.sum(axis=1), dtype=np.float64)
    return NeighborGraph(_laplacian(S, degrees), degrees, order, recall)


def _laplacian(S: csr_array, degrees: Array) -> csr_array:
    from scipy.sparse import csr_array, diags_array

    scale = inverse_root(degrees)
    S = S.copy()
    S.data *= np.repeat(scale, np.diff(S.indptr))
    S.data *= scale[S.indices]
    return csr_array(diags_array((degrees > 0).astype(np.float64), format="csr") - S)


def connected_to_pairs(laplacian: csr_array, pairs: SignedPairs) -> Array:
    """Return which rows are connected to a pair by the graph and the pairs; elsewhere A = −L ⪯ 0, so K is 0."""
    from scipy.sparse.csgraph import connected_components

    _, component = connected_components(pairs.matrix(np.ones(pairs.p)) - laplacian, directed=False)
    there = np.zeros(component.max() + 1, dtype=bool)
    there[component[pairs.i]] = there[component[pairs.j]] = True  # both: an edge and a pair may cancel to no entry
    return np.asarray(there[component])


# ---------------------------------------------------------------------------------------------------------- the search


def nearest_rows(space: Space, k: int, seed: int, recall: float = 0.95) -> tuple[tuple[Any, Any], float]:
    """Return the k nearest other rows of each row, indices and distances, lazy on dask; and their estimated recall."""
    kernel, X = space.kernel, space.rows
    Z = vectors(kernel, X)
    if Z is None and space.n**2 > EVERY_PAIR:
        Z = space.features
    if Z is not None:
        return neighbors.search_with_recall(Z, k, recall=recall, seed=seed)
    if _rows.is_dask(X):
        return across(partial(_search_by_kernel, kernel), X, k), 1.0
    return _search_by_kernel(kernel, X, k), 1.0


def nearest_to(kernel: Kernel, X: Any, queries: Any, k: int) -> Array:
    """Return the k rows of X nearest to each query, all in memory; exact."""
    Z = vectors(kernel, X)
    if Z is None:
        return _search_by_kernel(kernel, X, k, queries=queries)[0]
    return neighbors.search(Z, k, queries=_same_container(vectors(kernel, queries), Z), method="exact")[0]


def _same_container(queries: Any, X: Any) -> Any:
    """Return queries in the container of X, dense or CSR: a metric learned on one kind takes rows of the other."""
    if _rows.is_sparse(queries) and not _rows.is_sparse(X):
        return queries.toarray()
    return type(X)(queries) if _rows.is_sparse(X) and not _rows.is_sparse(queries) else queries


def vectors(kernel: Kernel, X: Any) -> Any | None:
    """Return vectors whose Euclidean distances are in the order of the distances of the kernel, or None."""
    if isinstance(kernel, RBF):
        return vectors(kernel.base or Linear(), X)
    if isinstance(kernel, Linear | Cauchy):
        return X
    if isinstance(kernel, Standardized):
        return vectors(kernel.kernel, scaled(kernel, X))
    own = kernel.embedding()
    if own is not None and own.exact:
        return own(X)
    width = explicit_width(kernel, X)
    return None if width is None else explicit_map(kernel, width)(X)


def scaled(kernel: Standardized, X: Any) -> Any:
    """Return the scaled rows: in memory in one piece, because sparse rows remain sparse, or lazy on dask."""
    if not _rows.is_dask(X):
        return kernel.transform(X)
    return X.map_blocks(kernel.transform, dtype=_rows.float_dtype(X), meta=X._meta)


def _search_by_kernel(kernel: Kernel, X: Any, k: int, *, queries: Any | None = None) -> tuple[Array, Array]:
    """Search by the distance of the kernel itself."""
    Q = X if queries is None else queries
    n, q = _rows.count(X), _rows.count(Q)

    def block(q0: int, q1: int, c0: int, c1: int) -> Array:
        return kernel.distance(Q[q0:q1], X[c0:c1])

    return neighbors.search_blocks(block, n, q, k, exclude_self=queries is None)
