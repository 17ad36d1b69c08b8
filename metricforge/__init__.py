"""metricforge turns hints about likeness into a distance.

A fit maps a Kernel and a Constraint to a Kernel, by a Solver::

    import metricforge as mf

    pairs = mf.Pairs(similar=[(0, 1), (4, 7)], dissimilar=[(0, 9)], n=len(X))
    metric = mf.learn(X, pairs)
    metric.distance(A, B)

Names are imported when first used: ``import metricforge`` itself costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import names as _names

if TYPE_CHECKING:
    from . import datasets, eigen, errors, kernels, neighbors, plotting, psd, report, space, tasks, testing
    from .cli.command import Command
    from .constraints import Chunklets, Constraint, Labels, Pairs, Quadruplets, Targets, Triplets
    from .distributed.storage import open_rows
    from .estimators.learner import MetricLearner
    from .evaluation import compare
    from .kernels import Kernel
    from .learning import learn
    from .metric import Metric, load
    from .registry import methods, plugins, register
    from .registry.hooks import hookimpl
    from .solver import Certificate, Method, Problem, Solution, Solver, Status, Use

__version__ = "0.1.0"

_HOME = {
    "Certificate": "solver",
    "Chunklets": "constraints",
    "Command": "cli.command",
    "Constraint": "constraints",
    "Kernel": "kernels",
    "Labels": "constraints",
    "Method": "solver",
    "Metric": "metric",
    "MetricLearner": "estimators.learner",
    "Pairs": "constraints",
    "Problem": "solver",
    "Quadruplets": "constraints",
    "Solution": "solver",
    "Solver": "solver",
    "Status": "solver",
    "Targets": "constraints",
    "Triplets": "constraints",
    "Use": "solver",
    "compare": "evaluation",
    "hookimpl": "registry.hooks",
    "learn": "learning",
    "load": "metric",
    "methods": "registry",
    "open_rows": "distributed.storage",
    "plugins": "registry",
    "register": "registry",
}
_MODULES = {
    "datasets": "datasets",
    "eigen": "eigen",
    "errors": "errors",
    "kernels": "kernels",
    "neighbors": "neighbors",
    "plotting": "plotting",
    "psd": "psd",
    "report": "report",
    "space": "space",
    "tasks": "tasks",
    "testing": "testing",
}

__all__ = [
    "Certificate",
    "Chunklets",
    "Command",
    "Constraint",
    "Kernel",
    "Labels",
    "Method",
    "Metric",
    "MetricLearner",
    "Pairs",
    "Problem",
    "Quadruplets",
    "Solution",
    "Solver",
    "Status",
    "Targets",
    "Triplets",
    "Use",
    "__version__",
    "compare",
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


def _registered(kind: str) -> Iterable[_names.Named]:
    registry: Any = import_module(".registry", __name__).registry
    found: list[_names.Named] = registry.entries(kind)
    return found


_names.connect(_registered)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(f".{_HOME[name]}", __name__), name)
    elif name in _MODULES:
        value = import_module(f".{_MODULES[name]}", __name__)
    elif not name.startswith("_") and name in _names.modules():
        value = import_module(f".{name}", __name__)
    else:
        return _namespace(name)
    globals()[name] = value
    return value


def _namespace(name: str) -> Any:
    """Return the namespace that a plugin registered under a name."""
    found = None if name.startswith("_") else {entry.name: entry for entry in _registered("namespace")}.get(name)
    if found is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return found.load()


def __dir__() -> list[str]:
    return sorted([*__all__, *(entry.name for entry in _registered("namespace"))])
