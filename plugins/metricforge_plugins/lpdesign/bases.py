"""The kernels of a mixture: on single features, on directions learned from the triples, or given by the user."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np

from metricforge.errors import InputError
from metricforge.kernels import Kernel, RateKernel, Standardized, Transformed, Weak, check_on_vectors
from metricforge.rows import Array, as_float64, blocks, column_range, count, draw, float_dtype, is_sparse, take, width
from metricforge.space import check_memory

RATE_ROWS = 256
"""Rows whose differences determine the rate on each line: 32,000 pairs."""
CHECK_ROWS = 200
"""Rows on which a given base is tested for symmetry and positive semidefiniteness."""
GLOBAL_SHARE = 0.1
"""The share of the directions computed from all triples; the others are computed from triples of one neighbourhood."""
NEIGHBOURHOOD = 0.2
"""The share of the triples in a neighbourhood."""
EQUALLY_NEAR = 1e-9
"""Triples whose distances differ by no more than this share are equally near."""
SMALLEST_RANGE = 1e-10
"""The smallest range of x'v, as a share of Σ |x_f v_f|: rounding of the sum is a millionth of it."""
LARGE_OFFSET = 1e4
"""Coordinates whose terms are this many times their range are measured from a row instead of from 0."""
PER_NEIGHBOURHOOD = 2
"""Directions computed from each neighbourhood."""
BASE_BYTES = 1000
"""Memory of the kernel objects on one direction, besides the direction itself."""
SCREENED_NUMBERS = 2**20
"""Numbers of a block in which features are judged, for each of three rows of a triple."""
RIDGE = 0.1
"""The ridge that makes the scatter of similar rows invertible, as a share of the scatter of all."""


@dataclass(frozen=True)
class Projected(Transformed):
    """Another kernel on a single direction: on the coordinate (x − o)'v.

    Parameters
    ----------
    kernel : Kernel on vectors
    direction : tuple of floats
        The vector v, one number per column.
    origin : tuple of floats
        The row o that coordinates are measured from; () means 0.  Beside a large offset, x'v would lose digits.
    """

    offered: ClassVar[bool] = False

    kernel: Kernel
    direction: tuple[float, ...] = field(kw_only=True)
    origin: tuple[float, ...] = field(default=(), kw_only=True)

    def __post_init__(self) -> None:
        check_on_vectors(self.kernel, "kernel")
        direction = tuple(float(v) for v in self.direction)
        if not direction or not np.isfinite(direction).all() or not any(direction):
            raise InputError(f"direction must contain finite numbers that are not all zero, got {self.direction!r}")
        object.__setattr__(self, "direction", direction)
        origin = tuple(float(o) for o in self.origin)
        if origin and (len(origin) != len(direction) or not np.isfinite(origin).all()):
            raise InputError(f"origin must contain {len(direction)} finite numbers, as the direction does")
        object.__setattr__(self, "origin", origin)

    def validate(self, X: Any, name: str) -> None:
        """Raise when X has another number of columns."""
        if X.shape[1] != len(self.direction):
            raise InputError(f"{name} has {X.shape[1]} columns, but the direction has {len(self.direction)}")
        self.kernel.validate(np.empty((0, 1)), f"a direction of {name}")

    def transform(self, X: Any) -> Any:
        """Return (x − o)'v as an (n, 1) array."""
        column = coordinates(X, np.asarray(self.direction), np.asarray(self.origin))
        return column[:, None].astype(float_dtype(X), copy=False)

    def affine(self, d: int) -> Array:
        """Return the matrix of x ↦ (x − o)'v."""
        T = np.zeros((d + 1, 2))
        T[:d, 0], T[d, 1] = self.direction, 1.0
        if self.origin:
            T[d, 0] = -np.dot(self.origin, self.direction)
        return T


def coordinates(X: Any, v: Array, origin: Array) -> Array:
    """Return (x − o)'v of every row; an empty origin means 0.  Sparse rows become dense in the columns with o ≠ 0."""
    if not origin.any():
        return np.asarray(X @ v)
    if not is_sparse(X):
        return np.asarray((X - origin) @ v)
    moved = np.flatnonzero(origin)
    rest = np.where(origin == 0, v, 0.0)
    return np.asarray(X @ rest + (X[:, moved].toarray() - origin[moved]) @ v[moved])


