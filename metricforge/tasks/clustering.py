"""K-means under must-links and cannot-links."""

from __future__ import annotations

import heapq
import logging
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..constraints import Constraint, components_of
from ..errors import InputError, NotAcceptedError
from ..rows import blocks, check_memory, draw
from ..validation import whole_number, wrong
from .scores import as_embedding, group_means

Array: TypeAlias = NDArray[Any]
Score: TypeAlias = tuple[int, float]  # violated cannot-links, then cost
Earlier: TypeAlias = list[list[tuple[int, int]]]  # per node: (earlier neighbour, number of row pairs of the edge)

EXACT_SIZE = 8
"""Components of at most this many super-points are searched again in every assignment step."""
STEPS, STEPS_PER_NODE = 2000, 10
"""Limit of the search of one component: a fraction of a second, up to thousands of super-points."""
SWEEPS = 50
"""Maximum number of passes over all pairs of clusters in one descent by exchanges; fewer than ten are usual."""
UNBOUNDED = 2**62
"""Larger than any number of cannot-links."""


class CannotLinks:
    """Cannot-links between super-points: a graph whose components are contiguous and in search order.

    The order is a maximum cardinality search: next is the super-point with the most neighbours already placed, then
    the one with the most neighbours, then the heaviest.  In this order a colouring of trees, cliques and other chordal
    graphs has no dead end, and with two colours everything after the first super-point is determined.

    Attributes
    ----------
    nodes : (t,) int array
        The super-points that have a cannot-link; the positions below index this array.
    edges : (e, 2) int array
        Earlier and later position of each distinct cannot-link.
    times : (e,) int array
        The number of pairs of rows that each edge represents.
    """

    def __init__(self, pairs: Array, weight: Array) -> None:
        pairs = pairs[pairs[:, 0] != pairs[:, 1]]  # inside a super-point no labels can satisfy it
        edges, self.times = np.unique(np.sort(pairs, axis=1), axis=0, return_counts=True)
        nodes, ends = np.unique(edges, return_inverse=True)
        ends = ends.reshape(-1, 2)
        order, self.starts = _search_order(ends, weight[nodes])
        self.nodes = nodes[order]
        position = np.empty_like(order)
        position[order] = np.arange(len(order))
        self.edges = np.sort(position[ends], axis=1)
        self.component = np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))
        # of every position: (earlier neighbour, counted from the start of the component; number of row pairs)
        self.before: Earlier = [[] for _ in order]
        for (i, j), times in zip(self.edges.tolist(), self.times.tolist(), strict=True):
            self.before[j].append((i - int(self.starts[self.component[j]]), times))

    def violated(self, labels: Array) -> int:
        """Return the number of cannot-linked pairs of rows that share a label."""
        i, j = self.edges.T
        return int(self.times[labels[i] == labels[j]].sum())

    def start(self, cost: Array, seed: int) -> Array:
        """Return labels of low cost that violate few cannot-links, if possible none."""
        labels, conflicted = self._nearest(cost)
        rng = np.random.default_rng(seed)
        for part in conflicted:
            before, costs = self.before[part], cost[part].tolist()
            found = branch_and_bound(costs, before, (0, np.inf))
            if found is None:
                found = branch_and_bound(costs, before, (UNBOUNDED, np.inf))
                assert found is not None  # nothing is pruned before the first assignment is complete
                if len(found) > EXACT_SIZE:
                    found = tabu_search(found, before, cost.shape[1], rng)
            labels[part] = found
        self._exchange(labels, cost, conflicted)
        return labels

    def assign(self, cost: Array, previous: Array) -> Array:
        """Return labels at least as good as ``previous`` in (violated cannot-links, cost), component by component."""
        labels, conflicted = self._nearest(cost)
        for part in conflicted:
            labels[part] = previous[part]
            if part.stop - part.start <= EXACT_SIZE:
                costs, before, kept = cost[part].tolist(), self.before[part], previous[part].tolist()
                score = count_violated(kept, before), sum(row[label] for row, label in zip(costs, kept, strict=True))
                labels[part] = branch_and_bound(costs, before, score) or kept
        self._exchange(labels, cost, conflicted)
        return labels

    def _nearest(self, cost: Array) -> tuple[Array, list[slice]]:
        """Return the cheapest labels and the components in which these violate a cannot-link."""
        labels = cost.argmin(axis=1)
        i, j = self.edges.T
        conflicted = np.unique(self.component[i[labels[i] == labels[j]]])
        return labels, [slice(self.starts[c], self.starts[c + 1]) for c in conflicted]

    def _exchange(self, labels: Array, cost: Array, parts: list[slice]) -> None:
        """Exchange two labels along chains (Kempe's) of cannot-links between them while that lowers the cost.

        A chain is a component of the graph induced by the two labels, so an exchange does not change which
        cannot-links are violated; a super-point without a cannot-link to the other label is a chain by itself.
        """
        if not parts:
            return
        chosen = np.concatenate([np.arange(part.start, part.stop) for part in parts])
        place = np.full(len(labels), -1)
        place[chosen] = np.arange(len(chosen))
        i, j = place[self.edges[place[self.edges[:, 0]] >= 0]].T
        mine, cost, n_clusters = labels[chosen], cost[chosen], cost.shape[1]
        every = np.arange(len(chosen))
        for _ in range(SWEEPS):
            improved = False
            for turn in range(n_clusters):
                # label a is paired with b in turn a + b (mod k): every two labels once, all pairs of a turn together
                other = (turn - mine) % n_clusters
                linked = (mine[i] == mine[j]) | (mine[i] == other[j])
                chain = components_of(np.stack([i[linked], j[linked]], axis=1), len(chosen))
                now, then = cost[every, mine], cost[every, other]
                # by more than rounding, so that no exchange is undone later
                swap = (np.bincount(chain, now - then) > 1e-12 * np.bincount(chain, now + then))[chain]
                mine = np.where(swap, other, mine)
                improved |= bool(swap.any())
            if not improved:
                break
        labels[chosen] = mine


