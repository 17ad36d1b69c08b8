"""The method ``euclidean``: the metric of the base kernel, for any kind of constraint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metricforge import hookimpl

if TYPE_CHECKING:
    from metricforge.registry import Registrar


@hookimpl
def metricforge_register(registrar: Registrar) -> None:
    """Register the solver and the method."""
    registrar.add("solver", "euclidean", "metricforge_plugins.euclidean.solver:Euclidean")
    registrar.add("method", "euclidean", "metricforge_plugins.euclidean.solver:METHOD")
