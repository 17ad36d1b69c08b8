"""How a kernel is represented on n rows: by explicit features or components of them, by all rows, or by landmarks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from .. import rows as _rows
from ..kernels import Kernel
from ..rows import Array, as_float64, check_memory
from ..validation import whole_number_or
from .costs import (
    AUTO_RANK,
    BUDGET,
    EXCEEDED,
    LEAST_RANK,
    LITTLE_MORE,
    Cost,
    Size,
    affordable,
    space_bytes,
    space_seconds,
)
from .directions import Contrast, contrasting_directions
from .landmarks import choose_landmarks, landmark_map
from .maps import FeatureMap, explicit_map, explicit_width

EXACT_ROWS = 3000
"""Up to here ``rank="auto"`` may keep all rows: factor and W stay below 100 MB."""
EXPLICIT_COLUMNS = 1000
"""The widest explicit features that ``rank="auto"`` uses as they are."""
WIDEST = 10_000
"""The widest explicit features that it takes components of."""


@dataclass(frozen=True, eq=False)
class Space:
    """A kernel represented on the rows of X; features are computed when ``map`` is first used.

    Attributes
    ----------
    representation : {"explicit", "components", "exact", "landmarks"}
        "components" are explicit features in fewer directions, which are chosen from the rows and the hints.
    rank : int
        The number of features requested; ``map.columns`` is their number (smaller with duplicate rows).
    automatic : bool
        Whether the rank was left to the library (``rank="auto"``).  A solver may then solve its problem on a part of
        the features, if it reports so; otherwise it must use them all.
    forecast : float or None
        The forecast of the fit in CPU seconds, where the rank was chosen by it.
    width : int or None
        The number of explicit features that components are made of; None for other representations.
    contrast : Contrast or None
        The hints that these components are chosen by.
    """

    kernel: Kernel
    rows: Any
    representation: str
    rank: int
    seed: int = 0
    automatic: bool = False
    forecast: float | None = None
    width: int | None = None
    contrast: Contrast | None = None

    @property
    def n(self) -> int:
        """The number of rows."""
        return _rows.count(self.rows)

    @property
    def has_map(self) -> bool:
        """Whether the feature map was computed: not every solver asks for it."""
        return "map" in vars(self)

    @cached_property
    def map(self) -> FeatureMap:
        """The feature map φ."""
        if self.representation == "explicit":
            return explicit_map(self.kernel, self.rank)
        if self.representation == "components":
            assert self.width is not None
            assert self.contrast is not None
            needed = space_bytes(Size(self.n, self.width, self.rank, representation="components"))
            needed *= 2 if _rows.is_dask(self.rows) else 1  # sampled rows are fetched
            what = f"choosing {self.rank} components of {self.width} features"
            check_memory(needed, what, "give a number of landmarks as rank")
            full = explicit_map(self.kernel, self.width)
            return full.rotated(contrasting_directions(full, self.rows, self.contrast, self.rank, self.seed))
        if self.representation == "exact":
            if self.automatic:  # checked here, because not every solver asks for features
                check_memory(_exact_bytes(self.n), f'rank="auto" on {self.n} rows', "use a number of landmarks")
            return landmark_map(self.kernel, _rows.take(self.rows, np.arange(self.n)))
        chosen = choose_landmarks(self.kernel, self.rows, self.rank, seed=self.seed)
        return landmark_map(self.kernel, _rows.take(self.rows, chosen))

    @property
    def basis(self) -> Array | None:
        """The (width, rank) orthonormal directions of components; None for other representations."""
        return None if self.width is None else self.map.mix

    @cached_property
    def features(self) -> Any:
        """The (n, m) features of all rows: an array, or a lazy dask array."""
        if not _rows.is_dask(self.rows):
            size = _rows.float_dtype(self.rows).itemsize
            check_memory(self.n * self.map.columns * size, f"{self.n} × {self.map.columns} features", "lower the rank")
        return self.map(self.rows)

    def left_out(self) -> float:
        """Return the share of k(x, x) that the features leave out, on a sample of rows (0 where exact).

        For components it is the share of the variance of the explicit features: only differences of rows matter.
        """
        return self._share_left_out

    @cached_property
    def _share_left_out(self) -> float:
        if self.map.exact:
            return 0.0
        rows = as_float64(_rows.take(self.rows, _rows.draw(self.n, 1000, self.seed)))
        if self.width is not None:
            return _variance_left_out(explicit_map(self.kernel, self.width).block(rows), self.map.block(rows))
        total = self.kernel.diag(rows)
        kept = np.square(self.map.block(rows)).sum(axis=1)
        return float(np.maximum(total - kept, 0).sum() / total.sum())


def represent(
    kernel: Kernel,
    X: Any,
    rank: str | int = "auto",
    *,
    seed: int = 0,
    cost: Cost = space_seconds,
    explicit_columns: int | None = None,
    hints: Callable[[], Contrast | None] | None = None,
) -> Space:
    """Choose how ``kernel`` is represented on the checked rows ``X``.

    Parameters
    ----------
    rank : "auto", "exact" or int
        "exact" keeps every feature: the explicit ones where the kernel has no more of them than there are rows, else
        all rows (n² memory: refused when it does not fit the budget).  An integer is a number of landmarks.  "auto"
        takes explicit features where the kernel has at most ``explicit_columns`` and no more than rows, or as many
        components of them as the forecast allows.  Otherwise it takes the largest rank whose forecast stays within 4
        CPU seconds, or within 1.25 times that of 100 landmarks: all rows, up to 3000 of them, or 100 to 500 landmarks.
    cost : callable
        The forecast of the whole fit in CPU seconds, as a function of its `Size`; default: that of the features.
    explicit_columns : int, optional
        The widest explicit features that the method takes as they are with ``rank="auto"``, whatever the forecast.
        Default: up to 1000; components of up to 10,000 are taken where the forecast is above twice the budget.
    hints : callable, optional
        Returns like and unlike rows by which components are chosen, or None where there are none.  Without them, no
        components are taken.
    """
    n, d = _rows.count(X), _rows.width(X) or 1
    if rank == "exact":
        width = explicit_width(kernel, X)
        if width is not None and width <= n:
            return Space(kernel, X, "explicit", width, seed)
        check_memory(_exact_bytes(n), f'rank="exact" on {n} rows', "use a number of landmarks")
        return Space(kernel, X, "exact", n, seed)
    if rank == "auto":
        width = explicit_width(kernel, X)
        if width is not None and width <= min(n, WIDEST) and explicit_columns is None and hints is not None:
            part = _components(kernel, X, width, cost, hints, seed)
            if part is not None:
                return part
        if width is not None and width <= min(n, explicit_columns or EXPLICIT_COLUMNS):
            size = Size(n, d, width, representation="explicit")
            return Space(kernel, X, "explicit", width, seed, automatic=True, forecast=cost(size))
        size = Size(n, d, n, representation="exact")
        # where even few landmarks exceed the budget, a rank that adds little to their cost does no harm
        budget = max(BUDGET, LITTLE_MORE * cost(Size(n, d, min(n, LEAST_RANK))))
        if n <= LEAST_RANK or (n <= EXACT_ROWS and cost(size) <= budget):
            return Space(kernel, X, "exact", n, seed, automatic=True, forecast=cost(size))
        m = affordable(lambda m: cost(Size(n, d, m)), LEAST_RANK, min(n, AUTO_RANK), budget)
        return Space(kernel, X, "landmarks", m, seed, automatic=True, forecast=cost(Size(n, d, m)))
    m = whole_number_or(rank, "rank", ["auto", "exact"])
    if m >= n:
        check_memory(_exact_bytes(n), f"rank={rank} on {n} rows", "lower the rank")
        return Space(kernel, X, "exact", n, seed)
    return Space(kernel, X, "landmarks", m, seed)


def _components(
    kernel: Kernel, X: Any, width: int, cost: Cost, hints: Callable[[], Contrast | None], seed: int
) -> Space | None:
    """Return a space of fewer directions of explicit features; None if all are affordable, or without hints."""

    def forecast(m: int) -> float:
        return cost(Size(n, d, m, representation="components"))

    n, d = _rows.count(X), _rows.width(X) or 1
    if width <= LEAST_RANK:
        return None
    budget = max(BUDGET, LITTLE_MORE * forecast(LEAST_RANK))
    if cost(Size(n, d, width, representation="explicit")) <= EXCEEDED * budget:
        return None
    contrast = hints()
    m = affordable(forecast, LEAST_RANK, min(width, AUTO_RANK), budget)
    if contrast is None or m == width:
        return None
    return Space(kernel, X, "components", m, seed, automatic=True, forecast=forecast(m), width=width, contrast=contrast)


def _variance_left_out(features: Any, components: Any) -> float:
    """Return the share of the variance of features that components of them leave out."""
    total, kept = (float(np.square(F - F.mean(axis=0)).sum()) for F in (features, components))
    return max(0.0, 1 - kept / total) if total > 0 else 0.0


def _exact_bytes(n: int) -> int:
    return space_bytes(Size(n, 1, n, representation="exact"))