def _search_order(edges: Array, weight: Array) -> tuple[Array, Array]:
    """Return nodes in maximum cardinality order and the start of each component in it, plus the end."""
    neighbours: list[list[int]] = [[] for _ in weight]
    for i, j in edges.tolist():
        neighbours[i].append(j)
        neighbours[j].append(i)
    placed = [0] * len(weight)  # number of neighbours already in the order; -1 for nodes in the order
    heap = [(0, -len(near), -w, i) for i, (near, w) in enumerate(zip(neighbours, weight.tolist(), strict=True))]
    heapq.heapify(heap)
    order: list[int] = []
    starts: list[int] = []
    while heap:
        known, _, _, i = heapq.heappop(heap)
        if placed[i] != -known:
            continue  # stale: a better entry was pushed later
        if known == 0:
            starts.append(len(order))
        order.append(i)
        placed[i] = -1
        for j in neighbours[i]:
            if placed[j] >= 0:
                placed[j] += 1
                heapq.heappush(heap, (-placed[j], -len(neighbours[j]), -int(weight[j]), j))
    return np.asarray(order, dtype=np.int64), np.asarray([*starts, len(order)], dtype=np.int64)


def branch_and_bound(cost: list[list[float]], before: Earlier, ceiling: Score) -> list[int] | None:
    """Return the labels of least (violated cannot-links, cost) below ``ceiling``, or None.

    Depth first in the order of the nodes, labels by violations and then by cost, pruned by the bound "cost so far plus
    the cheapest label of every later node".  Exhaustive unless the limit of steps is reached.
    """
    size = len(cost)
    rest = np.concatenate([np.cumsum([min(row) for row in cost][::-1])[::-1], [0.0]]).tolist()

    def options(node: int) -> Iterator[tuple[int, float, int]]:
        violates = [0] * len(cost[node])
        for j, times in before[node]:
            violates[labels[j]] += times
        return iter(sorted(zip(violates, cost[node], range(len(violates)), strict=True)))

    best, found = ceiling, None
    labels = [0] * size
    spent: list[Score] = [(0, 0.0)] * (size + 1)
    stack = [options(0)]
    for _ in range(STEPS + STEPS_PER_NODE * size):
        node = len(stack) - 1
        violates, added, labels[node] = next(stack[-1], (UNBOUNDED, np.inf, -1))
        violated, total = spent[node][0] + violates, spent[node][1] + added
        if (violated, total + rest[node + 1]) >= best:
            stack.pop()  # the remaining options are no better
            if not stack:
                break
        elif node + 1 < size:
            spent[node + 1] = violated, total
            stack.append(options(node + 1))
        else:
            best, found = (violated, total), labels.copy()
    return found


