"""Top eigenpairs against LAPACK: values, subspaces, residuals; then limits, faults, starts and the backend contract."""

from __future__ import annotations

import copy
import itertools
import pickle
import time
import tracemalloc
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.linalg import LinearOperator, aslinearoperator

from metricforge import eigen
from metricforge.eigen import Stop, top
from metricforge.errors import ConvergenceWarning, InputError, SolverError, UnknownNameError

needs_primme = pytest.mark.skipif(not eigen._has_primme(), reason="PRIMME is not installed: it has no wheel")
PRIMME = pytest.param("primme", marks=needs_primme)
ITERATIVE = ["arpack", "lanczos", PRIMME]
SOLVERS = ["auto", "dense", *ITERATIVE]


def symmetric(eigenvalues, seed=0):
    """A full matrix with the given eigenvalues."""
    d = np.asarray(eigenvalues, dtype=float)
    Q = np.linalg.qr(np.random.default_rng(seed).standard_normal((len(d), len(d))))[0]
    A = (Q * d) @ Q.T
    return (A + A.T) / 2


def laplacian(components, size, seed=0):
    """The normalised Laplacian of a graph with that many connected components."""
    rng = np.random.default_rng(seed)
    blocks = []
    for _ in range(components):
        W = np.triu(rng.random((size, size)) < 0.2, 1) | np.eye(size, k=1, dtype=bool)
        blocks.append(W | W.T)
    W = sp.csr_array(sp.block_diag(blocks)).astype(float)
    scale = sp.diags_array(1 / np.sqrt(W.sum(axis=1)))
    return sp.csr_array(sp.eye_array(components * size) - scale @ W @ scale)


def full(A):
    if isinstance(A, LinearOperator):
        return A @ np.eye(A.shape[0])
    return A.toarray() if sp.issparse(A) else np.asarray(A, dtype=float)


def check(found, A, k, tol=1e-8):
    """Compare with LAPACK: eigenvalues, residuals, orthonormality, and the subspace where a gap defines one."""
    w, V = found
    D = full(A)
    exact, U = np.linalg.eigh(D)
    exact, U = exact[::-1], U[:, ::-1]
    scale = max(np.abs(exact).max(), np.finfo(float).tiny)
    assert found.status == "converged"
    assert w.shape == found.residuals.shape == (k,)
    assert V.shape == (len(D), k)
    assert (np.diff(w) <= 0).all()
    np.testing.assert_allclose(w / scale, exact[:k] / scale, rtol=0, atol=max(tol, 1e-12))
    np.testing.assert_allclose(V.T @ V, np.eye(k), rtol=0, atol=1e-12)
    residuals = np.linalg.norm(D @ V - V * w, axis=0) / scale
    assert residuals.max() <= max(tol, 1e-12)
    np.testing.assert_allclose(found.residuals / scale, residuals, rtol=0, atol=1e-13)
    if k < len(D) and exact[k - 1] - exact[k] > 1e-3 * scale:
        np.testing.assert_allclose(V @ V.T, U[:, :k] @ U[:, :k].T, rtol=0, atol=1e4 * max(tol, 1e-12))
    largest = np.abs(V).max(axis=0)
    assert (V.max(axis=0) >= (1 - 2e-6) * largest).all()


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


# --------------------------------------------------------------------------------------------- repeated eigenvalues

CLIQUES = sp.csr_array(sp.block_diag([np.ones((4, 4))] * 60))


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


def eigenpairs_without(A, dropped):
    """A backend that is exact, but leaves out what it is told to: every residual is zero, the answer is wrong."""
    _, U = np.linalg.eigh(full(A))
    kept = np.delete(U[:, ::-1], dropped, axis=1)

    def forgetful(operator, k, *, tol, v0, stop):
        V = kept[:, :k]
        return np.sum(V * (operator @ V), axis=0), V

    return forgetful


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
    operator = eigen._Operator(np.diag(d), 10**6, np.inf)
    guess = np.random.default_rng(0).standard_normal((200, 4))
    vectors, finished = eigen._search_above(operator, V, guess, level, most, tol)
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
    operator = eigen._Operator(sp.diags_array(d).tocsr(), 10**6, np.inf)
    V = np.delete(np.eye(len(d), 11), miss, axis=1)
    for seed in range(10):
        guess = np.random.default_rng(seed).standard_normal((len(d), 1))
        vectors, _ = eigen._search_above(operator, V, guess, d[10], 10, tol)
        np.testing.assert_allclose(np.abs(vectors), np.eye(len(d))[:, [miss]], atol=max(1e-6, tol))


