"""Kernels: similarities k(x, y) with the distance d²(x, y) = k(x, x) + k(y, y) − 2 k(x, y).

One method is required of a kernel, ``block(X, Y)``, on rows that are in memory; chunking, dask, saving and scikit-learn
come from the rest of the library.  Kernels are frozen dataclasses: their fields are their parameters.

Blocks of float32 rows are float32, but squared distances are formed in float64 on the way: the expansion
‖x‖² + ‖y‖² − 2x'y loses half of the digits of nearby rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass, replace
from numbers import Real
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from . import rows as _rows
from .errors import InputError, first_rows, whole_number
from .rows import ComparedByContent, as_float64

Array = NDArray[Any]

MEDIAN_ROWS = 1024
"""Rows sampled for ``gamma="median"``: half a million pairs pin the median to a fraction of a per cent."""
TILE_BYTES = 2**23
"""Distances made at a time: few enough that what follows finds them near, enough for GEMM (flat from 4 to 16 MB)."""


class Kernel(ABC):
    """A similarity on rows.

    Subclasses are frozen dataclasses and define ``block``.  ``takes`` says what a row is: ``"vectors"`` (dense or CSR,
    the default), ``"strings"``, ``"objects"`` (handed through unlooked at) or ``"gram"``.  Override ``paired`` and
    ``squared_distance`` where there is a cheaper or more accurate way than the defaults.
    """

    # -- what a subclass may define ------------------------------------------------------------------------------

    @abstractmethod
    def block(self, X: Any, Y: Any) -> Array:
        """Return the (len(X), len(Y)) similarities of rows that are in memory and checked."""

    @property
    def takes(self) -> str:
        """What a row is: "vectors", "strings", "objects" or "gram"."""
        return "vectors"

    def validate(self, X: Any, name: str) -> None:  # noqa: B027 - optional on purpose
        """Raise when checked rows do not suit this kernel's parameters (nothing by default)."""

    def paired(self, X: Any, Y: Any) -> Array:
        """Return k(x_i, y_i) for each i.  The default reads diagonals off small blocks."""
        n, step = _rows.count(X), 32
        parts = [np.diagonal(self.block(X[i : i + step], Y[i : i + step])) for i in range(0, n, step)]
        return np.concatenate(parts) if parts else np.empty(0)

    def squared_distance(self, X: Any, Y: Any) -> Array:
        """Return the (len(X), len(Y)) squared distances."""
        D: Array = -2 * self.block(X, Y)
        D += self.diag(X)[:, None]
        D += self.diag(Y)[None, :]
        np.maximum(D, 0, out=D)
        if X is Y:
            np.fill_diagonal(D, 0)
        return D

    def paired_squared_distance(self, X: Any, Y: Any) -> Array:
        """Return d²(x_i, y_i) for each i."""
        D: Array = self.diag(X) + self.diag(Y) - 2 * self.paired(X, Y)
        np.maximum(D, 0, out=D)
        return D

    def features(self, X: Any) -> Any | None:
        """Return explicit features with k(x, y) = φ(x)'φ(y), or None where there are none of finite width."""
        return None

    def embedding(self) -> Any | None:
        """Return a feature map whose Euclidean distances are this kernel's, or None where it has none of its own.

        Learned kernels have one (`metricforge.space.FeatureMap`); for the others landmarks among training rows serve.
        An indefinite kernel, for which there can be none, raises InputError.
        """
        return None

    # -- what everyone calls -------------------------------------------------------------------------------------

    def check(self, X: Any, name: str = "X") -> Any:
        """Return X as rows this kernel takes, or raise saying what is wrong and where."""
        X = _CHECKS[self.takes](X, name)
        self.validate(X, name)
        return X

    def resolve(self, X: Any, *, seed: int = 0) -> Self:
        """Return this kernel with every parameter that depends on data (``gamma="median"``) made a number."""
        found = {name: part.resolve(X, seed=seed) for name, part in self._parts()}
        return replace(self, **found) if found else self  # type: ignore[type-var]

    def diag(self, X: Any) -> Array:
        """Return k(x_i, x_i) for each i."""
        return self.paired(X, X)

    def distance(self, X: Any, Y: Any) -> Array:
        """Return the (len(X), len(Y)) distances."""
        D = self.squared_distance(X, Y)
        return np.sqrt(D, out=D)

    def __call__(self, X: Any, Y: Any = None) -> Any:
        """Return the block of X and Y (of X with itself without Y): an array, or lazy where either is a dask array."""
        X = self.check(X, "X")
        if Y is None:
            return _rows.map_pairs(self.block, X, X, _rows.float_dtype(X))
        Y = self.check(Y, "Y")
        _rows.check_widths(X, Y)
        return _rows.map_pairs(self.block, X, Y, np.result_type(_rows.float_dtype(X), _rows.float_dtype(Y)))

    def normalized(self) -> Kernel:
        """Return k(x, y) / sqrt(k(x, x) k(y, y))."""
        return Normalized(self)

    def _parts(self) -> list[tuple[str, Kernel]]:
        names: list[str] = [f.name for f in fields(self)] if is_dataclass(self) else []
        return [(name, part) for name in names if isinstance(part := getattr(self, name), Kernel)]

    # -- algebra -------------------------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Kernel:
        if isinstance(other, Kernel):
            left, right = _as_mixture(self), _as_mixture(other)
            return Mixture(left.kernels + right.kernels, left.weights + right.weights)
        return self if is_number(other) and other == 0 else NotImplemented  # so that sum(kernels) works

    __radd__ = __add__

    def __mul__(self, other: Any) -> Kernel:
        if isinstance(other, Kernel):
            return Product(self, other)
        if is_number(other):
            parts = _as_mixture(self)
            return Mixture(parts.kernels, tuple(float(other) * w for w in parts.weights))
        return NotImplemented

    __rmul__ = __mul__


