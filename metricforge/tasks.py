"""What one does with a metric: cluster under hints, classify, and the scores of the papers.

Everything works on plain arrays: an embedding ``Z`` whose Euclidean distances are the metric's (what
``metric.transform`` returns) or a Gram matrix.  The scores that compare rows also take the metric itself.  For the
Rand index, the adjusted Rand index and nearest-neighbour errors use scikit-learn on these arrays; never show a Rand
index without `one_cluster_rand` beside it.  `KernelRule`, a scikit-learn classifier, is imported when first used.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from .errors import InputError, NotAcceptedError, first_rows, whole_number
from .rows import as_vectors, blocks, count, is_dask, is_sparse, take, width

if TYPE_CHECKING:
    from .constraints import Chunklets, Pairs, Triplets
    from .kernelrule import KernelRule as KernelRule
    from .kernels import Kernel
    from .metric import Metric

Array: TypeAlias = NDArray[Any]
Score: TypeAlias = tuple[int, float]  # cannot-links broken, then cost
Earlier: TypeAlias = list[list[tuple[int, int]]]  # of each node the earlier neighbours, and how many row pairs behind

logger = logging.getLogger(__name__)

EXACT_SIZE = 8
"""Cannot-link components up to this many super-points are searched anew in every assignment step."""
STEPS, STEPS_PER_NODE = 2000, 10
"""How long one component is searched: a fraction of a second, up to thousands of super-points."""
SWEEPS = 50
"""The most passes over all pairs of clusters in one descent by exchanges; a handful is usual."""
UNBOUNDED = 2**62
"""More cannot-links than anyone can break."""


# ------------------------------------------------------------------------------------------------ constrained k-means


@dataclass(frozen=True, eq=False)
class KMeansResult:
    """What `constrained_kmeans` found.

    Attributes
    ----------
    labels : (n,) int array
        The cluster of every row.
    centers : (n_clusters, m) array
        The mean of every cluster's rows.
    inertia : float
        Sum over all rows of the squared distance to the center, must-linked rows counted one by one.
    n_iter : int
        Iterations of the start that won.
    feasible : bool
        Whether every cannot-link is honoured.  False says that no start found such an assignment; where the hints
        contradict each other there is none.
    violated : (v, 2) int array
        The cannot-links that are not honoured.
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
    constraint: Pairs | Chunklets | None = None,
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

    and the last sum does not depend on the labels: must-links always hold, and what remains is weighted k-means.
    Without cannot-links that is scikit-learn's.  With them the assignment step colours the graph of cannot-links at
    least cost, which is NP-hard.  Components of the graph that the nearest centers satisfy need nothing.  Small ones
    are searched by branch and bound, most constrained super-point first (Wagstaff et al. visit rows in data order and
    give up at the first dead end).  Large ones get one such search per start, of limited length, and where it fails a
    tabu search that mends what it can; later steps exchange two clusters along chains of cannot-links while that
    lowers the cost, which is exact for two clusters if nothing is broken.  No iteration raises (cannot-links broken,
    inertia), so the loop ends.

    Parameters
    ----------
    Z : (n, m) array
        The embedding, for instance ``metric.transform(X)``.
    n_clusters : int
        At most the number of super-points.
    constraint : Pairs or Chunklets, optional
        Similar pairs and groups are must-links, dissimilar pairs cannot-links.
    n_init : int
        Starts by k-means++; the one with the fewest broken cannot-links wins, then the one with the least inertia.
    max_iter : int
        Iterations of one start at the most.
    seed : int
        Same seed, same answer.

    Returns
    -------
    KMeansResult
        Cannot-links that no start could honour make ``feasible`` False and are listed, never passed over.

    Notes
    -----
    Time O(n_init · n_iter · n · n_clusters · m); memory O(n · n_clusters) beside a float64 Z and its super-points.
    Every cluster gets at least one super-point, except that without cannot-links scikit-learn leaves clusters empty,
    with a warning, when there are fewer distinct positions than clusters.

    References
    ----------
    K. Wagstaff, C. Cardie, S. Rogers, S. Schroedl. Constrained k-means clustering with background knowledge. ICML
    2001.  The clustering of the KRCA paper's Sec. IV.
    """
    Z = _embedding(Z, "Z")
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
    S = Z if len(weight) == len(Z) else _means(Z, component, np.ones(len(Z)))
    links = _CannotLinks(component[dissimilar], weight)
    if len(links.nodes):
        starts = np.random.default_rng(seed).integers(2**31, size=n_init).tolist()
        runs = (_lloyd(S, weight, links, n_clusters, max_iter, start) for start in starts)
        _, super_labels, n_iter = min(runs, key=lambda run: run[0])
        centers = np.empty((n_clusters, Z.shape[1]))
    else:
        from sklearn.cluster import KMeans

        kmeans = KMeans(n_clusters, n_init=n_init, max_iter=max_iter, tol=0.0, random_state=seed % 2**32)
        kmeans.fit(S, sample_weight=weight)
        super_labels, n_iter, centers = kmeans.labels_, kmeans.n_iter_, kmeans.cluster_centers_
    labels = super_labels[component].astype(np.int64)
    used, dense = np.unique(labels, return_inverse=True)
    centers[used] = _means(Z, dense, np.ones(len(Z)))
    violated = dissimilar[labels[dissimilar[:, 0]] == labels[dissimilar[:, 1]]]
    if len(violated):
        logger.info("%d of %d cannot-links are not honoured", len(violated), len(dissimilar))
    return KMeansResult(
        labels=labels,
        centers=centers,
        inertia=_inertia(Z, labels, centers, np.ones(len(Z))),
        n_iter=int(n_iter),
        feasible=not len(violated),
        violated=violated,
    )


def _contract(constraint: Pairs | Chunklets | None, n: int) -> tuple[Array, Array]:
    """Return the super-point of every row, numbered by first row, and the cannot-links as pairs of rows."""
    from .constraints import Chunklets, Pairs, components_of

    nothing = np.empty((0, 2), dtype=np.int64)
    if constraint is None:
        return np.arange(n), nothing
    if not isinstance(constraint, Pairs | Chunklets):
        raise NotAcceptedError(
            f"constraint must be Pairs or Chunklets, got {type(constraint).__name__}; "
            "convert it first, for instance with constraint.to(mf.Pairs)"
        )
    constraint.check(n, "constraint")
    if isinstance(constraint, Pairs):
        return components_of(constraint.similar, n), constraint.dissimilar
    grouped = np.flatnonzero(constraint.codes >= 0)
    _, first, group = np.unique(constraint.codes[grouped], return_index=True, return_inverse=True)
    return components_of(np.stack([grouped, grouped[first[group]]], axis=1), n), nothing


def _lloyd(
    S: Array, weight: Array, links: _CannotLinks, n_clusters: int, max_iter: int, seed: int
) -> tuple[Score, Array, int]:
    """Run one start and return its score, its labels and its number of iterations."""
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
        centers = _means(S, new, weight)
        score = links.broken(new[links.nodes]), _inertia(S, new, centers, weight)
        if score >= best:
            break
        best, labels = score, new
    return best, labels, n_iter


def _fill_empty(labels: Array, cost: Array) -> None:
    """Give every empty cluster the super-point that costs most where it is; alone there, it breaks no cannot-link."""
    size = np.bincount(labels, minlength=cost.shape[1])
    for empty in np.flatnonzero(size == 0):
        paid = np.where(size[labels] > 1, np.take_along_axis(cost, labels[:, None], axis=1)[:, 0], -1.0)
        moved = paid.argmax()
        size[labels[moved]] -= 1
        size[empty] = 1
        labels[moved] = empty


def _means(Z: Array, group: Array, weight: Array) -> Array:
    """Return the weighted mean row of every group ``0 .. group.max()``, none of them empty."""
    from scipy.sparse import csr_array

    n, total = len(Z), np.bincount(group, weights=weight)
    indicator = csr_array((weight.astype(float), group, np.arange(n + 1)), shape=(n, len(total)))
    means: Array = indicator.T @ Z / total[:, None]
    return means


def _inertia(Z: Array, labels: Array, centers: Array, weight: Array) -> float:
    """Return Σ_i w_i ‖z_i − c_l(i)‖² from the differences themselves, in blocks."""
    return sum(
        float(weight[rows] @ ((Z[rows] - centers[labels[rows]]) ** 2).sum(axis=1))
        for rows in blocks(len(Z), 16 * Z.shape[1])
    )


class _CannotLinks:
    """Cannot-links between super-points: a graph whose components are contiguous and in the order of the search.

    The order is a maximum cardinality search: next comes the super-point with the most neighbours already placed,
    then the one with the most neighbours, then the heaviest.  Along it a colouring never meets a dead end on trees,
    cliques and other chordal graphs, and with two colours everything after the first super-point is forced.

    Attributes
    ----------
    nodes : (t,) int array
        The super-points that have a cannot-link; positions below refer to this array.
    edges : (e, 2) int array
        Earlier and later position of each distinct cannot-link.
    times : (e,) int array
        How many pairs of rows stand behind it.
    """

    def __init__(self, pairs: Array, weight: Array) -> None:
        pairs = pairs[pairs[:, 0] != pairs[:, 1]]  # inside a super-point no label helps
        edges, self.times = np.unique(np.sort(pairs, axis=1), axis=0, return_counts=True)
        nodes, ends = np.unique(edges, return_inverse=True)
        ends = ends.reshape(-1, 2)
        order, self.starts = _search_order(ends, weight[nodes])
        self.nodes = nodes[order]
        position = np.empty_like(order)
        position[order] = np.arange(len(order))
        self.edges = np.sort(position[ends], axis=1)
        self.component = np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))
        # of every position, the earlier neighbours counted from the start of the component, and how often
        self.before: Earlier = [[] for _ in order]
        for (i, j), times in zip(self.edges.tolist(), self.times.tolist(), strict=True):
            self.before[j].append((i - int(self.starts[self.component[j]]), times))

    def broken(self, labels: Array) -> int:
        """Return how many pairs of rows behind the cannot-links share a label."""
        i, j = self.edges.T
        return int(self.times[labels[i] == labels[j]].sum())

    def start(self, cost: Array, seed: int) -> Array:
        """Return labels that break few cannot-links, none if the search can help it, at a low cost."""
        labels, conflicted = self._nearest(cost)
        rng = np.random.default_rng(seed)
        for part in conflicted:
            before, prices = self.before[part], cost[part].tolist()
            found = _search(prices, before, (0, np.inf))
            if found is None:
                found = _search(prices, before, (UNBOUNDED, np.inf))
                assert found is not None  # nothing is cut off before the first assignment is complete
                if len(found) > EXACT_SIZE:
                    found = _mend(found, before, cost.shape[1], rng)
            labels[part] = found
        self._exchange(labels, cost, conflicted)
        return labels

    def assign(self, cost: Array, previous: Array) -> Array:
        """Return labels at least as good as ``previous`` in (cannot-links broken, cost), component by component."""
        labels, conflicted = self._nearest(cost)
        for part in conflicted:
            labels[part] = previous[part]
            if part.stop - part.start <= EXACT_SIZE:
                prices, before, kept = cost[part].tolist(), self.before[part], previous[part].tolist()
                score = _broken(kept, before), sum(row[label] for row, label in zip(prices, kept, strict=True))
                labels[part] = _search(prices, before, score) or kept
        self._exchange(labels, cost, conflicted)
        return labels

    def _nearest(self, cost: Array) -> tuple[Array, list[slice]]:
        """Return the cheapest labels and the components in which these break a cannot-link."""
        labels = cost.argmin(axis=1)
        i, j = self.edges.T
        conflicted = np.unique(self.component[i[labels[i] == labels[j]]])
        return labels, [slice(self.starts[c], self.starts[c + 1]) for c in conflicted]

    def _exchange(self, labels: Array, cost: Array, parts: list[slice]) -> None:
        """Exchange two labels along chains (Kempe's) of cannot-links between them while that lowers the cost.

        A chain is a component of the graph induced by the two labels, so an exchange breaks no cannot-link and mends
        none; a super-point that no cannot-link ties to the other label is a chain of its own.
        """
        from .constraints import components_of

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
                # label a meets b in the turn a + b (mod k): every two labels once, all pairs of a turn together
                other = (turn - mine) % n_clusters
                linked = (mine[i] == mine[j]) | (mine[i] == other[j])
                chain = components_of(np.stack([i[linked], j[linked]], axis=1), len(chosen))
                now, then = cost[every, mine], cost[every, other]
                # beyond rounding, so that no exchange is ever taken back
                swap = (np.bincount(chain, now - then) > 1e-12 * np.bincount(chain, now + then))[chain]
                mine = np.where(swap, other, mine)
                improved |= bool(swap.any())
            if not improved:
                break
        labels[chosen] = mine


def _search_order(edges: Array, weight: Array) -> tuple[Array, Array]:
    """Return nodes in maximum cardinality order and where each component starts in it (with the end)."""
    neighbours: list[list[int]] = [[] for _ in weight]
    for i, j in edges.tolist():
        neighbours[i].append(j)
        neighbours[j].append(i)
    placed = [0] * len(weight)  # neighbours already in the order; -1 once the node itself is
    heap = [(0, -len(near), -w, i) for i, (near, w) in enumerate(zip(neighbours, weight.tolist(), strict=True))]
    heapq.heapify(heap)
    order: list[int] = []
    starts: list[int] = []
    while heap:
        known, _, _, i = heapq.heappop(heap)
        if placed[i] != -known:
            continue  # out of date: a better entry was pushed later
        if known == 0:
            starts.append(len(order))
        order.append(i)
        placed[i] = -1
        for j in neighbours[i]:
            if placed[j] >= 0:
                placed[j] += 1
                heapq.heappush(heap, (-placed[j], -len(neighbours[j]), -int(weight[j]), j))
    return np.asarray(order, dtype=np.int64), np.asarray([*starts, len(order)], dtype=np.int64)


def _search(cost: list[list[float]], before: Earlier, ceiling: Score) -> list[int] | None:
    """Return the labels of least (cannot-links broken, cost) below ``ceiling``, or None.

    Depth first along the order of the nodes, labels by what they break and then by cost, cut off by the bound "what
    is spent and the cheapest label for every later node".  Exhaustive unless the number of steps runs out.
    """
    size = len(cost)
    rest = np.concatenate([np.cumsum([min(row) for row in cost][::-1])[::-1], [0.0]]).tolist()

    def options(node: int) -> Iterator[tuple[int, float, int]]:
        breaks = [0] * len(cost[node])
        for j, times in before[node]:
            breaks[labels[j]] += times
        return iter(sorted(zip(breaks, cost[node], range(len(breaks)), strict=True)))

    best, found = ceiling, None
    labels = [0] * size
    spent: list[Score] = [(0, 0.0)] * (size + 1)
    stack = [options(0)]
    for _ in range(STEPS + STEPS_PER_NODE * size):
        node = len(stack) - 1
        breaks, price, labels[node] = next(stack[-1], (UNBOUNDED, np.inf, -1))
        broken, paid = spent[node][0] + breaks, spent[node][1] + price
        if (broken, paid + rest[node + 1]) >= best:
            stack.pop()  # the options that follow are no better
            if not stack:
                break
        elif node + 1 < size:
            spent[node + 1] = broken, paid
            stack.append(options(node + 1))
        else:
            best, found = (broken, paid), labels.copy()
    return found


def _mend(start: list[int], before: Earlier, n_clusters: int, rng: np.random.Generator) -> list[int]:
    """Return labels that break fewer cannot-links, by tabu search (Hertz and de Werra 1987).

    Each step gives one node of a broken cannot-link the label that breaks least, even if that is more than now.  The
    label it leaves is closed to it for some steps, unless taking it would be the best so far.
    """
    size = len(start)
    near: Earlier = [[] for _ in before]
    for i, earlier in enumerate(before):
        for j, times in earlier:
            near[i].append((j, times))
            near[j].append((i, times))
    neighbours = [np.asarray(pairs).T for pairs in near]  # each (2, degree): who, how often
    breaks = np.zeros((size, n_clusters), dtype=np.int64)  # what node v breaks with label l
    for v, (who, times) in enumerate(neighbours):
        np.add.at(breaks[v], np.asarray(start)[who], times)
    every, labels, best = np.arange(size), np.asarray(start), start
    total = least = _broken(start, before)
    closed = np.zeros((size, n_clusters), dtype=np.int64)  # until which step
    for step in range(STEPS + STEPS_PER_NODE * size):
        own = breaks[every, labels]
        bad = np.flatnonzero(own)
        if not len(bad):
            break
        change = breaks[bad] - own[bad, None]
        shut = (closed[bad] > step) & (total + change >= least)
        shut[every[: len(bad)], labels[bad]] = True
        change[shut] = UNBOUNDED
        row, new = rng.choice(np.argwhere(change == change.min()))
        v, old = bad[row], labels[bad[row]]
        total += int(breaks[v, new] - own[v])
        labels[v] = new
        closed[v, old] = step + len(bad) + rng.integers(5, 15)
        who, times = neighbours[v]
        breaks[who, old] -= times
        breaks[who, new] += times
        if total < least:
            least, best = total, labels.tolist()
    return best


def _broken(labels: list[int], before: Earlier) -> int:
    return sum(times for i, earlier in enumerate(before) for j, times in earlier if labels[i] == labels[j])


# ------------------------------------------------------------------------------------------------------------- scores


def triplet_accuracy(
    metric: Metric | Kernel | None,
    X: Any,
    triplets: Triplets,
    *,
    by: Literal["distance", "kernel"] = "distance",
    both: bool = False,
) -> float:
    """Return the fraction of judgements "i is more like j than like k" that a metric agrees with.

    By distance a judgement is met when d(i, j) < d(i, k), by kernel when k(i, j) > k(i, k); the two differ where the
    k(x, x) do.  With ``both``, j must also be more like i than like k: d(i, j) < d(j, k), or k(i, j) > k(j, k).  That
    is the "percentage correct" of Fung et al., for triplets whose i and j share a class.  A tie does not meet it.

    Parameters
    ----------
    metric : Metric, Kernel or None
        None: X is an embedding, compared by Euclidean distance and inner product.
    X : rows
        What the indices of the triplets refer to.
    triplets : Triplets

    Notes
    -----
    Two (with ``both`` three) kernel values a triplet, in blocks: O(t) time, memory for a block of rows.

    References
    ----------
    G. Fung, R. Rosales, R. B. Rao. Feature selection and kernel design via linear programming. IJCAI 2007, Sec. 3.1.
    """
    from .constraints import Triplets

    kernel = _kernel(metric)
    X = kernel.check(X, "X")
    if not isinstance(triplets, Triplets):
        raise NotAcceptedError(
            f"triplets must be Triplets, got {type(triplets).__name__}; write mf.Triplets([(i, j, k), ...], n=len(X))"
        )
    triplets.check(count(X), "triplets")
    if not triplets.size:
        raise InputError("triplets holds no triplet, so there is no fraction of them; give at least one")
    if by not in ("distance", "kernel"):
        raise InputError(f'by must be "distance" or "kernel", got {by!r}')

    def likeness(A: Any, B: Any) -> Array:
        return kernel.paired(A, B) if by == "kernel" else -kernel.paired_squared_distance(A, B)

    met = 0
    # at most 8192 triplets at a time: a learned kernel may need a thousand features for each row
    for part in blocks(triplets.size, 8 * max(1024, 3 * (width(X) or 1))):
        first, second, third = (take(X, rows) for rows in triplets.triples[part].T)
        alike = likeness(first, second)
        agrees = alike > likeness(first, third)
        if both:
            agrees &= alike > likeness(second, third)
        met += int(np.count_nonzero(agrees))
    return met / triplets.size


def alignment(y: Any, *, K: Any = None, Z: Any = None) -> float:
    """Return the alignment ⟨K, K*⟩ / (‖K‖ ‖K*‖) of a kernel with the ideal kernel of the labels.

    K*_ij = 1 where y_i = y_j and 0 elsewhere; the products are Frobenius's.  1 is perfect, and nothing is centred.
    Of an embedding Z with K = Z Z' only ⟨K, K*⟩ = Σ_c ‖Σ_{i in c} z_i‖² and ‖K‖ = ‖Z'Z‖ are formed.

    Parameters
    ----------
    y : array of n labels, or Labels
    K : (n, n) array
        The Gram matrix; or
    Z : (n, m) array
        an embedding, for instance ``metric.transform(X)``.

    Notes
    -----
    K: O(n²) time, memory for a block of rows.  Z: O(n m²) time, memory for a copy of Z and O(m² + m · classes).

    References
    ----------
    J. T. Kwok, I. W. Tsang. Learning with idealized kernels. ICML 2003, eq. (1) and Sec. 2.
    """
    if (K is None) == (Z is None):
        raise InputError("give either the Gram matrix K or an embedding Z with K = Z Z', not both and not neither")
    A = _embedding(K, "K") if Z is None else _embedding(Z, "Z")
    n = len(A)
    codes = _classes(y, n)
    size = np.bincount(codes).astype(np.float64)
    scale = float(max(A.max(), -A.min())) or 1.0  # so that no product overflows or vanishes
    if Z is None:
        if A.shape != (n, n):
            raise InputError(f"K must be a square Gram matrix, got shape {A.shape}; an embedding goes in as Z=")
        product = square = 0.0
        for rows in blocks(n, 32 * n):
            part = A[rows] / scale
            product += float(part[codes[rows, None] == codes].sum())
            square += float(np.vdot(part, part))
        norm = np.sqrt(square)
    else:
        A = A / scale
        product = float((size[:, None] ** 2 * _means(A, codes, np.ones(n)) ** 2).sum())
        norm = float(np.linalg.norm(A.T @ A if A.shape[1] <= n else A @ A.T))
    if norm == 0:
        raise InputError(f"{'K' if Z is None else 'Z'} is zero everywhere, so it has no direction to be aligned")
    return float(product / (norm * np.linalg.norm(size)))


@dataclass(frozen=True, eq=False)
class RetrievalResult:
    """What `retrieval_auc` found.

    Attributes
    ----------
    auc : float
        The mean over the queries that have one.
    per_query : (q,) array
        The area under the ROC curve of each of ``queries``.
    queries : (q,) int array
        The rows that were asked about and have both a row of their class and one of another beside them.
    left_out : int array
        The rows that were asked about and do not.
    """

    auc: float
    per_query: Array
    queries: Array
    left_out: Array


def retrieval_auc(metric: Metric | Kernel | None, X: Any, y: Any, *, queries: Any = None) -> RetrievalResult:
    """Rank all other rows by their distance to each query and score how well the query's class comes first.

    The score of a query is the area under the ROC curve: the probability that a row of its class is nearer than a row
    of another, ties counting one half.  Squared distances that differ by less than 2⁻³⁴ of the query's largest are
    ties: rounding must not put equal distances in an order.

    Parameters
    ----------
    metric : Metric, Kernel or None
        None: X is an embedding, compared by Euclidean distance.
    X : rows in memory
    y : array of n labels, or Labels
    queries : row numbers, optional
        Which rows to ask about; default: all.

    Notes
    -----
    O(n log n) time a query beside the distances; memory for a block of distances.  A learned kernel represents all n
    rows anew for every block: for many queries over many rows give its embedding,
    ``retrieval_auc(None, metric.transform(X), y)``.

    References
    ----------
    The measure of the KRCA paper's Table II.
    """
    from scipy.stats import rankdata

    kernel = _kernel(metric)
    if is_dask(X):
        raise InputError("X is a dask array, and this works in memory; call X.compute() first")
    X = kernel.check(X, "X")
    n = count(X)
    codes = _classes(y, n)
    asked = np.arange(n) if queries is None else _row_numbers(queries, n, "queries")
    positives = np.bincount(codes)[codes[asked]] - 1
    negatives = n - 1 - positives
    scored = (positives > 0) & (negatives > 0)
    if not scored.any():
        raise InputError(
            "y: no query has both another row of its class and a row of a different one; give at least two classes, "
            "and classes of two rows or more"
        )
    found, positives, negatives = asked[scored], positives[scored], negatives[scored]
    per_query = np.empty(len(found))
    for part in blocks(len(found), 48 * n):
        rows = found[part]
        D = np.array(kernel.squared_distance(X[rows], X), dtype=np.float64)  # (b, n)
        if not np.isfinite(D).all():
            bad = first_rows(rows[~np.isfinite(D).all(axis=1)])
            raise InputError(f"metric: the distances from {bad} of X are not finite; check the kernel")
        # a power of two, so that distances between whole numbers stay what they are
        grain = np.exp2(np.ceil(np.log2(np.maximum(D.max(axis=1), np.finfo(float).tiny))) - 34)
        D = np.rint(D / grain[:, None])
        D[np.arange(len(rows)), rows] = -1  # the query itself comes first, and alone
        rank = rankdata(D, axis=1) - 1
        above = np.where(codes[rows, None] != codes, rank, 0.0).sum(axis=1)
        # Mann and Whitney: ranks of the negatives, less what they have among themselves
        per_query[part] = (above - negatives[part] * (negatives[part] + 1) / 2) / (positives[part] * negatives[part])
    return RetrievalResult(auc=float(per_query.mean()), per_query=per_query, queries=found, left_out=asked[~scored])


def one_cluster_rand(y: Any) -> float:
    """Return the Rand index of putting every row into one cluster, Σ_c n_c (n_c − 1) / (n (n − 1)).

    With unequal classes it is high: a Rand index means something only beside this one (and the adjusted Rand index,
    which is 0 here).  Rand and adjusted Rand index themselves are scikit-learn's ``rand_score`` and
    ``adjusted_rand_score``.
    """
    codes = _classes(y, None)
    n = len(codes)
    if n < 2:
        raise InputError("y has one row, which makes no pair; give at least two")
    size = np.bincount(codes)
    return float((size * (size - 1)).sum() / (n * (n - 1)))


# -------------------------------------------------------------------------------------------------------------- input


def _embedding(Z: Any, name: str) -> Array:
    """Return dense float64 rows in memory."""
    if is_dask(Z):
        raise InputError(f"{name} is a dask array, and this works in memory; call {name}.compute() first")
    if is_sparse(Z):
        raise InputError(f"{name} is sparse; give {name}.toarray(), or an embedding such as metric.transform(X)")
    return np.asarray(as_vectors(Z, name), dtype=np.float64)


def _kernel(metric: Metric | Kernel | None) -> Kernel:
    from .kernels import Kernel, Linear

    if metric is None:
        return Linear()
    # asked in this order, because composite kernels have a field of that name too
    kernel = metric if isinstance(metric, Kernel) else getattr(metric, "kernel", None)
    if not isinstance(kernel, Kernel):
        raise InputError(
            f"metric must be a Metric, a Kernel, or None where X is an embedding, got {type(metric).__name__}"
        )
    return kernel


def _classes(y: Any, n: int | None) -> Array:
    """Return the class number of every row; all must have one."""
    from .constraints import Labels

    labels = y if isinstance(y, Labels) else Labels(y)
    if n is not None:
        labels.check(n, "y")
    missing = np.flatnonzero(labels.codes < 0)
    if len(missing):
        raise InputError(f"y: {len(missing)} row(s) have no label, first {first_rows(missing)}; leave them out of both")
    return labels.codes


def _row_numbers(values: Any, n: int, name: str) -> Array:
    rows = np.asarray(values)
    if rows.ndim != 1 or not len(rows) or rows.dtype.kind not in "iu":
        raise InputError(f"{name} must be a list of row numbers, got shape {rows.shape} and dtype {rows.dtype}")
    bad = rows[(rows < 0) | (rows >= n)]
    if len(bad):
        raise InputError(f"{name} names {first_rows(bad)}, outside 0 .. {n - 1}; rows are counted from 0")
    return rows.astype(np.int64)


def __getattr__(name: str) -> Any:
    # its file imports scikit-learn, which this one must not
    if name == "KernelRule":
        return getattr(import_module(".kernelrule", __package__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
