"""The program of `relevance` and its dual, over the change B = W − I.

    min  ½‖B‖² + ½ Σ_t c_t [h_t − ⟨B, A_t⟩]₊²   over I + B ⪰ 0,   A_t = sym(φ(i_t) (φ(j_t) − φ(k_t))')

h_t is the margin less the score s(i_t, j_t) − s(i_t, k_t) at W = I, and ⟨B, A_t⟩ is how much B adds to that score.  The
dual, for α ≥ 0 and S(α) = Σ_t α_t A_t, is

    max  Σ h_t α_t − Σ α_t² / 2c_t − ⟨B, S(α)⟩ + ½‖B‖²,   B = (I + S(α))₊ − I,

with (·)₊ the projection on positive semidefinite matrices.  B is also the primal point of α.  B may be restricted to
V(·)V'; then the features are φ(x)'V and h stays as it is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from metricforge.rows import Array, blocks

from .judgements import Judgements

CORRECTIONS = 20
"""Pairs of vectors that L-BFGS keeps."""
DECREASE, HALVINGS = 1e-4, 12
"""The constant of Armijo's rule, and the lengths that a line search tries."""
SINGLE = 1e-4
"""The smallest relative gap for which iterations may use float32."""
QUERIES = 4096
"""Queries of a block."""


@dataclass(frozen=True, eq=False)
class Program:
    """Triplets over rows in r coordinates.

    Attributes
    ----------
    Z : (u, r) array
        Features of the rows.  Products are formed in their precision.
    judgements : Judgements
        Triplets over these rows.
    needed : (p,) array
        h_t, what a score lacks to the margin at B = 0.
    c : (p,) array
        The weight of a squared violation.
    """

    Z: Array
    judgements: Judgements
    needed: Array
    c: Array

    def combined(self, alpha: Array) -> Array:
        """Return S(α) = Σ_t α_t A_t: for each query a sum of documents, then one product over queries."""
        G = np.zeros((self.Z.shape[1],) * 2, dtype=self.Z.dtype)
        for Q, mixed in self.blocks(alpha):
            G += Q.T @ (mixed @ self.Z)
        return np.asarray((G + G.T) / 2)

    def blocks(self, alpha: Array) -> Iterator[tuple[Array, Any]]:
        """Yield the features of some queries, and the sparse matrix of weights of all rows for each of them."""
        M = self.judgements.mixture(alpha, len(self.Z)).astype(self.Z.dtype)
        for part in blocks(M.shape[0], 1, QUERIES):
            yield self.Z[self.judgements.queries[part]], M[part]

    def scores(self, B: Array) -> Array:
        """Return ⟨B, A_t⟩ of all triplets."""
        judgements = self.judgements
        mapped = np.empty((len(judgements.queries), self.Z.shape[1]), dtype=self.Z.dtype)
        for part in blocks(len(mapped), 1, QUERIES):
            np.matmul(self.Z[judgements.queries[part]], B, out=mapped[part])
        return judgements.differences(judgements.dots(mapped, self.Z))

    def primal(self, B: Array, scores: Array | None = None) -> float:
        """Return the objective at B, whose scores may be known already."""
        violated = np.maximum(self.needed - (self.scores(B) if scores is None else scores), 0)
        return 0.5 * _inner(B, B) + 0.5 * float(self.c @ np.square(violated))

    def dual(self, alpha: Array, S: Array | None = None) -> Point:
        """Return objective, gradient and primal point of α ≥ 0; S(α) may be known already."""
        S = self.combined(alpha) if S is None else S
        B, W = projected(S)
        value = float(self.needed @ alpha - alpha @ (alpha / self.c) / 2) - _inner(B, S) + 0.5 * _inner(B, B)
        scores = self.scores(B)
        return Point(alpha, value, self.needed - alpha / self.c - scores, B, W, self.primal(B, scores))

    def curvature(self, direction: Array, S: Array) -> float:
        """Return the curvature of the dual along a direction whose S is known: a bound on it where I + S(α) ⋡ 0."""
        return float(direction @ (direction / self.c)) + _inner(S, S)

    def first(self) -> Array:
        """Return the weights α ∝ c h₊ of the gradient at B = 0, by length 1."""
        alpha = np.maximum(self.needed, 0) * self.c
        return np.asarray(alpha / max(float(np.linalg.norm(alpha)), 1e-300))


@dataclass(frozen=True, eq=False)
class Point:
    """A dual point, and the primal point that belongs to it."""

    alpha: Array
    value: float
    gradient: Array
    B: Array
    W: Array
    objective: float


@dataclass(frozen=True, eq=False)
class Optimum:
    """A primal point W = I + B with its objective, and the best dual bound."""

    B: Array
    W: Array
    alpha: Array
    objective: float
    bound: float
    n_iter: int
    converged: bool
    stalled: bool
    trace: tuple[tuple[float, float], ...]


class _Search:
    """The best points so far, over both precisions."""

    def __init__(self, tol: float, max_iter: int, step: Callable[[int, float], None]) -> None:
        self.tol, self.max_iter, self.step = tol, max_iter, step
        self.trace: list[tuple[float, float]] = []
        self.forget()

    def forget(self) -> None:
        """Start anew, because what follows is computed in another precision."""
        self.objective, self.bound = np.inf, -np.inf
        self.best: Point | None = None
        self.alpha: Array | None = None

    def add(self, point: Point) -> None:
        if point.value > self.bound:
            self.bound, self.alpha = point.value, point.alpha.copy()
        if point.objective < self.objective:
            self.objective, self.best = point.objective, point
        self.trace.append((self.objective, self.gap))
        self.step(len(self.trace), self.gap)

    @property
    def gap(self) -> float:
        return max(self.objective - self.bound, 0.0)

    @property
    def converged(self) -> bool:
        return self.gap <= self.tol * max(abs(self.objective), 1e-300)

    @property
    def ended(self) -> bool:
        return self.converged or len(self.trace) >= self.max_iter