_CHECKS = {
    "vectors": _rows.as_vectors,
    "strings": _rows.as_strings,
    "objects": _rows.as_objects,
    "gram": _rows.as_vectors,
}


# --------------------------------------------------------------------------------------------------- kernels on vectors


@dataclass(frozen=True)
class Linear(Kernel):
    """The inner product x'y; its distance is the Euclidean one."""

    def block(self, X: Any, Y: Any) -> Array:
        """Return X Y'."""
        return inner(X, Y)

    def paired(self, X: Any, Y: Any) -> Array:
        """Return x_i'y_i."""
        return _paired_inner(X, Y)

    def squared_distance(self, X: Any, Y: Any) -> Array:
        """Return ‖x − y‖²."""
        return squared_euclidean(X, Y)

    def paired_squared_distance(self, X: Any, Y: Any) -> Array:
        """Return ‖x_i − y_i‖²."""
        return _paired_squared_euclidean(X, Y)

    def features(self, X: Any) -> Any:
        """Return X: a row is its own feature vector."""
        return X


@dataclass(frozen=True)
class RBF(Kernel):
    """The Gaussian exp(−γ d²(x, y)), on the Euclidean distance or on that of another kernel.

    Parameters
    ----------
    gamma : float or "median"
        The rate; ``"median"`` becomes 1 / (median squared distance) when the kernel meets data.
    base : Kernel, optional
        Whose distance to use; default: the Euclidean one.
    """

    gamma: float | str = "median"
    base: Kernel | None = None

    def __post_init__(self) -> None:
        _check_gamma(self.gamma)
        if self.base is not None:
            _check_kernel(self.base, "base")

    @property
    def takes(self) -> str:
        """What the base takes."""
        return _of(self.base).takes

    def validate(self, X: Any, name: str) -> None:
        """Let the base look at the rows."""
        _of(self.base).validate(X, name)

    def resolve(self, X: Any, *, seed: int = 0) -> RBF:
        """Resolve the base, then the median of its squared distance."""
        base = self.base.resolve(X, seed=seed) if self.base else None
        return replace(self, base=base, gamma=_resolve_gamma(self.gamma, _of(base), X, seed))

    def block(self, X: Any, Y: Any) -> Array:
        """Return exp(−γ d²)."""
        if self.base is None:
            return squared_euclidean(X, Y, self._decay)
        D = self.base.squared_distance(X, Y)
        self._decay(D)
        return D

    def _decay(self, D: Array) -> None:
        D *= -_number(self.gamma)
        np.exp(D, out=D)

    def paired(self, X: Any, Y: Any) -> Array:
        """Return exp(−γ d²(x_i, y_i))."""
        return np.exp(-_number(self.gamma) * _of(self.base).paired_squared_distance(X, Y))

    def diag(self, X: Any) -> Array:
        """Return ones."""
        return np.ones(_rows.count(X), dtype=_rows.float_dtype(X))

    def squared_distance(self, X: Any, Y: Any) -> Array:
        """Return 2 − 2 exp(−γ d²) without cancellation."""
        D = _of(self.base).squared_distance(X, Y)
        D *= -_number(self.gamma)
        np.expm1(D, out=D)
        D *= -2
        return D

    def paired_squared_distance(self, X: Any, Y: Any) -> Array:
        """Return 2 − 2 exp(−γ d²(x_i, y_i)) without cancellation."""
        return -2 * np.expm1(-_number(self.gamma) * _of(self.base).paired_squared_distance(X, Y))


