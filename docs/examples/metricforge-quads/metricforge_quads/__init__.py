"""The hook of the plugin.  Targets are strings, so that nothing is imported before it is used."""

from metricforge import hookimpl


@hookimpl
def metricforge_register(registrar):
    registrar.add("constraint", "comparisons", "metricforge_quads.comparisons:Comparisons")
    registrar.add("conversion", "triplets->comparisons", "metricforge_quads.comparisons:from_triplets")
    registrar.add("solver", "diagonal", "metricforge_quads.solver:Diagonal")
    registrar.add("method", "diagonal", "metricforge_quads.solver:METHOD")
    registrar.add("eigensolver", "subspace", "metricforge_quads.eigensolver:subspace")
    registrar.add("neighbors", "balltree", "metricforge_quads.search:balltree", requires=["sklearn"])
    registrar.add("command", "draw-comparisons", "metricforge_quads.command:COMMAND")
    registrar.add("namespace", "quads", "metricforge_quads.comparisons")
