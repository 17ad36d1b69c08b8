"""Column generation on the dual of the design problem: triples and dominance cuts are added when they are violated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from metricforge.rows import Array
from metricforge.solver import Status

from .cones.dominance import SCOUT_COLUMNS, Dominance
from .highs import FEASIBILITY, LimitReachedError, Master, UnsolvedError

BATCH = 500
"""Minimal number of triples added at a time; a tenth of all where these are more."""
WATCHED = 256
"""Number of rows whose dominance is enforced first if a pass over all rows is expensive."""
ROWS = 128
"""Number of rows whose cuts are added at a time."""
ROUNDING = 1e-12
"""A gap below this share of the cost of α = 0 is rounding error, where the optimum is next to 0."""
SCOUTS = 5
"""Maximal number of estimates of all slacks before a full pass."""
MARGIN = 10 * FEASIBILITY
"""The slack that every row must have, relative to its largest coefficient, if no lift can repair it afterwards."""


@dataclass(frozen=True, eq=False)
class BestDesign:
    """The best design found, in the scale of the paper.

    Attributes
    ----------
    alpha : (b,) array
        Weights of the normalised bases, white last; it satisfies the conditions.
    upper, lower : float
        Its cost, and a lower bound on the cost of every design.
    status : Status
    n_iter : int
        The number of linear programs solved.
    trace : tuple of (upper, upper − lower)
        After each of them.
    cuts, passes, entered : int
        The numbers of dominance cuts added, of passes over all rows, and of triples added.
    strict : bool
        Whether the condition holds in float64.  Otherwise no lift exists, and it holds to the tolerance of the linear
        program, 1e-9 of its largest coefficient.
    """

    alpha: Array
    upper: float
    lower: float
    status: Status
    n_iter: int
    trace: tuple[tuple[float, float], ...]
    cuts: int
    passes: int
    entered: int
    strict: bool


class ColumnGeneration:
    """The design problem over given margins and a dominance condition, for any penalties.

        minimise Σ_t n_t max(0, 1 − d_t'α) + γ1 Σ_g max_{p in g} |α_p| / size_p + c'α

    over α >= 0 without a condition, else over the α that satisfy it.  The program keeps its columns and its basis from
    one call of `solve` to the next.

    Parameters
    ----------
    margins : (T, k) array
        K_p,ij − K_p,ik of each triple and each base, divided by its size.
    times : (T,) array
        The multiplicity of each triple.
    groups, sizes : (k,) arrays
    condition : Dominance or None
    diagonal : (b,) array
        Σ_i K_p,ii of the normalised bases, and n for white where there is one.
    seed : int
    """

    def __init__(
        self,
        margins: Array,
        times: Array,
        groups: Array,
        sizes: Array,
        condition: Dominance | None,
        diagonal: Array,
        *,
        seed: int,
    ) -> None:
        T, k = margins.shape
        self.margins, self.times, self.groups, self.sizes = margins, times, groups, sizes
        self.condition, self.batch = condition, max(BATCH, T // 10)
        self.waiting, self.passes, self.scouts = np.ones(T, dtype=bool), 0, 0
        self.gamma1, self.cost = 0.0, np.zeros(len(diagonal))
        self.best, self.upper, self.strict = self.cost, float(times.sum()), True
        self.master = Master(groups, sizes, signed=condition is not None, white=len(diagonal) > k)
        rng = np.random.default_rng(seed)
        self._enter(np.sort(rng.choice(T, size=min(T, self.batch), replace=False)))
        self.watched: Array | None = None
        if condition is not None:
            # dominance implies Σ K_ii >= 0, which already bounds the program; bases without a diagonal cost 0
            if diagonal.any():
                self.master.add_cuts(diagonal[None])
            if condition.lift is None:
                self.master.require(MARGIN)
            if not condition.cheap and condition.n > WATCHED:
                self.watched = np.sort(rng.choice(condition.n, size=WATCHED, replace=False))

    def solve(self, gamma1: float, cost: Array, *, tol: float, max_iter: int, step: Callable[..., None]) -> BestDesign:
        """Minimise to a gap of ``tol`` times the cost, with at most ``max_iter`` linear programs."""
        self.gamma1, self.cost = gamma1, cost
        self.master.penalise(gamma1, cost)
        self.best, self.upper = np.zeros(self.master.bases), float(self.times.sum())  # α = 0 is always feasible
        self.strict = True
        lower = 0.0
        trace: list[tuple[float, float]] = []
        status = Status.ITERATION_LIMIT
        for iteration in range(1, max_iter + 1):
            try:
                vertex = self.master.solve(lambda: step(len(trace), None))
            except LimitReachedError:
                status = Status.TIME_LIMIT
                break
            except UnsolvedError:  # coefficients beyond the precision of the solver
                status = Status.STALLED
                break
            if vertex is None:  # no α is strictly dominant: require dominance only
                self.master.require(0.0)
                grown = True
            else:
                lower = max(lower, self.master.lower_bound(vertex, self.upper))
                grown = self._improve(vertex.alpha, lower, tol, last=iteration == max_iter)
                lower = min(lower, self.upper)
            gap = self.upper - lower
            trace.append((self.upper, gap))
            step(iteration, None, gap=gap / self.times.sum())
            if gap <= max(tol * self.upper, ROUNDING * self.times.sum()):
                status = Status.OPTIMAL
                break
            if not grown:
                status = Status.STALLED
                break
        return BestDesign(
            self.best,
            self.upper,
            lower,
            status,
            n_iter=len(trace),
            trace=tuple(trace),
            cuts=len(self.master.cuts),
            passes=self.passes,
            entered=len(self.master.triples),
            strict=self.strict,
        )

    def _improve(self, alpha: Array, lower: float, tol: float, *, last: bool) -> bool:
        """Update the best design with α, and add the triples and cuts it violates; return whether there were any."""
        alpha = np.where(np.abs(alpha) > 1e-11 * np.abs(alpha).max(), alpha, 0.0)
        if self.condition is None:
            alpha = np.maximum(alpha, 0.0)
            self._offer(alpha)
            return self._price(alpha)
        later = self._price(alpha)
        return self._separate(self.condition, alpha, lower, tol, later=later, last=last) or later

    def value(self, alpha: Array) -> float:
        """Return the cost of the design α."""
        k = len(self.sizes)
        loss = self.times @ np.maximum(0.0, 1.0 - self.margins @ alpha[:k])
        largest = np.zeros(int(self.groups.max()) + 1)
        np.maximum.at(largest, self.groups, np.abs(alpha[:k]) / self.sizes)
        return float(loss + self.gamma1 * largest.sum() + self.cost @ alpha)

    def _offer(self, alpha: Array, *, strict: bool = True) -> None:
        """Keep a feasible α if it is the best so far."""
        value = self.value(alpha)
        if value < self.upper:
            self.best, self.upper, self.strict = alpha, value, strict

    def _price(self, alpha: Array) -> bool:
        """Add the most violated triples; return whether there were any."""
        short = 1.0 - self.margins @ alpha[: len(self.sizes)]
        late = np.flatnonzero(self.waiting & (short > 10 * FEASIBILITY))
        if len(late) > self.batch:
            late = np.sort(late[np.argpartition(-short[late], self.batch)[: self.batch]])
        self._enter(late)
        return len(late) > 0

    def _enter(self, triples: Array) -> None:
        if len(triples):
            self.master.add_triples(self.margins[triples], self.times[triples])
            self.waiting[triples] = False

    def _separate(
        self, condition: Dominance, alpha: Array, lower: float, tol: float, *, later: bool, last: bool
    ) -> bool:
        """Add cuts for the rows that violate dominance most; return whether there were any.

        If a pass over all rows is expensive, watched rows are checked first.  When they close the gap, or when no other
        column was added (``later``: triples were added), estimates of all slacks select further rows to watch.  A full
        pass follows when the estimates select no violated row, or when this is the last chance to find a feasible α.
        """
        if self.watched is not None and not last:
            grown, settled = self._cut_watched(condition, alpha, self.watched, lower, tol)
            if grown or (later and not settled):
                return grown
            if self.scouts < SCOUTS and condition.n > 4 * SCOUT_COLUMNS:
                self.scouts += 1
                seen = condition.scout(alpha, self.passes * SCOUTS + self.scouts)
                seen[self.watched] = np.inf
                found = np.argsort(seen, kind="stable")[:ROWS]
                self.watched = np.union1d(self.watched, found)
                if self._cut_watched(condition, alpha, np.sort(found), lower, tol)[0]:
                    return True
            self.scouts = 0
        slack, error = condition.slack(alpha)
        self.passes += 1
        grown, worst, exact = self._cut(condition, alpha, np.arange(condition.n), slack, error)
        slack = slack - error
        slack[worst] = exact - condition.rounding(alpha)
        repaired = self._lifted(condition, alpha, float(slack.min()))
        if repaired is not None:
            self._offer(repaired)
        elif not grown:
            self._offer(alpha, strict=False)
        if self.watched is not None:
            self.watched = np.union1d(self.watched, worst)
        return grown

    def _cut_watched(
        self, condition: Dominance, alpha: Array, rows: Array, lower: float, tol: float
    ) -> tuple[bool, bool]:
        """Add cuts for violated rows; return (violated, gap_closed).  No cuts are added if the gap is closed."""
        slack, error = condition.slack(alpha, rows)
        repaired = self._lifted(condition, alpha, float(slack.min()))
        guess = self.upper if repaired is None else self.value(repaired)
        if guess - lower <= tol * guess:
            return False, True
        return self._cut(condition, alpha, rows, slack, error)[0], False

    def _lifted(self, condition: Dominance, alpha: Array, least: float) -> Array | None:
        """Return α lifted until its smallest slack, ``least``, is 0; None without a lift."""
        if least >= 0:
            return alpha
        return None if condition.lift is None else alpha - least * condition.lift

    def _cut(
        self, condition: Dominance, alpha: Array, rows: Array, slack: Array, error: float
    ) -> tuple[bool, Array, Array]:
        """Add cuts of the worst of some rows; return whether any was violated, these rows, and their exact slacks.

        A row whose slack is within the error of 0 may be violated or not.  With a lift only the worst of them matter;
        without one they are checked until one is violated.
        """
        order = np.argsort(slack, kind="stable")
        doubtful = rows[order[slack[order] <= error + self.master.margin * condition.n]]
        allowed = self.master.margin / 2 if self.master.margin > 0 else -2 * FEASIBILITY
        last = len(doubtful) if condition.lift is None else min(ROWS, len(doubtful))
        seen = np.empty(0)
        for start in range(0, last, ROWS):
            some = doubtful[start : start + ROWS]
            some.sort()  # in place: rows are gathered in order
            exact, cuts = condition.cuts(alpha, some)
            seen = np.concatenate([seen, exact])
            broken = exact < allowed * np.abs(cuts).max(axis=1)
            if broken.any():
                self.master.add_cuts(cuts[broken])
                return True, doubtful[: len(seen)], seen
        return False, doubtful[: len(seen)], seen
