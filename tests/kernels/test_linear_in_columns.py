"""Which kernels are linear in the columns, and that their matrices give their values and distances."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from metricforge_plugins.lpdesign.bases import Projected

import metricforge as mf
from metricforge.errors import InputError
from metricforge.kernels import RBF, Linear, Mixture, Polynomial, Standardized, Weak
from metricforge.space import LearnedKernel, explicit_map, landmark_map

D = 4


@pytest.fixture(name="X")
def rows(rng):
    # offsets far larger than the spreads: the matrices must keep their digits all the same
    return rng.normal(size=(30, D)) * [1, 10, 100, 1000] + [0, 1e3, -1e5, 1e7]


def learned(kernel, X, a, *, landmarks, rng):
    kernel = kernel.resolve(X)
    found = landmark_map(kernel, X[:landmarks]) if landmarks else explicit_map(kernel, D)
    W = rng.normal(size=(found.columns, found.columns))
    return LearnedKernel(found, W @ W.T, a)


def fitted(method, **options):
    def fit(X, rng):
        similar = mf.Pairs.from_labels(np.arange(len(X)) % 3, n_pairs=30, seed=0)
        return mf.learn(X, similar, method=method, **options).kernel

    return fit


KERNELS = {
    "linear": lambda X, rng: Linear(),
    "polynomial": lambda X, rng: Polynomial(1, 3.0),
    "standardized": lambda X, rng: Standardized().resolve(X),
    "weak": lambda X, rng: Weak(Linear(), feature=2),
    "projected": lambda X, rng: Projected(Linear(), direction=(1.0, -2.0, 0.0, 0.5)),
    "sum": lambda X, rng: 0.5 * Linear() + 2 * Standardized().resolve(X) + 3 * Weak(Linear(), feature=0),
    "explicit": lambda X, rng: learned(Linear(), X, 0.0, landmarks=0, rng=rng),
    "explicit with base": lambda X, rng: learned(Standardized(), X, 2.0, landmarks=0, rng=rng),
    "landmarks": lambda X, rng: learned(Standardized(), X, 0.0, landmarks=3, rng=rng),
    "landmarks with base": lambda X, rng: learned(Standardized(), X, 0.5, landmarks=3, rng=rng),
    "learned from learned": lambda X, rng: learned(
        learned(Standardized(), X, 0.5, landmarks=3, rng=rng), X, 1.0, landmarks=4, rng=rng
    ),
    "idealized": fitted("idealized", kernel=Standardized()),
    "krca explicit": fitted("krca", kernel=Standardized(), rank="auto"),
    "krca exact": fitted("krca", kernel=Standardized(), rank="exact"),
    "krca landmarks": fitted("krca", kernel=Standardized(), rank=3),
    "simplenpkl": fitted("simplenpkl", kernel=Standardized(), normalize=False),
}


@pytest.mark.parametrize("name", KERNELS)
def test_the_matrices_give_values_and_distances(name, X, rng):
    kernel = KERNELS[name](X, rng)
    X = np.vstack([X[:10], X[:10] + rng.normal(size=(10, D)) * [1, 10, 100, 1000]])
    H = kernel.bilinear(D)
    np.testing.assert_array_equal(H.shape, (D + 1, D + 1))
    ones = np.column_stack([X, np.ones(len(X))])
    size = np.abs(ones) @ np.abs(H) @ np.abs(ones).T  # what rounding is relative to
    np.testing.assert_array_less(np.abs(ones @ H @ ones.T - kernel(X)), 1e-9 * size)
    M = kernel.mahalanobis(D)
    Z = X[:10] - X[10:]
    lost = 1e-15 * kernel.diag(X).max() if name == "polynomial" else 0  # its distance is a difference of large values
    np.testing.assert_allclose(
        np.einsum("ij,jk,ik->i", Z, M, Z), kernel.paired_squared_distance(X[:10], X[10:]), rtol=1e-6, atol=lost
    )
    np.testing.assert_allclose(M, M.T, rtol=1e-12, atol=1e-15 * np.abs(M).max())


def test_sparse_landmarks_give_the_same_matrix(X):
    dense, sparse = (landmark_map(Linear(), rows) for rows in (X[:3], sp.csr_array(X[:3])))
    np.testing.assert_allclose(sparse.affine(D), dense.affine(D))


@pytest.mark.parametrize(
    "kernel",
    [
        RBF(1.0),
        mf.kernels.Laplacian(1.0),
        mf.kernels.Cauchy(1.0),
        Polynomial(2),
        mf.kernels.Spectrum(3),
        Linear().normalized(),
        Linear() * Linear(),
        RBF(1.0) + Linear(),
        Standardized(RBF(1.0)).resolve(np.eye(D)),
        Weak(RBF(1.0), feature=0),
        mf.kernels.Precomputed().resolve(np.eye(D)),
        LearnedKernel(landmark_map(RBF(1.0), np.eye(D)), np.eye(D)),
    ],
    ids=lambda k: type(k).__name__,
)
def test_other_kernels_say_why_they_have_none(kernel):
    with pytest.raises(InputError, match=r"is not linear in the columns of X, so there is no matrix M .*; learn from"):
        kernel.mahalanobis(D)


def test_normalized_embeddings_and_graphs_have_none(X, rng):
    with pytest.raises(InputError, match="divides each embedded row by its norm"):
        fitted("simplenpkl", kernel=Standardized())(X, rng).mahalanobis(D)
    with pytest.raises(InputError, match="GraphExtension is not linear"):
        fitted("simplenpkl", kernel=Standardized(), extension="nystrom")(X, rng).mahalanobis(D)


def test_an_indefinite_matrix_is_not_a_metric(rng):
    with pytest.raises(InputError, match="has the negative eigenvalue -1"):
        Mixture([Linear(), Weak(Linear(), feature=0)], [1.0, -2.0]).mahalanobis(D)
