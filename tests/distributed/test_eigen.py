"""Eigenpairs of a matrix whose row blocks are on dask: the answer in memory, whatever the chunks or workers do."""

from __future__ import annotations

import os
import signal
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp

from metricforge import eigen
from metricforge.distributed import eigen as row_blocks
from metricforge.distributed import tasks as values
from metricforge.distributed.tasks import Value, as_array, evaluate
from metricforge.errors import InputError


def graph(n, seed=0):
    """Return the normalised adjacency matrix of a ring of n nodes with random chords, in random order."""
    rng = np.random.default_rng(seed)
    i = np.concatenate([np.arange(n), rng.integers(n, size=2 * n)])
    j = np.concatenate([np.roll(np.arange(n), 1), (i[n:] + rng.integers(1, 40, size=2 * n)) % n])
    S = sp.coo_array((np.ones(len(i)), (i, j)), shape=(n, n)).tocsr()
    S = S.maximum(S.T)
    scale = sp.diags_array(1 / np.sqrt(S.sum(axis=1)))
    order = rng.permutation(n)
    return sp.csr_array(scale @ S @ scale)[order][:, order]


def with_components(A, seed=0):
    """Add isolated nodes, equal pairs and three equal cliques of forty: small and repeated components."""
    clique = sp.csr_array(np.full((40, 40), 0.022))
    pair = sp.csr_array([[0.0, 0.97], [0.97, 0.0]])
    A = sp.block_diag([A, *[pair] * 3, *[clique] * 3, sp.csr_array((20, 20))], format="csr")
    order = np.random.default_rng(seed).permutation(A.shape[0])
    return sp.csr_array(A[order][:, order])


def same(block):
    return block


def on_dask(A, sizes):
    """Return the rows of A as a dask array with chunks of the given sizes."""
    bounds = np.cumsum([0, *sizes])
    assert bounds[-1] == A.shape[0]
    values = [Value(same, A[i:j]) for i, j in pairwise(bounds)]
    evaluate(values, [])
    return as_array(values, tuple(sizes), A.shape[1], sp.csr_array((0, 0), dtype=A.dtype))


