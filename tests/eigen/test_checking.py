"""Arguments of `top` that are refused, with the place and the repair."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from metricforge_cases.matrices import (
    HAS_PRIMME,
    SOLVERS,
    laplacian,
    symmetric,
)
from scipy.sparse.linalg import LinearOperator, aslinearoperator

from metricforge.eigen import top
from metricforge.errors import InputError, UnknownNameError


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("solver", SOLVERS)
def test_a_nan_is_refused_with_its_row(solver, bad):
    A = -laplacian(1, 600).toarray()
    A[17, 400] = A[400, 17] = bad
    for form in (A, sp.csr_array(A), sp.coo_matrix(A)):
        with pytest.raises(InputError, match=r"A contains NaN or infinity in rows 17, 400;"):
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
    with pytest.raises(InputError, match="NaN or infinity in row 5;"):
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
        (EYE, 31, {}, "k must be a whole number of at least 1 and at most 30"),
        (EYE, 2.5, {}, "k must be"),
        (EYE, True, {}, "k must be"),
        (EYE, 2, {"v0": np.ones(30)}, r"v0 must have shape \(30, i\)"),
        (EYE, 2, {"v0": np.ones((29, 2))}, "v0 must have shape"),
        (EYE, 2, {"v0": np.ones((30, 0))}, "v0 must have shape"),
        (EYE, 2, {"v0": np.full((30, 1), np.nan)}, "v0 contains NaN"),
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
    for solver in ("dense", "arpack", *(["primme"] if HAS_PRIMME else [])):
        top(A, 5, solver=solver, v0=v0)
        S = sp.csr_array(A)
        S.data.flags.writeable = S.indices.flags.writeable = S.indptr.flags.writeable = False
        top(S, 5, solver=solver, v0=v0)
    np.testing.assert_array_equal(A, kept)


def test_indices_out_of_range_are_refused():
    A = sp.csc_matrix(np.ones((4, 4)))
    A.indices[3] = -1
    with pytest.raises(InputError, match=r"^A is a sparse matrix with invalid indices"):
        top(A, 1)
