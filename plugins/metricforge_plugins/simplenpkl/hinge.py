"""Hinge losses by their dual: L-BFGS-B, every value of which is one eigenproblem and one certificate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .pairs import Signed
from .spectrum import PositivePart, positive_part

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Array = NDArray[Any]

CORRECTIONS = 20
"""Of the limited-memory matrix: 20 need two thirds of the eigenproblems that 5 need."""


class Certified(Exception):  # noqa: N818 - not an error: it unwinds the line search
    """The gap is closed."""


@dataclass
class Dual:
    """The dual of min tr(LK) + Σ loss(1 − t_ij K_ij) over K ⪰ 0, tr(KK) ≤ B, and the best of both sides so far.

    Squared hinge, loss (C/2) w ε₊², eq. (12) with A(α) = Σ α_ij t_ij (E_ij + E_ji)/2 − L:

        D(α) = −sqrt(B) ‖A(α)₊‖_F + Σ α − Σ α²/(2Cw),   α ≥ 0.

    Hinge, loss C w ε₊: without the square, and α ≤ Cw.  The gradient is 1 − t_ij K_ij(α) − α_ij/(Cw) (hinge: without
    the last term), K(α) = sqrt(B) A₊/‖A₊‖_F.  K(α) is feasible, so its value bounds the optimum from above; D(α) with
    an upper bound on ‖A₊‖_F bounds it from below, whatever part of the spectrum was found.
    """

    laplacian: csr_array
    pairs: Signed
    C: float
    B: float
    squared: bool
    find: Callable[..., PositivePart] = positive_part
    tol: float = 1e-5
    step: Callable[[int, float, float], None] | None = None

    trace: list[tuple[float, float]] = field(default_factory=list)
    upper: float = np.inf
    lower: float = -np.inf
    best: tuple[PositivePart, float] | None = None  # eigenpairs of A, and the factor that makes them K's
    solver: str = ""
    products: int = 0
    _last: PositivePart | None = None

    @property
    def unit(self) -> Array:
        """What α is measured in: the quadratic part of D is then spherical."""
        return np.sqrt(self.C * self.pairs.w)

    @property
    def gap(self) -> float:
        """Optimum and value lie at most so far apart."""
        return max(0.0, self.upper - self.lower)

    def closed(self) -> bool:
        """Whether the gap is within ``tol`` of the value."""
        return self.gap <= self.tol * max(1.0, abs(self.upper))

    def look(self, alpha: Array) -> Array:
        """Solve the eigenproblem at α, note both bounds, and return the gradient."""
        A = self.pairs.matrix(alpha) - self.laplacian
        last = self._last
        warm = {} if last is None or not len(last.w) else {"guess": len(last.w), "v0": last.V}
        part = self._last = self.find(A, None, **warm)
        self.solver, self.products = part.solver, self.products + part.n_products
        root = float(np.sqrt(self.B))
        full = root / part.norm if len(part.w) else 0.0
        agreement = self.pairs.agreement(part.V, full * part.w)
        # tr(LK) = Σ α t K − tr(AK)
        smooth = float(alpha @ agreement) - root * part.norm
        shrink, value = self._along(smooth, agreement)
        if value < self.upper:
            self.upper, self.best = value, (part, shrink * full)
        linear = float(alpha.sum()) - (float(alpha**2 @ (0.5 / (self.C * self.pairs.w))) if self.squared else 0.0)
        self.value = linear - root * part.norm
        self.lower = max(self.lower, linear - root * part.upper)
        self.trace.append((self.upper, self.gap))
        if self.step is not None:
            self.step(len(self.trace), self.upper, self.gap)
        return 1.0 - agreement - (alpha / (self.C * self.pairs.w) if self.squared else 0.0)

    def _along(self, smooth: float, agreement: Array) -> tuple[float, float]:
        """Return the best factor in [0, 1] for K, and the value there: where B does not bind, K is too long."""
        from scipy.optimize import minimize_scalar

        def value(c: float) -> float:
            return float(c * smooth + self.loss(c * agreement))

        if smooth <= 0.0 and (agreement <= 1.0).all():
            return 1.0, value(1.0)
        found = minimize_scalar(value, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-10})
        return min(((1.0, value(1.0)), (float(found.x), float(found.fun))), key=lambda pair: pair[1])

    def loss(self, agreement: Array) -> float:
        """Return Σ loss at given t_ij K_ij."""
        short = np.maximum(0.0, 1.0 - agreement)
        weight = self.C * self.pairs.w
        return float(weight @ short**2 / 2 if self.squared else weight @ short)

    def solve(self, max_iter: int) -> bool:
        """Climb from α = min(1, Cw) until the gap is closed; False when ``max_iter`` eigenproblems were not enough."""
        from scipy.optimize import minimize

        unit = self.unit
        start = np.minimum(1.0, self.C * self.pairs.w)

        def down(beta: Array) -> tuple[float, Array]:
            if len(self.trace) >= max_iter:
                raise Certified
            gradient = self.look(unit * beta)
            if self.closed():
                raise Certified
            return -self.value, -unit * gradient

        bounds = [(0.0, None if self.squared else float(u)) for u in unit]
        options: Any = {"maxcor": CORRECTIONS, "maxiter": max_iter, "maxfun": max_iter, "ftol": 0.0, "gtol": 0.0}
        beta = start / unit
        try:
            while True:
                # a line search that rounding ends is begun again from where it is, with a fresh matrix
                found = minimize(down, beta, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
                if np.array_equal(found.x, beta):
                    break
                beta = found.x
        except Certified:
            pass
        return self.closed()
