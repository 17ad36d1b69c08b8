"""Positive semidefinite (PSD) matrices: projection, factorisation, and the smallest eigenvalue."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import InputError
from .rows import blocks, check_memory
from .validation import number, shown

Array = NDArray[Any]

LARGEST = 1e290
"""The largest entry of a matrix; eigenvalues are scaled by LAPACK, but sums of larger entries overflow."""
WITH_VECTORS, VALUES_ONLY = 5, 3
"""Arrays of the size of A that an eigendecomposition holds, with the symmetric copy of A and LAPACK's workspace."""


def project(A: Any) -> Array:
    """Return the PSD matrix nearest to a symmetric A in the Frobenius norm: A with negative eigenvalues set to 0.

    Cost for order m: one eigendecomposition, O(m³) time and 40 m² bytes, which are checked against the memory budget.
    """
    w, V = np.linalg.eigh(symmetric(A, copies=WITH_VECTORS))
    P: Array = (V * np.maximum(w, 0)) @ V.T
    return (P + P.T) / 2


def factor(A: Any, *, tol: float = 1e-12) -> Array:
    """Return R (m × r) with RR' = A for a PSD matrix A, with columns by decreasing eigenvalue.

    Eigenvalues below ``tol`` times the largest count as zero; r is the numerical rank, at least 1.

    Raises
    ------
    InputError
        If A has an eigenvalue below minus that threshold: no real R exists.
    """
    tol = number(tol, "tol", least=0)
    w, V = np.linalg.eigh(symmetric(A, copies=WITH_VECTORS))
    w, V = w[::-1], V[:, ::-1]
    scale = max(abs(w[0]), abs(w[-1])) if len(w) else 0.0
    # rounding in an m × m product turns zero eigenvalues into values of this size
    slack = max(tol, len(w) * np.finfo(np.float64).eps) * scale
    if len(w) and w[-1] < -10 * slack:
        raise InputError(
            f"A is not positive semidefinite (smallest eigenvalue {w[-1]:.3g}, largest {w[0]:.3g}); "
            "project it first with mf.psd.project(A)"
        )
    keep = np.flatnonzero(w > slack)
    keep = keep if len(keep) else np.array([0])
    return np.asarray(V[:, keep] * np.sqrt(np.maximum(w[keep], 0)))


def smallest_eigenvalue(A: Any) -> float:
    """Return the smallest eigenvalue of a symmetric A, which is PSD if and only if this is not negative."""
    return float(np.linalg.eigvalsh(symmetric(A, copies=VALUES_ONLY))[0])


def symmetric(A: Any, *, copies: int = 1) -> Array:
    """Return A as a symmetric float64 array; raise InputError with the worst entry if it is not symmetric.

    Parameters
    ----------
    A : (m, m) array
    copies : int
        How many arrays of this size the caller will hold, for the memory check.
    """
    if isinstance(A, np.ndarray):  # before it is converted
        check_memory(8 * copies * A.size, f"{copies} array(s) of shape {A.shape}", "use a smaller matrix")
    try:
        if np.iscomplexobj(A):
            raise TypeError
        A = np.asarray(A, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"A must be a square array of real numbers, got {shown(A)}") from None
    if A.ndim != 2 or A.shape[0] != A.shape[1]:
        raise InputError(f"A must be a square matrix, got shape {A.shape}")
    if not A.size:
        return np.array(A)
    largest = float(max(A.max(), -A.min()))
    if not np.isfinite(largest):
        i, j = np.argwhere(~np.isfinite(A))[0]
        raise InputError(f"A must be finite, got {A[i, j]} at ({i}, {j})")
    if largest > LARGEST:
        raise InputError(f"A has values up to {largest:.3g}, whose sums overflow; rescale it")
    S = np.empty_like(A, order="C")
    for part in blocks(len(A), 16 * len(A)):
        skew = np.abs(A[part] - A.T[part])
        if skew.max() > 1e-8 * max(largest, 1e-300):
            i, j = np.unravel_index(int(skew.argmax()), skew.shape)
            i += part.start
            raise InputError(f"A must be symmetric, got {A[i, j]:.6g} at ({i}, {j}) and {A[j, i]:.6g} at ({j}, {i})")
        S[part] = A[part] / 2 + A.T[part] / 2
    return np.asarray(S)
