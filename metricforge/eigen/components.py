"""Small connected components of a sparse matrix, solved densely; the solver sees the other rows only."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .contract import Floats, Solved

if TYPE_CHECKING:
    from scipy.sparse import csr_array

COMPONENT_ROWS = 32
"""Components up to this size are solved densely, all of one size in one batch."""


class Piece(NamedTuple):
    """An eigenpair that is zero outside a few rows."""

    value: float
    rows: NDArray[np.intp]
    vector: Floats
    residual: float


def small_components(A: csr_array, k: int) -> tuple[list[Piece], NDArray[np.intp]]:
    """Solve the small connected components of A densely; return their k best eigenpairs, and the other rows."""
    from scipy.sparse.csgraph import connected_components

    n = A.shape[0]
    _, label = connected_components(A, directed=False)
    sizes = np.bincount(label)
    rest = np.flatnonzero(sizes[label] > COMPONENT_ROWS)
    order = np.argsort(label, kind="stable")
    starts = np.cumsum(sizes) - sizes
    place = np.empty(n, dtype=np.intp)  # position of a row within its component
    place[order] = np.arange(n) - starts[label[order]]
    number = np.empty(len(sizes), dtype=np.intp)  # position of a component among those of its size
    entries = A.tocoo()
    entry_size = sizes[label[entries.row]]

    pieces: list[Piece] = []
    for size in np.unique(sizes[sizes <= COMPONENT_ROWS]).tolist():
        members = np.flatnonzero(sizes == size)
        number[members] = np.arange(len(members))
        mine = entry_size == size
        row, col = entries.row[mine], entries.col[mine]
        blocks = np.zeros((len(members), size, size))
        np.add.at(blocks, (number[label[row]], place[row], place[col]), entries.data[mine])
        w, U = np.linalg.eigh(blocks)  # (members, size), (members, size, size)
        for flat in np.argsort(-w, axis=None, kind="stable")[:k].tolist():
            c, i = divmod(flat, size)
            value, u = float(w[c, i]), U[c, :, i]
            rows = order[starts[members[c]] :][:size]
            pieces.append(Piece(value, rows, u, float(np.linalg.norm(blocks[c] @ u - value * u))))
    return sorted(pieces, key=lambda piece: -piece.value)[:k], rest


def joined(pieces: list[Piece], large: Solved | None, rest: NDArray[np.intp], n: int, k: int) -> Solved:
    """Return the k best of the pairs of the small components and those of the other rows."""
    values = [piece.value for piece in pieces]
    w = np.array(values if large is None else [*values, *large.w])
    residuals, V = np.empty(k), np.zeros((n, k))
    best = np.argsort(-w, kind="stable")[:k]
    for j, b in enumerate(best.tolist()):
        if b < len(pieces):
            V[pieces[b].rows, j], residuals[j] = pieces[b].vector, pieces[b].residual
        elif large is not None:
            V[rest, j], residuals[j] = large.V[:, b - len(pieces)], large.residuals[b - len(pieces)]
    return Solved(w[best], V, residuals, large is None or large.complete)
