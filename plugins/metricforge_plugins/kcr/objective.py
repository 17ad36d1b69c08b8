"""The smoothed objective of eq. (9), or of eq. (8) with another window, and its gradient in a factor of W."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from metricforge.optimize import smoothed_hinge
from metricforge.rows import Array
from metricforge.rows.threads import in_threads, thread_pool

from . import classwise
from .pairs import Compared, Grouped, PairBlock
from .windows import WINDOWS

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor


COMPILE_FROM = 40_000
"""From this many pairs on, the compiled loops are used: below, a whole fit in NumPy is faster than loading them."""
THREADS_FROM = 250_000
"""From this many pairs on, the loops are split into ranges for threads."""
PRODUCTS_FROM = 100
"""With groups of this many rows on average, matrix products are faster than loops over pairs."""
RANGES = 16
"""The number of ranges: constant, so that sums do not depend on the machine."""
OUTER = 10.0
"""The smoothing width of the outer hinge, whose argument sums many inner ones, as a multiple of theirs."""
EXACT = 1e-12
"""A smoothing width whose effect on a hinge is below rounding."""


@dataclass(frozen=True)
class Smoothing:
    """How the hinges are smoothed.

    Attributes
    ----------
    mu : float
        The inner hinge becomes φ(x) = max over 0 <= b <= 1 of b x + μ b (1 − b) / 2: equal to [x]₊ where |x| >= μ/2,
        larger by at most μ/8 in between.  The outer hinge is smoothed likewise, over 10 μ.
    cap : float
        The slope of the outer hinge, at most 1.  If all multipliers of the solution are below the cap, the solution is
        that of slope 1 (an exact penalty), and the problem is better conditioned by the factor 1 / cap.
    logistic : bool
        Whether the outer function is Ψ(x) = log(1 + e^(x−1)) instead of [x]₊ (Sec. 4 of the paper); it needs no
        smoothing.
    """

    mu: float
    cap: float = 1.0
    logistic: bool = False

    @property
    def width(self) -> float:
        """The width of the outer hinge, 0 for the logistic bound."""
        return 0.0 if self.logistic else OUTER * self.mu

    def inner(self, x: Array) -> tuple[Array, Array]:
        """Return φ(x) and φ'(x)."""
        return smoothed_hinge(x, self.mu)

    def outer(self, x: Array) -> tuple[Array, Array]:
        """Return Ψ(x) and Ψ'(x)."""
        if self.logistic:
            return np.logaddexp(0, x), np.exp(-np.logaddexp(0, -x))
        psi, a = smoothed_hinge(x, self.width)
        return self.cap * psi, self.cap * a


@dataclass(frozen=True)
class Loss:
    """The upper bound on the number of misclassified rows that is minimised.

    Attributes
    ----------
    logistic : bool
        Whether the outer function is log(1 + e^x) instead of [1 + x]₊.
    pooled : bool
        Whether the votes of the other classes are summed; otherwise their maximum is bounded by log Σ exp (footnote 6).
    window : str
        "naive" for eq. (9), else a key of `WINDOWS`, for eq. (8) with h = 1.
    d : int
        The dimension of the embedding, for the Cauchy window.
    """

    logistic: bool = False
    pooled: bool = True
    window: str = "naive"
    d: int = 1

    @property
    def convex(self) -> bool:
        """Whether the objective is convex in W and h."""
        return self.window == "naive"

    @property
    def plain(self) -> bool:
        """Whether the compiled loops compute it."""
        return self.pooled and self.convex


class Multipliers(NamedTuple):
    """The derivatives of a block of rows: a_i = Ψ', b_ij = φ' and C = τ_ij a_i p_ij b_ij, dense or CSR.

    p_ij = 1, except where log Σ exp bounds the maximum over other classes: there it is the weight of the class of j
    (1 for the own class), and ``entropy`` that of the weights of row i.
    """

    rows: slice
    cols: slice
    value: float
    a: Array
    b: Array
    C: Any
    entropy: Array | None = None


