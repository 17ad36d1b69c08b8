"""The program of `relevance` and its dual, on features of triplets.

    min  ½‖W − I‖² + c/2 Σ_t [m − ⟨W, A_t⟩]₊²   over W ⪰ 0,   A_t = sym(φ(i_t) (φ(j_t) − φ(k_t))')

⟨W, A_t⟩ is how much higher j_t scores than k_t for the query i_t.  The dual, for α ≥ 0 and S(α) = Σ_t α_t A_t, is

    max  m Σ α_t − Σ α_t² / 2c − ½‖(I + S(α))₊‖² + ½‖I‖²,

with (·)₊ the projection on positive semidefinite matrices; W = (I + S(α))₊ at the optimum.  W may be restricted to
W = I + V(·)V'.  Then the part of a score that does not depend on it moves into the margin.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

CORRECTIONS = 20
"""Pairs of vectors that L-BFGS-B keeps."""


@dataclass(frozen=True, eq=False)
class Program:
    """The triplets in r coordinates.

    Attributes
    ----------
    Q : (p, r) array
        Features of the queries i.
    D : (p, r) array
        Differences of features, j − k.
    margin : (p,) array
        The margins m_t, less what the coordinates leave out of the score.
    c : float
        The weight of a squared violation.
    """

    Q: Array
    D: Array
    margin: Array
    c: float

    def scores(self, W: Array) -> Array:
        """Return ⟨W, A_t⟩ = q_t'W d_t of all triplets."""
        return np.asarray(np.einsum("tr,tr->t", self.Q @ W, self.D))

    def combined(self, alpha: Array) -> Array:
        """Return S(α) = Σ_t α_t sym(q_t d_t')."""
        G = self.Q.T @ (alpha[:, None] * self.D)
        return np.asarray((G + G.T) / 2, dtype=np.float64)

    def primal(self, W: Array, scores: Array | None = None) -> float:
        """Return the objective at W, whose scores may be known already."""
        violated = np.maximum(self.margin - (self.scores(W) if scores is None else scores), 0)
        change = W - np.eye(len(W))
        return float(0.5 * np.square(change).sum() + 0.5 * self.c * np.square(violated, dtype=np.float64).sum())

    def dual(self, alpha: Array) -> tuple[float, Array, Array, float]:
        """Return the dual objective at α ≥ 0, its gradient, W = (I + S(α))₊, and the primal objective there."""
        W = positive_part(np.eye(self.Q.shape[1]) + self.combined(alpha))
        value = float(self.margin @ alpha - alpha @ alpha / (2 * self.c) - 0.5 * np.square(W).sum() + 0.5 * len(W))
        scores = self.scores(W)
        return value, np.asarray(self.margin - alpha / self.c - scores, dtype=np.float64), W, self.primal(W, scores)


@dataclass(frozen=True, eq=False)
class Optimum:
    """A primal point W with its objective, and the best dual bound."""

    W: Array
    alpha: Array
    objective: float
    bound: float
    n_iter: int
    converged: bool
    stalled: bool
    trace: tuple[tuple[float, float], ...]


class _Enough(Exception):  # noqa: N818 - no error: it ends the optimiser
    """The gap is within the tolerance."""


def solve(program: Program, *, tol: float, max_iter: int, step: Callable[[int, float], None]) -> Optimum:
    """Maximise the dual by L-BFGS-B until the gap is within ``tol`` of the objective.

    Cost: 4 p r² flops and an r × r eigenproblem for each of at most ``max_iter`` evaluations.
    """
    from scipy.optimize import minimize

    best: dict[str, Any] = {"objective": np.inf, "bound": -np.inf, "W": None, "alpha": None}
    trace: list[tuple[float, float]] = []
    count = 0

    def look(alpha: Array) -> tuple[float, Array]:
        nonlocal count
        count += 1
        value, gradient, W, objective = program.dual(alpha)
        if value > best["bound"]:
            best["bound"], best["alpha"] = value, alpha.copy()
        if objective < best["objective"]:
            best["objective"], best["W"] = objective, W
        gap = max(best["objective"] - best["bound"], 0.0)
        trace.append((best["objective"], gap))
        step(count, gap)
        if gap <= tol * max(abs(best["objective"]), 1e-300) or count >= max_iter:
            raise _Enough
        return -value, -gradient

    start = np.zeros(len(program.margin))
    options = {"maxcor": CORRECTIONS, "maxiter": max_iter, "maxfun": max_iter + 1, "ftol": 0.0, "gtol": 0.0}
    with suppress(_Enough):
        minimize(look, start, jac=True, method="L-BFGS-B", bounds=[(0, None)] * len(start), options=options)
    gap = max(best["objective"] - best["bound"], 0.0)
    converged = gap <= tol * max(abs(best["objective"]), 1e-300)
    return Optimum(
        best["W"],
        best["alpha"],
        best["objective"],
        best["bound"],
        count,
        converged,
        not converged and count < max_iter,
        tuple(trace),
    )


def positive_part(A: Array) -> Array:
    """Return the projection of a symmetric matrix on the positive semidefinite matrices."""
    w, V = np.linalg.eigh(A)
    if w[0] >= 0:
        return A
    if np.count_nonzero(w < 0) <= len(w) // 2:  # subtract the smaller part
        N = V[:, w < 0]
        P = A - (N * w[w < 0]) @ N.T
    else:
        U = V[:, w > 0]
        P = (U * w[w > 0]) @ U.T
    return np.asarray((P + P.T) / 2)


def directions(Q: Array, D: Array, weights: Array, r: int, seed: int, steps: int = 3) -> Array:
    """Return r orthonormal columns that span the largest eigenvectors, of either sign, of Σ_t w_t sym(q_t d_t').

    This is the direction in which the objective falls fastest at W = I.  Subspace iteration with r + 16 columns: cost
    8 p d (r + 16) flops a step, in the precision of Q.
    """
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((Q.shape[1], min(r + 16, Q.shape[1]))).astype(Q.dtype)

    def product(X: Array) -> Array:
        w = weights[:, None].astype(Q.dtype)
        return np.asarray((Q.T @ (w * (D @ X)) + D.T @ (w * (Q @ X))) / 2)

    for _ in range(steps):
        X = np.linalg.qr(product(X))[0]
    H = np.asarray(X.T @ product(X), dtype=np.float64)
    w, U = np.linalg.eigh((H + H.T) / 2)
    leading = np.argsort(-np.abs(w), kind="stable")[:r]
    return np.linalg.qr(np.asarray(X, dtype=np.float64) @ U[:, leading])[0]
