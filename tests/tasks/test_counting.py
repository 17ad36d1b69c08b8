"""The number of clusters by the silhouette."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import silhouette_score

import metricforge as mf
from metricforge.errors import InputError
from metricforge.tasks import clusters_by_silhouette


@pytest.mark.parametrize("k", [2, 4, 7])
def test_well_separated_groups_are_counted(rng, k):
    y = np.arange(140) % k
    Z = rng.normal(size=(140, 3)) + 30 * rng.normal(size=(k, 3))[y]
    found, silhouettes = clusters_by_silhouette(Z)
    assert len(found.centers) == k == max(silhouettes, key=silhouettes.get)
    np.testing.assert_allclose(silhouettes[k], silhouette_score(Z, found.labels))
    assert set(silhouettes) == set(range(2, 11))


def test_hints_are_kept_and_few_rows_are_enough(rng):
    Z = rng.normal(size=(6, 2))
    found, silhouettes = clusters_by_silhouette(Z, mf.Pairs([(0, 5)], [(0, 1)], n=6))
    assert found.labels[0] == found.labels[5] != found.labels[1]
    assert max(silhouettes) <= 5
    with pytest.raises(InputError, match="no number of clusters"):
        clusters_by_silhouette(Z[:2])
