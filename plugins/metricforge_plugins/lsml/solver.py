"""Metric learning from relative comparisons: the metric nearest to the base metric that orders pairs as given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from metricforge.constraints import Constraint, Quadruplets
from metricforge.errors import InputError
from metricforge.kernels import Linear, Standardized
from metricforge.optimize import conclude, minimize
from metricforge.rows import Array, blocks
from metricforge.solver import Certificate, Method, Problem, Solution, Solver
from metricforge.space import LearnedKernel, check_memory, compact
from metricforge.validation import number, numbers, whole_number

MEMORY = 20
"""Gradients that L-BFGS keeps."""
BLOCK, ARRAYS = 2**24, 4
"""Memory of a block of differences, in bytes, and the arrays of its size that exist at the same time."""
EARLY = 0.1
"""Share of ``tol`` at which the descent stops: the last digits cost more steps than all others."""
DEFINITION = "objective minus a lower bound from its gradient, by convexity"


@dataclass(frozen=True)
class LSML(Solver):
    """Learn the metric nearest to the base metric in which a and b are nearer than c and d.

    With φ the features of the base kernel, d the squared distances φ'Mφ of differences of rows, w_q the weights of the
    quadruplets and D(M, I) = tr M − log det M − m, minimise over M ≻ 0

        D(M, I) + γ Σ_q w_q [√d_ab − √d_cd]₊².

    The problem is smooth and convex, because −√(d_ab d_cd) is.  M = L'L is found by L-BFGS on L.  With g the
    eigenvalues of M^½ ∇ M^½, where ∇ is the gradient in M, no metric has an objective smaller by more than
    Σ (g − log(1 + g)): the certificate.

    Cost: O(p m² + m³) time a step for p quadruplets; memory 16 p m bytes.

    Parameters
    ----------
    gamma : float > 0
        γ: how much the comparisons count against the base metric.
    weights : tuple of float, optional
        w_q, in the order of the quadruplets; they are divided by their sum.  Default: equal.
    tol : float in (0, 1]
        The bound to reach, relative to the objective (absolute where that is below 1).
    max_iter : int
        The largest number of steps.

    References
    ----------
    E. Y. Liu, Z. Guo, X. Zhang, V. Jojic, W. Wang. Metric learning from relative comparisons by minimizing squared
    residual. ICDM 2012, eqs. (5)-(8).
    """

    gamma: float = 1.0
    weights: tuple[float, ...] | None = None
    tol: float = 1e-6
    max_iter: int = 1000

    accepts: ClassVar[tuple[type[Constraint], ...]] = (Quadruplets,)

    def __post_init__(self) -> None:
        number(self.gamma, "gamma", above=0, most=1e100)
        if self.weights is not None:
            object.__setattr__(self, "weights", numbers(self.weights, "weights", least=0))
        number(self.tol, "tol", above=0, most=1)
        whole_number(self.max_iter, "max_iter")

    def _solve(self, problem: Problem) -> Solution:
        assert isinstance(problem.constraint, Quadruplets)
        quads = problem.constraint.quads
        used, positions = compact(quads)
        Phi = problem.space.map.of_rows(problem.rows, used, gather=True)
        check_memory(32 * len(quads) * Phi.shape[1], f"the differences of {len(quads)} quadruplets", "give fewer")
        a, b, c, d = positions.T
        near, far = _differences(Phi, a, b), _differences(Phi, c, d)
        weights = float(self.gamma) * self._weights(len(quads))
        L, n_iter, (value, bound) = self._descend(near, far, weights, problem)
        gap = value - bound
        ended = f"after {n_iter} steps with an objective of {value:.4g}, at most {gap:.2g} above the optimum"
        status = conclude("lsml", gap <= self.tol * max(value, 1.0), n_iter >= self.max_iter, ended)
        outcome: dict[str, Any] = {"lower_bound": bound, "violated": _violated(L, near, far)}
        return Solution(
            kernel=LearnedKernel.of_factor(problem.space.map, L),
            status=status,
            objective=value,
            certificate=Certificate("bound", gap, max(value, 1.0), DEFINITION),
            n_iter=n_iter,
            outcome=outcome,
        )

    def _weights(self, p: int) -> Array:
        if self.weights is None:
            return np.full(p, 1 / p)
        if len(self.weights) != p or not sum(self.weights) > 0:
            raise InputError(
                f"weights must be one number per quadruplet, not all 0; got {len(self.weights)} for {p} quadruplets"
            )
        return np.asarray(self.weights) / sum(self.weights)

    def _descend(
        self, near: Array, far: Array, weights: Array, problem: Problem
    ) -> tuple[Array, int, tuple[float, float]]:
        """Return L, the number of steps, and the objective with its lower bound."""
        done, most, ended = 0, int(self.max_iter), None

        def value(L: Array) -> tuple[float, Array]:
            problem.step(done, most)
            return objective(L, near, far, weights)

        def after(L: Array) -> bool:
            nonlocal done, ended
            done += 1
            if done % 10 and done & (done - 1):  # a bound costs as much as two steps
                return False
            reached, bound = certified(L, near, far, weights)
            if reached - bound <= EARLY * self.tol * max(reached, 1.0):
                ended = reached, bound
            return ended is not None

        start = np.eye(near.shape[1])
        L, n_iter = minimize(value, start, most, after=after, memory=MEMORY, ftol=1e-15, gtol=1e-9)
        return L, n_iter, ended or certified(L, near, far, weights)


def _differences(Phi: Array, first: Array, second: Array) -> Array:
    """Return the differences of pairs of rows, a block at a time: a sign of progress each, and no further copies."""
    Z = np.empty((len(first), Phi.shape[1]))
    for part in _parts(Z):
        np.subtract(Phi[first[part]], Phi[second[part]], out=Z[part])
    return Z


def _parts(Z: Array) -> Iterator[slice]:
    return blocks(len(Z), ARRAYS * 8 * Z.shape[1], BLOCK)


def _lengths(L: Array, Z: Array) -> Array:
    """Return ‖Lz‖ for each row z."""
    return np.asarray(np.sqrt(np.square(Z @ L.T).sum(axis=1)))


def _violated(L: Array, near: Array, far: Array) -> int:
    """Return how many quadruplets have a first pair further apart than the second."""
    return sum(int(np.count_nonzero(_lengths(L, near[part]) > _lengths(L, far[part]))) for part in _parts(near))


def objective(L: Array, near: Array, far: Array, weights: Array) -> tuple[float, Array]:
    """Return the objective and its gradient in L (m, m); differences are (p, m).  Infinite where L is singular."""
    with np.errstate(invalid="ignore"):  # a step of the line search may be far too long
        sign, logdet = np.linalg.slogdet(L)
    if sign == 0 or not np.isfinite(logdet):
        return np.inf, np.zeros_like(L)
    loss, H = _comparisons(L, near, far, weights)
    return _value(L, float(logdet), loss), 2 * (L - np.linalg.inv(L).T + L @ H)


def _value(L: Array, logdet: float, loss: float) -> float:
    """Return ‖L‖² − log det L'L − m and the loss."""
    return float(np.vdot(L, L)) - 2 * logdet - len(L) + loss


