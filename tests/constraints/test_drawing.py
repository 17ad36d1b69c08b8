"""Random relations from classes: the loops that draw them end, however the numbers fall."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from metricforge.constraints import drawing
from metricforge.constraints.drawing import draw_components, sample_pairs

CODES = np.repeat(np.arange(20), 10)


@pytest.mark.parametrize("draws", [20, 0])
@pytest.mark.parametrize("components", [0.7, 0.05])
def test_components_are_reached_also_where_no_draw_is_left(monkeypatch, draws, components):
    monkeypatch.setattr(drawing, "DRAWS", draws)
    similar, dissimilar = draw_components(CODES, components, 0)
    n = len(CODES)
    graph = coo_array((np.ones(len(similar)), similar.T), shape=(n, n))
    assert connected_components(graph, directed=False)[0] == max(round(components * n), 20)
    assert (CODES[similar[:, 0]] == CODES[similar[:, 1]]).all()
    assert (CODES[dissimilar[:, 0]] != CODES[dissimilar[:, 1]]).all()
    assert len(np.unique(similar, axis=0)) == len(similar) == len(dissimilar)


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("repeat", [True, False])
def test_pairs_are_drawn_in_a_bounded_number_of_rounds(monkeypatch, same, repeat):
    monkeypatch.setattr(drawing, "ROUNDS", 1)
    found = sample_pairs(CODES, same, 200, np.random.default_rng(0), repeat=repeat)
    assert len(found) == 200 if repeat else 150 < len(found) <= 200
    assert ((CODES[found[:, 0]] == CODES[found[:, 1]]) == same).all()
    monkeypatch.setattr(drawing, "ROUNDS", 200)
    assert len(sample_pairs(CODES, same, 200, np.random.default_rng(0), repeat=repeat)) == 200
