"""The two hooks of metricforge, on one page.

A plugin is a module (or any object) with functions of these names, marked with ``@mf.hookimpl``, and an entry point in
the group ``metricforge`` of its distribution::

    [project.entry-points.metricforge]
    cosine = "metricforge_cosine"
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from .entries import Registrar
    from .progress import Event

hookspec = pluggy.HookspecMarker("metricforge")
hookimpl = pluggy.HookimplMarker("metricforge")


@hookspec
def metricforge_register(registrar: Registrar) -> None:
    """Add components: ``registrar.add("kernel", "cosine", "metricforge_cosine:Cosine")``.

    Called once, when metricforge first needs its registry.  If it raises, nothing of the plugin is kept.
    """


@hookspec
def metricforge_step(event: Event) -> None:
    """Receive one step of a running fit: show it, log it, store it.

    Called often; return quickly.  A plugin whose step raises is logged and not called again; the fit goes on.
    """