@dataclass(frozen=True)
class Laplacian(Kernel):
    """The kernel exp(−γ ‖x − y‖₁); ``gamma="median"`` becomes 1 / (median 1-norm distance)."""

    gamma: float | str = "median"

    def __post_init__(self) -> None:
        _check_gamma(self.gamma)

    def resolve(self, X: Any, *, seed: int = 0) -> Laplacian:
        """Resolve the median of the 1-norm distance."""
        if self.gamma != "median":
            return self
        sample = _sample(X, seed)
        return replace(self, gamma=_inverse_median(_manhattan(sample, sample), "gamma"))

    def block(self, X: Any, Y: Any) -> Array:
        """Return exp(−γ ‖x − y‖₁)."""
        D = _manhattan(X, Y)
        D *= -_number(self.gamma)
        return np.exp(D, out=D)

    def diag(self, X: Any) -> Array:
        """Return ones."""
        return np.ones(_rows.count(X), dtype=_rows.float_dtype(X))


@dataclass(frozen=True)
class Cauchy(Kernel):
    """The kernel 1 / (1 + γ ‖x − y‖²)."""

    gamma: float | str = "median"

    def __post_init__(self) -> None:
        _check_gamma(self.gamma)

    def resolve(self, X: Any, *, seed: int = 0) -> Cauchy:
        """Resolve the median squared distance."""
        return replace(self, gamma=_resolve_gamma(self.gamma, Linear(), X, seed))

    def block(self, X: Any, Y: Any) -> Array:
        """Return 1 / (1 + γ d²)."""
        D = squared_euclidean(X, Y)
        D *= _number(self.gamma)
        D += 1
        return np.reciprocal(D, out=D)

    def paired(self, X: Any, Y: Any) -> Array:
        """Return 1 / (1 + γ d²(x_i, y_i))."""
        return 1 / (1 + _number(self.gamma) * _paired_squared_euclidean(X, Y))

    def paired_squared_distance(self, X: Any, Y: Any) -> Array:
        """Return 2γd² / (1 + γd²) row by row."""
        D = _number(self.gamma) * _paired_squared_euclidean(X, Y)
        return np.asarray(2 * D / (1 + D))

    def diag(self, X: Any) -> Array:
        """Return ones."""
        return np.ones(_rows.count(X), dtype=_rows.float_dtype(X))

    def squared_distance(self, X: Any, Y: Any) -> Array:
        """Return 2 − 2k = 2γd² / (1 + γd²) without cancellation."""
        D = squared_euclidean(X, Y)
        D *= _number(self.gamma)
        D /= 1 + D
        D *= 2
        return D


@dataclass(frozen=True)
class Polynomial(Kernel):
    """The kernel (x'y + coef0)^degree."""

    degree: int = 2
    coef0: float = 1.0

    def __post_init__(self) -> None:
        whole_number(self.degree, "degree")
        if not (is_number(self.coef0) and 0 <= self.coef0 < np.inf):
            raise InputError(f"coef0 must be a number >= 0 (otherwise this is not a kernel), got {self.coef0!r}")

    def block(self, X: Any, Y: Any) -> Array:
        """Return (X Y' + coef0)^degree."""
        G = inner(X, Y)
        G += self.coef0
        return np.power(G, self.degree, out=G)

    def paired(self, X: Any, Y: Any) -> Array:
        """Return (x_i'y_i + coef0)^degree."""
        return (_paired_inner(X, Y) + self.coef0) ** self.degree


