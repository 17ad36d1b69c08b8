"""Searches under any distance, block by block."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from metricforge import neighbors
from metricforge.errors import InputError
from metricforge.neighbors import scanning


def test_search_blocks_asks_bounded_blocks_once_and_writes_to_none(rng):
    D = rng.integers(0, 9, (1500, 1500)).astype(np.float32)
    kept, asked = D.copy(), np.zeros(D.shape, dtype=int)

    def block(q0, q1, c0, c1):
        assert (q1 - q0) * (c1 - c0) <= 2**20
        asked[q0:q1, c0:c1] += 1
        return D[q0:q1, c0:c1]

    indices, distances = neighbors.search_blocks(block, 1500, 1500, 12, exclude_self=True)
    expected = D.astype(float)
    np.fill_diagonal(expected, np.inf)
    np.testing.assert_array_equal(indices, np.argsort(expected, axis=1, kind="stable")[:, :12])
    np.testing.assert_array_equal(distances, np.take_along_axis(expected, indices, axis=1))
    np.testing.assert_array_equal(D, kept)
    assert asked.max() == 1


@given(
    D=arrays(np.float64, (12, 15), elements=st.sampled_from([0.0, 0.5, np.nextafter(0.5, 0), 1.0, 2.0])),
    k=st.integers(1, 15),
    tile_bytes=st.sampled_from([8, 40, 120, 2**20]),
)
@settings(max_examples=60)
def test_search_blocks_breaks_every_tie_by_index(D, k, tile_bytes):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scanning, "TILE_BYTES", tile_bytes)
        indices, _ = neighbors.search_blocks(lambda q0, q1, c0, c1: D[q0:q1, c0:c1], 15, 12, k)
    np.testing.assert_array_equal(indices, np.argsort(D, axis=1, kind="stable")[:, :k])


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (lambda b, c: np.full((b, c), np.nan), "NaN"),
        (lambda b, c: np.full((b, c), np.inf), "infinite"),
        (lambda b, c: np.full((b, c), -1e-9), "negative"),
        (lambda b, c: np.ones((b, c + 1)), "shape"),
    ],
)
def test_search_blocks_refuses_bad_distances(value, says):
    with pytest.raises(InputError, match=says):
        neighbors.search_blocks(lambda q0, q1, c0, c1: value(q1 - q0, c1 - c0), 9, 4, 2)