def tabu_search(start: list[int], before: Earlier, n_clusters: int, rng: np.random.Generator) -> list[int]:
    """Return labels that violate fewer cannot-links, by tabu search (Hertz and de Werra 1987).

    Each step gives one node of a violated cannot-link the label with the fewest violations, even if their number
    increases.  The node's old label is forbidden for some steps, unless it would give the best labels so far.
    """
    size = len(start)
    near: Earlier = [[] for _ in before]
    for i, earlier in enumerate(before):
        for j, times in earlier:
            near[i].append((j, times))
            near[j].append((i, times))
    neighbours = [np.asarray(pairs).T for pairs in near]  # each (2, degree): neighbour, number of row pairs
    violates = np.zeros((size, n_clusters), dtype=np.int64)  # violations of node v with label l
    for v, (others, times) in enumerate(neighbours):
        np.add.at(violates[v], np.asarray(start)[others], times)
    every, labels, best = np.arange(size), np.asarray(start), start
    total = least = count_violated(start, before)
    forbidden = np.zeros((size, n_clusters), dtype=np.int64)  # the label is forbidden before this step
    for step in range(STEPS + STEPS_PER_NODE * size):
        own = violates[every, labels]
        bad = np.flatnonzero(own)
        if not len(bad):
            break
        change = violates[bad] - own[bad, None]
        skipped = (forbidden[bad] > step) & (total + change >= least)
        skipped[every[: len(bad)], labels[bad]] = True
        change[skipped] = UNBOUNDED
        row, new = rng.choice(np.argwhere(change == change.min()))
        v, old = bad[row], labels[bad[row]]
        total += int(violates[v, new] - own[v])
        labels[v] = new
        forbidden[v, old] = step + len(bad) + rng.integers(5, 15)
        others, times = neighbours[v]
        violates[others, old] -= times
        violates[others, new] += times
        if total < least:
            least, best = total, labels.tolist()
    return best


def count_violated(labels: list[int], before: Earlier) -> int:
    """Return the number of row pairs of cannot-links whose nodes share a label."""
    return sum(times for i, earlier in enumerate(before) for j, times in earlier if labels[i] == labels[j])


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


TRIED = tuple(range(2, 11))
"""Numbers of clusters that are tried."""
MOST_ROWS = 2000
"""Rows whose silhouettes are averaged: all pairs of them are compared."""


def clusters_by_silhouette(
    Z: Any, constraint: Constraint | None = None, *, tried: Sequence[int] = TRIED, seed: int = 0
) -> tuple[KMeansResult, dict[int, float]]:
    """Cluster an embedding into the number of clusters with the largest mean silhouette.

    The silhouette of a row is (b − a) / max(a, b), where a is its mean distance to the rows of its cluster and b that
    to the rows of the next nearest one.

    Parameters
    ----------
    Z : (n, m) array
        The embedding, for instance ``metric.transform(X)``.
    constraint : Constraint, optional
        As in `constrained_kmeans`.
    tried : numbers of clusters
    seed : int

    Returns
    -------
    KMeansResult
        The best clustering.
    dict of int to float
        The mean silhouette of every number that could be tried.

    Notes
    -----
    ``len(tried)`` clusterings, and all pairs of at most 2000 rows for each.
    """
    Z = as_embedding(Z, "Z")
    sample = draw(len(Z), MOST_ROWS, seed)
    silhouettes: dict[int, float] = {}
    best: KMeansResult | None = None
    from sklearn.metrics import silhouette_score

    if not np.iterable(tried):
        raise wrong("tried", "a list of whole numbers of at least 2", tried)
    for k in [whole_number(k, "tried", least=2) for k in tried]:
        if k >= len(Z):
            continue
        try:
            found = constrained_kmeans(Z, k, constraint, seed=seed)
        except InputError:
            continue  # fewer groups that must stay together than clusters
        labels = found.labels[sample]
        if not 1 < len(np.unique(labels)) < len(labels):
            continue
        silhouettes[k] = float(silhouette_score(Z[sample], labels))
        if best is None or silhouettes[k] > max((s for c, s in silhouettes.items() if c != k), default=-2.0):
            best = found
    if best is None:
        raise InputError("Z: no number of clusters could be tried; give more rows, or the number of clusters")
    return best, silhouettes
