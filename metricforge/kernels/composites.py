"""Kernels made of other kernels: sums, products, normalised kernels, and kernels on transformed rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np

from .. import rows as _rows
from ..errors import InputError
from ..rows import Array, ComparedByContent, quiet
from ..validation import one_of, shown, whole_number
from .arithmetic import inverse_root
from .interface import Kernel
from .parameters import check_is_kernel, check_on_vectors, sample_rows
from .vectors import Linear

TRANSFORM_BYTES = 2**20
"""Rows that `Standardized` subtracts from and divides at a time: they stay in the cache in between."""


class _Composite(Kernel):
    """A kernel made of others, which must all take the same kind of rows."""

    @property
    def kernels_inside(self) -> tuple[Kernel, ...]:
        """The kernels that this one is made of."""
        return tuple(part for _, part in self._kernel_fields())

    @property
    def takes(self) -> str:
        """What the parts take."""
        kinds = {part.takes for part in self.kernels_inside}
        if len(kinds) > 1:
            raise InputError(
                f"kernels of one sum or product must take the same rows, got {' and '.join(sorted(kinds))}"
            )
        return kinds.pop()

    @property
    def scale_free(self) -> bool:
        """Whether no part depends on the scales of the columns."""
        return all(part.scale_free for part in self.kernels_inside)

    @property
    def widest(self) -> int:
        """That of the widest part."""
        return max(part.widest for part in self.kernels_inside)

    def validate(self, X: Any, name: str) -> None:
        """Validate X against every part."""
        for part in self.kernels_inside:
            part.validate(X, name)


@dataclass(frozen=True)
class Mixture(_Composite):
    """The weighted sum Σ w_p k_p; all kernels are kept in order, also those of weight zero.

    Weights may be negative (some designs need it); only without negative weights the sum is certain to be a kernel.
    """

    kernels: tuple[Kernel, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        kernels = tuple(self.kernels)
        try:
            weights = tuple(float(w) for w in self.weights)
        except (TypeError, ValueError, OverflowError):
            raise InputError(f"weights must be numbers, got {shown(self.weights)}") from None
        if not kernels or not all(isinstance(k, Kernel) for k in kernels):
            raise InputError(f"kernels must be a non-empty list of kernels, got {shown(self.kernels)}")
        if len(weights) != len(kernels):
            raise InputError(f"weights must have one number per kernel: {len(kernels)} kernels, {len(weights)} weights")
        if not np.isfinite(weights).all():
            raise InputError(f"weights must be finite, got {weights}")
        object.__setattr__(self, "kernels", kernels)
        object.__setattr__(self, "weights", weights)

    @property
    def kernels_inside(self) -> tuple[Kernel, ...]:
        """The summands."""
        return self.kernels

    def resolve(self, X: Any, *, seed: int = 0) -> Mixture:
        """Resolve every summand."""
        return replace(self, kernels=tuple(k.resolve(X, seed=seed) for k in self.kernels))

    def block(self, X: Any, Y: Any) -> Array:
        """Return Σ w_p K_p, one summand in memory at a time."""
        return self._sum("block", X, Y)

    def paired(self, X: Any, Y: Any) -> Array:
        """Return Σ w_p k_p(x_i, y_i)."""
        return self._sum("paired", X, Y)

    def diag(self, X: Any) -> Array:
        """Return Σ w_p k_p(x_i, x_i)."""
        return self._sum("diag", X)

    def squared_distance(self, X: Any, Y: Any) -> Array:
        """Return Σ w_p d_p²."""
        return np.maximum(self._sum("squared_distance", X, Y), 0)

    def paired_squared_distance(self, X: Any, Y: Any) -> Array:
        """Return Σ w_p d_p²(x_i, y_i)."""
        return np.maximum(self._sum("paired_squared_distance", X, Y), 0)

    def bilinear(self, d: int) -> Array:
        """Return Σ w_p H_p."""
        return self._sum("bilinear", d)

    def _sum(self, method: str, *args: Any) -> Array:
        active = [(w, k) for w, k in zip(self.weights, self.kernels, strict=True) if w != 0]
        if not active:
            return 0 * getattr(self.kernels[0], method)(*args)  # type: ignore[no-any-return]
        w, k = active[0]
        with quiet():
            total: Array = w * getattr(k, method)(*args)
            for w, k in active[1:]:
                total += w * getattr(k, method)(*args)
        return total


def as_mixture(kernel: Kernel) -> Mixture:
    """Return a kernel as a mixture: itself where it is one, else of weight 1."""
    return kernel if isinstance(kernel, Mixture) else Mixture((kernel,), (1.0,))


@dataclass(frozen=True)
class Product(_Composite):
    """The product k₁(x, y) · k₂(x, y)."""

    left: Kernel
    right: Kernel

    def __post_init__(self) -> None:
        check_is_kernel(self.left, "left")
        check_is_kernel(self.right, "right")

    def block(self, X: Any, Y: Any) -> Array:
        """Return K₁ ∘ K₂."""
        with quiet():
            return self.left.block(X, Y) * self.right.block(X, Y)

    def paired(self, X: Any, Y: Any) -> Array:
        """Return k₁(x_i, y_i) k₂(x_i, y_i)."""
        with quiet():
            return self.left.paired(X, Y) * self.right.paired(X, Y)

    def diag(self, X: Any) -> Array:
        """Return k₁(x_i, x_i) k₂(x_i, x_i)."""
        with quiet():
            return self.left.diag(X) * self.right.diag(X)


@dataclass(frozen=True)
class Normalized(_Composite):
    """The cosine k(x, y) / sqrt(k(x, x) k(y, y)) of another kernel; it is 0 for rows with k(x, x) = 0."""

    kernel: Kernel

    def __post_init__(self) -> None:
        check_is_kernel(self.kernel, "kernel")

    def block(self, X: Any, Y: Any) -> Array:
        """Return K scaled to a unit diagonal."""
        with quiet():
            K = self.kernel.block(X, Y)
            K *= inverse_root(self.kernel.diag(X))[:, None]
            K *= inverse_root(self.kernel.diag(Y))[None, :]
        return K

    def paired(self, X: Any, Y: Any) -> Array:
        """Return k(x_i, y_i) scaled alike."""
        with quiet():
            scale = inverse_root(self.kernel.diag(X)) * inverse_root(self.kernel.diag(Y))
            return np.asarray(self.kernel.paired(X, Y) * scale)

    def diag(self, X: Any) -> Array:
        """Return ones, and zeros where k(x, x) = 0."""
        d = self.kernel.diag(X)
        return np.asarray(d > 0, dtype=d.dtype)


# ------------------------------------------------------------------------------------------ kernels on transformed rows


class Transformed(Kernel):
    """Another kernel on transformed rows, k(t(x), t(y)).

    Subclasses have a field ``kernel`` and define ``transform``; where t is affine also ``affine``, so that `bilinear`
    works.
    """

    kernel: Kernel

    @abstractmethod
    def transform(self, X: Any) -> Any:
        """Return t(x) for checked rows in memory."""

    def affine(self, d: int) -> Array | None:
        """Return the (d + 1, e + 1) matrix T with [t(x), 1] = T'[x, 1] where t is affine, else None."""
        return None

    def resolve(self, X: Any, *, seed: int = 0) -> Self:
        """Resolve the kernel on the transformed rows."""
        return replace(self, kernel=self.kernel.resolve(self.transform(X), seed=seed))  # type: ignore[type-var]

    def block(self, X: Any, Y: Any) -> Array:
        """Return the block of the transformed rows."""
        return self.kernel.block(*self._transform_both(X, Y))

    def block_to(self, Y: Any) -> Callable[[Any], Array]:
        """Return the function X ↦ block(X, Y), with Y transformed."""
        values = self.kernel.block_to(self.transform(Y))
        return lambda X: values(self.transform(X))

    def applied(self, X: Any) -> tuple[Kernel, Any]:
        """Return the kernel on the transformed rows, and these."""
        return self.kernel.applied(self.transform(X))

    def paired(self, X: Any, Y: Any) -> Array:
        """Return the values of the transformed rows, row by row."""
        return self.kernel.paired(*self._transform_both(X, Y))

    def diag(self, X: Any) -> Array:
        """Return k(x, x) of the transformed rows."""
        return self.kernel.diag(self.transform(X))

    def squared_distance(self, X: Any, Y: Any) -> Array:
        """Return the squared distances of the transformed rows."""
        return self.kernel.squared_distance(*self._transform_both(X, Y))

    def paired_squared_distance(self, X: Any, Y: Any) -> Array:
        """Return the squared distances of the transformed rows, row by row."""
        return self.kernel.paired_squared_distance(*self._transform_both(X, Y))

    def bilinear(self, d: int) -> Array:
        """Return T H T' with H of the kernel on the transformed rows."""
        T = self.affine(d)
        return super().bilinear(d) if T is None else np.asarray(T @ self.kernel.bilinear(T.shape[1] - 1) @ T.T)

    def linear_in(self, Z: Any) -> Array:
        """Return T C with C of the kernel on the transformed rows: beside a large offset, H [z, 1] loses digits."""
        T = self.affine(_rows.width(Z) or 0)
        return super().linear_in(Z) if T is None else np.asarray(T @ self.kernel.linear_in(self.transform(Z)))

    def _transform_both(self, X: Any, Y: Any) -> tuple[Any, Any]:
        transformed = self.transform(X)
        return transformed, transformed if X is Y else self.transform(Y)


