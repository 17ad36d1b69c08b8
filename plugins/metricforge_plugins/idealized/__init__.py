"""The method ``idealized``: a metric from similar and dissimilar pairs with a margin (Kwok & Tsang 2003)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metricforge import hookimpl

if TYPE_CHECKING:
    from metricforge.registry import Registrar


@hookimpl
def metricforge_register(registrar: Registrar) -> None:
    """Register the solver, the method, and the kernel of an indefinite optimum."""
    registrar.add("solver", "idealized", "metricforge_plugins.idealized.solver:Idealized")
    registrar.add("method", "idealized", "metricforge_plugins.idealized.solver:METHOD")
    registrar.add("kernel", "unprojected", "metricforge_plugins.idealized.unprojected:Unprojected")
