"""The positive part of a sparse symmetric matrix, with upper bounds on its norm from some of its eigenpairs.

For A = V W V' + (the rest), K = sqrt(B) A₊/‖A₊‖_F maximises tr(AK) over K ⪰ 0 with tr(KK) ≤ B, eq. (8), and the maximum
is sqrt(B) ‖A₊‖_F.  Therefore a certificate needs an upper bound on ‖A₊‖_F.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from metricforge import eigen
from metricforge.distributed.chunks import chunk_ranges
from metricforge.distributed.columns import PerChunk
from metricforge.distributed.eigen import RowBlocks
from metricforge.distributed.tasks import Value, chunk_values, evaluate
from metricforge.eigen import Block, Columns
from metricforge.rows import Array, is_dask

if TYPE_CHECKING:
    from scipy.sparse import csr_array


ZERO = 1e-10
"""Eigenvalues up to this share of the norm count as zero: −L has one exact zero per component of the graph."""
PROBES, STEPS = 8, 60
"""Random vectors and Lanczos steps of the estimate of the number of positive eigenvalues."""


@dataclass(frozen=True, eq=False)
class PositivePart:
    """Positive eigenpairs of A, and bounds on the part of the spectrum that they omit.

    Attributes
    ----------
    w : (r,) array
        Positive Ritz values, descending.
    V : (n, r) array
        Orthonormal; for A on dask a dask array, which may have further columns.
    upper : float
        An upper bound on ‖A₊‖_F.
    missed : float
        A bound on the norm of positive eigenvalues that are not in w.
    complete : bool
        Whether w has every positive eigenvalue.
    converged : bool
        Whether the eigensolver reached its tolerance.
    solver : str
        The eigensolver that was used.
    n_products : int
    """

    w: Array
    V: Array
    upper: float
    missed: float
    complete: bool
    converged: bool
    solver: str
    n_products: int

    @property
    def norm(self) -> float:
        """‖V W V'‖_F, a lower bound on ‖A₊‖_F."""
        return float(np.linalg.norm(self.w))


