"""Complete the answer of an iterative solver: search its orthogonal complement for eigenvalues that it missed.

Small connected components of a sparse matrix are solved densely; the solver sees the other rows only.
"""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import SolverError
from .columns import Block
from .contract import Eigensolver, Floats, Solved, Stop
from .lanczos import SINGLE_TOL, thick_restart
from .products import COLUMNS, Products, largest_magnitude, orthonormal, rayleigh_ritz

if TYPE_CHECKING:
    from scipy.sparse import csr_array

log = logging.getLogger(__name__)

_SEARCH_PRODUCTS = 40
"""The search multiplies at least this many vectors before it concludes that nothing is missing."""
_EVERY = 8
"""A search from one vector computes its Ritz values after this many products."""


def block_width(k: int) -> int:
    """Return the vectors of a first block, for k pairs (measured with PRIMME: 8 is fastest at k = 16, 16 at k = 64)."""
    return min(k, max(8, k // 4))


def complete(
    products: Products,
    k: int,
    backend: Eigensolver,
    tol: float,
    start: Block | None,
    rng: np.random.Generator,
) -> Solved:
    """Solve with the backend, then search the complement of its answer until no larger eigenvalue is left."""
    on = products.columns
    products.unit *= largest_magnitude(products, rng)
    if products.unit == 0.0:
        return Solved(np.zeros(k), on.identity(k), np.zeros(k), True)

    V = _run(backend, products, k, tol, start, rng)
    width, finished = on.search_width, False
    while True:
        w, V, residuals = rayleigh_ritz(products, _filled(products, V, k, rng), k)
        on.settle(V)
        if products.stop():
            break
        # Only converged eigenvectors are excluded from the search; the others are where it starts.
        good = residuals <= tol
        level, most = (w[-1], k) if good.all() else (-math.inf, k - int(good.sum()))
        short = np.flatnonzero(~good)[: COLUMNS - width]
        guess = on.beside(on.select(V, short), on.random(width, rng))
        found, conclusive = search_above(products, on.select(V, good), guess, level, most, tol)
        if found.shape[1] == 0:
            finished = conclusive
            break
        log.info("%d eigenvectors added to those of %s", found.shape[1], backend)
        V = orthonormal(on.beside(V, found))
        width = min(4 * width, COLUMNS)
    return Solved(w * products.unit, V, residuals * products.unit, finished)


def _run(
    backend: Eigensolver,
    products: Products,
    k: int,
    tol: float,
    start: Block | None,
    rng: np.random.Generator,
) -> Block:
    """Return the columns of the backend, made orthonormal; its starting vectors if it was stopped."""
    n, on = products.n, products.columns
    v0 = orthonormal(on.random(block_width(k), rng) if start is None else start)
    if v0.shape[1] == 0:
        v0 = orthonormal(on.random(1, rng))
    A = _operator(products)
    try:
        # Half of tol, so that rounding in the rotation afterwards does not lift a residual above tol.
        _, V = backend(A, k, tol=tol / 2, v0=v0, stop=products.stop)
    except Exception:
        if products.error is None and products.spare >= 0:
            raise
        V = v0
    if products.error is not None:
        raise Stop
    if isinstance(v0, np.ndarray):
        V = np.asarray(V)
        if V.ndim != 2 or V.shape[0] != n or not np.isfinite(V).all():
            raise SolverError(f"eigensolver {backend!r} must return (w, V) with V of shape ({n}, j) and finite")
    return orthonormal(V)


def _operator(products: Products) -> Any:
    """Return the products as an operator ``A @ X``: SciPy's in memory, because backends expect it."""
    if not products.columns.in_memory:
        return _ChunkedOperator(products)
    from scipy.sparse.linalg import LinearOperator

    return LinearOperator((products.n, products.n), matvec=products, matmat=products, dtype=np.float64)


class _ChunkedOperator:
    """``A @ X`` for blocks in chunks."""

    def __init__(self, products: Products) -> None:
        self.shape = (products.n, products.n)
        self._products = products

    def __matmul__(self, X: Block) -> Block:
        return self._products(X)


def _filled(products: Products, V: Block, k: int, rng: np.random.Generator) -> Block:
    """Return at least k orthonormal columns, adding random ones to V where needed."""
    if V.shape[1] >= k:
        return V
    on = products.columns
    return on.beside(V, orthonormal(on.random(k - V.shape[1], rng), V))


def search_above(products: Products, V: Block, guess: Block, level: float, most: int, tol: float) -> tuple[Block, bool]:
    """Search for eigenvalues above ``level`` in the orthogonal complement of the eigenvectors V.

    Block Lanczos from ``guess``, some of whose columns are random.  With probability one these have a share in every
    eigenvector outside V (of a repeated eigenvalue, in as many copies as there are columns), and outer eigenvalues
    converge first.  Ritz values are lower bounds, so one above ``level + tol`` proves that an eigenvalue is missing.

    Returns
    -------
    found : ndarray, shape (n, j), j <= most
        Eigenvectors of eigenvalues above the level, orthonormal and orthogonal to V; j = 0 if there are none.
    finished : bool
        False if a limit ended the search; the vectors are then the best so far.
    """
    n, k = V.shape
    start = orthonormal(guess, V)
    if tol >= 2 * SINGLE_TOL:  # V and the basis are read most often, and then half as long
        on = products.columns
        start, V = on.cast(start, np.float32), on.cast(V, np.float32)
    width = start.shape[1]
    size = min(max(5 * width, 40, 2**21 // n), n - k)
    # From one vector a Ritz pair can converge only where the remainder is small.
    every = _EVERY if width == 1 else 1
    wanted = min(width, most)
    iteration = thick_restart(
        products,
        start,
        size,
        max(width, size // 3),
        wanted=max(1, wanted),
        stop=products.stop,
        apart=V,
        every=every,
        small=tol,
    )
    for ritz in iteration:
        theta, residuals = ritz.values, ritz.residuals
        above = theta[:wanted] > level + tol
        if above.any():
            finished = bool((residuals[: len(above)][above] <= tol / 2).all())
        else:
            finished = ritz.products >= _SEARCH_PRODUCTS and bool(theta[0] + residuals[0] <= level + tol)
        finished = finished or ritz.invariant
        if finished:
            break
    return ritz.vectors(above), finished


# ----------------------------------------------------------------------------------------------------- small components

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
