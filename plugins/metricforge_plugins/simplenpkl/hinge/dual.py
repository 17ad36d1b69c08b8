"""Hinge losses by their dual: every evaluation is one eigenproblem and gives one certificate.

Each step maximises a small model of the dual: a spectral bundle method (C. Helmberg and F. Rendl, SIAM J. Optim. 10(3),
2000), here with the curvature from outside the bundle.  The model only proposes the next point: both bounds of the
certificate come from eigenproblems of A and from feasible K.

Eigenvectors and directions are blocks of n rows, in memory or on the workers (see `laplacian`).  The model needs their
rows at the pairs only, because α changes no other entry of A.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from metricforge.distributed.cluster import despite_losses
from metricforge.eigen import Block, columns_of, orthonormal
from metricforge.optimize import Bounds
from metricforge.rows import Array

from ..laplacian import Laplacian
from ..pairs import SignedPairs
from ..spectrum import PositivePart, positive_part
from . import factored

LOSSES = 10
"""How often the search goes on after the loss of a worker."""
DIRECTIONS = 40
"""Directions of earlier steps that the model keeps besides the eigenvectors at its center."""
LEAST_VALUE = 1e-3
"""The smallest value that ``tol`` is relative to, as a share of the loss at K = 0: the optimum may be 0."""
CORRECTIONS, MODEL_STEPS, MODEL_GAP = 20, 100, 0.03
"""L-BFGS-B on the model: corrections kept, maximal number of steps, and the share of the true gap at which it stops."""

ROUNDING = 1e-14
"""Squared lengths of columns up to this share of the largest are rounding."""
ACCURATE, LEAST_ACCURACY = 0.2, 1e-10
"""Eigenpairs become more accurate where their error costs more than this share of the gap to reach; the limit."""


class ModelSolved(Exception):  # noqa: N818 - not an error: it ends the line search
    """The model is maximised to its tolerance; the arguments are α, the value and the kernel there."""


@dataclass(eq=False)
class Dual(Bounds):
    """The dual of min tr(LK) + Σ loss(1 − t_ij K_ij) over K ⪰ 0, tr(KK) ≤ B, and the best bounds so far.

    Squared hinge, loss (C/2) w ε₊², eq. (12) with A(α) = Σ α_ij t_ij (E_ij + E_ji)/2 − L:

        D(α) = −sqrt(B) ‖A(α)₊‖_F + Σ α − Σ α²/(2Cw),   α ≥ 0.

    Hinge, loss C w ε₊: without the square, and α ≤ Cw.  The gradient is 1 − t_ij K_ij(α) − α_ij/(Cw) (hinge: without
    the last term), K(α) = sqrt(B) A₊/‖A₊‖_F.  K(α) is feasible, so its value is an upper bound on the optimum; D(α)
    with an upper bound on ‖A₊‖_F is a lower bound, whatever part of the spectrum was computed.
    """

    laplacian: Laplacian
    pairs: SignedPairs
    C: float
    B: float
    squared: bool
    find: Callable[..., PositivePart] = positive_part
    tol: float = 1e-5
    step: Callable[[int, float, float], None] | None = None

    best: tuple[PositivePart, float] | None = None  # eigenpairs, and the factor that scales them to those of K
    solver: str = ""
    products: int = 0
    slack: bool = False  # whether the best K is inside the bound
    last: PositivePart | None = None  # the eigenpairs of the last A(α)

    def __post_init__(self) -> None:
        self.accuracy = max(LEAST_ACCURACY, self.tol / 10)  # the tolerance of the eigenpairs
        self.touched, self.local = self.pairs.among_their_rows()

    def closed(self) -> bool:
        """Return whether the gap is at most ``tol`` times the value, or 1/1000 of the loss at K = 0 if that is more."""
        return self.optimal(self.upper)

    def optimal(self, value: float) -> bool:
        """Return whether a value is optimal to ``tol``."""
        return value - self.lower <= self.tol * max(abs(value), LEAST_VALUE * self.loss(np.zeros(self.pairs.p)))

    def evaluate(self, alpha: Array) -> Array:
        """Solve the eigenproblem at α, update both bounds, and return the gradient."""
        A = self.laplacian.matrix(self.pairs, alpha)
        last = self.last
        known: dict[str, Any] = {} if last is None or not len(last.w) else {"guess": len(last.w), "v0": last.V}
        part = self.find(A, None, tol=self.accuracy, **known)
        part = self.last = replace(part, V=self.laplacian.settled(part.V, len(part.w)))
        self.solver, self.products = part.solver, self.products + part.n_products
        root = float(np.sqrt(self.B))
        full = root / part.norm if len(part.w) else 0.0
        agreement = self.agreement(self.block(part), full * part.w)
        # tr(LK) = Σ α t K − tr(AK)
        self._offer(part, full, float(alpha @ agreement) - root * part.norm, agreement)
        linear, slope = self.linear(alpha)
        self.value = linear - root * part.norm
        self.record(linear - root * part.upper)
        if root * (part.upper - part.norm) > ACCURATE * self.tol * max(1.0, abs(self.upper)):
            self.accuracy = max(LEAST_ACCURACY, 0.1 * self.accuracy)
        self.tick()
        return slope - agreement

    def tick(self) -> None:
        """Report progress; also called between eigenproblems, which may be far apart."""
        if self.step is not None:
            self.step(len(self.trace), self.upper, self.gap)

    def linear(self, alpha: Array) -> tuple[float, Array]:
        """Return the terms of D that do not contain A, and their gradient."""
        share = alpha / (self.C * self.pairs.w) if self.squared else np.zeros_like(alpha)
        return float(alpha.sum() - alpha @ share / 2), 1.0 - share

    def block(self, part: PositivePart) -> Block:
        """Return the eigenvectors of a part as a block."""
        return self.laplacian.block(part.V, len(part.w))

    def last_vectors(self) -> Block:
        """Return the positive eigenvectors of the last A(α)."""
        assert self.last is not None
        return self.block(self.last)

    def at_pairs(self, X: Block) -> Array:
        """Return the rows of a block that have a pair."""
        return np.asarray(self.laplacian.columns.rows(X, self.touched))

    def agreement(self, V: Block, w: Array) -> Array:
        """Return t_ij K_ij for K = V diag(w) V', on the pairs."""
        return self.local.agreement(self.at_pairs(V), w)

    def try_kernel(self, E: Block) -> None:
        """Update the upper bound with the feasible multiple of EE'."""
        assert self.last is not None
        on = columns_of(E)
        w, U = np.linalg.eigh(on.gram(E))
        w, U = w[::-1], U[:, ::-1]
        kept = w > ROUNDING * w.max(initial=0.0)
        if not kept.any():
            return
        V = on.times(E, U[:, kept] / np.sqrt(w[kept]))
        part = replace(self.last, w=w[kept], V=self.laplacian.array(V))
        self._offer(part, *self._multiple(part))
        self.trace[-1] = (self.upper, self.gap)

    def restricted(self, rank: int) -> tuple[float, float]:
        """Return the value of the best multiple of the ``rank`` largest eigenpairs of the best K, and its factor."""
        assert self.best is not None
        part, factor = self.best
        if rank >= len(part.w):
            return self.upper, factor
        full, smooth, agreement = self._multiple(replace(part, w=part.w[:rank]))
        shrink, value = self._along(smooth, agreement)
        return value, shrink * full

    def _multiple(self, part: PositivePart) -> tuple[float, float, Array]:
        """Return the factor with which V diag(w) V' reaches the bound, tr(LK) and t_ij K_ij there."""
        full = float(np.sqrt(self.B)) / part.norm if part.w.any() else 0.0
        V = self.block(part)
        smooth = full * float(part.w @ columns_of(V).inner(V, self.laplacian.times(V)).diagonal())
        return full, smooth, self.agreement(V, full * part.w)

    def _offer(self, part: PositivePart, full: float, smooth: float, agreement: Array) -> None:
        """Keep K = full V diag(w) V', or a fraction of it, if it is the best so far; smooth = tr(LK)."""
        shrink, value = self._along(smooth, agreement)
        if value < self.upper:
            self.upper, self.best, self.slack = value, (part, shrink * full), shrink < 1.0

    def _along(self, smooth: float, agreement: Array) -> tuple[float, float]:
        """Return the best factor in [0, 1] for K, and the value there; it is below 1 where B is not active."""
        from scipy.optimize import minimize_scalar

        def value(c: float) -> float:
            return float(c * smooth + self.loss(c * agreement))

        if smooth <= 0.0 and (agreement <= 1.0).all():
            return 1.0, value(1.0)
        found = minimize_scalar(value, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-10})
        return min(((1.0, value(1.0)), (float(found.x), float(found.fun))), key=lambda pair: pair[1])

    def loss(self, agreement: Array) -> float:
        """Return Σ loss at the given t_ij K_ij."""
        short = np.maximum(0.0, 1.0 - agreement)
        weight = self.C * self.pairs.w
        return float(weight @ short**2 / 2 if self.squared else weight @ short)

    def solve(self, max_iter: int) -> bool:
        """Maximise from α = min(1, Cw) until the gap is closed; return whether ``max_iter`` eigenproblems sufficed.

        If a worker is lost with blocks that no task can compute again, it goes on from the best α.
        """
        alpha, bundle = np.minimum(1.0, self.C * self.pairs.w), Bundle(self)

        def climb() -> bool:
            nonlocal alpha, bundle
            alpha = alpha if bundle.center is None else bundle.center
            bundle = Bundle(self)
            self.upper, self.best, self.last = np.inf, None, None  # blocks of an earlier attempt are lost
            return self._climb(alpha, bundle, max_iter)

        return despite_losses(climb, LOSSES, "simplenpkl goes on from its best point")

    def _climb(self, alpha: Array, bundle: Bundle, max_iter: int) -> bool:
        while True:
            self.evaluate(alpha)
            if self.closed() or len(self.trace) >= max_iter:
                return self.closed()
            bundle.add(alpha)
            if self.slack:
                return factored.solve(self, bundle, max_iter)
            alpha, E = bundle.propose()
            self.try_kernel(E)
            if self.closed():
                return True
            if bundle.stuck:
                return factored.solve(self, bundle, max_iter)

    def spread(self, part: PositivePart) -> float:
        """Return the mean of the positive eigenvalues of A minus the mean of the others."""
        r, total = len(part.w), float(part.w.sum())
        rest = total + self.laplacian.trace  # the pairs have no diagonal
        return (total / max(1, r) + rest / max(1, self.pairs.n - r)) or 1.0


