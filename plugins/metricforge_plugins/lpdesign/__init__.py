"""The method ``lpdesign``: sparse mixtures of kernels from triplets by linear programming."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metricforge import hookimpl

if TYPE_CHECKING:
    from metricforge.registry import Registrar


@hookimpl
def metricforge_register(registrar: Registrar) -> None:
    """Register the solver, its preset in the scale of the paper, the method, and the kernel on a direction."""
    registrar.add("kernel", "projected", "metricforge_plugins.lpdesign.bases:Projected")
    for kind, name, target in (
        ("solver", "lpdesign", "LPDesign"),
        ("solver", "lpdesign-printed", "PaperLPDesign"),
        ("method", "lpdesign", "METHOD"),
    ):
        registrar.add(kind, name, f"metricforge_plugins.lpdesign.solver:{target}", requires=("highspy",))
