"""The method ``lfda``: local Fisher discriminant analysis from labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metricforge import hookimpl

if TYPE_CHECKING:
    from metricforge.registry import Registrar


@hookimpl
def metricforge_register(registrar: Registrar) -> None:
    """Register the solver and the method."""
    registrar.add("solver", "lfda", "metricforge_plugins.lfda.solver:LFDA")
    registrar.add("method", "lfda", "metricforge_plugins.lfda.solver:METHOD")
