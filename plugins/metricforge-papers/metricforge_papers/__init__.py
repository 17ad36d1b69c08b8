"""Every table and figure of the five papers, computed anew and shown next to the printed values.

``metricforge reproduce`` lists them, ``metricforge reproduce krca table4`` runs one.  `entries` is the list.  There is
one module with experiments for each paper, and ``papers/*.json`` holds the printed values.  `result` holds the figures
of a run, and `pages` writes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from metricforge import hookimpl

if TYPE_CHECKING:
    from metricforge.registry import Registrar


@hookimpl
def metricforge_register(registrar: Registrar) -> None:
    """Add the command."""
    registrar.add("command", "reproduce", "metricforge_papers.command:COMMAND")
