"""K-means under must-links and cannot-links."""

from __future__ import annotations

import logging
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..constraints import Constraint, components_of
from ..errors import InputError, NotAcceptedError
from ..rows import blocks, check_memory
from ..validation import whole_number
from .cannot_links import UNBOUNDED, CannotLinks, Score
from .embeddings import as_embedding, group_means

Array = NDArray[Any]

COST_BYTES = 34
"""Measured peak memory per row and cluster under cannot-links: the costs and their temporaries."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class KMeansResult:
    """The result of `constrained_kmeans`.

    Attributes
    ----------
    labels : (n,) int array
        The cluster of every row.
    centers : (n_clusters, m) array
        The mean of every cluster's rows.
    inertia : float
        Sum over all rows of the squared distance to the center; must-linked rows count one by one.
    n_iter : int
        Iterations of the best start.
    feasible : bool
        Whether every cannot-link is satisfied.  False means that no start found such an assignment; where links
        contradict each other there is none.
    violated : (v, 2) int array
        The cannot-links that are not satisfied.
    """

    labels: Array
    centers: Array
    inertia: float
    n_iter: int
    feasible: bool
    violated: Array


def constrained_kmeans(
    Z: Any,
    n_clusters: int,
    constraint: Constraint | None = None,
    *,
    n_init: int = 10,
    max_iter: int = 100,
    seed: int = 0,
) -> KMeansResult:
    """Cluster the rows of an embedding so that similar pairs stay together and dissimilar pairs apart.

    Minimise Σ_i ‖z_i − c_l(i)‖² over labels l and centers c, with l(i) = l(j) for must-links and l(i) ≠ l(j) for
    cannot-links.  Rows joined by must-links are contracted into a super-point s with weight w_s (its size) and
    position z̄_s (its mean), because for labels that keep them together

        Σ_i ‖z_i − c_l(i)‖² = Σ_s w_s ‖z̄_s − c_l(s)‖² + Σ_s Σ_{i in s} ‖z_i − z̄_s‖²

    and the last sum does not depend on the labels: must-links are always satisfied, and weighted k-means remains.
    Without cannot-links scikit-learn solves it.  With cannot-links the assignment step colours their graph at least
    cost, which is NP-hard.  Components of the graph that the nearest centers satisfy need no search.  Small components
    are searched by branch and bound, most constrained super-point first (Wagstaff et al. visit rows in data order and
    stop at the first dead end).  Each start searches a large component once, for a limited number of steps; if that
    fails, a tabu search reduces the number of violated cannot-links.  Later steps exchange two clusters along chains of
    cannot-links while that lowers the cost, which is exact for two clusters if no cannot-link is violated.  No
    iteration increases (violated cannot-links, inertia), so the loop ends.

    Parameters
    ----------
    Z : (n, m) array
        The embedding, for instance ``metric.transform(X)``.
    n_clusters : int
        At most the number of super-points.
    constraint : Constraint, optional
        A kind that has must-links and cannot-links (`Constraint.links`): similar pairs and the rows of a group are
        must-links, dissimilar pairs cannot-links.
    n_init : int
        Number of starts by k-means++.  The best one has the fewest violated cannot-links, then the least inertia.
    max_iter : int
        Maximum number of iterations per start.
    seed : int
        Same seed, same answer.

    Returns
    -------
    KMeansResult
        If no start satisfies all cannot-links, ``feasible`` is False and ``violated`` lists the others.

    Notes
    -----
    Time O(n_init · n_iter · n · n_clusters · m); memory O(n · n_clusters) in addition to a float64 Z and its
    super-points.
    Every cluster gets at least one super-point, except that without cannot-links scikit-learn leaves clusters empty,
    with a warning, when there are fewer distinct positions than clusters.

    References
    ----------
    K. Wagstaff, C. Cardie, S. Rogers, S. Schroedl. Constrained k-means clustering with background knowledge. ICML
    2001.  The KRCA paper clusters this way in Sec. IV.
    """
    Z = as_embedding(Z, "Z")
    n_clusters = whole_number(n_clusters, "n_clusters")
    n_init, max_iter = whole_number(n_init, "n_init"), whole_number(max_iter, "max_iter")
    seed = whole_number(seed, "seed", least=0)
    component, dissimilar = _contract(constraint, len(Z))
    weight = np.bincount(component)
    if n_clusters > len(weight):
        raise InputError(
            f"n_clusters is {n_clusters}, but the {len(Z)} rows of Z make {len(weight)} super-point(s) once "
            f"must-links are joined; ask for at most {len(weight)} clusters or give fewer must-links"
        )
    S = Z if len(weight) == len(Z) else group_means(Z, component, np.ones(len(Z)))
    links = CannotLinks(component[dissimilar], weight)
    if len(links.nodes):
        needed = COST_BYTES * len(S) * n_clusters
        check_memory(needed, f"{n_clusters} clusters of {len(S)} rows under cannot-links", "ask for fewer clusters")
        starts = np.random.default_rng(seed).integers(2**31, size=n_init).tolist()
        runs = (_lloyd(S, weight, links, n_clusters, max_iter, start) for start in starts)
        _, super_labels, n_iter = min(runs, key=lambda run: run[0])
        centers = np.empty((n_clusters, Z.shape[1]))
    else:
        from sklearn.cluster import KMeans

        kmeans = KMeans(n_clusters, n_init=n_init, max_iter=max_iter, tol=0.0, random_state=seed % 2**32)
        with warnings.catch_warnings():  # scikit-learn's, on fewer different rows than clusters
            warnings.simplefilter("ignore")
            kmeans.fit(S, sample_weight=weight)
        super_labels, n_iter, centers = kmeans.labels_, kmeans.n_iter_, kmeans.cluster_centers_
    labels = super_labels[component].astype(np.int64)
    used, dense = np.unique(labels, return_inverse=True)
    centers[used] = group_means(Z, dense, np.ones(len(Z)))
    violated = dissimilar[labels[dissimilar[:, 0]] == labels[dissimilar[:, 1]]]
    if len(violated):
        logger.info("%d of %d cannot-links are not satisfied", len(violated), len(dissimilar))
    return KMeansResult(
        labels=labels,
        centers=centers,
        inertia=_inertia(Z, labels, centers, np.ones(len(Z))),
        n_iter=int(n_iter),
        feasible=not len(violated),
        violated=violated,
    )


def _contract(constraint: Constraint | None, n: int) -> tuple[Array, Array]:
    """Return the super-point of every row, numbered by first row, and the cannot-links as pairs of rows."""
    if constraint is None:
        return np.arange(n), np.empty((0, 2), dtype=np.int64)
    links = constraint.links() if isinstance(constraint, Constraint) else None
    if links is None:
        raise NotAcceptedError(
            "constraint must have must-links or cannot-links, for instance Pairs or Chunklets, got "
            f"{type(constraint).__name__}; convert it first, for instance with constraint.to(mf.Pairs)"
        )
    constraint.check(n, "constraint")
    return components_of(links.must, n), links.cannot


def _lloyd(
    S: Array, weight: Array, links: CannotLinks, n_clusters: int, max_iter: int, seed: int
) -> tuple[Score, Array, int]:
    """Run one start; return its (violated cannot-links, inertia), its labels and its number of iterations."""
    from sklearn.cluster import kmeans_plusplus
    from sklearn.metrics.pairwise import euclidean_distances

    centers, _ = kmeans_plusplus(S, n_clusters, sample_weight=weight, random_state=seed)
    best: Score = (UNBOUNDED, np.inf)
    labels = np.empty(len(S), dtype=np.int64)
    for n_iter in range(1, max_iter + 1):
        cost = euclidean_distances(S, centers, squared=True) * weight[:, None]  # (s, k)
        new = cost.argmin(axis=1)
        linked = cost[links.nodes]
        new[links.nodes] = links.assign(linked, labels[links.nodes]) if n_iter > 1 else links.start(linked, seed)
        _fill_empty(new, cost)
        centers = group_means(S, new, weight)
        score = links.violated(new[links.nodes]), _inertia(S, new, centers, weight)
        if score >= best:
            break
        best, labels = score, new
    return best, labels, n_iter


def _fill_empty(labels: Array, cost: Array) -> None:
    """Move the super-point with the largest cost into every empty cluster, where it violates no cannot-link."""
    size = np.bincount(labels, minlength=cost.shape[1])
    for empty in np.flatnonzero(size == 0):
        paid = np.where(size[labels] > 1, np.take_along_axis(cost, labels[:, None], axis=1)[:, 0], -1.0)
        moved = paid.argmax()
        size[labels[moved]] -= 1
        size[empty] = 1
        labels[moved] = empty


def _inertia(Z: Array, labels: Array, centers: Array, weight: Array) -> float:
    """Return Σ_i w_i ‖z_i − c_l(i)‖² from the differences themselves, in blocks."""
    return sum(
        float(weight[rows] @ ((Z[rows] - centers[labels[rows]]) ** 2).sum(axis=1))
        for rows in blocks(len(Z), 16 * Z.shape[1])
    )
