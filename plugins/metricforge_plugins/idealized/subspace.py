"""Which directions of wide features the program is solved in, and how many of them a solve can afford.

With ``rank="auto"`` and too many features, B is restricted to B = VCV' with r orthonormal columns V.  This is the
program of the paper under one more constraint, so that its optimum is an upper bound on that of the full program.  The
distances d_t² before learning remain those of all features.

V are the leading eigenvectors of mean_D zz' − mean_S zz', which is B(α) at equal multipliers: directions along which
dissimilar pairs differ and similar pairs do not.  Directions of large variance alone (PCA) can miss all of them.
Explicit features of moderate width are then solved in the leading eigenvectors of B(α) at that solution, see
`hints.refined`.
"""

from __future__ import annotations

from metricforge.constraints import Labels
from metricforge.rows import Array
from metricforge.space import (
    DENSE_WIDTH,
    Size,
    affordable,
    contrast_weights,
    leading_eigenvectors,
    rows_seconds,
    space_seconds,
    subspace_iteration,
)

from .differences import Differences

SOLVE_SECONDS = 1.25
"""Forecast CPU seconds of the solve that the number of directions is chosen for."""
MOST_DIRECTIONS = 100
"""Directions at the most: beyond, the test error did not fall on any set that was tried."""
PAIRS_PER_ROW, SEARCHED_ROWS = 8, 20_000
"""Pairs that are built from labels for each row, about, and the rows around which they are searched."""


def solve_seconds(pairs: int, width: int) -> float:
    """Return the forecast CPU seconds of a solve to the default tolerance; see docs/scaling.md."""
    return 0.1 + 1e-9 * (4 * pairs * width**2 + 600 * width**3)


def fit_seconds(size: Size) -> float:
    """Return the forecast CPU seconds of a whole fit: features, search of pairs (labels), directions, solve."""
    labelled = size.kind is not None and issubclass(size.kind, Labels)
    pairs = PAIRS_PER_ROW * size.n if labelled else size.p
    rows = min(size.n, 2 * pairs)
    width = min(size.m, rows)
    r = directions(pairs, width)
    search = 0.12 * size.n * min(size.n, SEARCHED_ROWS) * size.m if labelled else 0.0
    moments = 0.1 * min(pairs, rows) * width * min(width, DENSE_WIDTH) if r < width else 0.0
    passes = 3 * (pairs + rows) * size.m + 0.1 * rows * size.m * r
    features = space_seconds(size, rows)
    twice = size.representation == "explicit" and r < width <= DENSE_WIDTH  # in directions of the first solution
    rounds = (2 if twice else 1) * (solve_seconds(pairs, r) + 1e-9 * moments)
    return rows_seconds(size) + features + rounds + 1e-9 * (search + passes)


def directions(pairs: int, width: int) -> int:
    """Return how many of the ``width`` directions of the features a solve can afford; all of them if it can."""
    if solve_seconds(pairs, width) <= SOLVE_SECONDS:
        return width
    most = min(MOST_DIRECTIONS, width)
    return affordable(lambda r: solve_seconds(pairs, r), 1, most, SOLVE_SECONDS)


def leading_directions(z: Differences, dissimilar: Array, r: int, seed: int) -> Array:
    """Return the r leading eigenvectors of mean_D zz' − mean_S zz', (p, r).

    Cost: N p² + p³ up to 1000 features; beyond, 2 r (N + p) p for each of four products.
    """
    weights = contrast_weights(dissimilar)
    if z.width <= DENSE_WIDTH:
        return leading_eigenvectors(z.gather(weights), r)
    return subspace_iteration(lambda X: z.product(weights, X), z.width, r, seed)
