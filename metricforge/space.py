"""How a kernel is represented on n rows: explicit features, all rows, or landmarks; and what a learned kernel is.

Exact and low rank are one code path.  With landmarks Z and K_ZZ = LL', the features φ(x) = L⁻¹ k(Z, x) reproduce the
kernel exactly on the span of the landmarks; "exact" means that the landmarks span all n rows.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import psd
from . import rows as _rows
from .cluster import free_memory
from .errors import InputError, MemoryBudgetError
from .kernels import Kernel, Mixture, squared_euclidean
from .rows import ComparedByContent, as_float64

Array = NDArray[Any]

EXACT_ROWS = 3000
"""Up to here ``rank="auto"`` keeps all rows: factor and W stay below 100 MB and their n³ work below a few seconds."""
AUTO_RANK = 500
"""Landmarks chosen by ``rank="auto"`` beyond that."""
EXPLICIT_COLUMNS = 1000
"""Widest explicit features that ``rank="auto"`` takes as they are."""
SAMPLE_ROWS = 20_000
"""Landmarks are sought among this many rows: their choice needs an (s × m) table, which must not grow with n."""
RANK_TOL = 1e-12
"""A pivot below this share of the largest k(x, x) counts as zero: φ then keeps about ten digits."""


# ------------------------------------------------------------------------------------------------------- memory budget


def memory_budget() -> int:
    """Return how many bytes one call may allocate: ``METRICFORGE_MEMORY`` ("2GB") or half of what is free."""
    asked = os.environ.get("METRICFORGE_MEMORY")
    if asked:
        return parse_bytes(asked)
    return free_memory() // 2


def parse_bytes(text: str) -> int:
    """Return the number of bytes in "500MB", "2 GiB" or "1000000"."""
    units = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
    digits = text.strip().rstrip("kmgibKMGIB ")
    unit = text.strip()[len(digits) :].strip().lower()
    try:
        return int(float(digits) * units[unit])
    except (KeyError, ValueError):
        raise InputError(f"METRICFORGE_MEMORY={text!r} is no amount of memory; write for instance 2GB") from None


def show_bytes(size: int) -> str:
    """Return an amount of memory in words."""
    return f"{size / 1e9:.1f} GB" if size >= 10**8 else f"{size / 1e6:.2g} MB"


def check_memory(needed: int, what: str, repair: str) -> None:
    """Raise MemoryBudgetError when ``needed`` bytes exceed the budget."""
    budget = memory_budget()
    if needed > budget:
        raise MemoryBudgetError(
            f"{what} would take {show_bytes(needed)}, and the memory budget is {show_bytes(budget)}; {repair}, "
            "or raise the budget with the environment variable METRICFORGE_MEMORY"
        )


# ------------------------------------------------------------------------------------------------------------ features


@dataclass(frozen=True, eq=False)
class FeatureMap(ComparedByContent):
    """The features φ(x) = k(x, Z) T over landmarks Z, or φ(x) = x T where the kernel has explicit features.

    Blocks are computed in float64 (T is as ill-conditioned as the landmarks) and stored in the rows' own precision.

    Parameters
    ----------
    kernel : Kernel
    landmarks : rows, or None for explicit features
    mix : (l, m) array, or None for the identity
    columns : int
        The number of features m.
    exact : bool
        Whether inner products of features are the kernel's for every row, not only on the span of landmarks.
    """

    kernel: Kernel
    landmarks: Any
    mix: Array | None
    columns: int
    exact: bool = False

    def block(self, X: Any) -> Array:
        """Return the float64 features of rows in memory."""
        X = as_float64(X)
        base: Any = self.kernel.features(X) if self.landmarks is None else self.kernel.block(X, self.landmarks)
        if self.mix is not None:
            return np.asarray(base @ self.mix)
        return np.asarray(base.toarray() if _rows.is_sparse(base) else base)

    def __call__(self, X: Any) -> Any:
        """Return the (n, m) features of checked rows: an array, or a lazy dask array."""
        return _rows.map_rows(self.block, X, self.columns, _rows.float_dtype(X))

    def rotated(self, R: Array, *, exact: bool = False) -> FeatureMap:
        """Return the map φ(x)'R; whether it is exact for the kernel it then stands for, the caller knows."""
        return replace(self, mix=R if self.mix is None else self.mix @ R, columns=R.shape[1], exact=exact)

    def scaled(self, weight: float) -> FeatureMap:
        """Return the map of ``weight`` times the kernel."""
        return self.rotated(np.sqrt(weight) * np.eye(self.columns), exact=self.exact)


