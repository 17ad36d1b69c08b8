"""The method ``itml``: the metric nearest to a prior that keeps similar pairs near and dissimilar pairs apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metricforge import hookimpl

if TYPE_CHECKING:
    from metricforge.registry import Registrar


@hookimpl
def metricforge_register(registrar: Registrar) -> None:
    """Register the solver and the method."""
    registrar.add("solver", "itml", "metricforge_plugins.itml.solver:ITML")
    registrar.add("method", "itml", "metricforge_plugins.itml.solver:METHOD")
