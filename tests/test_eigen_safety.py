"""The top eigenpairs: right on degenerate spectra, always ending, never a NaN."""

from __future__ import annotations

import time
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator

from metricforge.eigen import top
from metricforge.errors import ConvergenceWarning, InputError, UnknownNameError

SOLVERS = ["auto", "primme", "arpack", "dense"]


@pytest.fixture(params=SOLVERS)
def solver(request):
    if request.param == "primme":
        pytest.importorskip("primme", reason="PRIMME is an extra that needs a compiler; ARPACK stands in without it")
    return request.param


def laplacian(components=30, size=40, seed=0):
    rng = np.random.default_rng(seed)
    blocks = []
    for _ in range(components):
        B = np.triu(rng.random((size, size)) < 0.2, 1)
        B |= np.triu(np.eye(size, k=1, dtype=bool))  # a path keeps it connected
        blocks.append((B | B.T).astype(float))
    W = sp.block_diag(blocks).tocsr()
    return sp.diags_array(np.asarray(W.sum(axis=1)).ravel()).tocsr() - W


def check(A, k, solver, **options):
    w, V = found = top(A, k, solver=solver, seed=0, **options)
    dense = A.toarray() if sp.issparse(A) else np.asarray(A)
    expected = np.linalg.eigvalsh(dense)[::-1][:k]
    scale = max(np.abs(np.linalg.eigvalsh(dense)).max(), 1e-300)
    np.testing.assert_allclose(w, expected, atol=1e-6 * scale)
    assert (np.diff(w) <= 1e-9 * scale).all()
    np.testing.assert_allclose(V.T @ V, np.eye(k), atol=1e-8)
    np.testing.assert_allclose(dense @ V, V * w, atol=1e-6 * scale)
    assert found.status == "converged"
    return found


@pytest.mark.parametrize("copies", [60, 400])
def test_must_link_cliques(solver, copies):
    A = sp.block_diag([np.ones((4, 4))] * copies).tocsr()
    w, _ = top(A, 20, solver=solver)
    np.testing.assert_allclose(w, np.full(20, 4.0), atol=1e-8)


@pytest.mark.parametrize("k", [10, 30, 35])
def test_a_laplacian_of_thirty_components(solver, k):
    L = laplacian()
    found = check(-L, k, solver)
    np.testing.assert_allclose(found[0][: min(k, 30)], 0, atol=1e-6 * abs(L).max())


def test_cliques_that_are_not_components(solver):
    # repeated eigenvalues without a disconnected graph: a random rotation hides the blocks
    rng = np.random.default_rng(0)
    Q = np.linalg.qr(rng.normal(size=(600, 600)))[0]
    spectrum = np.concatenate([np.full(25, 3.0), np.full(10, 2.5), np.linspace(-1, 1, 565)])
    A = (Q * spectrum) @ Q.T
    check((A + A.T) / 2, 30, solver)


@pytest.mark.parametrize("make", [np.asarray, sp.csr_matrix, sp.csr_array, sp.coo_array])
def test_containers(solver, make):
    rng = np.random.default_rng(0)
    A = sp.random_array((700, 700), density=0.01, rng=rng).toarray()
    check(make(A + A.T), 6, solver)


def test_operators(solver):
    L = laplacian(components=20)
    operator = LinearOperator(L.shape, matvec=lambda x: -L @ x, matmat=lambda X: -L @ X, dtype=float)
    w, _ = top(operator, 5, solver=solver, seed=0)
    np.testing.assert_allclose(w, 0, atol=1e-5)


@pytest.mark.parametrize("A", [np.zeros((600, 600)), np.eye(600), np.diag(np.arange(600.0)), -np.eye(1), np.eye(3)])
def test_simple_matrices(solver, A):
    check(A, min(2, len(A)), solver)


def test_same_seed_same_answer(solver):
    L = laplacian(components=15)
    runs = [top(-L, 8, solver=solver, seed=s)[1] for s in (3, 3)]
    np.testing.assert_array_equal(*runs)


def test_a_warm_start_is_used(solver):
    if solver in ("dense", "auto"):
        return
    rng = np.random.default_rng(0)
    A = sp.random_array((2000, 2000), density=0.003, rng=rng)
    A = (A + A.T).tocsr()
    first = top(A, 8, solver=solver, seed=0)
    again = top(A + 1e-4 * sp.eye_array(2000), 8, solver=solver, seed=0, v0=first[1])
    np.testing.assert_allclose(again[0], first[0] + 1e-4, atol=1e-6)


# ------------------------------------------------------------------------------------------------------------- faults


def with_entry(value):
    A = laplacian(components=20).tocsr().copy()
    A.data[7] = value
    return A


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_nan_is_an_immediate_error(solver, value):
    started = time.monotonic()
    for A in (with_entry(value), with_entry(value).toarray()):
        with pytest.raises(InputError, match=r"finite|NaN|infin"):
            top(A, 5, solver=solver)
    wild = with_entry(value)
    operator = LinearOperator(wild.shape, matvec=lambda x: wild @ x, dtype=float)
    with pytest.raises(InputError):
        top(operator, 5, solver=solver)
    assert time.monotonic() - started < 20


def test_an_error_inside_an_operator_keeps_its_type(solver):
    def broken(x):
        raise ZeroDivisionError("inside the operator")

    operator = LinearOperator((800, 800), matvec=broken, dtype=float)
    with pytest.raises(ZeroDivisionError, match="inside the operator"):
        top(operator, 4, solver=solver)


@pytest.mark.parametrize("limit", [{"max_seconds": 0.3}, {"max_iter": 2}])
@pytest.mark.parametrize("name", ["primme", "arpack"])
def test_a_limit_always_ends_it_with_a_status(name, limit):
    if name == "primme":
        pytest.importorskip("primme", reason="PRIMME is an extra that needs a compiler; ARPACK stands in without it")
    rng = np.random.default_rng(0)
    A = sp.random_array((3000, 3000), density=0.002, rng=rng)
    A = (A + A.T).tocsr()

    def slow(X):
        time.sleep(0.01)
        return A @ X

    operator = LinearOperator(A.shape, matvec=slow, matmat=slow, dtype=float)
    started = time.monotonic()
    with pytest.warns(ConvergenceWarning):
        found = top(operator, 40, solver=name, tol=1e-12, seed=0, **limit)
    assert time.monotonic() - started < 30
    assert found.status == ("time_limit" if "max_seconds" in limit else "iteration_limit")
    assert found[0].shape == (40,)
    assert found[1].shape == (3000, 40)
    assert np.isfinite(found[1]).all()


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: top(np.ones((3, 4)), 1), InputError),
        (lambda: top(np.eye(3), 0), InputError),
        (lambda: top(np.eye(3), 4), InputError),
        (lambda: top(np.triu(np.ones((3, 3))), 1), InputError),
        (lambda: top(sp.csr_array(np.triu(np.ones((3, 3)))), 1), InputError),
        (lambda: top(np.eye(3), 1, v0=np.ones((4, 1))), InputError),
        (lambda: top(np.eye(3), 1, solver="arpac"), UnknownNameError),
        (lambda: top(np.eye(3), 1, tol=-1), InputError),
    ],
)
def test_bad_input(call, error):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(error):
            call()
