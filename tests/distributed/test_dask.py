"""The same numbers from memory and from dask, however the rows are chunked."""

from __future__ import annotations

from dataclasses import dataclass

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp

import metricforge as mf
from metricforge import rows
from metricforge.errors import InputError
from metricforge.kernels import RBF, Laplacian, Linear, Spectrum

CHUNKS = [(50, -1), (7, -1), (13, 2)]


@dataclass(frozen=True)
class Mine(mf.Kernel):
    """A user's own kernel: block and nothing else."""

    def block(self, X, Y):
        return np.tanh(1 + np.asarray(X) @ np.asarray(Y).T)


@dataclass(frozen=True)
class Overlap(mf.Kernel):
    """A user's own kernel on objects."""

    takes = "objects"

    def block(self, X, Y):
        return np.array([[len(set(a) & set(b)) for b in Y] for a in X], dtype=float)


def vectors(n=50):
    return np.random.default_rng(0).normal(size=(n, 5))


def strings(n=40):
    rng = np.random.default_rng(0)
    return np.array(["".join(rng.choice(list("ACDE"), size=12)) for _ in range(n)], dtype=object)


def test_chunks_along_the_second_axis_of_objects_are_joined():
    X = np.arange(60).reshape(12, 5) % 7
    lazy = da.from_array(X, chunks=(5, 2))
    np.testing.assert_array_equal(Overlap()(lazy).compute(), Overlap()(X))


@pytest.mark.parametrize("chunks", CHUNKS)
@pytest.mark.parametrize("kernel", [RBF(0.3), Laplacian(0.2), Linear() + RBF(1.0), Mine()], ids=str)
def test_chunked_gram_of_dense_rows(kernel, chunks):
    X, Y = vectors(), vectors(23)
    lazy = kernel(da.from_array(X, chunks=chunks), da.from_array(Y, chunks=(9, -1)))
    assert lazy.shape == (50, 23)
    assert all(len(sizes) > 1 for sizes in lazy.chunks) or chunks[0] == 50
    np.testing.assert_allclose(lazy.compute(scheduler="sync"), kernel(X, Y), atol=1e-12)
    mixed = kernel(Y, da.from_array(X, chunks=chunks))
    np.testing.assert_allclose(mixed.compute(scheduler="sync"), kernel(Y, X), atol=1e-12)


@pytest.mark.parametrize("chunks", [50, 7])
@pytest.mark.parametrize("make", [sp.csr_matrix, sp.csr_array])
def test_chunked_gram_of_sparse_rows(make, chunks):
    X = vectors() * (np.abs(vectors()) > 0.7)
    lazy = da.from_array(X, chunks=(chunks, -1)).map_blocks(make)
    for kernel in (RBF(0.3), Linear(), Laplacian(0.2)):
        np.testing.assert_allclose(kernel(lazy).compute(scheduler="sync"), kernel(X), atol=1e-12)


@pytest.mark.parametrize("chunks", [40, 11])
@pytest.mark.parametrize("kernel", [Spectrum(2), RBF(0.2, base=Spectrum(2).normalized()), Overlap()], ids=str)
def test_chunked_gram_of_strings(kernel, chunks):
    S = strings()
    lazy = kernel(da.from_array(S, chunks=chunks))
    np.testing.assert_allclose(lazy.compute(scheduler="sync"), kernel(S), atol=1e-12)


@pytest.mark.parametrize("chunks", CHUNKS)
@pytest.mark.parametrize("kernel", [Linear(), RBF("median")], ids=str)
@pytest.mark.parametrize("rank", ["auto", 12])
def test_learning_on_dask_is_learning_in_memory(kernel, rank, chunks):
    X, y = vectors(), np.arange(50) % 3
    lazy = da.from_array(X, chunks=chunks)
    here = mf.learn(X, y, method="euclidean", kernel=kernel, rank=rank, seed=1)
    there = mf.learn(lazy, y, method="euclidean", kernel=kernel, rank=rank, seed=1)
    assert there.kernel == here.kernel
    new = vectors(9)[::-1]
    np.testing.assert_allclose(there.transform(lazy).compute(), here.transform(X), atol=1e-9)
    np.testing.assert_allclose(there.distance(lazy, new).compute(), here.distance(X, new), atol=1e-9)
    np.testing.assert_allclose(
        there.paired_distance(lazy, X[::-1]).compute(), here.paired_distance(X, X[::-1]), atol=1e-9
    )
    np.testing.assert_array_equal(there.neighbors(lazy, 4)[0], here.neighbors(X, 4)[0])


def test_dask_work_stays_lazy():
    def explode(block):
        raise RuntimeError("computed too early")

    X = da.from_array(vectors(), chunks=(10, -1)).map_blocks(explode, meta=np.empty((0, 0)))
    metric = mf.learn(vectors(), np.arange(50) % 2, method="euclidean")
    metric.transform(X)
    metric.distance(X, vectors())
    with pytest.raises(RuntimeError, match="computed too early"):
        metric.transform(X).compute(scheduler="sync")


def test_constants_enter_the_graph_once():
    X = vectors(400)
    metric = mf.learn(X, np.arange(400) % 2, method="euclidean", kernel=RBF(0.1), rank=100)
    lazy = metric.transform(da.from_array(X, chunks=(4, -1)))
    import pickle

    from distributed.protocol.pickle import dumps

    landmarks = len(pickle.dumps(metric.embedding))
    size = len(dumps(lazy.__dask_graph__()))
    assert size < 3 * landmarks + 8 * X.size + 200_000  # 100 tasks would be 100 copies


