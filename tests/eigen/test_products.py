"""Products of the matrix or operator: exceptions, counting, shapes; orthonormal bases."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from metricforge_cases.matrices import (
    SOLVERS,
    check,
    laplacian,
    needs_primme,
)
from scipy.sparse.linalg import LinearOperator

from metricforge.eigen import top
from metricforge.eigen.products import orthonormal


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


# ------------------------------------------------------------------------------------------------- orthonormal columns


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
def test_orthonormal_columns_span_what_was_given(dtype, scale, rng):
    W = (scale * rng.standard_normal((300, 6)) @ np.diag(10.0 ** -np.arange(0, 3, 0.5))).astype(dtype)
    Q = orthonormal(W)
    assert Q.dtype == dtype
    assert Q.shape == W.shape
    rounding = 50 * np.finfo(dtype).eps
    np.testing.assert_allclose(Q.T @ Q, np.eye(6), atol=rounding)
    np.testing.assert_allclose(Q @ (Q.T @ W), W, atol=rounding * np.abs(W).max())


def test_dependent_and_vanishing_columns_are_dropped(rng):
    W = rng.standard_normal((300, 3))
    for made in (np.hstack([W, W[:, :2]]), np.hstack([W, 0 * W]), np.hstack([W, W + 1e-9 * rng.random((300, 3))])):
        Q = orthonormal(made)
        assert Q.shape == (300, 3)
        np.testing.assert_allclose(Q.T @ Q, np.eye(3), atol=1e-14)
    assert orthonormal(0 * W).shape == (300, 0)
    assert orthonormal(np.hstack([W, 1e-9 * rng.random((300, 1))]), floor=1e-6).shape == (300, 3)


@pytest.mark.parametrize("share", [1.0, 1e-3, 1e-7])
def test_what_is_added_to_a_basis_is_orthogonal_to_it(share, rng):
    Q = np.linalg.qr(rng.standard_normal((300, 20)))[0]
    apart = rng.standard_normal((300, 2))
    W = orthonormal(Q[:, :2] + share * apart, Q)
    np.testing.assert_allclose(W.T @ W, np.eye(2), atol=1e-14)
    np.testing.assert_allclose(Q.T @ W, 0, atol=1e-14)
    apart -= Q @ (Q.T @ apart)
    np.testing.assert_allclose(W @ (W.T @ apart), apart, atol=1e-14 / share * 100)
    assert orthonormal(Q[:, 3:6], Q).shape == (300, 0)