# ------------------------------------------------------------------------------------------------- small components


def scattered():
    """Components of 1, 2, 7, 32, 33 and 150 rows, shuffled: isolated rows with and without a diagonal entry."""
    rng = np.random.default_rng(5)
    blocks = [np.zeros((1, 1))] * 9 + [np.full((1, 1), 2.0)] * 3
    for size, copies in [(2, 4), (7, 3), (32, 2), (33, 1), (150, 1)]:
        for _ in range(copies):
            B = rng.standard_normal((size, size)) * (rng.random((size, size)) < 0.3) + np.eye(size, k=1)
            blocks.append(B + B.T)
    order = rng.permutation(sum(len(B) for B in blocks))
    return sp.csr_array(sp.csr_array(sp.block_diag(blocks))[order][:, order])


@pytest.mark.parametrize("k", [1, 12, 60])
@pytest.mark.parametrize("solver", SOLVERS)
def test_components_of_every_size(solver, k):
    A = scattered()
    check(top(A, k, solver=solver), A, k)
    check(top(A, k, solver=solver, v0=np.eye(A.shape[0], 3)), A, k)


@pytest.mark.parametrize("solver", ITERATIVE)
def test_isolated_rows_come_out_of_the_graph(solver):
    L = laplacian(1, 200)
    A = sp.csr_array(sp.block_diag([-L, sp.csr_array((25, 25))]))
    w, V = found = top(A, 30, solver=solver)
    check(found, A, 30)
    np.testing.assert_allclose(w[:26], 0, atol=1e-9)
    assert found.solver == solver
    np.testing.assert_allclose(np.linalg.norm(V[200:], axis=1), 1, atol=1e-12)
    assert top(A[200:, 200:], 3, solver=solver).solver == "dense"


def test_duplicate_entries_add_up_and_stay():
    i = np.array([0, 1, 0, 1, 2, 2])
    j = np.array([1, 0, 1, 0, 2, 2])
    A = sp.coo_array((np.array([1.0, 1.0, 2.0, 2.0, 5.0, -1.0]), (i, j)), shape=(40, 40))
    w, _ = top(A, 3, solver="arpack")
    np.testing.assert_allclose(w, [4, 3, 0], atol=1e-12)
    assert A.nnz == 6


# ------------------------------------------------------------------------------------------- tolerance, scale, types


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


# ---------------------------------------------------------------------------------------------------- who is chosen


@pytest.mark.parametrize(
    ("n", "k", "solver", "ran"),
    [
        (500, 5, "auto", "dense"),
        (501, 5, "auto", "arpack"),
        (501, 126, "auto", "dense"),
        (20, 3, "arpack", "dense"),
        (21, 3, "arpack", "arpack"),
        (60, 30, "arpack", "dense"),
        (60, 29, "arpack", "arpack"),
        (60, 59, "arpack", "dense"),
        (60, 60, "arpack", "dense"),
        pytest.param(60, 59, "primme", "dense", marks=needs_primme),
        pytest.param(60, 29, "primme", "primme", marks=needs_primme),
        (300, 5, "dense", "dense"),
    ],
)
def test_the_solver_that_ran_is_named(n, k, solver, ran):
    A = symmetric(np.linspace(-1, 2, n))
    found = top(A, k, solver=solver, tol=1e-5)
    assert found.solver == ran
    check(found, A, k, tol=1e-5)


@needs_primme
def test_auto_takes_primme_for_a_loose_warm_start():
    A = symmetric(np.linspace(-1, 2, 600))
    V = top(A, 5)[1]
    assert top(A, 5, tol=1e-3, v0=V).solver == "primme"
    assert top(A, 5, tol=1e-3).solver == "arpack"
    assert top(A, 5, tol=1e-6, v0=V).solver == "arpack"


def test_without_primme_auto_still_runs_and_primme_is_refused(monkeypatch):
    monkeypatch.setattr(eigen, "_has_primme", lambda: False)
    A = symmetric(np.linspace(-1, 2, 600))
    assert top(A, 5, tol=1e-3, v0=np.eye(600, 5)).solver == "arpack"
    with pytest.raises(InputError, match=r"metricforge\[primme\]"):
        top(A, 5, solver="primme")


# --------------------------------------------------------------------------------------------- starts and determinism


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