@dataclass(frozen=True)
class Weak(Kernel):
    """Another kernel, on one feature only: it sees nothing but that column.

    Parameters
    ----------
    kernel : Kernel on vectors
    feature : int
        The column, counted from 0.
    """

    kernel: Kernel
    feature: int = field(kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.kernel, Kernel) or self.kernel.takes != "vectors":
            raise InputError(f"kernel must be a kernel on vectors, got {self.kernel!r}")
        whole_number(self.feature, "feature", least=0)

    def validate(self, X: Any, name: str) -> None:
        """Raise when X has no such column."""
        d = X.shape[1]
        if self.feature >= d:
            raise InputError(f"feature={self.feature} but {name} has {d} columns (0 .. {d - 1}); choose one of them")

    def resolve(self, X: Any, *, seed: int = 0) -> Weak:
        """Resolve the kernel on the column."""
        return replace(self, kernel=self.kernel.resolve(self._column(X), seed=seed))

    def block(self, X: Any, Y: Any) -> Array:
        """Return the kernel's block on the column."""
        return self.kernel.block(self._column(X), self._column(Y))

    def paired(self, X: Any, Y: Any) -> Array:
        """Return the kernel's paired values on the column."""
        return self.kernel.paired(self._column(X), self._column(Y))

    def squared_distance(self, X: Any, Y: Any) -> Array:
        """Return the kernel's squared distances on the column."""
        return self.kernel.squared_distance(self._column(X), self._column(Y))

    def paired_squared_distance(self, X: Any, Y: Any) -> Array:
        """Return the kernel's paired squared distances on the column."""
        return self.kernel.paired_squared_distance(self._column(X), self._column(Y))

    def _column(self, X: Any) -> Any:
        column = X[:, [self.feature]]
        return column.toarray() if _rows.is_sparse(column) else column


@dataclass(frozen=True, eq=False)
class Precomputed(ComparedByContent, Kernel):
    """A kernel given by its Gram matrix: a row of X holds the similarities to all training rows.

    Fit on the (n, n) Gram matrix K; later rows are their (n,) similarities to the training rows, as in scikit-learn.
    Two rows are compared through the training rows, k(x, y) = x' K⁺ y = (R'x)'(R'y) with RR' = K⁺, which is exact when
    either is one of them.

    Cost: one n × n eigendecomposition when the kernel meets K, and 8nr bytes beside K for rank r.
    """

    root: Array | None = None

    @property
    def takes(self) -> str:
        """Rows of a Gram matrix."""
        return "gram"

    def validate(self, X: Any, name: str) -> None:
        """Raise unless rows have one similarity for each training row."""
        if self.root is not None and X.shape[1] != len(self.root):
            raise InputError(
                f"{name} must hold the similarities to the {len(self.root)} training rows, got {X.shape[1]} columns"
            )

    def resolve(self, X: Any, *, seed: int = 0) -> Precomputed:
        """Check that X is a Gram matrix and keep a root of its pseudo-inverse."""
        if self.root is not None:
            return self
        if _rows.is_dask(X):
            raise InputError("X: a precomputed Gram matrix must be in memory; give X.compute(), or rows and a kernel")
        K = X.toarray() if _rows.is_sparse(X) else X
        n = len(K)
        if K.shape != (n, n):
            raise InputError(f"X must be the square Gram matrix for a precomputed kernel, got shape {K.shape}")
        K = K.astype(np.float64)
        scale = float(np.abs(K).max()) or 1.0
        skew = np.abs(K - K.T).max(axis=1)
        if skew.max() > 1e-6 * scale:
            bad = first_rows(np.flatnonzero(skew > 1e-6 * scale))
            raise InputError(f"X is not symmetric ({bad}), so it is no Gram matrix; use (X + X.T) / 2 if that is meant")
        w, V = np.linalg.eigh((K + K.T) / 2)
        if w[0] < -1e-6 * max(w[-1], scale):
            raise InputError(
                f"X is no kernel: its smallest eigenvalue is {w[0]:.3g} (largest {w[-1]:.3g}); "
                "take the nearest kernel with mf.psd.project(X)"
            )
        # below this an eigenvalue is the rounding of K itself, which single precision shows earlier
        keep = w > n * np.finfo(X.dtype).eps * max(w[-1], 0.0)
        if not keep.any():
            raise InputError("X is a Gram matrix of zeros, in which no two rows differ; give another kernel")
        return replace(self, root=V[:, keep] / np.sqrt(w[keep]))

    def features(self, X: Any) -> Array | None:
        """Return R'x, one feature for each eigenvalue of K that is not zero."""
        if self.root is None:
            raise InputError("kernel: Precomputed() has not met its Gram matrix yet; call kernel.resolve(K) first")
        return np.asarray(as_float64(X) @ self.root)

    def block(self, X: Any, Y: Any) -> Array:
        """Return X K⁺ Y'."""
        return self._cast(inner(self.features(X), self.features(Y)), X, Y)

    def paired(self, X: Any, Y: Any) -> Array:
        """Return x_i' K⁺ y_i."""
        return self._cast(_paired_inner(self.features(X), self.features(Y)), X, Y)

    def squared_distance(self, X: Any, Y: Any) -> Array:
        """Return ‖R'x − R'y‖²."""
        P = self.features(X)
        return self._cast(squared_euclidean(P, P if X is Y else self.features(Y)), X, Y)

    def paired_squared_distance(self, X: Any, Y: Any) -> Array:
        """Return ‖R'x_i − R'y_i‖²."""
        return self._cast(_paired_squared_euclidean(self.features(X), self.features(Y)), X, Y)

    def _cast(self, values: Array, X: Any, Y: Any) -> Array:
        return values.astype(np.result_type(_rows.float_dtype(X), _rows.float_dtype(Y)), copy=False)


