"""No call changes the rows that it is given, nor returns an array that shares their memory."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import metricforge as mf
from metricforge.errors import ConvergenceWarning, InputError
from metricforge.kernels import Linear

NAMES = [method.name for method in mf.methods()]
CALLS = {
    "truncated": lambda metric, X: metric.truncated(2),
    "transform": lambda metric, X: metric.transform(X),
    "distance": lambda metric, X: metric.distance(X),
    "kernel": lambda metric, X: metric.kernel(X),
    "paired_distance": lambda metric, X: metric.paired_distance(X, X),
    "neighbors": lambda metric, X: metric.neighbors(X, 3),
    "index": lambda metric, X: metric.index().search(X, 3),
    "adapter": lambda metric, X: metric.adapter("both"),
    "mahalanobis": lambda metric, X: metric.mahalanobis(),
    "update": lambda metric, X: metric.update(X, np.arange(len(X)) % 3),
}


@pytest.mark.parametrize("kernel", [Linear(), None], ids=["linear", "default"])
@pytest.mark.parametrize("name", NAMES)
def test_rows_stay_as_they_were(name, kernel):
    X = np.random.default_rng(0).normal(size=(40, 5)) + 3
    y = np.arange(40) % 3
    given = X.copy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        metric = mf.learn(X, mf.Targets(y * 1.0) if name == "mlkr" else y, method=name, kernel=kernel)
    np.testing.assert_array_equal(X, given, err_msg="learn")
    for what, call in CALLS.items():
        try:
            found = call(metric, X)
        except InputError:  # not every metric has a linear map or can be updated
            continue
        for array in found if isinstance(found, tuple) else (found,):
            assert not np.shares_memory(X, array) if isinstance(array, np.ndarray) else True, what
        np.testing.assert_array_equal(X, given, err_msg=what)
