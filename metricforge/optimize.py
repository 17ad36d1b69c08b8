"""Parts that solvers share: L-BFGS, the record of bounds on the optimum, how a solve ended, and the smoothed hinge."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .errors import ConvergenceWarning
from .rows import Array
from .solver import Status


def minimize(
    function: Callable[[Array], tuple[float, Array]],
    start: Array,
    steps: int,
    *,
    after: Callable[[Array], Any] | None = None,
    memory: int = 10,
    ftol: float = 0.0,
    gtol: float = 0.0,
    least: Any = None,
    **options: Any,
) -> tuple[Array, int]:
    """Minimise a smooth function of an array by SciPy's L-BFGS-B; return the last point and the number of steps.

    Parameters
    ----------
    function : callable
        From a point to the value and the gradient, an array of the shape of ``start``.
    start : array
    steps : int
        The largest number of steps.
    after : callable, optional
        Called with the point after each step; the descent ends where it returns something true.
    memory : int
        The number of earlier steps that approximate the Hessian.
    ftol, gtol : float
        It also ends where a step gains less than this share of the value, or no entry of the projected gradient is
        larger.
    least : float or array, optional
        Lower bounds of the entries; default: none.
    options
        Further options of ``scipy.optimize.minimize(method="L-BFGS-B")``.
    """
    from scipy.optimize import Bounds as Box
    from scipy.optimize import minimize as minimized

    taken = 0

    def value(x: Array) -> tuple[float, Array]:
        found, gradient = function(x.reshape(start.shape))
        return found, gradient.ravel()

    def report(x: Array) -> None:
        nonlocal taken
        taken += 1
        if after is not None and after(x.reshape(start.shape)):
            raise StopIteration

    box = None if least is None else Box(np.ravel(least))
    limits = {"maxiter": steps, "maxcor": memory, "ftol": ftol, "gtol": gtol, **options}
    found = minimized(value, start.ravel(), jac=True, method="L-BFGS-B", bounds=box, callback=report, options=limits)
    return found.x.reshape(start.shape), taken


@dataclass(eq=False, kw_only=True)
class Bounds:
    """The smallest objective and the largest lower bound so far.

    Attributes
    ----------
    point : object
        Where the objective is ``upper``.
    upper, lower : float
        The smallest objective, and the largest lower bound on the optimum.
    n_iter : int
    trace : list of (objective, gap)
        One entry for each call of `record`.
    """

    point: Any = None
    upper: float = np.inf
    lower: float = -np.inf
    n_iter: int = 0
    trace: list[tuple[float, float]] = field(default_factory=list)

    @property
    def gap(self) -> float:
        """An upper bound on the objective minus the optimum, never below 0 by rounding."""
        return max(self.upper - self.lower, 0.0)

    def offer(self, objective: float, point: Any) -> bool:
        """Keep a point if its objective is the smallest so far; return whether it is."""
        better = objective < self.upper
        if better:
            self.upper, self.point = objective, point
        return better

    def record(self, lower: float) -> None:
        """Keep a lower bound if it is the largest so far, and add an entry to the trace."""
        self.lower = max(self.lower, lower)
        self.trace.append((self.upper, self.gap))

    def within(self, tol: float, least: float = 0.0) -> bool:
        """Return whether the gap is at most ``tol`` times the objective, or times ``least`` where that is more."""
        return self.gap <= tol * max(abs(self.upper), least)


def conclude(method: str, converged: bool, limited: bool, ended: str, repair: str = "raise max_iter or tol") -> Status:
    """Return the status of a solve of a convex problem, after a ConvergenceWarning where it did not converge.

    Parameters
    ----------
    method : str
        The name of the method, for the warning.
    converged : bool
        Whether the certificate is within the tolerance.
    limited : bool
        Whether the largest number of steps was reached.
    ended : str
        Where it stopped and with which certificate, for instance "after 10 steps with a gap of 0.1".
    repair : str
        What the user can change.
    """
    if converged:
        return Status.OPTIMAL
    warnings.warn(f"{method} stopped {ended}; {repair}", ConvergenceWarning, stacklevel=4)
    return Status.ITERATION_LIMIT if limited else Status.STALLED


def stationarity(slope: float, tol: float, limited: bool) -> Status:
    """Return the status of a solve of a problem that is not convex, from the norm of the gradient."""
    if slope <= tol:
        return Status.STATIONARY
    return Status.ITERATION_LIMIT if limited else Status.STALLED


def smoothed_hinge(x: Array, width: float) -> tuple[Array, Array]:
    """Return max over 0 <= b <= 1 of b x + width b (1 − b) / 2, a smoothed [x]₊, and its derivative b."""
    b = np.clip(0.5 + x / width, 0.0, 1.0)
    return b * x + 0.5 * width * b * (1 - b), b
