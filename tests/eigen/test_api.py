"""`top` against LAPACK: values, subspaces, residuals, tolerances, containers, types; the result and its memory."""

from __future__ import annotations

import copy
import pickle
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from metricforge_cases.matrices import (
    CLIQUES,
    ITERATIVE,
    SOLVERS,
    check,
    laplacian,
    symmetric,
)
from scipy.sparse.linalg import LinearOperator, aslinearoperator

from metricforge.eigen import top


def spectra():
    rng = np.random.default_rng(7)
    n = 150
    S = sp.random_array((n, n), density=0.05, rng=rng)
    G = rng.standard_normal((n, n))
    yield "sparse", sp.csr_array(S + S.T), 6
    yield "dense", G + G.T, 6
    yield "rank 3 of 10 asked", G[:, :3] @ G[:, :3].T, 10
    yield "negative definite", symmetric(-np.linspace(1, 40, n)), 5
    yield "top far below the bottom", symmetric(np.r_[-1000.0, np.linspace(0, 1, n - 1)]), 4
    yield "cluster of 1e-5", symmetric(np.r_[1 + 1e-5 * rng.standard_normal(12), rng.uniform(-1, 0.8, n - 12)]), 8
    yield "two values", symmetric(np.repeat([1.0, 0.0], [40, n - 40])), 15
    yield "k inside a multiplicity", symmetric(np.repeat([3.0, 2.5, 0.0, -1.0], [5, 30, 60, n - 95])), 20
    yield "geometric", symmetric(0.9 ** np.arange(n)), 20
    yield "identity", np.eye(n), 7
    yield "diagonal", np.diag(np.arange(n, dtype=float)), 9


SPECTRA = list(spectra())


@pytest.mark.parametrize(("A", "k"), [s[1:] for s in SPECTRA], ids=[s[0] for s in SPECTRA])
@pytest.mark.parametrize("solver", SOLVERS)
def test_against_lapack(solver, A, k):
    check(top(A, k, solver=solver), A, k)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix, sp.csr_array, sp.coo_array, sp.bsr_array, sp.lil_matrix])
@pytest.mark.parametrize("solver", SOLVERS)
def test_every_container(solver, form):
    S = sp.random_array((120, 120), density=0.05, rng=np.random.default_rng(1)).toarray()
    A = form(S + S.T)
    check(top(A, 5, solver=solver), A, 5)
    check(top(aslinearoperator(sp.csr_array(A)), 5, solver=solver), A, 5)


@pytest.mark.parametrize("solver", ITERATIVE)
@settings(max_examples=25)
@given(
    values=st.lists(st.integers(-4, 4), min_size=21, max_size=60),
    fraction=st.floats(0.01, 0.49),
    seed=st.integers(0, 1000),
)
def test_integer_spectra(solver, values, fraction, seed):
    k = max(1, int(fraction * len(values)))
    A = symmetric(values, seed)
    check(top(A, k, solver=solver, seed=seed), A, k)


# ---------------------------------------------------------------------------------------------- tolerance, scale, types


@pytest.mark.parametrize("tol", [1e-2, 1e-4, 1e-6, 1e-10, 0.0])
@pytest.mark.parametrize("solver", ITERATIVE)
def test_tol_bounds_the_residual_even_where_eigenvalues_vanish(solver, tol):
    A = -laplacian(3, 100)
    found = top(A, 6, solver=solver, tol=tol)
    check(found, A, 6, tol)


@pytest.mark.parametrize("solver", ITERATIVE)
def test_a_looser_tol_costs_less(solver):
    A = -laplacian(1, 400)
    counts = [top(A, 6, solver=solver, tol=tol).n_products for tol in (1e-2, 1e-5, 1e-9)]
    assert counts[0] < counts[1] < counts[2]


@pytest.mark.parametrize("factor", [1e-300, 1e-200, 1e-9, 1e150])
@pytest.mark.parametrize("solver", SOLVERS)
def test_scale_does_not_matter(solver, factor):
    A = symmetric(np.r_[np.linspace(1, 2, 10), np.linspace(-1, 0.5, 90)])
    w, V = top(A * factor, 5, solver=solver)
    np.testing.assert_allclose(w / factor, np.linspace(1, 2, 10)[:4:-1], rtol=1e-9)
    np.testing.assert_allclose(V.T @ V, np.eye(5), atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.int64, bool])
@pytest.mark.parametrize("solver", SOLVERS)
def test_matrices_of_other_types_are_converted(solver, dtype):
    S = (np.random.default_rng(2).standard_normal((90, 90)) * 3).astype(dtype)
    A = np.maximum(S, S.T)
    for form in (A, sp.csr_array(A.astype(np.float32) if dtype is np.float16 else A)):
        w, V = found = top(form, 4, solver=solver)
        assert w.dtype == V.dtype == np.float64
        check(found, A.astype(float), 4)


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_float32_operator_is_good_to_float32(solver):
    A = symmetric(np.linspace(-1, 1, 600) ** 3).astype(np.float32)
    A = (A + A.T) / 2
    operator = LinearOperator(A.shape, matvec=lambda x: A @ x.astype(np.float32), dtype=np.float32)
    w, V = found = top(operator, 4, solver=solver)
    assert found.status == "converged"
    np.testing.assert_allclose(w, np.linalg.eigvalsh(A.astype(float))[:-5:-1], atol=1e-6)
    np.testing.assert_allclose(A.astype(float) @ V, V * w, atol=1e-5)
    np.testing.assert_allclose(V.T @ V, np.eye(4), atol=1e-12)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("n", [1, 2, 20, 21, 300])
