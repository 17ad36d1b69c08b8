"""Feature maps φ of kernels: explicit, over landmarks, or several side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from .. import rows as _rows
from ..kernels import Kernel, Linear, Standardized
from ..rows import Array, ComparedByContent, as_float64, check_memory
from ..validation import flag

FEW_COLUMNS = 5
"""Up to this many features, a block is multiplied by one column after another: with 500 landmarks that takes 0.4 (two
features) to 0.8 (five) times as long as a product of matrices, with 100 landmarks 0.6 to 1.2 times."""
FAR, MOST_FAR = 2.0**40, 1e150
"""How much larger than the constant, as a multiple of the units of a column, and the most that this takes."""


@dataclass(frozen=True, eq=False)
class FeatureMap(ComparedByContent):
    """The features φ(x) = k(x, Z) T over landmarks Z, or φ(x) = x T where the kernel has explicit features.

    Blocks are computed in float64, because T is as ill-conditioned as the landmarks.  The features of an array of rows
    are stored in the precision of the rows.

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

    def __post_init__(self) -> None:
        flag(self.exact, "exact")

    @property
    def width(self) -> int | None:
        """The number of columns of the rows that this map takes; None where rows have none, or it is not known."""
        if self.landmarks is not None:
            return _rows.width(self.landmarks)
        if isinstance(self.kernel, Standardized) and self.kernel.spread is not None:
            return len(self.kernel.spread)
        if not isinstance(self.kernel, Linear):
            return None  # explicit features of other kernels are not the columns
        return self.columns if self.mix is None else len(self.mix)

    @property
    def widest(self) -> int:
        """The columns of the widest array that the features of a block of rows need: k(x, Z), the rows, or φ(x)."""
        landmarks = 0 if self.landmarks is None else _rows.count(self.landmarks)
        explicit = 0 if self.mix is None else len(self.mix)
        return max(self.columns, landmarks, explicit, self.width or 0, self.kernel.widest)

    def affine(self, d: int) -> Array:
        """Return the (d + 1, m) matrix F with φ(x) = F'[x, 1] on rows of d columns.

        Raises
        ------
        InputError
            When the kernel is not linear in the columns, as `Kernel.bilinear` says.
        """
        if self.landmarks is not None:
            K = self.kernel.linear_in(self.landmarks)  # (d + 1, l): k(x, Z) = [x, 1]'K
            return K if self.mix is None else np.asarray(K @ self.mix)
        with np.errstate(over="ignore", invalid="ignore"):
            H = self.kernel.bilinear(d)  # raises if it is not linear in the columns
        # Features of a kernel that is linear in the columns are affine in them: their values at 0 and at multiples of
        # the unit vectors determine them.  Multiples whose features are much larger than the constant keep the digits.
        constant = self.block(np.zeros((1, d)))
        slopes = np.sqrt(np.maximum(np.diagonal(H)[:d], 0.0))  # lengths of the features of the unit vectors
        ratios = np.divide(np.sqrt(max(H[d, d], 0.0)), slopes, out=np.ones(d), where=slopes > 0)
        far = FAR * 2.0 ** np.ceil(np.log2(np.clip(np.nan_to_num(ratios), 1.0, MOST_FAR)))
        return np.concatenate([(self.block(np.diag(far)) - constant) / far[:, None], constant])

    @cached_property
    def _values(self) -> Callable[[Any], Array]:
        """The function x ↦ k(x, Z)."""
        return self.kernel.block_to(self.landmarks)

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}  # without what is derived from the landmarks

    def block(self, X: Any, out: Array | None = None) -> Array:
        """Return the float64 features of rows in memory, written to ``out`` where that is given."""
        X = as_float64(X)
        base: Any = self.kernel.features(X) if self.landmarks is None else self._values(X)
        with np.errstate(over="ignore", invalid="ignore"):  # whoever uses the numbers checks that they are finite
            if self.mix is not None and not _rows.is_sparse(base):
                return _product(base, self.mix, out)
            found = base if self.mix is None else base @ self.mix
        found = np.asarray(found.toarray() if _rows.is_sparse(found) else found)
        if out is None:
            return found
        out[...] = found
        return out

    def __call__(self, X: Any) -> Any:
        """Return the (n, m) features of checked rows: an array, or a lazy dask array."""
        return _rows.map_rows(self.block, X, self.columns, _rows.float_dtype(X), widest=self.widest, writes=True)

    def of_rows(self, X: Any, index: Array, *, copies: int = 1, gather: bool = False, dtype: Any = np.float64) -> Array:
        """Return the features of the rows X[index], in memory; those of other rows are not computed.

        Parameters
        ----------
        X : checked rows
        index : (q,) int array
        copies : int
            How many arrays of this size the caller will hold, for the memory check.
        gather : bool
            Where a dask array is computed.  False: on the workers that have the rows, so only features are sent.  True:
            here, in the same blocks and the same precision as rows in memory, for solvers whose result depends on the
            last digit (descent on a problem that is not convex).
        dtype : dtype
            The precision of the result.
        """
        n, m = len(index), self.columns
        size = np.dtype(dtype).itemsize
        check_memory(size * copies * n * m, f"the features of {n} rows ({n} × {m}, {copies} of them)", "lower the rank")
        if gather and _rows.is_dask(X):
            return np.asarray(self(_rows.take(X, index)), dtype=dtype)
        stored = _rows.float_dtype(X) if gather else dtype
        found = _rows.map_taken(self.block, X, index, m, stored, widest=self.widest, writes=True)
        return found.astype(dtype, copy=False)

    def rotated(self, R: Array, *, exact: bool = False) -> FeatureMap:
        """Return the map φ(x)'R; ``exact`` is whether its inner products are those of the kernel it then represents."""
        return replace(self, mix=R if self.mix is None else self.mix @ R, columns=R.shape[1], exact=exact)

    def scaled(self, weight: float) -> FeatureMap:
        """Return the map of ``weight`` times the kernel."""
        return self.rotated(np.sqrt(weight) * np.eye(self.columns), exact=self.exact)


