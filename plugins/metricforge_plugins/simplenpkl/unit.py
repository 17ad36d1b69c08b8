"""Rows of length one."""

from __future__ import annotations

import numpy as np

from metricforge.rows import Array


def unit_rows(E: Array) -> Array:
    """Return the rows divided by their norms; a row of zeros is returned unchanged."""
    norms = np.sqrt(np.vecdot(E, E))
    return np.asarray(E / np.where(norms > 0, norms, 1.0)[:, None])