def _comparisons(L: Array, near: Array, far: Array, weights: Array) -> tuple[float, Array]:
    """Return Σ w [√d_ab − √d_cd]₊² and its gradient in M."""
    loss, G = 0.0, np.zeros((near.shape[1],) * 2)
    tiny = np.finfo(float).tiny
    for part in _parts(near):
        a, b, w = near[part], far[part], weights[part]
        x, y = _lengths(L, a), _lengths(L, b)
        excess = np.maximum(x - y, 0)
        loss += float(w @ excess**2)
        # a pair of identical rows has the difference 0, so its coefficient does not matter
        G += a.T @ (a * (w * excess / np.maximum(x, tiny))[:, None])
        G -= b.T @ (b * (w * excess / np.where(y > 0, y, np.inf))[:, None])
    return loss, G


def certified(L: Array, near: Array, far: Array, weights: Array) -> tuple[float, float]:
    """Return the objective at M = L'L and a lower bound on its minimum.

    The loss is above its tangent, so the change of the objective to another metric Y is at least the minimum over
    E = M^-½(Y − M)M^-½ of tr(M^½∇M^½ E) + tr E − log det(I + E), which is Σ log(1 + g) − g.  Where some g <= −1, the
    bound is 0.
    """
    loss, H = _comparisons(L, near, far, weights)
    value = _value(L, float(np.linalg.slogdet(L)[1]), loss)
    g = np.linalg.eigvalsh(L @ L.T + L @ H @ L.T) - 1  # L∇L', with ∇ = I − M⁻¹ + H
    if g[0] <= -1:
        return value, 0.0
    return value, max(value - float((g - np.log1p(g)).sum()), 0.0)


METHOD = Method(
    constraint=Quadruplets,
    kernel=Standardized(Linear(), by="range"),
    solver=LSML(),
    rank=200,
    # one to eight steps, because columns of range 1 give a small loss
    cost={"pmm": 4, "pm": 150, "p": 1000, "mmm": 5},
    order=10,
    memory={"mm": 8 * (2 * MEMORY + 28), "pm": 56},
)