def solve(program: Program, *, tol: float, max_iter: int, step: Callable[[int, float], None]) -> Optimum:
    """Maximise the dual until the gap is within ``tol`` of the objective.

    Iterations are in float32 if ``tol`` allows it.  The gap that is returned was computed in float64.

    Cost of an evaluation: 4 u r² flops for u queries, 4 r for each judged pair of query and document, and r³/3 while
    I + S(α) is positive definite; an eigenproblem of order r elsewhere.
    """
    search = _Search(tol, max_iter, step)
    single = tol >= SINGLE
    working = replace(program, Z=program.Z.astype(np.float32 if single else np.float64, copy=False))
    direction = working.first()
    S = working.combined(direction)
    length = max(float(program.needed @ direction), 0.0) / max(working.curvature(direction, S), 1e-300)
    point = working.dual(length * direction, S * S.dtype.type(length))
    search.add(point)
    _ascend(working, search, point)
    if single:
        alpha = search.alpha
        search.forget()
        exact = replace(program, Z=program.Z.astype(np.float64, copy=False))
        point = exact.dual(np.asarray(alpha))
        search.add(point)
        _ascend(exact, search, point)
    assert search.best is not None
    assert search.alpha is not None
    stalled = not search.converged and len(search.trace) < max_iter
    found = (search.best.B, search.best.W, search.alpha, search.objective, search.bound)
    return Optimum(*found, len(search.trace), search.converged, stalled, tuple(search.trace))


def _ascend(program: Program, search: _Search, point: Point) -> None:
    """Continue from a point that was evaluated, until the search has ended or no step helps.

    Two-metric projection: a step of L-BFGS in the variables that are free, meaning positive or with a positive slope,
    projected on α ≥ 0.  The first step is the best one along the gradient.
    """
    memory: deque[tuple[Array, Array]] = deque(maxlen=CORRECTIONS)
    while not search.ended:
        free = (point.alpha > 0) | (point.gradient > 0)
        gradient = np.where(free, point.gradient, 0)
        if memory:
            direction = _quasi_newton(gradient, free, memory)
        else:
            curvature = program.curvature(gradient, program.combined(gradient))
            direction = gradient * (float(gradient @ gradient) / max(curvature, 1e-300))
        new = _line_search(program, search, point, gradient, direction)
        if new is None and not memory:
            return
        if new is None:
            memory.clear()  # once more, along the gradient
            continue
        s, y = new.alpha - point.alpha, point.gradient - new.gradient
        if float(s @ y) > np.finfo(np.float64).eps * float(y @ y):
            memory.append((s, y))
        point = new


def _line_search(program: Program, search: _Search, point: Point, gradient: Array, direction: Array) -> Point | None:
    """Return a point along the projected direction that is better by Armijo's rule; None if there is none."""
    t = 1.0
    for _ in range(HALVINGS):
        alpha = np.maximum(point.alpha + t * direction, 0)
        expected = float(gradient @ (alpha - point.alpha))
        if search.ended or not expected > 0:
            return None
        new = program.dual(alpha)
        search.add(new)
        if new.value >= point.value + DECREASE * expected:
            return new
        t /= 4
    return None


def _quasi_newton(gradient: Array, free: Array, memory: deque[tuple[Array, Array]]) -> Array:
    """Return the L-BFGS direction of ascent within the free variables."""
    q, parts = gradient.copy(), []
    kept = [(np.where(free, s, 0), np.where(free, y, 0)) for s, y in memory]
    pairs = [(s, y, sy) for s, y in kept if (sy := float(s @ y)) > np.finfo(np.float64).eps * float(y @ y)]
    for s, y, sy in reversed(pairs):
        a = float(s @ q) / sy
        q -= a * y
        parts.append(a)
    if pairs:
        _, y, sy = pairs[-1]
        q *= sy / float(y @ y)
    for (s, y, sy), a in zip(pairs, reversed(parts), strict=True):
        q += (a - float(y @ q) / sy) * s
    return np.where(free, q, 0)


def projected(S: Array) -> tuple[Array, Array]:
    """Return B = W − I and W = (I + S)₊, neither from the other, which would lose the digits of the smaller one.

    Cost: a Cholesky factorisation if I + S is positive definite, else an eigenproblem of which only the vectors on one
    side of 0 are computed.
    """
    from scipy.linalg import eigh

    A = S + np.eye(len(S), dtype=S.dtype)
    try:
        np.linalg.cholesky(A)
        return S, A
    except np.linalg.LinAlgError:
        w, N = eigh(A, subset_by_value=(-np.inf, 0.0), driver="evr")
        negative = (N * w) @ N.T
        W = A - negative
        if 2 * len(w) > len(S):
            w, N = eigh(A, subset_by_value=(0.0, np.inf), driver="evr")
            W = (N * w) @ N.T
        B = S - negative
        return np.asarray((B + B.T) / 2), np.asarray((W + W.T) / 2)


def _inner(A: Array, B: Array) -> float:
    """Return ⟨A, B⟩, summed in float64."""
    return float(np.einsum("ij,ij->", A, B, dtype=np.float64))
