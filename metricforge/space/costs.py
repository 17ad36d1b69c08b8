"""Forecasts of the CPU time of a fit, which decide what ``rank="auto"`` means.

The constants are those of docs/scaling.md (``python -m benchmarks.run costs`` fits them): nanoseconds on one core of
one machine.  They are part of the code.  A forecast depends on sizes only, never on timing, cores or free memory, so
that the same call learns the same metric everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .directions import DENSE_WIDTH, SAMPLED, WIDE_SAMPLED

BUDGET = 4.0
"""CPU seconds that the forecast of a fit with ``rank="auto"`` may reach."""
LEAST_RANK = 100
"""Landmarks that ``rank="auto"`` takes in any case: with fewer, the features say little about a kernel."""
LITTLE_MORE = 1.25
"""Where the forecast with so few exceeds the budget, the rank may multiply it by this factor."""
EXCEEDED = 2.0
"""Explicit features are taken as they are up to this multiple of the budget: forecasts are no more exact than that."""
AUTO_RANK = 500
"""Landmarks that ``rank="auto"`` takes at most."""
SAMPLE_ROWS = 20_000
"""Rows among which landmarks are chosen: the choice needs an (s × m) table, which must not grow with n."""

ALL_QUERIES = 3000
"""Up to here all rows are compared with all rows by methods that compare pairs of rows."""

GRAM_ARRAYS = 4
"""Arrays of the size of a Gram matrix while it is factorised: itself, its factor, and the workspaces of both."""
PIVOTS, PIVOT_ARRAYS = 64, 7
"""Pivots drawn at a time where landmarks are chosen, and arrays of a column for each that exist at the same time."""


@dataclass(frozen=True)
class Size:
    """The size of a fit.

    Attributes
    ----------
    n : int
        Rows.
    d : int
        Columns of the rows; 1 for rows without columns.
    m : int
        Features: explicit ones, components of them, landmarks, or n.
    p : int
        Relations, as the solver receives them; 0 if unknown.
    representation : {"explicit", "components", "exact", "landmarks"}
    kind : Constraint class or None
        The kind of the relations.
    """

    n: int
    d: int
    m: int
    p: int = 0
    representation: str = "landmarks"
    kind: type[Any] | None = None


Cost = Callable[[Size], float]
"""Returns the forecast CPU seconds of a whole fit."""


Terms = Mapping[str, float]
"""A forecast as data: coefficients of products of the sizes n, d, m and p, for instance {"pmm": 8} for 8 p m²."""


def evaluate(terms: Terms, size: Size) -> float:
    """Return the sum of the terms for a size."""
    return float(sum(factor * math.prod(getattr(size, letter) for letter in term) for term, factor in terms.items()))


def rows_seconds(size: Size) -> float:
    """Return the forecast for what every fit does with rows and relations: checks, column ranges, remarks."""
    return 0.005 + 1e-9 * ((45 * size.n + 15 * size.p) * size.d + 200 * size.p)


def space_seconds(size: Size, rows: int | None = None) -> float:
    """Return the forecast for the feature map and the features of some rows (default: all).

    It is also the forecast for a fit whose method declares no cost.
    """
    q = size.n if rows is None else min(rows, size.n)
    if size.representation == "explicit":
        return 1e-9 * 2 * q * size.m
    if size.representation == "components":
        return 1e-9 * (q * size.d * (2 + 0.06 * size.m) + _directions_work(size))
    features = 0.0599 * q * size.m**2 + 9.31 * q * size.m + 0.073 * q * size.m * size.d
    if size.representation == "exact":
        return 1e-9 * (0.045 * size.n**3 + features)
    s = min(size.n, SAMPLE_ROWS)
    return 1e-9 * (0.123 * s * size.m * size.d + 50.3 * s * size.m + features)


def _directions_work(size: Size) -> float:
    """Return the forecast nanoseconds of choosing components of explicit features, about as many as columns."""
    d, m = size.d, size.m
    if d <= DENSE_WIDTH:
        q = min(size.n, SAMPLED)
        return 0.1 * q * d**2 + 40 * q * d + 0.6 * d**3
    q = min(size.n, WIDE_SAMPLED)
    return q * d * (60 + 1.2 * m) + 10 * d * m**2


def space_bytes(size: Size) -> int:
    """Return the peak memory of the feature map: of a Gram matrix and its factors, or of choosing landmarks."""
    if size.representation == "explicit":
        return 0
    if size.representation == "components":
        return 8 * (5 * min(size.n, SAMPLED) * size.d + 8 * min(size.d, DENSE_WIDTH) ** 2)
    if size.representation == "exact":
        return GRAM_ARRAYS * 8 * size.n * size.n
    s = min(size.n, max(SAMPLE_ROWS, 2 * size.m))
    choosing = 8 * s * (size.m + PIVOT_ARRAYS * min(PIVOTS, size.m) + size.d)
    return max(choosing, GRAM_ARRAYS * 8 * size.m * size.m)


def affordable(seconds: Callable[[int], float], least: int, most: int, budget: float = BUDGET) -> int:
    """Return the largest number in [least, most] whose forecast is within the budget; least if none is.

    ``seconds`` must not decrease.
    """
    low, high = least, max(least, most)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if seconds(middle) <= budget else (low, middle - 1)
    return low


def affordable_queries(seconds: Callable[[int], float], n: int, least: int) -> int:
    """Return how many of n rows a method compares with all rows, where ``seconds(q)`` is the forecast for q of them.

    Up to 3000 rows these are all rows, beyond as many as the budget allows, at least ``least``.
    """
    return n if n <= max(ALL_QUERIES, least) else affordable(seconds, least, n)


def affordable_steps(step: float, rest: float, least: int, most: int) -> int:
    """Return the number of steps of ``step`` forecast seconds that the budget leaves beside ``rest``.

    It is at least ``least`` and at most ``most``: what ``max_iter="auto"`` means for methods whose steps are long.
    """
    return affordable(lambda steps: rest + steps * step, least, most)


def steps_seconds(step: float, rest: float, least: int, most: int) -> float:
    """Return the forecast of a fit that takes as many steps; it does not decrease in ``step`` and ``rest``."""
    return min(rest + most * step, max(BUDGET, rest + least * step))
