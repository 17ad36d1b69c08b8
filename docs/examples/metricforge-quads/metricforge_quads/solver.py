"""The method ``diagonal``: one weight per feature, learned from comparisons."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

import metricforge as mf
from metricforge.space import LearnedKernel, compact
from metricforge.validation import number, whole_number

from .comparisons import Comparisons


@dataclass(frozen=True)
class Diagonal(mf.Solver):
    """Weigh the features so that the first pair of a comparison is closer than the second.

    With squared differences u_t = (φ_a − φ_b)² and v_t = (φ_c − φ_d)² of comparison t, and s the mean of all of them:

        minimise  (1/p) Σ_t max(0, 1 − w'(v_t − u_t)/s)² + (ridge/2) |w − 1/m|²    subject to w ≥ 0.

    The learned kernel is φ(x)' diag(w/s) φ(y), so the scales of the features do not matter.

    Parameters
    ----------
    ridge : float > 0
        How strongly the weights are drawn to 1/m.
    tol : float > 0
        The gap to reach, relative to the objective.
    max_iter : int

    Notes
    -----
    Certificate: the objective F is ridge-strongly convex, so F(w) − min F <= |r|² / (2 ridge), where r is the shortest
    subgradient of F at w, the constraint w ≥ 0 included.

    Cost: O(pm) memory, O(pm) time per iteration.  Only the features of rows that occur in a comparison are computed.
    """

    ridge: float = 0.01
    tol: float = 1e-6
    max_iter: int = 1000
    accepts: ClassVar = (Comparisons,)

    def __post_init__(self):
        number(self.ridge, "ridge", above=0)
        number(self.tol, "tol", above=0)
        whole_number(self.max_iter, "max_iter")

    def _solve(self, problem):
        from scipy.optimize import minimize

        Z, scale = differences(problem)  # (p, m), (m,)
        p, m = Z.shape

        def objective(w):
            short = np.maximum(0, 1 - Z @ w)
            value = short @ short / p + self.ridge / 2 * np.square(w - 1 / m).sum()
            return value, -2 / p * (short @ Z) + self.ridge * (w - 1 / m)

        def gap(w):
            slope = objective(w)[1]
            shortest = np.where(w > 0, slope, np.minimum(slope, 0))
            return float(shortest @ shortest) / (2 * self.ridge)

        trace = []

        def step(w):
            trace.append((float(objective(w)[0]), gap(w)))
            problem.step(len(trace), self.max_iter, gap=trace[-1][1])
            if trace[-1][1] <= self.tol * trace[-1][0]:
                raise StopIteration

        options = {"maxiter": self.max_iter, "maxfun": 10 * self.max_iter, "ftol": 0.0, "gtol": 0.0}
        bounds = [(0, None)] * m
        start = np.full(m, 1 / m)
        w = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds, callback=step, options=options).x
        value, left = float(objective(w)[0]), gap(w)
        weights = np.divide(w, scale, out=np.zeros(m), where=scale > 0)
        return mf.Solution(
            LearnedKernel(problem.space.map, np.diag(weights), a=0.0),
            mf.Status.OPTIMAL if left <= self.tol * value else mf.Status.ITERATION_LIMIT,
            objective=value,
            certificate=mf.Certificate("bound", left, scale=value),
            n_iter=len(trace),
            trace=tuple(trace),
            outcome={"weights": weights},
        )


def differences(problem):
    """Return (v_t − u_t)/s for every comparison, and s."""
    quads = problem.constraint.quads
    used, positions = compact(quads)
    features = problem.space.map.of_rows(problem.rows, used)  # in memory, also where the rows are on dask
    a, b, c, d = (features[at] for at in positions.T)
    near, far = np.square(a - b), np.square(c - d)
    scale = (near + far).mean(axis=0) / 2
    return np.divide(far - near, scale, out=np.zeros_like(near), where=scale > 0), scale


METHOD = mf.Method(constraint=Comparisons, kernel=mf.kernels.Linear(), solver=Diagonal(), order=1, scale_free=True)