# ------------------------------------------------------------------------------------------------------------ limits


def hard(n=1000):
    """An operator whose top is dense: thousands of products at tol = 1e-10."""
    d = -(np.linspace(0, 1, n) ** 2)
    return aslinearoperator(sp.diags_array(d))


@pytest.mark.parametrize("k", [1, 12])
@pytest.mark.parametrize("max_iter", [1, 7, 40, 200])
@pytest.mark.parametrize("solver", ITERATIVE)
def test_an_iteration_limit_returns_k_pairs(solver, max_iter, k):
    with pytest.warns(ConvergenceWarning, match="iteration_limit"):
        w, V = found = top(hard(), k, solver=solver, tol=1e-10, max_iter=max_iter)
    assert found.status == "iteration_limit"
    assert found.solver == solver
    assert found.n_products <= max_iter + 3 * k + 32
    assert w.shape == (k,)
    assert (np.diff(w) <= 0).all()
    np.testing.assert_allclose(V.T @ V, np.eye(k), atol=1e-12)
    np.testing.assert_allclose(found.residuals, np.linalg.norm(full(hard()) @ V - V * w, axis=0), atol=1e-12)


@pytest.mark.parametrize("solver", ITERATIVE)
def test_what_is_returned_at_a_limit_is_the_best_so_far(solver):
    sums, residuals = [], []
    for max_iter in (10, 100, 400, 1600):
        with pytest.warns(ConvergenceWarning):
            found = top(hard(), 6, solver=solver, tol=1e-12, max_iter=max_iter)
        sums.append(found[0].sum())
        residuals.append(found.residuals.max())
    assert sums == sorted(sums)
    assert residuals == sorted(residuals, reverse=True)
    exact = -(np.arange(6) ** 2).sum() / 999**2
    assert exact - sums[-1] < 1e-4 * (exact - sums[0])


def test_the_default_limit_is_finite():
    with pytest.warns(ConvergenceWarning, match="iteration_limit"):
        found = top(hard(3000), 1, solver=lambda A, k, *, tol, v0, stop: spin(A, v0, stop, polite=True))
    assert 21_000 <= found.n_products <= 21_100


def spin(A, v0, stop, polite):
    while not (polite and stop()):
        v0 = A @ v0
    return np.zeros(v0.shape[1]), v0 / np.linalg.norm(v0)


@pytest.mark.parametrize("polite", [True, False])
@pytest.mark.parametrize(
    ("limit", "status"),
    [({"max_iter": 50}, "iteration_limit"), ({"max_seconds": 0.2, "max_iter": 10**9}, "time_limit")],
)
def test_a_backend_that_never_ends_is_ended(limit, status, polite):
    def endless(A, k, *, tol, v0, stop):
        return spin(A, v0, stop, polite)

    started = time.monotonic()
    with pytest.warns(ConvergenceWarning):
        found = top(hard(), 3, solver=endless, **limit)
    assert time.monotonic() - started < 5
    assert found.status == status
    np.testing.assert_allclose(found[1].T @ found[1], np.eye(3), atol=1e-12)


@pytest.mark.parametrize("n", [60, 1000])
@pytest.mark.parametrize("max_seconds", [0, 0.3])
@pytest.mark.parametrize("solver", SOLVERS)
def test_a_time_limit_ends_a_slow_operator(solver, max_seconds, n):
    fast = hard(n)
    if solver == "dense" and n == 1000:
        n = 400
        fast = hard(n)

    def slow(X):
        time.sleep(0.02)
        return fast @ X

    operator = LinearOperator((n, n), matvec=slow, matmat=slow, dtype=float)
    started = time.monotonic()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = top(operator, 5, solver=solver, tol=1e-12, max_seconds=max_seconds)
    assert time.monotonic() - started < max_seconds + 3
    if found.status == "converged":  # only LAPACK on a few columns is as fast as that
        assert found.solver == "dense"
        assert not caught
    else:
        assert found.status == "time_limit"
        assert [c.category for c in caught] == [ConvergenceWarning]
        assert caught[0].filename == __file__
    np.testing.assert_allclose(found[1].T @ found[1], np.eye(5), atol=1e-12)


def test_a_limit_during_the_search_is_said():
    A = symmetric(np.linspace(-1, 1, 300))
    backend = eigenpairs_without(A, [])
    assert top(A, 5, solver=backend).status == "converged"
    with pytest.warns(ConvergenceWarning, match="larger eigenvalues may be missing"):
        found = top(A, 5, solver=backend, max_iter=30)
    assert found.status == "iteration_limit"
    assert found.residuals.max() < 1e-12


