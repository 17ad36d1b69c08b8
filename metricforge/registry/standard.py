"""The core's own components, registered through the same hook as those of plugins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .hooks import hookimpl

if TYPE_CHECKING:
    from .entries import Registrar


@hookimpl
def metricforge_register(registrar: Registrar) -> None:
    """Add the constraints, conversions, kernels, eigensolvers, neighbour searches and commands of the core."""
    # in the order of their options in the shell
    for name in ("Labels", "Pairs", "Triplets", "Quadruplets", "Chunklets", "Targets"):
        registrar.add("constraint", name.lower(), f"metricforge.constraints:{name}")
    for source, target in (
        ("labels", "pairs"),
        ("labels", "chunklets"),
        ("labels", "triplets"),
        ("chunklets", "pairs"),
        ("pairs", "chunklets"),
        ("triplets", "pairs"),
        ("triplets", "quadruplets"),
        ("labels", "quadruplets"),
        ("pairs", "quadruplets"),
        ("quadruplets", "triplets"),
        ("targets", "triplets"),
    ):
        registrar.add("conversion", f"{source}->{target}", f"metricforge.constraints:{source}_to_{target}")
    for name in (
        "Linear",
        "RBF",
        "Polynomial",
        "Laplacian",
        "Cauchy",
        "Spectrum",
        "Weak",
        "Mixture",
        "Product",
        "Normalized",
        "Standardized",
        "Precomputed",
    ):
        registrar.add("kernel", name.lower(), f"metricforge.kernels:{name}")
    registrar.add("kernel", "learned", "metricforge.space:LearnedKernel")
    registrar.add("kernel", "factored", "metricforge.space:FactoredKernel")
    registrar.add("kernel", "changed", "metricforge.space:ChangedKernel")
    registrar.add("eigensolver", "arpack", "metricforge.eigen:arpack_pairs")
    registrar.add("eigensolver", "lanczos", "metricforge.eigen.lanczos:lanczos_pairs")
    registrar.add("neighbors", "exact", "metricforge.neighbors:exact")
    registrar.add("neighbors", "tree", "metricforge.neighbors:tree")
    registrar.add("neighbors", "hamming", "metricforge.neighbors:hamming")
    registrar.add("neighbors", "cells", "metricforge.neighbors:cells")
    for name in (
        "demo",
        "learn",
        "compare",
        "evaluate",
        "info",
        "classify",
        "cluster",
        "match",
        "neighbors",
        "transform",
        "distance",
        "plugins",
        "datasets",
    ):
        registrar.add("command", name, f"metricforge.cli.commands:{name.upper()}")
    registrar.add("command", "index", "metricforge.cli.index:INDEX")