@dataclass
class Bundle:
    """The largest D so far with its α and eigenpairs, and what earlier steps tell the model of D about it."""

    dual: Dual
    top: float = -np.inf
    center: Array | None = None
    part: PositivePart | None = None
    stiffness: float = 1.0
    promised: float | None = None  # the value of the last proposal in the model
    stuck: bool = False  # whether the model sees nothing above the center

    def __post_init__(self) -> None:
        self.seen: list[Block] = []  # directions of earlier steps, at most one block

    def add(self, alpha: Array) -> None:
        """Take note of the evaluation of D at α, the proposal if there was one."""
        value = self.dual.value
        if self.promised is not None:
            # adapt the stiffness to the share of the predicted increase that was achieved
            promised = self.promised - self.top
            kept = (value - self.top) / promised if promised > 0 else 0.0
            self.stiffness *= 2.0 if kept > 0.5 else 0.5 if kept < 0.1 else 1.0
            self.promised = None
        if value > self.top:
            self.top, self.center, self.part = value, alpha, self.dual.last

    def propose(self, more: Block | None = None) -> tuple[Array, Block]:
        """Return where the model over known directions and ``more`` is largest: α, and E of the kernel there."""
        dual, part = self.dual, self.part
        assert part is not None
        assert self.center is not None
        known = [dual.block(part), *self.seen]
        if part is not dual.last:
            known.insert(1, dual.last_vectors())
        on = dual.laplacian.columns
        P = orthonormal(on.beside(*known, *([] if more is None else [more])))
        alpha, promised, E = Model(dual, self.center, P, self.stiffness * dual.spread(part)).maximize(
            MODEL_GAP * dual.gap
        )
        self.promised, self.stuck = promised, promised <= self.top
        self.seen = [on.select(on.beside(E, *self.seen), slice(DIRECTIONS))]
        on.settle(*self.seen)
        return alpha, E


