"""L-BFGS on a matrix of n rows and few columns, in memory or in row chunks on the workers.

Directions are combinations of the blocks kept, and their weights follow from inner products of these blocks: only such
numbers are in this process (W. Chen, Z. Wang, J. Zhou, NIPS 2014).  Along a direction the objective is a function of
few numbers, which the problem knows: line searches take no pass over the rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from metricforge.eigen import Block, Columns
from metricforge.rows import Array

DECREASE, CURVATURE, SEARCH = 1e-4, 0.1, 60
"""The constants of the Wolfe conditions, and the maximal number of values of a line search."""
STALLED = 10
"""Steps that must lower the value by enough together."""

Line = Callable[[float], tuple[float, float]]
"""Value and slope after a step of some length."""


class Point(ABC):
    """A matrix, and what the problem needs to know of it.

    Attributes
    ----------
    blocks : list of blocks
        What the following points are made of.
    """

    blocks: list[Block]

    @abstractmethod
    def gradient(self) -> Block:
        """Return the gradient of the objective, a new block."""

    @abstractmethod
    def settled(self) -> Point:
        """Return the same point without the tasks behind it, if these are many; otherwise itself."""

    @abstractmethod
    def along(self, D: Block) -> tuple[Line, Callable[[float], Point]]:
        """Return the objective along D, and the point after a step."""


class Scaling:
    """The preconditioner M = I + Z diag(more) Z' for orthonormal Z: along Z steps are longer."""

    def __init__(self, on: Columns, Z: Block, more: Array) -> None:
        self.on, self.Z, self.more = on, Z, more

    def coordinates(self, X: Block) -> Array:
        """Return Z'X."""
        return np.asarray(self.on.inner(self.Z, X))

    def extra(self, a: Array, b: Array) -> float:
        """Return what <X, MY> exceeds <X, Y> by, for the coordinates of X and Y."""
        return float(np.sum(a * (self.more[:, None] * b)))

    def added(self, X: Block, c: Array) -> Block:
        """Return X + Z diag(more) c."""
        return self.on.minus(X, self.Z, -self.more[:, None] * c) if len(self.more) else X


class Memory:
    """Steps s and changes of the gradient y, with the inner products that directions need."""

    def __init__(self, on: Columns, scaling: Scaling, size: int) -> None:
        self.on, self.scaling, self.size = on, scaling, size
        self.clear()

    def clear(self) -> None:
        """Forget all steps."""
        self.s: list[Block] = []
        self.y: list[Block] = []
        self.z: list[Array] = []  # Z'y
        self.sy = np.zeros((0, 0))  # s_i'y_j
        self.yy = np.zeros((0, 0))  # y_i'My_j

    def add(self, s: Block, y: Block, g: Block, before: Array, others: list[Block]) -> tuple[Array, Array, Array]:
        """Add a step; return s_i'g and y_i'Mg of all steps for the new gradient g, and Z'g, which was ``before``.

        ``others`` are blocks to compute in the same round of tasks.
        """
        S, Y = [*self.s, s], [*self.y, y]
        m = len(S)
        requests = ("dots", [s, y, g], [*S, *Y]), ("inner", self.scaling.Z, g)
        dots, zg = self.on.several(*requests, keep=others)
        z = zg - before
        Z = [*self.z, z]
        sy, yy = np.zeros((m, m)), np.zeros((m, m))
        sy[:-1, :-1], yy[:-1, :-1] = self.sy, self.yy
        sy[-1], sy[:, -1] = dots[0, m:], dots[1, :m]
        yy[-1] = yy[:, -1] = dots[1, m:] + [self.scaling.extra(z, other) for other in Z]
        sg, yg = dots[2, :m], dots[2, m:] + np.array([self.scaling.extra(zg, other) for other in Z])
        good = sy[-1, -1] > np.finfo(np.float64).eps * yy[-1, -1]  # else rounding, or a negative curvature
        keep = slice(max(0, m - self.size), m) if good else slice(0, m - 1)
        self.s, self.y, self.z = S[keep], Y[keep], Z[keep]
        self.sy, self.yy = sy[keep, keep], yy[keep, keep]
        return sg[keep], yg[keep], zg

    def direction(self, g: Block, sg: Array, yg: Array, zg: Array) -> Block:
        """Return −Hg for the approximate inverse Hessian H, by the two loops over inner products."""
        m = len(self.s)
        rho = 1.0 / self.sy.diagonal()
        a = np.zeros(m)
        for i in reversed(range(m)):
            a[i] = rho[i] * (sg[i] - self.sy[i] @ a)
        scale = self.sy[-1, -1] / self.yy[-1, -1] if m else 1.0
        left = scale * (yg - self.yy @ a)  # y_i'r for r = scale M (g − Σ a y)
        c = np.zeros(m)
        for i in range(m):
            c[i] = a[i] - rho[i] * (left[i] + c @ self.sy[:, i])
        coordinates = zg - sum((ai * z for ai, z in zip(a, self.z, strict=True)), np.zeros_like(zg))
        D = self.on.combined([g, *self.y, *self.s], np.concatenate([[-scale], scale * a, -c]))
        return self.scaling.added(D, -scale * coordinates)