def origin_of(X: Any) -> Array:
    """Return a point to measure coordinates from: the smallest value of the columns that are all above or below 0.

    In other columns it is 0, which sparse rows do not store.
    """
    low, high = column_range(X)
    return np.where((low > 0) | (high < 0), low, 0.0)


# ------------------------------------------------------------------------------------------------- building the bases


def weak_kernels(
    kernel: Kernel, rows: Any, widths: Sequence[float], *, seed: int, features: Array | None = None
) -> list[Kernel]:
    """Return the base kernel on each feature that varies, or on those of ``features`` that do, at each width.

    If the base kernel has a rate (RBF, Laplacian, Cauchy), the rate on a feature is
    width × (median rule on that feature) × (its gamma / median rule on all features); the last factor is 1 for
    ``gamma="median"``.  A kernel without a rate is used once per feature.
    """
    if kernel.takes != "vectors":
        raise InputError(
            f'bases="weak" needs rows with features, but {type(kernel).__name__} takes {kernel.takes}; '
            "give a list of kernels instead, for instance bases=[mf.kernels.Spectrum(2), mf.kernels.Spectrum(3)]"
        )
    low, high = column_range(rows)
    sample = _sample(rows, seed)
    family = _Family(kernel, rows, widths, seed)
    made: list[Kernel] = []
    varying = np.flatnonzero(low != high)
    for feature in varying if features is None else np.intersect1d(varying, features):
        column = dense(sample[:, [feature]])
        if column.min() == column.max():  # a rare value that is not in the sample
            column = np.array([[low[feature]], [high[feature]]])
        made.extend(Weak(part, feature=int(feature)) for part in family.on(column))
    if not made:
        raise InputError("X: every feature is constant, so no two rows differ; check the columns of X")
    return made


def directed_kernels(
    kernel: Kernel, rows: Any, widths: Sequence[float], directions: Array, *, seed: int
) -> list[Kernel]:
    """Return the base kernel on each direction (a column of ``directions``), at each width; rates as there."""
    sample = _sample(rows, seed)
    family = _Family(kernel, rows, widths, seed)
    origin = origin_of(sample)
    made: list[Kernel] = []
    for v in directions.T:
        column = coordinates(sample, v, origin)[:, None]  # rates follow from differences, which an offset rounds
        extent = float(column.max() - column.min())
        # if rows differ by rounding only, blocks of another shape would compute another kernel
        size = float((abs(sample) @ np.abs(v)).max())
        if extent > SMALLEST_RANGE * size:
            # kernels of differences, and those that subtract the mean, may be measured from any row
            shifted = isinstance(family.kernel, Standardized) or (
                isinstance(family.kernel, RateKernel) and size > LARGE_OFFSET * extent
            )
            point = tuple(origin.tolist()) if shifted else ()
            made.extend(Projected(part, direction=tuple(v), origin=point) for part in family.on(column))
    return made


class _Family:
    """The base kernel at several widths on a line."""

    def __init__(self, kernel: Kernel, rows: Any, widths: Sequence[float], seed: int) -> None:
        self.kernel, self.widths, self.rate = kernel, widths, 1.0
        if isinstance(kernel, Standardized) and isinstance(kernel.kernel, RateKernel):
            # the rate on a line is in units of that line, so scaled columns give the same kernels
            typical = replace(kernel, kernel=replace(kernel.kernel, gamma="median")).resolve(rows, seed=seed).kernel
            self.kernel = kernel.kernel
        elif isinstance(kernel, RateKernel):
            typical = replace(kernel, gamma="median").resolve(rows, seed=seed)
        if isinstance(self.kernel, RateKernel):
            assert isinstance(typical, RateKernel)
            self.rate = float(self.kernel.gamma) / float(typical.gamma)
        if isinstance(self.kernel, Standardized):  # measured on all columns, and on each line again
            self.kernel = replace(self.kernel, mean=None, spread=None)
        try:
            self.kernel.validate(np.empty((0, 1)), "a row of one feature")
        except InputError as error:
            raise InputError(
                f"kernel must take one feature at a time ({error}); give another kernel, or kernels on all features, "
                "for instance bases=[mf.kernels.RBF(0.1), mf.kernels.RBF(1.0)]"
            ) from None

    def on(self, column: Array) -> list[Kernel]:
        if isinstance(self.kernel, Standardized):
            return [self.kernel.resolve(column)]
        if not isinstance(self.kernel, RateKernel):
            return [self.kernel]
        typical = replace(self.kernel, gamma="median").resolve(column)
        return [replace(self.kernel, gamma=self.rate * w * float(typical.gamma)) for w in self.widths]


