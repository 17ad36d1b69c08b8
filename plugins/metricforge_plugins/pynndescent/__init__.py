"""The neighbour search ``pynndescent``: approximate NN-descent, for wide sparse rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metricforge import hookimpl

if TYPE_CHECKING:
    from metricforge.registry import Registrar


@hookimpl
def metricforge_register(registrar: Registrar) -> None:
    """Register the search."""
    registrar.add("neighbors", "pynndescent", "metricforge_plugins.pynndescent.search:descent")
