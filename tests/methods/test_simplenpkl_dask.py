"""simplenpkl on dask rows with the graph in row blocks: the fit in memory, whatever the chunks."""

from __future__ import annotations

import numpy as np
import pytest
from metricforge_plugins.simplenpkl import chunked_graph, graph

import metricforge as mf
from metricforge.errors import InputError, MemoryBudgetError
from metricforge.rows import as_dask, gathered


@pytest.fixture(autouse=True)
def few_rows_are_many(monkeypatch):
    """Use row blocks for few rows, and several of them."""
    monkeypatch.setattr(graph, "GATHERED_ROWS", 0)
    monkeypatch.setattr(chunked_graph, "block_sizes", lambda n: (n // 3, n // 4, n - n // 3 - n // 4))


def case(n=700, apart=6):
    """Return rows of six clusters, some of which are far from all others, and pairs among the others."""
    rng = np.random.default_rng(0)
    centres = 6 * rng.standard_normal((6, 3))
    y = rng.integers(6, size=n)
    X = centres[y] + rng.standard_normal((n, 3))
    X[-apart:] = 1e3 * np.arange(1, apart + 1)[:, None]
    known = np.full(n, np.nan)
    known[:150] = y[:150] % 3
    return X, mf.Pairs.from_labels(known, n_pairs=150, seed=0)


def learn(X, pairs, **options):
    settings = {"kernel": mf.kernels.Linear(), "tol": 1e-11, "n_components": 6, "n_neighbors": 8, "seed": 0}
    return mf.learn(X, pairs, method="simplenpkl", **settings | options)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"graph": "union", "normalize": False},
        {"n_components": None, "C": 1.0},
        {"extension": "nystrom"},
        {"pair_weights": "uniform", "active": 0.7},
    ],
)
def test_the_fit_is_that_in_memory(options):
    X, pairs = case()
    here, there = learn(X, pairs, **options), learn(as_dask(X, (130, -1)), pairs, **options)
    one, two = here.report, there.report
    assert not isinstance(two.embedding, np.ndarray)  # it stays in chunks
    assert two.eigensolver == "lanczos"
    for name in ("edges", "isolated", "pairs", "positive_eigenvalues", "complete", "status", "notes"):
        assert one[name] == two[name], name
    np.testing.assert_allclose(two.eigenvalues, one.eigenvalues, rtol=1e-9)
    assert two.objective == pytest.approx(one.objective, rel=1e-9)
    assert two.lower_bound == pytest.approx(one.lower_bound, rel=1e-6)
    E, F = one.embedding, gathered(two.embedding)
    np.testing.assert_allclose(F @ F.T, E @ E.T, atol=2e-5 * np.abs(E).max() ** 2)
    # rows that no path connects with a pair: in the mutual graph those far from all others
    np.testing.assert_array_equal(F.any(axis=1), E.any(axis=1))
    assert options.get("graph") == "union" or not F[-6:].any()
    np.testing.assert_allclose(there.distance(X[:50], X[50:90]), here.distance(X[:50], X[50:90]), atol=2e-5)


def test_chunks_and_blocks_do_not_matter(monkeypatch):
    X, pairs = case()
    one = learn(as_dask(X, (700, -1)), pairs).report
    monkeypatch.setattr(chunked_graph, "block_sizes", lambda n: (1, n - 1))
    two = learn(as_dask(X, (90, -1)), pairs).report
    assert one.products == two.products
    np.testing.assert_allclose(gathered(one.embedding), gathered(two.embedding), atol=1e-5)


@pytest.mark.parametrize("kind", ["mutual", "union"])
def test_the_joined_graph_is_that_of_lists_in_memory(kind, rng):
    # lists with duplicates, missing neighbours and a row that lists itself
    lists = rng.integers(-1, 40, size=(40, 6))
    expected = mf.neighbors.graph(lists, kind=kind)
    made = chunked_graph.chunked_graph(as_dask(lists, (17, -1)), kind, 1.0)
    S = np.vstack([block.toarray() for block in chunked_graph.evaluate([], made.blocks)])
    np.testing.assert_array_equal(S, expected.toarray())
    np.testing.assert_array_equal(made.degrees, expected.sum(axis=1))
    assert made.edges == expected.nnz // 2
    assert made.isolated == len(mf.neighbors.graphs.isolated(expected))


def test_blocks_are_few_and_fit_a_task(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(chunked_graph._rows.cluster, "threads", lambda: 2)
    monkeypatch.setattr(chunked_graph._rows.cluster, "task_bytes", lambda: 3 * 10**8)
    assert chunked_graph.block_sizes(101) == (51, 50)
    sizes = chunked_graph.block_sizes(4_000_000)
    assert sum(sizes) == 4_000_000
    assert max(sizes) * chunked_graph.ROW_BYTES <= 3 * 10**8
    assert len(sizes) == 20


def test_hinge_losses_gather_the_graph():
    X, pairs = case()
    there = learn(as_dask(X, (130, -1)), pairs, loss="squared_hinge", tol=1e-4)
    here = learn(X, pairs, loss="squared_hinge", tol=1e-4)
    assert isinstance(there.report.embedding, np.ndarray)
    assert there.report.objective == pytest.approx(here.report.objective, rel=1e-9)
    assert any("solves in this process" in note for note in there.report.notes)
    assert not any("solves in this process" in note for note in here.report.notes)


def test_hinge_losses_say_what_does_not_fit(monkeypatch):
    X, pairs = case()
    monkeypatch.setenv("METRICFORGE_MEMORY", "1MB")  # 700 rows need 1.1
    with pytest.raises(MemoryBudgetError, match=r'gathered in this process.*use loss="linear"'):
        learn(as_dask(X, (130, -1)), pairs, loss="hinge")


def test_a_weight_that_gives_no_kernel_is_an_error():
    X, pairs = case()
    few = mf.Pairs(dissimilar=pairs.dissimilar, n=len(X))
    with pytest.raises(InputError, match="C=1e-09 is too small"):
        learn(as_dask(X, (130, -1)), few, C=1e-9)


def test_a_saved_metric_has_no_chunks(tmp_path):
    X, pairs = case()
    metric = learn(as_dask(X, (130, -1)), pairs)
    metric.save(tmp_path / "one.metric")
    np.testing.assert_allclose(mf.load(tmp_path / "one.metric").transform(X[:9]), metric.transform(X[:9]))
