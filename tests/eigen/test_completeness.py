"""Every copy of a repeated eigenvalue: what a solver misses is found."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from metricforge_cases.matrices import (
    CLIQUES,
    ITERATIVE,
    SOLVERS,
    check,
    eigenpairs_without,
    laplacian,
    symmetric,
)
from scipy.sparse.linalg import aslinearoperator

from metricforge.eigen import top
from metricforge.eigen.completeness import search_above
from metricforge.eigen.products import Products


@pytest.mark.parametrize(
    "form", [sp.csr_array, aslinearoperator, sp.csr_array.toarray], ids=["csr", "operator", "full"]
)
@pytest.mark.parametrize("k", [1, 20, 60, 70, 119])
@pytest.mark.parametrize("solver", SOLVERS)
def test_cliques_give_every_copy(solver, k, form):
    w, _ = found = top(form(CLIQUES), k, solver=solver)
    check(found, CLIQUES, k)
    np.testing.assert_allclose(w, [4.0] * min(k, 60) + [0.0] * max(0, k - 60), atol=1e-7)


@pytest.mark.parametrize("k", [20, 60, 70])
@pytest.mark.parametrize("solver", ITERATIVE)
def test_cliques_give_every_copy_at_a_loose_tolerance(solver, k):
    """The search is in float32 here; the answer is not."""
    w, V = found = top(aslinearoperator(CLIQUES), k, solver=solver, tol=1e-3)
    assert found.status == "converged"
    np.testing.assert_allclose(w, [4.0] * min(k, 60) + [0.0] * max(0, k - 60), atol=1e-4)
    np.testing.assert_allclose(V.T @ V, np.eye(k), atol=1e-12)


@pytest.mark.parametrize("shift", [0.0, 2.0])
@pytest.mark.parametrize("k", [5, 30, 40])
@pytest.mark.parametrize("solver", ITERATIVE)
def test_a_graph_of_thirty_components(solver, k, shift):
    # 36 rows each: too large to be solved apart, so the solver itself meets thirty copies
    A = sp.csr_array(shift * sp.eye_array(30 * 36) - laplacian(30, 36))
    w, V = found = top(A, k, solver=solver)
    check(found, A, k)
    assert found.solver == solver
    np.testing.assert_allclose(w[:30], shift, atol=1e-12)
    if k == 30:
        # each eigenvector of the top is sqrt(degree) on each component
        component = np.repeat(np.arange(30), 36)
        for j in range(30):
            inside = V[component == j]
            assert np.linalg.matrix_rank(inside, tol=1e-6) == 1


@pytest.mark.parametrize("dropped", [[0], [5], [0, 1, 2, 3, 4, 5], list(range(20)), [19]])
@pytest.mark.parametrize(
    "A",
    [symmetric(np.linspace(-1, 1, 200)), symmetric(np.repeat([1.0, 0.5, -1.0], [25, 75, 100])), -laplacian(1, 200)],
    ids=["even", "repeated", "laplacian"],
)
def test_what_a_backend_leaves_out_is_found(A, dropped):
    found = top(A, 20, solver=eigenpairs_without(A, dropped))
    check(found, A, 20)
    assert found.solver == "forgetful"


@pytest.mark.parametrize(
    ("V", "level", "most", "copies"),
    [
        (np.eye(200, 30), 1.0, 30, 0),
        (np.eye(200, 10), 1.0, 10, 0),
        (np.eye(200, 31)[:, 3:], 0.5, 28, 3),
        (np.eye(200, 31)[:, 3:], 0.5, 2, 2),
        (np.eye(200, 20), -np.inf, 4, 4),
    ],
)
@pytest.mark.parametrize("tol", [1e-8, 1e-4], ids=["double", "single"])
def test_the_search_finds_what_is_missing_and_says_when_nothing_is(V, level, most, copies, tol):
    d = np.r_[np.ones(30), np.linspace(-1, 0.4, 170)]
    operator = Products(np.diag(d), 10**6, np.inf)
    guess = np.random.default_rng(0).standard_normal((200, 4))
    vectors, finished = search_above(operator, V, guess, level, most, tol)
    assert finished
    assert vectors.shape == (200, copies)
    assert vectors.dtype == np.float64
    np.testing.assert_allclose(d[:, None] * vectors, vectors, atol=tol)
    rounding = 1e-12 if tol < 1e-5 else 2e-6
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(copies), atol=rounding)
    np.testing.assert_allclose(V.T @ vectors, 0, atol=rounding)


@pytest.mark.parametrize("tol", [1e-8, 1e-4], ids=["double", "single"])
@pytest.mark.parametrize("miss", [0, 3, 9])
def test_a_missed_outlier_in_a_narrow_bulk_is_found(miss, tol):
    # The variance of a random vector under this matrix is tiny: the first Ritz value looks converged, and is not.
    d = np.sort(np.r_[np.linspace(0.3, 1, 10), np.random.default_rng(3).uniform(-0.01, 0.01, 4000)])[::-1]
    operator = Products(sp.diags_array(d).tocsr(), 10**6, np.inf)
    V = np.delete(np.eye(len(d), 11), miss, axis=1)
    for seed in range(10):
        guess = np.random.default_rng(seed).standard_normal((len(d), 1))
        vectors, _ = search_above(operator, V, guess, d[10], 10, tol)
        np.testing.assert_allclose(np.abs(vectors), np.eye(len(d))[:, [miss]], atol=max(1e-6, tol))


@pytest.mark.parametrize("width", [1, 4])
def test_an_invariant_complement_ends_the_search(width):
    d = np.r_[np.ones(30), np.full(170, 0.2)]
    products = Products(np.diag(d), 10**6, np.inf)
    guess = np.random.default_rng(0).standard_normal((200, width))
    vectors, finished = search_above(products, np.eye(200, 30), guess, 1.0, 30, 1e-8)
    assert finished
    assert vectors.shape == (200, 0)
    assert products.n_products <= 2 * width