def minimize(
    point: Any, scaling: Scaling, corrections: int, steps: int, little: float, tick: Callable[[], None]
) -> Any:
    """Return the point after at most ``steps`` steps of L-BFGS that keeps so many corrections.

    It ends earlier if STALLED steps lower the value by at most ``little``.
    """
    on = scaling.on
    memory = Memory(on, scaling, corrections)
    g = point.gradient()
    zg = scaling.coordinates(g)
    sg, yg = np.empty(0), np.empty(0)
    values: list[float] = []
    for _ in range(steps):
        tick()
        D = memory.direction(g, sg, yg, zg)
        line, after = point.along(D)
        value, slope = line(0.0)
        if not slope < 0.0:
            if not memory.s:
                break
            memory.clear()  # once more, along the gradient
            sg, yg = np.empty(0), np.empty(0)
            continue
        first = 1.0 if memory.s else 1.0 / max(1.0, float(np.sqrt(-slope)))
        step = search(line, value, slope, first)
        if step is None:
            break
        point = after(step)
        new = point.gradient()
        s, y = on.combined([D], np.array([step])), on.combined([new, g], np.array([1.0, -1.0]))
        sg, yg, zg = memory.add(s, y, new, zg, point.blocks)
        g = new
        values.append(line(step)[0])
        settled = point.settled()
        if settled is not point:  # its gradient and the steps so far depend on the tasks that are forgotten
            point, g = settled, settled.gradient()
            zg = scaling.coordinates(g)
            memory.clear()
            sg, yg = np.empty(0), np.empty(0)
        if len(values) > STALLED and values[-1 - STALLED] - values[-1] <= little:
            break
    return point


def search(line: Line, value: float, slope: float, step: float) -> float | None:
    """Return a step that meets the strong Wolfe conditions, or else one that lowers the value, or else None."""
    low, low_slope, high, high_slope = 0.0, slope, np.inf, np.nan
    best: float | None = None
    for _ in range(SEARCH):
        found, here = line(step)
        lower = found <= value + DECREASE * step * slope  # False for NaN
        if lower:
            best = step
            if abs(here) <= -CURVATURE * slope:
                return step
        if lower and here < 0.0:
            low, low_slope = step, here
        else:
            high, high_slope = step, here
        if np.isinf(high):
            step *= 4.0
            continue
        width = high - low
        if width <= 1e-15 * high:
            break
        # where the slope would vanish if it were linear, kept inside the bracket
        guess = low_slope / (low_slope - high_slope) if high_slope > 0.0 else 0.5
        step = low + width * float(np.clip(guess, 0.1, 0.9))
    return best
