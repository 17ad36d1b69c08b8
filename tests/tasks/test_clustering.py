"""Constrained k-means against brute force and scikit-learn."""

from __future__ import annotations

from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import cdist
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score

from metricforge.constraints import Chunklets, Pairs, components_of
from metricforge.tasks import KMeansResult, constrained_kmeans
from metricforge.tasks import clustering as cannot_links
from metricforge.tasks.clustering import (
    EXACT_SIZE,
    UNBOUNDED,
    CannotLinks,
    branch_and_bound,
    count_violated,
    tabu_search,
)

Array = np.ndarray[Any, Any]


def blobs(n: int, k: int, *, spread: float = 1.0, m: int = 2, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    y = rng.integers(k, size=n)
    return rng.normal(size=(n, m)) + spread * rng.normal(size=(k, m))[y], y


def inertia_of(Z: Array, labels: Array) -> float:
    return sum(float(((Z[labels == c] - Z[labels == c].mean(axis=0)) ** 2).sum()) for c in np.unique(labels))


def brute_force(Z: Array, k: int, pairs: Pairs) -> tuple[int, float]:
    """Return the least number of broken cannot-links, and the least inertia among labels that break so few."""
    every = np.array(list(product(range(k), repeat=len(Z))))
    for i, j in pairs.similar:
        every = every[every[:, i] == every[:, j]]
    broken = np.zeros(len(every), dtype=int)
    for i, j in pairs.dissimilar:
        broken += every[:, i] == every[:, j]
    every = every[broken == broken.min()]
    inertia = np.full(len(every), (Z**2).sum())
    for c in range(k):
        member = (every == c).astype(float)
        inertia -= ((member @ Z) ** 2).sum(axis=1) / np.maximum(member.sum(axis=1), 1)
    return int(broken.min()), float(inertia.min())


def check_result(result: KMeansResult, Z: Array, k: int, pairs: Pairs) -> None:
    """Assert everything that must hold whatever the heuristic did."""
    labels = result.labels
    assert labels.shape == (len(Z),)
    assert labels.min() >= 0
    assert labels.max() < k
    assert (labels[pairs.similar[:, 0]] == labels[pairs.similar[:, 1]]).all()
    broken = labels[pairs.dissimilar[:, 0]] == labels[pairs.dissimilar[:, 1]]
    assert_array_equal(result.violated, pairs.dissimilar[broken])
    assert result.feasible == (not broken.any())
    assert result.inertia == pytest.approx(inertia_of(Z, labels), rel=1e-9, abs=1e-9)
    assert result.centers.shape == (k, Z.shape[1])
    for c in np.unique(labels):
        assert_allclose(result.centers[c], Z[labels == c].mean(axis=0), atol=1e-12)


@st.composite
def problems(draw: st.DrawFn) -> tuple[Array, int, Pairs]:
    n = draw(st.integers(4, 8))
    k = draw(st.integers(1, 3))
    every = draw(st.permutations(list(combinations(range(n), 2))))
    similar = every[: draw(st.integers(0, 2))]
    dissimilar = every[len(similar) : len(similar) + draw(st.integers(0, 9))]
    Z = np.random.default_rng(draw(st.integers(0, 999))).normal(size=(n, 2))
    return Z, k, Pairs(similar, dissimilar, n=n)


@settings(max_examples=40)
@given(problems())
def test_kmeans_breaks_as_few_cannot_links_as_possible(problem: tuple[Array, int, Pairs]) -> None:
    Z, k, pairs = problem  # at most 8 super-points: the search is exhaustive
    k = min(k, components_of(pairs.similar, len(Z)).max() + 1)
    broken, least = brute_force(Z, k, pairs)
    result = constrained_kmeans(Z, k, pairs, n_init=3)
    check_result(result, Z, k, pairs)
    assert len(result.violated) == broken
    assert result.inertia >= least * (1 - 1e-9)


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("seed", range(6))
def test_kmeans_reaches_the_optimum_of_small_problems(k: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    Z = 6.0 * rng.normal(size=(k, 2))[np.arange(8) % k] + rng.normal(size=(8, 2))
    rows = rng.permutation(8)
    pairs = Pairs([rows[:2], rows[2:4]], [rows[[0, 2]], rows[[4, 5]], rows[[5, 6]]], n=8)
    broken, least = brute_force(Z, k, pairs)
    result = constrained_kmeans(Z, k, pairs, n_init=40)
    assert broken == 0
    assert result.feasible
    assert result.inertia == pytest.approx(least, rel=1e-9)


def test_kmeans_without_hints_is_that_of_scikit_learn() -> None:
    Z, _ = blobs(300, 4, m=3)
    kmeans = KMeans(4, n_init=5, max_iter=100, tol=0, random_state=7).fit(Z)
    for nothing in (None, Pairs((), (), n=300), Chunklets(np.full(300, -1))):
        result = constrained_kmeans(Z, 4, nothing, n_init=5, seed=7)
        assert_array_equal(result.labels, kmeans.labels_)
        assert_allclose(result.centers, kmeans.cluster_centers_, atol=1e-10)
        assert result.inertia == pytest.approx(kmeans.inertia_)
        assert result.n_iter == kmeans.n_iter_
        assert result.feasible
        assert result.violated.shape == (0, 2)


def test_inertia_is_that_of_super_points_and_a_constant() -> None:
    Z, y = blobs(200, 3, m=4)
    chunklets = Chunklets.from_labels(y, components=0.5, seed=1)
    result = constrained_kmeans(Z, 3, chunklets)
    groups = [np.flatnonzero(chunklets.codes == c) for c in range(chunklets.size)]
    groups += [np.array([i]) for i in np.flatnonzero(chunklets.codes < 0)]
    S, w = np.array([Z[g].mean(axis=0) for g in groups]), np.array([len(g) for g in groups])
    inside = sum(((Z[g] - Z[g].mean(axis=0)) ** 2).sum() for g in groups)
    assert inside > 0.1 * result.inertia  # or the constant would not be tested
    between = w @ ((S - result.centers[[result.labels[g[0]] for g in groups]]) ** 2).sum(axis=1)
    assert result.inertia == pytest.approx(between + inside, rel=1e-12)
    assert all(len(set(result.labels[g].tolist())) == 1 for g in groups)
    kmeans = KMeans(3, n_init=10, tol=0, random_state=3).fit(S, sample_weight=w)
    assert result.inertia == pytest.approx(kmeans.inertia_ + inside, rel=1e-6)


def test_groups_and_the_pairs_inside_them_are_the_same_must_links() -> None:
    Z, y = blobs(120, 3)
    pairs = Pairs.from_labels(y, components=0.6, closure=False, seed=2)
    pairs = Pairs(pairs.similar, n=120)
    component = components_of(pairs.similar, 120)
    one, two = (constrained_kmeans(Z, 3, c) for c in (pairs, Chunklets(component)))
    assert_array_equal(one.labels, two.labels)


def test_hints_help() -> None:
    Z, y = blobs(400, 3, spread=1.2, seed=5)
    pairs = Pairs.from_labels(y, components=0.5, closure=False, seed=0)
    result = constrained_kmeans(Z, 3, pairs)
    check_result(result, Z, 3, pairs)
    assert result.feasible
    without = constrained_kmeans(Z, 3)
    assert adjusted_rand_score(y, result.labels) > adjusted_rand_score(y, without.labels) + 0.05
    assert result.inertia > without.inertia  # a constrained optimum cannot be lower


def cycle(n: int) -> list[tuple[int, int]]:
    return [(i, (i + 1) % n) for i in range(n)]


@pytest.mark.parametrize(
    ("k", "similar", "dissimilar", "n_violated"),
    [
        pytest.param(2, [(0, 1), (1, 2)], [(0, 2), (0, 5)], 1, id="inside a must-link component"),
        pytest.param(2, [(0, 1), (1, 2)], [(0, 2)], 1, id="nothing but contradictions"),
        pytest.param(2, [], list(combinations(range(3), 2)), 1, id="triangle, two clusters"),
        pytest.param(3, [], list(combinations(range(5), 2)), 2, id="five all apart, three clusters"),
        pytest.param(1, [], [(0, 1), (3, 4)], 2, id="one cluster"),
        pytest.param(1, [], cycle(20), 20, id="one cluster, large component"),
        pytest.param(2, [], cycle(21), 1, id="odd cycle"),
        pytest.param(2, [(0, 10)], cycle(21), 1, id="odd cycle with a chord joined"),
        pytest.param(9, [], list(combinations(range(11), 2)), 2, id="large clique"),
    ],
)
def test_contradictions_are_reported(k: int, similar: Any, dissimilar: Any, n_violated: int) -> None:
    Z = np.random.default_rng(0).normal(size=(24, 2))
    pairs = Pairs(similar, dissimilar, n=24)
    result = constrained_kmeans(Z, k, pairs, n_init=3)
    check_result(result, Z, k, pairs)
    assert not result.feasible
    assert len(result.violated) == n_violated


def test_many_pairs_between_two_super_points_count_as_many() -> None:
    # Two clusters cannot part a triangle.  The side of one pair gives way, not one of the two sides of four.
    rng = np.random.default_rng(0)
    pairs = Pairs([(0, 1), (2, 3)], [(0, 2), (0, 3), (1, 2), (1, 3), (0, 4), (1, 4), (2, 4)], n=12)
    result = constrained_kmeans(rng.normal(size=(12, 2)), 2, pairs)
    assert_array_equal(result.violated, [[2, 4]])


def planted(n: int, k: int, degree: int, seed: int) -> tuple[Array, Pairs]:
    Z, y = blobs(n, k, spread=0.5, m=5, seed=seed)
    drawn = np.random.default_rng(seed).integers(n, size=(3 * n * degree, 2))
    return Z, Pairs((), drawn[y[drawn[:, 0]] != y[drawn[:, 1]]][: n * degree // 2], n=n)


@pytest.mark.parametrize(
    ("n", "k", "degree", "n_init"),
    [
        pytest.param(400, 2, 3, 2, id="bipartite"),
        pytest.param(400, 3, 8, 5, id="needs mending"),
        pytest.param(300, 10, 12, 2, id="many clusters"),
    ],
)
def test_large_components_are_honoured(n: int, k: int, degree: int, n_init: int) -> None:
    Z, pairs = planted(n, k, degree, seed=1)
    assert np.bincount(components_of(pairs.dissimilar, n)).max() > 0.7 * n
    result = constrained_kmeans(Z, k, pairs, n_init=n_init)
    check_result(result, Z, k, pairs)
    assert result.feasible
    assert result.labels.max() == k - 1


def test_disjoint_cliques_as_large_as_the_number_of_clusters_are_honoured() -> None:
    Z = np.random.default_rng(0).normal(size=(100, 3))
    cliques = [pair for start in range(0, 100, 10) for pair in combinations(range(start, start + 10), 2)]
    result = constrained_kmeans(Z, 10, Pairs((), cliques, n=100), n_init=2)
    assert result.feasible
    assert (np.bincount(result.labels) == 10).all()


def test_two_clusters_are_assigned_exactly() -> None:
    # With two clusters a component has two labellings that break nothing: the cheaper one must come out.
    rng = np.random.default_rng(3)
    _, pairs = planted(300, 2, 1, seed=3)
    links = CannotLinks(pairs.dissimilar, np.ones(300, dtype=int))
    t = len(links.nodes)
    assert np.bincount(links.component).max() > EXACT_SIZE
    labels = links.start(rng.random((t, 2)), seed=0)
    for _ in range(3):
        cost = rng.random((t, 2))
        labels = links.assign(cost, labels)
        assert links.violated(labels) == 0
        now = np.bincount(links.component, cost[np.arange(t), labels])
        flipped = np.bincount(links.component, cost[np.arange(t), 1 - labels])
        assert (now <= flipped).all()


def test_small_components_are_assigned_exactly() -> None:
    rng = np.random.default_rng(0)
    edges = np.array([(0, 1), (2, 3), (3, 4), (5, 6), (6, 7), (5, 7), (8, 9), (9, 10), (10, 11), (8, 11)])
    links = CannotLinks(edges, np.ones(12, dtype=int))
    part = [links.component == c for c in range(4)]
    for _ in range(20):
        cost = rng.random((12, 3))
        labels = links.assign(cost, links.start(rng.random((12, 3)), seed=0))
        assert links.violated(labels) == 0
        for inside in part:
            i, j = (links.edges[inside[links.edges[:, 0]]] - np.flatnonzero(inside)[0]).T
            every = np.array(list(product(range(3), repeat=int(inside.sum()))))
            every = every[(every[:, i] != every[:, j]).all(axis=1)]
            least = cost[inside][np.arange(inside.sum()), every].sum(axis=1).min()
            assert cost[inside, labels[inside]].sum() == pytest.approx(least)


def test_along_the_search_order_a_chordal_graph_has_no_dead_end() -> None:
    # Triangles glued along edges: earlier neighbours are linked with each other, so three colours always do.
    rng = np.random.default_rng(0)
    triangles = [(0, 1, 2)]
    for new in range(3, 120):
        a, b = rng.permutation(triangles[rng.integers(len(triangles))])[:2]
        triangles.append((int(a), int(b), new))
    edges = np.array([pair for triangle in triangles for pair in combinations(triangle, 2)])
    names = rng.permutation(120)
    links = CannotLinks(names[edges], np.ones(120, dtype=int))
    linked = {(i, j) for i, j in links.edges.tolist()}
    for near in links.before:
        assert all(pair in linked for pair in combinations(sorted(j for j, _ in near), 2))
    result = constrained_kmeans(rng.normal(size=(120, 2)), 3, Pairs((), names[edges], n=120), n_init=1)
    assert result.feasible


def test_no_super_point_of_a_large_component_would_rather_move() -> None:
    rng = np.random.default_rng(0)
    _, pairs = planted(200, 4, 3, seed=0)
    links = CannotLinks(pairs.dissimilar, np.ones(200, dtype=int))
    t = len(links.nodes)
    labels = links.assign(cost := rng.random((t, 4)), links.start(rng.random((t, 4)), seed=0))
    assert links.violated(labels) == 0
    i, j = links.edges.T
    taken = np.zeros((t, 4), dtype=bool)
    taken[i, labels[j]] = taken[j, labels[i]] = True
    assert (cost[np.arange(t), labels] <= np.where(taken, np.inf, cost).min(axis=1)).all()


@pytest.mark.parametrize("seed", range(3))
def test_the_answer_is_a_fixed_point_of_weighted_k_means(seed: int) -> None:
    Z, y = blobs(150, 3, seed=seed)
    rng = np.random.default_rng(seed)
    groups = np.where(np.arange(150) < 90, rng.integers(12, size=150) + 12 * y, -1)  # super-points of 1 to 8 rows
    order = np.argsort(groups, kind="stable")
    chain = (np.diff(groups[order]) == 0) & (groups[order[1:]] >= 0)
    similar = np.stack([order[:-1], order[1:]], axis=1)[chain]
    component = components_of(similar, 150)
    ends = rng.permutation(np.unique(component))[:60].reshape(30, 2)  # no super-point has two cannot-links
    first = np.array([np.flatnonzero(component == c)[0] for c in range(component.max() + 1)])
    pairs = Pairs(similar, first[ends], n=150)
    result = constrained_kmeans(Z, 3, pairs, n_init=2)
    check_result(result, Z, 3, pairs)
    assert result.feasible
    assert result.n_iter < 100
    paid = np.array([np.bincount(component, d) for d in cdist(result.centers, Z, "sqeuclidean")]).T  # row by row
    labels = result.labels[first]
    free = np.setdiff1d(np.arange(len(first)), ends)
    assert_array_equal(labels[free], paid[free].argmin(axis=1))
    conflicts = 0
    for u, v in ends:
        best = min((paid[u, a] + paid[v, b], a, b) for a in range(3) for b in range(3) if a != b)
        assert (labels[u], labels[v]) == best[1:]
        conflicts += paid[u].argmin() == paid[v].argmin()
    assert conflicts > 3


def test_mending_leaves_nothing_broken_where_that_is_easy() -> None:
    _, pairs = planted(150, 4, 4, seed=0)
    links = CannotLinks(pairs.dissimilar, np.ones(150, dtype=int))
    part = slice(0, int(links.starts[1]))
    assert part.stop > 100
    start = [0] * part.stop
    assert count_violated(start, links.before[part]) > 100
    mended = tabu_search(start, links.before[part], 4, np.random.default_rng(0))
    assert count_violated(mended, links.before[part]) == 0


@settings(max_examples=50)
@given(st.integers(0, 10**6))
def test_the_search_is_exact_on_small_graphs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size, k = int(rng.integers(2, 7)), int(rng.integers(1, 4))
    cost = rng.random((size, k))
    edges = [pair for pair in combinations(range(size), 2) if rng.random() < 0.6]
    times = rng.integers(1, 3, size=len(edges)).tolist()
    before: list[list[tuple[int, int]]] = [[] for _ in range(size)]
    for (i, j), m in zip(edges, times, strict=True):
        before[j].append((i, m))

    def score(labels: Any) -> tuple[int, float]:
        broken = sum(m for (i, j), m in zip(edges, times, strict=True) if labels[i] == labels[j])
        return broken, sum(cost[i][label] for i, label in enumerate(labels))

    best = min(map(score, product(range(k), repeat=size)))
    found = branch_and_bound(cost.tolist(), before, (UNBOUNDED, np.inf))
    assert found is not None
    assert score(found)[0] == best[0]
    assert score(found)[1] == pytest.approx(best[1])
    unbroken = branch_and_bound(cost.tolist(), before, (0, np.inf))
    assert (unbroken is not None) == (best[0] == 0)
    assert branch_and_bound(cost.tolist(), before, (best[0], best[1] * (1 - 1e-9))) is None


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.integers(2, 5))
def test_an_assignment_never_gets_worse(seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    pairs = rng.integers(60, size=(70, 2))
    pairs = np.concatenate([pairs, pairs[:5]])
    links = CannotLinks(pairs, np.ones(60, dtype=int))
    t = len(links.nodes)
    assert np.unique(links.nodes).size == t
    assert links.violated(np.zeros(t, dtype=int)) == (pairs[:, 0] != pairs[:, 1]).sum()

    def score(labels: Array, cost: Array) -> tuple[int, float]:
        return links.violated(labels), float(cost[np.arange(t), labels].sum())

    labels = links.start(rng.random((t, k)), seed)
    for _ in range(4):
        cost = rng.random((t, k))
        before, labels = score(labels, cost), links.assign(cost, labels)
        after = score(labels, cost)
        assert after[0] <= before[0]
        assert after[0] < before[0] or after[1] <= before[1] + 1e-9


def test_more_iterations_are_no_worse_and_all_are_counted() -> None:
    Z, pairs = planted(300, 4, 2, seed=2)
    short, long = (constrained_kmeans(Z, 4, pairs, n_init=1, max_iter=i) for i in (1, 100))
    assert short.n_iter == 1
    assert 2 < long.n_iter < 100
    assert long.inertia < short.inertia
    check_result(short, Z, 4, pairs)


def test_same_seed_same_answer_and_input_untouched() -> None:
    Z, pairs = planted(400, 3, 8, seed=1)  # the search alone does not solve it, so every random part is used
    kept = Z.copy()
    Z.setflags(write=False)
    one, two = (constrained_kmeans(Z, 3, pairs, n_init=3, seed=11) for _ in range(2))
    assert_array_equal(one.labels, two.labels)
    assert_array_equal(one.centers, two.centers)
    assert (one.inertia, one.n_iter) == (two.inertia, two.n_iter)
    assert_array_equal(Z, kept)
    for hints in (None, pairs):
        assert constrained_kmeans(Z, 3, hints, n_init=1, max_iter=2, seed=2**40 + 1).labels.shape == (400,)


def test_no_cluster_is_empty() -> None:
    # Four positions, two of them shared by many rows: the nearest centers alone would leave clusters empty.
    Z = np.repeat([[0.0], [0.0], [9.0], [9.0]], 5, axis=0)
    result = constrained_kmeans(Z, 6, Pairs((), [(0, 5), (1, 6)], n=20))
    assert_array_equal(np.unique(result.labels), np.arange(6))
    assert result.feasible
    assert result.inertia == 0


def test_as_many_clusters_as_super_points() -> None:
    Z = np.arange(6.0)[:, None]
    for hints in (Pairs([(0, 5)], [(1, 2)], n=6), Chunklets([7, -1, -1, -1, -1, 7])):
        result = constrained_kmeans(Z, 5, hints)
        assert np.unique(result.labels).size == 5
        assert result.inertia == pytest.approx(12.5)


def test_float32_and_lists_are_taken() -> None:
    Z, pairs = planted(60, 2, 1, seed=0)
    Z = np.round(Z, 2).astype(np.float32)
    one, two = constrained_kmeans(Z, 2, pairs), constrained_kmeans(Z.tolist(), 2, pairs)
    assert_array_equal(one.labels, two.labels)


@pytest.mark.parametrize("limits", [{"STEPS": 5, "STEPS_PER_NODE": 1}, {"SWEEPS": 1}])
def test_searches_for_labels_end_at_their_limits(monkeypatch, limits):
    for name, value in limits.items():
        monkeypatch.setattr(cannot_links, name, value)
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(40, 2))
    apart = np.stack(np.triu_indices(40, 1), axis=1)
    pairs = Pairs((), apart[rng.permutation(len(apart))[:300]], n=40)
    found = constrained_kmeans(Z, 3, pairs, n_init=1, seed=0)  # three clusters cannot satisfy them
    assert set(found.labels.tolist()) <= {0, 1, 2}
    assert len(found.violated)
