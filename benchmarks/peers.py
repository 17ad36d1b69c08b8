"""metric-learn beside us, for the benchmarks as for ``metricforge reproduce``."""

from metricforge.reproduce.peers import NEEDS, peer_results

__all__ = ["NEEDS", "peer_results"]