@dataclass(frozen=True, eq=False)
class Stacked(ComparedByContent):
    """Several feature maps side by side: the embedding of a sum of kernels."""

    maps: tuple[FeatureMap, ...]

    @property
    def columns(self) -> int:
        """The number of features of all maps together."""
        return sum(part.columns for part in self.maps)

    @property
    def exact(self) -> bool:
        """Whether every map is exact."""
        return all(part.exact for part in self.maps)

    def block(self, X: Any) -> Array:
        """Return the float64 features of rows in memory."""
        return np.concatenate([part.block(X) for part in self.maps], axis=1)

    def __call__(self, X: Any) -> Any:
        """Return the (n, m) features of checked rows: an array, or a lazy dask array."""
        return _rows.map_rows(self.block, X, self.columns, _rows.float_dtype(X))


def explicit_width(kernel: Kernel, X: Any) -> int | None:
    """Return the number of explicit features of a kernel, or None where it has none."""
    row = kernel.features(_rows.take(X, np.arange(1)))
    return None if row is None else int(row.shape[1])


def explicit_map(kernel: Kernel, width: int) -> FeatureMap:
    """Return the map of a kernel that has explicit features."""
    return FeatureMap(kernel, None, None, width, exact=True)


def landmark_map(kernel: Kernel, landmarks: Any) -> FeatureMap:
    """Return the features over given landmarks, dropping those that depend on the others.

    Cost: O(l³) time and 3l² memory for l landmarks.
    """
    from scipy.linalg import solve_triangular

    landmarks = as_float64(landmarks)
    chosen, L = pivoted_cholesky(kernel.block(landmarks, landmarks))
    mix = solve_triangular(L, np.eye(len(L)), lower=True).T
    return FeatureMap(kernel, landmarks[chosen], mix, len(L))


def pivoted_cholesky(K: Array, *, tol: float = RANK_TOL) -> tuple[Array, Array]:
    """Return pivots p and lower triangular L with K[p, p] = LL', as far as K has numerical rank.

    Greedy complete pivoting (LAPACK pstrf): the trace of what is left out is at most (n − r) · tol · max k(x, x).
    """
    from scipy.linalg.lapack import dpstrf

    K = np.asfortranarray(K, dtype=np.float64)
    diagonal = K.diagonal().copy()
    largest = check_diagonal(diagonal)
    C, pivots, rank, _ = dpstrf(K, tol=tol * largest, lower=1)
    pivots = np.asarray(pivots) - 1
    left = diagonal[pivots[rank:]] - np.square(C[rank:, :rank]).sum(axis=1)
    if len(left) and left.min() < -1e-6 * largest:
        raise InputError(
            "kernel is not positive semidefinite on these rows, so it has no Euclidean embedding; "
            "use distance() and kernel(), which need none, or another kernel"
        )
    return pivots[:rank], np.tril(C[:rank, :rank])


def check_diagonal(diagonal: Array) -> float:
    """Return the largest k(x, x), or raise when there are no features to be had from it."""
    if not np.isfinite(diagonal).all():
        raise InputError("X: k(x, x) overflows on some rows; rescale X, for instance with StandardScaler")
    largest = float(diagonal.max()) if len(diagonal) else 0.0
    if not largest > 0:
        raise InputError("kernel: every k(x, x) is zero on these rows, so they have no features; choose another kernel")
    return largest


# ----------------------------------------------------------------------------------------------------------- landmarks


