"""The top eigenpairs of a symmetric matrix or operator: block Lanczos, ARPACK, LAPACK or a registered solver.

A small residual shows that a pair is an eigenpair, not that it is one of the largest.  On repeated eigenvalues
(must-link cliques, disconnected graphs) both PRIMME and ARPACK return too few copies without a warning.  Therefore the
answer of every iterative solver is completed: `completeness` searches its orthogonal complement for larger eigenvalues
and adds what it finds.

Files: `api` has `top`, the solvers and the choice among them, `lanczos` the thick-restart iteration, on the operations
of `columns`, `completeness` the search for missed eigenvalues and small components, `products` the counted and checked
products, `contract` the types and the validation of arguments.
"""

from __future__ import annotations

from .api import NAMES, arpack_pairs, check_name, top
from .columns import Block, Columns, columns_of
from .contract import Eigenpairs, Eigensolver, Stop
from .lanczos import lanczos_pairs
from .products import orthonormal

__all__ = [
    "NAMES",
    "Block",
    "Columns",
    "Eigenpairs",
    "Eigensolver",
    "Stop",
    "arpack_pairs",
    "check_name",
    "columns_of",
    "lanczos_pairs",
    "orthonormal",
    "top",
]
