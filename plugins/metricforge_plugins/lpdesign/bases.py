"""The kernels a mixture is made of: weak ones on single features, on directions learned from the triples, or given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricforge.errors import InputError
from metricforge.kernels import RBF, Cauchy, Kernel, Laplacian, Weak
from metricforge.rows import as_float64, count, draw, float_dtype, fold, is_sparse, take, width
from metricforge.space import check_memory

Array = NDArray[Any]

RATE_ROWS = 256
"""Rows whose differences set the rate on each line: 32,000 pairs."""
CHECK_ROWS = 200
"""Rows on which a given base is tested for symmetry and positive semidefiniteness."""
GLOBAL_SHARE = 0.1
"""The part of the directions that come from all triples; the others come from triples of one neighbourhood."""
NEIGHBOURHOOD = 0.2
"""The part of the triples that a neighbourhood holds."""
PER_NEIGHBOURHOOD = 2
"""Directions taken from each neighbourhood."""
RIDGE = 0.1
"""What is added to the scatter of alike rows, as a part of the scatter of all: it must be invertible."""


@dataclass(frozen=True)
class Projected(Kernel):
    """Another kernel, on one direction only: it sees nothing but the coordinate x'v.

    Parameters
    ----------
    kernel : Kernel on vectors
    direction : tuple of floats
        The vector v, one number per column.
    """

    kernel: Kernel
    direction: tuple[float, ...] = field(kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.kernel, Kernel) or self.kernel.takes != "vectors":
            raise InputError(f"kernel must be a kernel on vectors, got {self.kernel!r}")
        direction = tuple(float(v) for v in self.direction)
        if not direction or not np.isfinite(direction).all() or not any(direction):
            raise InputError(f"direction must hold finite numbers that are not all zero, got {self.direction!r}")
        object.__setattr__(self, "direction", direction)

    def validate(self, X: Any, name: str) -> None:
        """Raise when X has another number of columns."""
        if X.shape[1] != len(self.direction):
            raise InputError(f"{name} has {X.shape[1]} columns, but the direction has {len(self.direction)}")

    def resolve(self, X: Any, *, seed: int = 0) -> Projected:
        """Resolve the kernel on the coordinate."""
        return replace(self, kernel=self.kernel.resolve(self._coordinate(X), seed=seed))

    def block(self, X: Any, Y: Any) -> Array:
        """Return the kernel's block on the coordinate."""
        return self.kernel.block(self._coordinate(X), self._coordinate(Y))

    def paired(self, X: Any, Y: Any) -> Array:
        """Return the kernel's paired values on the coordinate."""
        return self.kernel.paired(self._coordinate(X), self._coordinate(Y))

    def squared_distance(self, X: Any, Y: Any) -> Array:
        """Return the kernel's squared distances on the coordinate."""
        return self.kernel.squared_distance(self._coordinate(X), self._coordinate(Y))

    def paired_squared_distance(self, X: Any, Y: Any) -> Array:
        """Return the kernel's paired squared distances on the coordinate."""
        return self.kernel.paired_squared_distance(self._coordinate(X), self._coordinate(Y))

    def _coordinate(self, X: Any) -> Any:
        v = np.asarray(self.direction)[:, None]
        return (X @ v).astype(float_dtype(X), copy=False)


# ------------------------------------------------------------------------------------------------- building the bases


def weak_kernels(kernel: Kernel, rows: Any, widths: Sequence[float], *, seed: int) -> list[Kernel]:
    """Return the base kernel on each feature that varies, at each width.

    The base kernel gives the shape.  Where it has a rate (RBF, Laplacian, Cauchy), the rate on a feature is
    width × (median rule on that feature) × (its gamma / median rule on all features): the last factor is 1 for
    ``gamma="median"``.  Kernels without a rate come once per feature.
    """
    if kernel.takes != "vectors":
        raise InputError(
            f'bases="weak" needs rows with features, but {type(kernel).__name__} takes {kernel.takes}; '
            "give a list of kernels instead, for instance bases=[mf.kernels.Spectrum(2), mf.kernels.Spectrum(3)]"
        )
    low, minus_high = fold(_ends, _least, rows)
    sample = _sample(rows, seed)
    family = _Family(kernel, rows, widths, seed)
    made: list[Kernel] = []
    for feature in np.flatnonzero(low != -minus_high):
        column = _dense(sample[:, [feature]])
        if column.min() == column.max():  # a rare value, which the sample has missed
            column = np.array([[low[feature]], [-minus_high[feature]]])
        made.extend(Weak(part, feature=int(feature)) for part in family.on(column))
    if not made:
        raise InputError("X: every feature is constant, so no kernel can tell two rows apart")
    return made


