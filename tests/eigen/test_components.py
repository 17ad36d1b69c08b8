"""Small connected components of sparse matrices."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from metricforge_cases.matrices import (
    ITERATIVE,
    SOLVERS,
    check,
    laplacian,
)

from metricforge.eigen import top


def scattered():
    """Components of 1, 2, 7, 32, 33 and 150 rows, shuffled: isolated rows with and without a diagonal entry."""
    rng = np.random.default_rng(5)
    blocks = [np.zeros((1, 1))] * 9 + [np.full((1, 1), 2.0)] * 3
    for size, copies in [(2, 4), (7, 3), (32, 2), (33, 1), (150, 1)]:
        for _ in range(copies):
            B = rng.standard_normal((size, size)) * (rng.random((size, size)) < 0.3) + np.eye(size, k=1)
            blocks.append(B + B.T)
    order = rng.permutation(sum(len(B) for B in blocks))
    return sp.csr_array(sp.csr_array(sp.block_diag([sp.coo_array(block) for block in blocks]))[order][:, order])


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
