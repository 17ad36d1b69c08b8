"""Colouring the graph of cannot-links at least cost: exact on small components, local search on large ones."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..constraints import components_of

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
