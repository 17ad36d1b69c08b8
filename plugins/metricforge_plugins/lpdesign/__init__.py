"""The method ``lpdesign``: mixtures of kernels, and the features that matter, from triplets by linear programming."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metricforge import hookimpl

if TYPE_CHECKING:
    from metricforge.registry import Registrar


@hookimpl
def metricforge_register(registrar: Registrar) -> None:
    """Add the solver, its preset in the paper's scale, the method, and the kernel on a direction."""
    highs = {"requires": ("highspy",), "install": "pip install highspy"}
    registrar.add("kernel", "projected", "metricforge_plugins.lpdesign.bases:Projected")
    registrar.add("solver", "lpdesign", "metricforge_plugins.lpdesign.solver:LPDesign", **highs)
    registrar.add("solver", "lpdesign-printed", "metricforge_plugins.lpdesign.solver:Printed", **highs)
    registrar.add("method", "lpdesign", "metricforge_plugins.lpdesign.solver:METHOD", **highs)