def test_bad_dask_rows():
    X = da.from_array(vectors(), chunks=(10, -1))
    unknown = X[X[:, 0] > 0]
    with pytest.raises(InputError, match=r"unknown chunk sizes; call X\.compute_chunk_sizes\(\)"):
        mf.learn(unknown, np.zeros(50), method="euclidean")
    with pytest.raises(InputError, match="X must be 2-d"):
        rows.as_vectors(X[:, 0])
    holes = vectors()
    holes[33, 2] = np.nan
    with pytest.raises(InputError, match=r"X contains NaN in 1 row\(s\), first row 33"):
        RBF(0.2)(da.from_array(holes, chunks=(10, -1))).compute(scheduler="sync")
    sparse = da.from_array(holes, chunks=(10, -1)).map_blocks(sp.csr_matrix)
    with pytest.raises(InputError, match=r"X contains NaN in 1 row\(s\), first row 33"):
        RBF(0.2)(sparse).compute(scheduler="sync")


@pytest.mark.xdist_group("cluster")
def test_worker_processes_give_the_same_answer(client):
    X, y = vectors(), np.arange(50) % 3
    here = mf.learn(X, y, method="euclidean", kernel=RBF("median"), rank=12, seed=1)
    lazy = da.from_array(X, chunks=(13, 2))
    there = mf.learn(lazy, y, method="euclidean", kernel=RBF("median"), rank=12, seed=1)
    np.testing.assert_allclose(there.transform(lazy).compute(), here.transform(X), atol=1e-9)
    loaded = client.submit(lambda: sorted(m for m in __import__("sys").modules if m.startswith("metricforge"))).result()
    assert "metricforge.registry.components" not in loaded  # nothing that runs in a task touches the registry
    assert "metricforge.space" in loaded


def test_what_dask_declares_is_what_it_computes():
    X = vectors().astype(np.float32)
    lazy = da.from_array(X, chunks=(13, -1))
    metric = mf.learn(X, np.arange(50) % 2, method="euclidean", kernel=RBF(0.3))
    for made in (metric.transform(lazy), metric.distance(lazy, X), metric.paired_distance(lazy, X), RBF(0.3)(lazy)):
        assert made.compute(scheduler="sync").dtype == made.dtype


@pytest.mark.parametrize("chunks", [(0, 20, 0, 30), (50,), (49, 1), (0, 0, 50, 0)], ids=str)
@pytest.mark.parametrize("method", ["krca", "kcr", "simplenpkl"])
def test_chunks_without_rows_and_single_chunks(method, chunks):
    X, y = vectors(), np.arange(50) % 3
    lazy = da.from_array(X, chunks=(chunks, (5,)))
    here, there = (mf.learn(data, y, method=method, rank=12, seed=1) for data in (X, lazy))
    np.testing.assert_allclose(there.kernel(X[:9]), here.kernel(X[:9]), atol=1e-8)
    np.testing.assert_array_equal(there.neighbors(lazy, 3)[0].compute(), here.neighbors(X, 3)[0])
    for one, other in zip(rows.moments(rows.as_vectors(lazy)), (X.mean(axis=0), X.std(axis=0)), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-12)


def test_masked_chunks():
    X = np.ma.masked_array(vectors(), mask=np.zeros((50, 5), dtype=bool))
    lazy = rows.as_vectors(da.from_array(X, chunks=(20, -1), asarray=False))
    assert type(lazy.compute(scheduler="sync")) is np.ndarray
    X[30, 2] = np.ma.masked
    lazy = rows.as_vectors(da.from_array(X, chunks=(20, -1), asarray=False))
    with pytest.raises(InputError, match="masked cells; fill them first"):
        lazy.compute(scheduler="sync")


def test_other_dask_collections_are_told_what_to_become():
    import dask
    import dask.dataframe as dd
    import pandas as pd

    with pytest.raises(InputError, match=r"a dask array, got DataFrame; convert with .to_dask_array\(lengths=True\)"):
        mf.learn(dd.from_pandas(pd.DataFrame(vectors()), npartitions=2), np.zeros(50))
    with pytest.raises(InputError, match=r"a dask array, got DelayedLeaf; see dask.array.from_delayed"):
        mf.learn(dask.delayed(vectors()), np.zeros(50))


@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
def test_the_schedulers_of_dask_itself(scheduler):
    import dask

    X, y = vectors(), np.arange(50) % 3
    with dask.config.set(scheduler=scheduler):
        there = mf.learn(da.from_array(X, chunks=(13, -1)), y, method="krca", rank=12)
    np.testing.assert_allclose(there.transform(X), mf.learn(X, y, method="krca", rank=12).transform(X), atol=1e-9)


@pytest.mark.parametrize("make", [np.asarray, np.float32, sp.csr_array, sp.csr_matrix])
def test_laplacian_blocks_are_exponentials_of_summed_absolute_differences(make):
    X, Y = make(vectors()), make(vectors(9)[::-1])
    plain = [np.asarray(A.toarray() if sp.issparse(A) else A, dtype=np.float64) for A in (X, Y)]
    wanted = np.exp(-0.2 * np.abs(plain[0][:, None] - plain[1][None]).sum(axis=2))
    block = Laplacian(0.2).block(X, Y)
    assert block.dtype == X.dtype
    np.testing.assert_allclose(block, wanted, rtol=1e-6 if X.dtype == np.float32 else 1e-14)
    np.testing.assert_allclose(Laplacian(0.2).block(X, plain[1]), wanted, rtol=1e-6)