class Objective:
    """Σ_i Ψ(2 − n_i⁺ + Σ_j φ(1 + τ_ij (ρ²_ij − h))) + ⟨P, penalty P⟩ over a factor P (m, r) and h >= 0.

    ρ²_ij = ‖P'(f_i − f_j)‖² on the columns f_i of F.  F holds centred features in coordinates of their own (see
    `metricforge_plugins.kcr.coordinates`), in which λ tr W has a matrix, ``penalty`` (m, m).

    With ``loss.pooled`` False, the sum over j of other classes becomes log Σ_l exp Σ_{j in class l}.  With another
    window κ, Ψ(2 − Σ_j τ_ij κ(ρ²_ij)) takes the place of the first term, where j = i accounts for one of the 2.

    Cost of one evaluation: O(m (n + m) r + p r) for p pairs; memory for F, Y (n, r) and its gradient.
    """

    def __init__(
        self, F: Array, pairs: Compared, penalty: Array, *, logistic: bool = False, loss: Loss | None = None
    ) -> None:
        self.F, self.pairs, self.penalty = F, pairs, penalty
        self.loss = Loss(logistic) if loss is None else loss
        self.logistic = self.loss.logistic
        # [2 − n_i⁺ + ...]₊ = [1 + x]₊ with x the argument of the step function in the paper; likewise log(1 + e^x)
        self.offset = (1.0 if self.logistic else 2.0) - (pairs.plus if self.loss.convex else np.zeros(pairs.n))
        self.compiled = self.loss.plain and pairs.count >= COMPILE_FROM

    def __call__(self, P: Array, h: float, smoothing: Smoothing) -> tuple[float, Array, float]:
        """Return the value, the gradient in P and the slope in h."""
        Yt = P.T @ self.F  # (r, n)
        value, slope, Gt = (self._loops if self.compiled else self._sums)(Yt, h, smoothing)
        weighted = self.penalty @ P
        return value + float(np.vdot(P, weighted)), self.F @ Gt.T + 2 * weighted, slope

    def exact(self, P: Array, h: float) -> float:
        """Return the value without smoothing."""
        smoothing = Smoothing(EXACT, logistic=self.logistic)
        data = (self._loops if self.compiled else self._sums)(P.T @ self.F, h, smoothing)[0]
        return data + float(np.vdot(P, self.penalty @ P))

    def without_metric(self) -> tuple[float, float]:
        """Return the best h at W = 0, where every distance is 0, and its objective.

        Where log Σ exp bounds the maximum over classes, the best of a grid; a window other than the naive has h = 1.
        """
        if not self.loss.plain:
            nothing = np.zeros((len(self.F), 1))
            grid = np.linspace(0, 1, 11) if self.loss.convex else np.ones(1)
            found = [self.exact(nothing, h) for h in grid]
            return float(grid[int(np.argmin(found))]), min(found)
        plus, minus = self.pairs.plus, self.pairs.sizes - self.pairs.plus
        kinds, counts = np.unique(np.stack([self.offset, plus, minus]), axis=1, return_counts=True)
        offset, plus, minus = kinds[:, :, None]
        # beyond h = 1 the objective increases; below, the hinge is piecewise linear with kinks where a bracket is 0
        with np.errstate(divide="ignore", invalid="ignore"):
            kinks = ((offset + plus + minus) / (plus - minus)).ravel()
        h = np.unique(np.append(np.linspace(0, 1, 21), kinks[(kinks > 0) & (kinks < 1)]))
        inside = offset + plus * np.maximum(1 - h, 0) + minus * (1 + h)
        values = counts @ Smoothing(EXACT, logistic=self.logistic).outer(inside)[0]
        best = int(values.argmin())
        return float(h[best]), float(values[best])

    def multipliers(self, P: Array, h: float, smoothing: Smoothing) -> Iterator[Multipliers]:
        """Yield the derivatives by blocks of rows."""
        return self._blocks((P.T @ self.F).T, h, smoothing)

    def close(self) -> None:
        """Shut down the threads."""
        if "_threads" in self.__dict__:
            self._threads.shutdown()

    # -- in NumPy ------------------------------------------------------------------------------------------------

    def _blocks(self, Y: Array, h: float, smoothing: Smoothing) -> Iterator[Multipliers]:
        for part in self.pairs.distances(Y):
            v, b = self._terms(part, h, smoothing)
            total = v.sum(axis=1) if part.begin is None else np.add.reduceat(v, part.begin[:-1])
            share = entropy = None
            if not self.loss.pooled:
                total, share, entropy = classwise.largest(self.pairs, part, v)
            psi, a = smoothing.outer(self.offset[part.rows] + total)
            C = _weights(part, a, b if share is None else share * b)
            yield Multipliers(part.rows, part.cols, float(psi.sum()), a, b, C, entropy)

    def _terms(self, part: PairBlock, h: float, smoothing: Smoothing) -> tuple[Array, Array]:
        """Return the terms v_ij of the sum over j, and b_ij with dv_ij/dρ²_ij = τ_ij b_ij."""
        if self.loss.convex:
            x = part.D - h
            x *= part.tau
            x += 1
            return smoothing.inner(x)
        k, b = WINDOWS[self.loss.window](part.D, smoothing.mu, self.loss.d)
        return -part.tau * k, b

    def _sums(self, Yt: Array, h: float, smoothing: Smoothing) -> tuple[float, float, Array]:
        Y = Yt.T
        G = np.zeros_like(Y)
        value = slope = 0.0
        for part in self._blocks(Y, h, smoothing):
            C, rows, cols = part.C, part.rows, part.cols
            out, back = C.sum(axis=1), C.sum(axis=0)
            value += part.value
            slope -= float(out.sum())
            G[rows] += 2 * (out[:, None] * Y[rows] - C @ Y[cols])
            G[cols] += 2 * (back[:, None] * Y[cols] - C.T @ Y[rows])
        return value, slope if self.loss.convex else 0.0, G.T

    # -- compiled ------------------------------------------------------------------------------------------------

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return thread_pool(RANGES)

    def _loops(self, Yt: Array, h: float, smoothing: Smoothing) -> tuple[float, float, Array]:
        from . import loops

        pairs, offset = self.pairs, self.offset
        how = (float(h), smoothing.mu, smoothing.width, smoothing.cap)
        if not isinstance(pairs, Grouped):
            Y = np.ascontiguousarray(Yt.T)
            G = np.zeros_like(Y)
            value, slope = loops.listed(Y, pairs.begin, pairs.split, pairs.partner, offset, *how, 0, pairs.n, G)
            return value, slope, G.T
        if pairs.count >= PRODUCTS_FROM * pairs.n:
            return self._products(Yt.T, how)
        Yt = np.ascontiguousarray(Yt)
        if pairs.count < THREADS_FROM:
            Gt = np.zeros_like(Yt)
            value, slope = loops.grouped(Yt, pairs.group, pairs.same, offset, *how, 0, pairs.n, Gt)
            return value, slope, Gt
        ranges = self._ranges
        alone = len(pairs.starts) > 2  # ranges of whole groups write to disjoint rows
        Gts = [np.zeros_like(Yt)] * len(ranges) if alone else [np.zeros_like(Yt) for _ in ranges]

        def run(job: tuple[tuple[int, int], Array]) -> tuple[float, float]:
            (i0, i1), Gt = job
            found: tuple[float, float] = loops.grouped(Yt, pairs.group, pairs.same, offset, *how, i0, i1, Gt)
            return found

        done = list(in_threads(run, zip(ranges, Gts, strict=True), self._threads))
        Gt = Gts[0] if alone else np.add.reduce(Gts)
        return sum(v for v, _ in done), sum(s for _, s in done), Gt

    def _products(self, Y: Array, how: tuple[float, float, float, float]) -> tuple[float, float, Array]:
        """Sum over the pairs of large groups: distances and gradient by matrix products, the rest compiled."""
        from . import loops

        assert isinstance(self.pairs, Grouped)
        square = np.einsum("ij,ij->i", Y, Y)
        G = np.zeros_like(Y)
        value = slope = 0.0
        for rows, cols in self.pairs.tiles():
            C, out, back = Y[rows] @ Y[cols].T, np.empty(rows.stop - rows.start), np.zeros(cols.stop - cols.start)
            same = self.pairs.same[rows] - cols.start
            psi, pull = loops.weighted(C, square[rows], square[cols], same, self.offset[rows], *how, out, back)
            value, slope = value + psi, slope + pull
            G[rows] += 2 * (out[:, None] * Y[rows] - C @ Y[cols])
            G[cols] += 2 * (back[:, None] * Y[cols] - C.T @ Y[rows])
        return value, slope, G.T

    @cached_property
    def _ranges(self) -> list[tuple[int, int]]:
        assert isinstance(self.pairs, Grouped)
        return self.pairs.ranges(RANGES)


def _weights(part: PairBlock, a: Array, b: Array) -> Any:
    if part.begin is None:
        return part.tau * b * a[:, None]
    from scipy.sparse import csr_array

    data = part.tau * b * np.repeat(a, np.diff(part.begin))
    entries: Any = (data, part.partner, part.begin)
    return csr_array(entries, shape=(len(a), part.cols.stop))
