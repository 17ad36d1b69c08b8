"""The method ``nca``: neighbourhood components analysis from labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metricforge import hookimpl

if TYPE_CHECKING:
    from metricforge.registry import Registrar


@hookimpl
def metricforge_register(registrar: Registrar) -> None:
    """Register the solver and the method."""
    registrar.add("solver", "nca", "metricforge_plugins.nca.solver:NCA")
    registrar.add("method", "nca", "metricforge_plugins.nca.solver:METHOD")