def chunks(n, c):
    return [n // c + (i < n % c) for i in range(c)]


@pytest.mark.parametrize("components", [False, True], ids=["connected", "degenerate"])
@pytest.mark.parametrize(("k", "tol"), [(6, 1e-9), (20, 1e-4)])
def test_the_answer_is_that_in_memory_whatever_the_chunks(components, k, tol):
    A = with_components(graph(1200)) if components else graph(1200)
    here = eigen.top(A, k, tol=1e-10)
    for c in (1, 5):
        there = eigen.top(on_dask(A, chunks(A.shape[0], c)), k, tol=tol)
        assert there.status == "converged"
        assert there.solver == "lanczos"
        # the error of an eigenvalue is the square of its residual over the gap, or the residual itself
        np.testing.assert_allclose(there[0], here[0], rtol=0, atol=1e-10 if tol < 1e-8 else tol)
        V = there[1].compute()
        assert there[1].chunks[0] == tuple(chunks(A.shape[0], c))
        np.testing.assert_allclose(V.T @ V, np.eye(k), atol=1e-12)
        np.testing.assert_allclose(np.linalg.norm(A @ V - V * there[0], axis=0), there.residuals, atol=1e-13)
        assert there.residuals.max() <= tol
        assert (V[np.abs(V).argmax(axis=0), np.arange(k)] > 0).all()


def test_chunks_do_not_matter_to_the_vectors():
    A = graph(900)
    one, two = (eigen.top(on_dask(A, sizes), 5, tol=1e-5, seed=3) for sizes in ([900], [1, 399, 200, 300]))
    assert one.n_products == two.n_products
    np.testing.assert_allclose(one[1].compute(), two[1].compute(), atol=1e-6)


def test_a_loop_is_shared_with_the_solve_in_memory():
    # the same start by row number, so the same number of products until the search for missed eigenvalues
    A = graph(900)
    here = eigen.top(A, 5, tol=1e-6, solver="lanczos", seed=1)
    there = eigen.top(on_dask(A, [300] * 3), 5, tol=1e-6, seed=1)
    np.testing.assert_allclose(there[0], here[0], atol=1e-12)
    np.testing.assert_allclose(there[1].compute(), here[1], atol=1e-6)


def test_rows_are_sent_whole_or_in_part(monkeypatch):
    # a banded matrix: each block needs few rows of its neighbours, none of others
    n = 1500
    A = sp.diags_array([np.full(n - d, 1 / (1 + d)) for d in (0, 3)], offsets=[0, 3])
    A = sp.csr_array(A + A.T)
    blocks = row_blocks.RowBlocks(
        row_blocks.PerChunk(Value(same, A[i : i + 300]) for i in range(0, n, 300)), (300,) * 5
    )
    kinds = np.array(blocks._kinds)
    assert (kinds.diagonal() == row_blocks.WHOLE).all()
    assert (kinds[np.abs(np.subtract.outer(range(5), range(5))) == 1] == row_blocks.SOME).all()
    assert (kinds[np.abs(np.subtract.outer(range(5), range(5))) > 1] == row_blocks.NONE).all()
    X = blocks.columns.random(11, np.random.default_rng(0))
    got = blocks.columns.array(blocks.product(X, 2.0)).compute()
    np.testing.assert_allclose(got, A @ blocks.columns.array(X).compute() / 2, atol=1e-14)


def test_few_rows_are_solved_in_this_process():
    A = graph(120)
    found = eigen.top(on_dask(A, [50, 70]), 4)
    assert found.solver == "dense"
    np.testing.assert_allclose(found[0], np.linalg.eigvalsh(A.toarray())[::-1][:4], atol=1e-12)
    assert found[1].chunks == ((50, 70), (4,))


def test_a_start_helps():
    A = graph(2000)
    cold = eigen.top(on_dask(A, [1000, 1000]), 5, tol=1e-6)
    warm = eigen.top(on_dask(A, [1000, 1000]), 5, tol=1e-6, v0=cold[1])
    assert warm.n_products < cold.n_products
    np.testing.assert_allclose(warm[0], cold[0], atol=1e-10)


@pytest.mark.parametrize(
    ("change", "options", "match"),
    [
        (lambda A: A, {"solver": "arpack"}, "solver='arpack' needs A in this process"),
        (lambda A: A[:, :700], {}, "must be square"),
        (lambda A: A * 1j, {}, "must be real"),
        (lambda A: A * np.nan, {}, "NaN or infinity"),
        (lambda A: sp.csr_array(sp.triu(A)), {}, "not symmetric"),
    ],
)
def test_bad_input_is_named(change, options, match):
    A = change(graph(800))
    with pytest.raises(InputError, match=match):
        eigen.top(on_dask(A, [500, 300]), 4, **options)


@pytest.mark.parametrize("deepest", [400, 20], ids=["tasks remembered", "tasks forgotten"])
def test_a_worker_killed_in_mid_iteration_changes_nothing(monkeypatch, caplog, deepest):
    from distributed import Client, LocalCluster

    monkeypatch.setattr(values, "DEEPEST", deepest)
    A = with_components(graph(1000))
    expected = eigen.top(on_dask(A, chunks(A.shape[0], 3)), 4, tol=1e-5)
    calls = 0
    product = row_blocks.RowBlocks.product
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50) as cluster,
        Client(cluster) as client,
    ):
        lazy = on_dask(A, chunks(A.shape[0], 3))

        def counted(self, X, unit):
            nonlocal calls
            calls += 1
            if calls == 40:  # 12 products of the norm, then a full basis of 16 blocks: it was restarted
                # if tasks are forgotten, all workers: of a chunk that was sent, another one has a copy
                running = list(client.run(os.getpid).values())
                for worker in running[: 2 if deepest == 20 else 1]:
                    os.kill(worker, signal.SIGKILL)
            return product(self, X, unit)

        monkeypatch.setattr(row_blocks.RowBlocks, "product", counted)
        found = eigen.top(lazy, 4, tol=1e-5)
        assert calls > 40
        np.testing.assert_allclose(found[0], expected[0], atol=1e-13)
        np.testing.assert_allclose(found[1].compute(), expected[1].compute(), atol=1e-7)
    assert found.n_products == expected.n_products
    # the basis of a restart that no task can compute again was lost, so the solve began anew
    assert any("starts again" in message for message in caplog.messages) == (deepest == 20)


def test_the_scheduler_forgets_the_tasks_of_long_iterations(monkeypatch):
    from distributed import Client, LocalCluster

    monkeypatch.setattr(values, "DEEPEST", 40)
    A = graph(1000)
    known = []
    product = row_blocks.RowBlocks.product
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster,
        Client(cluster),
    ):

        def counted(self, X, unit):
            known.append(len(cluster.scheduler.tasks))
            return product(self, X, unit)

        monkeypatch.setattr(row_blocks.RowBlocks, "product", counted)
        found = eigen.top(on_dask(A, [500, 500]), 12, tol=1e-9)
    assert found.status == "converged"
    assert len(known) > 60
    # with every task remembered there are three times as many in the last quarter as in the first
    quarter = len(known) // 4
    assert max(known[-quarter:]) < 1.5 * max(known[:quarter])
