"""Hinge losses whose bound tr(KK) ≤ B is not active: fully corrective steps.

There the optimal A(α) has no positive eigenvalue, so K cannot be read off the dual.  Instead K = P S P' is optimised
over the span of a few directions P, by accelerated projected gradients.  The α of that K gives the next eigenproblem:
its lower bound belongs to the full problem, and its positive eigenvectors are the directions that P lacks.  The plain
hinge is smoothed, and the smoothing removed step by step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from metricforge.rows import Array

if TYPE_CHECKING:
    from .hinge import Dual

STEPS = 1000
"""Maximal number of gradient steps in the span of P."""
SHARE = 0.1
"""Share of the gap to which the problem in the span of P is solved; less where the gap stays."""
LEAST = 1e-4
"""The least such share."""
CHECK = 10
"""Gradient steps between two evaluations of the gap in the span of P."""
SMOOTHING, SHARPER = 1.0, 0.3
"""The first smoothing of the plain hinge, and the factor by which it is reduced."""
DIRECTIONS = 80
"""Directions of earlier eigenproblems that P keeps: without them, a direction that was dropped comes back later."""
RANK = 1e-9
"""Eigenvalues of S below this share of the largest are dropped."""


def correct(dual: Dual, max_iter: int) -> bool:
    """Continue a `Dual` from its last evaluation; return whether ``max_iter`` eigenproblems closed its gap."""
    smoothing = 0.0 if dual.squared else SMOOTHING
    basis = seen = dual.last_vectors()
    E, share = None, SHARE
    while not dual.closed() and len(dual.trace) < max_iter:
        if not basis.shape[1]:
            return False
        P = np.linalg.qr(basis)[0]
        small = _InSpan(dual, P, smoothing)
        enough = dual.tol * max(1.0, abs(dual.upper))
        goal = share * max(min(dual.gap, smoothing or np.inf), SHARE * enough)
        before = dual.gap
        start = np.zeros((P.shape[1],) * 2) if E is None else (P.T @ E) @ (E.T @ P)
        S, alpha = small.solve(start, goal)
        w, U = np.linalg.eigh(S)
        kept = w > RANK * max(w[-1], 0.0)
        if not kept.any():
            return False
        E = (P @ U[:, kept]) * np.sqrt(w[kept])
        dual.evaluate(alpha)
        dual.try_kernel(E)
        seen = np.hstack([dual.last_vectors(), seen])[:, :DIRECTIONS]
        # sharper where the smoothing is a large part of what is left, not the directions that P lacks
        if dual.upper - small.value > SHARPER * dual.gap:
            smoothing *= SHARPER
        if dual.gap > 0.7 * before:
            share = max(
                LEAST, SHARE * share
            )  # an inexact α has positive eigenvalues that the bound multiplies by sqrt(B)
        basis = np.hstack([E / np.linalg.norm(E, axis=0), seen])[:, : dual.pairs.n]
    return dual.closed()


@dataclass
class _InSpan:
    """The primal over K = P S P': min tr(GS) + Σ loss(1 − t p_i'S p_j), S ⪰ 0, ‖S‖_F ≤ sqrt(B), G = P'LP.

    The hinge is replaced by its Moreau envelope, max over 0 ≤ α ≤ Cw of αε − μα²/(2Cw) with the smoothing μ; with μ = 1
    and no upper limit on α this is the squared hinge.
    """

    dual: Dual
    P: Array
    smoothing: float

    def __post_init__(self) -> None:
        dual, P = self.dual, self.P
        self.G = P.T @ (dual.laplacian @ P)
        self.left, self.right = P[dual.pairs.i], P[dual.pairs.j]
        self.weight = dual.C * dual.pairs.w
        self.value = np.inf

    def loss(self, S: Array) -> tuple[float, Array]:
        """Return the value at S, and α."""
        short = 1.0 - np.vecdot(self.left @ S, self.right) * self.dual.pairs.t
        if not self.smoothing:
            alpha = self.weight * np.maximum(short, 0.0)
            penalty = alpha @ short / 2
        else:
            alpha = self.weight * np.clip(short / self.smoothing, 0.0, 1.0)
            penalty = alpha @ (short - self.smoothing * alpha / (2 * self.weight))
        return float(np.sum(self.G * S) + penalty), alpha

    def matrix(self, alpha: Array) -> Array:
        """Return P'A(α)P, the negative gradient."""
        T = (self.left * (alpha * self.dual.pairs.t)[:, None]).T @ self.right
        return np.asarray((T + T.T) / 2 - self.G)

    def bound(self, alpha: Array, A: Array) -> float:
        """Return the dual value within the span: a lower bound on the optimum there."""
        w = np.linalg.eigvalsh(A)
        positive = float(np.linalg.norm(w[w > 0]))
        quadratic = float(alpha @ (alpha / self.weight)) / 2 * (self.smoothing or 1.0)
        return float(alpha.sum()) - quadratic - float(np.sqrt(self.dual.B)) * positive

    def project(self, S: Array) -> Array:
        """Return the nearest feasible matrix."""
        w, U = np.linalg.eigh((S + S.T) / 2)
        w = np.maximum(w, 0.0)
        norm = float(np.linalg.norm(w))
        w = w * min(1.0, float(np.sqrt(self.dual.B)) / norm) if norm > 0 else w
        return np.asarray((U * w) @ U.T)

    def solve(self, S: Array, tol: float) -> tuple[Array, Array]:
        """Minimise from S until the gap within the span is at most ``tol``; return S and its α."""
        S = self.project(S)
        value, alpha = self.loss(S)
        Y, t, steep = S, 1.0, 1.0
        for step in range(STEPS):
            at, alpha_y = self.loss(Y)
            A = self.matrix(alpha_y)
            while True:
                new = self.project(Y + A / steep)
                change = new - Y
                value_new, alpha_new = self.loss(new)
                model = at - float(np.sum(A * change)) + steep / 2 * float(np.sum(change**2))
                if value_new <= model + 1e-13 * abs(at) or steep > 1e14:
                    break
                steep *= 2.0
            # start the acceleration anew where it points uphill
            t = 1.0 if float(np.sum((Y - new) * (new - S))) > 0 else t
            after = (1.0 + np.sqrt(1.0 + 4.0 * t * t)) / 2.0
            Y = new + (t - 1.0) / after * (new - S)
            S, t, value, alpha, steep = new, after, value_new, alpha_new, 0.9 * steep
            if step % CHECK == 0 and value - self.bound(alpha, self.matrix(alpha)) <= tol:
                break
        self.value = value
        return S, alpha