def choose_landmarks(kernel: Kernel, X: Any, m: int, *, how: str = "rpcholesky", seed: int = 0) -> Array:
    """Return the sorted numbers of up to m rows of X that span the kernel well.

    Parameters
    ----------
    how : {"rpcholesky", "kmeans++", "uniform"}
        Randomly pivoted Cholesky (near-optimal trace error, the default), seeding by squared distance, or plain draws.

    The rows are sought among at most 20,000, drawn by number: the choice depends on n, the rows and the seed, not on
    chunks or on where the rows live.  Cost for s of those rows: O(s m) kernel values, O(s m²) flops, 8 s m bytes.

    References
    ----------
    Chen, Epperly, Tropp & Webber (2025), randomly pivoted Cholesky; Epperly, Tropp & Webber (2024), its block form.
    """
    n = _rows.count(X)
    if how not in _LANDMARKS:
        raise InputError(f"how must be one of {', '.join(sorted(_LANDMARKS))}, got {how!r}")
    if how == "uniform" or m >= n:
        return _rows.draw(n, m, seed)
    sample = _rows.draw(n, max(SAMPLE_ROWS, 2 * m), seed)
    check_memory(8 * len(sample) * m, f"choosing {m} landmarks among {len(sample)} rows", "lower the rank")
    rows = as_float64(_rows.take(X, sample))
    chosen = _LANDMARKS[how](kernel, rows, m, np.random.default_rng(seed))
    return np.sort(sample[chosen])


def _randomly_pivoted(kernel: Kernel, X: Any, m: int, rng: np.random.Generator) -> Array:
    """Draw pivots in proportion to the residual diagonal, a block at a time."""
    s, width = _rows.count(X), min(64, m)
    F = np.zeros((s, m), order="F")
    left = kernel.diag(X).astype(np.float64)
    floor = RANK_TOL * check_diagonal(left)
    chosen: list[int] = []
    while len(chosen) < m and left.max() > floor:
        draws = np.unique(rng.choice(s, size=width, p=left / left.sum()))
        r = len(chosen)
        block = kernel.block(X[draws], X[draws]) - F[draws, :r] @ F[draws, :r].T
        # A block holds near-copies of one pivot; keep the ones that still add something after the others.
        accepted, L = _accept(block, m - r)
        pivots = draws[accepted]
        if not len(pivots):  # what is left of these rows is rounding
            left[draws] = 0
            continue
        G = kernel.block(X, X[pivots]) - F[:, :r] @ F[pivots, :r].T
        F[:, r : r + len(pivots)] = np.linalg.solve(L, G.T).T
        left = np.maximum(left - np.square(F[:, r : r + len(pivots)]).sum(axis=1), 0)
        left[pivots] = 0
        chosen.extend(pivots.tolist())
    return np.asarray(chosen, dtype=int)


def _accept(block: Array, most: int) -> tuple[Array, Array]:
    """Pivot inside a block until its residual trace is a small part of what it was; return pivots and factor."""
    b = len(block)
    left = np.maximum(block.diagonal().copy(), 0)
    stop = left.sum() / b
    L = np.zeros((b, b))
    accepted: list[int] = []
    while len(accepted) < min(b, most):
        p = int(left.argmax())
        if left[p] <= 0 or (accepted and left.sum() <= stop):
            break
        r = len(accepted)
        column = (block[:, p] - L[:, :r] @ L[p, :r]) / np.sqrt(left[p])
        L[:, r] = column
        left = np.maximum(left - column**2, 0)
        accepted.append(p)
        left[accepted] = 0
    index = np.asarray(accepted, dtype=int)
    return index, L[index, : len(index)]


def _spread_out(kernel: Kernel, X: Any, m: int, rng: np.random.Generator) -> Array:
    """Draw each landmark in proportion to its squared distance from those already chosen (k-means++)."""
    s = _rows.count(X)
    chosen = [int(rng.integers(s))]
    nearest = kernel.squared_distance(X, X[chosen])[:, 0]
    while len(chosen) < m and nearest.sum() > 0:
        chosen.append(int(rng.choice(s, p=nearest / nearest.sum())))
        nearest = np.minimum(nearest, kernel.squared_distance(X, X[chosen[-1:]])[:, 0])
        nearest[chosen] = 0
    return np.asarray(chosen)


_LANDMARKS: dict[str, Any] = {"rpcholesky": _randomly_pivoted, "kmeans++": _spread_out, "uniform": None}


# --------------------------------------------------------------------------------------------------------------- space


