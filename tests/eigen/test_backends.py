"""The choice among eigensolvers, and the contract of a solver from elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from metricforge_cases.matrices import (
    check,
    full,
    hard,
    needs_primme,
    symmetric,
)
from scipy.sparse.linalg import LinearOperator

from metricforge.eigen import Stop, top
from metricforge.errors import ConvergenceWarning, InputError, SolverError

# -------------------------------------------------------------------------------------------------------- who is chosen


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
    monkeypatch.setattr("metricforge.registry.entries._installed", lambda module: module != "primme")
    A = symmetric(np.linspace(-1, 2, 600))
    assert top(A, 5, tol=1e-3, v0=np.eye(600, 5)).solver == "arpack"
    with pytest.raises(InputError, match=r"metricforge\[primme\]"):
        top(A, 5, solver="primme")


# ------------------------------------------------------------------------------------------------- the backend contract


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
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
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


@pytest.mark.parametrize("scale", [1e300, 1e160, 1e-200])
def test_dense_residuals_neither_overflow_nor_vanish(scale, rng):
    A = rng.normal(size=(30, 30))
    A = A + A.T
    with np.errstate(all="raise", under="ignore"):
        w, V = top(scale * A, 30, solver="dense", tol=1e-300)
    np.testing.assert_allclose(w / scale, np.linalg.eigvalsh(A)[::-1], atol=1e-12)
    np.testing.assert_allclose(V.T @ V, np.eye(30), atol=1e-12)