def lazy(A, k, *, tol, v0, stop):
    return np.zeros(k), v0


def test_a_backend_that_gives_up_is_not_called_converged():
    A = symmetric(np.linspace(-1, 1, 300))
    with pytest.warns(ConvergenceWarning, match="iteration_limit"):
        found = top(A, 4, solver=lazy, max_iter=40)
    assert found.residuals.max() > 1e-3
    # with room, the search for larger eigenvalues makes good even that
    check(top(A, 4, solver=lazy), A, 4)
    check(top(CLIQUES.toarray(), 30, solver=lazy), CLIQUES, 30)


# ------------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("solver", SOLVERS)
def test_a_nan_is_refused_with_its_row(solver, bad):
    A = -laplacian(1, 600).toarray()
    A[17, 400] = A[400, 17] = bad
    for form in (A, sp.csr_array(A), sp.coo_matrix(A)):
        with pytest.raises(InputError, match=r"A holds a NaN or an infinity in rows 17, 400;"):
            top(form, 3, solver=solver)


@pytest.mark.parametrize("n", [40, 600])
@pytest.mark.parametrize("after", [0, 1, 20])
@pytest.mark.parametrize("solver", SOLVERS)
def test_a_nan_from_an_operator_stops_at_once(solver, after, n):
    D = -laplacian(1, n).toarray()
    calls = itertools.count()

    def product(X):
        Y = D @ X
        if next(calls) >= after:
            Y[5] = np.nan
        return Y

    # on 40 rows the operator is multiplied out in three blocks
    after = min(after, 1) if n == 40 and solver in ("dense", "auto") else after
    with pytest.raises(InputError, match="NaN or an infinity in row 5;"):
        top(LinearOperator((n, n), matvec=product, matmat=product, dtype=float), 3, solver=solver)
    assert next(calls) == after + 1


@pytest.mark.parametrize("solver", SOLVERS)
def test_asymmetry_names_the_entry(solver):
    A = symmetric(np.linspace(-1, 1, 700))
    A[650, 3] += 1e-3
    for form in (A, sp.csr_array(A), sp.csc_matrix(A)):
        with pytest.raises(InputError, match=r"A\[(650, 3|3, 650)\] = .* but A\[(3, 650|650, 3)\] = "):
            top(form, 3, solver=solver)
    one_sided = sp.csr_array(([5.0], ([2], [30])), shape=(50, 50))
    with pytest.raises(InputError, match=r"A\[2, 30\] = 5 but A\[30, 2\] = 0|A\[30, 2\] = 0 but A\[2, 30\] = 5"):
        top(one_sided, 3, solver=solver)


@pytest.mark.parametrize("n", [60, 600])
@pytest.mark.parametrize("solver", SOLVERS)
def test_an_asymmetric_operator_is_refused(solver, n):
    G = np.random.default_rng(0).standard_normal((n, n))
    with pytest.raises(InputError, match="not symmetric"):
        top(aslinearoperator(G), 3, solver=solver)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_asymmetry_of_rounding_is_accepted(dtype):
    A = symmetric(np.linspace(-1, 1, 100))
    noise = np.random.default_rng(0).standard_normal(A.shape) * np.finfo(dtype).eps
    w, _ = top((A + noise).astype(dtype), 3)
    np.testing.assert_allclose(w, np.linspace(-1, 1, 100)[:-4:-1], atol=1e-5)


EYE = np.eye(30)


