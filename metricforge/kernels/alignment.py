"""The alignment ⟨K, L⟩ / (‖K‖ ‖L‖) of two kernels on the same rows, and of a kernel with the ideal kernel of labels.

The products are Frobenius products; nothing is centred.  The ideal kernel K* is 1 where two rows share a class and 0
elsewhere.

References
----------
J. T. Kwok, I. W. Tsang. Learning with idealized kernels. ICML 2003, eq. (1) and Sec. 2.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import InputError
from ..rows import Array, blocks


def alignment(K: Any, L: Any) -> float:
    """Return the alignment of two Gram matrices, between −1 and 1 (0 where either is zero)."""
    K, L = np.asarray(K, dtype=np.float64), np.asarray(L, dtype=np.float64)
    if K.shape != L.shape:
        raise InputError(f"K and L must have the same shape, got {K.shape} and {L.shape}")
    return cosine(float((K * L).sum()), float(np.square(K).sum()), float(np.square(L).sum()))


def gram_alignment(K: Array, codes: Array) -> float:
    """Return the alignment of a Gram matrix with the ideal kernel of class numbers.  Memory: a block of rows."""
    n = len(codes)
    inner = square = 0.0
    for rows in blocks(n, 32 * n):
        inner += float(K[rows][codes[rows, None] == codes].sum())
        square += float(np.vdot(K[rows], K[rows]))
    return cosine(inner, square, _ideal_square(codes))


def factor_alignment(Z: Array, codes: Array) -> float:
    """Return the alignment of ZZ' with the ideal kernel of class numbers.

    Only ⟨ZZ', K*⟩ = Σ_c ‖Σ_{i in c} z_i‖² and ‖ZZ'‖ = ‖Z'Z‖ are formed.  Cost: O(n m min(n, m)) time.
    """
    inner = float(np.square(class_sums(Z, codes)).sum())
    G = Z.T @ Z if Z.shape[1] <= len(Z) else Z @ Z.T
    return cosine(inner, float(np.square(G).sum()), _ideal_square(codes))


def label_alignment(Phi: Array, codes: Array, *metrics: Array) -> list[float]:
    """Return the alignment of ΦBΦ' with the ideal kernel of class numbers, for each metric B.

    ⟨ΦBΦ', K*⟩ = Σ_c s_c'Bs_c with s_c the sum of a class, and ‖ΦBΦ'‖² = tr(GBGB) with G = Φ'Φ: nothing n × n.
    Cost: O(n m²) time, m² memory.
    """
    G = np.zeros((Phi.shape[1], Phi.shape[1]))
    for part in blocks(len(Phi), 8 * Phi.shape[1]):
        G += Phi[part].T @ Phi[part]
    sums, ideal = class_sums(Phi, codes), _ideal_square(codes)
    out = []
    for B in metrics:
        GB = G @ B
        out.append(cosine(float(((sums @ B) * sums).sum()), float((GB * GB.T).sum()), ideal))
    return out


def pair_alignment(Phi: Array, i: Array, j: Array, dissimilar: Array, *metrics: Array) -> list[float]:
    """Return the alignment of ΦBΦ' with the ideal kernel over the entries that pairs determine, for each metric B.

    The ideal kernel is 1 for similar pairs and 0 for dissimilar ones.  Every pair counts twice, (i, j) and (j, i), and
    the diagonal entry of every row of Φ, which is 1, once.  Cost: O((n + N) m + n m²) time, n m memory.
    """
    out = []
    for B in metrics:
        E = Phi @ B
        own = np.einsum("ij,ij->i", E, Phi)
        k = np.empty(len(i))
        for part in blocks(len(i), 16 * Phi.shape[1]):
            k[part] = np.einsum("ij,ij->i", E[i[part]], Phi[j[part]])
        out.append(entry_alignment(own, k, dissimilar))
    return out


def entry_alignment(own: Array, k: Array, dissimilar: Array) -> float:
    """Return the alignment as `pair_alignment` does, from the values ``own`` on the diagonal and ``k`` at pairs."""
    inner = own.sum() + 2 * k[~dissimilar].sum()
    squares = np.square(own).sum() + 2 * np.square(k).sum()
    return cosine(float(inner), float(squares), float(len(own) + 2 * np.count_nonzero(~dissimilar)))


def class_sums(Z: Array, codes: Array) -> Array:
    """Return the sum of the rows of each class ``0 .. codes.max()``, (classes, m)."""
    order = np.argsort(codes, kind="stable")
    sums = np.zeros((int(codes.max()) + 1, Z.shape[1]))
    for part in blocks(len(Z), 8 * Z.shape[1]):
        owner = codes[order[part]]
        first = np.flatnonzero(np.diff(owner, prepend=-1))
        sums[owner[first]] += np.add.reduceat(Z[order[part]], first, axis=0)
    return sums


def cosine(inner: float, first: float, second: float) -> float:
    """Return inner / sqrt(first · second) for squared norms, and 0 where either is 0."""
    scale = np.sqrt(max(first, 0.0)) * np.sqrt(max(second, 0.0))
    return float(inner / scale) if scale > 0 else 0.0


def _ideal_square(codes: Array) -> float:
    """Return ‖K*‖²: the sum of the squared class sizes."""
    return float(np.square(np.bincount(codes).astype(np.float64)).sum())
