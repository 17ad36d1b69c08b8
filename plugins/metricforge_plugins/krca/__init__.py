"""The method ``krca``: kernel relevant component analysis from chunklets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metricforge import hookimpl

if TYPE_CHECKING:
    from metricforge.registry import Registrar


@hookimpl
def metricforge_register(registrar: Registrar) -> None:
    """Register the solver, the method and the three forms of its learned kernel."""
    registrar.add("solver", "krca", "metricforge_plugins.krca.solver:KernelRCA")
    registrar.add("method", "krca", "metricforge_plugins.krca.solver:METHOD")
    registrar.add("kernel", "krca-exact", "metricforge_plugins.krca.kernel:ChunkletKernel")
    registrar.add("kernel", "krca-features", "metricforge_plugins.krca.kernel:ScatterKernel")
    registrar.add("kernel", "krca-weighted", "metricforge_plugins.krca.weighted:WeightedKernel")
