"""The method ``euclidean``: the base kernel's own metric, for any kind of hint."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metricforge import hookimpl

if TYPE_CHECKING:
    from metricforge.registry import Registrar


@hookimpl
def metricforge_register(registrar: Registrar) -> None:
    """Add the solver and the method."""
    registrar.add("solver", "euclidean", "metricforge_plugins.euclidean.solver:Euclidean")
    registrar.add("method", "euclidean", "metricforge_plugins.euclidean.solver:METHOD")
