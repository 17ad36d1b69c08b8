"""Forecasts of time and memory of a design, and how many triples follow from them."""

from __future__ import annotations

import numpy as np

from metricforge.space import BUDGET, Size, affordable, rows_seconds

MARGINS, FIXED = 13, 2e7
"""Arrays of the size of the margins of all triples under all bases, and bytes besides.

HiGHS keeps most of them, with an index of every number: by columns, by rows, scaled, and as vectors that grow by
doubling.  10 to 17 were measured when most triples enter the program.
"""
DIRECTED_COLUMNS = 500
"""The largest number of columns with which bases="auto" learns directions, which costs O(d³) for each."""
WIDE_COLUMNS = 200
"""Columns that bases="auto" uses of more than that: with 500, linear programs took 6 to 11 s."""
DIRECTIONS, WIDTHS = 50, 3
"""Directions, and bases on each line, by default."""
MANY_BASES = 600
"""With more bases, linear programs take longer than the power law that fewer were fitted to."""
LEAST_TRIPLES = 2000
"""Triples that n_triples="auto" takes in any case."""


def bases(d: int, n_directions: int, widths: int) -> int:
    """Return the number of bases of ``bases="auto"`` on d columns."""
    return widths * (d + n_directions if d <= DIRECTED_COLUMNS else WIDE_COLUMNS)


def program_seconds(T: int, d: int, k: int) -> float:
    """Return the forecast CPU seconds of directions, margins and linear programs of T triples and k bases.

    The linear programs are those of overlapping classes, where most triples are violated.
    """
    programs = 7e-8 * float(np.power(k, 0.65)) * max(1.0, k / MANY_BASES) * T * float(np.sqrt(T))
    screening = 1e-8 * T * d if d > DIRECTED_COLUMNS else 0.0
    return 0.15 + 1e-9 * T * (40 * k + 300 * min(d, DIRECTED_COLUMNS)) + screening + programs


def affordable_triples(T: int, d: int, k: int) -> int:
    """Return how many of T triples a fit with k bases can take within the budget, at least `LEAST_TRIPLES`."""
    return affordable(lambda t: program_seconds(t, d, k), LEAST_TRIPLES, max(T, LEAST_TRIPLES))


def fit_seconds(size: Size) -> float:
    """Return the forecast CPU seconds of a fit with default options; see docs/scaling.md."""
    k, T = bases(size.d, DIRECTIONS, WIDTHS), size.p or 10 * size.n
    # with as many bases as triples, programs take longer than the power law that few bases were fitted to
    many = (6e-6 if size.d > DIRECTED_COLUMNS else 6e-7) * k**2
    program = min(many + program_seconds(T, size.d, k), max(BUDGET, program_seconds(LEAST_TRIPLES, size.d, k)))
    return rows_seconds(size) + program + 2e-9 * size.n * k


def fit_bytes(size: Size) -> float:
    """Return the forecast peak memory: rows, and the margins of the triples that are used under all bases."""
    k = bases(size.d, DIRECTIONS, WIDTHS)
    T = affordable_triples(size.p, size.d, k) if size.p else 0
    return FIXED + 32 * size.n * size.d + MARGINS * 8 * min(T, size.p) * k
