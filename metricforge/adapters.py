"""A learned metric as a linear map, for a vector store that keeps its own vectors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from . import psd
from .errors import InputError
from .files import atomic
from .kernels import Kernel
from .rows import Array, as_float64, gathered, is_dask, is_sparse, quiet
from .space import FeatureMap, explicit_map, explicit_width
from .validation import one_of, whole_number

CHECKED, DIGITS = 20, 1e-6
"""Training rows on which a map is compared with the kernel, and the largest error of its values."""
ROUNDED = 1e-13
"""What the sums of inner products may lose besides, as a share of their terms."""
SAMPLE = 20_000
"""Training rows that weigh the axes of a map that leaves some out."""


@dataclass(frozen=True, eq=False)
class Adapter:
    """The map x ↦ A x + b.  It unpacks: ``A, b = metric.adapter("query")``.

    Attributes
    ----------
    A : (r, d) array
    b : (r,) array
    side : {"query", "both"}
        "query": (A q + b)·x ranks rows x as k(q, x) does, so stored vectors stay as they are.  "both": inner products
        of mapped rows are those of the metric.
    """

    A: Array
    b: Array
    side: str

    def __iter__(self) -> Iterator[Array]:
        return iter((self.A, self.b))

    def __call__(self, X: Any) -> Array:
        """Return the mapped rows."""
        return np.asarray(np.asarray(X) @ self.A.T + self.b)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write ``.npy``, an (r, d + 1) array with b in the last column, or ``.onnx``, a float32 graph from x to y."""
        path = Path(path)
        writers = {".npy": _npy, ".onnx": _onnx}
        if path.suffix.lower() not in writers:
            raise InputError(f"{str(path)!r}: give a name that ends in {' or '.join(writers)}")
        atomic.write(path, writers[path.suffix.lower()](self))


def adapter_of(kernel: Kernel, d: int, side: str, n_components: int | None, rows: Any) -> Adapter:
    """Return the adapter of a kernel that is linear in d columns; ``rows`` weigh the axes where some are left out.

    k(x, y) = [x, 1]'H[y, 1] gives the query side directly: what does not depend on x does not change a ranking.
    """
    with quiet():
        H = kernel.bilinear(d)
    if not np.isfinite(H).all():
        raise InputError("the linear map of this metric overflows; learn again from rescaled rows")
    if one_of(side, "side", ("query", "both")) == "query":
        if n_components is not None:
            raise InputError('n_components is for side="both": the query side has as many columns as the stored rows')
        return _checked(Adapter(np.asarray(H[:d, :d]), np.asarray(H[:d, d]), side), kernel, rows)
    R = _factor(kernel, H, d)  # (d + 1, r)
    _checked(Adapter(np.asarray(R[:d].T), np.asarray(R[d]), side), kernel, rows)
    if n_components is not None:
        most = whole_number(n_components, "n_components", most=R.shape[1], most_is="the rank of the metric")
        if rows is None or is_dask(rows):
            raise InputError(
                "n_components needs the training rows in memory, to choose the axes; this metric keeps none"
            )
        Z = gathered(rows[:SAMPLE]) @ R[:d] + R[d]
        R = R @ np.linalg.eigh(Z.T @ Z)[1][:, ::-1][:, :most]
    return Adapter(np.asarray(R[:d].T), np.asarray(R[d]), side)


def _factor(kernel: Kernel, H: Array, d: int) -> Array:
    """Return R with k(x, y) = [x, 1]'RR'[y, 1]: from the embedding where it is exact, else from H.

    Beside a large offset of a column the entries of H have lost the digits of its factor.
    """
    own: FeatureMap | None = kernel.embedding()
    if own is None:
        width = explicit_width(kernel, np.zeros((1, d)))
        own = None if width is None else explicit_map(kernel, width)
    return psd.factor(H) if own is None or not own.exact else own.affine(d)


def _checked(adapter: Adapter, kernel: Kernel, rows: Any) -> Adapter:
    """Return an adapter, or raise if rounding keeps it from the kernel on some training rows."""
    if rows is None:
        return adapter
    X = as_float64(gathered(rows[:CHECKED]))
    X = X.toarray() if is_sparse(X) else np.asarray(X)
    with quiet():
        K, mapped = kernel.block(X, X), adapter(X)
        other = X if adapter.side == "query" else mapped
        off = K - mapped @ other.T
        if adapter.side == "query":
            off -= off.mean(axis=1, keepdims=True)  # what does not depend on x does not change a ranking
        apart = K - K.mean(axis=1, keepdims=True) if adapter.side == "query" else K
        terms = float((np.abs(mapped) @ np.abs(other.T)).max())
        allowed = DIGITS * float(np.abs(apart).max()) + ROUNDED * terms
    if not float(np.abs(off).max()) <= allowed:
        raise InputError(
            "the linear map of this metric has lost its digits beside a large offset or scale of a column; subtract a "
            "constant from that column, or divide it by one, and learn again"
        )
    return adapter


def _npy(adapter: Adapter) -> bytes:
    from io import BytesIO

    content = BytesIO()
    np.save(content, np.column_stack([adapter.A, adapter.b]), allow_pickle=False)
    return content.getvalue()


def _onnx(adapter: Adapter) -> bytes:
    try:
        from onnx import TensorProto, checker, helper, numpy_helper
    except ImportError:
        raise InputError("an .onnx file needs the package onnx: pip install 'metricforge[onnx]'") from None
    with quiet():
        A, b = (np.ascontiguousarray(part, dtype=np.float32) for part in (adapter.A, adapter.b))
    if not (np.isfinite(A).all() and np.isfinite(b).all()):
        raise InputError("the numbers of this map are too large for the float32 of an .onnx file; save it as .npy")
    graph = helper.make_graph(
        [helper.make_node("Gemm", ["x", "A", "b"], ["y"], transB=1)],
        "metricforge",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", A.shape[1]])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", A.shape[0]])],
        [numpy_helper.from_array(A, "A"), numpy_helper.from_array(b, "b")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    checker.check_model(model)
    return bytes(model.SerializeToString())
