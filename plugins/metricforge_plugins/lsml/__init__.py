"""The method ``lsml``: a metric from comparisons of two pairs of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metricforge import hookimpl

if TYPE_CHECKING:
    from metricforge.registry import Registrar


@hookimpl
def metricforge_register(registrar: Registrar) -> None:
    """Register the solver and the method."""
    registrar.add("solver", "lsml", "metricforge_plugins.lsml.solver:LSML")
    registrar.add("method", "lsml", "metricforge_plugins.lsml.solver:METHOD")