def test_zero_matrices(solver, n):
    k = min(n, 5)
    zero = np.zeros((n, n))
    for A in (zero, sp.csr_array(zero), LinearOperator((n, n), matvec=lambda x: 0.0 * x, dtype=float)):
        w, V = found = top(A, k, solver=solver)
        assert found.status == "converged"
        np.testing.assert_array_equal(w, 0)
        np.testing.assert_allclose(V.T @ V, np.eye(k), atol=1e-14)


@pytest.mark.parametrize("solver", SOLVERS)
def test_one_by_one(solver):
    w, V = top(np.array([[-3.0]]), 1, solver=solver)
    np.testing.assert_array_equal(w, [-3.0])
    np.testing.assert_array_equal(V, [[1.0]])


@pytest.mark.parametrize("solver", SOLVERS)
def test_every_k_of_a_small_matrix(solver):
    A = symmetric(np.round(np.random.default_rng(4).standard_normal(24), 1))
    for k in range(1, 25):
        check(top(A, k, solver=solver), A, k)


# ----------------------------------------------------------------------------------------------- starts and determinism


@pytest.mark.parametrize("solver", SOLVERS)
def test_same_seed_same_bits(solver):
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    for A in (aslinearoperator(CLIQUES), -laplacian(12, 40)):
        runs = [top(A, 15, solver=solver, seed=s)[1] for s in (3, 3, None, None)]
        np.testing.assert_array_equal(runs[0], runs[1])
        np.testing.assert_array_equal(runs[2], runs[3])
        a, b = np.random.default_rng(8), np.random.default_rng(8)
        np.testing.assert_array_equal(top(A, 4, solver=solver, seed=a)[1], top(A, 4, solver=solver, seed=b)[1])
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002


@pytest.mark.parametrize("solver", SOLVERS)
def test_another_seed_gives_the_same_subspace(solver):
    A = -laplacian(1, 600)
    (_, V), (_, U) = (top(A, 4, solver=solver, seed=s, tol=1e-10) for s in (0, 1))
    np.testing.assert_allclose(V, U, atol=1e-6)  # simple eigenvalues and a sign convention: the vectors themselves


@pytest.mark.parametrize("solver", ITERATIVE)
def test_a_warm_start_saves_products(solver):
    rng = np.random.default_rng(0)
    A = -laplacian(1, 1500)
    E = sp.random_array(A.shape, density=0.002, rng=rng)
    V = top(A, 8, solver=solver, tol=1e-6)[1]
    B = sp.csr_array(A + 1e-4 * (E + E.T))
    cold, warm = (top(B, 8, solver=solver, tol=1e-3, v0=v0) for v0 in (None, V))
    assert warm.status == cold.status == "converged"
    np.testing.assert_allclose(warm[0], cold[0], atol=1e-4)
    assert warm.n_products < (0.6 if solver == "primme" else 1.0) * cold.n_products


@pytest.mark.parametrize("columns", [1, 3, 8, 40])
@pytest.mark.parametrize("solver", SOLVERS)
def test_any_start_leads_to_the_same_answer(solver, columns):
    A = symmetric(np.repeat([2.0, 1.0, -1.0], [6, 30, 84]))
    _, U = np.linalg.eigh(A)
    for v0 in (
        np.zeros((120, columns)),
        np.ones((120, columns)),
        U[:, :columns],
        U[:, -columns:],
        np.eye(120, columns),
    ):
        check(top(A, 8, solver=solver, v0=v0), A, 8)


# ---------------------------------------------------------------------------------------------------- result and memory


def test_the_result_is_a_pair_with_notes():
    found = top(symmetric(np.linspace(-1, 1, 60)), 4, solver="arpack")
    assert isinstance(found, tuple)
    assert len(found) == 2
    for same in (pickle.loads(pickle.dumps(found)), copy.deepcopy(found), copy.copy(found)):
        np.testing.assert_array_equal(same[0], found[0])
        np.testing.assert_array_equal(same[1], found[1])
        np.testing.assert_array_equal(same.residuals, found.residuals)
        assert (same.status, same.solver, same.n_products) == (found.status, found.solver, found.n_products)


@pytest.mark.parametrize("solver", ITERATIVE)
def test_nothing_square_is_allocated(solver):
    n, k = 20_000, 5
    ring = sp.diags_array([np.ones(n - 1), np.linspace(0, 9, n), np.ones(n - 1)], offsets=[-1, 0, 1], format="csr")
    tracemalloc.start()
    found = top(ring, k, solver=solver, tol=1e-4)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.status == "converged"
    assert peak < 8 * n * 200  # two hundred vectors; a square would be 3.2 GB
