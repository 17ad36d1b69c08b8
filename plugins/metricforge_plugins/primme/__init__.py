"""The eigensolver ``primme``: PRIMME's block Davidson method, for a few eigenpairs from a good start."""

from __future__ import annotations

from typing import TYPE_CHECKING

from metricforge import hookimpl

if TYPE_CHECKING:
    from metricforge.registry import Registrar

INSTALL = "pip install 'metricforge[primme]' (it compiles against BLAS and LAPACK: on Debian, libopenblas-dev)"


@hookimpl
def metricforge_register(registrar: Registrar) -> None:
    """Register the eigensolver."""
    target = "metricforge_plugins.primme.solver:primme_pairs"
    registrar.add("eigensolver", "primme", target, requires=["primme"], install=INSTALL)
