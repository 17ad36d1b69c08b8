"""LFDA against a dense generalised eigenproblem with scatters summed pair by pair."""

from __future__ import annotations

import numpy as np
import pytest
from metricforge_plugins.lfda.solver import LFDA, scatters
from numpy.testing import assert_allclose
from scipy.linalg import eigh
from scipy.sparse import csr_array

import metricforge as mf
from metricforge.errors import InputError
from metricforge.kernels import RBF


def data(n=60, d=4, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    return rng.normal(size=(n, d)) + 2 * rng.normal(size=(3, d))[y], y


def by_hand(X, y, k):
    """S_w and S_b as the paper writes them."""
    n, d = X.shape
    D2 = np.square(X[:, None] - X[None]).sum(-1)
    sigma = np.empty(n)
    for i in range(n):
        own = np.sort(D2[i, y == y[i]])  # starts with the row itself
        sigma[i] = np.sqrt(own[min(k, len(own) - 1)])
    Sw, Sb = np.zeros((d, d)), np.zeros((d, d))
    for i in range(n):
        for j in range(n):
            A = np.exp(-D2[i, j] / (sigma[i] * sigma[j]))
            size = np.sum(y == y[i])
            same = y[i] == y[j]
            V = np.outer(X[i] - X[j], X[i] - X[j]) / 2
            Sw += V * (A / size if same else 0)
            Sb += V * (A * (1 / n - 1 / size) if same else 1 / n)
    return Sw, Sb


@pytest.mark.parametrize("k", [1, 7, 100])
def test_scatters_and_directions_are_those_of_the_paper(k, monkeypatch):
    monkeypatch.setenv("METRICFORGE_MEMORY", "10kB")  # several blocks a class
    X, y = data()
    Sw, Sb = scatters(X, y, k)
    expected = by_hand(X, y, k)
    assert_allclose(Sw, expected[0], rtol=1e-8, atol=1e-8)
    assert_allclose(Sb, expected[1], rtol=1e-8, atol=1e-8)
    values, V = eigh(expected[1], expected[0])
    metric = mf.learn(X, y, method="lfda", kernel="linear", k=k)
    assert_allclose(metric.report.ratios, values[::-1], rtol=1e-6, atol=1e-9)
    V = V[:, ::-1] * np.sqrt(np.maximum(values[::-1], 0))
    assert_allclose(metric.kernel.W, V @ V.T, rtol=1e-6, atol=1e-8)
    assert metric.report.status == "optimal"
    assert metric.report.gap < 1e-9


def test_embeddings():
    X, y = data()
    Sw = by_hand(X, y, 7)[0]
    plain = mf.learn(X, y, method="lfda", kernel="linear", embedding="plain", n_components=2).kernel.L
    assert plain.shape == (2, 4)
    assert_allclose(plain @ Sw @ plain.T, np.eye(2), atol=1e-8)
    orthonormal = mf.learn(X, y, method="lfda", kernel="linear", embedding="orthonormalized").kernel.L
    assert_allclose(orthonormal @ orthonormal.T, np.eye(4), atol=1e-9)


def test_it_separates_classes_with_a_noise_column():
    X, y = data(200)
    X = np.column_stack([X, 50 * np.random.default_rng(3).normal(size=200)])
    metric, raw = (mf.learn(X[:100], y[:100], method=m, kernel="linear") for m in ("lfda", "euclidean"))
    errors = [np.mean(y[:100][m.neighbors(X[100:], k=1)[0][:, 0]] != y[100:]) for m in (metric, raw)]
    assert errors[0] < errors[1]


def test_other_rows_kernels_and_degenerate_columns():
    X, y = data()
    dense, sparse = (mf.learn(A, y, method="lfda", kernel="linear") for A in (X, csr_array(X)))
    assert_allclose(sparse.kernel.W, dense.kernel.W, atol=1e-8)
    curved = mf.learn(X, y, method="lfda", kernel=RBF("median"), rank=15, n_components=3)
    assert curved.transform(X).shape == (60, 3)
    assert curved.report.gap < 1e-6
    wide = np.column_stack([X, X[:, 0] - X[:, 1], np.ones(60)])
    metric = mf.learn(wide, y, method="lfda", kernel="linear")
    assert metric.report.left_out_directions == 2
    assert metric.report.gap < 1e-6
    assert metric.kernel.L.shape == (4, 6)
    with pytest.raises(InputError, match="no class varies"):
        mf.learn(X[:3], [0, 1, 2], method="lfda", kernel="linear")
    with pytest.raises(InputError, match="embedding='best' is unknown"):
        LFDA(embedding="best")
