"""simplenpkl on dask rows with the graph in row blocks: the fit in memory, whatever the chunks."""

from __future__ import annotations

import os
import pickle
import signal

import numpy as np
import pytest
from metricforge_plugins.simplenpkl import chunked_graph, graph
from metricforge_plugins.simplenpkl.hinge import descent

import metricforge as mf
from metricforge.distributed import tasks as values
from metricforge.distributed.chunks import as_dask
from metricforge.errors import InputError
from metricforge.rows import gathered


@pytest.fixture(autouse=True)
def few_rows_are_many(monkeypatch):
    """Use row blocks for few rows, and several of them."""
    monkeypatch.setattr(graph, "GATHERED_ROWS", 0)
    monkeypatch.setattr(chunked_graph, "block_sizes", lambda n: (n // 3, n // 4, n - n // 3 - n // 4))


def case(n=700, apart=6, labelled=150):
    """Return rows of six clusters, some of which are far from all others, and pairs among the others."""
    rng = np.random.default_rng(0)
    centres = 6 * rng.standard_normal((6, 3))
    y = rng.integers(6, size=n)
    X = centres[y] + rng.standard_normal((n, 3))
    X[-apart:] = 1e3 * np.arange(1, apart + 1)[:, None]
    known = np.full(n, np.nan)
    known[:labelled] = y[:labelled] % 3
    return X, mf.Pairs.from_labels(known, n_pairs=labelled, seed=0)


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
    monkeypatch.setattr(chunked_graph.cluster, "threads", lambda: 2)
    monkeypatch.setattr(chunked_graph.cluster, "task_bytes", lambda: 3 * 10**8)
    assert chunked_graph.block_sizes(101) == (51, 50)
    sizes = chunked_graph.block_sizes(4_000_000)
    assert sum(sizes) == 4_000_000
    assert max(sizes) * chunked_graph.ROW_BYTES <= 3 * 10**8
    assert len(sizes) == 20


@pytest.mark.parametrize(
    ("options", "rel"),
    [
        # eigenvectors and a bundle: the same numbers but for rounding
        ({"loss": "squared_hinge", "tol": 1e-6}, 1e-8),
        ({"loss": "hinge", "tol": 1e-4}, 1e-8),
        # a factor of the kernel by L-BFGS, where rounding changes the path: the same value to the tolerance
        ({"loss": "squared_hinge", "tol": 1e-2, "B": 5e4, "n_components": None}, 1e-2),
        ({"loss": "hinge", "steps": "best-response", "max_iter": 2, "tol": 1e-2}, 1e-8),
    ],
    ids=["squared", "plain", "slack", "published"],
)
@pytest.mark.filterwarnings("ignore::metricforge.errors.ConvergenceWarning")
def test_hinge_losses_are_solved_on_the_workers(options, rel):
    X, pairs = case(n=420)
    options = {"C": 2.0, **options}
    here, there = learn(X, pairs, **options), learn(as_dask(X, (130, -1)), pairs, **options)
    one, two = here.report, there.report
    assert not isinstance(two.embedding, np.ndarray)
    for name in ("status", "edges", "pairs", *(["n_iter"] if rel == 1e-8 else [])):
        assert one[name] == two[name], name
    assert two.objective == pytest.approx(one.objective, rel=rel)
    assert two.lower_bound == pytest.approx(one.lower_bound, rel=max(1e-6, rel))
    assert two.lower_bound <= one.objective * (1 + 1e-9)
    if rel == 1e-8:
        E, F = one.embedding, gathered(two.embedding)
        np.testing.assert_allclose(F @ F.T, E @ E.T, atol=1e-5 * np.abs(E).max() ** 2)
        np.testing.assert_allclose(there.distance(X[:50], X[50:90]), here.distance(X[:50], X[50:90]), atol=2e-5)
        # new rows are embedded on the workers as well
        new = as_dask(X[::3] + 0.1, (60, -1))
        np.testing.assert_allclose(gathered(there.transform(new)), here.transform(X[::3] + 0.1), atol=1e-4)


@pytest.mark.filterwarnings("ignore::metricforge.errors.ConvergenceWarning")
def test_hinge_losses_send_few_numbers_to_this_process(monkeypatch):
    """What the solver fetches from the workers depends on pairs and directions, not on the number of rows."""
    fetched = []
    results = values.cluster.results

    def counted(found):
        out = results(found)
        fetched.append(len(pickle.dumps(out)))
        return out

    monkeypatch.setattr(values.cluster, "results", counted)
    X, pairs = case(n=1500, labelled=20)
    learn(as_dask(X, (500, -1)), pairs, loss="squared_hinge", tol=1e-2, B=5e4, C=2.0, max_iter=2)
    assert len(fetched) > 100
    assert max(fetched) < 8 * 8 * len(X)  # a block has 8 columns or more; this is the basis times itself


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


def test_a_worker_killed_in_a_hinge_loss_changes_nothing(monkeypatch, caplog):
    from distributed import Client, LocalCluster

    X, pairs = case(n=300, labelled=20)
    options = {"loss": "squared_hinge", "tol": 1e-2, "B": 5e4, "C": 2.0, "n_components": None}
    expected = learn(X, pairs, **options).report
    monkeypatch.setattr(values, "DEEPEST", 30)  # a few steps
    steps = 0
    add = descent.Memory.add

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50) as local,
        Client(local) as client,
    ):

        def counted(*args):
            nonlocal steps
            steps += 1
            if steps == 6:
                os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
            return add(*args)

        monkeypatch.setattr(descent.Memory, "add", counted)
        found = learn(as_dask(X, (100, -1)), pairs, **options).report
        assert gathered(found.embedding).shape == (300, found.embedding.shape[1])
    assert steps > 6
    assert found.status == expected.status == "optimal"
    assert found.objective == pytest.approx(expected.objective, rel=1e-2)
    assert found.lower_bound <= expected.objective
    # eigenvectors pass through this process after each eigenproblem, so no task can compute them again
    assert any("goes on from its best point" in message for message in caplog.messages)
