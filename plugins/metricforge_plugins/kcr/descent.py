"""Minimise the objective: L-BFGS on a factor of growing rank with decreasing smoothing, until the gap is closed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from metricforge.optimize import Bounds
from metricforge.rows import Array

from .certificate import DualBound, certify, factor_residual, residual, trivial_bound
from .lbfgs import minimise
from .objective import Objective, Smoothing
from .separate import split_columns

log = logging.getLogger(__name__)

COARSEST, FINER, FINEST = 0.5, 0.2, 1e-6
"""The initial smoothing width, the strongest reduction of it, and the width below which rounding dominates."""
START_DISTANCE, START_RADIUS = 2.0, 1.5
"""The mean squared distance and the squared radius of the starting point."""
SPARE, SPARE_SAMPLED, SPARE_SIZE = 16, 10, 0.1
"""Columns added to the start where all pairs are compared, and where groups are, and their size beside the start: in
practice a factor with spare columns has no spurious minima, and one with many closes the gap sooner; on groups, each
column costs more than that."""
SHARE = 0.3
"""The share of the tolerance that smoothing may take."""
CHECK_EVERY = 50
"""Steps between two certificates."""
STALE, ROUNDING = 20, 1e-12
"""The descent ends after this many certificates in which the gap shrank by no more than this share of the objective."""
GRADIENT = 1e-6
"""L-BFGS stops when the gradient is below this share of the gradient of the trace.  With 1e-5, distances of rows in
another order differed by up to 4e-6 of the largest; this takes 7 % more steps."""
PATIENCE = 200
"""Steps of a run before columns are added although not all are in use, because that resets the memory of L-BFGS."""
VANISHED = 1e-3
"""A singular value of P below this share of the largest counts as zero: its column may be replaced."""
EVALUATIONS = 6
"""Evaluations per step after which ``max_iter`` counts as reached; two are usual, and a line search may take 30."""
EQUAL = 1e-10
"""Violations of the matrix inequality that differ by no more than this share of the largest are equal."""
IDLE, FEW_STEPS = 4, 5
"""Stop after IDLE consecutive runs shorter than FEW_STEPS steps."""
SETTLED = 1e-3
"""A factor of fixed rank is stationary when its objective falls by less than this share of the tolerance per check."""
ENDS = ("done", "stationary", "limit", "stuck")


@dataclass(eq=False, kw_only=True)
class State(Bounds):
    """The current point of a descent, and the best point (P, h) so far with the best lower bound.

    Attributes
    ----------
    P, h, smoothing
        The current point.
    residual : float or None
        If the problem is not convex: how far the best point is from stationary, as a share of ``upper``.
    evaluations : int
        Evaluations of the smoothed objective.
    move : str
        The last decision.
    """

    P: Array
    h: float
    smoothing: Smoothing
    residual: float | None = None
    evaluations: int = 0
    move: str = ""

    @property
    def gap(self) -> float:
        """An upper bound on the best value minus the optimum; the residual times the value if there is none."""
        return super().gap if self.residual is None else self.residual * self.upper


@dataclass(frozen=True, eq=False)
class Descent:
    """Minimise an objective.

    Every `CHECK_EVERY` steps the exact objective and a lower bound are computed, and a decision is made: the gap is
    small enough (done); change the outer slope (cap); smooth less, because smoothing dominates the gap (finer); add the
    directions that violate the matrix inequality most, because W lacks rank (grow); or continue.

    ``blocks`` are the diagonal blocks of W, if there are several: a column of the factor then belongs to one of them.
    ``most`` is the largest number of columns; with it, a descent also ends where the objective is stationary in them.
    """

    objective: Objective
    root: Array
    lam: float
    tol: float
    max_iter: int
    step: Callable[..., None]
    blocks: tuple[slice, ...] = ()
    most: int | None = None

    def start(self, P: Array, spare: int) -> State:
        """Return the state at a mean squared distance of `START_DISTANCE` and a squared radius of `START_RADIUS`.

        To the columns of P are added up to ``spare``: the directions that violate the matrix inequality most there.
        """
        smoothing = Smoothing(COARSEST, logistic=self.objective.logistic)
        if self.blocks:
            P = split_columns(P, self.blocks)
        P = self._largest(P)
        m, r = P.shape
        spare = min(spare, m - r, m - r if self.most is None else self.most - r)
        h = START_RADIUS if self.objective.loss.convex else 1.0
        V = self.root.T @ self._violated(self._certify(self._sized(P), h, smoothing))[:, :spare]
        V /= np.linalg.norm(V, axis=0)
        P = self._sized(np.hstack([P, SPARE_SIZE * (float(np.linalg.norm(P)) or 1.0) * V]))
        upper, lower = self.objective.exact(P, h), trivial_bound(self.objective)
        return State(P=P, h=h, smoothing=smoothing, point=(P, h), upper=upper, lower=lower)

    def _largest(self, P: Array) -> Array:
        """Return the ``most`` largest columns of P."""
        if self.most is None or P.shape[1] <= self.most:
            return P
        return P[:, np.sort(np.argsort(-np.linalg.norm(P, axis=0), kind="stable")[: self.most])]

    def _certify(self, P: Array, h: float, smoothing: Smoothing) -> DualBound:
        return certify(self.objective, self.root, self.lam, P, h, smoothing, self.blocks)

    def _violated(self, found: DualBound) -> Array:
        """Return the directions of a bound; among those of equal violation, those of largest variance come first.

        Without multipliers they are all equal, and their order would be that of the basis.
        """
        values, V = found.values, found.vectors.copy()
        scale = float(np.abs(values).max(initial=0.0))
        ends = np.flatnonzero(np.diff(values) > EQUAL * scale) + 1
        F = self.objective.F
        for group in np.split(np.arange(len(values)), ends):
            if len(group) > 1:
                along = F.T @ (self.root.T @ V[:, group])  # (n, g) coordinates of the rows
                V[:, group] = V[:, group] @ np.linalg.eigh(along.T @ along)[1][:, ::-1]
        return V

    def _sized(self, P: Array) -> Array:
        """Return a multiple of P with a mean squared distance of `START_DISTANCE`; P = 0 as it is."""
        F = self.objective.F
        total = 2 * float(np.square(P.T @ F).sum()) / F.shape[1]
        return P * np.sqrt(START_DISTANCE / total) if total > 0 else P

    def run(self, state: State) -> State:
        """Continue from a state until the gap is closed, ``max_iter`` is reached, or runs no longer make progress."""
        idle = 0
        while state.move not in ENDS:
            before = state.n_iter
            with np.errstate(over="ignore", invalid="ignore"):  # a trial step that is too long is refused
                certificate = self._descend(state)
            idle = idle + 1 if state.n_iter < before + FEW_STEPS else 0
            if idle >= IDLE:
                state.move = "stuck"
            elif state.move == "cap":
                state.smoothing = replace(state.smoothing, cap=_cap(state.smoothing.cap, certificate.peak))
            elif state.move == "finer":
                state.smoothing = replace(state.smoothing, mu=self._finer(state, certificate))
            elif state.move == "grow":
                state.P = self._grown(state, certificate)
        h, value = self.objective.without_metric()
        if value <= state.upper:
            state.P, state.h = np.zeros((len(state.P), 1)), h
            state.upper, state.point = value, (state.P, h)
            if state.residual is not None:
                state.residual = self._residual(state, self._certify(state.P, h, state.smoothing))
        self.objective.close()
        log.debug("%s after %d steps, objective %.6g, bound %.6g", state.move, state.n_iter, state.upper, state.lower)
        return state

    # -- one run of L-BFGS ---------------------------------------------------------------------------------------

    def _descend(self, state: State) -> DualBound:
        """Run L-BFGS at one smoothing and rank until a decision is made."""
        shape, smoothing = state.P.shape, state.smoothing
        steps, last = 0, np.inf
        certificate: DualBound | None = None

        inside = self._support(state.P)

        def evaluate(x: Array) -> tuple[float, Array]:
            state.evaluations += 1
            value, gradient, slope = self.objective(x[:-1].reshape(shape), float(x[-1]), smoothing)
            return value, np.append((gradient * inside).ravel(), slope)

        def watch(x: Array, value: float) -> bool:
            nonlocal steps, last, certificate
            state.P, state.h, state.move = x[:-1].reshape(shape), float(x[-1]), ""
            state.n_iter += 1
            steps += 1
            self.step(state.n_iter, self.max_iter, gap=state.gap)
            spent = state.evaluations >= EVALUATIONS * self.max_iter
            if steps % CHECK_EVERY == 0 or state.n_iter >= self.max_iter or spent:
                certificate = self._check(state)
                state.move = self._decide(state, certificate, last - value, steps)
                last = value
            return bool(state.move)

        state.move = ""
        gtol = GRADIENT * float(np.linalg.norm(self.objective.penalty @ state.P))
        minimise(evaluate, np.append(state.P.ravel(), state.h), watch, gtol, self.max_iter)
        if state.move and certificate is not None:
            return certificate
        # L-BFGS has converged at this smoothing and rank
        certificate = self._check(state)
        state.move = self._decide(state, certificate, 0.0, PATIENCE) or (
            "finer" if state.smoothing.mu > FINEST else "again"
        )
        return certificate

    def _support(self, P: Array) -> Array | float:
        """Return 1 in the block of each column of P and 0 elsewhere; 1 if there is one block."""
        if not self.blocks:
            return 1.0
        inside = np.zeros(P.shape)
        for part in self.blocks:
            inside[part] = np.abs(P[part]).max(axis=0, initial=0.0) > 0
        return inside

    def _check(self, state: State) -> DualBound:
        value = self.objective.exact(state.P, state.h)
        found = self._certify(state.P, state.h, state.smoothing)
        convex = self.objective.loss.convex
        if value < state.upper or not convex:
            state.upper, state.point = value, (state.P, state.h)
        if not convex:
            state.residual = self._residual(state, found)
        state.record(found.bound)
        log.debug(
            "step %d: mu %.1e, cap %.1e, rank %d, objective %.6g, dual %.6g, bound %.6g, lowest %.4g",
            *(state.n_iter, state.smoothing.mu, state.smoothing.cap, state.P.shape[1], value, found.dual, found.bound),
            found.values[0] / self.lam,
        )
        return found

    def _residual(self, state: State, found: DualBound) -> float:
        """Return how far the current point is from stationary: over all W, or over the columns of the factor."""
        P, h = state.P, state.h
        _, gradient, slope = self.objective(P, h, state.smoothing)
        gradient = gradient * self._support(P)
        if self.most is None:
            return residual(state.upper, self.lam, P, gradient, float(found.values[0]))
        return factor_residual(state.upper, P, h, gradient, slope, self.root)

    # -- decisions -----------------------------------------------------------------------------------------------

    def _decide(self, state: State, found: DualBound, drop: float, steps: int) -> str:
        """Return the next decision, '' to continue.

        ``drop`` is the decrease of the smoothed objective since the last check, ``steps`` the length of this run.
        """
        coarse = found.loss > SHARE * self.tol * state.upper
        convex = self.objective.loss.convex
        if state.gap <= self.tol * state.upper and (convex or not coarse):
            return "done"
        if state.n_iter >= self.max_iter or state.evaluations >= EVALUATIONS * self.max_iter:
            return "limit"
        if len(state.trace) > STALE and state.trace[-STALE][1] - state.gap <= ROUNDING * state.upper:
            return "stuck"
        settled = drop <= SETTLED * self.tol * state.upper and not coarse
        if self.most is not None and settled and self._residual(state, found) <= self.tol:
            return "stationary"
        if convex and not self.objective.logistic and _cap(state.smoothing.cap, found.peak) != state.smoothing.cap:
            return "cap"
        if coarse and (state.upper - found.bound <= 3 * found.loss or drop <= SHARE * found.loss):
            return "finer"
        if self.most is None and found.values[0] < -self.lam * (1 + SHARE * self.tol):
            s = self._compressed(state.P)[1]
            slow = steps >= PATIENCE and drop <= 0.1 * self.tol * state.upper
            room = np.count_nonzero(s > VANISHED * s[0]) < len(state.P)
            if room and (slow or s[-1] > 0.02 * s[0]):
                return "grow"
        return ""

    def _finer(self, state: State, found: DualBound) -> float:
        """Return the next smoothing width, no smaller than the tolerance requires."""
        enough = 0.5 * SHARE * self.tol * state.upper / max(found.loss, 1e-300)
        return state.smoothing.mu * float(np.clip(enough, FINER, 0.5))

    def _compressed(self, P: Array) -> tuple[Array, Array]:
        """Return a factor of PP' with orthogonal columns, none vanished, block by block; and all singular values."""
        parts = [split_columns(P, (part,)) for part in self.blocks] if self.blocks else [P]
        found = [_factor(part) for part in parts if part.shape[1]]
        s = np.concatenate([values for _, values in found]) if found else np.zeros(1)
        longest = s.max()
        kept = [US[:, values > VANISHED * longest] for US, values in found]
        return (np.hstack(kept) if longest > 0 else P[:, :0]), np.sort(s)[::-1]

    def _grown(self, state: State, found: DualBound) -> Array:
        """Return P without vanished columns and with the most violated directions, scaled by a line search."""
        P, s = self._compressed(state.P)
        m, r = P.shape
        excess = -found.values / self.lam - 1  # the violation of λI + M ⪰ 0 along each direction
        k = min(int(np.count_nonzero(excess > 0)), m - r, max(2, r))
        if k == 0:
            return state.P
        V = self.root.T @ (found.vectors[:, :k] * np.sqrt(excess[:k] / excess[0]))
        size = s[0] / np.linalg.norm(V[:, 0]) if s[0] > 0 else 1 / np.sqrt(np.square(V[:, 0] @ self.objective.F).mean())
        best, chosen = self.objective(state.P, state.h, state.smoothing)[0], state.P
        for power in range(13):
            tried = np.hstack([P, 2.0**-power * size * V])
            value = self.objective(tried, state.h, state.smoothing)[0]
            if value < best:
                best, chosen = value, tried
            elif chosen is not state.P:
                break
        return chosen


def _factor(P: Array) -> tuple[Array, Array]:
    """Return U diag(s) and s of the singular value decomposition of P."""
    U, s, _ = np.linalg.svd(P, full_matrices=False)
    return U * s, s


def _cap(cap: float, peak: float) -> float:
    """Return the outer slope for multipliers up to ``peak``: four times as large, changed only if far from that."""
    if peak > 0.6 * cap:
        return min(1.0, 4 * cap)
    if 0 < peak < 0.1 * cap:
        return max(4 * peak, 0.05 * cap)
    return cap
