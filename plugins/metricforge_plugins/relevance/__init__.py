"""The method ``relevance``: a score φ(q)'Wφ(x) that ranks what is relevant above what is not, from triplets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metricforge import hookimpl

if TYPE_CHECKING:
    from metricforge.registry import Registrar


@hookimpl
def metricforge_register(registrar: Registrar) -> None:
    """Register the solver and the method."""
    registrar.add("solver", "relevance", "metricforge_plugins.relevance.solver:Relevance")
    registrar.add("method", "relevance", "metricforge_plugins.relevance.solver:METHOD")
