"""What solvers allocate per row outside of tasks: at most 16 bytes besides the hints, for rows on dask are many."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from metricforge_plugins.kcr.solver import KCR
from metricforge_plugins.krca.chunklets import groups_of
from metricforge_plugins.simplenpkl.pairs import signed_pairs

import metricforge as mf
from metricforge.neighbors.partition import cell_count, sample_rows


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
