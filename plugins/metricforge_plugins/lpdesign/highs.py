"""The linear program of the design, which grows by columns, on HiGHS; the only file that imports highspy."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from metricforge.errors import SolverError
from metricforge.rows import Array

FEASIBILITY = 1e-9
"""Feasibility tolerance of HiGHS, in units of normalised bases."""
NEGLIGIBLE = 1e-12
"""Smaller coefficients are omitted from the program; HiGHS would drop them with a warning."""
SLICE, GROWTH = 250, 1.5
"""Simplex iterations before the first check of the time and of Ctrl-C (below a second), and how slices grow.  HiGHS
perturbs costs anew in every slice, and with slices of one length it may never leave a degenerate vertex."""
SECONDS = 600.0
"""Time limit of one linear program."""


class LimitReachedError(Exception):
    """A linear program took longer than `SECONDS`."""


class UnsolvedError(SolverError):
    """HiGHS failed: warm-started, from scratch, and without its scaling."""


@dataclass(frozen=True, eq=False)
class Vertex:
    """An optimal vertex of the current program.

    Attributes
    ----------
    alpha : (b,) array
        Weights of the normalised bases; the last is that of white where there is one.
    triples, cuts : arrays
        The multipliers λ of the triples and μ of the cuts, in the order in which they were added.
    """

    alpha: Array
    triples: Array
    cuts: Array


class Master:
    """The dual of the design problem over the triples and dominance cuts added so far.

    The design, in the scale of the paper and over bases that are divided by their ``sizes``, is

        minimise   Σ_t n_t ε_t + γ1 Σ_g s_g + c'α
        subject to d_t'α + ε_t >= 1,  ε >= 0,  |α_p| <= size_p s_g (p in group g),  a_r'α >= margin

    with α >= 0 if ``signed`` is false; a row d_t is K_ij − K_ik of a triple that occurs n_t times, and a_r one sign
    pattern of diagonal dominance in one row.  Its dual has a row per base and group, and columns that are added:

        maximise   Σ_t λ_t + margin Σ_r μ_r
        subject to Σ_t d_t λ_t + Σ_r a_r μ_r − u⁺ + u⁻ = c,  Σ_{p in g} size_p (u⁺_p + u⁻_p) <= γ1,
                   0 <= λ_t <= n_t,  μ, u⁺, u⁻ >= 0

    (without signs the first row is <= c and u⁻ is absent).  A new triple is a boxed column, which the dual simplex
    moves from one bound to the other without a pivot; α is the vector of row duals.  Triples and cuts that are not yet
    added have λ = 0 or μ = 0, so the optimum is always a lower bound on the cost of every design.

    Parameters
    ----------
    groups : (k,) int array
        The group of each penalised base, from 0.
    sizes : (k,) array
        The number that each base was divided by.
    signed : bool
        Whether weights may be negative.
    white : bool
        Whether a further base without a penalty follows.
    """

    def __init__(self, groups: Array, sizes: Array, *, signed: bool, white: bool) -> None:
        import highspy

        self._api = highspy
        self._groups, self._signed = groups, signed
        # group rows are divided by their largest size, because |α_p| <= size_p s_g has the scale of the kernels
        largest = np.zeros(int(groups.max()) + 1)
        np.maximum.at(largest, groups, sizes)
        self._group_size, self._share = largest, sizes / largest[groups]
        self.penalised, self.bases = len(groups), len(groups) + int(white)
        self.triples, self.cuts = np.empty((0, self.bases)), np.empty((0, self.bases))
        self._most = np.empty(0)
        self._is_triple = np.empty(0, dtype=bool)
        self.margin, self._slice = 0.0, SLICE
        self._highs = self._empty_program()
        self.penalise(0.0, np.zeros(self.bases))

    def _empty_program(self) -> Any:
        """Return the program with its rows and the columns u."""
        api, k, rows = self._api, self.penalised, self.bases + len(self._group_size)
        highs = api.Highs()
        highs.silent()
        for name, value in (
            ("solver", "simplex"),
            ("simplex_strategy", 1),  # dual: new triples enter by a bound flip
            ("presolve", "off"),  # a warm start never uses it
            ("threads", 1),
            ("simplex_iteration_limit", self._slice),
            ("primal_feasibility_tolerance", FEASIBILITY),
            ("dual_feasibility_tolerance", FEASIBILITY),
            ("small_matrix_value", NEGLIGIBLE),
        ):
            self._ok(highs.setOptionValue(name, value), f"setting {name}")
        signs = (-1.0, 1.0) if self._signed else (-1.0,)
        lp = api.HighsLp()
        lp.num_row_, lp.num_col_ = rows, k * len(signs)
        lp.sense_ = api.ObjSense.kMaximize
        lp.row_lower_ = np.full(rows, -api.kHighsInf)
        lp.row_upper_ = np.zeros(rows)
        lp.col_cost_ = lp.col_lower_ = np.zeros(lp.num_col_)
        lp.col_upper_ = np.full(lp.num_col_, api.kHighsInf)
        lp.a_matrix_.format_ = api.MatrixFormat.kColwise
        lp.a_matrix_.start_ = np.arange(0, 2 * lp.num_col_ + 1, 2)
        lp.a_matrix_.index_ = np.tile(np.column_stack([np.arange(k), self.bases + self._groups]).ravel(), len(signs))
        lp.a_matrix_.value_ = np.concatenate(
            [np.column_stack([np.full(k, sign), self._share]).ravel() for sign in signs]
        )
        self._ok(highs.passModel(lp), "building the program")
        return highs

    # -- changing it ---------------------------------------------------------------------------------------------

    def penalise(self, gamma1: float, cost: Array) -> None:
        """Set γ1 and the linear cost c of the bases; triples and cuts are kept."""
        self._gamma1, self._cost = gamma1, cost
        upper = np.concatenate([cost, gamma1 / self._group_size])
        lower = np.full(len(upper), -self._api.kHighsInf)
        if self._signed:
            lower[: self.bases] = cost
        index = np.arange(len(upper), dtype=np.int32)
        self._ok(self._highs.changeRowsBounds(len(upper), index, lower, upper), "setting the penalties")

    def add_triples(self, rows: Array, times: Array) -> None:
        """Add the triples with these margins (m, k) and multiplicities ``times``."""
        padded = np.zeros((len(rows), self.bases))
        padded[:, : self.penalised] = rows
        self._add(padded, np.ones(len(rows)), times, "adding triples")
        self.triples = np.concatenate([self.triples, padded])
        self._most = np.concatenate([self._most, times])
        self._is_triple = np.concatenate([self._is_triple, np.ones(len(rows), dtype=bool)])

    def add_cuts(self, rows: Array) -> None:
        """Add the conditions a'α >= margin, each divided by its largest coefficient."""
        rows = rows / np.abs(rows).max(axis=1, keepdims=True)
        unbounded = np.full(len(rows), self._api.kHighsInf)
        self._add(rows, np.full(len(rows), self.margin), unbounded, "adding dominance cuts")
        self.cuts = np.concatenate([self.cuts, rows])
        self._is_triple = np.concatenate([self._is_triple, np.zeros(len(rows), dtype=bool)])

    def require(self, margin: float) -> None:
        """Set the margin of all cuts, those added later included."""
        self.margin = margin
        first = self.penalised * (2 if self._signed else 1)
        columns = (first + np.flatnonzero(~self._is_triple)).astype(np.int32)
        costs = np.full(len(columns), margin)
        self._ok(self._highs.changeColsCost(len(columns), columns, costs), "setting the margin")

    def _add(self, rows: Array, cost: Array, most: Array, what: str) -> None:
        if not np.isfinite(rows).all():
            raise SolverError(f"{what}: a kernel value is not finite")  # HiGHS drops a NaN without an error
        kept = np.abs(rows) > NEGLIGIBLE
        starts = np.concatenate([[0], np.cumsum(kept.sum(axis=1))[:-1]]).astype(np.int32)
        index = np.nonzero(kept)[1].astype(np.int32)
        status = self._highs.addCols(len(rows), cost, np.zeros(len(rows)), most, len(index), starts, index, rows[kept])
        self._ok(status, what)

    # -- solving it ----------------------------------------------------------------------------------------------

    def solve(self, tick: Callable[[], None] = lambda: None) -> Vertex | None:
        """Return an optimal vertex, warm-started from the last one; None where no α satisfies the cuts.

        The simplex method runs in slices of growing length, so that Ctrl-C and the time limit take effect between
        them; ``tick`` is called after each.

        Raises
        ------
        LimitReachedError
            After `SECONDS`.
        UnsolvedError
            When HiGHS fails three times: warm-started, from scratch, and from scratch without its scaling.
        """
        status = self._api.HighsModelStatus
        started, failures = time.monotonic(), 0
        self._limit(SLICE)
        while True:
            ran = self._highs.run()
            tick()
            found = self._highs.getModelStatus()
            if found == status.kOptimal:
                return self._vertex()
            if self.margin > 0 and found in (status.kUnbounded, status.kUnboundedOrInfeasible):
                return None
            if found == status.kIterationLimit:
                if time.monotonic() - started > SECONDS:
                    raise LimitReachedError
                self._limit(math.ceil(GROWTH * self._slice))
                continue
            failures += 1
            if failures > 2:
                raise UnsolvedError(f"HiGHS ended with {self._highs.modelStatusToString(found)!r} ({ran})")
            self._ok(self._highs.clearSolver(), "starting from scratch")
            if failures > 1:  # little is lost, because bases and cuts are normalised; nearly infeasible cuts need it
                self._ok(self._highs.setOptionValue("simplex_scale_strategy", 0), "turning scaling off")

    def _limit(self, iterations: int) -> None:
        """Set the length of the next slice."""
        if iterations != self._slice:
            self._ok(self._highs.setOptionValue("simplex_iteration_limit", iterations), "setting the iteration limit")
            self._slice = iterations

    def _vertex(self) -> Vertex:
        solution = self._highs.getSolution()
        alpha = np.asarray(solution.row_dual)[: self.bases]
        columns = np.asarray(solution.col_value)[self.penalised * (2 if self._signed else 1) :]
        triples = np.clip(columns[self._is_triple], 0, self._most)
        return Vertex(alpha, triples, np.maximum(columns[~self._is_triple], 0))

    def lower_bound(self, vertex: Vertex, upper: float) -> float:
        """Return a lower bound on the cost of every design, given one that costs ``upper``.

        λ and μ bound the cost exactly if the dual rows hold.  Their violation (HiGHS stops at 1e-9), times the largest
        weights that a design of that cost can have, is subtracted.
        """
        excess = vertex.triples @ self.triples + vertex.cuts @ self.cuts - self._cost
        k = self.penalised
        used = np.abs(excess[:k]) if self._signed else np.maximum(excess[:k], 0)
        left = np.bincount(self._groups, weights=used * self._share) - self._gamma1 / self._group_size
        most, most_white = self._largest_weights(vertex.alpha, upper)
        missed = np.maximum(left, 0) @ most + np.abs(excess[k:]).sum() * most_white
        return float(vertex.triples.sum() - missed)

    def _largest_weights(self, alpha: Array, upper: float) -> tuple[Array, float]:
        """Return bounds on max |α_p| / share_p of each group and on white in designs that cost ``upper`` or less.

        No term of the cost is negative, so γ1 s_g <= upper; c_p α_p <= upper if weights are nonnegative; and under
        dominance 0 <= c'α <= upper, which bounds white.  A group or white without a penalty has no bound; ten times
        the current weights are used instead.
        """
        k, cost = self.penalised, self._cost
        present = 10 * max(1.0, float((np.abs(alpha[:k]) / self._share).max()), float(np.abs(alpha[k:]).sum()))
        most = np.full(len(self._group_size), np.inf)
        if self._gamma1 > 0:
            with np.errstate(over="ignore"):  # no bound, if γ1 is next to nothing
                most = upper * self._group_size / self._gamma1
        if not self._signed:
            by_cost = np.zeros(len(most))
            each = np.divide(upper, cost * self._share, out=np.full(k, np.inf), where=cost > 0)
            np.maximum.at(by_cost, self._groups, each)
            most = np.minimum(most, by_cost)
        most = np.where(np.isfinite(most), most, present)
        if self.bases == k or cost[k] <= 0:
            return most, present
        return most, float((upper + np.abs(cost[:k]) @ (self._share * most[self._groups])) / cost[k])

    def _ok(self, status: Any, what: str) -> None:
        if status != self._api.HighsStatus.kOk:
            raise SolverError(f"HiGHS answered {status} when {what}")
