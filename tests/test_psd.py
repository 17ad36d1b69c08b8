from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from metricforge import psd
from metricforge.errors import InputError, MemoryBudgetError


def test_projection_is_the_nearest_psd_matrix(rng):
    A = rng.normal(size=(6, 6))
    A = A + A.T
    P = psd.project(A)
    assert psd.smallest_eigenvalue(P) > -1e-12
    # Moreau: A - P is minus a PSD matrix and orthogonal to P, which characterises the projection
    assert psd.smallest_eigenvalue(P - A) > -1e-12
    assert abs(np.sum(P * (A - P))) < 1e-10
    np.testing.assert_allclose(psd.project(P), P, atol=1e-12)


def test_factor_reproduces_and_has_the_rank(rng):
    L = rng.normal(size=(7, 3))
    R = psd.factor(L @ L.T)
    assert R.shape == (7, 3)
    np.testing.assert_allclose(R @ R.T, L @ L.T, atol=1e-12)
    assert (np.diff(np.square(R).sum(axis=0)) <= 0).all()
    assert psd.factor(np.zeros((4, 4))).shape == (4, 1)


@pytest.mark.parametrize(
    ("A", "words"),
    [
        (-np.eye(3), ["not positive semidefinite", "psd.project"]),
        (np.ones((2, 3)), ["square", "(2, 3)"]),
        (np.array([[1.0, np.nan], [np.nan, 1.0]]), ["finite", "(0, 1)"]),
        (np.array([[1.0, 2.0], [3.0, 1.0]]), ["symmetric", "(0, 1)"]),
    ],
)
def test_factor_refuses(A, words):
    with pytest.raises(InputError) as caught:
        psd.factor(A)
    for word in words:
        assert word in str(caught.value)


def test_values_whose_squares_overflow_are_refused():
    with pytest.raises(InputError, match=r"^A has values up to 1.7e\+308, whose sums overflow; rescale it$"):
        psd.factor(np.full((10, 10), 1.7e308))


@pytest.mark.parametrize("function", [psd.project, psd.factor, psd.smallest_eigenvalue])
@pytest.mark.parametrize("dtype", ["f8", "f4"])
def test_memory_is_checked_before_anything_is_allocated(monkeypatch, function, dtype):
    monkeypatch.setenv("METRICFORGE_MEMORY", "2MB")
    A = np.eye(400, dtype=dtype)
    tracemalloc.start()
    with pytest.raises(MemoryBudgetError, match=r"array\(s\) of shape \(400, 400\) would take"):
        function(A)
    assert tracemalloc.get_traced_memory()[1] < 200_000
    tracemalloc.stop()
    function(np.eye(200, dtype=dtype))
