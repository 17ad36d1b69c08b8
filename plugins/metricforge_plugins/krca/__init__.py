"""The method ``krca``: kernel relevant component analysis from chunklets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metricforge import hookimpl

if TYPE_CHECKING:
    from metricforge.registry import Registrar


@hookimpl
def metricforge_register(registrar: Registrar) -> None:
    """Register the two methods with their solvers, and the three forms of learned kernels."""
    registrar.add("solver", "krca", "metricforge_plugins.krca.solver:KernelRCA")
    registrar.add("method", "krca", "metricforge_plugins.krca.solver:METHOD")
    registrar.add("solver", "krca-weighted", "metricforge_plugins.krca.weighted:WeightedRCA")
    registrar.add("method", "krca-weighted", "metricforge_plugins.krca.weighted:METHOD")
    registrar.add("kernel", "krca-exact", "metricforge_plugins.krca.kernel:ChunkletKernel")
    registrar.add("kernel", "krca-features", "metricforge_plugins.krca.kernel:ScatterKernel")
    registrar.add("kernel", "krca-weighted", "metricforge_plugins.krca.weighted:WeightedKernel")
