"""Thick-restart block Lanczos: one iteration, for many eigenpairs and for the search for missed ones.

ARPACK orthogonalises one vector at a time against its whole basis, which reads that basis from memory for every
product.  Here a block is orthogonalised at once, in float32 where ``tol`` allows it: a tenth of the traffic.  The error
of rounding is removed by the float64 Rayleigh-Ritz step at the end of every solve of `metricforge.eigen.top`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..rows import beat
from .columns import Basis, Block, columns_of
from .contract import Floats
from .products import orthonormal

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator

SINGLE_TOL = 1e-5
"""A float32 basis reaches residuals of about 1e-6; below this tolerance the basis is float64."""


def lanczos_pairs(
    A: LinearOperator,
    k: int,
    *,
    tol: float,
    v0: Block,
    stop: Callable[[], bool],
) -> tuple[Floats, Block]:
    """Compute k eigenpairs by thick-restart block Lanczos with full orthogonalisation.

    Parameters
    ----------
    A, k, tol, v0, stop
        As in `metricforge.eigen.Eigensolver`.  The iteration also runs on dask: v0 is then in chunks, and so are the
        products of A and the vectors returned.

    Notes
    -----
    Memory: `basis_size` vectors in float32 (float64 for tol < 1e-5) and the k returned.  Time for m basis vectors:
    4 n m flops per product, and O(m³) per restart.

    References
    ----------
    Wu and Simon, SIAM J. Matrix Anal. Appl. 22(2), 2000; Zhou and Saad, Numer. Algorithms 47, 2008.
    """
    n = A.shape[0]
    width, size = block_width(k), basis_size(n, k)
    start = columns_of(v0).cast(
        _start(v0, width, np.random.default_rng(0)), np.float32 if tol >= SINGLE_TOL else np.float64
    )
    # few vectors more than the k wanted, and room for whole blocks
    keep = size - width * min(round(0.85 * (size - k) / width), (size - k) // width)
    iteration = thick_restart(lambda X: A @ X, orthonormal(start, floor=_floor(start)), size, keep, wanted=k, stop=stop)
    for ritz in iteration:
        if len(ritz.values) >= k and ritz.residuals.max() <= tol:
            break
    return ritz.values[:k].copy(), ritz.vectors(slice(k))


@dataclass(frozen=True)
class RitzPairs:
    """The Ritz pairs of a basis Q: eigenvalues and eigenvectors of A within its span.

    Attributes
    ----------
    values : (m,) array
        Descending.
    residuals : (min(wanted, m),) array
        ‖A Qs − θ Qs‖ of the first pairs.
    products : int
        Vectors multiplied so far.
    invariant : bool
        Whether A maps the basis into its own span, so that the pairs are exact.
    last : bool
        Whether the basis is invariant or a limit was passed, so that the iteration ends.
    """

    values: Floats
    residuals: Floats
    products: int
    invariant: bool
    last: bool
    basis: Basis  # of m columns
    rotation: Floats  # (m, m)

    def vectors(self, which: Any) -> Block:
        """Return the Ritz vectors of an index (a slice or a mask of the first pairs), in float64."""
        S = self.rotation[:, : len(which)][:, which] if isinstance(which, np.ndarray) else self.rotation[:, which]
        return self.basis.times(S)


def thick_restart(
    multiply: Callable[[Block], Block],
    new: Block,
    size: int,
    keep: int,
    *,
    wanted: int,
    stop: Callable[[], bool],
    apart: Block | None = None,
    every: float = math.inf,
    small: float = 0.0,
) -> Iterator[RitzPairs]:
    """Yield the Ritz pairs of a growing Krylov basis, which is restarted when it is full.

    The basis Q grows by a block W at a time: AW minus its part in Q, made orthonormal, is the next block.  A full basis
    is rotated to its Ritz vectors Qs, and the best are kept.  Only the last block is not mapped into the span of Q.
    With R its remainder, the residuals ‖A Qs − θ Qs‖ = ‖R s_last‖ therefore need no product.

    Parameters
    ----------
    multiply : callable
        Returns AX, in a new array, for a block X.
    new : (n, j) array
        Orthonormal starting block, orthogonal to ``apart``; its dtype is the dtype of the basis.
    size, keep : int
        Vectors of a full basis, and those kept at a restart; size - keep >= j.
    wanted : int
        Number of Ritz pairs whose residuals are computed.
    stop : callable
        Returns whether a limit was passed.
    apart : (n, i) array, optional
        Orthonormal eigenvectors; the basis stays in their orthogonal complement.
    every, small : float
        Pairs are yielded before a restart and at the end.  They are also yielded when that many vectors were multiplied
        since the last time, and when ‖R‖ <= small.
    """
    on = columns_of(new)
    Q = on.basis(size, new.dtype, apart)
    H = np.zeros((size, size))  # Q'AQ, upper triangle only
    used = previous = products = yielded = 0
    while True:
        span = slice(used, used + new.shape[1])
        used, products = span.stop, products + new.shape[1]
        Q.append(new)
        R = multiply(new)
        # Twice, where it matters: against the last two blocks, as in a three-term recurrence, then against all.
        overlap, R = Q.project(R, previous)
        H[previous:used, span] += overlap
        overlap, R, G = Q.project_again(R)
        H[:used, span] += overlap
        previous = span.start
        new = orthonormal(R, floor=_floor(R), gram=G)
        invariant = new.shape[1] == 0
        last, full = invariant or stop(), used + new.shape[1] > size
        if not (last or full or products >= yielded + every or (small and math.sqrt(np.trace(G)) <= small)):
            continue
        yielded = products
        theta, S = np.linalg.eigh(H[:used, :used], UPLO="U")
        beat(used, size)
        theta, S = theta[::-1], S[:, ::-1]
        end = S[span, :wanted]
        residuals = np.sqrt(np.maximum(0.0, np.sum(end * (G @ end), axis=0)))
        yield RitzPairs(theta, residuals, products, invariant, last, Q, S)
        if last:
            return
        if full:
            Q.restart(S[:, :keep])
            Q.settle(new)
            H[:] = 0.0
            H[:keep, :keep] = np.diag(theta[:keep])
            used, previous = keep, 0


def block_width(k: int) -> int:
    """Return the number of vectors multiplied at a time."""
    return 16 if k > 100 else 8 if k > 16 else 4


def basis_size(n: int, k: int) -> int:
    """Return the number of basis vectors."""
    return min(n, max(64, 2 * k + 32))


def _start(v0: Block, width: int, rng: np.random.Generator) -> Block:
    """Return a starting block: random combinations of v0, plus noise, which has a share in every eigenvector."""
    on, given = columns_of(v0), v0.shape[1]
    mixture = rng.standard_normal((given, width)) / np.sqrt(given)
    noise = on.times(on.random(width, rng), np.eye(width) * (0.1 / np.sqrt(on.n)))
    return on.minus(noise, v0, -mixture)


def _floor(R: Block) -> float:
    """Return the norm below which a column is rounding: A has norm 1."""
    return 10 * float(np.finfo(R.dtype).eps)
