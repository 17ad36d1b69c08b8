"""L-BFGS with one bounded variable, the last, which stays >= 0."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

from metricforge.rows import Array

MEMORY = 40
"""Pairs of vectors that approximate the Hessian."""
SEARCH = 30
"""Maximal number of evaluations of a line search: after a change of smoothing the first step may cross many kinks."""
DECREASE, CURVATURE = 1e-4, 0.9
"""The constants of the Wolfe conditions."""

Evaluate = Callable[[Array], tuple[float, Array]]


def minimise(evaluate: Evaluate, x: Array, watch: Callable[[Array, float], bool], gtol: float, max_iter: int) -> None:
    """Run L-BFGS from x until ``watch(x, value)``, called after each step, returns True.

    Other ends: the norm of the gradient and its last entry, projected, are at most ``gtol``, the line search finds no
    smaller value, or ``max_iter`` steps.  The bound is kept by shortening the step; at the bound the variable only
    moves inwards.  Directions depend on x by inner products alone, so an orthogonal change of variables changes the
    path by rounding only.

    Cost of a step: one or two evaluations and 4 · MEMORY products of vectors.
    """
    value, gradient = evaluate(x)
    memory: deque[tuple[Array, Array, float]] = deque(maxlen=MEMORY)
    for _ in range(max_iter):
        free = not (x[-1] <= 0 and gradient[-1] > 0)
        # a norm, because the largest entry would depend on the basis
        if max(float(np.linalg.norm(gradient[:-1])), abs(gradient[-1]) * free) <= gtol:
            return
        direction = _direction(gradient, memory, free)
        if x[-1] <= 0 and direction[-1] < 0:
            free = False
            direction = _direction(gradient, memory, free)
        slope = float(direction @ gradient)
        if not slope < 0:  # rounding has spoilt the memory
            memory.clear()
            direction = _direction(gradient, memory, free)
            slope = float(direction @ gradient)
        longest = -x[-1] / direction[-1] if direction[-1] < 0 else np.inf
        first = 1.0 if memory else 1.0 / max(1.0, float(np.linalg.norm(gradient)))
        found = _search(evaluate, x, value, slope, direction, min(first, longest), longest)
        if found is None:
            if not memory:
                return
            memory.clear()  # once more, along the gradient
            continue
        after, value, new = found
        s, y = after - x, new - gradient
        if s[-1] == 0:  # the bounded variable did not move: its slope says nothing about the curvature along s
            y[-1] = 0.0
        curvature = float(s @ y)
        if curvature > np.finfo(np.float64).eps * float(y @ y):
            memory.append((s, y, 1 / curvature))
        x, gradient = after, new
        if watch(x, value):
            return


def _direction(gradient: Array, memory: deque[tuple[Array, Array, float]], free: bool) -> Array:
    """Return −H g by the two loops, H the approximate inverse Hessian; without the bounded variable unless free."""
    q = -gradient
    if not free:
        q[-1] = 0.0
    weights = []
    for s, y, rho in reversed(memory):
        weight = rho * float(s @ q)
        weights.append(weight)
        q -= weight * y
    if memory:
        _, y, rho = memory[-1]
        q /= rho * float(y @ y)
    for (s, y, rho), weight in zip(memory, reversed(weights), strict=True):
        q += (weight - rho * float(y @ q)) * s
    if not free:
        q[-1] = 0.0
    return q


def _search(
    evaluate: Evaluate, x: Array, value: float, slope: float, direction: Array, step: float, longest: float
) -> tuple[Array, float, Array] | None:
    """Return a point that meets the weak Wolfe conditions, with value and gradient; else a lower one, else None."""
    low, low_value, low_slope = 0.0, value, slope
    high = np.inf
    best: tuple[Array, float, Array] | None = None
    for _ in range(SEARCH):
        tried = x + step * direction
        if step >= longest:
            tried[-1] = 0.0
        found, gradient = evaluate(tried)
        here = float(direction @ gradient)
        if not found <= value + DECREASE * step * slope:  # also where it is not a number
            high = step
        else:
            best = (tried, found, gradient)
            if here >= CURVATURE * slope or step >= longest:
                return best
            low, low_value, low_slope = step, found, here
        if np.isinf(high):
            step = min(longest, 2 * step)
            continue
        # the minimiser of the parabola through the lower end and its slope, kept inside the bracket
        width = high - low
        bend = found - low_value - low_slope * width if step == high else np.nan
        guess = -low_slope * width / (2 * bend) if bend > 0 else 0.5
        step = low + width * float(np.clip(guess, 0.1, 0.6))
        if width <= 1e-15 * high:
            break
    return best