def telling_features(X: Any, triples: Array, most: int) -> Array:
    """Return the ``most`` features in which dissimilar rows differ most compared with similar ones, in order.

    A feature is judged by (D − S) / (D + S), where D is the sum of (x_i − x_k)² over the triples and S that of
    (x_i − x_j)².  This does not depend on its scale.
    """
    d = width(X)
    assert d is not None
    score = np.full(d, -1.0)
    at_once = max(1, SCREENED_NUMBERS // len(triples))
    for start in range(0, d, at_once):
        block = slice(start, start + at_once)
        i, j, k = (dense(X[:, block])[rows] for rows in triples.T)
        similar, dissimilar = ((i - j) ** 2).sum(axis=0), ((i - k) ** 2).sum(axis=0)
        np.divide(dissimilar - similar, dissimilar + similar, out=score[block], where=dissimilar + similar > 0)
    return np.sort(np.argsort(-score, kind="stable")[:most])


def triple_directions(X: Any, triples: Array, n_directions: int, *, seed: int) -> Array:
    """Return up to ``n_directions`` directions, as columns, that separate dissimilar rows but not similar ones.

    They are generalised eigenvectors of Σ (x_i − x_k)(x_i − x_k)' and Σ (x_i − x_j)(x_i − x_j)': a tenth of them over
    all triples; the others, two at a time, over the fifth of the triples whose i is nearest to that of a random triple.
    They are equivariant under scaling of the features.

    Cost: O((n_directions) (T d² / 10 + d³)) time, O(T d + d²) memory.
    """
    T, d = len(triples), width(X)
    assert d is not None
    check_memory(8 * (3 * T * d + 4 * d * d), f"directions from {T} triples of {d} features", 'use bases="weak"')
    check_memory(n_directions * (64 * d + BASE_BYTES), f"n_directions={n_directions}", "use fewer")
    Z = np.asarray(dense(X), dtype=np.float64)
    spread = Z.std(axis=0)
    Z = (Z - Z.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    i, j, k = triples.T
    dissimilar, similar = Z[i] - Z[k], Z[i] - Z[j]
    found = [_leading_directions(dissimilar, similar, max(1, round(GLOBAL_SHARE * n_directions)))]
    rng = np.random.default_rng(seed)
    near = min(T, max(int(NEIGHBOURHOOD * T), 2 * d))
    for _ in range(0, n_directions - found[0].shape[1] if near < T else 0, min(d, PER_NEIGHBOURHOOD)):
        distance = np.square(Z[i] - Z[i[rng.integers(T)]]).sum(axis=1)
        # with all triples that are as near as the last one: rounding must not choose among those of one row
        chosen = np.flatnonzero(distance <= (1 + EQUALLY_NEAR) * np.partition(distance, near - 1)[near - 1])
        found.append(_leading_directions(dissimilar[chosen], similar[chosen], PER_NEIGHBOURHOOD))
    V = np.concatenate(found, axis=1)[:, :n_directions]
    V /= np.where(spread > 0, spread, np.inf)[:, None]
    length = np.linalg.norm(V, axis=0)
    return np.asarray(V[:, length > 0] / length[length > 0])  # none along constant features


def _leading_directions(dissimilar: Array, similar: Array, m: int) -> Array:
    """Return the m leading generalised eigenvectors of the two scatters."""
    from scipy.linalg import eigh

    A, B = dissimilar.T @ dissimilar, similar.T @ similar
    d = len(A)
    both = (A.diagonal() + B.diagonal()) / 2
    B[np.diag_indices(d)] += RIDGE * both + 1e-9 * max(both.max(), 1.0)
    V: Array = eigh(A, B, subset_by_index=[max(0, d - m), d - 1])[1]
    return V[:, ::-1]


def margins(kernels: Sequence[Kernel], X: Any, triples: Array) -> Array:
    """Return K_p,ij − K_p,ik, (T, k), without a Gram matrix."""
    D = np.empty((len(triples), len(kernels)))
    for line, positions in _by_line(kernels):
        # bases on the same line share its coordinates, which are computed once for every row
        rows = X if line is None else dense(line.transform(X))
        parts = [kernels[p] if line is None else kernels[p].kernel for p in positions]  # type: ignore[attr-defined]
        for part in blocks(len(triples), 8 * 3 * (width(rows) or 32)):
            A, B, C = (rows[index] for index in triples[part].T)
            for p, kernel in zip(positions, parts, strict=True):
                D[part, p] = kernel.paired(A, B) - kernel.paired(A, C)
    return D


def _by_line(kernels: Sequence[Kernel]) -> list[tuple[Weak | Projected | None, list[int]]]:
    """Return the positions of the bases on each line, with one of them; None for bases on whole rows."""
    found: dict[Any, tuple[Weak | Projected | None, list[int]]] = {}
    for p, kernel in enumerate(kernels):
        on_line = isinstance(kernel, Weak | Projected)
        key = line_of(kernel, p) if on_line else None
        found.setdefault(key, (kernel if on_line else None, []))[1].append(p)  # type: ignore[arg-type]
    return list(found.values())


def as_groups(kernels: Sequence[Kernel], given: Sequence[Any] | None) -> Array:
    """Return the group number of each base; by default bases on the same feature or direction share a group."""
    if given is not None:
        if len(given) != len(kernels):
            raise InputError(
                f"groups must name one group per base: there are {len(kernels)} bases and {len(given)} entries"
            )
        keys = list(given)
    else:
        keys = [line_of(kernel, p) for p, kernel in enumerate(kernels)]
    numbers: dict[Any, int] = {}
    return np.asarray([numbers.setdefault(key, len(numbers)) for key in keys])


def line_of(kernel: Kernel, position: int) -> Any:
    """Return what identifies the feature or direction of a base; any other base is on its own."""
    if isinstance(kernel, Weak):
        return "feature", kernel.feature
    if isinstance(kernel, Projected):
        return "direction", kernel.direction
    return "base", position


def feature_weights(kernels: Sequence[Kernel], weights: Array, X: Any) -> Array:
    """Return the weight of each feature of X.

    The |α| of a weak kernel counts for its feature.  That of a direction v is shared by all features in proportion to
    |v_f| times the range of the feature, which does not depend on its unit, that of any other kernel equally.
    """
    d = width(X)
    total = np.zeros(d or 0)
    if d is None:
        return total
    low, high = column_range(X)
    for kernel, weight in zip(kernels, np.abs(weights), strict=True):
        if isinstance(kernel, Weak):
            total[kernel.feature] += weight
        elif isinstance(kernel, Projected):
            part = np.abs(kernel.direction) * (high - low)
            total += weight * part / (part.sum() or 1.0)
        else:
            total += weight / d
    return total


def check_rows(bases: Sequence[Kernel], kernel: Kernel, rows: Any) -> None:
    """Raise InputError unless given bases take the rows that the base kernel takes."""
    for p, base in enumerate(bases):
        if base.takes != kernel.takes:
            raise InputError(
                f"bases[{p}] = {base!r} takes {base.takes}, but the rows are {kernel.takes}; remove it, "
                f"or give a kernel on {base.takes} as kernel= and rows to match"
            )
        base.validate(rows, "X")


def check_values(bases: Sequence[Kernel], rows: Any, *, definite: bool, seed: int) -> None:
    """Raise InputError unless bases are finite, symmetric and, if ``definite``, PSD on a sample of rows."""
    sample = as_float64(take(rows, draw(count(rows), CHECK_ROWS, seed)))
    for p, base in enumerate(bases):
        K = base.block(sample, sample)
        if not np.isfinite(K).all():
            raise InputError(f"bases[{p}] = {base!r} is not finite on these rows; scale the rows, or remove it")
        scale = float(np.abs(K).max()) or 1.0
        if np.abs(K - K.T).max() > 1e-8 * scale:
            raise InputError(f"bases[{p}] = {base!r} is not symmetric; use (k(x, y) + k(y, x)) / 2")
        if definite:
            smallest = float(np.linalg.eigvalsh((K + K.T) / 2)[0])
            if smallest < -1e-8 * len(K) * scale:
                raise InputError(
                    f"bases[{p}] = {base!r} is not positive semidefinite (an eigenvalue is {smallest:.3g} on "
                    f'{len(K)} rows), which cone="nonneg" needs; use cone="dd", or remove it'
                )


def _sample(rows: Any, seed: int) -> Any:
    return as_float64(take(rows, draw(count(rows), RATE_ROWS, seed)))


def dense(X: Any) -> Any:
    """Return rows as a dense array."""
    return X.toarray() if is_sparse(X) else X
