"""Features of rows under the start kernel, computed for the rows that are asked about only."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

import metricforge as mf
from metricforge.rows import Array

WIDEST = 256
"""The most features in which the metric of the loop learns; wider rows are represented over landmarks."""


class Features:
    """Computes features of rows when they are first needed, and keeps them."""

    def __init__(self, X: Any, kernel: mf.Kernel | str | None, seed: int) -> None:
        from metricforge.resolve import find_kernel
        from metricforge.space import represent

        if kernel is None:
            strings = isinstance(X, list | tuple | np.ndarray) and len(X) and isinstance(X[0], str)
            start = (
                mf.kernels.Spectrum(3).normalized()
                if strings
                else mf.kernels.Standardized(mf.kernels.Linear(), by="range")
            )
        else:
            start = find_kernel(kernel)
        self.rows = start.check(X, "X")
        self.n = len(self.rows) if start.takes != "vectors" else self.rows.shape[0]
        resolved = start.resolve(self.rows, seed=seed)
        wide = start.takes != "vectors" or self.rows.shape[1] > WIDEST
        space = represent(resolved, self.rows, min(WIDEST, self.n) if wide else "auto", seed=seed)
        self._map = space.map
        self._kept: dict[int, Array] = {}

    def __call__(self, rows: Array) -> Array:
        """Return the (len(rows), m) features of some rows."""
        new = [row for row in rows.tolist() if row not in self._kept]
        if new:
            F = self._map.of_rows(self.rows, np.asarray(new, dtype=np.int64))
            self._kept.update(zip(new, F, strict=True))
        return np.stack([self._kept[row] for row in rows.tolist()])


def digest(X: Any) -> str:
    """Return a digest of the rows, by which a file recognises its data."""
    if hasattr(X, "tocsr"):
        parts = [np.asarray(X.shape).tobytes(), X.indptr.tobytes(), X.indices.tobytes(), X.data.tobytes()]
    elif isinstance(X, np.ndarray) and X.dtype != object:
        parts = [repr(X.shape).encode(), np.ascontiguousarray(X).tobytes()]
    else:
        parts = ["\0".join(map(str, X)).encode()]
    found = hashlib.sha256()
    for part in parts:
        found.update(part)
    return found.hexdigest()
