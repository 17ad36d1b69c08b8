"""Hinge losses whose bound tr(KK) ≤ B is barely active, or not at all: K = EE' with few columns.

There the optimal A(α) has hardly a positive eigenvalue, so K cannot be read off the dual.  Instead the factor E is
optimised (S. Burer and R. Monteiro, Math. Program. 95, 2003), the bound on the norm by an augmented Lagrangian.  The α
of that K gives the next eigenproblem: its lower bound belongs to the full problem, its positive eigenvectors are the
directions that E lacks, and a step of the bundle method from there repairs what is left of A(α)₊, which the lower
bound multiplies by sqrt(B).  The plain hinge is smoothed, and the smoothing removed step by step.

That problem in E is not convex, but nothing depends on it: both bounds of the certificate are those of `Dual`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from metricforge import eigen
from metricforge.rows import Array

if TYPE_CHECKING:
    from .hinge import Bundle, Dual

COLUMNS = 30
"""Columns of the first E."""
MORE = 5
"""Columns that are added at a time."""
STEPS, CORRECTIONS = 200, 20
"""Steps of L-BFGS between two eigenproblems, and the corrections that it keeps."""
CLIMBS = 2
"""Steps of the bundle method after each of these."""
SMOOTHING, SHARPER = 0.3, 0.2
"""The first smoothing of the plain hinge, and the factor by which it is reduced."""
SMOOTH_SHARE = 10.0
"""The eigenproblem waits while the smoothing changes the value by more than this multiple of the gap to reach."""
PENALTY, STRONGER, EXCESS = 10.0, 3.0, 1e-3
"""The first penalty in units of value / B, and the factor for each time that the norm exceeds its bound by EXCESS."""
RANK = 1e-7
"""Columns of E whose squared length is below this share of the largest are dropped."""
IDLE = 6
"""Rounds without progress after which the search stops; each takes twice the steps of the one before."""
SMALLEST, DAMPING = 40, 1e-3
"""Eigenvectors of L with the smallest eigenvalues along which E is scaled, and what is added to these eigenvalues."""


def solve(dual: Dual, bundle: Bundle, max_iter: int) -> bool:
    """Continue a `Dual` from its best K; return whether ``max_iter`` eigenproblems closed its gap."""
    assert dual.best is not None
    part, factor = dual.best
    E = part.V[:, :COLUMNS] * np.sqrt(factor * part.w[:COLUMNS])
    if not E.any():
        return False
    problem = Factored(dual, *smooth_directions(dual))
    steps, idle = STEPS, 0
    while not dual.closed() and len(dual.trace) < max_iter and idle < IDLE:
        before = dual.gap
        E = problem.minimize(E, steps)
        smoothed, alpha = problem.loss(E)
        excess = problem.update(E)
        error = dual.loss(dual.pairs.agreement(E, np.ones(E.shape[1]))) - smoothed
        enough = dual.tol * max(1.0, abs(dual.upper))
        problem.smoothing *= SHARPER if error > 0.2 * enough else 1.0
        if error > SMOOTH_SHARE * enough:
            continue
        dual.evaluate(alpha)
        dual.try_kernel(E)
        bundle.add(alpha)
        new = dual.last_vectors()
        for _ in range(CLIMBS):
            if dual.closed() or len(dual.trace) >= max_iter:
                break
            alpha, other = bundle.propose(E / np.linalg.norm(E, axis=0))
            dual.try_kernel(other)
            if dual.closed() or bundle.stuck:
                break
            dual.evaluate(alpha)
            bundle.add(alpha)
        slow = dual.gap > 0.7 * before
        idle = idle + 1 if slow and excess < EXCESS else 0
        steps = 2 * STEPS if slow else STEPS
        E = enlarged(E, new)
    return dual.closed()


def smooth_directions(dual: Dual) -> tuple[Array, Array]:
    """Return the smoothest eigenvectors Z of L, and by how much more E may move along them.

    They make the problem in E ill conditioned: along them tr(LK) is flat, and elsewhere it is not.
    """
    L = dual.laplacian
    k = min(SMALLEST, L.shape[0] // 4)
    if k < 1:
        return np.empty((L.shape[0], 0)), np.empty(0)
    w, Z = eigen.top(-L, k, tol=1e-3)
    w = np.maximum(-w, 0.0) + DAMPING
    return Z, np.sqrt(w[-1] / w)


def enlarged(E: Array, vectors: Array) -> Array:
    """Return E with orthogonal columns, without those that vanish, and with what it lacks of some vectors."""
    U, s, _ = np.linalg.svd(E, full_matrices=False)
    kept = s**2 > RANK * s[0] ** 2
    U, s = U[:, kept], s[kept]
    new = vectors[:, : 2 * MORE]
    Q, lengths, _ = np.linalg.svd(new - U @ (U.T @ new), full_matrices=False)
    return np.hstack([U * s, 0.3 * s[-1] * Q[:, lengths > RANK][:, :MORE]])


@dataclass
class Factored:
    """The problem in E: min tr(E'LE) + Σ loss(1 − t e_i'e_j), ‖E'E‖_F ≤ sqrt(B), by an augmented Lagrangian.

    With the excess c(E) = (‖E'E‖²_F / sqrt(B) − sqrt(B)) / 2, which is ‖E'E‖_F − sqrt(B) to first order, multiplier λ
    and penalty ρ, the term of the bound is ((λ + ρc)₊² − λ²) / (2ρ).  The hinge is replaced by its Moreau envelope, max
    over 0 ≤ α ≤ Cw of αε − μα²/(2Cw) with the smoothing μ.

    Cost of an evaluation for r columns, m edges and p pairs: O((m + p) r + n r²), a few n × r arrays; L-BFGS keeps 2 ·
    CORRECTIONS of them.
    """

    dual: Dual
    Z: Array
    stretch: Array

    def __post_init__(self) -> None:
        dual = self.dual
        self.smoothing = 0.0 if dual.squared else SMOOTHING
        self.weight = dual.C * dual.pairs.w
        self.root = float(np.sqrt(dual.B))
        self.multiplier = 0.0
        self.penalty = PENALTY * max(1.0, abs(dual.upper)) / dual.B

    def loss(self, E: Array) -> tuple[float, Array]:
        """Return the smoothed loss at K = EE', and α."""
        short = 1.0 - self.dual.pairs.agreement(E, np.ones(E.shape[1]))
        if not self.smoothing:
            alpha = self.weight * np.maximum(short, 0.0)
            return float(alpha @ short / 2), alpha
        alpha = self.weight * np.clip(short / self.smoothing, 0.0, 1.0)
        return float(alpha @ (short - self.smoothing * alpha / (2 * self.weight))), alpha

    def excess(self, E: Array) -> tuple[float, Array]:
        """Return c(E) and E'E."""
        G = E.T @ E
        return (float(np.sum(G * G)) / self.root - self.root) / 2, G

    def evaluate(self, E: Array) -> tuple[float, Array]:
        """Return value and gradient of the augmented Lagrangian."""
        loss, alpha = self.loss(E)
        excess, G = self.excess(E)
        pull = max(0.0, self.multiplier + self.penalty * excess)
        AE = (self.dual.pairs.matrix(alpha) - self.dual.laplacian) @ E
        # tr(LK) = Σ α t K − tr(AK)
        smooth = float(alpha @ self.dual.pairs.agreement(E, np.ones(E.shape[1]))) - float(np.sum(AE * E))
        value = smooth + loss + (pull**2 - self.multiplier**2) / (2 * self.penalty)
        return value, 2.0 * (pull / self.root * (E @ G) - AE)

    def update(self, E: Array) -> float:
        """Update multiplier and penalty after a minimisation; return the relative excess."""
        excess = self.excess(E)[0]
        self.multiplier = max(0.0, self.multiplier + self.penalty * excess)
        self.penalty *= STRONGER if excess > EXCESS * self.root else 1.0
        return excess / self.root

    def minimize(self, E: Array, steps: int) -> Array:
        """Return the factor after so many steps of L-BFGS from E, in coordinates stretched along Z."""
        from scipy.optimize import minimize

        Z, shape = self.Z, E.shape

        def stretched(F: Array, by: Array) -> Array:
            return np.asarray(F + Z @ ((by - 1.0)[:, None] * (Z.T @ F)))

        def down(x: Array) -> tuple[float, Array]:
            value, gradient = self.evaluate(stretched(x.reshape(shape), self.stretch))
            self.dual.tick()
            return value, stretched(gradient, self.stretch).ravel()

        options: Any = {"maxcor": CORRECTIONS, "maxiter": steps, "maxfun": 2 * steps, "ftol": 1e-15, "gtol": 0.0}
        start = stretched(E, 1.0 / self.stretch).ravel()
        found = minimize(down, start, jac=True, method="L-BFGS-B", options=options)
        return stretched(found.x.reshape(shape), self.stretch)
