"""The learning problem of Kwok & Tsang as a convex program: its data, its primal and dual values, its feasible set."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from metricforge.rows import Array

from .differences import Differences


@dataclass(frozen=True, eq=False)
class Program:
    """Learn B from N_S similar and N_D dissimilar pairs with differences z_t (Sec. 3.2.1).

    Primal, over B (B ⪰ 0 when asked for), γ >= 0 and ξ >= 0:

        minimise  ½‖B‖² + (C_S / N_S) Σ_S ξ_t + C_D (−νγ + (1 / N_D) Σ_D ξ_t)
        subject to  z_t'Bz_t − d_t² <= ξ_t on S,  z_t'Bz_t − d_t² >= γ − ξ_t on D.

    Dual, with B(α) = Σ_D α_t z_t z_t' − Σ_S α_t z_t z_t' and X₊ the PSD part of X:

        maximise  Σ_D α_t d_t² − Σ_S α_t d_t² − ½‖B(α)₊‖²
        subject to  0 <= α_t <= C_S / N_S on S,  0 <= α_t <= C_D / N_D on D,  Σ_D α_t >= ν C_D,

    which is eq. (14)-(16) with B(α)₊ where the paper has B(α): that is what the constraint B ⪰ 0 does to it.

    Parameters
    ----------
    z : Differences
    dissimilar : (N,) bool array
        Which pairs are dissimilar; the others are similar.
    base : (N,) array
        d_t² = z_t'Mz_t, the squared distances before learning.
    c_similar, c_dissimilar, nu : float
        C_S, C_D and ν.
    zero_similar, zero_dissimilar : int
        How many more pairs have a difference of zero.  They count in N_S and N_D.  No B changes them: a similar one
        costs nothing, a dissimilar one violates any margin, at (C_D / N_D) γ.
    """

    z: Differences
    dissimilar: Array
    base: Array
    c_similar: float
    c_dissimilar: float
    nu: float
    zero_similar: int = 0
    zero_dissimilar: int = 0

    @property
    def size(self) -> int:
        """The number of pairs with a difference."""
        return len(self.base)

    @cached_property
    def apart(self) -> Array:
        """The numbers of the dissimilar pairs."""
        return np.flatnonzero(self.dissimilar)

    @cached_property
    def sign(self) -> Array:
        """+1 for dissimilar, −1 for similar."""
        return np.where(self.dissimilar, 1.0, -1.0)

    @cached_property
    def cap(self) -> Array:
        """The upper bounds of eq. (16)."""
        return np.where(self.dissimilar, self.c_dissimilar / self.n_dissimilar, self.c_similar / max(self.n_similar, 1))

    @property
    def n_similar(self) -> int:
        """N_S."""
        return self.size - len(self.apart) + self.zero_similar

    @property
    def n_dissimilar(self) -> int:
        """N_D."""
        return len(self.apart) + self.zero_dissimilar

    @property
    def need(self) -> float:
        """ν C_D, the right-hand side of eq. (15), minus the multipliers of dissimilar pairs without a difference."""
        return max(0.0, self.nu - self.zero_dissimilar / self.n_dissimilar) * self.c_dissimilar

    def sample(self, size: int, rng: np.random.Generator) -> Program:
        """Return the program of a random part of the pairs, similar and dissimilar in the same proportion."""
        share = size / self.size
        S = np.flatnonzero(~self.dissimilar)
        parts = [rng.choice(side, round(share * len(side)), replace=False) for side in (S, self.apart)]
        chosen = np.sort(np.concatenate(parts))
        return replace(
            self,
            z=self.z.select(chosen),
            dissimilar=self.dissimilar[chosen],
            base=self.base[chosen],
            zero_similar=round(share * self.zero_similar),
            zero_dissimilar=round(share * self.zero_dissimilar),
        )

    # -- values ------------------------------------------------------------------------------------------------------

    def margin(self, change: Array) -> float:
        """Return the best γ for the changes z_t'Bz_t − d_t²: their ν-quantile on D, or 0 where that is negative."""
        k = int(np.ceil(self.nu * self.n_dissimilar * (1 - 1e-12))) - self.zero_dissimilar
        return max(0.0, float(np.partition(change[self.apart], k - 1)[k - 1])) if k > 0 else 0.0

    def primal(self, B: Array, change: Array) -> tuple[float, float]:
        """Return the primal value at B with the best γ and ξ, and that γ."""
        gamma = self.margin(change)
        slack = np.where(self.dissimilar, gamma - change, change)
        np.maximum(slack, 0, out=slack)
        return float(np.square(B).sum() / 2 + self.cap @ slack - self.need * gamma), gamma

    def dual(self, alpha: Array, norm: float) -> float:
        """Return the dual value at a feasible α with ‖B(α)₊‖² = norm."""
        return float((self.sign * self.base) @ alpha - norm / 2)

    def scaled_dual(self, alpha: Array, norm: float) -> float:
        """Return the largest dual value at a feasible multiple of a feasible α with ‖B(α)₊‖² = norm."""
        total = float(alpha[self.apart].sum())
        least = min(1.0, self.need / total) if total > 0 else 1.0
        linear = float((self.sign * self.base) @ alpha)
        best = min(1.0, max(least, linear / norm)) if norm > 0 else 1.0
        return best * linear - best**2 * norm / 2

    # -- the feasible set of the dual --------------------------------------------------------------------------------

    def feasible(self, x: Array, weight: Array, guess: float = 0.0) -> tuple[Array, float]:
        """Return the feasible α nearest to x in Σ (α_t − x_t)² / weight_t, and the multiplier of Σ_D α >= νC_D.

        α = clip(x + γ·weight) on D, with the least γ >= 0 that satisfies the coupling row.  The sum is piecewise
        linear and increasing in γ: Newton's method, kept inside a bracket, ends on the right piece, where it is exact.
        """
        alpha = np.clip(x, 0, self.cap)
        if alpha[self.apart].sum() >= self.need:
            return alpha, 0.0
        x, weight, cap = x[self.apart], weight[self.apart], self.c_dissimilar / self.n_dissimilar
        low, high = 0.0, float(((cap - x) / weight).max())
        gamma = guess if low < guess < high else 0.0
        for _ in range(200):
            moved = x + gamma * weight
            inside = (moved > 0) & (moved < cap)
            np.clip(moved, 0.0, cap, out=moved)
            excess = float(moved.sum()) - self.need
            slope = float(weight @ inside)
            # what is left is rounding, of the sum or of γ itself
            if abs(excess) <= 1e-14 * self.need + 4e-16 * gamma * slope or high - low <= 4e-16 * high:
                break
            low, high = (gamma, high) if excess < 0 else (low, gamma)
            newton = gamma - excess / slope if slope > 0 else low
            gamma = newton if low < newton < high else (low + high) / 2
        if excess < 0:  # rounding may leave the sum short of the bound: fill up pairs that are between theirs
            room = np.where(inside, cap - moved, 0.0) if inside.any() else cap - moved
            moved += room * min(1.0, -excess / max(float(room.sum()), -excess))
        alpha[self.apart] = moved
        return alpha, gamma
