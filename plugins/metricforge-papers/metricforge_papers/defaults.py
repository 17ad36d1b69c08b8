"""What "our default" means in every table and figure: a call that names the method and nothing else."""

from __future__ import annotations

import warnings
from typing import Any

from metricforge import Constraint, Metric, learn
from metricforge.errors import ConvergenceWarning


def by_default(method: str, X: Any, hints: Constraint, seed: int) -> Metric:
    """Learn as a user does who names the method and sets nothing; a fit that stops at its iteration limit counts."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return learn(X, hints, method=method, seed=seed)