@dataclass(frozen=True, eq=False)
class Space:
    """A kernel represented on the rows of X; the work is done when ``map`` is first asked for.

    Attributes
    ----------
    representation : {"explicit", "exact", "landmarks"}
    rank : int
        The number of features asked for; ``map.columns`` is what the rows have (less with duplicate rows).
    """

    kernel: Kernel
    rows: Any
    representation: str
    rank: int
    seed: int = 0

    @property
    def n(self) -> int:
        """The number of rows."""
        return _rows.count(self.rows)

    @cached_property
    def map(self) -> FeatureMap:
        """The feature map φ."""
        if self.representation == "explicit":
            return explicit_map(self.kernel, self.rank)
        if self.representation == "exact":
            return landmark_map(self.kernel, _rows.take(self.rows, np.arange(self.n)))
        chosen = choose_landmarks(self.kernel, self.rows, self.rank, seed=self.seed)
        return landmark_map(self.kernel, _rows.take(self.rows, chosen))

    @cached_property
    def features(self) -> Any:
        """The (n, m) features of all rows: an array, or a lazy dask array."""
        if not _rows.is_dask(self.rows):
            size = _rows.float_dtype(self.rows).itemsize
            check_memory(self.n * self.map.columns * size, f"{self.n} × {self.map.columns} features", "lower the rank")
        return self.map(self.rows)

    def left_out(self) -> float:
        """Return the share of k(x, x) that the features leave out, on a sample of rows (0 where exact)."""
        if self.map.exact:
            return 0.0
        rows = as_float64(_rows.take(self.rows, _rows.draw(self.n, 1000, self.seed)))
        total = self.kernel.diag(rows)
        kept = np.square(self.map.block(rows)).sum(axis=1)
        return float(np.maximum(total - kept, 0).sum() / total.sum())


def represent(kernel: Kernel, X: Any, rank: str | int = "auto", *, seed: int = 0) -> Space:
    """Choose how ``kernel`` is represented on the checked rows ``X``.

    ``"exact"`` keeps all rows (n² memory: refused when it does not fit the budget), an integer that many landmarks,
    ``"auto"`` explicit features where the kernel has them and they are narrow, all rows up to 3000, then 500 landmarks.
    """
    n = _rows.count(X)
    # Gram matrix, its factor and the workspace of the factorisation
    exact_bytes = 3 * 8 * n * n
    if rank == "exact":
        check_memory(exact_bytes, f'rank="exact" on {n} rows', 'use rank="auto" or a number of landmarks')
        return Space(kernel, X, "exact", n, seed)
    if rank == "auto":
        d = explicit_width(kernel, X)
        if d is not None and d <= min(n, EXPLICIT_COLUMNS):
            return Space(kernel, X, "explicit", d, seed)
        if n <= EXACT_ROWS and exact_bytes <= memory_budget():
            return Space(kernel, X, "exact", n, seed)
        return Space(kernel, X, "landmarks", min(n, AUTO_RANK), seed)
    if isinstance(rank, bool) or not isinstance(rank, int | np.integer) or rank < 1:
        raise InputError(f'rank must be "auto", "exact" or a positive whole number, got {rank!r}')
    if rank >= n:
        check_memory(exact_bytes, f"rank={rank} on {n} rows", "lower the rank")
        return Space(kernel, X, "exact", n, seed)
    return Space(kernel, X, "landmarks", int(rank), seed)


# ------------------------------------------------------------------------------------------------------ learned kernels


