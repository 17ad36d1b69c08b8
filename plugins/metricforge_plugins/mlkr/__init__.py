"""The method ``mlkr``: a metric for kernel regression, from a number per row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metricforge import hookimpl

if TYPE_CHECKING:
    from metricforge.registry import Registrar


@hookimpl
def metricforge_register(registrar: Registrar) -> None:
    """Register the solver and the method."""
    registrar.add("solver", "mlkr", "metricforge_plugins.mlkr.solver:MLKR")
    registrar.add("method", "mlkr", "metricforge_plugins.mlkr.solver:METHOD")
