"""metricforge turns hints about likeness into a distance.

A fit maps a Kernel and a Constraint to a Kernel, by a Solver::

    import metricforge as mf

    pairs = mf.Pairs(similar=[(0, 1), (4, 7)], dissimilar=[(0, 9)], n=len(X))
    metric = mf.learn(X, pairs)
    metric.distance(A, B)

Names are imported when first used: ``import metricforge`` itself costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import datasets, eigen, errors, kernels, neighbors, plotting, psd, report, space, tasks, testing
    from .constraints import Chunklets, Constraint, Labels, Pairs, Triplets
    from .estimator import MetricLearner
    from .hookspecs import hookimpl
    from .kernels import Kernel
    from .learning import learn
    from .metric import Metric, load
    from .problem import Method, Problem, Solution, Solver, Status
    from .registry import methods, plugins, register
    from .storage import open_rows

__version__ = "0.1.0"

_HOME = {
    "Chunklets": "constraints",
    "Constraint": "constraints",
    "Kernel": "kernels",
    "Labels": "constraints",
    "Method": "problem",
    "Metric": "metric",
    "MetricLearner": "estimator",
    "Pairs": "constraints",
    "Problem": "problem",
    "Solution": "problem",
    "Solver": "problem",
    "Status": "problem",
    "Triplets": "constraints",
    "hookimpl": "hookspecs",
    "learn": "learning",
    "load": "metric",
    "methods": "registry",
    "open_rows": "storage",
    "plugins": "registry",
    "register": "registry",
}
_MODULES = {
    "datasets",
    "eigen",
    "errors",
    "kernels",
    "neighbors",
    "plotting",
    "psd",
    "report",
    "space",
    "tasks",
    "testing",
}

__all__ = [
    "Chunklets",
    "Constraint",
    "Kernel",
    "Labels",
    "Method",
    "Metric",
    "MetricLearner",
    "Pairs",
    "Problem",
    "Solution",
    "Solver",
    "Status",
    "Triplets",
    "__version__",
    "datasets",
    "eigen",
    "errors",
    "hookimpl",
    "kernels",
    "learn",
    "load",
    "methods",
    "neighbors",
    "open_rows",
    "plotting",
    "plugins",
    "psd",
    "register",
    "report",
    "space",
    "tasks",
    "testing",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(f".{_HOME[name]}", __name__), name)
    elif name in _MODULES:
        value = import_module(f".{name}", __name__)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