def directed_kernels(
    kernel: Kernel, rows: Any, widths: Sequence[float], directions: Array, *, seed: int
) -> list[Kernel]:
    """Return the base kernel on each direction (a column of ``directions``), at each width; rates as above."""
    sample = _sample(rows, seed)
    family = _Family(kernel, rows, widths, seed)
    made: list[Kernel] = []
    for v in directions.T:
        column = _dense(sample @ v[:, None])
        if column.min() < column.max():
            made.extend(Projected(part, direction=tuple(v)) for part in family.on(column))
    return made


class _Family:
    """The base kernel at several widths on a line."""

    def __init__(self, kernel: Kernel, rows: Any, widths: Sequence[float], seed: int) -> None:
        self.kernel, self.widths, self.rate = kernel, widths, 1.0
        if isinstance(kernel, RBF | Laplacian | Cauchy):
            typical = replace(kernel, gamma="median").resolve(rows, seed=seed)
            self.rate = float(kernel.gamma) / float(typical.gamma)

    def on(self, column: Array) -> list[Kernel]:
        if not isinstance(self.kernel, RBF | Laplacian | Cauchy):
            return [self.kernel]
        typical = replace(self.kernel, gamma="median").resolve(column)
        return [replace(self.kernel, gamma=self.rate * w * float(typical.gamma)) for w in self.widths]


