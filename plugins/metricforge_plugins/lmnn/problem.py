"""The problem of LMNN in coordinates: targets, impostors, objective, lower bound."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from metricforge.errors import InputError
from metricforge.neighbors import other_classes_within, search
from metricforge.rows import Array, beat, blocks

NULL = 1e-10
"""Directions with less than this share of the largest variance are dropped."""
RIDGE = 1e-6
"""What ``ridge="least"`` adds to a singular C, relative to its mean eigenvalue."""
SPREAD, LEAST_RIDGE = 4.0, 0.01
"""``ridge="auto"`` adds (SPREAD · directions / rows)², at most 1, and as "least" does below LEAST_RIDGE: what C says
about many directions of few rows is noise.  Test errors on 16 data sets chose these."""
SPARE = 0.25
"""Impostors are listed before they violate the margin by this much, so that fewer passes are needed."""
MOST = 12_000_000
"""The largest number of pairs of a row and an impostor that are listed: 48 MB, and four times that while they are."""
WORK = 5e8
"""The same times the directions: what a step computes for these pairs takes up to half a second."""
COLLAPSED = 1e-3
"""Share of the unit of a direction (over its standard deviation) below which L counts as 0."""
STALE = 2.0
"""Pairs that no longer violate the margin are dropped where the list is this many times as long as without them."""
SAMPLED = 2_000_000
"""Distances from which the scale of the start, and the number of impostors, are estimated."""
ARRAYS = 3
"""Arrays of the size of a block of differences that exist at the same time."""


def target_neighbours(F: Array, codes: Array, k: int) -> tuple[Array, Array]:
    """Return (p,) arrays i, j: the k nearest rows j of the class of row i; all of them in smaller classes."""
    first, second = [], []
    for c in range(int(codes.max()) + 1):
        rows = np.flatnonzero(codes == c)
        few = min(k, len(rows) - 1)
        if few > 0:
            near = search(F[rows], few, method="exact")[0]
            first.append(np.repeat(rows, few))
            second.append(rows[near].ravel())
    if not first:
        raise InputError("y: every class has one labelled row, so no row has a target neighbour; label more rows")
    i, j = np.concatenate(first), np.concatenate(second)
    order = np.argsort(i, kind="stable")
    return i[order], j[order]


@dataclass(frozen=True, eq=False)
class Coordinates:
    """x̃ = R⁻¹P'φ with P an orthonormal basis of the span of Φ and RR' = P'CP (+ ridge), so that ⟨C, M⟩ = tr M̃.

    Attributes
    ----------
    root : (m', m') array
        R, lower triangular: the factor of the start metric in these coordinates.
    back : (m', m) array
        R⁻¹P', which turns a factor L̃ into L = L̃R⁻¹P'.
    ridge : float
        What was added to the diagonal of P'CP.
    """

    root: Array
    back: Array
    ridge: float


def coordinates(Phi: Array, i: Array, j: Array, ridge: float | str, among: int | None = None) -> Coordinates:
    """Whiten the differences of targets.  Cost: O((n + p) m² + m³) time, 8 m² bytes and a chunk of rows.

    ``among`` is the number of features of which Phi are components.  These were chosen by the labels, so noise has as
    many directions as before to fit the labels with, and ridge="auto" counts them all.
    """
    from scipy.linalg import cholesky, solve_triangular

    mean = Phi.mean(axis=0)
    w, V = np.linalg.eigh(Phi.T @ Phi / len(Phi) - np.outer(mean, mean))
    if not w[-1] > 1e-12 * float(mean @ mean):
        raise InputError("X: no two labelled rows differ under the kernel; check the columns of X")
    P = V[:, w > NULL * w[-1]]
    C = np.zeros((P.shape[1],) * 2)
    for part in blocks(len(i), ARRAYS * 8 * Phi.shape[1]):
        D = (Phi[i[part]] - Phi[j[part]]) @ P
        C += D.T @ D
    e = np.linalg.eigvalsh(C)
    level = float(e.mean()) or float(w.mean())
    if isinstance(ridge, str):
        noise = min(1.0, (SPREAD * (among or len(C)) / len(Phi)) ** 2) if ridge == "auto" else 0.0
        least = 0.0 if e[0] > NULL * max(e[-1], level) else RIDGE
        ridge = noise if noise >= LEAST_RIDGE else least
    added = float(ridge) * level
    try:
        root = cholesky(C + added * np.eye(len(C)), lower=True)
    except np.linalg.LinAlgError:
        raise InputError(
            "ridge=0: target neighbours do not differ in some direction in which other rows do, so the metric is "
            'unbounded there; write ridge="auto" or a positive number'
        ) from None
    return Coordinates(root, solve_triangular(root, P.T, lower=True), added)


@dataclass(eq=False)
class Margins:
    """The objective (1 − μ)‖L‖² + μ Σ_ijl [1 + d_ij − d_il]₊ over rows F (n, m) in `Coordinates`.

    Attributes
    ----------
    listed : CSR array, (n, n)
        The impostors l of each row i that are compared; `scan` extends it.
    """

    F: Array
    codes: Array
    i: Array
    j: Array
    mu: float
    listed: Any = field(init=False)
    starts: Array = field(init=False)

    def __post_init__(self) -> None:
        from scipy.sparse import csr_array

        n = len(self.F)
        self.listed = csr_array((n, n), dtype=np.int8)
        self.starts = np.concatenate([[0], np.cumsum(np.bincount(self.i, minlength=n))])

    @property
    def most(self) -> int:
        """The largest number of listed pairs: those that violate the margin most are listed."""
        return int(min(MOST, WORK / self.F.shape[1]))

    # -- the problem over the listed impostors --------------------------------------------------------------------

    def value(self, L: Array, width: float) -> tuple[float, Array]:
        """Return the smoothed objective over the listed impostors, and its gradient in L (r, m)."""
        Z = self.F @ L.T
        G = np.zeros_like(Z)
        loss = self._hinges(Z, Z, width, G)[0]
        value = (1 - self.mu) * float(np.vdot(L, L)) + self.mu * loss
        return value, 2 * (1 - self.mu) * L + 2 * self.mu * (G.T @ self.F)

    def lower_bound(self, L: Array, width: float) -> tuple[float, Array]:
        """Return the value of a feasible point of the dual, and the direction in which the matrix below is smallest.

        The dual is max Σα with 0 <= α <= μ and (1 − μ)I + Σ α_t (A_ij − A_il) ⪰ 0.  α = μφ'(u) of the smoothed hinges,
        scaled down until the matrix is positive semidefinite.  Impostors that are not listed have α = 0, so it bounds
        the whole problem.
        """
        G = np.zeros_like(self.F)
        mass = self._hinges(self.F @ L.T, self.F, width, G)[1]
        w, V = np.linalg.eigh(self.mu * (self.F.T @ G))
        return self.mu * mass * min(1.0, (1 - self.mu) / max(-float(w[0]), 1e-300)), V[:, 0]

    def widened(self, L: Array, direction: Array, width: float) -> Array:
        """Return L with a share of a direction that it may have lost, where that lowers the smoothed objective.

        The gradient in L vanishes in directions that L does not use, even where a metric should.
        """
        row = np.outer(np.linalg.svd(L)[0][:, -1], direction)
        size, unit = np.linalg.norm(L) / np.sqrt(len(L)), 1 / max(float(np.std(self.F @ direction)), 1e-100)
        if size < COLLAPSED * unit:  # steps relative to an L that is almost 0 would leave it there
            size = unit
        trials = [L, *(L + size * 2.0**power * row for power in range(-6, 3))]
        values = []
        for trial in trials:
            values.append(self.value(trial, width)[0])
            beat(len(values), len(trials))
        best: Array = trials[int(np.argmin(values))]
        return best

    def _hinges(self, Z: Array, V: Array, width: float, G: Array) -> tuple[float, float]:
        from .loops import hinges

        found: tuple[float, float] = hinges(
            Z, V, self.starts, self.j, self.listed.indptr, self.listed.indices, width, G
        )
        return found

    # -- the whole problem ----------------------------------------------------------------------------------------

    def scan(self, L: Array) -> tuple[float, int]:
        """Return the exact objective, and the number of violated pairs (i, l) that were not listed; list them."""
        from scipy.sparse import coo_array

        n = len(self.F)
        Z = np.ascontiguousarray(self.F @ L.T)
        near = self._target_distances(Z)  # (n, k), -inf where a row has fewer targets
        furthest = 1 + near.max(axis=1)
        least = self._least(Z, furthest)
        loss, first, second = 0.0, [], []
        for i, j, squared in other_classes_within(Z, self.codes, furthest + SPARE):
            for t in range(near.shape[1]):
                loss += float(np.maximum(1 + near[i, t] - squared, 0).sum())
            keep = furthest[i] - squared > least
            first.append(i[keep].astype(np.int32))
            second.append(j[keep].astype(np.int32))
        found = np.concatenate(first or [np.empty(0, np.int32)]), np.concatenate(second or [np.empty(0, np.int32)])
        del first, second
        new = coo_array((np.ones(len(found[0]), dtype=np.int8), found), shape=(n, n)).tocsr()
        before = self.listed.nnz
        both = self.listed + new if before else new
        added = both.nnz - before
        if both.nnz > self.most or 0 < STALE * new.nnz < both.nnz:
            both = new
        both.data[:] = 1  # a sum of int8 would overflow after many passes
        self.listed = both
        return (1 - self.mu) * float(np.vdot(L, L)) + self.mu * loss, max(added, 0)

    def _target_distances(self, Z: Array) -> Array:
        counts = np.diff(self.starts)
        D = np.full((len(Z), int(counts.max())), -np.inf)
        place = np.arange(len(self.i)) - self.starts[self.i]
        for chunk in blocks(len(self.i), ARRAYS * 8 * Z.shape[1]):
            i, j = self.i[chunk], self.j[chunk]
            D[i, place[chunk]] = np.square(Z[i] - Z[j]).sum(axis=1)
        return D

    def _sample(self, Z: Array, most: int = 500) -> tuple[Array, Array]:
        """Return some rows with targets, and their distances to all rows, infinite to those of their class."""
        n = len(Z)
        rows = np.flatnonzero(np.diff(self.starts))
        rows = rows[np.linspace(0, len(rows) - 1, max(1, min(len(rows), SAMPLED // n, most))).astype(int)]
        D = np.square(Z).sum(axis=1) - 2 * Z[rows] @ Z.T + np.square(Z[rows]).sum(axis=1)[:, None]
        D[self.codes[rows][:, None] == self.codes] = np.inf
        return rows, D

    def _least(self, Z: Array, furthest: Array) -> float:
        """Return the violation from which a pair is listed: −SPARE, or more where there would be too many pairs."""
        rows, D = self._sample(Z)
        allowed = int(self.most * len(rows) / len(Z))
        violation = (furthest[rows][:, None] - D).ravel()
        if np.count_nonzero(violation > -SPARE) <= allowed:
            return -SPARE
        return float(np.partition(violation, len(violation) - 1 - allowed)[len(violation) - 1 - allowed])

    def scale(self, L: Array) -> float:
        """Return the power of 2 by which L is multiplied for the smallest objective on a sample of rows."""
        Z = self.F @ L.T
        rows, D = self._sample(Z, 60)
        near = self._target_distances(Z)[rows]
        pull = float(np.where(np.isfinite(near), near, 0).sum())
        powers = 4.0 ** np.arange(-7, 8)
        best = np.inf, 1.0
        for c in powers:
            push = 0.0
            for t in range(near.shape[1]):
                known = np.isfinite(near[:, t])
                push += float(np.maximum(1 + c * (near[known, t][:, None] - D[known]), 0).sum())
            best = min(best, ((1 - self.mu) * c * pull + self.mu * push, float(c)))
        return float(np.sqrt(best[1]))