# --------------------------------------------------------------------------------------------------- kernels on strings


@dataclass(frozen=True)
class Spectrum(Kernel):
    """The k-spectrum kernel on strings: the inner product of the counts of all substrings of length k.

    Strings shorter than k have no counts and are similar to nothing, themselves included.

    Cost: O(total length · k) to count, then one sparse product.
    """

    k: int = 3

    def __post_init__(self) -> None:
        whole_number(self.k, "k")

    @property
    def takes(self) -> str:
        """Strings."""
        return "strings"

    def block(self, X: Any, Y: Any) -> Array:
        """Return the inner products of the counts."""
        same = X is Y
        counts = substring_counts(list(X) if same else [*X, *Y], self.k)
        A, B = (counts, counts) if same else (counts[: len(X)], counts[len(X) :])
        return np.asarray((A @ B.T).toarray())

    def paired(self, X: Any, Y: Any) -> Array:
        """Return the inner products of the counts, row by row."""
        same = X is Y
        counts = substring_counts(list(X) if same else [*X, *Y], self.k)
        A, B = (counts, counts) if same else (counts[: len(X)], counts[len(X) :])
        return np.asarray(A.multiply(B).sum(axis=1)).ravel()


def substring_counts(strings: list[str], k: int) -> Any:
    """Return the (len(strings), distinct substrings) CSR counts of all substrings of length k.

    Substrings are numbered by rank doubling: the number of a substring of length l + 1 is the rank of the pair
    (number of its first l letters, next letter).  That works for any alphabet and any k without hashing.
    """
    from scipy.sparse import csr_array

    lengths = np.array([len(s) for s in strings], dtype=np.int64)
    letters = np.frombuffer("".join(strings).encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    counts = np.maximum(lengths - k + 1, 0)
    owner = np.repeat(np.arange(len(strings)), counts)
    starts = np.concatenate([[0], np.cumsum(lengths)])[:-1]
    # position of each substring: the start of its string plus its place inside it
    place = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(starts, counts)
    alphabet, letter = np.unique(letters, return_inverse=True)
    number = np.zeros(len(place), dtype=np.int64)
    for offset in range(k):
        number = np.unique(number * len(alphabet) + letter[place + offset], return_inverse=True)[1]
    shape = (len(strings), int(number.max()) + 1 if len(number) else 1)
    table = csr_array((np.ones(len(number)), (owner, number)), shape=shape)
    table.sum_duplicates()
    return table


# ----------------------------------------------------------------------------------------------------------- composites


class _Composite(Kernel):
    """A kernel made of others, which must all take the same kind of rows."""

    @property
    def kernels_inside(self) -> tuple[Kernel, ...]:
        return tuple(part for _, part in self._parts())

    @property
    def takes(self) -> str:
        """What the parts take."""
        kinds = {part.takes for part in self.kernels_inside}
        if len(kinds) > 1:
            raise InputError(
                f"kernels of one sum or product must take the same rows, got {' and '.join(sorted(kinds))}"
            )
        return kinds.pop()

    def validate(self, X: Any, name: str) -> None:
        """Let every part look at the rows."""
        for part in self.kernels_inside:
            part.validate(X, name)


@dataclass(frozen=True)
class Mixture(_Composite):
    """The weighted sum Σ w_p k_p; all kernels are kept, in order, zero weights included.

    Weights may be negative (some designs need it); the sum is a kernel for certain only when none is.
    """

    kernels: tuple[Kernel, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        kernels = tuple(self.kernels)
        try:
            weights = tuple(float(w) for w in self.weights)
        except (TypeError, ValueError):
            raise InputError(f"weights must be numbers, got {self.weights!r}") from None
        if not kernels or not all(isinstance(k, Kernel) for k in kernels):
            raise InputError(f"kernels must be a non-empty list of kernels, got {self.kernels!r}")
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

    def _sum(self, what: str, *args: Any) -> Array:
        active = [(w, k) for w, k in zip(self.weights, self.kernels, strict=True) if w != 0]
        if not active:
            return 0 * getattr(self.kernels[0], what)(*args)  # type: ignore[no-any-return]
        w, k = active[0]
        total: Array = w * getattr(k, what)(*args)
        for w, k in active[1:]:
            total += w * getattr(k, what)(*args)
        return total


@dataclass(frozen=True)
class Product(_Composite):
    """The product k₁(x, y) · k₂(x, y)."""

    left: Kernel
    right: Kernel

    def __post_init__(self) -> None:
        _check_kernel(self.left, "left")
        _check_kernel(self.right, "right")

    def block(self, X: Any, Y: Any) -> Array:
        """Return K₁ ∘ K₂."""
        return self.left.block(X, Y) * self.right.block(X, Y)

    def paired(self, X: Any, Y: Any) -> Array:
        """Return k₁(x_i, y_i) k₂(x_i, y_i)."""
        return self.left.paired(X, Y) * self.right.paired(X, Y)

    def diag(self, X: Any) -> Array:
        """Return k₁(x_i, x_i) k₂(x_i, x_i)."""
        return self.left.diag(X) * self.right.diag(X)


@dataclass(frozen=True)
class Normalized(_Composite):
    """The cosine k(x, y) / sqrt(k(x, x) k(y, y)) of another kernel; rows with k(x, x) = 0 are similar to nothing."""

    kernel: Kernel

    def __post_init__(self) -> None:
        _check_kernel(self.kernel, "kernel")

    def block(self, X: Any, Y: Any) -> Array:
        """Return K scaled to a unit diagonal."""
        K = self.kernel.block(X, Y)
        K *= _inverse_root(self.kernel.diag(X))[:, None]
        K *= _inverse_root(self.kernel.diag(Y))[None, :]
        return K

    def paired(self, X: Any, Y: Any) -> Array:
        """Return k(x_i, y_i) scaled alike."""
        scale = _inverse_root(self.kernel.diag(X)) * _inverse_root(self.kernel.diag(Y))
        return np.asarray(self.kernel.paired(X, Y) * scale)

    def diag(self, X: Any) -> Array:
        """Return ones, and zeros where k(x, x) = 0."""
        d = self.kernel.diag(X)
        return np.asarray(d > 0, dtype=d.dtype)


@dataclass(frozen=True, eq=False)
class Standardized(ComparedByContent, Kernel):
    """Another kernel on columns brought to mean 0 and spread 1, as the rows that it first met say.

    For tables whose columns have units of their own: a salary would otherwise outweigh an age in every distance.

    Parameters
    ----------
    kernel : Kernel
        On the standardised columns; default: the linear one.
    mean, spread : (d,) arrays, optional
        Found when the kernel meets data.  Sparse rows are not centred, constant columns not scaled.
    """

    kernel: Kernel = Linear()
    mean: Array | None = None
    spread: Array | None = None

    def __post_init__(self) -> None:
        _check_kernel(self.kernel, "kernel")
        if self.kernel.takes != "vectors":
            raise InputError(f"kernel must be one on vectors to be standardised, got {self.kernel!r}")

    def __repr__(self) -> str:
        return f"Standardized({self.kernel!r})"

    def resolve(self, X: Any, *, seed: int = 0) -> Standardized:
        """Find mean and spread, then resolve the kernel on the standardised rows."""
        found = self
        if self.spread is None:
            mean, spread = _rows.moments(X)
            sparse = _rows.is_sparse(_rows.take(X, np.arange(1)))
            varies = spread > 1e-12 * np.abs(mean)  # less is the rounding of a constant column
            found = replace(self, mean=None if sparse else mean, spread=np.where(varies, spread, 1.0))
        sample = found._scaled(_sample(X, seed))
        return replace(found, kernel=self.kernel.resolve(sample, seed=seed))

    def validate(self, X: Any, name: str) -> None:
        """Compare the width of rows with that of the rows it was resolved on."""
        if self.spread is not None and _rows.width(X) != len(self.spread):
            raise InputError(f"{name} has {_rows.width(X)} features, but the columns of {len(self.spread)} are known")
        self.kernel.validate(X, name)

    def _scaled(self, X: Any) -> Any:
        if self.spread is None:
            raise InputError(
                "kernel Standardized() has not met data yet; use kernel.resolve(X), or hand it to mf.learn"
            )
        if _rows.is_sparse(X) and self.mean is None:
            return X.multiply(1 / self.spread).tocsr().astype(_rows.float_dtype(X))
        dense = X.toarray() if _rows.is_sparse(X) else X
        centred = dense if self.mean is None else dense - self.mean
        return (centred / self.spread).astype(_rows.float_dtype(X), copy=False)

    def _both(self, X: Any, Y: Any) -> tuple[Any, Any]:
        scaled = self._scaled(X)
        return scaled, scaled if X is Y else self._scaled(Y)

    def block(self, X: Any, Y: Any) -> Array:
        """Return the kernel of the standardised rows."""
        return self.kernel.block(*self._both(X, Y))

    def paired(self, X: Any, Y: Any) -> Array:
        """Return the kernel of the standardised rows, row by row."""
        return self.kernel.paired(*self._both(X, Y))

    def diag(self, X: Any) -> Array:
        """Return k(x, x) of the standardised rows."""
        return self.kernel.diag(self._scaled(X))

    def squared_distance(self, X: Any, Y: Any) -> Array:
        """Return the squared distances of the standardised rows."""
        return self.kernel.squared_distance(*self._both(X, Y))

    def paired_squared_distance(self, X: Any, Y: Any) -> Array:
        """Return the squared distances of the standardised rows, row by row."""
        return self.kernel.paired_squared_distance(*self._both(X, Y))

    def features(self, X: Any) -> Any | None:
        """Return the kernel's explicit features of the standardised rows, where it has them."""
        return self.kernel.features(self._scaled(X))


# ----------------------------------------------------------------------------------------------------------- arithmetic


def inner(X: Any, Y: Any) -> Array:
    """Return X Y' as a dense array, for dense and CSR rows in any combination."""
    if _rows.is_sparse(X) and _rows.is_sparse(Y):
        # sparse × dense is several times faster than sparse × sparse when the result is dense; densify Y by slices
        out = np.empty((X.shape[0], Y.shape[0]), dtype=np.result_type(X.dtype, Y.dtype))
        for part in _rows.blocks(Y.shape[0], 8 * Y.shape[1]):
            out[:, part] = X @ Y[part].toarray().T
        return out
    if _rows.is_sparse(Y):
        return np.asarray((Y @ X.T).T)
    return np.asarray(X @ Y.T)


def squared_euclidean(X: Any, Y: Any, finish: Callable[[Array], Any] | None = None) -> Array:
    """Return ‖x_i − y_j‖², formed in float64 and stored in the rows' own precision.

    Dense rows are centred on the mean of Y first: cancellation then costs digits of the spread, not of the offset.
    ``finish`` changes a tile of the result in place while it is still in the cache.
    """
    itself = X is Y
    out = np.empty((X.shape[0], Y.shape[0]), dtype=np.result_type(_rows.float_dtype(X), _rows.float_dtype(Y)))
    sparse = _rows.is_sparse(X) or _rows.is_sparse(Y)
    tiles = _sparse_tiles(X, Y) if sparse else _dense_tiles(X, Y, out)
    for part, D in tiles:
        np.maximum(D, 0, out=D)
        if itself:
            own = np.arange(part.start, part.stop)
            D[own - part.start, own] = 0
        if finish is not None:
            finish(D)
        if D.base is not out:
            out[part] = D
    return out


def _dense_tiles(X: Array, Y: Array, out: Array) -> Iterator[tuple[slice, Array]]:
    """Yield rows of ‖x‖² − 2x'y + ‖y‖² as one product, [x, ‖x‖², 1] · [−2y, 1, ‖y‖²]: three passes fewer over each."""
    d = X.shape[1]
    centre = Y.mean(axis=0, dtype=np.float64) if len(Y) else 0.0
    right = np.empty((len(Y), d + 2))
    np.subtract(Y, centre, out=right[:, :d])
    right[:, d], right[:, d + 1] = 1, _paired_inner(right[:, :d], right[:, :d])
    right[:, :d] *= -2
    for part in _rows.blocks(len(X), 8 * max(len(Y), d), TILE_BYTES):
        A = X[part]
        left = np.empty((len(A), d + 2))
        np.subtract(A, centre, out=left[:, :d])
        left[:, d], left[:, d + 1] = _paired_inner(left[:, :d], left[:, :d]), 1
        yield part, np.matmul(left, right.T, out=out[part] if out.dtype == np.float64 else None)


def _sparse_tiles(X: Any, Y: Any) -> Iterator[tuple[slice, Array]]:
    Y = Y.astype(np.float64, copy=False)
    yy = _paired_inner(Y, Y)
    for part in _rows.blocks(X.shape[0], 8 * max(Y.shape[0], X.shape[1])):
        A = X[part].astype(np.float64, copy=False)
        D = inner(A, Y)
        D *= -2
        D += _paired_inner(A, A)[:, None]
        D += yy
        yield part, D


def _paired_inner(X: Any, Y: Any) -> Array:
    if _rows.is_sparse(X) or _rows.is_sparse(Y):
        product = X.multiply(Y) if _rows.is_sparse(X) else Y.multiply(X)
        return np.asarray(product.sum(axis=1)).ravel()
    return np.asarray(np.einsum("ij,ij->i", X, Y))


def _paired_squared_euclidean(X: Any, Y: Any) -> Array:
    Z = X - Y
    dtype = _rows.float_dtype(Z)
    Z = Z.astype(np.float64, copy=False)
    return _paired_inner(Z, Z).astype(dtype, copy=False)


def _manhattan(X: Any, Y: Any) -> Array:
    """Return ‖x_i − y_j‖₁, summed in float64 and stored in the rows' own precision."""
    dtype = np.result_type(_rows.float_dtype(X), _rows.float_dtype(Y))
    if _rows.is_sparse(X) or _rows.is_sparse(Y):
        return _sparse_manhattan(X, Y, dtype)
    from scipy.spatial.distance import cdist

    if dtype == np.float64:
        return np.asarray(cdist(X, Y, "cityblock"))
    out = np.empty((len(X), len(Y)), dtype=dtype)
    for part in _rows.blocks(len(X), 8 * max(len(Y), X.shape[1]), TILE_BYTES):
        out[part] = cdist(X[part], Y, "cityblock")
    return out


def _sparse_manhattan(X: Any, Y: Any, dtype: Any) -> Array:
    from scipy.sparse import csr_matrix
    from sklearn.metrics.pairwise import manhattan_distances

    X, Y = csr_matrix(X), csr_matrix(Y)
    out = np.empty((X.shape[0], Y.shape[0]), dtype=dtype)
    for part in _rows.blocks(X.shape[0], 8 * max(Y.shape[0], X.shape[1])):
        out[part] = manhattan_distances(X[part], Y)
    return out


def _inverse_root(diagonal: Array) -> Array:
    scale = np.zeros_like(diagonal)
    np.divide(1, np.sqrt(np.maximum(diagonal, 0)), out=scale, where=diagonal > 0)
    return scale


# ----------------------------------------------------------------------------------------------------------- parameters


def _of(base: Kernel | None) -> Kernel:
    return Linear() if base is None else base


def _as_mixture(kernel: Kernel) -> Mixture:
    return kernel if isinstance(kernel, Mixture) else Mixture((kernel,), (1.0,))


def is_number(value: Any) -> bool:
    """Tell a real number from everything else, booleans included."""
    return isinstance(value, Real) and not isinstance(value, bool | np.bool_)


def _check_kernel(kernel: Any, name: str) -> None:
    if not isinstance(kernel, Kernel):
        raise InputError(f"{name} must be a kernel, got {kernel!r}; write for instance mf.kernels.Linear()")


def _check_gamma(gamma: Any) -> None:
    if isinstance(gamma, str) and gamma == "median":
        return
    if not (is_number(gamma) and 0 < gamma < np.inf):
        raise InputError(f'gamma must be a positive number or "median", got {gamma!r}')


def _number(gamma: float | str) -> float:
    if isinstance(gamma, str):
        raise InputError(
            f"gamma={gamma!r} is not a number yet; call kernel.resolve(X) with the data it is the median of"
        )
    return float(gamma)


def _sample(X: Any, seed: int) -> Any:
    return _rows.take(X, _rows.draw(_rows.count(X), MEDIAN_ROWS, seed))


def _resolve_gamma(gamma: float | str, base: Kernel, X: Any, seed: int) -> float | str:
    if gamma != "median":
        return gamma
    sample = _sample(X, seed)
    return _inverse_median(base.squared_distance(sample, sample), "gamma")


def _inverse_median(D: Array, name: str) -> float:
    distances = D[np.triu_indices(len(D), k=1)].astype(np.float64)
    if len(distances) == 0:
        raise InputError(f'{name}="median" needs at least two rows, and X has 1 sample; give {name} a number')
    median = float(np.median(distances))
    if median <= 0:
        median = float(np.median(distances[distances > 0])) if (distances > 0).any() else 0.0
    if median <= 0:
        raise InputError(
            f'{name}="median": all rows of X are identical (every feature is constant); give {name} a number'
        )
    return 1 / median