@dataclass(frozen=True, eq=False)
class LearnedKernel(ComparedByContent, Kernel):
    """The kernel a·k(x, y) + φ(x)'Wφ(y) with aI + W ⪰ 0, on the features φ of a base kernel k.

    Parameters
    ----------
    map : FeatureMap
        φ, which also holds the base kernel.
    W : (m, m) symmetric array
    a : float >= 0
        The weight of the base kernel; it carries what the landmarks do not span.
    """

    map: FeatureMap
    W: Array
    a: float = 0.0

    def __post_init__(self) -> None:
        m = self.map.columns
        if np.shape(self.W) != (m, m):
            raise InputError(f"W must be {m} × {m}, one row per feature, got shape {np.shape(self.W)}")
        if not (np.isfinite(self.W).all() and 0 <= self.a < np.inf):
            raise InputError("W must be finite and a a finite number >= 0")

    @property
    def base(self) -> Kernel:
        """The kernel whose features these are."""
        return self.map.kernel

    @property
    def takes(self) -> str:
        """What the base takes."""
        return self.base.takes

    def validate(self, X: Any, name: str) -> None:
        """Let the base look at the rows, and compare their width with the landmarks'."""
        self.base.validate(X, name)
        d = _rows.width(self.map.landmarks)
        if d is not None and _rows.width(X) != d:
            raise InputError(f"{name} has {_rows.width(X)} features, but the metric was learned on {d}")

    def resolve(self, X: Any, *, seed: int = 0) -> LearnedKernel:
        """Return itself: it was resolved when it was learned."""
        return self

    @cached_property
    def root(self) -> Array:
        """R with RR' = aI + W."""
        return psd.factor(self.a * np.eye(len(self.W)) + self.W)

    def embedding(self) -> FeatureMap:
        """Return the map φ(x)'R, whose inner products are this kernel on the span of the landmarks."""
        return self.map.rotated(self.root, exact=self.a == 0 or self.map.exact)

    def block(self, X: Any, Y: Any) -> Array:
        """Return a K + Φ_X W Φ_Y'."""
        K = (self.map.block(X) @ self.W) @ self.map.block(Y).T
        if self.a:
            K += self.a * self.base.block(X, Y)
        return K.astype(np.result_type(_rows.float_dtype(X), _rows.float_dtype(Y)), copy=False)

    def paired(self, X: Any, Y: Any) -> Array:
        """Return a k(x_i, y_i) + φ(x_i)'Wφ(y_i)."""
        k: Array = np.einsum("ij,ij->i", self.map.block(X) @ self.W, self.map.block(Y))
        if self.a:
            k += self.a * self.base.paired(X, Y)
        return k

    def squared_distance(self, X: Any, Y: Any) -> Array:
        """Return ‖R'(φ(x) − φ(y))‖², plus a times what the landmarks leave out of the base distance."""
        P, Q = self.map.block(X), self.map.block(Y)
        D = squared_euclidean(P @ self.root, Q @ self.root)
        if self.a and not self.map.exact:
            D += self.a * np.maximum(self.base.squared_distance(X, Y) - squared_euclidean(P, Q), 0)
        return D.astype(np.result_type(_rows.float_dtype(X), _rows.float_dtype(Y)), copy=False)

    def paired_squared_distance(self, X: Any, Y: Any) -> Array:
        """Return the squared distances row by row."""
        Z = self.map.block(X) - self.map.block(Y)
        D: Array = np.square(Z @ self.root).sum(axis=1)
        if self.a and not self.map.exact:
            D += self.a * np.maximum(self.base.paired_squared_distance(X, Y) - np.square(Z).sum(axis=1), 0)
        return D


def embedding(kernel: Kernel, X: Any, rank: str | int, *, seed: int = 0) -> FeatureMap | Stacked:
    """Return a map whose Euclidean distances are the kernel's: its own where it has one, else landmarks among X."""
    own: FeatureMap | None = kernel.embedding()
    if own is not None:
        return own
    if X is None:
        raise InputError("this metric keeps no training rows to take landmarks from; learn it again")
    if isinstance(kernel, Mixture) and any(_has_map(part, X) for part in kernel.kernels):
        return _stack(kernel, X, rank, seed)
    width = explicit_width(kernel, X)
    if rank == "auto" and width is not None and width <= EXPLICIT_COLUMNS:
        return explicit_map(kernel, width)  # also where there are fewer rows: new rows must not lose anything
    return represent(kernel, X, rank, seed=seed).map


def _has_map(kernel: Kernel, X: Any) -> bool:
    return kernel.embedding() is not None or explicit_width(kernel, X) is not None


def _stack(kernel: Mixture, X: Any, rank: str | int, seed: int) -> Stacked:
    maps: list[FeatureMap] = []
    for weight, part in zip(kernel.weights, kernel.kernels, strict=True):
        if weight < 0:
            raise InputError(
                "kernel: a sum with a negative weight has no Euclidean embedding; use distance() or kernel()"
            )
        if weight == 0:
            continue
        inside = embedding(part, X, rank, seed=seed)
        for one in inside.maps if isinstance(inside, Stacked) else (inside,):
            maps.append(one.scaled(weight))
    return Stacked(tuple(maps))
