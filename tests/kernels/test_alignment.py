"""Alignments without an n × n matrix, against their definition."""

from __future__ import annotations

import numpy as np
import pytest

from metricforge.errors import InputError
from metricforge.kernels.alignment import (
    alignment,
    class_sums,
    factor_alignment,
    gram_alignment,
    label_alignment,
    pair_alignment,
)


@pytest.mark.parametrize("m", [1, 4, 50])
def test_every_form_is_the_definition(m, rng):
    Phi, codes = rng.normal(size=(20, m)), rng.integers(3, size=20)
    ideal = (codes[:, None] == codes).astype(float)
    K = Phi @ Phi.T
    expected = (K * ideal).sum() / (np.linalg.norm(K) * np.linalg.norm(ideal))
    assert alignment(K, ideal) == pytest.approx(expected)
    assert gram_alignment(K, codes) == pytest.approx(expected)
    assert factor_alignment(Phi, codes) == pytest.approx(expected)
    assert label_alignment(Phi, codes, np.eye(m), 3 * np.eye(m)) == pytest.approx([expected, expected])
    i, j = np.triu_indices(20, k=1)
    assert pair_alignment(Phi, i, j, codes[i] != codes[j], np.eye(m)) == pytest.approx([expected])


def test_blocks_of_rows_change_nothing(rng, monkeypatch):
    Phi, codes = rng.normal(size=(40, 3)), rng.integers(4, size=40)
    whole = class_sums(Phi, codes), gram_alignment(Phi @ Phi.T, codes), label_alignment(Phi, codes, np.eye(3))

    def few(n, row_bytes):
        return (slice(start, min(n, start + 7)) for start in range(0, n, 7))

    monkeypatch.setattr("metricforge.kernels.alignment.blocks", few)
    np.testing.assert_allclose(class_sums(Phi, codes), whole[0], rtol=1e-12)
    assert gram_alignment(Phi @ Phi.T, codes) == pytest.approx(whole[1])
    assert label_alignment(Phi, codes, np.eye(3)) == pytest.approx(whole[2])
    np.testing.assert_allclose(whole[0], [Phi[codes == c].sum(axis=0) for c in range(4)])


def test_zero_kernels_and_unequal_shapes():
    assert alignment(np.zeros((3, 3)), np.eye(3)) == 0
    assert factor_alignment(np.zeros((3, 1)), np.array([0, 1, 1])) == 0
    with pytest.raises(InputError, match=r"same shape, got \(3, 3\) and \(2, 2\)"):
        alignment(np.eye(3), np.eye(2))