class Factor(NamedTuple):
    """The kernel EE' of a point of the model, up to a factor: E = P inner, plus ``rows`` where rows have a pair."""

    inner: Array
    rows: Array


@dataclass
class Model:
    """The dual with the norm of the positive part of a small matrix M(α) in place of ‖A(α)₊‖_F.

    For orthonormal P, the change H = A(α) − A(center) and X = (I − PP')HP the matrix is

        M(α) = P'A(α)P + X'X/c.

    If P contains the positive eigenvectors of A(center), value and gradient there are those of D.  The first term is
    that of the bundle; alone it bounds D from above.  The second is the second-order effect of the directions outside P
    if A is −cI there: for an invariant P with complement Q, A ⪯ P M P' + Q(Q'AQ + cI)Q'.  X'X is convex in the order of
    PSD matrices and ‖(·)₊‖_F monotone, so the model is concave.

    α changes entries of A at the pairs only, so an evaluation needs the rows of P that have a pair, t of them.  Cost
    for q columns and p pairs: t q² + p q multiplications and q³ for the eigenproblem, a few t × q arrays; q ≤ 2r +
    DIRECTIONS for r positive eigenvalues.
    """

    dual: Dual
    center: Array
    P: Block
    c: float

    def __post_init__(self) -> None:
        on, local = self.dual.laplacian.columns, self.dual.local
        self._rows = self.dual.at_pairs(self.P)  # (t, q)
        smooth = on.inner(self.P, self.dual.laplacian.times(self.P))
        self._M = self._rows.T @ (local.matrix(self.center) @ self._rows) - (smooth + smooth.T) / 2

    def evaluate(self, alpha: Array) -> tuple[float, Array, Factor]:
        """Return the value at α, the t_ij K_ij in its gradient, and the kernel there."""
        P, c, pairs = self._rows, self.c, self.dual.local
        HP = pairs.matrix(alpha - self.center) @ P  # 0 at rows without a pair
        N = P.T @ HP
        w, U = np.linalg.eigh(self._M + N + (HP.T @ HP - N @ N) / c)
        w, U = w[w > 0][::-1], U[:, w > 0][:, ::-1]
        norm, root = float(np.linalg.norm(w)), float(np.sqrt(self.dual.B))
        full = root / norm if len(w) else 0.0
        NU, HPU = N @ U, HP @ U
        X = HPU - P @ NU
        F = X / c + P @ U
        # the derivative of tr(SM) with S = U diag(w) U' is PSP' + (XSP' + PSX')/c
        agreement = pairs.agreement(F, full * w) - pairs.agreement(X, full * w / c**2)
        scale = np.sqrt(w)
        return (
            self.dual.linear(alpha)[0] - root * norm,
            agreement,
            Factor((U - NU / c) * scale, HPU * (scale / c)),
        )

    def kernel(self, factor: Factor) -> Block:
        """Return E of a factor."""
        on = self.dual.laplacian.columns
        return on.add_rows(on.times(self.P, factor.inner), self.dual.touched, factor.rows)

    def maximize(self, tol: float) -> tuple[Array, float, Block]:
        """Return the maximiser of the model, the value and E there; the value is within ``tol`` of the maximum."""
        from scipy.optimize import minimize

        dual = self.dual
        unit = np.sqrt(dual.C * dual.pairs.w)  # the quadratic part of D is spherical in this scale

        def down(beta: Array) -> tuple[float, Array]:
            alpha = unit * beta
            dual.tick()
            value, agreement, factor = self.evaluate(alpha)
            linear, slope = dual.linear(alpha)
            # the duality gap of the model
            if dual.loss(agreement) + alpha @ agreement - linear <= tol:
                raise ModelSolved(alpha, value, factor)
            return -value, -unit * (slope - agreement)

        bounds = [(0.0, None if dual.squared else float(u)) for u in unit]
        options: Any = {"maxcor": CORRECTIONS, "maxiter": MODEL_STEPS, "maxfun": MODEL_STEPS, "ftol": 0.0, "gtol": 0.0}
        try:
            found = minimize(down, self.center / unit, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
            alpha = unit * found.x
            value, _, factor = self.evaluate(alpha)
        except ModelSolved as solved:
            alpha, value, factor = solved.args
        return alpha, value, self.kernel(factor)
