"""The method ``kcr``: a metric and a radius learned together for the kernel classification rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metricforge import hookimpl

if TYPE_CHECKING:
    from metricforge.registry import Registrar


@hookimpl
def metricforge_register(registrar: Registrar) -> None:
    """Register the solver and the method."""
    registrar.add("solver", "kcr", "metricforge_plugins.kcr.solver:KCR")
    registrar.add("method", "kcr", "metricforge_plugins.kcr.solver:METHOD")
