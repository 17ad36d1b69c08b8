"""Block Lanczos by itself: against LAPACK, in both precisions, on breakdowns, starts, limits; beside ARPACK."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import aslinearoperator

from metricforge import eigen
from metricforge.eigen.lanczos import SINGLE_TOL, basis_size, block_width, lanczos_pairs, thick_restart


class Counted:
    """A symmetric matrix that counts its products and notes their precision."""

    def __init__(self, A):
        self.A, self.shape, self.columns, self.types = A, A.shape, 0, set()

    def __matmul__(self, X):
        self.columns += X.shape[1]
        self.types.add(X.dtype.type)
        return (self.A @ X).astype(X.dtype)


def graph(n, seed=0):
    """−L of a sparse random graph with a heavy clique: largest absolute eigenvalue about 1, a spread top."""
    rng = np.random.default_rng(seed)
    i, j = rng.integers(n, size=(2, 4 * n))
    W = sp.coo_array((np.ones(4 * n), (i, j)), shape=(n, n)).tocsr()
    W = W + W.T
    W.setdiag(0)
    scale = sp.diags_array(1 / np.sqrt(np.maximum(W.sum(axis=1), 1)))
    return sp.csr_array(scale @ W @ scale)


def solve(A, k, tol, v0=None, stop=lambda: False, **options):
    n = A.shape[0]
    start = np.linalg.qr(np.random.default_rng(0).standard_normal((n, 3)))[0] if v0 is None else v0
    counted = Counted(A)
    w, V = lanczos_pairs(counted, k, tol=tol, v0=start, stop=stop, **options)
    return w, V, counted


@pytest.mark.parametrize("k", [1, 6, 40, 110])
@pytest.mark.parametrize("tol", [1e-2, 1e-4, 1e-8])
def test_pairs_are_lapacks_to_the_tolerance(k, tol):
    A = graph(700)
    w, V, counted = solve(A, k, tol)
    exact = np.linalg.eigvalsh(A.toarray())[::-1][:k]
    assert counted.types == ({np.float32} if tol >= SINGLE_TOL else {np.float64})
    assert V.dtype == np.float64
    assert V.shape == (700, k)
    # Ritz values err by the square of the residual over the gap, and by rounding of the basis
    np.testing.assert_allclose(w, exact, atol=max(10 * tol**1.5, 2e-6 if tol >= SINGLE_TOL else 1e-12))
    slack = 3e-6 if tol >= SINGLE_TOL else 1e-12
    assert np.linalg.norm(A @ V - V * w, axis=0).max() <= tol + slack
    np.testing.assert_allclose(V.T @ V, np.eye(k), atol=1e-5 if tol >= SINGLE_TOL else 1e-11)


@pytest.mark.parametrize("rank", [1, 5, 30])
@pytest.mark.parametrize("tol", [1e-4, 1e-9])
def test_an_invariant_subspace_ends_it(rank, tol):
    """A matrix of low rank breaks the recurrence down; what is there is returned."""
    rng = np.random.default_rng(1)
    Q = np.linalg.qr(rng.standard_normal((200, rank)))[0]
    A = (Q * np.linspace(0.5, 1, rank)) @ Q.T
    w, V, counted = solve(A, 6, tol)
    assert counted.columns <= 2 * basis_size(200, 6)
    assert np.isfinite(V).all()
    np.testing.assert_allclose(w[: min(6, rank)], np.linspace(0.5, 1, rank)[::-1][:6], atol=2e-6)


def test_copies_beyond_the_block_are_left_to_the_search_and_found():
    A = sp.csr_array(sp.block_diag([sp.coo_array(np.ones((40, 40)) / 40)] * 30))  # thirty ones, the rest zeros
    found = eigen.top(aslinearoperator(A), 30, solver="lanczos", tol=1e-4)
    assert found.status == "converged"
    np.testing.assert_allclose(found[0], np.ones(30), atol=1e-7)


def test_a_start_at_the_answer_saves_products():
    A = graph(2000)
    cold = solve(A, 40, 1e-4)
    warm = solve(A, 40, 1e-4, v0=np.linalg.qr(cold[1])[0])
    assert warm[2].columns <= cold[2].columns
    np.testing.assert_allclose(warm[0], cold[0], atol=1e-6)


def test_stop_returns_the_best_so_far():
    calls = iter(range(10**6))
    w, V, counted = solve(graph(2000), 40, 1e-12, stop=lambda: next(calls) >= 4)
    assert counted.columns == 5 * block_width(40)
    assert V.shape == (2000, 40)
    assert w[0] > 0.5


@pytest.mark.parametrize("factor", [1e-200, 1e-30, 1e30, 1e150])
def test_single_precision_does_not_narrow_the_range(factor):
    A = graph(600)
    plain = eigen.top(A, 40, solver="lanczos", tol=1e-3)
    scaled = eigen.top(A * factor, 40, solver="lanczos", tol=1e-3)
    np.testing.assert_allclose(scaled[0] / factor, plain[0], rtol=1e-5)
    assert scaled.n_products == plain.n_products


def test_it_uses_no_randomness_of_its_own():
    A = graph(1500)
    one, two = solve(A, 20, 1e-4), solve(A, 20, 1e-4)
    np.testing.assert_array_equal(one[1], two[1])


@pytest.mark.parametrize(("k", "tol", "ran"), [(40, 1e-4, "lanczos"), (8, 1e-4, "arpack"), (40, 1e-8, "arpack")])
def test_auto_takes_it_for_many_pairs(k, tol, ran):
    assert eigen.top(graph(1500), k, tol=tol).solver == ran


def test_memory_is_one_basis_in_single_precision():
    import tracemalloc

    n, k = 20_000, 50
    A = graph(n)
    v0 = np.linalg.qr(np.random.default_rng(0).standard_normal((n, 3)))[0]
    tracemalloc.start()
    lanczos_pairs(Counted(A), k, tol=1e-3, v0=v0, stop=lambda: False)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    basis = 4 * n * basis_size(n, k)
    assert peak < basis + 8 * n * k + 14 * 8 * n * block_width(k)


# ------------------------------------------------------------------------------------------------------- the iteration


def iterate(A, start, size, keep, until=1000, **options):
    """Return the Ritz pairs that the iteration yields until so many products."""
    found = []
    options = {"wanted": 4, "stop": lambda: False} | options
    for ritz in thick_restart(lambda X: A @ X, start, size, keep, **options):
        w, V = ritz.values, ritz.vectors(slice(4))
        assert (np.diff(w) <= 0).all()
        np.testing.assert_allclose(V.T @ V, np.eye(4), atol=1e-12)
        # residuals come from the last block alone, and are those of products
        np.testing.assert_allclose(ritz.residuals, np.linalg.norm(A @ V - V * w[:4], axis=0), atol=1e-12)
        found.append((ritz.products, w[:4].copy(), ritz.residuals, ritz.last))
        if ritz.products >= until:
            break
    return found


def test_ritz_values_climb_through_restarts_to_the_eigenvalues(rng):
    A = graph(600)
    start = np.linalg.qr(rng.standard_normal((600, 4)))[0]
    found = iterate(A, start, 24, 8, until=600)
    assert [entry[0] for entry in found] == list(range(24, 601, 16))  # a full basis, then as much as was dropped
    sums = [entry[1].sum() for entry in found]
    assert (np.diff(sums) >= -1e-12 * sums[-1]).all()  # up to rounding
    np.testing.assert_allclose(found[-1][1], np.linalg.eigvalsh(A.toarray())[::-1][:4], atol=1e-8)
    assert found[-1][2].max() < 1e-5


def test_pairs_are_yielded_as_often_as_asked(rng):
    A = graph(600)
    start = np.linalg.qr(rng.standard_normal((600, 4)))[0]
    often = iterate(A, start, 24, 8, until=120, every=8)
    assert [entry[0] for entry in often] == [8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120]
    rare = {entry[0]: entry[1] for entry in iterate(A, start, 24, 8, until=120)}
    for products, w, _, _ in often:
        if products in rare:
            np.testing.assert_allclose(w, rare[products], rtol=0, atol=1e-13)


def test_the_basis_stays_apart_from_known_eigenvectors(rng):
    d = np.r_[np.ones(30), np.linspace(-1, 0.5, 170)]
    known = np.eye(200, 30)
    start = np.linalg.qr(rng.standard_normal((200, 4)) * (np.arange(200) >= 30)[:, None])[0]
    (*_, last) = thick_restart(lambda X: d[:, None] * X, start, 24, 8, wanted=1, stop=limit(200), apart=known)
    assert np.abs(known.T @ last.basis.times(last.rotation)).max() < 1e-13
    assert last.values[0] == pytest.approx(0.5, abs=1e-6)


def limit(products):
    """Return a stop that turns true after so many blocks of four."""
    calls = iter(range(10**6))
    return lambda: 4 * next(calls) >= products


def test_an_invariant_basis_is_the_last(rng):
    Q = np.linalg.qr(rng.standard_normal((200, 8)))[0]
    A = (Q * np.linspace(0.3, 1, 8)) @ Q.T
    found = iterate(A, Q[:, :4] @ np.linalg.qr(rng.standard_normal((4, 4)))[0], 24, 8)
    assert found == found[:1]
    products, w, residuals, last = found[0]
    assert last
    assert products == 4
    np.testing.assert_allclose(w, np.linspace(0.3, 1, 8)[3::-1], atol=1e-12)
    np.testing.assert_allclose(residuals, 0, atol=1e-12)