@dataclass(frozen=True)
class Weak(Transformed):
    """Another kernel on a single feature; the other columns are ignored.

    Parameters
    ----------
    kernel : Kernel on vectors
    feature : int
        The column, counted from 0.
    """

    kernel: Kernel
    feature: int = field(kw_only=True)

    def __post_init__(self) -> None:
        check_on_vectors(self.kernel, "kernel")
        whole_number(self.feature, "feature", least=0)

    def validate(self, X: Any, name: str) -> None:
        """Raise when X has no such column."""
        d = X.shape[1]
        if self.feature >= d:
            raise InputError(f"feature={self.feature} but {name} has {d} columns (0 .. {d - 1}); choose one of them")
        self.kernel.validate(np.empty((0, 1)), f"column {self.feature} of {name}")

    def transform(self, X: Any) -> Any:
        """Return the column as a dense (n, 1) array."""
        column = X[:, [self.feature]]
        return column.toarray() if _rows.is_sparse(column) else column

    def affine(self, d: int) -> Array:
        """Return the matrix that selects the column."""
        T = np.zeros((d + 1, 2))
        T[self.feature, 0] = T[d, 1] = 1.0
        return T


@dataclass(frozen=True, eq=False)
class Standardized(ComparedByContent, Transformed):
    """Another kernel on columns of comparable scale, as measured on the rows of the fit.

    For tables whose columns have different units: otherwise a salary outweighs an age in every distance.

    Parameters
    ----------
    kernel : Kernel
        The kernel on the scaled columns; default: the linear one.
    mean, spread : (d,) arrays, optional
        What is subtracted from the columns, and what they are divided by; set when the kernel is resolved on data.
        Nothing is subtracted from sparse rows.  Constant columns have the spread 0 and are not divided.
    by : {"std", "range"}
        "std" subtracts the mean of a column and divides by its standard deviation.  "range" subtracts the smallest
        value and divides by the largest less the smallest: it leaves 0/1 columns as they are, where the standard
        deviation would make a rare value the most important one.
    """

    kernel: Kernel = field(default_factory=Linear)
    mean: Array | None = None
    spread: Array | None = None
    by: str = "std"

    def __post_init__(self) -> None:
        check_on_vectors(self.kernel, "kernel")
        one_of(self.by, "by", ("std", "range"))
        for name, value in (("mean", self.mean), ("spread", self.spread)):
            if value is not None and not _is_row(value):
                raise InputError(f"{name} must be a finite number for each column, as resolve measures it")
        if self.mean is not None and (self.spread is None or self.mean.shape != self.spread.shape):
            raise InputError("mean and spread must have one number for each column")

    def __repr__(self) -> str:
        by = "" if self.by == "std" else f", by={self.by!r}"
        return f"Standardized({self.kernel!r}{by})"

    @property
    def scale_free(self) -> bool:
        """True: the columns are scaled first."""
        return True

    def resolve(self, X: Any, *, seed: int = 0) -> Standardized:
        """Measure mean and spread in one pass, then resolve the kernel on the scaled rows."""
        found = self
        if self.spread is None:
            mean, spread = _rows.moments(X) if self.by == "std" else _smallest_and_range(X)
            sparse = _rows.is_sparse(_rows.take(X, np.arange(1)))
            # less is the rounding of a constant column, or has no inverse
            varies = spread > np.maximum(1e-12 * np.abs(mean), np.finfo(np.float64).tiny)
            found = replace(self, mean=None if sparse else mean, spread=np.where(varies, spread, 0.0))
        sample = found.transform(sample_rows(X, seed))
        return replace(found, kernel=self.kernel.resolve(sample, seed=seed))

    def validate(self, X: Any, name: str) -> None:
        """Raise when X has another number of columns than the rows that mean and spread were measured on."""
        if self.spread is not None and _rows.width(X) != len(self.spread):
            raise InputError(
                f"{name} has {_rows.width(X)} features, but the kernel was standardised on {len(self.spread)}"
            )
        self.kernel.validate(X, name)

    def transform(self, X: Any) -> Any:
        """Return (x − mean) / spread."""
        spread = self._divisor()
        if _rows.is_sparse(X) and self.mean is None:
            with quiet():
                return X.multiply(1 / spread).tocsr().astype(_rows.float_dtype(X))
        dense = X.toarray() if _rows.is_sparse(X) else X
        dtype = _rows.float_dtype(X)
        if dense.nbytes <= TRANSFORM_BYTES:
            return self._scaled(dense, spread).astype(dtype, copy=False)
        result = np.empty(dense.shape, dtype=dtype)
        for part in _rows.blocks(len(dense), 8 * dense.shape[1], TRANSFORM_BYTES):
            result[part] = self._scaled(dense[part], spread)
        return result

    def _scaled(self, dense: Array, spread: Array) -> Array:
        with quiet():
            if self.mean is None:
                return dense / spread
            scaled = dense - self.mean
            scaled /= spread
            return scaled

    def affine(self, d: int) -> Array:
        """Return the matrix of x ↦ (x − mean) / spread."""
        spread = self._divisor()
        T = np.diag(np.append(1 / spread, 1.0))
        if self.mean is not None:
            T[d, :d] = -self.mean / spread
        return T

    def features(self, X: Any) -> Any | None:
        """Return the explicit features of the scaled rows, where the kernel has them."""
        return self.kernel.features(self.transform(X))

    def unlikeness(self) -> float:
        """Return how many times the spread of one column is that of another, at the most; 1 for a single column."""
        spread = self._known_spread()
        varying = spread[spread > 0]
        return float(varying.max() / varying.min()) if len(varying) else 1.0

    def _divisor(self) -> Array:
        spread = self._known_spread()
        return np.where(spread > 0, spread, 1.0)

    def _known_spread(self) -> Array:
        if self.spread is None:
            raise InputError(
                "kernel Standardized() has no mean and spread yet; call kernel.resolve(X), or pass it to mf.learn"
            )
        return self.spread


def _is_row(value: Any) -> bool:
    plain = isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "iuf"
    return plain and bool(np.isfinite(value).all())


def _smallest_and_range(X: Any) -> tuple[Array, Array]:
    """Return the smallest value of every column, and the largest less the smallest."""
    low, high = (np.asarray(end, dtype=np.float64) for end in _rows.column_range(X))
    with np.errstate(over="ignore"):
        spread = high - low
    wide = np.flatnonzero(~np.isfinite(spread))
    if len(wide):
        column = int(wide[0])
        raise InputError(
            f"X: column {column} ranges from {low[column]:.3g} to {high[column]:.3g}, and the difference overflows; "
            "rescale X"
        )
    return low, spread
