"""What solvers allocate per row outside of tasks: at most 16 bytes besides the hints, for rows on dask are many."""

from __future__ import annotations

import tracemalloc

import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster
from metricforge_plugins.kcr.solver import KCR
from metricforge_plugins.krca.chunklets import groups_of
from metricforge_plugins.simplenpkl import chunked_graph
from metricforge_plugins.simplenpkl.pairs import signed_pairs

import metricforge as mf
from metricforge.neighbors.partition import cell_count, learn_cells, sample_rows


def five_classes(n):
    return mf.Labels(np.arange(n) % 5)


def pairs(n):
    return mf.Pairs(similar=[(0, 1), (2, n - 1)], dissimilar=[(0, 2)], n=n)


CASES = {
    "krca, labels": (five_classes, lambda hints: groups_of(hints.to(mf.Chunklets))),
    "krca, pairs of rows": (lambda n: mf.Chunklets(np.arange(n) // 2), groups_of),
    "kcr": (five_classes, lambda hints: KCR()._sample(hints, 0)),
    "simplenpkl": (pairs, lambda hints: signed_pairs(hints, "degree")),
}


def peak_bytes(hints, call, n):
    given = hints(n)
    tracemalloc.start()
    try:
        call(given)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("case", CASES)
def test_at_most_16_bytes_per_row(case):
    few, many = 300_000, 900_000
    peak_bytes(*CASES[case], 1000)  # imports and caches
    assert (peak_bytes(*CASES[case], many) - peak_bytes(*CASES[case], few)) / (many - few) <= 16


def test_the_sample_of_a_search_by_cells_takes_few_bytes_per_row():
    """simplenpkl draws n/25 rows for its graph, whose numbers alone take 8/25 of a byte per row."""

    def sample(n):
        return sample_rows(n, cell_count(n), 0)

    few, many = 1_000_000, 3_000_000
    sample(few)  # imports
    assert (peak_bytes(int, sample, many) - peak_bytes(int, sample, few)) / (many - few) <= 2


def test_cells_are_learned_from_a_sample_in_little_more_memory_than_it_has():
    sample = np.random.default_rng(0).standard_normal((60_000, 8)).astype(np.float32)
    learn_cells(sample[:100], 10, 0)  # imports
    assert peak_bytes(lambda n: sample, lambda sample: learn_cells(sample, 3000, 0), 0) < 2.5 * sample.nbytes


def ring(block_info=None):
    """Return for each row of a chunk the next four rows, and the four before."""
    (low, high), _ = block_info[None]["array-location"]
    n = block_info[None]["shape"][0]
    return (np.arange(low, high)[:, None] + np.array([1, 2, 3, 4, -1, -2, -3, -4])) % n


def ones(block_info=None):
    (low, high), (_, columns) = block_info[None]["array-location"]
    return np.ones((high - low, columns))


def embedded_ring(n, hints):
    """Do what a fit does between the neighbours and the embedding, but for the number of eigenvectors and steps."""
    lists = da.map_blocks(ring, chunks=((n // 4,) * 4, (8,)), dtype=np.int64, meta=np.empty((0, 0), dtype=np.int64))
    graph = chunked_graph.chunked_graph(lists, "mutual", 1.0)
    L, signed = graph.operator, signed_pairs(hints, "degree")
    sizes = (graph.sizes, (2,))
    V = da.map_blocks(ones, chunks=sizes, dtype=np.float64, meta=np.empty((0, 0)))
    L.array(L.times(L.block(V, 2)))
    graph.embedded(V, np.ones(2), signed, normalize=True)
    return graph


@pytest.mark.xdist_group("cluster")
def test_a_graph_on_the_workers_takes_no_memory_per_row_in_the_client():
    """The client has the scheduler here, whose memory depends on the number of chunks: that is the same."""
    few, many = 100_000, 1_100_000
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=50) as cluster,
        Client(cluster),
    ):
        embedded_ring(1000, pairs(1000))  # imports and caches
        peaks = {n: peak_bytes(lambda n: n, lambda n: embedded_ring(n, pairs(n)), n) for n in (few, many)}
    # a byte per row would be a mask
    assert (peaks[many] - peaks[few]) / (many - few) < 0.9
