"""What users do with a metric: cluster under constraints, classify, and compute the scores of the papers.

Everything works on plain arrays: an embedding ``Z`` whose Euclidean distances are the metric's (the result of
``metric.transform``) or a Gram matrix.  The scores that compare rows also accept the metric itself.  For the Rand
index, the adjusted Rand index and nearest-neighbour errors use scikit-learn on these arrays; a Rand index is only
meaningful next to `one_cluster_rand`.  `KernelRule`, a scikit-learn classifier, is imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .classification import Classified, classify
from .clustering import KMeansResult, clusters_by_silhouette, constrained_kmeans
from .matching import Calibration, calibrate, candidates
from .retrieval import RetrievalScores, hard_negatives, retrieval_scores
from .scores import RetrievalResult, alignment, one_cluster_rand, retrieval_auc, satisfied, triplet_accuracy
from .unseen import Score, held_out

if TYPE_CHECKING:
    from ..estimators.rule import KernelRule

__all__ = [
    "Calibration",
    "Classified",
    "KMeansResult",
    "KernelRule",
    "RetrievalResult",
    "RetrievalScores",
    "Score",
    "alignment",
    "calibrate",
    "candidates",
    "classify",
    "clusters_by_silhouette",
    "constrained_kmeans",
    "hard_negatives",
    "held_out",
    "one_cluster_rand",
    "retrieval_auc",
    "retrieval_scores",
    "satisfied",
    "triplet_accuracy",
]


def __getattr__(name: str) -> Any:
    # the classifier's file imports scikit-learn at the top, which this one must not
    if name == "KernelRule":
        return getattr(import_module("..estimators.rule", __package__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
