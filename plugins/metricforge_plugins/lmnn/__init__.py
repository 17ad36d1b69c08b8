"""The method ``lmnn``: large margin nearest neighbours from labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metricforge import hookimpl

if TYPE_CHECKING:
    from metricforge.registry import Registrar


@hookimpl
def metricforge_register(registrar: Registrar) -> None:
    """Register the solver and the method."""
    registrar.add("solver", "lmnn", "metricforge_plugins.lmnn.solver:LMNN")
    registrar.add("method", "lmnn", "metricforge_plugins.lmnn.solver:METHOD")
