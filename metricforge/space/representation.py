"""How a kernel is represented on n rows: by explicit features, by all rows, or by landmarks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from .. import rows as _rows
from ..checks import whole_number_or
from ..kernels import Kernel
from ..rows import as_float64, check_memory, memory_budget
from .landmarks import choose_landmarks, landmark_map
from .maps import FeatureMap, explicit_map, explicit_width

EXACT_ROWS = 3000
"""Up to here ``rank="auto"`` keeps all rows: factor and W stay below 100 MB and their n³ work below a few seconds."""
AUTO_RANK = 500
"""Landmarks of ``rank="auto"`` on more rows."""
EXPLICIT_COLUMNS = 1000
"""The widest explicit features that ``rank="auto"`` uses."""


@dataclass(frozen=True, eq=False)
class Space:
    """A kernel represented on the rows of X; features are computed when ``map`` is first used.

    Attributes
    ----------
    representation : {"explicit", "exact", "landmarks"}
    rank : int
        The number of features requested; ``map.columns`` is their number (smaller with duplicate rows).
    """

    kernel: Kernel
    rows: Any
    representation: str
    rank: int
    seed: int = 0

    @property
    def n(self) -> int:
        """The number of rows."""
        return _rows.count(self.rows)

    @cached_property
    def map(self) -> FeatureMap:
        """The feature map φ."""
        if self.representation == "explicit":
            return explicit_map(self.kernel, self.rank)
        if self.representation == "exact":
            return landmark_map(self.kernel, _rows.take(self.rows, np.arange(self.n)))
        chosen = choose_landmarks(self.kernel, self.rows, self.rank, seed=self.seed)
        return landmark_map(self.kernel, _rows.take(self.rows, chosen))

    @cached_property
    def features(self) -> Any:
        """The (n, m) features of all rows: an array, or a lazy dask array."""
        if not _rows.is_dask(self.rows):
            size = _rows.float_dtype(self.rows).itemsize
            check_memory(self.n * self.map.columns * size, f"{self.n} × {self.map.columns} features", "lower the rank")
        return self.map(self.rows)

    def left_out(self) -> float:
        """Return the share of k(x, x) that the features leave out, on a sample of rows (0 where exact)."""
        if self.map.exact:
            return 0.0
        rows = as_float64(_rows.take(self.rows, _rows.draw(self.n, 1000, self.seed)))
        total = self.kernel.diag(rows)
        kept = np.square(self.map.block(rows)).sum(axis=1)
        return float(np.maximum(total - kept, 0).sum() / total.sum())


def represent(kernel: Kernel, X: Any, rank: str | int = "auto", *, seed: int = 0) -> Space:
    """Choose how ``kernel`` is represented on the checked rows ``X``.

    Parameters
    ----------
    rank : "auto", "exact" or int
        "exact" keeps all rows (n² memory: refused when it does not fit the budget); an integer is a number of
        landmarks.  "auto" takes explicit features where the kernel has at most 1000 and no more than rows, else all
        rows up to 3000 of them, else 500 landmarks.
    """
    n = _rows.count(X)
    # Gram matrix, its factor and the workspace of the factorisation
    exact_bytes = 3 * 8 * n * n
    if rank == "exact":
        check_memory(exact_bytes, f'rank="exact" on {n} rows', 'use rank="auto" or a number of landmarks')
        return Space(kernel, X, "exact", n, seed)
    if rank == "auto":
        d = explicit_width(kernel, X)
        if d is not None and d <= min(n, EXPLICIT_COLUMNS):
            return Space(kernel, X, "explicit", d, seed)
        if n <= EXACT_ROWS and exact_bytes <= memory_budget():
            return Space(kernel, X, "exact", n, seed)
        return Space(kernel, X, "landmarks", min(n, AUTO_RANK), seed)
    m: int = whole_number_or(rank, "rank", ["auto", "exact"])
    if m >= n:
        check_memory(exact_bytes, f"rank={rank} on {n} rows", "lower the rank")
        return Space(kernel, X, "exact", n, seed)
    return Space(kernel, X, "landmarks", m, seed)
