"""The solver: proximal point steps on the dual, each solved by a semismooth Newton method in the primal matrix B.

A proximal point step from multipliers (α_k, S_k), S for B ⪰ 0, with the feasible set C of the dual, is

    maximise over α in C, S ⪰ 0:   dual(α, S) − Σ_t (α_t − α_kt)² / (2 σ w_t) − ‖S − S_k‖² / (2 τ)

with τ = σ or a multiple of it.  Its own dual is an unconstrained, once differentiable and strongly convex problem in
the p × p matrix B alone:

    minimise  Φ(B) = ½‖B‖² + max_C [...] + max_S [...],    ∇Φ(B) = B − B(α(B)) − S(B),
    α(B) = proj_C(α_k + σ w (b − A*B)),    S(B) = (S_k − τB)₊,    (A*B)_t = ± z_t'Bz_t.

The second derivative, I + σ Σ_J w_t u_t u_t' + τ(PSD part), sees only the pairs J whose α is strictly between its
bounds: a few hundred of hundreds of thousands near the solution.  So a Newton step costs one pass over the pairs each
way, and ten to sixty of them reach a relative duality gap of 1e-6 whatever the trade-offs, unlike gradient steps.

References
----------
Rockafellar (1976), augmented Lagrangians and the proximal point algorithm; Zhao, Sun & Toh (2010), a Newton-CG
augmented Lagrangian method for semidefinite programming.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from metricforge.errors import InputError
from metricforge.optimize import Bounds
from metricforge.rows import Array
from metricforge.rows.threads import one_thread

from .differences import Dense, Differences, smat, svec, upper
from .program import Program

_log = logging.getLogger(__name__)

SAMPLE, ROUGH = 5000, 1e-2
"""Pairs of a first, rough solve: it gives B to a few per cent at a small part of the cost."""
ASSEMBLED = 1000
"""Largest q = p(p + 1)/2 for which the q × q Newton matrix is factored (p <= 44)."""
ROWS_PER_COLUMN = 40
"""Pairs drawn for each column of that matrix when J has more: the factor is then a preconditioner, off by 1/6 or so."""
FEW, FEW_PER_FEATURE = 2000, 8
"""Otherwise, the largest |J|, and |J| / p, for which a |J| × |J| matrix is, when conjugate gradients alone are slow."""
FIRST_SIGMA, GROWTH, LAST_SIGMA = 1.0, 2.0, 1e13
"""The proximal parameter grows geometrically: convergence of the outer loop is then faster than linear."""
WARM_SIGMA = 100.0
WIDE = 100.0
"""C_D, in units that do not depend on scale, beyond which S gets a larger parameter: S then grows as C_D does."""
INNER = 30
"""Newton steps of one proximal step at the most; two to ten are usual."""
ACCURACY = 0.6
"""A proximal step ends when ‖∇Φ‖ is below this part of the way that the multipliers moved."""
CG_ACCURACY, CG_STEPS, PATIENCE = 0.1, 200, 40


@dataclass(frozen=True, eq=False)
class Optimum:
    """A primal point, a dual point and the certificate that they make.

    ``bound <= optimum <= objective`` whatever the solver did: B is feasible (PSD where asked for), so its value is an
    upper bound, and so is α, whose value is a lower one.
    """

    B: Array
    gamma: float
    change: Array
    objective: float
    alpha: Array
    bound: float
    S: Array
    converged: bool
    n_iter: int
    trace: tuple[tuple[float, float], ...]

    @property
    def scale(self) -> float:
        """What gaps are relative to: |objective|, or ½‖B‖² where the objective nearly cancels."""
        return max(abs(self.objective), float(np.square(self.B).sum()) / 2)

    @property
    def gap(self) -> float:
        """What the two leave open; rounding may make it negative, which counts as 0."""
        return max(self.objective - self.bound, 0.0)


def solve(
    program: Program,
    *,
    psd: bool,
    tol: float,
    max_iter: int,
    seed: int = 0,
    step: Callable[..., None] = lambda *args, **info: None,
) -> Optimum:
    """Solve the program to a relative duality gap of ``tol``.

    Parameters
    ----------
    psd : bool
        Whether B ⪰ 0 is imposed; without it this is the quadratic program that the paper prints.
    tol : float
        Stop when objective − bound <= tol · max(|objective|, ½‖B‖²).
    max_iter : int
        Newton steps at the most; the best points so far and their true gap are returned then.
    seed : int
        Of the random part of the pairs that is solved first, when there are many.

    Notes
    -----
    Time: a pass over the pairs (2 N p² multiplications; n p² for `Graph`) for each Newton step, and |J| q² + q³ for the
    step itself, or 4 |J| p² for each of its conjugate gradient steps when p > 44.  Memory: the differences, about
    fifteen vectors of length N, and q² numbers.
    """
    with one_thread():
        if program.size <= 4 * SAMPLE:
            return _iterate(program, psd, tol, max_iter, step, None)
        part = program.sample(SAMPLE, np.random.default_rng(seed))
        rough = _iterate(part, psd, max(tol, ROUGH), max_iter, step, None)
        _log.info("%d of %d pairs: a gap of %.2g in %d steps", part.size, program.size, rough.gap, rough.n_iter)
        return _iterate(program, psd, tol, max_iter, step, rough)


def _iterate(
    program: Program, psd: bool, tol: float, max_iter: int, step: Callable[..., None], start: Optimum | None
) -> Optimum:
    best = _Best(program, psd, tol)
    n_iter, sigma = (start.n_iter, WARM_SIGMA) if start else (0, FIRST_SIGMA)
    p = program.z.width
    B = start.B if start else np.eye(p) * (program.base.mean() / program.z.squares.mean())
    h = program.z.spread(B)
    S = start.S if start else np.zeros((p, p))
    alpha = _first_multipliers(program, h, smooth=start is not None)
    while True:
        centre = _Centre(program, psd, alpha, S, sigma)
        point = centre.at(B, h)
        if not best.trace:
            best.take(point)
        for _ in range(INNER):
            if n_iter >= max_iter or _norm(point.gradient) <= ACCURACY * min(centre.moved(point), _norm(point.B)):
                break
            point = centre.descend(point)
            n_iter += 1
            step(n_iter, max_iter, gap=best.share)
        B, h, alpha, S = point.B, point.h, point.alpha, point.S
        best.take(point)
        if best.share <= tol or n_iter >= max_iter or sigma > LAST_SIGMA:
            return best.optimum(S, n_iter)
        sigma *= GROWTH


def _first_multipliers(program: Program, h: Array, *, smooth: bool) -> Array:
    """Return α to start from: nothing, or what the distances h of a rough B say about every pair."""
    if not smooth:
        return program.feasible(np.zeros(program.size), program.cap)[0]
    change = h - program.base
    beyond = program.sign * (change - np.where(program.dissimilar, program.margin(change), 0.0))
    share = 0.5 - beyond / (0.02 * program.base.mean())  # 1 where a constraint is violated, 0 where it is slack
    return program.feasible(program.cap * np.clip(share, 0, 1), program.cap)[0]


def _norm(A: Array) -> float:
    return float(np.linalg.norm(A))


# ------------------------------------------------------------------------------------------ one proximal point step


@dataclass(frozen=True, eq=False)
class _Point:
    """Φ and what goes into its derivatives, at one B."""

    program: Program
    B: Array
    h: Array  # z_t'Bz_t
    value: float
    target: Array  # α_k + σ w (b − A*B) + the multiplier of the coupling row
    alpha: Array
    way: float  # Σ (α − α_k)² / (σ w)
    gamma: float
    S: Array
    eigen: tuple[Array, Array] | None  # values and vectors of S_k − τB, where B ⪰ 0 is imposed

    @cached_property
    def gathered(self) -> Array:
        """B(α): a pass over the pairs, which points that the line search rejects do without."""
        return self.program.z.gather(self.program.sign * self.alpha)

    @property
    def gradient(self) -> Array:
        """∇Φ(B)."""
        return self.B - self.gathered - self.S


class _Centre:
    """The problem of one proximal point step, from (α_k, S_k) with parameter σ."""

    def __init__(self, program: Program, psd: bool, alpha: Array, S: Array, sigma: float) -> None:
        self.program, self.psd, self.alpha, self.S = program, psd, alpha, S
        mean = program.base.mean()
        # in units of the bounds, so that σ means the same for both kinds of pairs
        self.weight = sigma * program.cap / mean
        self.coupled = np.where(program.dissimilar, self.weight, 0.0)
        self.tau = sigma * max(1.0, program.c_dissimilar * program.z.squares.mean() ** 2 / (mean * WIDE))
        self.guess = 0.0

    def at(self, B: Array, h: Array) -> _Point:
        """Return Φ(B) and its parts."""
        program = self.program
        slope = program.sign * (program.base - h)  # b − A*B
        target = self.alpha + self.weight * slope
        alpha, gamma = program.feasible(target, self.weight, self.guess)
        self.guess = gamma
        if gamma > 0:
            target += gamma * self.coupled
        move = alpha - self.alpha
        way = float(move @ (move / self.weight))
        value = np.square(B).sum() / 2 + slope @ alpha - way / 2
        S, eigen = self.S, None
        if self.psd:
            eigen = w, V = np.linalg.eigh(S - self.tau * B)
            up = np.maximum(w, 0)
            S = (V * up) @ V.T
            value += (up @ up - np.square(self.S).sum()) / (2 * self.tau)
        return _Point(program, B, h, float(value), target, alpha, way, gamma, S, eigen)

    def moved(self, point: _Point) -> float:
        """Return how far the multipliers would move, in the norm of the proximal term."""
        return float(np.sqrt(point.way + np.square(point.S - self.S).sum() / self.tau))

    def descend(self, point: _Point) -> _Point:
        """Return the point after one Newton step with a backtracking line search."""
        gradient = point.gradient
        direction = self._newton(point, gradient)
        along = self.program.z.spread(direction)
        slope = float((gradient * direction).sum())
        length = 1.0
        for _ in range(30):
            new = self.at(point.B + length * direction, point.h + length * along)
            if new.value <= point.value + 1e-4 * length * slope + 1e-14 * abs(point.value):
                break
            length /= 2
        return new

    def _newton(self, point: _Point, gradient: Array) -> Array:
        """Return the Newton direction, found in the eigenbasis of S_k − τB, where the PSD part is diagonal."""
        program = self.program
        free = np.flatnonzero((point.target > 0) & (point.target < program.cap))
        weight = self.weight[free]
        coupled = self.coupled[free] if point.gamma > 0 else np.zeros(len(free))
        Y = program.z.select(free)
        if point.eigen is None:
            return _Newton(Y, weight, coupled, np.ones_like(gradient)).solve(-gradient)
        w, V = point.eigen
        system = _Newton(Y.rotated(V), weight, coupled, 1 + self.tau * _slopes(w))
        direction = V @ system.solve(-(V.T @ gradient @ V)) @ V.T
        return np.asarray((direction + direction.T) / 2)


def _slopes(w: Array) -> Array:
    """Return Ω with d(X₊)[H] = V(Ω ∘ V'HV)V' at X = V diag(w) V', w in increasing order.

    Ω_ab = (w_a⁺ − w_b⁺) / (w_a − w_b), and 1 or 0 where both are positive or both are not.
    """
    k = int(np.searchsorted(w, 0.0, side="right"))
    down, up = w[:k], w[k:]
    slopes = np.zeros((len(w), len(w)))
    slopes[k:, k:] = 1
    slopes[:k, k:] = up / (up - down[:, None])
    slopes[k:, :k] = slopes[:k, k:].T
    return slopes


class _Newton:
    """The operator X ↦ T ∘ X + Σ_t w_t ⟨u_t, X⟩ u_t minus the coupling row's rank one, u_t = y_t y_t'."""

    def __init__(self, Y: Differences, weight: Array, coupled: Array, T: Array) -> None:
        self.Y, self.weight, self.coupled, self.T = Y, weight, coupled, T
        self.mass = float(coupled.sum())

    def solve(self, R: Array) -> Array:
        """Return the solution by conjugate gradients, preconditioned by what is cheap and suffices."""
        p = len(self.T)
        aim = CG_ACCURACY * _norm(R)
        if p * (p + 1) // 2 <= ASSEMBLED:
            X, R = self._conjugate(R, aim, self._divide, self._cheap_steps(p * (p + 1) // 2))
            if _norm(R) <= aim:
                return X
            divide, exact = self._by_features()
            return X + (divide(R) if exact else self._conjugate(R, aim, divide, CG_STEPS)[0])
        few = self.Y.size <= min(FEW, FEW_PER_FEATURE * p)
        X, R = self._conjugate(R, aim, self._divide, PATIENCE if few else CG_STEPS)
        return X + self._conjugate(R, aim, self._by_pairs(), CG_STEPS)[0] if few and _norm(R) > aim else X

    def _conjugate(self, R: Array, aim: float, divide: Callable[[Array], Array], steps: int) -> tuple[Array, Array]:
        """Return X with operator(X) = R as far as ‖rest‖ <= aim, or as the steps reach, and the rest."""
        X = np.zeros_like(R)
        P = Q = divide(R)
        rq = float((R * Q).sum())
        for _ in range(steps):
            HP = self._apply(P)
            length = rq / float((P * HP).sum())
            X = X + length * P
            R = R - length * HP
            if _norm(R) <= aim:
                break
            Q = divide(R)
            rq, last = float((R * Q).sum()), rq
            P = Q + (rq / last) * P
        return X, R

    def _apply(self, X: Array) -> Array:
        u = self.Y.spread(X)
        v = self.weight * u
        if self.mass > 0:
            v -= self.coupled * (self.coupled @ u / self.mass)
        return np.asarray(self.T * X + self.Y.gather(v))

    def _divide(self, R: Array) -> Array:
        return np.asarray(R / self.T)

    def _cheap_steps(self, q: int) -> int:
        """Return how many steps of conjugate gradients cost as much as forming and factoring the q × q matrix."""
        size = max(self.Y.size, 1)
        assembled = min(size, ROWS_PER_COLUMN * q) * q**2 / 2 + q**3 / 3
        return min(CG_STEPS, int(assembled / (4 * size * len(self.T) ** 2)))

    def _by_features(self) -> tuple[Callable[[Array], Array], bool]:
        """Return division by the q × q matrix in svec coordinates, of all pairs or of a part, and whether of all."""
        p = len(self.T)
        q = p * (p + 1) // 2
        if self.Y.size == 0:
            return self._divide, True
        Y, weight, coupled = self._part(ROWS_PER_COLUMN * q)
        H = Y.curvature(weight)
        H.flat[:: q + 1] += self.T[upper(p)]
        if self.mass > 0:
            u = svec(Y.gather(coupled))
            H -= np.outer(u, u / coupled.sum())
        solve, exact = _cholesky(H)
        if solve is None:
            return self._divide, False
        return lambda R: smat(solve(svec(R)), p), exact and Y.size == self.Y.size

    def _by_pairs(self) -> Callable[[Array], Array]:
        """Return division through the |J| × |J| matrix of Woodbury's identity.

        With diag(w) minus the coupling row's rank one = √w P √w, P a projection, the inverse is
        T⁻¹ − T⁻¹U'√wP (I + P√w K √wP)⁻¹ P√wU T⁻¹,  K_st = Σ_ab y_sa y_sb y_ta y_tb / T_ab.  As 1/T = Σ_k e_k f_k f_k'
        has few eigenvalues that count, K = Σ_k e_k (Y diag(f_k) Y')∘².
        """
        Z = self.Y.dense().Z
        e, F = np.linalg.eigh(1 / self.T)
        K = np.zeros((len(Z), len(Z)))
        for k in np.flatnonzero(np.abs(e) > 1e-11 * np.abs(e).max()):
            K += e[k] * np.square((Z * F[:, k]) @ Z.T)
        root = np.sqrt(self.weight)
        unit = np.sqrt(self.coupled / self.mass) if self.mass > 0 else np.zeros(len(Z))
        K *= root * root[:, None]
        K -= np.outer(unit, unit @ K)
        K -= np.outer(K @ unit, unit)
        K.flat[:: len(K) + 1] += 1
        solve, _ = _cholesky(K)
        if solve is None:
            return self._divide

        def divide(R: Array) -> Array:
            X = R / self.T
            g = root * self.Y.spread(X)
            y = solve(g - unit * (unit @ g))
            back: Array = X - self.Y.gather(root * (y - unit * (unit @ y))) / self.T
            return back

        return divide

    def _part(self, most: int) -> tuple[Dense, Array, Array]:
        """Return at most so many pairs that stand for all: drawn in proportion to w‖u‖², and weighted accordingly."""
        if self.Y.size <= most:
            return self.Y.dense(), self.weight, self.coupled
        size = self.weight * np.square(self.Y.squares)
        chance = np.cumsum(size)
        # one draw in each of `most` equal parts: deterministic, and of less variance than independent draws
        drawn = np.searchsorted(chance, (np.arange(most) + 0.5) * (chance[-1] / most))
        times = chance[-1] / (most * size[drawn])
        return self.Y.select(drawn).dense(), self.weight[drawn] * times, self.coupled[drawn] * times


def _cholesky(A: Array) -> tuple[Callable[[Array], Array] | None, bool]:
    """Return what solves systems with the symmetric matrix A, and whether it is A's own inverse.

    Where rounding, at a very large σ, has left A indefinite, it is that of A with a little on its diagonal, which still
    makes a good preconditioner; None where that does not help either.
    """
    from scipy.linalg.lapack import dpotrf, dpotrs

    top = A.diagonal().max()
    for share in (0.0, 1e-13, 1e-10):
        A.flat[:: len(A) + 1] += share * top
        factor, failed = dpotrf(A.T, lower=True)
        if not failed:
            break
    return (None, False) if failed else (lambda b: np.asarray(dpotrs(factor, b, lower=True)[0]), share == 0)


# ----------------------------------------------------------------------------------------------------- the certificate


class _Best(Bounds):
    """The best primal point (B, γ, the change of squared distances) and the best dual point so far."""

    def __init__(self, program: Program, psd: bool, tol: float) -> None:
        super().__init__()
        self.program, self.psd, self.tol = program, psd, tol

    @property
    def share(self) -> float:
        """The relative gap so far."""
        if not self.trace:
            return np.inf
        scale = max(abs(self.upper), float(np.square(self.point[0]).sum()) / 2)
        return (self.upper - self.lower) / scale if scale > 0 else 0.0

    def take(self, point: _Point) -> None:
        """Take in the PSD part of B and the multipliers of a point."""
        B, h = point.B, point.h
        if self.psd:
            w, V = np.linalg.eigh(B)
            if w[0] < 0:
                B = (V * np.maximum(w, 0)) @ V.T
                h = self.program.z.spread(B)
        change = h - self.program.base
        objective, gamma = self.program.primal(B, change)
        self.offer(objective, (B, gamma, change))
        if self.psd:
            norm = float(np.square(np.maximum(np.linalg.eigvalsh(point.gathered), 0)).sum())
        else:
            norm = float(np.square(point.gathered).sum())
        bound = self.program.dual(point.alpha, norm)
        if bound > self.lower:
            self.alpha = point.alpha
        self.record(bound)

    def optimum(self, S: Array, n_iter: int) -> Optimum:
        if not (np.isfinite(self.upper) and np.isfinite(self.lower)):  # squares of multipliers up to C / N
            raise InputError("c_similar, c_dissimilar: objective or bound overflow; give smaller numbers, or None")
        B, gamma, change = self.point
        ended = self.share <= self.tol, n_iter, tuple(self.trace)
        return Optimum(B, gamma, change, self.upper, self.alpha, self.lower, S, *ended)