def positive_part(
    A: Any,
    k: int | None,
    *,
    solver: str = "auto",
    tol: float = 1e-6,
    seed: int = 0,
    guess: int | None = None,
    v0: Array | None = None,
) -> PositivePart:
    """Return the k largest positive eigenpairs of A, or all of them (k=None).

    Parameters
    ----------
    A : (n, n) csr_array, or a dask array of row blocks
    guess : int, optional
        The expected number of positive eigenvalues if k is None; by default an estimate from `count_positive`.
    v0 : (n, i) array, optional
        Start vectors of the eigensolver.

    Notes
    -----
    With k=None more eigenpairs are computed until one is not positive: only then none is missed.
    """
    n = A.shape[0]
    if k is not None:
        return _part(A, min(k, n), solver, tol, seed, v0)
    if guess is None:
        guess = count_positive(A, seed)
    asked = min(n, guess + 8)
    products = 0
    while True:
        part = _part(A, asked, solver, tol, seed, v0)
        products += part.n_products
        if part.complete or not part.converged or asked == n:
            return PositivePart(**{**part.__dict__, "n_products": products})
        asked, v0 = min(n, asked + max(16, asked // 2)), part.V


def _part(A: Any, k: int, solver: str, tol: float, seed: int, v0: Array | None) -> PositivePart:
    pairs = eigen.top(A, k, solver=solver, tol=tol, seed=seed, v0=v0)
    w, V = pairs
    n = A.shape[0]
    scale = _sums(A)[0]  # at least the norm of A
    zero = ZERO * scale
    converged = pairs.status == "converged"
    complete = converged and (k == n or bool(w[-1] <= zero))
    keep = int(np.count_nonzero(w > zero))
    # eigen.top guarantees that no eigenvalue exceeds the last one by more than its tolerance
    slack = float(pairs.residuals.max()) + (0.0 if pairs.solver == "dense" else tol * scale)
    missed = 0.0 if k == n else missed_norm(A, w[:keep], float(w[-1]) + slack)
    upper = upper_bound(w[:keep], pairs.residuals[:keep], missed)
    # a copy, because a view of a few columns keeps all of them in memory
    V = V if keep == k or is_dask(V) else V[:, :keep].copy()
    return PositivePart(w[:keep], V, upper, missed, complete, converged, pairs.solver, pairs.n_products)


def missed_norm(A: Any, w: Array, level: float) -> float:
    """Bound the norm of the positive eigenvalues of A outside w, none of which exceeds ``level``.

    For any c < 0 an eigenvalue 0 < λ ≤ θ has λ ≤ (λ − c) θ/(θ − c), and Σ (λ − c)² over all eigenvalues is ‖A − cI‖²_F:
    the norm is at most θ/(θ − c) · sqrt(‖A − cI‖²_F − Σ_w (w − c)²).  Returns the smallest bound over a grid of c.
    """
    if level <= 0.0:
        return 0.0
    n = A.shape[0]
    _, squares, trace = _sums(A)
    c = -np.geomspace(1e-3, 1e3, 121) * max(np.sqrt(squares / n), level)
    rest = squares - 2 * c * trace + n * c**2 - np.square(w[:, None] - c).sum(axis=0)
    bound = level / (level - c) * np.sqrt(np.maximum(rest, 0.0))
    return float(min(bound.min(), level * np.sqrt(n - len(w))))


def _sums(A: Any) -> tuple[float, float, float]:
    """Return the largest row sum of magnitudes, the sum of squares and the trace of A, in memory or on dask."""
    if not is_dask(A):
        return _block_sums(A, 0)
    starts = [rows.start for rows in chunk_ranges(A)]
    parts = [Value(_block_sums, block, start) for block, start in zip(chunk_values(A), starts, strict=True)]
    largest, squares, trace = zip(*evaluate([], parts), strict=True)
    return max(largest), sum(squares), sum(trace)


def _block_sums(A: csr_array, start: int) -> tuple[float, float, float]:
    largest = float(abs(A).sum(axis=1).max(initial=0.0))
    return largest, float(np.square(A.data).sum()), float(A.diagonal(start).sum())


def upper_bound(w: Array, residuals: Array, missed: float) -> float:
    """Return an upper bound on ‖A₊‖_F from Ritz values, residuals ρ_i = ‖Av_i − w_i v_i‖ and the bound ``missed``.

    In the basis [V, V⊥] A has the blocks diag(w), R and A₂₂ with ‖(A₂₂)₊‖_F ≤ missed and Σρ² = ‖R‖²_F.  For any δ > 0
    the off-diagonal blocks are at most diag(R'R/δ, δP) in the order of PSD matrices, P a projection of rank r at the
    most, and ‖(·)₊‖_F is monotone in that order and subadditive.  So

        ‖A₊‖_F ≤ sqrt((‖w‖ + ‖R‖²_F/δ)² + (missed + δ sqrt(r))²),

    of the order ‖R‖^(4/3) where nothing is missed.  δ is the best of a grid.
    """
    norm, error = float(np.linalg.norm(w)), float(np.square(residuals).sum())
    if error == 0.0:
        return float(np.hypot(norm, missed))
    r = len(w)
    delta = np.geomspace(1e-12, 1e2, 281) * max(norm, missed, np.sqrt(error))
    bounds = np.hypot(norm + error / delta, missed + delta * np.sqrt(r))
    # and by subadditivity alone
    return float(min(bounds.min(), np.hypot(norm, missed) + np.sqrt(error)))


def count_positive(A: Any, seed: int) -> int:
    """Estimate the number of positive eigenvalues of A by Lanczos quadrature from a few random vectors.

    The weight of the positive Ritz values in a random unit vector has the mean (number positive)/n.  Cost: PROBES ·
    STEPS products, 3 · PROBES vectors of memory; on dask a round of tasks for each step.
    """
    n = A.shape[0]
    multiply, on = _products(A)
    Q = on.random(PROBES, np.random.default_rng(seed))
    Q = on.times(Q, np.diag(1 / np.sqrt(on.gram(Q).diagonal())))
    before, beta = None, np.zeros(PROBES)
    diagonal, offdiagonal = [], []
    for _ in range(min(STEPS, n)):
        R = multiply(Q)
        if before is not None:
            R = on.minus(R, before, np.diag(beta))
        overlap, gram = on.several(("inner", Q, R), ("gram", R))
        a = overlap.diagonal()
        beta = np.sqrt(np.maximum(0.0, gram.diagonal() - a**2))
        beta[beta < 1e-10 * max(1.0, float(np.abs(a).max()))] = 0.0  # the vectors span an invariant space
        diagonal.append(a.copy())
        offdiagonal.append(beta)
        if not beta.any():
            break
        scale = np.where(beta > 0, 1 / np.where(beta > 0, beta, 1.0), 0.0)
        Q, before = on.times(on.minus(R, Q, np.diag(a)), np.diag(scale)), Q
    share = [_positive_share(a, b) for a, b in zip(np.transpose(diagonal), np.transpose(offdiagonal), strict=True)]
    return int(np.ceil(1.1 * n * float(np.mean(share))))


def _products(A: Any) -> tuple[Callable[[Block], Block], Columns]:
    """Return the product with A, and the operations on what it multiplies."""
    if not is_dask(A):
        return lambda X: np.asarray(A @ X), Columns(A.shape[0])
    blocks = RowBlocks(PerChunk(chunk_values(A)), A.chunks[0])
    return lambda X: blocks.product(X, 1.0), blocks.columns


def _positive_share(diagonal: Array, offdiagonal: Array) -> float:
    """Return the weight on positive eigenvalues of a tridiagonal matrix, in its first coordinate."""
    m = 1 + int(np.argmin(offdiagonal)) if not offdiagonal.all() else len(diagonal)
    b = offdiagonal[: m - 1]
    theta, S = np.linalg.eigh(np.diag(diagonal[:m]) + np.diag(b, 1) + np.diag(b, -1))
    return float(np.square(S[0, theta > ZERO * max(1.0, float(np.abs(theta).max()))]).sum())


class SpectralSolution(NamedTuple):
    """The solution K = V diag(factor · w) V', its value and a lower bound on the optimum.

    ``short`` says that eigenpairs beyond ``n_components`` would improve it.
    """

    part: PositivePart
    factor: float
    value: float
    lower: float
    trace: list[tuple[float, float]]
    products: int
    converged: bool
    short: bool
    B: float
    squares: float
