"""Metric learning for kernel regression: a metric in which near rows have near values."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from metricforge.constraints import Constraint, Targets
from metricforge.errors import InputError
from metricforge.kernels import Linear, Standardized
from metricforge.optimize import minimize, stationarity
from metricforge.rows import Array, blocks, draw
from metricforge.solver import Certificate, Method, Problem, Solution, Solver
from metricforge.space import (
    LearnedKernel,
    Size,
    add_transposed_product,
    affordable_queries,
    affordable_steps,
    check_start,
    feature_unit,
    rows_seconds,
    space_seconds,
    start_factor,
    steps_seconds,
)
from metricforge.validation import number, plural, whole_number_or

LARGEST = 1e145
"""The largest value of y about its mean: sums of squares stay finite."""
BLOCK = 2**22
"""Memory of a block of distances, in bytes: the passes over it find it in the cache of a core."""
LEAST = -100.0
"""Logarithms of smaller weights, relative to the largest of a row, are raised to this: sums stay the same to the last
digit, and numbers below the normal range take twice as long."""
ARRAYS = 3
"""Arrays of the size of a block that exist at the same time."""
STEPS, LEAST_STEPS = 300, 15
"""The largest and the smallest number of steps that max_iter="auto" stands for."""
LEAST_QUERIES = 4000
"""Rows in the sum at the least: with 2,000 of 5,000 to 8,000 rows, test errors were 9 to 12 % larger."""
MEMORY = 10
"""Gradients that L-BFGS keeps."""
DEFINITION = "norm of the gradient times the norm of L, relative to the sum of squares of y about its mean"


@dataclass(frozen=True)
class MLKR(Solver):
    """Learn the metric of a Gaussian kernel regression with the smallest leave-one-out squared error.

    With φ the features of the base kernel, k_ij = exp(−‖L(φ_i − φ_j)‖²) and ŷ_i = Σ_{j≠i} k_ij y_j / Σ_{j≠i} k_ij,
    minimise over L

        Σ_i (ŷ_i − y_i)².

    L-BFGS from the base metric, or a multiple of it where distances are so small or large that weights do not differ.
    Beyond 4,000 rows, the sum may be over a part of the rows.  The problem is not convex: the certificate is the norm
    of the gradient.

    Cost: O(q n r + n r m) time a step for q rows in the sum; memory 16 n m bytes and some blocks of 5 MB.

    Parameters
    ----------
    n_components : int, optional
        The number of rows of L; default: all features.  The start is then the principal axes.
    tol : float in (0, 1]
        The certificate to reach.
    max_iter : "auto" or int
        The largest number of steps.  "auto" is 300, or as many as 4 forecast CPU seconds allow, at least 15: 300 up to
        some 700 rows, 15 for 3,000 rows of 100 features.
    queries : "auto" or int
        The rows i of the sum, drawn at random and compared with all rows.  "auto": all up to 4,000; of more rows, as
        many as 4 forecast CPU seconds allow, at least 4,000.
    start : (r, m) nested tuple or array, optional
        L to start from, on the m features (all of them, also where components are taken); not together with
        ``n_components``.

    References
    ----------
    K. Q. Weinberger, G. Tesauro. Metric learning for kernel regression. AISTATS 2007, eqs. (2)-(8).
    """

    n_components: int | None = None
    tol: float = 1e-3
    max_iter: int | str = "auto"
    queries: int | str = "auto"
    start: tuple[tuple[float, ...], ...] | None = None

    accepts: ClassVar[tuple[type[Constraint], ...]] = (Targets,)

    def __post_init__(self) -> None:
        whole_number_or(self.n_components, "n_components", [None])
        number(self.tol, "tol", above=0, most=1)
        whole_number_or(self.max_iter, "max_iter", ["auto"])
        whole_number_or(self.queries, "queries", ["auto"])
        object.__setattr__(self, "start", check_start(self.start, self.n_components))

    def _solve(self, problem: Problem) -> Solution:
        assert isinstance(problem.constraint, Targets)
        rows = problem.constraint.known
        y = problem.constraint.y[rows]
        if len(rows) < 3:
            raise InputError(f"y has known values for {plural(len(rows), 'row')} (n_samples={len(rows)}); give three")
        if y.max() == y.min():
            raise InputError("y: all values are equal, so there is nothing to learn from; check the column")
        Phi = problem.space.map.of_rows(problem.rows, rows, copies=2, gather=True)
        Phi -= Phi.mean(axis=0)
        y, size = _centred(y)
        start = start_factor(Phi, self.n_components, self.start, problem.space.basis)
        unit = feature_unit(Phi, problem.seed)
        if unit != 1:
            Phi /= unit
            start = start if self.start is None else start * unit
        n, m, r = *Phi.shape, len(start)
        q = _queries(n, m, r) if isinstance(self.queries, str) else int(self.queries)
        queries = draw(n, q, problem.seed)
        q = len(queries)
        spread = float(np.square(y[queries]).sum()) or 1.0
        most = _steps(n, m, r, q) if isinstance(self.max_iter, str) else int(self.max_iter)
        L, n_iter = self._descend(Phi, y, start, most, problem, queries)
        error, G = leave_one_out(L, Phi, y, queries)
        slope = float(np.linalg.norm(G) * np.linalg.norm(L)) / spread
        outcome: dict[str, Any] = {"r2": 1 - error / spread, "unknown": problem.n - n, "queries": q}
        notes = (f"the error is that of {q} rows drawn from {n}; queries={n} takes all",) if q < n else ()
        return Solution(
            kernel=LearnedKernel.of_factor(problem.space.map, L / unit),
            status=stationarity(slope, self.tol, n_iter >= most),
            objective=n / q * error * size**2,
            certificate=Certificate("gradient", slope, None, DEFINITION),
            n_iter=n_iter,
            outcome=outcome,
            notes=notes,
        )

    def _descend(
        self, Phi: Array, y: Array, start: Array, most: int, problem: Problem, queries: Array
    ) -> tuple[Array, int]:
        total, step = float(np.square(y[queries]).sum()) or 1.0, itertools.count(1)

        def value(L: Array) -> tuple[float, Array]:
            f, G = leave_one_out(L, Phi, y, queries)
            return f / total, G / total

        def after(L: Array) -> None:
            problem.step(next(step), most)

        return minimize(value, start, most, after=after, memory=MEMORY, ftol=1e-12, gtol=0.01 * float(self.tol))


def _centred(y: Array) -> tuple[Array, float]:
    """Return values about their mean, divided by a power of 2 that makes them about 1, and this power."""
    exponent = int(np.frexp(np.abs(y).max())[1]) - 1
    size = float(np.ldexp(1.0, exponent))
    y = np.ldexp(y, -exponent)
    y -= y.mean()
    largest = float(np.abs(y).max())
    if largest * size > LARGEST:
        raise InputError(f"y: values are up to {largest * size:.2g} from their mean, and squares overflow; divide y")
    return y, size


def leave_one_out(L: Array, F: Array, y: Array, queries: Array | None = None) -> tuple[float, Array]:
    """Return Σ (ŷ_i − y_i)² and its gradient in L (r, m) for rows F (n, m); ``queries`` (q,) are the rows i of the sum.

    ∂/∂d_ij is w_ij = −2 (ŷ_i − y_i) p_ij (y_j − ŷ_i), and Σ_j w_ij = 0.
    """
    n = len(F)
    queries = np.arange(n) if queries is None else queries
    Z = F @ L.T
    norms = np.square(Z).sum(axis=1)
    G, columns = np.zeros_like(Z), np.zeros(n)
    error = 0.0
    for part in blocks(len(queries), ARRAYS * 8 * n, BLOCK):
        rows = queries[part]
        # one array, changed in place: ‖z_i‖² − d_ij, then k_ij up to a factor of each row, then w_ij
        W = Z[rows] @ Z.T
        W *= 2
        W -= norms
        W[np.arange(len(rows)), rows] = -np.inf
        W -= W.max(axis=1, keepdims=True)
        np.maximum(W, LEAST, out=W)
        np.exp(W, out=W)
        total = W.sum(axis=1)
        fitted = W @ y / total
        residual = fitted - y[rows]
        error += float(residual @ residual)
        W *= y - fitted[:, None]
        W *= (-2 * residual / total)[:, None]
        # Σ_j (w_ij + w_ji)(z_i − z_j)
        G[rows] -= W @ Z
        add_transposed_product(G, W, -Z[rows])
        columns += W.sum(axis=0)
    G += columns[:, None] * Z
    return error, 2 * (G.T @ F)


def _step_seconds(n: int, m: int, r: int, q: int) -> float:
    """Return the forecast CPU seconds of a step, line search included."""
    return 1e-9 * (q * n * (8 + 0.19 * r) + 0.1 * n * m * r + 100 * m * r)


def _queries(n: int, m: int, r: int) -> int:
    """Return what queries="auto" stands for."""
    return affordable_queries(lambda q: (LEAST_STEPS + 2) * _step_seconds(n, m, r, q), n, LEAST_QUERIES)


def _steps(n: int, m: int, r: int, q: int) -> int:
    """Return what max_iter="auto" stands for."""
    step = _step_seconds(n, m, r, q)
    return affordable_steps(step, 2 * step, LEAST_STEPS, STEPS)


def _seconds(size: Size) -> float:
    """Return the forecast CPU seconds of a fit; see docs/scaling.md."""
    n, m = size.n, size.m
    step = _step_seconds(n, m, m, _queries(n, m, m))
    return 0.05 + rows_seconds(size) + space_seconds(size) + steps_seconds(step, 2 * step, LEAST_STEPS, STEPS)


METHOD = Method(
    constraint=Targets,
    kernel=Standardized(Linear(), by="range"),
    solver=MLKR(),
    rank=200,
    order=10,
    cost=_seconds,
    memory={"mm": 8 * (2 * MEMORY + 28), "nm": 40},
)