def triple_directions(X: Any, triples: Array, n_directions: int, *, seed: int) -> Array:
    """Return up to ``n_directions`` directions, as columns, along which unlike rows are far and alike rows near.

    Generalised eigenvectors of Σ (x_i − x_k)(x_i − x_k)' against Σ (x_i − x_j)(x_i − x_j)': a tenth of them over all
    triples, the others over the fifth of the triples whose i is nearest to that of a random triple, two each.  Scaling
    a feature scales the directions with it.

    Cost: O((n_directions) (T d² / 10 + d³)) time, O(T d + d²) memory.
    """
    T, d = len(triples), width(X)
    assert d is not None
    check_memory(8 * (3 * T * d + 4 * d * d), f"directions from {T} triples of {d} features", 'use bases="weak"')
    Z = np.asarray(_dense(X), dtype=np.float64)
    spread = Z.std(axis=0)
    Z = (Z - Z.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    i, j, k = triples.T
    unlike, alike = Z[i] - Z[k], Z[i] - Z[j]
    found = [_most_telling(unlike, alike, max(1, round(GLOBAL_SHARE * n_directions)))]
    rng = np.random.default_rng(seed)
    near = min(T, max(int(NEIGHBOURHOOD * T), 2 * d))
    while near < T and sum(V.shape[1] for V in found) < n_directions:
        distance = np.square(Z[i] - Z[i[rng.integers(T)]]).sum(axis=1)
        chosen = np.argpartition(distance, near)[:near]
        found.append(_most_telling(unlike[chosen], alike[chosen], PER_NEIGHBOURHOOD))
    V = np.concatenate(found, axis=1)[:, :n_directions]
    V /= np.where(spread > 0, spread, np.inf)[:, None]
    return np.asarray(V / np.linalg.norm(V, axis=0))


def _most_telling(unlike: Array, alike: Array, m: int) -> Array:
    """Return the m leading generalised eigenvectors of the two scatters."""
    from scipy.linalg import eigh

    A, B = unlike.T @ unlike, alike.T @ alike
    d = len(A)
    both = (A.diagonal() + B.diagonal()) / 2
    B[np.diag_indices(d)] += RIDGE * both + 1e-9 * max(both.max(), 1.0)
    V: Array = eigh(A, B, subset_by_index=[max(0, d - m), d - 1])[1]
    return V[:, ::-1]


def as_groups(kernels: Sequence[Kernel], given: Sequence[Any] | None) -> Array:
    """Return the group number of each base: by default those on one feature or one direction share a group."""
    if given is not None:
        if len(given) != len(kernels):
            raise InputError(
                f"groups must name one group for each base: there are {len(kernels)} bases and {len(given)} entries"
            )
        keys = list(given)
    else:
        keys = [_line_of(kernel, p) for p, kernel in enumerate(kernels)]
    numbers: dict[Any, int] = {}
    return np.asarray([numbers.setdefault(key, len(numbers)) for key in keys])


def _line_of(kernel: Kernel, position: int) -> Any:
    if isinstance(kernel, Weak):
        return "feature", kernel.feature
    if isinstance(kernel, Projected):
        return "direction", kernel.direction
    return "base", position


def feature_weights(kernels: Sequence[Kernel], weights: Array, X: Any) -> Array:
    """Return how much weight rests on each of the features of X.

    A weak kernel's |α| counts for its feature, that of a direction v for all features by how far they move x'v, which
    is |v_f| times the range of the feature whatever its unit, and that of any other kernel for all features alike.
    """
    d = width(X)
    total = np.zeros(d or 0)
    if d is None:
        return total
    low, minus_high = _ends(X)
    for kernel, weight in zip(kernels, np.abs(weights), strict=True):
        if isinstance(kernel, Weak):
            total[kernel.feature] += weight
        elif isinstance(kernel, Projected):
            part = np.abs(kernel.direction) * (-minus_high - low)
            total += weight * part / (part.sum() or 1.0)
        else:
            total += weight / d
    return total


def check_rows(bases: Sequence[Kernel], kernel: Kernel, rows: Any) -> None:
    """Raise unless given bases take the rows that the base kernel takes."""
    for p, base in enumerate(bases):
        if base.takes != kernel.takes:
            raise InputError(
                f"bases[{p}] = {base!r} takes {base.takes}, but the rows are {kernel.takes}; leave it out, "
                f"or give a kernel on {base.takes} as kernel= and rows to match"
            )
        base.validate(rows, "X")


def check_values(bases: Sequence[Kernel], rows: Any, *, definite: bool, seed: int) -> None:
    """Raise unless bases are finite, symmetric and, where asked, positive semidefinite on a sample of rows."""
    sample = as_float64(take(rows, draw(count(rows), CHECK_ROWS, seed)))
    for p, base in enumerate(bases):
        K = base.block(sample, sample)
        if not np.isfinite(K).all():
            raise InputError(f"bases[{p}] = {base!r} is not finite on these rows; scale the rows, or leave it out")
        scale = float(np.abs(K).max()) or 1.0
        if np.abs(K - K.T).max() > 1e-8 * scale:
            raise InputError(f"bases[{p}] = {base!r} is not symmetric, so it is no similarity; use (k + k') / 2")
        if definite:
            smallest = float(np.linalg.eigvalsh((K + K.T) / 2)[0])
            if smallest < -1e-8 * len(K) * scale:
                raise InputError(
                    f"bases[{p}] = {base!r} is not positive semidefinite (an eigenvalue is {smallest:.3g} on "
                    f'{len(K)} rows), which cone="nonneg" needs; use cone="dd", or leave it out'
                )


def _sample(rows: Any, seed: int) -> Any:
    return as_float64(take(rows, draw(count(rows), RATE_ROWS, seed)))


def _dense(X: Any) -> Any:
    return X.toarray() if is_sparse(X) else X


def _ends(X: Any) -> Array:
    """Return the smallest value of each column, and minus the largest."""
    low, high = X.min(axis=0), X.max(axis=0)
    return np.stack([np.ravel(_dense(low)), -np.ravel(_dense(high))])


def _least(parts: list[Array]) -> Array:
    return np.asarray(np.min(parts, axis=0))
