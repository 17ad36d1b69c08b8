"""The method ``llr``: a metric in closed form, the log-likelihood ratio of similar and dissimilar pairs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metricforge import hookimpl

if TYPE_CHECKING:
    from metricforge.registry import Registrar


@hookimpl
def metricforge_register(registrar: Registrar) -> None:
    """Register the solver and the method."""
    registrar.add("solver", "llr", "metricforge_plugins.llr.solver:LikelihoodRatio")
    registrar.add("method", "llr", "metricforge_plugins.llr.solver:METHOD")