@pytest.mark.parametrize(
    ("A", "k", "options", "message"),
    [
        (np.ones((3, 4)), 1, {}, r"A must be square .* got shape \(3, 4\)"),
        (np.ones(3), 1, {}, "A must be square"),
        (np.ones((0, 0)), 1, {}, "at least one row"),
        (sp.csr_array((3, 4)), 1, {}, "A must be square"),
        (aslinearoperator(np.ones((3, 4))), 1, {}, "A must be square"),
        (EYE.tolist(), 1, {}, "A must be an ndarray"),
        (EYE * 1j, 1, {}, "A must be real"),
        (sp.csr_array(EYE * 1j), 1, {}, "A must be real"),
        (EYE.astype(object), 1, {}, "A must be real"),
        (EYE, 0, {}, "k must be"),
        (EYE, 31, {}, "k must be at most 30"),
        (EYE, 2.5, {}, "k must be"),
        (EYE, True, {}, "k must be"),
        (EYE, 2, {"v0": np.ones(30)}, r"v0 must have shape \(30, i\)"),
        (EYE, 2, {"v0": np.ones((29, 2))}, "v0 must have shape"),
        (EYE, 2, {"v0": np.ones((30, 0))}, "v0 must have shape"),
        (EYE, 2, {"v0": np.full((30, 1), np.nan)}, "v0 holds a NaN"),
        (EYE, 2, {"v0": [["a"]] * 30}, "v0 must"),
        (EYE, 2, {"tol": -1}, "tol must be"),
        (EYE, 2, {"tol": np.nan}, "tol must be"),
        (EYE, 2, {"tol": "small"}, "tol must be"),
        (EYE, 2, {"max_iter": 0}, "max_iter must be"),
        (EYE, 2, {"max_seconds": -1}, "max_seconds must be"),
        (EYE, 2, {"max_seconds": np.inf}, "max_seconds must be"),
        (EYE, 2, {"solver": 3}, "solver must be a name or a callable"),
    ],
)
def test_bad_arguments(A, k, options, message):
    with pytest.raises(InputError, match=message):
        top(A, k, **options)


def test_an_unknown_solver_is_answered_with_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'arpack'"):
        top(EYE, 2, solver="arpak")


def test_inputs_are_left_alone():
    A = symmetric(np.linspace(-1, 1, 60))
    v0 = np.ones((60, 2))
    kept = A.copy()
    A.flags.writeable = v0.flags.writeable = False
    for solver in ("dense", "arpack", *(["primme"] if eigen._has_primme() else [])):
        top(A, 5, solver=solver, v0=v0)
        S = sp.csr_array(A)
        S.data.flags.writeable = S.indices.flags.writeable = S.indptr.flags.writeable = False
        top(S, 5, solver=solver, v0=v0)
    np.testing.assert_array_equal(A, kept)


# ------------------------------------------------------------------------------------------------------- operators


class CustomError(Exception):
    """Nothing that a library would raise."""


@pytest.mark.parametrize("n", [40, 600])
@pytest.mark.parametrize(
    "error", [CustomError("no such luck"), KeyboardInterrupt("enough")], ids=["error", "interrupt"]
)
@pytest.mark.parametrize("after", [0, 2, 25])
@pytest.mark.parametrize("solver", SOLVERS)
def test_an_exception_in_an_operator_comes_out_as_it_was(solver, after, error, n):
    D = -laplacian(1, n).toarray()
    calls = itertools.count()
    cause = ValueError("the reason")
    after = min(after, 2) if n == 40 and solver in ("dense", "auto") else after

    def product(X):
        if next(calls) == after:
            raise error from cause
        return D @ X

    with pytest.raises(type(error)) as raised:
        top(LinearOperator((n, n), matvec=product, matmat=product, dtype=float), 3, solver=solver)
    assert raised.value is error
    assert raised.value.__cause__ is cause
    assert next(calls) == after + 1


@pytest.mark.parametrize("solver", SOLVERS)
def test_an_operator_may_offer_single_products_only(solver):
    A = -laplacian(1, 300)
    check(top(LinearOperator(A.shape, matvec=lambda x: A @ x, dtype=float), 4, solver=solver), A, 4)


@needs_primme
def test_primme_multiplies_blocks():
    A = -laplacian(1, 300)
    widths = []

    def block(X):
        widths.append(X.shape[1])
        return A @ X

    operator = LinearOperator(A.shape, matvec=lambda x: A @ x, matmat=block, dtype=float)
    found = top(operator, 64, solver="primme")
    check(found, A, 64)
    assert max(widths) == 16  # of 64 / 4, and no block is wider than what the clock allows
    assert np.mean(widths) > 4


@pytest.mark.parametrize("solver", SOLVERS)
def test_products_are_counted(solver):
    A = -laplacian(1, 300)
    seen = []

    def product(X):
        seen.append(X.shape[1] if X.ndim == 2 else 1)
        return A @ X

    found = top(LinearOperator(A.shape, matvec=product, matmat=product, dtype=float), 7, solver=solver)
    assert found.n_products == sum(seen)


def test_an_operator_that_returns_its_argument_is_not_harmed():
    check(
        top(LinearOperator((90, 90), matvec=lambda x: x, matmat=lambda X: X, dtype=float), 4, solver="arpack"), EYE90, 4
    )


