"""Hinge losses whose bound tr(KK) ≤ B is barely active, or not at all: K = EE' with few columns.

There the optimal A(α) has hardly a positive eigenvalue, so K cannot be read off the dual.  Instead the factor E is
optimised (S. Burer and R. Monteiro, Math. Program. 95, 2003), the bound on the norm by an augmented Lagrangian.  The α
of that K gives the next eigenproblem: its lower bound belongs to the full problem, its positive eigenvectors are the
directions that E lacks, and a step of the bundle method from there repairs what is left of A(α)₊, which the lower
bound multiplies by sqrt(B).  The plain hinge is smoothed, and the smoothing removed step by step.

That problem in E is not convex, but nothing depends on it: both bounds of the certificate are those of `Dual`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from metricforge import eigen
from metricforge.eigen import Block, columns_of, orthonormal
from metricforge.rows import Array

from . import descent

if TYPE_CHECKING:
    from .dual import Bundle, Dual

COLUMNS = 30
"""Columns of the first E."""
MORE = 5
"""Columns that are added at a time."""
STEPS = 200
"""Steps of L-BFGS between two eigenproblems."""
CORRECTIONS, FEW_CORRECTIONS, LARGE = 20, 6, 200_000
"""Corrections that L-BFGS keeps, for E up to LARGE entries and beyond, where reading more of them costs more time than
the steps that they save."""
SETTLED = 1e-3
"""L-BFGS stops early when ten steps lower the value by less than this share of the gap to reach."""
CLIMBS = 2
"""Steps of the bundle method after each of these."""
SMOOTHING, SHARPER, SHARPEST = 0.3, 0.2, 1e-15
"""The first smoothing of the plain hinge, the factor by which it is reduced, and where that ends."""
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
    lengths = np.sqrt(factor * part.w[:COLUMNS])
    if not lengths.any():
        return False
    on = dual.laplacian.columns
    E = on.times(dual.laplacian.block(part.V, len(lengths)), np.diag(lengths))
    problem = Factored(dual, *smooth_directions(dual))
    steps, idle = STEPS, 0
    while not dual.closed() and len(dual.trace) < max_iter and idle < IDLE:
        before = dual.gap
        at = problem.minimize(E, steps)
        E = at.E
        smoothed, alpha = problem.loss(at.agreement)
        excess = problem.update(at.G)
        error = dual.loss(at.agreement) - smoothed
        enough = dual.tol * max(1.0, abs(dual.upper))
        sharp = problem.smoothing <= SHARPEST
        problem.smoothing *= SHARPER if error > 0.2 * enough and not sharp else 1.0
        if error > SMOOTH_SHARE * enough and not sharp:
            continue
        dual.evaluate(alpha)
        dual.try_kernel(E)
        bundle.add(alpha)
        new = dual.last_vectors()
        for _ in range(CLIMBS):
            if dual.closed() or len(dual.trace) >= max_iter:
                break
            alpha, other = bundle.propose(E)
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


def smooth_directions(dual: Dual) -> tuple[Block, Array]:
    """Return the smoothest eigenvectors Z of L, and by how much more E may move along them.

    They make the problem in E ill conditioned: along them tr(LK) is flat, and elsewhere it is not.
    """
    L, n = dual.laplacian, dual.pairs.n
    k = min(SMALLEST, n // 4)
    if k < 1:
        return L.columns.identity(0), np.empty(0)
    w, Z = eigen.top(L.matrix(dual.pairs, np.zeros(dual.pairs.p)), k, tol=1e-3)
    w = np.maximum(-w, 0.0) + DAMPING
    return L.block(Z, k), np.sqrt(w[-1] / w)


def enlarged(E: Block, vectors: Block) -> Block:
    """Return E with orthogonal columns, without those that vanish, and with what it lacks of some vectors."""
    on = columns_of(E)
    w, U = np.linalg.eigh(on.gram(E))
    kept = w > RANK * w[-1]
    w, U = w[kept][::-1], U[:, kept][:, ::-1]
    E = on.times(E, U)
    new = orthonormal(on.select(vectors, slice(2 * MORE)), on.times(E, np.diag(1 / np.sqrt(w))))
    new = on.select(new, slice(MORE))
    return on.beside(E, on.combined([new], np.array([0.3 * np.sqrt(w[-1])]))) if new.shape[1] else E


@dataclass
class Factored:
    """The problem in E: min tr(E'LE) + Σ loss(1 − t e_i'e_j), ‖E'E‖_F ≤ sqrt(B), by an augmented Lagrangian.

    With the excess c(E) = (‖E'E‖²_F / sqrt(B) − sqrt(B)) / 2, which is ‖E'E‖_F − sqrt(B) to first order, multiplier λ
    and penalty ρ, the term of the bound is ((λ + ρc)₊² − λ²) / (2ρ).  The hinge is replaced by its Moreau envelope, max
    over 0 ≤ α ≤ Cw of αε − μα²/(2Cw) with the smoothing μ.

    Cost of a step for r columns, m edges and p pairs: O((m + p) r + n r²), a few n × r arrays; L-BFGS keeps two
    for each correction.
    """

    dual: Dual
    Z: Block
    stretch: Array

    def __post_init__(self) -> None:
        dual = self.dual
        self.smoothing = 0.0 if dual.squared else SMOOTHING
        self.weight = dual.C * dual.pairs.w
        self.root = float(np.sqrt(dual.B))
        self.multiplier = 0.0
        self.penalty = PENALTY * max(1.0, abs(dual.upper)) / dual.B

    def loss(self, agreement: Array) -> tuple[float, Array]:
        """Return the smoothed loss at the given t_ij K_ij, and α."""
        short = 1.0 - agreement
        if not self.smoothing:
            alpha = self.weight * np.maximum(short, 0.0)
            return float(alpha @ short / 2), alpha
        alpha = self.weight * np.clip(short / self.smoothing, 0.0, 1.0)
        return float(alpha @ (short - self.smoothing * alpha / (2 * self.weight))), alpha

    def excess(self, squares: float) -> float:
        """Return c(E) for ‖E'E‖²_F."""
        return (squares / self.root - self.root) / 2

    def bound(self, squares: float) -> tuple[float, float]:
        """Return the term of the bound for ‖E'E‖²_F, and its derivative by the excess."""
        pull = max(0.0, self.multiplier + self.penalty * self.excess(squares))
        return (pull**2 - self.multiplier**2) / (2 * self.penalty), pull

    def at(self, E: Block) -> Iterate:
        """Return a point of the problem."""
        on, L = columns_of(E), self.dual.laplacian
        LE = L.times(E)
        G, smooth, rows = on.several(("gram", E), ("dots", [E], [LE]), ("rows", E, self.dual.touched))
        return Iterate(self, E, LE, G, float(smooth[0, 0]), rows)

    def update(self, G: Array) -> float:
        """Update multiplier and penalty after a minimisation that ended at E'E = G; return the relative excess."""
        excess = self.excess(float(np.sum(G * G)))
        self.multiplier = max(0.0, self.multiplier + self.penalty * excess)
        self.penalty *= STRONGER if excess > EXCESS * self.root else 1.0
        return excess / self.root

    def minimize(self, E: Block, steps: int) -> Iterate:
        """Return the point after so many steps of L-BFGS from E, with longer steps along Z."""
        scaling = descent.Scaling(columns_of(E), self.Z, self.stretch**2 - 1.0)
        little = SETTLED * self.dual.tol * max(1.0, abs(self.dual.upper))
        corrections = CORRECTIONS if E.shape[0] * E.shape[1] <= LARGE else FEW_CORRECTIONS
        found: Iterate = descent.minimize(self.at(E), scaling, corrections, steps, little, self.dual.tick)
        return found


class Iterate(descent.Point):
    """A factor E, with LE, G = E'E, tr(E'LE) and the rows of E that have a pair."""

    def __init__(self, problem: Factored, E: Block, LE: Block, G: Array, smooth: float, rows: Array) -> None:
        self.problem, self.E, self.LE, self.G, self.smooth, self.rows = problem, E, LE, G, smooth, rows
        self.blocks, self.pairs = [E, LE], problem.dual.local
        self.agreement = self.pairs.agreement(rows, np.ones(rows.shape[1]))

    def value(self) -> float:
        """Return the augmented Lagrangian."""
        return self.smooth + self.problem.loss(self.agreement)[0] + self.problem.bound(float(np.sum(self.G**2)))[0]

    def gradient(self) -> Block:
        """Return its gradient 2 (LE − T(α)E + pull/sqrt(B) EG)."""
        problem, on = self.problem, columns_of(self.E)
        alpha = problem.loss(self.agreement)[1]
        pull = problem.bound(float(np.sum(self.G**2)))[1]
        g = on.minus(on.combined([self.LE], np.array([2.0])), self.E, (-2.0 * pull / problem.root) * self.G)
        return on.add_rows(g, problem.dual.touched, -2.0 * (self.pairs.matrix(alpha) @ self.rows))

    def settled(self) -> Iterate:
        """Return the same point without the tasks behind it, if these are many."""
        return self.problem.at(self.E) if columns_of(self.E).settle(self.E) else self

    def along(self, D: Block) -> tuple[descent.Line, Callable[[float], Iterate]]:
        """Return the value along D, whose terms are polynomials of the step but for the loss, and the next point."""
        problem, on, pairs = self.problem, columns_of(D), self.pairs
        LD = problem.dual.laplacian.times(D)
        cross, square, smooths, rows = on.several(
            ("inner", self.E, D), ("gram", D), ("dots", [LD], [self.E, D]), ("rows", D, problem.dual.touched)
        )
        linear, quadratic = smooths[0]
        cross = cross + cross.T
        smooth = np.polynomial.Polynomial([self.smooth, 2 * linear, quadratic])
        G = [self.G, cross, square]
        squares = np.polynomial.Polynomial(
            [sum(float(np.sum(G[i] * G[k - i])) for i in range(max(0, k - 2), min(2, k) + 1)) for k in range(5)]
        )
        both = pairs.t * (np.vecdot(self.rows[pairs.i], rows[pairs.j]) + np.vecdot(rows[pairs.i], self.rows[pairs.j]))
        own = pairs.agreement(rows, np.ones(rows.shape[1]))
        smooth_slope, squares_slope = smooth.deriv(), squares.deriv()

        def line(step: float) -> tuple[float, float]:
            loss, alpha = problem.loss(self.agreement + step * (both + step * own))
            bound, pull = problem.bound(float(squares(step)))
            slope = float(smooth_slope(step)) - float(alpha @ (both + 2 * step * own))
            return smooth(step) + loss + bound, slope + pull * float(squares_slope(step)) / (2 * problem.root)

        def after(step: float) -> Iterate:
            E = on.combined([self.E, D], np.array([1.0, step]))
            LE = on.combined([self.LE, LD], np.array([1.0, step]))
            G = self.G + step * (cross + step * square)
            return Iterate(problem, E, LE, G, float(smooth(step)), self.rows + step * rows)

        return line, after
