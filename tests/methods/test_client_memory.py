"""With rows on dask workers, a fit allocates at most 16 bytes per row in the client, besides the hints themselves."""

from __future__ import annotations

import gc
import tracemalloc

import dask.array as da
import numpy as np
import pytest

import metricforge as mf


@pytest.fixture(scope="module")
def client():
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50) as local,
        Client(local) as active,
    ):
        yield active


def rows(n):
    """Return n rows of two columns, which the workers make."""

    def made(block_info=None):
        start, stop = block_info[None]["array-location"][0]
        return np.random.default_rng(start).standard_normal((stop - start, 2))

    return da.map_blocks(made, chunks=((n // 4,) * 4, (2,)), dtype=np.float64, meta=np.empty((0, 0)))


def pairs(n):
    chosen = np.random.default_rng(0).choice(n, (400, 2), replace=False)
    return mf.Pairs(similar=chosen[:200], dissimilar=chosen[200:], n=n)


CASES = {
    "krca, labels": ("krca", lambda n: mf.Labels(np.arange(n) % 5), {}, (60_000, 240_000)),
    "krca, pairs of rows": ("krca", lambda n: mf.Chunklets(np.arange(n) // 2), {}, (60_000, 240_000)),
    "kcr": ("kcr", lambda n: mf.Labels(np.arange(n) % 5), {"n_pairs": 4000}, (60_000, 240_000)),
    "idealized": ("idealized", pairs, {}, (60_000, 240_000)),
}


def peak_bytes(method, hints, options, n):
    """Return the peak of what a fit of n rows allocates in this process."""
    X, given = rows(n), hints(n)
    gc.collect()
    tracemalloc.start()
    try:
        mf.learn(X, given, method=method, kernel=mf.kernels.RBF(0.5), rank=8, seed=0, **options)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("case", CASES)
def test_the_client_has_at_most_16_bytes_per_row(case, client):
    method, hints, options, (few, many) = CASES[case]
    peak_bytes(method, hints, options, 2000)  # imports and caches
    slope = (peak_bytes(method, hints, options, many) - peak_bytes(method, hints, options, few)) / (many - few)
    assert slope <= 16
