"""Limits on products and time: what is returned, and that every solver ends."""

from __future__ import annotations

import time
import warnings

import numpy as np
import pytest
from metricforge_cases.matrices import (
    CLIQUES,
    ITERATIVE,
    SOLVERS,
    check,
    eigenpairs_without,
    full,
    hard,
    symmetric,
)
from scipy.sparse.linalg import LinearOperator

from metricforge.eigen import top
from metricforge.errors import ConvergenceWarning


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
    assert exact - sums[-1] < 2e-4 * (exact - sums[0])  # 1.01e-4 from the start of block Lanczos


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
