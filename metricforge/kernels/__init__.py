"""Kernels: similarities k(x, y) with the distance d²(x, y) = k(x, x) + k(y, y) − 2 k(x, y).

A kernel must define one method, ``block(X, Y)``, on rows in memory; the rest of the library adds chunking, dask, saving
and scikit-learn.  Kernels are frozen dataclasses: their fields are their parameters.  `interface` has the base class
and its algebra, `vectors`, `strings` and `composites` the kernels, `fitted` the base class of learned kernels,
`notation` kernels as text, `arithmetic` inner products and distances.
"""

from __future__ import annotations

from ..validation import is_number
from .arithmetic import inner, manhattan, paired_inner, paired_squared_euclidean, squared_euclidean
from .composites import Mixture, Normalized, Product, Standardized, Transformed, Weak
from .explicit import ExplicitKernel
from .interface import FittedKernel, Kernel, OverRows
from .parameters import check_on_vectors
from .strings import Spectrum, substring_counts
from .vectors import RBF, Cauchy, Laplacian, Linear, Polynomial, Precomputed, RateKernel

__all__ = [
    "RBF",
    "Cauchy",
    "ExplicitKernel",
    "FittedKernel",
    "Kernel",
    "Laplacian",
    "Linear",
    "Mixture",
    "Normalized",
    "OverRows",
    "Polynomial",
    "Precomputed",
    "Product",
    "RateKernel",
    "Spectrum",
    "Standardized",
    "Transformed",
    "Weak",
    "check_on_vectors",
    "inner",
    "is_number",
    "manhattan",
    "paired_inner",
    "paired_squared_euclidean",
    "squared_euclidean",
    "substring_counts",
]
