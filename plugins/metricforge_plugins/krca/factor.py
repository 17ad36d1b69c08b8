"""A Cholesky factor that grows by columns: packed, so that new columns are appended at the end."""

from __future__ import annotations

from functools import cached_property, lru_cache
from math import isqrt, log, sqrt
from threading import Lock

import numpy as np

from metricforge.rows import Array
from metricforge.space import check_memory

FEW = 4
"""Up to FEW right-hand sides are solved one by one from the packed factor; for more it is unpacked (BLAS level 3)."""
PROBES = 3
"""Random directions along which the columns of a large factor are checked."""


class Factor:
    """The upper triangular U with U'U = A, A positive definite of order r.

    U is packed by columns (LAPACK's "U" packing) into r (r + 1) / 2 numbers.  The factor of a leading block of A is a
    prefix of them, so `append` writes after the end, in storage that doubles when it is full.

    Parameters
    ----------
    packed : (r (r + 1) / 2,) array

    Attributes
    ----------
    order : int
        The order r of A.
    """

    def __init__(self, packed: Array, storage: _Storage | None = None) -> None:
        self.packed = packed
        self.order = (isqrt(8 * len(packed) + 1) - 1) // 2
        self._storage = storage
        self._probed: Array | None = None

    @classmethod
    def of(cls, A: Array) -> Factor:
        """Factorise a symmetric C-ordered A in place: only its lower triangle is overwritten, by U'.

        Raises
        ------
        numpy.linalg.LinAlgError
            When A is not positive definite in double precision.
        """
        from scipy.linalg.lapack import dpotrf, dtrttp

        U, info = dpotrf(A.T, lower=0, clean=0, overwrite_a=1)  # A.T is in Fortran order: no copy
        if info:
            raise np.linalg.LinAlgError(f"leading minor {info} is not positive")
        return cls(dtrttp(U, uplo="U")[0])

    @property
    def diagonal(self) -> Array:
        """The diagonal of U."""
        j = np.arange(self.order)
        return np.asarray(self.packed[j * (j + 3) // 2])

    def log_determinant_from(self, first: int) -> float:
        """Return log det A minus log det of its leading block of order ``first``."""
        if self.order - first <= FEW:  # a stream of small updates
            return 2 * sum(log(self.packed[j * (j + 3) // 2]) for j in range(first, self.order))
        return 2 * float(np.log(self.diagonal[first:]).sum())

    def solve(self, B: Array) -> Array:
        """Return the (q, r) rows w with U'w = b for the rows b of B, so that w'w = b'A⁻¹b.

        The number of rows alone decides how: the two ways round differently, and an answer that depended on earlier
        calls would change when another metric is updated from this one.
        """
        if len(B) <= FEW:
            from scipy.linalg.blas import dtpsv

            W = np.array(B, dtype=np.float64)
            for i in range(len(W)):
                W[i] = dtpsv(self.order, self.packed, W[i], trans=1, overwrite_x=1)
            return W
        from scipy.linalg.lapack import dtrtrs

        return np.asarray(dtrtrs(self._unpacked, B.T, trans=1)[0].T)

    def times(self, v: Array) -> Array:
        """Return Av = U'Uv."""
        from scipy.linalg.blas import dtpmv

        return np.asarray(dtpmv(self.order, self.packed, dtpmv(self.order, self.packed, v), trans=1))

    def times_from(self, first: int, v: Array) -> Array:
        """Return U u with u = 0 before ``first`` and u = v from there on: a combination of the last columns."""
        if len(v) == 1:
            return np.asarray(v[0] * self._column(first))
        u = np.zeros(self.order)
        for j, weight in enumerate(v, first):
            u[: j + 1] += weight * self._column(j)
        return u

    def residual(self, first: int, v: Array, truth: Array, *, probes: bool) -> float:
        """Return ‖U'Uu − truth‖ / ‖truth‖ for a vector u that is 0 before ``first`` and v from there on.

        ``probes`` estimates the norm from random combinations of all entries, as the root of a mean square: z'U'Uu is
        (Uz)'(Uu), and Uz is kept with the factor and grows with it, which takes O(r) instead of O(r²).
        """
        u = self.times_from(first, v)
        scale = float(np.abs(truth).max()) or 1.0  # divided by before squaring: A may have any magnitude
        truth = truth / scale
        if probes:
            apart = u @ self.probed / scale - truth @ directions(self.order)
            apart /= sqrt(PROBES)
        else:
            from scipy.linalg.blas import dtpmv

            apart = dtpmv(self.order, self.packed, u, trans=1, overwrite_x=1) / scale - truth
        return sqrt(apart @ apart) / (sqrt(truth @ truth) or 1.0)

    @property
    def probed(self) -> Array:
        """U Z for the random directions Z (r, PROBES)."""
        if self._probed is None:
            from scipy.linalg.blas import dtpmv

            Z = directions(self.order)
            self._probed = np.column_stack([dtpmv(self.order, self.packed, z) for z in Z.T])
        return self._probed

    def _column(self, j: int) -> Array:
        """Return column j of U down to the diagonal."""
        return self.packed[j * (j + 1) // 2 : (j + 1) * (j + 2) // 2]

    def append(self, B: Array, D: Array) -> Factor:
        """Return the factor of [[A, B'], [B, D]]; this factor is not changed.

        Cost: q triangular solves, O(q r²) time.  The new columns are written after this factor, or into a copy if
        another factor has been written there.

        Raises
        ------
        numpy.linalg.LinAlgError
            When the enlarged matrix is not positive definite in double precision.
        """
        r, q = self.order, len(D)
        V = self.solve(B)  # (q, r)
        C = D - V @ V.T
        if q == 1:  # a stream of pairs: LAPACK would take longer than the rest of the arithmetic
            if not C[0, 0] > 0:
                raise np.linalg.LinAlgError("the enlarged matrix is not positive definite")
            T = np.sqrt(C)
        else:
            T = np.linalg.cholesky(C).T
        columns = np.concatenate([part for j in range(q) for part in (V[j], T[: j + 1, j])])
        assert len(columns) == q * r + q * (q + 1) // 2
        storage = self._storage or _Storage(self.packed, len(columns))
        new = Factor(*storage.append(len(self.packed), columns))
        if self._probed is not None:
            new._probed = np.zeros((r + q, PROBES))
            new._probed[:r] = self._probed
            for j, z in enumerate(directions(r + q)[r:], r):
                new._probed[: j + 1] += new._column(j)[:, None] * z
        return new

    @cached_property
    def _unpacked(self) -> Array:
        from scipy.linalg.lapack import dtpttr

        return np.asarray(dtpttr(self.order, self.packed, uplo="U")[0])


def directions(size: int) -> Array:
    """Return (size, PROBES) random numbers, of which those of a smaller size are the first rows."""
    return _drawn(1 << size.bit_length())[:size]


@lru_cache(maxsize=2)
def _drawn(size: int) -> Array:
    return np.random.default_rng(0).standard_normal((size, PROBES))


class _Storage:
    """A buffer with spare capacity, shared by factors of which one extends the other.

    Every factor reads a prefix, and no number is written twice, so an older factor stays valid while a newer one uses
    the capacity after it.  A second extension of the same prefix finds that capacity used, and copies the prefix.
    """

    def __init__(self, values: Array, more: int) -> None:
        size = 2 * (len(values) + more)
        check_memory(8 * size, "the factor of all groups", "learn with a number of landmarks as rank")
        self.buffer = np.empty(size)
        self.buffer[: len(values)] = values
        self.used = len(values)
        self.lock = Lock()

    def append(self, at: int, values: Array) -> tuple[Array, _Storage]:
        """Return the first ``at`` numbers followed by ``values``, and the storage that contains them."""
        end = at + len(values)
        with self.lock:
            if self.used == at and end <= len(self.buffer):
                self.buffer[at:end] = values
                self.used = end
                whole = self.buffer[:end]
                whole.setflags(write=False)
                return whole, self
        return _Storage(self.buffer[:at], len(values)).append(at, values)
