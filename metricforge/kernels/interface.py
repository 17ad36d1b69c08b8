"""The interface of a kernel, and its algebra: sums, multiples, products, normalisation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from .. import rows as _rows
from ..errors import InputError
from ..rows import Array, ComparedByContent, quiet
from ..validation import is_number

CANCELLED = 1e-12
"""A squared distance below this share of k(x, x) + k(y, y) is hardly more than the rounding of the three terms."""


class Kernel(ABC):
    """A similarity k(x, y) on rows, with the distance d²(x, y) = k(x, x) + k(y, y) − 2 k(x, y).

    Subclasses are frozen dataclasses and define ``block``.  ``takes`` says what a row is: ``"vectors"`` (dense or CSR,
    the default), ``"strings"``, ``"objects"`` (passed on unchecked) or ``"gram"``.  Override ``paired`` and
    ``squared_distance`` where there is a cheaper or more accurate way than the defaults.
    """

    offered: ClassVar[bool] = True
    """Whether messages offer this kernel by its registered name; False where only fits make it."""

    # -- for subclasses to define --------------------------------------------------------------------------------

    @abstractmethod
    def block(self, X: Any, Y: Any) -> Array:
        """Return the (len(X), len(Y)) similarities of checked rows in memory."""

    @property
    def takes(self) -> str:
        """What a row is: "vectors", "strings", "objects" or "gram"."""
        return "vectors"

    @property
    def scale_free(self) -> bool:
        """Whether the kernel does not depend on the scales of the columns; by default, whether its parts do not."""
        parts = [part.scale_free for _, part in self._kernel_fields()]
        return bool(parts) and all(parts)

    @property
    def widest(self) -> int:
        """The columns of the widest array that a block makes of each row, for instance the number of landmarks.

        Blocks are split by it under a memory budget.  0 where there is no such array; by default, that of the parts.
        """
        return max((part.widest for _, part in self._kernel_fields()), default=0)

    def validate(self, X: Any, name: str) -> None:  # noqa: B027 - optional on purpose
        """Raise InputError when checked rows do not fit the parameters of this kernel; ``name`` is the argument."""

    def paired(self, X: Any, Y: Any) -> Array:
        """Return k(x_i, y_i) for each i.  The default takes the diagonals of small blocks."""
        n, step = _rows.count(X), 32
        parts = [np.diagonal(self.block(X[i : i + step], Y[i : i + step])) for i in range(0, n, step)]
        return np.concatenate(parts) if parts else np.empty(0)

    def block_to(self, Y: Any) -> Callable[[Any], Array]:
        """Return the function X ↦ block(X, Y), for many blocks of X: what depends on Y alone is computed once."""
        return lambda X: self.block(X, Y)

    def applied(self, X: Any) -> tuple[Kernel, Any]:
        """Return a kernel and rows with the same values: those that this kernel makes of X, and its kernel on them."""
        return self, X

    def squared_distance(self, X: Any, Y: Any) -> Array:
        """Return the (len(X), len(Y)) squared distances."""
        with quiet():
            D: Array = -2.0 * self.block(X, Y)  # a foreign kernel may count in whole numbers
            xx = self.diag(X)
            yy = xx if X is Y else self.diag(Y)
            D += xx[:, None]
            D += yy[None, :]
            np.maximum(D, 0, out=D)
            if X is Y:
                np.fill_diagonal(D, 0)
            self._measure_cancelled(D, X, Y, xx, yy)
        return D

    def _measure_cancelled(self, D: Array, X: Any, Y: Any, xx: Array, yy: Array) -> None:
        """Replace in place the squared distances of which rounding left nothing by those of single pairs.

        A block is a product of matrices and rounds in another order than k(x, x): equal rows would be some way apart.
        """
        if not D.size:
            return
        lost = np.flatnonzero((D > 0) & (CANCELLED * (np.abs(xx).max() + np.abs(yy).max()) > D))
        i, j = np.divmod(lost, D.shape[1])
        near = D[i, j] < CANCELLED * (np.abs(xx[i]) + np.abs(yy[j]))
        i, j = i[near], j[near]
        for part in _rows.blocks(len(i), 64 * (_rows.width(X) or 32)):
            D[i[part], j[part]] = self.paired_squared_distance(X[i[part]], Y[j[part]])

    def paired_squared_distance(self, X: Any, Y: Any) -> Array:
        """Return d²(x_i, y_i) for each i."""
        with quiet():
            D: Array = -2.0 * self.paired(X, Y)
            D += self.diag(X)
            D += self.diag(Y)
            np.maximum(D, 0, out=D)
        return D

    def features(self, X: Any) -> Any | None:
        """Return explicit features φ with k(x, y) = φ(x)'φ(y), or None where there are none of finite width."""
        return None

    def embedding(self) -> Any | None:
        """Return a feature map whose Euclidean distances are those of this kernel, or None.

        Learned kernels have one (`metricforge.space.FeatureMap`).  For kernels that return None the library uses
        landmarks among the training rows.

        Raises
        ------
        InputError
            When the kernel is indefinite, so that no such map exists.
        """
        return None

    def bilinear(self, d: int) -> Array:
        """Return the symmetric (d + 1, d + 1) matrix H with k(x, y) = [x, 1]'H[y, 1] on rows of d columns.

        Raises
        ------
        InputError
            When the kernel is not linear in the columns (the default).
        """
        raise InputError(
            f"kernel {type(self).__name__} is not linear in the columns of X, so there is no matrix M with "
            "d²(x, y) = (x − y)'M(x − y); learn from kernel=mf.kernels.Linear() or Standardized() to get one"
        )

    def linear_in(self, Z: Any) -> Array:
        """Return the (d + 1, l) matrix C with k(x, z) = [x, 1]'C for the rows z of Z, where `bilinear` has a result."""
        Z = Z.toarray() if _rows.is_sparse(Z) else np.asarray(Z)
        return np.asarray(self.bilinear(Z.shape[1]) @ np.column_stack([Z, np.ones(len(Z))]).T)

    # -- for everyone to call ------------------------------------------------------------------------------------

    def check(self, X: Any, name: str = "X") -> Any:
        """Return X as rows that this kernel takes, or raise InputError."""
        X = _CHECKS[self.takes](X, name)
        self.validate(X, name)
        return X

    def resolve(self, X: Any, *, seed: int = 0) -> Self:
        """Return this kernel with every parameter that depends on data (``gamma="median"``) set to a number."""
        found = {name: part.resolve(X, seed=seed) for name, part in self._kernel_fields()}
        return replace(self, **found) if found else self  # type: ignore[type-var]

    def diag(self, X: Any) -> Array:
        """Return k(x_i, x_i) for each i."""
        return self.paired(X, X)

    def distance(self, X: Any, Y: Any) -> Array:
        """Return the (len(X), len(Y)) distances."""
        D = self.squared_distance(X, Y)
        return np.sqrt(D, out=D)

    def mahalanobis(self, d: int) -> Array:
        """Return the PSD matrix M with d²(x, y) = (x − y)'M(x − y) on rows of d columns.

        Raises
        ------
        InputError
            When the kernel is not linear in the columns, or when M is not positive semidefinite.
        """
        with quiet():
            M = self.bilinear(d)[:d, :d]
        if not np.isfinite(M).all():
            raise InputError(f"the matrix of kernel {type(self).__name__} overflows; learn again from rescaled rows")
        w = np.linalg.eigvalsh(M)
        if d and w[0] < -1e-8 * max(abs(w[0]), abs(w[-1])):
            raise InputError(
                f"kernel {type(self).__name__} is linear in the columns, but its matrix has the negative eigenvalue "
                f"{w[0]:.3g}, so its distances are not those of a Mahalanobis metric"
            )
        return M

    def __call__(self, X: Any, Y: Any = None) -> Any:
        """Return the block of X and Y (default: X itself): an array, or a lazy dask array where either is one."""
        X = self.check(X, "X")
        other = X if Y is None else self.check(Y, "Y")
        if Y is not None:
            _rows.check_widths(X, other)
        block = _FiniteBlock(self)
        return _rows.map_pairs(block, X, other, _rows.float_dtype(X, other), widest=self.widest)

    def normalized(self) -> Kernel:
        """Return k(x, y) / sqrt(k(x, x) k(y, y))."""
        from .composites import Normalized

        return Normalized(self)

    def _kernel_fields(self) -> list[tuple[str, Kernel]]:
        """Return the names and values of the dataclass fields that hold a kernel."""
        names: list[str] = [f.name for f in fields(self)] if is_dataclass(self) else []
        return [(name, part) for name in names if isinstance(part := getattr(self, name), Kernel)]

    # -- algebra: NotImplemented lets the other operand, such as a Metric, try its own operator --------------------

    def __add__(self, other: Any) -> Kernel:
        if isinstance(other, Kernel):
            from .composites import Mixture, as_mixture

            left, right = as_mixture(self), as_mixture(other)
            return Mixture(left.kernels + right.kernels, left.weights + right.weights)
        return self if is_number(other) and other == 0 else NotImplemented  # sum(kernels) starts from 0

    __radd__ = __add__

    def __mul__(self, other: Any) -> Kernel:
        from .composites import Mixture, Product, as_mixture

        if isinstance(other, Kernel):
            return Product(self, other)
        if is_number(other):
            parts = as_mixture(self)
            return Mixture(parts.kernels, tuple(float(other) * w for w in parts.weights))
        return NotImplemented

    __rmul__ = __mul__


