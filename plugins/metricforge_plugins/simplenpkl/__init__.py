"""The method ``simplenpkl``: a non-parametric kernel from pairs on a sparse neighbour graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metricforge import hookimpl

if TYPE_CHECKING:
    from metricforge.registry import Registrar


@hookimpl
def metricforge_register(registrar: Registrar) -> None:
    """Register the solver, the method and the two extensions of its kernel to new rows."""
    registrar.add("solver", "simplenpkl", "metricforge_plugins.simplenpkl.solver:SimpleNPKL")
    registrar.add("method", "simplenpkl", "metricforge_plugins.simplenpkl.solver:METHOD")
    registrar.add("kernel", "simplenpkl-ridge", "metricforge_plugins.simplenpkl.extension:RidgeExtension")
    registrar.add("kernel", "simplenpkl-nystrom", "metricforge_plugins.simplenpkl.extension:GraphExtension")
