"""How a kernel is represented on n rows, what that costs, and what a learned kernel is.

Exact and low rank are one code path.  With landmarks Z and K_ZZ = LL', the features φ(x) = L⁻¹ k(Z, x) reproduce the
kernel exactly on the span of the landmarks; "exact" means that the landmarks span all n rows.

Files: `maps` has the features φ, `landmarks` chooses rows and factorises their Gram matrix, `directions` chooses
directions of wide features by the hints, `representation` chooses between explicit features, components of them, all
rows and landmarks, `learned` has the learned kernel, `embeddings` the embedding of any kernel, `factors` parts of
methods that learn a factor, `costs` the forecasts of CPU time from which ``rank="auto"`` follows.
"""

from __future__ import annotations

from ..rows import check_memory
from .costs import (
    BUDGET,
    Size,
    Terms,
    affordable,
    affordable_queries,
    affordable_steps,
    evaluate,
    rows_seconds,
    space_bytes,
    space_seconds,
    steps_seconds,
)
from .directions import DENSE_WIDTH, Contrast, contrast_weights, leading_eigenvectors, subspace_iteration
from .embeddings import embedding, principal_axes
from .factors import add_transposed_product, check_start, feature_unit, start_factor
from .landmarks import check_diagonal, choose_landmarks, landmark_map, pivoted_cholesky
from .learned import ChangedKernel, FactoredKernel, LearnedKernel, OverFeatures
from .maps import FeatureMap, Stacked, compact, explicit_map, explicit_width, parts_of
from .representation import Space, represent

__all__ = [
    "BUDGET",
    "DENSE_WIDTH",
    "ChangedKernel",
    "Contrast",
    "FactoredKernel",
    "FeatureMap",
    "LearnedKernel",
    "OverFeatures",
    "Size",
    "Space",
    "Stacked",
    "Terms",
    "add_transposed_product",
    "affordable",
    "affordable_queries",
    "affordable_steps",
    "check_diagonal",
    "check_memory",
    "check_start",
    "choose_landmarks",
    "compact",
    "contrast_weights",
    "embedding",
    "evaluate",
    "explicit_map",
    "explicit_width",
    "feature_unit",
    "landmark_map",
    "leading_eigenvectors",
    "parts_of",
    "pivoted_cholesky",
    "principal_axes",
    "represent",
    "rows_seconds",
    "space_bytes",
    "space_seconds",
    "start_factor",
    "steps_seconds",
    "subspace_iteration",
]
