"""Difficult rows: extreme numbers, few rows, unusual dtypes and layouts, invalid sparse matrices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

Rng = np.random.Generator
JUNK: list[Any] = [None, True, -1, 0, 1.5, 10**30, float("nan"), "", "x", "\ud800", [], {}, [1, 2], {"a": 1}, [[]]]
"""Values of JSON where something else is expected."""


@dataclass
class Rows:
    """Rows to learn from.

    Attributes
    ----------
    X : whatever is handed to the library
    n : int
        How many rows there are, or would be.
    description : str
    takes : str
        "vectors", "strings" or "gram".
    truth : (n, d) float64 array or None
        The numbers in X; None if they are not finite, or X is not an array of numbers.
    single : bool
        Whether X is in single precision.
    broken : str
        Why the library must refuse X; "" if it may accept X.
    """

    X: Any
    n: int
    description: str
    takes: str = "vectors"
    truth: Any = None
    single: bool = False
    broken: str = ""


def pick(rng: Rng, items: Any) -> Any:
    """Return one of some items, any objects."""
    items = list(items)
    return items[int(rng.integers(len(items)))]


def draw_size(rng: Rng) -> tuple[int, int]:
    n = int(pick(rng, [rng.integers(1, 4), rng.integers(4, 13), rng.integers(13, 41), rng.integers(13, 41)]))
    if rng.random() < 0.05:
        n = int(rng.integers(41, 121))
    d = int(pick(rng, [1, rng.integers(2, 7), rng.integers(2, 7), rng.integers(2, 7), rng.integers(7, 31)]))
    return n, d if rng.random() < 0.95 else 60


# -------------------------------------------------------------------------------------------------------------- content


def _normal(rng: Rng, n: int, d: int) -> Any:
    return rng.normal(size=(n, d)) + 2 * (np.arange(n) % 3)[:, None]


def _scaled(rng: Rng, n: int, d: int) -> Any:
    return _normal(rng, n, d) * 10.0 ** rng.integers(-300, 301)


def _moderately_scaled(rng: Rng, n: int, d: int) -> Any:
    return _normal(rng, n, d) * 10.0 ** rng.integers(-30, 31)


def _mixed_scales(rng: Rng, n: int, d: int) -> Any:
    return _normal(rng, n, d) * 10.0 ** rng.integers(-9, 10, size=d)


def _wildly_mixed(rng: Rng, n: int, d: int) -> Any:
    return _normal(rng, n, d) * 10.0 ** rng.integers(-160, 161, size=d)


def _timestamps(rng: Rng, n: int, d: int) -> Any:
    A = rng.integers(0, 2, size=(n, d)).astype(float)
    A[:, 0] = 1.7e9 + rng.integers(0, 3, size=n)
    return A


def _offset(rng: Rng, n: int, d: int) -> Any:
    return _normal(rng, n, d) + 10.0 ** rng.integers(3, 13)


def _duplicates(rng: Rng, n: int, d: int) -> Any:
    return _normal(rng, max(1, min(3, n // 3)), d)[rng.integers(0, max(1, min(3, n // 3)), size=n)]


def _identical(rng: Rng, n: int, d: int) -> Any:
    return np.tile(rng.normal(size=(1, d)), (n, 1))


def _constant_columns(rng: Rng, n: int, d: int) -> Any:
    A = _normal(rng, n, d)
    A[:, rng.random(d) < 0.6] = rng.choice([0.0, 1.0, -3.5, 1e6])
    return A


def _zeros(rng: Rng, n: int, d: int) -> Any:
    return np.zeros((n, d)) * rng.choice([1.0, -1.0])


def _some_zero_rows(rng: Rng, n: int, d: int) -> Any:
    A = _normal(rng, n, d)
    A[rng.random(n) < 0.5] = 0
    return A


def _binary(rng: Rng, n: int, d: int) -> Any:
    return rng.integers(0, 2, size=(n, d)).astype(float)


def _grid(rng: Rng, n: int, d: int) -> Any:
    return rng.integers(-2, 3, size=(n, d)).astype(float)


def _outlier(rng: Rng, n: int, d: int) -> Any:
    A = _normal(rng, n, d)
    A[rng.integers(n)] *= 10.0 ** rng.integers(6, 151)
    return A


def _near_duplicates(rng: Rng, n: int, d: int) -> Any:
    return _duplicates(rng, n, d) + 10.0 ** rng.integers(-16, -5) * rng.normal(size=(n, d))


def _line(rng: Rng, n: int, d: int) -> Any:
    return np.outer(np.linspace(0, 1, n), rng.normal(size=d))


def _denormal(rng: Rng, n: int, d: int) -> Any:
    return rng.integers(0, 5, size=(n, d)) * 5e-324


def _largest(rng: Rng, n: int, d: int) -> Any:
    return rng.choice([1.0, -1.0, 0.5], size=(n, d)) * np.finfo(float).max


def _not_finite(rng: Rng, n: int, d: int) -> Any:
    A = _normal(rng, n, d)
    A[rng.integers(n), rng.integers(d)] = rng.choice([np.nan, np.inf, -np.inf])
    return A


def _counts(rng: Rng, n: int, d: int) -> Any:
    return rng.poisson(0.3, size=(n, d)).astype(float)


CONTENT: dict[str, Callable[[Rng, int, int], Any]] = {
    "normal": _normal,
    "scaled by 10^±300": _scaled,
    "scaled by 10^±30": _moderately_scaled,
    "columns of scales 10^±9": _mixed_scales,
    "columns of scales 10^±160": _wildly_mixed,
    "timestamps and binary columns": _timestamps,
    "a large offset": _offset,
    "duplicates": _duplicates,
    "identical rows": _identical,
    "constant columns": _constant_columns,
    "zeros": _zeros,
    "some rows of zeros": _some_zero_rows,
    "binary": _binary,
    "small whole numbers": _grid,
    "one outlier": _outlier,
    "near duplicates": _near_duplicates,
    "rows on a line": _line,
    "denormal numbers": _denormal,
    "the largest float": _largest,
    "NaN or infinity": _not_finite,
    "counts": _counts,
}


# ----------------------------------------------------------------------------------------------------- types and layout


def _as_dtype(name: str) -> Callable[[Rng, Any], Any]:
    def cast(rng: Rng, A: Any) -> Any:
        with np.errstate(all="ignore"):
            return A.astype(name)

    return cast


def _frame(rng: Rng, A: Any) -> Any:
    import pandas as pd

    return pd.DataFrame(A, columns=[f"c{i}" for i in range(A.shape[1])])


def _odd_frame(rng: Rng, A: Any) -> Any:
    import pandas as pd

    frame = pd.DataFrame(A)
    frame.columns = ["same"] * A.shape[1]
    return frame


def _polars(rng: Rng, A: Any) -> Any:
    import polars as pl

    return pl.DataFrame({f"c{i}": A[:, i] for i in range(A.shape[1])})


def _objects(rng: Rng, A: Any) -> Any:
    return A.astype(object)


def _objects_with_none(rng: Rng, A: Any) -> Any:
    cells = A.astype(object)
    cells[rng.integers(len(cells)), 0] = pick(rng, [None, "x", [], 1 + 2j, object()])
    return cells


def _strided(rng: Rng, A: Any) -> Any:
    return np.repeat(np.repeat(A, 2, axis=0), 3, axis=1)[::2, ::3]


def _masked(rng: Rng, A: Any) -> Any:
    return np.ma.masked_array(A, mask=rng.random(A.shape) < 0.2)


def _read_only(rng: Rng, A: Any) -> Any:
    B = A.copy()
    B.setflags(write=False)
    return B


def _broadcast(rng: Rng, A: Any) -> Any:
    return np.broadcast_to(A[:1], A.shape)


def _dask(rng: Rng, A: Any) -> Any:
    import dask.array as da

    return da.from_array(A, chunks=(int(rng.integers(1, len(A) + 1)), int(rng.integers(1, A.shape[1] + 1))))


def _dask_unknown(rng: Rng, A: Any) -> Any:
    import dask.array as da

    X = da.from_array(A, chunks=(max(1, len(A) // 2), -1))
    return X[X[:, 0] > -np.inf]


LAYOUTS: dict[str, Callable[[Rng, Any], Any]] = {
    "float32": _as_dtype("f4"),
    "float16": _as_dtype("f2"),
    "longdouble": _as_dtype("longdouble"),
    "int8": _as_dtype("i1"),
    "int64": _as_dtype("i8"),
    "uint64": _as_dtype("u8"),
    "bool": _as_dtype("?"),
    "complex": _as_dtype("c16"),
    "text": _as_dtype("U"),
    "bytes": _as_dtype("S"),
    "dates": lambda rng, A: A.astype("i8").astype("M8[D]"),
    "big endian": _as_dtype(">f8"),
    "Fortran order": lambda rng, A: np.asfortranarray(A),
    "strided": _strided,
    "reversed": lambda rng, A: np.ascontiguousarray(A[::-1, ::-1])[::-1, ::-1],
    "read only": _read_only,
    "one row, broadcast": _broadcast,
    "list of lists": lambda rng, A: A.tolist(),
    "tuple of arrays": lambda rng, A: tuple(A),
    "matrix": lambda rng, A: np.asmatrix(A),
    "masked": _masked,
    "pandas": _frame,
    "pandas with one name": _odd_frame,
    "polars": _polars,
    "objects": _objects,
    "objects, not all numbers": _objects_with_none,
    "one axis": lambda rng, A: A[:, 0],
    "three axes": lambda rng, A: A[None],
    "a number": lambda rng, A: float(A.flat[0]),
    "no rows": lambda rng, A: A[:0],
    "no columns": lambda rng, A: A[:, :0],
    "None": lambda rng, A: None,
    "a string": lambda rng, A: "rows.csv",
    "a dict": lambda rng, A: {"a": A[:, 0]},
    "a generator": lambda rng, A: (row for row in A),
    "ragged": lambda rng, A: [row[: 1 + i % 2] for i, row in enumerate(A.tolist())],
    "dask": _dask,
    "dask of unknown chunks": _dask_unknown,
}
EXACT = (
    "big endian",
    "Fortran order",
    "strided",
    "reversed",
    "read only",
    "list of lists",
    "pandas",
    "polars",
    "objects",
)
"""Layouts in which the numbers are the same."""
LOSSY = {"float32": True, "int8": False, "int64": False, "bool": False}
"""Types in which the numbers are others, but still numbers; and whether they are single precision."""


# --------------------------------------------------------------------------------------------------------------- sparse


def _csr(A: Any) -> Any:
    return sparse.csr_array(A)


def _diagonals(A: Any) -> Any:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SciPy warns of many diagonals
        return sparse.dia_array(A)


def _unsorted(rng: Rng, A: Any) -> Any:
    X = _csr(A)
    for i in range(X.shape[0]):
        part = slice(X.indptr[i], X.indptr[i + 1])
        X.indices[part], X.data[part] = X.indices[part][::-1].copy(), X.data[part][::-1].copy()
    X.has_sorted_indices = False
    return X


def _split_entries(rng: Rng, A: Any) -> Any:
    X = _csr(A)
    indptr = 2 * X.indptr
    return sparse.csr_array((np.repeat(X.data / 2, 2), np.repeat(X.indices, 2), indptr), shape=X.shape)


def _long_indices(rng: Rng, A: Any) -> Any:
    X = _csr(A)
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    return X


def _explicit_zeros(rng: Rng, A: Any) -> Any:
    n, d = A.shape
    full = np.tile(np.arange(d), n), np.arange(n + 1) * d
    return sparse.csr_array((A.ravel().copy(), *full), shape=A.shape)


def _wild(change: Callable[[Rng, Any], None]) -> Callable[[Rng, Any], Any]:
    def broken(rng: Rng, A: Any) -> Any:
        X = _csr(np.where(A == 0, 1.0, A))
        change(rng, X)
        return X

    return broken


def _index_beyond(rng: Rng, X: Any) -> None:
    X.indices[rng.integers(len(X.indices))] = pick(rng, [X.shape[1], X.shape[1] + 1, 2**20, 2**31 - 1])


def _index_negative(rng: Rng, X: Any) -> None:
    X.indices[rng.integers(len(X.indices))] = pick(rng, [-1, -1000, -(2**31)])


def _indptr_wild(rng: Rng, X: Any) -> None:
    X.indptr[rng.integers(len(X.indptr))] = pick(rng, [-1, 10**6, 2**31 - 1, 0])


def _nan_data(rng: Rng, X: Any) -> None:
    X.data[rng.integers(len(X.data))] = pick(rng, [np.nan, np.inf])


SPARSE: dict[str, Callable[[Rng, Any], Any]] = {
    "csr_array": lambda rng, A: _csr(A),
    "csr_matrix": lambda rng, A: sparse.csr_matrix(A),
    "csc": lambda rng, A: sparse.csc_array(A),
    "coo": lambda rng, A: sparse.coo_array(A),
    "lil": lambda rng, A: sparse.lil_array(A),
    "dok": lambda rng, A: sparse.dok_array(A),
    "bsr": lambda rng, A: sparse.bsr_array(A),
    "dia": lambda rng, A: _diagonals(A),
    "float32": lambda rng, A: _csr(A).astype("f4"),
    "whole numbers": lambda rng, A: _csr(np.rint(np.clip(A, -1e9, 1e9)).astype("i8")),
    "unsorted": _unsorted,
    "entries in two halves": _split_entries,
    "int64 indices": _long_indices,
    "explicit zeros": _explicit_zeros,
    "no entries": lambda rng, A: sparse.csr_array(A.shape),
    "no rows": lambda rng, A: sparse.csr_array((0, A.shape[1])),
    "a column beyond the last": _wild(_index_beyond),
    "a negative column": _wild(_index_negative),
    "a wild row pointer": _wild(_indptr_wild),
    "NaN or infinity": _wild(_nan_data),
}
OUT_OF_RANGE = "indices out of range"
BROKEN_SPARSE = ("a column beyond the last", "a negative column", "a wild row pointer", "NaN or infinity", "no rows")


def _broken(X: Any, kind: str) -> str:
    """Return why a sparse matrix must be refused, "" where it need not."""
    if kind == "NaN or infinity":
        return kind
    try:
        X.check_format(full_check=True) if X.format == "csr" else None
    except ValueError:
        return OUT_OF_RANGE
    return ""


# ------------------------------------------------------------------------------------------------------------- together


def vectors(rng: Rng, *, n: int | None = None, d: int | None = None, content: str | None = None) -> Rows:
    """Draw rows of numbers: half of them plain arrays, the others of another dtype or layout, or sparse."""
    size = draw_size(rng)
    n, d = n or size[0], d or size[1]
    content = content or pick(rng, CONTENT)
    A = np.asarray(CONTENT[content](rng, n, d), dtype=float)
    description = f"{n} × {d}, {content}"
    fair = A if np.isfinite(A).all() else None
    where = rng.random()
    with np.errstate(all="ignore"):
        if where < 0.5:
            return Rows(A, n, description, truth=fair, broken="" if fair is not None else "NaN or infinity")
        if where < 0.75:
            kind = pick(rng, SPARSE)
            A = np.where(rng.random(A.shape) < 0.4, A, 0) if content not in ("timestamps and binary columns",) else A
            X = SPARSE[kind](rng, A)
            same = np.isfinite(A).all() and kind not in (*BROKEN_SPARSE, "whole numbers", "float32", "no entries")
            broken = _broken(X, kind)
            DRAWN.append(broken)
            return Rows(X, n, f"{description}, sparse: {kind}", truth=A if same else None, broken=broken)
        kind = pick(rng, LAYOUTS)
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                X = LAYOUTS[kind](rng, A)
            except (ValueError, OverflowError, TypeError):  # NumPy itself will not have it
                X = A
                kind = "as it is"
    truth = fair if kind in (*EXACT, "as it is", "dask") else None
    if kind in LOSSY and fair is not None:
        cast = np.asarray(X, dtype=float)
        truth = cast if np.isfinite(cast).all() else None
    return Rows(X, n, f"{description}, as {kind}", truth=truth, single=LOSSY.get(kind, False))


MILD = (
    "normal",
    "scaled by 10^±30",
    "columns of scales 10^±9",
    "timestamps and binary columns",
    "a large offset",
    "duplicates",
    "constant columns",
    "some rows of zeros",
    "binary",
    "small whole numbers",
    "near duplicates",
    "rows on a line",
    "counts",
)
"""Content that most calls accept."""


def mild(rng: Rng, *, n: int | None = None) -> Rows:
    """Draw rows that most calls accept, more often as plain arrays than others."""
    content = pick(rng, MILD)
    if rng.random() < 0.5:
        return vectors(rng, n=n, content=content)
    size = draw_size(rng)
    A = np.asarray(CONTENT[content](rng, n or size[0], size[1]), dtype=float)
    return Rows(A, len(A), f"{len(A)} × {A.shape[1]}, {content}", truth=A)


def strings(rng: Rng) -> Rows:
    n = draw_size(rng)[0]
    letters = pick(rng, ["ACGT", "A", "aé漢🙂", "A\0B", "\ud800x"])
    length = pick(rng, [0, 1, 2, 8, 30, 2000])
    words = ["".join(rng.choice(list(letters), size=int(rng.integers(0, length + 1)))) for _ in range(n)]
    description = f"{n} strings of {letters!r}, up to {length} letters"
    how = pick(
        rng, ["list", "list", "array", "objects", "bytes", "with None", "with a number", "one string", "identical"]
    )
    X: Any = words
    if how == "array":
        X = np.array(words)
    elif how == "objects":
        X = np.array(words, dtype=object)
    elif how == "bytes":
        X = [w.encode("utf-8", "surrogatepass") for w in words]
    elif how == "with None":
        X = [*words[1:], None]
    elif how == "with a number":
        X = [*words[1:], 3]
    elif how == "one string":
        X = "ACGT"
    elif how == "identical":
        X = ["ACGTACGT"] * n
    return Rows(X, n, f"{description}, {how}", takes="strings")


def gram(rng: Rng) -> Rows:
    n = draw_size(rng)[0]
    A = rng.normal(size=(n, max(1, n // 2)))
    K = A @ A.T
    how = pick(
        rng,
        [
            "as it is",
            "full rank",
            "indefinite",
            "not symmetric",
            "zeros",
            "not square",
            "NaN",
            "huge",
            "tiny",
            "float32",
        ],
    )
    if how == "full rank":
        K += np.eye(n)
    elif how == "indefinite":
        K -= 2 * np.trace(K) / n * np.eye(n)
    elif how == "not symmetric":
        K[0, -1] += 5
    elif how == "zeros":
        K[:] = 0
    elif how == "not square":
        K = K[:, : max(1, n - 1)]
    elif how == "NaN":
        K[0, 0] = np.nan
    elif how == "huge":
        K *= 10.0 ** rng.integers(50, 300)
    elif how == "tiny":
        K *= 10.0 ** -rng.integers(50, 300)
    elif how == "float32":
        K = K.astype("f4")
    return Rows(K, n, f"Gram matrix of {n} rows, {how}", takes="gram", single=how == "float32")


def draw(rng: Rng, takes: str = "vectors") -> Rows:
    return {"vectors": vectors, "strings": strings, "gram": gram}[takes](rng)


DRAWN: list[str] = []
"""Why rows drawn for the current case must be refused; using them anyway may corrupt memory."""


def distances(A: Any, kind: str = "euclidean") -> Any:
    """Return pairwise distances of rows in extended precision, from scaled differences."""
    A = np.asarray(A, dtype=np.longdouble)
    Z = np.abs(A[:, None] - A[None])
    if kind == "cityblock":
        return Z.sum(axis=2)
    scale = Z.max(axis=2, keepdims=True)
    safe = np.where(scale > 0, scale, 1)
    return (safe * np.sqrt(np.square(Z / safe).sum(axis=2, keepdims=True)))[..., 0] * (scale[..., 0] > 0)