@dataclass(frozen=True)
class _FiniteBlock:
    """The block of a kernel, for threads and dask; raises where it overflows."""

    kernel: Kernel

    def __call__(self, X: Any, Y: Any) -> Array:
        with quiet():
            K = self.kernel.block(X, Y)
            finite = not K.size or bool(np.isfinite(K.max() - K.min()))
        if not finite:
            name = type(self.kernel).__name__
            raise InputError(
                f"kernel {name} overflows on these rows; rescale their features, for instance with "
                "sklearn.preprocessing.StandardScaler, or choose smaller parameters"
            )
        return K


_CHECKS = {
    "vectors": _rows.as_vectors,
    "strings": _rows.as_strings,
    "objects": _rows.as_objects,
    "gram": _rows.as_vectors,
}


class FittedKernel(ComparedByContent, Kernel):
    """A kernel that a fit has made on top of another one.

    It takes the rows that its start takes, refuses rows of another width, and has no parameters left to resolve.
    Subclasses are frozen dataclasses (``eq=False``); they hold arrays, so messages do not offer them as text.
    """

    offered: ClassVar[bool] = False

    @property
    @abstractmethod
    def start(self) -> Kernel:
        """The resolved kernel that the fit started from."""

    @property
    @abstractmethod
    def learned_width(self) -> int | None:
        """The number of columns of the rows of the fit; None where rows have none, or where it is not known."""

    @property
    def takes(self) -> str:
        """What the start takes."""
        return self.start.takes

    def validate(self, X: Any, name: str) -> None:
        """Validate X against the start, and compare its width with that of the rows of the fit."""
        d, found = self.learned_width, _rows.width(X)
        if d is not None and found is not None and found != d:
            raise InputError(f"{name} has {found} features, but the metric was learned on {d}")
        self.start.validate(X, name)

    def resolve(self, X: Any, *, seed: int = 0) -> Self:
        """Return itself: the fit has resolved it."""
        return self


class OverRows(FittedKernel):
    """A fitted kernel that keeps its base kernel and the rows of the fit, in fields ``base`` and ``rows``."""

    base: Kernel
    rows: Any

    @property
    def start(self) -> Kernel:
        """The base kernel."""
        return self.base

    @property
    def learned_width(self) -> int | None:
        """The number of columns of the rows."""
        return _rows.width(self.rows)

    @property
    def widest(self) -> int:
        """The number of rows of the fit, which a block compares every row with."""
        return max(self.base.widest, _rows.count(self.rows))
