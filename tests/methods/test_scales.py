"""What learns in an extreme unit also measures: distances are refused by the fit, or not at all."""

from __future__ import annotations

import numpy as np
import pytest

import metricforge as mf
from metricforge.errors import InputError, SolverError
from metricforge.testing import example_rows

EXPONENTS = (-160, -155, -150, -148, -80, -40, -20, 0, 20, 40, 54, 77, 80, 150, 154, 160)
METHODS = [entry.name for entry in mf.registry.registry.entries("method") if not entry.missing]


@pytest.mark.filterwarnings("ignore::metricforge.errors.ConvergenceWarning")
@pytest.mark.parametrize("kernel", [None, "linear"])
@pytest.mark.parametrize("name", METHODS)
def test_rows_that_were_learned_from_have_distances(name, kernel):
    X, y = example_rows("vectors", 40)
    method = mf.resolve.find_method(name)
    hints = method.constraint.of_values(y)
    learned = 0
    for exponent in EXPONENTS:
        for dtype in (np.float64, np.float32):
            with np.errstate(all="ignore"):
                rows = (X * 10.0**exponent).astype(dtype)
            if not np.isfinite(rows).all():
                continue
            try:
                metric = mf.learn(rows, hints, method=name, kernel=kernel)
            except (InputError, SolverError):
                continue
            learned += 1
            assert np.isfinite(metric.distance(rows)).all()
            assert np.isfinite(metric.paired_distance(rows, rows[::-1])).all()
            metric.neighbors(rows, k=2)
    assert learned
