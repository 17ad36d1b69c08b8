"""The dual of ITML: value, gradient, Newton steps, and the gap."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from metricforge import rows as _rows
from metricforge.rows import Array

ARMIJO = 1e-4
HALVINGS = 60
BLOCK_BYTES = 2**22
"""Memory of a block of pairs: small enough to stay in the cache."""


@dataclass(eq=False)
class Dual:
    """max_{λ >= 0} log det B + γ Σ log(1 − s_t λ_t b_t / γ), where B = I + Σ s_t λ_t v_t v_t'.

    Attributes
    ----------
    V : (p, m) array
        Differences of the features of pairs.
    sign : (p,) array
        s: 1 for similar, −1 for dissimilar pairs.
    bound : (p,) array
        b: the largest squared distance of a similar pair, the smallest of a dissimilar one.
    """

    V: Array
    sign: Array
    bound: Array
    gamma: float
    multiplier: Array = field(init=False)

    def __post_init__(self) -> None:
        self.multiplier = np.zeros(len(self.V))

    def value(self, multiplier: Array) -> tuple[float, Array | None]:
        """Return the dual value and the lower triangular R with RR' = B; −inf and None outside the domain."""
        inside = 1 - self.sign * multiplier * self.bound / self.gamma
        if inside.min(initial=1.0) <= 0:
            return -np.inf, None
        used = np.flatnonzero(multiplier)
        V = self.V[used]
        B = np.eye(self.V.shape[1]) + V.T @ (V * (self.sign[used] * multiplier[used])[:, None])
        try:
            R = np.linalg.cholesky(B)
        except np.linalg.LinAlgError:
            return -np.inf, None
        logdet = 2 * float(np.log(R.diagonal()).sum())
        return logdet + self.gamma * float(np.log(inside).sum()), R

    def measured(self, R: Array) -> Array:
        """Return the (m, p) array R⁻¹v_t, whose squared norms are the learned squared distances."""
        from scipy.linalg import solve_triangular

        return np.asarray(solve_triangular(R, self.V.T, lower=True, check_finite=False))

    def slack(self) -> Array:
        """Return ξ, the bounds that the multipliers stand for."""
        return np.asarray(1 / (1 / self.bound - self.sign * self.multiplier / self.gamma))

    def primal(self, R: Array, squared: Array) -> float:
        """Return D(A, I) + γ D(ξ, b) for A = B⁻¹ and the best ξ that A is feasible with: an upper bound."""
        from scipy.linalg import solve_triangular

        root = solve_triangular(R, np.eye(len(R)), lower=True)
        divergence = float(np.vdot(root, root)) + 2 * float(np.log(R.diagonal()).sum()) - len(R)
        violated = self.sign * (squared - self.bound) > 0
        ratio = np.where(violated, squared / self.bound, 1.0)
        return divergence + self.gamma * float((ratio - np.log(ratio) - 1).sum())

    def newton(self) -> tuple[float, float, Array, bool]:
        """Take a projected Newton step; return primal and dual value before it, R, and whether λ changed.

        The Hessian over the free pairs F = {λ > 0 or gradient > 0} is −(ss')∘(VB⁻¹V')² − diag(ξ²/γ).  Cost: O(p m²) and
        O(F² m + F³) time, 16 F² bytes.
        """
        from scipy.linalg import cho_factor, cho_solve

        value, R = self.value(self.multiplier)
        assert R is not None
        U = self.measured(R)
        squared = np.square(U).sum(axis=0)
        xi = self.slack()
        gradient = self.sign * (squared - xi)
        free = np.flatnonzero((self.multiplier > 0) | (gradient > 0))
        upper = self.primal(R, squared)
        if not len(free):
            return upper, value, R, False
        H = U[:, free].T @ U[:, free]
        H *= H
        H *= self.sign[free][:, None] * self.sign[free]
        H[np.diag_indices(len(free))] += xi[free] ** 2 / self.gamma
        step = cho_solve(cho_factor(H, overwrite_a=True), gradient[free])
        t = 1.0
        for _ in range(HALVINGS):
            trial = self.multiplier.copy()
            trial[free] = np.maximum(trial[free] + t * step, 0)
            gain = float(gradient @ (trial - self.multiplier))
            if gain > 0 and self.value(trial)[0] >= value + ARMIJO * gain:
                self.multiplier = trial
                return upper, value, R, True
            t /= 2
        return upper, value, R, False

    # -- the primal over factors of A ------------------------------------------------------------------------------

    def over_factors(self, L: Array) -> tuple[float, Array, Array]:
        """Return the primal objective at A = L'L, its gradient in L (m, m), and the multipliers that A stands for.

        The slack is eliminated: a violated pair adds γ(r − log r − 1) with r = v'Av / b, whose slope in v'Av is sλ.
        Infinite where L is singular.  Cost: O(p m² + m³) time, a block of pairs and some numbers a pair of memory.
        """
        sign, logdet = np.linalg.slogdet(L)
        if sign == 0 or not np.isfinite(logdet):
            return np.inf, np.zeros_like(L), np.zeros(len(self.V))
        m, p = len(L), len(self.V)
        value = float(np.vdot(L, L)) - 2 * float(logdet) - m
        G, slope = np.zeros((m, m)), np.empty(p)
        for part in _rows.blocks(p, 24 * m, BLOCK_BYTES):
            V, bound = self.V[part], self.bound[part]
            Z = V @ L.T
            squared = np.maximum(np.vecdot(Z, Z), np.finfo(float).tiny)
            violated = self.sign[part] * (squared - bound) > 0
            ratio = np.where(violated, squared / bound, 1.0)
            value += self.gamma * float((ratio - np.log(ratio) - 1).sum())
            slope[part] = np.where(violated, self.gamma * (1 / bound - 1 / squared), 0.0)
            Z *= slope[part][:, None]
            G += Z.T @ V
        return value, 2 * (L - np.linalg.inv(L).T + G), self.sign * slope

    def feasible(self, multiplier: Array) -> float:
        """Return the dual value of multipliers, scaled down until they are inside the domain."""
        for _ in range(HALVINGS):
            value = self.value(multiplier)[0]
            if np.isfinite(value):
                return value
            multiplier = multiplier / 2
        return 0.0
