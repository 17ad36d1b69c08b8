"""The learned kernel k̃(x, y) = φ(x)'(εI + C)⁻¹φ(y), in two forms that further groups can be added to."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np

from metricforge import rows as _rows
from metricforge.errors import InputError
from metricforge.kernels import Kernel, OverRows, squared_euclidean
from metricforge.rows import Array, as_float64
from metricforge.space import FeatureMap, LearnedKernel
from metricforge.validation import number, whole_number

from .chunklets import contrasts
from .factor import Factor

LARGEST_COUNT = 2**63 - 1
"""The largest number of rows that arrays can have."""

LARGEST = 1e100
"""Entries of a factor whose squares stay finite are below."""


@dataclass(frozen=True, eq=False)
class ChunkletKernel(OverRows):
    """k̃ from values of the base kernel, without features: eq. (7) in its symmetric form.

    With K and k_x over the n rows in groups, and QQ' = H of eq. (5),

        k̃(x, y) = ( k(x, y) − w_x'w_y ) / ε,   U'w_x = Q'k_x,   U'U = cI + Q'KQ,   c = nε.

    Parameters
    ----------
    base : Kernel
        k, resolved.
    rows : rows
        The n rows in groups, ordered by group.
    sizes : (#groups,) int array
        The number of rows of each group.
    factor : array
        U packed by columns; see `Factor`.
    ridge : float > 0
        c = nε.

    Cost of q rows: O(q n) values of k and O(q n²) flops.
    """

    base: Kernel
    rows: Any
    sizes: Array
    factor: Array
    ridge: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", as_float64(self.rows))
        number(self.ridge, "ridge", above=0)
        sizes, n = self.sizes, self.n
        if not (isinstance(sizes, np.ndarray) and sizes.ndim == 1 and sizes.dtype.kind == "i" and len(sizes)):
            raise InputError(f"sizes must be an array of whole numbers, one for each group, got {sizes!r}")
        if sizes.min() < 2 or sizes.sum() != n:
            raise InputError(f"sizes must be at least 2 and sum to the number of rows, {n}; they sum to {sizes.sum()}")
        r = n - len(sizes)
        if not isinstance(self.factor, np.ndarray) or self.factor.shape != (r * (r + 1) // 2,):
            raise InputError(f"factor must have {r * (r + 1) // 2} entries: the order is {r} for these groups")

    def __getstate__(self) -> dict[str, Any]:
        # without the spare storage of the factor and its unpacked copy
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @property
    def n(self) -> int:
        """The number of rows in groups."""
        return _rows.count(self.rows)

    @property
    def epsilon(self) -> float:
        """ε = c/n."""
        return self.ridge / self.n

    @cached_property
    def triangle(self) -> Factor:
        """The factor of cI + Q'KQ; a solver sets it, so this is one from a file, and checked."""
        found = Factor(np.asarray(self.factor, dtype=np.float64))
        largest = float(np.abs(found.packed).max())
        if not (largest < LARGEST and found.diagonal.min() > 0):
            raise InputError("factor must be finite, with a positive diagonal; learn the metric again")
        self.base.check(self.rows, "rows")
        return found

    def block(self, X: Any, Y: Any) -> Array:
        """Return (K − W_X W_Y') / ε."""
        return self._pairs(X, Y, self._similarity)

    def squared_distance(self, X: Any, Y: Any) -> Array:
        """Return (d²(x, y) − ‖w_x − w_y‖²) / ε: the difference is formed before the division by ε."""
        D = self._pairs(X, Y, self._squared_distance)
        if X is Y:
            np.fill_diagonal(D, 0)
        return D

    def paired(self, X: Any, Y: Any) -> Array:
        """Return (k(x_i, y_i) − w_i'w_i) / ε, row by row."""
        return self._by_row(lambda x, y: self.base.paired(x, y) - np.einsum("ij,ij->i", *self._both(x, y)), X, Y)

    def paired_squared_distance(self, X: Any, Y: Any) -> Array:
        """Return (d²(x_i, y_i) − ‖w_xi − w_yi‖²) / ε, row by row."""

        def apart(x: Any, y: Any) -> Array:
            w, v = self._both(x, y)
            left: Array = self.base.paired_squared_distance(x, y) - np.square(w - v).sum(axis=1)
            return np.maximum(left, 0)

        return self._by_row(apart, X, Y)

    def bilinear(self, d: int) -> Array:
        """Return (H − W W') / ε, where w_x = W'[x, 1]."""
        H = self.base.bilinear(d)
        rows = self.rows.toarray() if _rows.is_sparse(self.rows) else self.rows
        K = H @ np.column_stack([rows, np.ones(self.n)]).T  # (d + 1, n): k_x = K'[x, 1]
        W = self.triangle.solve(contrasts(K, self.sizes))
        return np.asarray((H - W @ W.T) / self.epsilon)

    def whiten(self, X: Any) -> Array:
        """Return the (len(X), n − #groups) rows w_x with U'w_x = Q'k_x."""
        W = np.empty((_rows.count(X), self.triangle.order))
        for part in _rows.blocks(len(W), self._row_bytes):
            W[part] = self.triangle.solve(contrasts(self.base.block(X[part], self.rows), self.sizes))
        return W

    @property
    def _row_bytes(self) -> int:
        return 4 * 8 * self.n  # a row of the kernel, its contrasts and their copies

    def _both(self, X: Any, Y: Any) -> tuple[Array, Array]:
        W = self.whiten(X)
        return W, W if X is Y else self.whiten(Y)

    def _similarity(self, X: Any, Y: Any, W: Array, V: Array) -> Array:
        K: Array = self.base.block(X, Y) - W @ V.T
        return K

    def _squared_distance(self, X: Any, Y: Any, W: Array, V: Array) -> Array:
        D: Array = self.base.squared_distance(X, Y) - squared_euclidean(W, V)
        return np.maximum(D, 0)

    def _pairs(self, X: Any, Y: Any, values: Any) -> Array:
        """Fill a block; w is kept for the shorter side, and computed in blocks for the longer one."""
        dtype = _rows.float_dtype(X, Y)
        same = X is Y
        X = as_float64(X)
        Y = X if same else as_float64(Y)
        out = np.empty((_rows.count(X), _rows.count(Y)), dtype=dtype)
        swap = out.shape[0] < out.shape[1]
        long, short, filled = (Y, X, out.T) if swap else (X, Y, out)
        V = self.whiten(short)
        for part in _rows.blocks(len(filled), max(self._row_bytes, 32 * _rows.count(short))):
            whole = same and part.stop - part.start == len(filled)
            filled[part] = values(short if whole else long[part], short, V if whole else self.whiten(long[part]), V)
            filled[part] /= self.epsilon
        return out

    def _by_row(self, values: Any, X: Any, Y: Any) -> Array:
        same = X is Y
        X = as_float64(X)
        Y = X if same else as_float64(Y)
        out = np.empty(_rows.count(X))
        for part in _rows.blocks(len(out), 2 * self._row_bytes):
            x = X[part]
            out[part] = values(x, x if same else Y[part])
        return out / self.epsilon


@dataclass(frozen=True, eq=False)
class ScatterKernel(LearnedKernel):
    """k̃ on features: a k(x, y) + φ(x)'Wφ(y) with a = 1/ε and aI + W = (εI + S/n)⁻¹, S = Φ'HΦ.

    Exact where the features are; otherwise a·k contributes what the landmarks do not span.

    Parameters
    ----------
    map, W, a
        As in `metricforge.space.LearnedKernel`; ε = 0 means a = 0 and needs exact features and a regular S.
    scatter : (m, m) array
        S, stored so that further groups can be added to it.
    n : int
        The number of rows in groups.
    epsilon : float >= 0
    """

    scatter: Array = field(kw_only=True)
    n: int = field(kw_only=True)
    epsilon: float = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if np.shape(self.scatter) != np.shape(self.W) or not np.isfinite(self.scatter).all():
            raise InputError(f"scatter must be finite and of the shape of W, {np.shape(self.W)}")
        whole_number(self.n, "n", most=LARGEST_COUNT)
        number(self.epsilon, "epsilon", least=0)

    @classmethod
    def of(cls, map: FeatureMap, scatter: Array, n: int, epsilon: float) -> ScatterKernel:
        """Return the kernel of a scatter; one eigendecomposition, O(m³)."""
        R = inverse_root(scatter / n, epsilon)
        a = 1 / epsilon if epsilon else 0.0
        W = R @ R.T - a * np.eye(len(R))
        made = cls(map, (W + W.T) / 2, a, scatter=scatter, n=n, epsilon=epsilon)
        made.__dict__["root"] = R
        return made

    def grown(self, scatter: Array, n: int, epsilon: float) -> ScatterKernel:
        """Return the kernel of another scatter."""
        return self.of(self.map, scatter, n, epsilon)

    @cached_property
    def root(self) -> Array:
        """R with RR' = (εI + C)⁻¹, computed from C: in aI + W, directions of large variance have lost their digits."""
        return inverse_root(self.scatter / self.n, self.epsilon)

    @property
    def condition(self) -> float:
        """How much a (K − ΦΦ') magnifies the rounding of K: tr(C)/ε, 0 if features are exact or ε is 0."""
        return 0.0 if self.map.exact or not self.epsilon else float(self.scatter.trace()) / self.n / self.epsilon

    def block(self, X: Any, Y: Any) -> Array:
        """Return (Φ_X R)(Φ_Y R)' + a (K − Φ_X Φ_Y')."""
        P = self.map.block(X)
        Q = P if X is Y else self.map.block(Y)
        K: Array = (P @ self.root) @ (Q @ self.root).T
        if not self.map.exact:
            K += self.a * (self.base.block(as_float64(X), as_float64(Y)) - P @ Q.T)
        return K.astype(_rows.float_dtype(X, Y), copy=False)

    def paired(self, X: Any, Y: Any) -> Array:
        """Return the same values row by row."""
        P = self.map.block(X)
        Q = P if X is Y else self.map.block(Y)
        k: Array = np.einsum("ij,ij->i", P @ self.root, Q @ self.root)
        if not self.map.exact:
            k += self.a * (self.base.paired(as_float64(X), as_float64(Y)) - np.einsum("ij,ij->i", P, Q))
        return k

    def bilinear(self, d: int) -> Array:
        """Return F R R'F' + a (H − F F') where φ(x) = F'[x, 1]."""
        F = self.map.affine(d)
        G: Array = F @ self.root
        H: Array = G @ G.T
        return H if self.map.exact else H + self.a * (self.base.bilinear(d) - F @ F.T)


def inverse_root(C: Array, epsilon: float) -> Array:
    """Return V (εI + Λ)^(−1/2) for C = VΛV', or raise InputError when εI + C is singular in double precision."""
    if not np.isfinite(C).all():
        raise InputError("X: values of the kernel overflow on these rows; rescale X, for instance with StandardScaler")
    w, V = np.linalg.eigh(C)
    w = np.maximum(w, 0) + epsilon
    floor = len(w) * np.finfo(np.float64).eps * w[-1]
    lost = int(np.count_nonzero(w <= floor))
    if lost or not w[-1] > 0:
        raise InputError(
            f"epsilon={epsilon:g} makes εI + C singular: rows of one group do not vary in {lost} of {len(w)} "
            f'directions (the largest eigenvalue is {w[-1]:.3g}); give a larger epsilon or "auto", more rows in '
            "groups, or fewer features"
        )
    R: Array = V / np.sqrt(w)
    return R
