"""metric-learn in its own environment, for the benchmarks and for ``metricforge reproduce``."""

from metricforge_papers.peers import NEEDS, peer_results

__all__ = ["NEEDS", "peer_results"]