EYE90 = np.eye(90)


# --------------------------------------------------------------------------------------------- the backend contract


def test_a_backend_gets_what_is_documented():
    A = 1e6 * symmetric(np.linspace(-3, 2, 200))
    seen = {}

    def backend(operator, k, *, tol, v0, stop):
        seen.update(k=k, tol=tol, v0=v0, stop=stop(), operator=operator)
        U = np.linalg.eigh(operator @ np.eye(200))
        seen["largest"] = np.abs(U.eigenvalues).max()
        return U.eigenvalues, U.eigenvectors  # in any order, more than k

    check(top(A, 6, solver=backend, v0=np.ones((200, 2)) + np.eye(200, 2)), A, 6)
    assert isinstance(seen["operator"], LinearOperator)
    assert seen["operator"].dtype == np.float64
    assert 0.9 < seen["largest"] < 1.3
    assert seen["k"] == 6
    assert 0 < seen["tol"] <= 1e-8
    assert seen["stop"] is False
    np.testing.assert_allclose(seen["v0"].T @ seen["v0"], np.eye(2), atol=1e-12)


@pytest.mark.parametrize(
    "V",
    [np.full((200, 3), np.nan), np.ones((3, 200)), np.ones(200), None],
    ids=["nan", "transposed", "flat", "none"],
)
def test_a_backend_that_returns_rubbish_is_blamed(V):
    with pytest.raises(SolverError, match="must return"):
        top(symmetric(np.linspace(-1, 1, 200)), 3, solver=lambda A, k, *, tol, v0, stop: (np.zeros(3), V))


def test_a_backend_that_multiplies_a_nan_is_blamed_not_the_matrix():
    with pytest.raises(SolverError, match="broke down"):
        top(
            symmetric(np.linspace(-1, 1, 200)),
            3,
            solver=lambda A, k, *, tol, v0, stop: (np.zeros(3), A @ np.full((200, 3), np.nan)),
        )


def test_an_error_of_a_backend_keeps_its_type():
    def broken(A, k, *, tol, v0, stop):
        raise CustomError("mine")

    with pytest.raises(CustomError, match="mine"):
        top(symmetric(np.linspace(-1, 1, 200)), 3, solver=broken)


@pytest.mark.parametrize("V", [np.empty((120, 0)), np.ones((120, 2)), np.zeros((120, 5)), np.eye(120, 9)])
def test_too_few_and_dependent_columns_are_made_up_for(V):
    A = symmetric(np.linspace(-1, 1, 120))
    check(top(A, 5, solver=lambda A, k, *, tol, v0, stop: (np.zeros(V.shape[1]), V)), A, 5)


@pytest.mark.parametrize("noise", [1e-9, 1e-7, 1e-4])
def test_pairs_short_of_tol_are_refined(noise):
    A = symmetric(np.repeat([3.0, 2.0, 1.0, -2.0], [5, 20, 60, 115]))
    exact = np.linalg.eigh(A).eigenvectors[:, ::-1]
    rough = exact[:, :15] + noise * np.random.default_rng(0).standard_normal((200, 15))
    found = top(A, 15, solver=lambda A, k, *, tol, v0, stop: (np.zeros(15), rough))
    check(found, A, 15)
    assert found.n_products < 400


@pytest.mark.parametrize("stage", ["first", "later"])
def test_a_breakdown_of_arpack_is_survived(monkeypatch, stage):
    import scipy.sparse.linalg

    def failing(operator, *_, v0, **options):
        if stage == "later":
            for _ in range(30):
                v0 = operator @ v0
        raise scipy.sparse.linalg.ArpackError(3)

    monkeypatch.setattr(scipy.sparse.linalg, "eigsh", failing)
    A = symmetric(np.repeat([4.0, 3.0, 0.0], [5, 25, 70]))
    check(top(A, 12, solver="arpack"), A, 12)


def test_a_backend_may_swallow_the_stop():
    def stubborn(A, k, *, tol, v0, stop):
        try:
            while True:
                v0 = A @ v0
        except Stop:
            return np.zeros(v0.shape[1]), np.eye(1000, 3)

    with pytest.warns(ConvergenceWarning):
        found = top(hard(), 3, solver=stubborn, max_iter=60)
    np.testing.assert_allclose(found[0], np.diag(full(hard()))[:3], atol=1e-12)


# ----------------------------------------------------------------------------------------------- result and memory


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
