"""S = Φ'HΦ accumulated over rows: in memory by blocks, on dask by chunks; the n × m features are never stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from metricforge import rows as _rows
from metricforge.rows import Array
from metricforge.space import FeatureMap

from .chunklets import Groups

FEW = 16
"""Rows that are added to S in one step, without the parts from which larger sums are joined."""
OPEN_BYTES = 64 * 2**20
"""Up to this size, means of groups that span several dask chunks are kept; beyond, rows are sorted by group first."""


@dataclass(frozen=True, eq=False)
class PartialScatter:
    """The contribution of some rows to S.

    A group may have rows in other parts.  For its parts p with their own scatter S_p, size w_p and mean φ̄_p,
    Σ_i (φ_i − φ̄)(φ_i − φ̄)' = Σ_p S_p + Σ_p w_p (φ̄_p − φ̄)(φ̄_p − φ̄)', so these three suffice.

    Attributes
    ----------
    scatter : (m, m) array
        Inside the parts of the groups.
    codes, weights : (k,) arrays
        The groups that may have rows in other parts, and the numbers of their rows in this part.
    means : (k, m) array
    """

    scatter: Array
    codes: Array
    weights: Array
    means: Array

    def total(self) -> Array:
        """Return S, when all parts have been joined."""
        order = np.argsort(self.codes, kind="stable")
        between = _inside(self.means[order], self.codes[order], self.weights[order])[0]
        return self.scatter + between


def scatter(map: FeatureMap, X: Any, groups: Groups, step: Callable[..., None] | None = None) -> Array:
    """Return S = Φ'HΦ = Σ_c Σ_i (φ_ci − φ̄_c)(φ_ci − φ̄_c)', n times C of eq. (4), on checked rows X.

    Cost: O(n m (l + m)) time for l landmarks, and O(m²) memory besides one block of rows.  On dask every chunk is one
    task and m × m sums are transferred; rows are transferred only if many groups span several chunks.
    """
    small = np.min_scalar_type(-len(groups.sizes))  # codes are sent to the workers
    numbers = np.repeat(np.arange(len(groups.sizes), dtype=small), groups.sizes)
    if groups.n <= FEW and not _rows.is_dask(X):  # a stream of small updates: one block, no group continues elsewhere
        return _inside(map.block(X[groups.order]), numbers)[0]
    codes = np.full(_rows.count(X), -1, dtype=small)
    codes[groups.order] = numbers
    del numbers
    elsewhere = np.empty(0, dtype=int)
    if _rows.is_dask(X):
        step = None  # a worker cannot report progress
        elsewhere, parts = _split(codes, X.chunks[0])
        if 8 * map.columns * parts > OPEN_BYTES:
            X, codes = X[groups.order], codes[groups.order]
            elsewhere, _ = _split(codes, X.chunks[0])
    result: PartialScatter = _rows.fold(partial(_added, map, elsewhere, step), _join, X, codes)
    return result.total()


def _added(map: FeatureMap, elsewhere: Array, step: Callable[..., None] | None, X: Any, codes: Array) -> PartialScatter:
    """Return the contribution of these rows; ``elsewhere`` lists the groups that have rows in other chunks."""
    order = np.argsort(codes, kind="stable")
    order = order[np.count_nonzero(codes < 0) :]
    S = np.zeros((map.columns, map.columns))
    loose: list[tuple[Array, Array, Array]] = []
    # features, their centred copy, and the kernel block
    row_bytes = 32 * max(map.columns, _rows.width(X) or 1)
    parts = list(_rows.blocks(len(order), row_bytes))
    for k, part in enumerate(parts, 1):
        rows = order[part]
        added, found, weights, means = _inside(map.block(X[rows]), codes[rows])
        S += added
        keep = np.isin(found, elsewhere)
        keep[[0, -1]] = True  # the first and the last group may continue in another block
        loose.append((found[keep], weights[keep], means[keep]))
        if step is not None:
            step(k, len(parts))
    return PartialScatter(S, *_concatenated(loose, map.columns))


def _inside(F: Array, codes: Array, weights: Array | None = None) -> tuple[Array, Array, Array, Array]:
    """Return Σ w (f − f̄_c)(f − f̄_c)' over rows sorted by code, and the codes, their weights and their means f̄_c.

    F is overwritten.
    """
    if not len(F):
        return np.zeros((F.shape[1], F.shape[1])), codes, np.empty(0), F
    starts = np.flatnonzero(np.concatenate([[True], codes[1:] != codes[:-1]]))
    sizes = np.diff(np.append(starts, len(codes)))
    w = np.ones(len(F)) if weights is None else weights
    totals = np.add.reduceat(w, starts)
    # subtract the first row of each group before the mean: a mean far from 0 then costs no digits
    first = F[starts].copy()
    F -= np.repeat(first, sizes, axis=0)
    shift = np.add.reduceat(F if weights is None else F * w[:, None], starts, axis=0) / totals[:, None]
    F -= np.repeat(shift, sizes, axis=0)
    if weights is not None:
        F *= np.sqrt(w)[:, None]
    return F.T @ F, codes[starts], totals, first + shift


def _concatenated(parts: list[tuple[Array, Array, Array]], m: int) -> tuple[Array, Array, Array]:
    if not parts:
        return np.empty(0, dtype=int), np.empty(0), np.empty((0, m))
    codes, weights, means = (np.concatenate(column) for column in zip(*parts, strict=True))
    return codes, weights, means


def _split(codes: Array, chunks: tuple[int, ...]) -> tuple[Array, int]:
    """Return the groups with rows in more than one chunk, and the total number of their parts."""
    times = np.zeros(int(codes.max(initial=0)) + 1, dtype=np.int32)  # in how many chunks a group has rows
    for end, size in zip(np.cumsum(chunks), chunks, strict=True):
        found = np.unique(codes[end - size : end])
        times[found[found >= 0]] += 1
    return np.flatnonzero(times > 1), int(times[times > 1].sum())


def _join(parts: list[PartialScatter]) -> PartialScatter:
    loose = [(p.codes, p.weights, p.means) for p in parts]
    total = np.sum([p.scatter for p in parts], axis=0)
    return PartialScatter(total, *_concatenated(loose, total.shape[1]))
