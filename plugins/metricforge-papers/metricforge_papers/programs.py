"""Non-parametric kernel learning by general semidefinite solvers, for comparison with simplenpkl on the same problem.

Eq. (4) with the hinge loss is stated by its dual, one variable for each pair and a sparse matrix inequality:

    maximise Σ α  subject to  L − Σ α_ij t_ij (E_ij + E_ji)/2 ⪰ 0,  0 <= α <= C,

whose multiplier is K.  Interior-point methods solve it at any size of Table 2; with K as the variable they would need
n²/2 unknowns.  The linear loss is unbounded without a bound on K; with tr(KK) <= B no dual is small, and SCS, which
needs one eigendecomposition a step, is the solver that finishes.
"""

from __future__ import annotations

import contextlib
import io
import warnings
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricforge import Pairs

Array = NDArray[Any]

SOLVERS = ("SDPA", "CLARABEL")
"""Solvers of the hinge loss, the fastest first: 1.5, 32 and 44 (CVXOPT) CPU s on the 270 rows of heart."""
NEEDED = {"cvxpy": "cvxpy", "SDPA": "sdpap", "CLARABEL": "clarabel", "SCS": "scs"}
STEPS = 10_000
"""The most iterations of SCS."""


def solver_for(hinge: bool) -> str:
    """Return the solver of a loss; "" if none is installed."""
    there = [name for name in (SOLVERS if hinge else ("SCS",)) if find_spec(NEEDED[name]) is not None]
    return there[0] if there and find_spec("cvxpy") is not None else ""


def laplacian(X: Array, k: int) -> Array:
    """Return the normalised Laplacian of the mutual neighbour graph; rows without a neighbour are zero."""
    from sklearn.neighbors import kneighbors_graph

    G = kneighbors_graph(X, k).toarray()
    S = np.minimum(G, G.T)
    degree = S.sum(axis=1)
    scale = np.divide(1.0, np.sqrt(degree), out=np.zeros(len(S)), where=degree > 0)
    return np.asarray(np.diag((degree > 0).astype(float)) - scale[:, None] * S * scale)


def linear_loss(L: Array, pairs: Pairs, *, C: float = 1.0, B: float = 1.0) -> Array | None:
    """Return the optimum of (4) with the linear loss and tr(KK) <= B; None if SCS does not finish."""
    cp: Any = import_module("cvxpy")
    both, signs = _signed(pairs)
    T = np.zeros(L.shape)
    T[both[:, 0], both[:, 1]] = T[both[:, 1], both[:, 0]] = signs / 2
    K = cp.Variable(L.shape, PSD=True)
    problem = cp.Problem(cp.Minimize(cp.trace((L - C * T) @ K)), [cp.norm(K, "fro") <= np.sqrt(B)])
    return np.asarray(K.value) if _solved(cp, problem, "SCS", eps=1e-4, max_iters=STEPS) else None


def hinge_loss(L: Array, pairs: Pairs, *, C: float = 1.0, solver: str | None = None) -> Array | None:
    """Return the optimum of (4) with the hinge loss, the multiplier of the dual; None if the solver fails."""
    from scipy.sparse import csc_array

    cp: Any = import_module("cvxpy")
    both, signs = _signed(pairs)
    n, p = len(L), len(both)
    at = np.concatenate([both @ [n, 1], both @ [1, n]])
    T = csc_array((np.tile(signs / 2, 2), (at, np.tile(np.arange(p), 2))), shape=(n * n, p))
    alpha = cp.Variable(p)
    inequality = L - cp.reshape(T @ alpha, (n, n), order="C") >> 0
    problem = cp.Problem(cp.Maximize(cp.sum(alpha)), [inequality, alpha >= 0, alpha <= C])
    return np.asarray(inequality.dual_value) if _solved(cp, problem, solver or solver_for(hinge=True)) else None


def _signed(pairs: Pairs) -> tuple[Array, Array]:
    signs = np.repeat([1.0, -1.0], [len(pairs.similar), len(pairs.dissimilar)])
    return np.concatenate([pairs.similar, pairs.dissimilar]), signs


def _solved(cp: Any, problem: Any, solver: str, **options: Any) -> bool:
    """Solve and return whether the solver finished; its warnings are in the status."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            problem.solve(solver=solver, **options)
        except cp.error.SolverError:
            return False
    return problem.status in (cp.OPTIMAL, cp.OPTIMAL_INACCURATE)