def _product(base: Array, mix: Array, out: Array | None) -> Array:
    """Return base · mix, written to ``out`` where that is given."""
    if mix.shape[1] > FEW_COLUMNS:
        return np.asarray(np.matmul(base, mix, out=out))
    if out is None:
        out = np.empty((len(base), mix.shape[1]))
    for j, column in enumerate(np.ascontiguousarray(mix.T)):
        out[:, j] = base @ column
    return out


@dataclass(frozen=True, eq=False)
class Stacked(ComparedByContent):
    """Several feature maps side by side: the embedding of a sum of kernels.

    Parameters
    ----------
    maps : tuple of FeatureMap
    mix : (m, k) array, or None for the identity
        Combines the m features of all maps into k columns.
    """

    maps: tuple[FeatureMap, ...]
    mix: Array | None = None

    @property
    def columns(self) -> int:
        """The number of features of all maps together, or the number of their combinations."""
        return sum(part.columns for part in self.maps) if self.mix is None else int(self.mix.shape[1])

    @property
    def widest(self) -> int:
        """The columns of the widest array that the features of a block of rows need."""
        return max(sum(part.columns for part in self.maps), self.columns, *(part.widest for part in self.maps))

    @property
    def exact(self) -> bool:
        """Whether every map is exact."""
        return self.mix is None and all(part.exact for part in self.maps)

    def block(self, X: Any) -> Array:
        """Return the float64 features of rows in memory."""
        features = np.concatenate([part.block(X) for part in self.maps], axis=1)
        return features if self.mix is None else features @ self.mix

    def rotated(self, R: Array) -> Stacked:
        """Return the map φ(x)'R."""
        return replace(self, mix=R if self.mix is None else self.mix @ R)

    def scaled(self, weight: float) -> Stacked:
        """Return the map of ``weight`` times the kernel."""
        return replace(self, maps=tuple(part.scaled(weight) for part in self.maps))

    def __call__(self, X: Any) -> Any:
        """Return the (n, m) features of checked rows: an array, or a lazy dask array."""
        return _rows.map_rows(self.block, X, self.columns, _rows.float_dtype(X), widest=self.widest)


def parts_of(embedding: FeatureMap | Stacked) -> tuple[FeatureMap, ...]:
    """Return the feature maps whose columns make up an embedding."""
    return embedding.maps if isinstance(embedding, Stacked) else (embedding,)


def explicit_width(kernel: Kernel, X: Any) -> int | None:
    """Return the number of explicit features of a kernel, or None where it has none."""
    row = kernel.features(_rows.take(X, np.arange(1)))
    return None if row is None else int(row.shape[1])


def explicit_map(kernel: Kernel, width: int) -> FeatureMap:
    """Return the map of a kernel that has explicit features."""
    return FeatureMap(kernel, None, None, width, exact=True)


def compact(relations: Array) -> tuple[Array, Array]:
    """Return the rows that occur in an array of row numbers, ascending, and the array with these numbered from 0."""
    rows, position = np.unique(relations, return_inverse=True)
    return rows, position.reshape(np.shape(relations))
