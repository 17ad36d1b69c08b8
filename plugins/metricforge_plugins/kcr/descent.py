"""Minimise the objective: L-BFGS on a factor of growing rank while the smoothing gets finer, until the bound is met."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .certificate import Certificate, certify, trivial_bound
from .objective import Objective, Smoothing

Array = NDArray[Any]
log = logging.getLogger(__name__)

COARSEST, FINER, FINEST = 0.5, 0.2, 1e-6
"""Smoothing starts at this width and gets finer by this factor; below the last, rounding takes over."""
APART, WITHIN = 2.0, 1.5
"""The mean squared distance, and the squared radius, that a descent starts at."""
SHARE = 0.3
"""The part of the tolerance that smoothing may use up."""
LOOK = 50
"""Steps between two certificates."""
MEMORY = 40
"""Pairs of vectors that L-BFGS keeps."""
SEARCH = 60
"""Evaluations of one line search: after a change of smoothing the first step may cross a kink, hard to hit in 20."""
GRADIENT = 1e-5
"""L-BFGS stops where the gradient is below this share of that of the trace."""
PATIENCE = 200
"""Steps that a run gets before columns are added although not all are in use: L-BFGS forgets what it learned then."""
VANISHED = 1e-3
"""A singular value of P below this share of the largest is as good as none: its column may be replaced."""
IDLE, HARDLY = 4, 5
"""After so many runs in a row of fewer than so many steps there is nothing left to gain."""
ENDS = ("done", "limit", "stuck")


@dataclass
class State:
    """Where a descent is, and the best it has seen.

    Attributes
    ----------
    P, h, smoothing
        The current point.
    best : (P, h)
        The point with the least exact objective, ``value``.
    bound : float
        The best lower bound on the optimum.
    move : str
        What was decided last.
    """

    P: Array
    h: float
    smoothing: Smoothing
    best: tuple[Array, float]
    value: float
    bound: float
    n_iter: int = 0
    move: str = ""
    trace: list[tuple[float, float]] = field(default_factory=list)

    @property
    def gap(self) -> float:
        """An upper bound on the best value less the optimum."""
        return max(self.value - self.bound, 0.0)


@dataclass(frozen=True, eq=False)
class Descent:
    """Minimise an objective.

    Every `LOOK` steps the exact objective and a lower bound are computed, and one of these is decided: the gap is small
    enough (done); the outer slope should change (cap); smoothing keeps the gap open (finer); W lacks rank, and the
    directions that violate the matrix inequality most are added to it (grow); or go on.
    """

    objective: Objective
    root: Array
    lam: float
    tol: float
    max_iter: int
    step: Callable[..., None]

    def start(self, P: Array) -> State:
        """Begin at a mean squared distance of `APART` and a squared radius of `WITHIN`, on the coarsest objective."""
        smoothing = Smoothing(COARSEST, logistic=self.objective.logistic)
        F = self.objective.F
        P = P * np.sqrt(APART * F.shape[1] / (2 * np.square(P.T @ F).sum()))
        h = WITHIN
        return State(P, h, smoothing, (P, h), self.objective.exact(P, h), trivial_bound(self.objective))

    def resume(self, other: State) -> State:
        """Begin where a descent on fewer pairs ended."""
        value = self.objective.exact(other.P, other.h)
        point = (other.P, other.h)
        return State(*point, other.smoothing, point, value, trivial_bound(self.objective))

    def run(self, state: State) -> State:
        """Go on from a state until the gap is met, the steps are used up, or nothing moves any more."""
        idle = 0
        while state.move not in ENDS:
            before = state.n_iter
            certificate = self._descend(state)
            idle = idle + 1 if state.n_iter < before + HARDLY else 0
            if idle >= IDLE:
                state.move = "stuck"
            elif state.move == "cap":
                state.smoothing = replace(state.smoothing, cap=_cap(state.smoothing.cap, certificate.peak))
            elif state.move == "finer":
                state.smoothing = replace(state.smoothing, mu=self._finer(state, certificate))
            elif state.move == "grow":
                state.P = self._grown(state, certificate)
        h, value = self.objective.without_metric()
        if value <= state.value:
            state.value, state.best = value, (np.zeros((len(state.P), 1)), h)
        self.objective.close()
        log.debug("%s after %d steps, objective %.6g, bound %.6g", state.move, state.n_iter, state.value, state.bound)
        return state

    # -- one run of L-BFGS ---------------------------------------------------------------------------------------

    def _descend(self, state: State) -> Certificate:
        """Run L-BFGS at one smoothing and rank until something is decided."""
        from scipy.optimize import minimize

        shape, smoothing = state.P.shape, state.smoothing
        steps, last = 0, np.inf
        certificate: Certificate | None = None

        def evaluate(x: Array) -> tuple[float, Array]:
            value, gradient, slope = self.objective(x[:-1].reshape(shape), float(x[-1]), smoothing)
            return value, np.append(gradient.ravel(), slope)

        def watch(intermediate_result: Any) -> None:
            nonlocal steps, last, certificate
            x, value = intermediate_result.x, float(intermediate_result.fun)
            state.P, state.h, state.move = x[:-1].reshape(shape).copy(), float(x[-1]), ""
            state.n_iter += 1
            steps += 1
            self.step(state.n_iter, self.max_iter, gap=state.gap)
            if steps % LOOK == 0 or state.n_iter >= self.max_iter:
                certificate = self._look(state)
                state.move = self._decide(state, certificate, last - value, steps)
                last = value
            if state.move:
                raise StopIteration

        state.move = ""
        minimize(
            evaluate,
            np.append(state.P.ravel(), state.h),
            jac=True,
            method="L-BFGS-B",
            bounds=[(None, None)] * state.P.size + [(0, None)],
            callback=watch,
            options={
                "maxiter": self.max_iter,
                "maxfun": 20 * self.max_iter,
                "maxcor": MEMORY,
                "maxls": SEARCH,
                "ftol": 0.0,
                "gtol": GRADIENT * float(np.abs(self.objective.penalty @ state.P).max()),
            },
        )
        if state.move and certificate is not None:
            return certificate
        # it stopped by itself: as far down as it gets at this smoothing and rank
        certificate = self._look(state)
        state.move = self._decide(state, certificate, 0.0, PATIENCE) or (
            "finer" if state.smoothing.mu > FINEST else "again"
        )
        return certificate

    def _look(self, state: State) -> Certificate:
        value = self.objective.exact(state.P, state.h)
        if value < state.value:
            state.value, state.best = value, (state.P, state.h)
        found = certify(self.objective, self.root, self.lam, state.P, state.h, state.smoothing)
        state.bound = max(state.bound, found.bound)
        state.trace.append((state.value, state.gap))
        log.debug(
            "step %d: mu %.1e, cap %.1e, rank %d, objective %.6g, dual %.6g, bound %.6g, lowest %.4g",
            *(state.n_iter, state.smoothing.mu, state.smoothing.cap, state.P.shape[1], value, found.dual, found.bound),
            found.values[0] / self.lam,
        )
        return found

    # -- decisions -----------------------------------------------------------------------------------------------

    def _decide(self, state: State, found: Certificate, drop: float, steps: int) -> str:
        """Return the next move, '' to go on.

        ``drop`` is what the smoothed objective fell by since the last look, ``steps`` how long this run is.
        """
        if state.gap <= self.tol * state.value:
            return "done"
        if state.n_iter >= self.max_iter:
            return "limit"
        if not self.objective.logistic and _cap(state.smoothing.cap, found.peak) != state.smoothing.cap:
            return "cap"
        coarse = found.loss > SHARE * self.tol * state.value
        if coarse and (state.value - found.bound <= 3 * found.loss or drop <= SHARE * found.loss):
            return "finer"
        if found.values[0] < -self.lam * (1 + SHARE * self.tol):
            s = np.linalg.svd(state.P, compute_uv=False)
            slow = steps >= PATIENCE and drop <= 0.1 * self.tol * state.value
            room = np.count_nonzero(s > VANISHED * s[0]) < len(state.P)
            if room and (slow or s[-1] > 0.02 * s[0]):
                return "grow"
        return ""

    def _finer(self, state: State, found: Certificate) -> float:
        """Return the next width, no finer than the tolerance asks for (but finer)."""
        enough = 0.5 * SHARE * self.tol * state.value / max(found.loss, 1e-300)
        return state.smoothing.mu * float(np.clip(enough, FINER, 0.5))

    def _grown(self, state: State, found: Certificate) -> Array:
        """Return P without vanished columns and with the most violated directions, scaled by a search."""
        U, s, _ = np.linalg.svd(state.P, full_matrices=False)
        P = (U * s)[:, s > VANISHED * s[0]] if s[0] > 0 else state.P[:, :0]
        m, r = P.shape
        excess = -found.values / self.lam - 1  # how much each direction violates λI + M ⪰ 0
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


def _cap(cap: float, peak: float) -> float:
    """Return the outer slope for multipliers of at most ``peak``: four times that, changed only when far off."""
    if peak > 0.6 * cap:
        return min(1.0, 4 * cap)
    if 0 < peak < 0.1 * cap:
        return max(4 * peak, 0.05 * cap)
    return cap
