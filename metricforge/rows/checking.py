"""Validate the rows a user passes, and convert them to one of the row containers.

Every error names the argument, what is wrong, the first rows it is wrong in, and the repair.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import InputError
from ..validation import check_sparse_indices, first_rows, shown
from .containers import Array, is_dask, is_sparse, width

FLOAT64 = np.dtype(np.float64)


def as_vectors(X: Any, name: str = "X") -> Any:
    """Return numeric rows: a dense array, a CSR matrix, or a dask array of these, finite, in float32 or float64.

    Parameters
    ----------
    X : list, array, pandas or polars frame, SciPy sparse matrix, or dask array
        float32 is kept, every other type becomes float64.  Valid arrays are not copied.  The entries of a dask array
        are checked when they are computed.
    name : str
        The argument, for error messages.
    """
    if is_dask(X):
        return _dask_vectors(X, name)
    if is_sparse(X):
        return _csr_vectors(X, name)
    columns = list(X.columns) if hasattr(X, "columns") and hasattr(X, "to_numpy") else None
    if columns is not None:
        X = X.to_numpy()
    if isinstance(X, np.ma.MaskedArray):
        _check_unmasked(X, name)
    try:
        A = np.asarray(X)
    except ValueError as error:
        raise InputError(f"{name} must be a 2-d array of numbers; its rows have unequal lengths ({error})") from None
    if A.dtype.kind == "c":
        raise InputError(f"Complex data not supported: {name} has dtype {A.dtype}; give real numbers")
    if A.ndim == 0:
        kind = "" if A.dtype == object else "the scalar "
        raise InputError(f"{name} must be a 2-d array with one row per item, got {kind}{shown(A.item())}")
    if A.ndim == 1:
        if A.dtype.kind in "US" or (A.dtype == object and len(A) and isinstance(A[0], str)):
            raise InputError(
                f"{name} holds text; use a kernel on strings, for instance kernel=mf.kernels.Spectrum(3).normalized()"
            )
        raise InputError(
            f"{name} must be 2-d, got shape {A.shape}. Reshape your data with {name}.reshape(-1, 1) "
            f"if it has one feature, or {name}.reshape(1, -1) if it is one row"
        )
    if A.ndim != 2:
        raise InputError(f"{name} must be 2-d (rows × features), got shape {A.shape}; flatten each row first")
    _check_not_empty(A, name)
    if A.dtype is not FLOAT64 and A.dtype not in (np.float32, np.float64):
        if A.dtype.kind in "mM":
            raise InputError(f"{name} must hold numbers, got dates or times; convert them, for instance to days")
        try:
            A = A.astype(np.float64)
        except (TypeError, ValueError, OverflowError):
            raise _not_numbers(A, name, columns) from None
    _check_finite(A, name)
    return A


def as_strings(X: Any, name: str = "X") -> Any:
    """Return strings as a 1-d object array, or as a dask array of these."""
    if is_dask(X):
        from ..distributed.chunks import whole_rows

        return whole_rows(X, name, ndim=1)
    if isinstance(X, str):
        raise InputError(f"{name} is one string; give a sequence of strings, for instance [{X[:8]!r}, ...]")
    items = _items(X, name)
    bad = [i for i, s in enumerate(items) if not isinstance(s, str)]
    if bad:
        got = type(items[bad[0]]).__name__
        raise InputError(
            f"{name} must hold strings; {first_rows(bad)} hold {got}. Convert with str, or use another kernel"
        )
    if not items:
        raise InputError(f"{name} has 0 sample(s); give at least one string")
    return _object_array(items)


def holds_strings(X: Any) -> bool:
    """Return whether rows are strings, judged by the first one; a 1-d dask array of objects or of text counts."""
    if is_dask(X):
        # looked up on the type: a dask Delayed has an attribute of any name
        return bool(hasattr(type(X), "ndim") and X.ndim == 1 and X.dtype.kind in "OUT")
    if hasattr(X, "dtype") and hasattr(X, "ndim"):  # arrays, and series of a data frame
        return bool(X.ndim == 1 and len(X) and isinstance(np.asarray(X[:1])[0], str))
    return isinstance(X, list | tuple) and len(X) > 0 and isinstance(X[0], str)


def as_objects(X: Any, name: str = "X") -> Any:
    """Return arbitrary rows unchanged, as an array with one entry per row; the kernel validates them."""
    if is_dask(X):
        from ..distributed.chunks import whole_rows

        return whole_rows(X, name, ndim=None)
    if hasattr(X, "shape") and len(X.shape):
        if X.shape[0] == 0:
            raise InputError(f"{name} has 0 sample(s); give at least one row")
        return X
    items = _items(X, name)
    if not items:
        raise InputError(f"{name} has 0 sample(s); give at least one row")
    return _object_array(items)


def _object_array(items: list[Any]) -> Array:
    A = np.empty(len(items), dtype=object)
    A[:] = items
    return A


def _items(X: Any, name: str) -> list[Any]:
    if hasattr(X, "to_numpy"):
        X = X.to_numpy()
    try:
        return list(X)
    except TypeError:
        raise InputError(f"{name} must be a sequence with one item per row, got {shown(X)}") from None


def check_widths(X: Any, Y: Any, names: tuple[str, str] = ("X", "Y")) -> None:
    """Raise if two row containers have different numbers of features."""
    a, b = width(X), width(Y)
    if a is not None and b is not None and a != b:
        raise InputError(
            f"{names[0]} has {a} features, but {names[1]} has {b}; both must have the columns the metric was learned on"
        )


def _not_numbers(A: Array, name: str, columns: list[Any] | None) -> InputError:
    """Return the error for rows that are not all numbers; it names the columns and the first such cell."""
    bad = [c for c in range(A.shape[1]) if not _is_numeric(A[:, c])]
    row = next(i for i in range(len(A)) if not _is_numeric(A[i : i + 1, bad[0]]))
    some = [repr(columns[c]) if columns else str(c) for c in bad[:5]]
    which = f"column{'s' * (len(bad) > 1)} {', '.join(some)}{', ...' * (len(bad) > 5)}"
    cell = repr(A[[row], bad[0]].tolist()[0])
    encode = "Encode text columns, for instance with sklearn.preprocessing.OneHotEncoder, or leave them out"
    repair = "Fill missing cells, or remove their rows" if cell == "<NA>" else encode
    return InputError(
        f"{name} must hold numbers; {which}{'' if columns else ' (counted from 0)'} {'do' if len(bad) > 1 else 'does'} "
        f"not, first {cell if len(cell) <= 40 else cell[:39] + '…'} in {first_rows([row])}. {repair}"
    )


def _is_numeric(cells: Array) -> bool:
    try:
        cells.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def _check_not_empty(A: Any, name: str) -> None:
    if A.shape[0] == 0:
        raise InputError(
            f"{name} has 0 sample(s) (shape={A.shape}) while a minimum of 1 is required; give at least one row"
        )
    if A.shape[1] == 0:
        raise InputError(
            f"{name} has 0 feature(s) (shape={A.shape}) while a minimum of 1 is required; give at least one column"
        )


def _check_finite(A: Array, name: str, offset: int = 0) -> None:
    """Raise if dense rows are not finite, or so large that squares overflow; ``offset`` is the number of the first."""
    # min and max propagate NaN, without an (n, d) temporary array
    with np.errstate(invalid="ignore"):
        size = max(A.max(), -A.min())
    if not np.isfinite(size):
        raise _not_finite(np.flatnonzero(~np.isfinite(A).all(axis=1)) + offset, bool(np.isnan(A).any()), name)
    _check_size(float(size), A.dtype, name)


def _check_finite_csr(A: Any, name: str, offset: int = 0) -> None:
    """Raise if CSR rows are not finite, or so large that squares overflow; ``offset`` is the number of the first."""
    if not A.nnz:
        return
    with np.errstate(invalid="ignore"):
        size = max(A.data.max(), -A.data.min())
    if not np.isfinite(size):
        entries = np.flatnonzero(~np.isfinite(A.data))
        bad = np.unique(np.searchsorted(A.indptr, entries, side="right") - 1)
        raise _not_finite(bad + offset, bool(np.isnan(A.data).any()), name)
    _check_size(float(size), A.dtype, name)


def _not_finite(bad: Array, missing: bool, name: str) -> InputError:
    return InputError(
        f"{name} contains {'NaN' if missing else 'infinity'} in {len(bad)} row(s), first {first_rows(bad)}; "
        "drop those rows or fill them, for instance with sklearn.impute.SimpleImputer"
    )


def _check_unmasked(A: Any, name: str) -> None:
    if np.ma.getmaskarray(A).any():
        raise InputError(f"{name} is a masked array with masked cells; fill them first, for instance {name}.filled(0)")


def _check_size(size: float, dtype: Any, name: str) -> None:
    if size > (1e18 if dtype == np.float32 else 1e150):
        raise InputError(
            f"{name} has values up to {size:.3g}, whose squares overflow; rescale its features, "
            "for instance with sklearn.preprocessing.StandardScaler"
        )


def _check_indices(A: Any, name: str) -> None:
    try:
        check_sparse_indices(A)
    except ValueError as error:
        raise InputError(f"{name} is a sparse matrix with invalid indices ({error}); build it anew") from None


def _csr_vectors(X: Any, name: str) -> Any:
    if X.dtype.kind == "c":
        raise InputError(f"Complex data not supported: {name} has dtype {X.dtype}; give real numbers")
    if X.dtype.kind not in "fiub":
        raise InputError(
            f"{name} must hold numbers, got a sparse matrix of dtype {X.dtype}; convert it, or leave it out"
        )
    _check_indices(X, name)
    A = X.tocsr()
    if A.ndim != 2:
        raise InputError(f"{name} must be 2-d (rows × features), got a sparse array of shape {A.shape}")
    _check_not_empty(A, name)
    if A.dtype not in (np.float32, np.float64):
        A = A.astype(np.float64)
    _check_finite_csr(A, name)
    if not A.has_canonical_format:
        A = A.copy() if A is X else A
        A.sum_duplicates()
    return A


def _dask_vectors(X: Any, name: str) -> Any:
    from ..distributed.chunks import whole_rows

    X = whole_rows(X, name, ndim=2)
    _check_not_empty(X, name)
    if X.dtype.kind not in "fiub":
        raise InputError(f"{name} must hold real numbers, got a dask array of dtype {X.dtype}")
    if X.dtype not in (np.float32, np.float64):
        X = X.astype(np.float64)
    meta = np.empty((0, 0), dtype=X.dtype) if isinstance(X._meta, np.ma.MaskedArray) else X._meta
    return X.map_blocks(_finite_block, name=None, argument=name, dtype=X.dtype, meta=meta, enforce_ndim=False)


def _finite_block(block: Any, argument: str, block_info: Any = None) -> Any:
    """Return a chunk of dask rows, or raise if it is not finite."""
    start = block_info[0]["array-location"][0][0] if block_info else 0
    if isinstance(block, np.ma.MaskedArray):
        _check_unmasked(block, argument)
        block = block.data
    if is_sparse(block):
        _check_indices(block, argument)
        _check_finite_csr(block.tocsr(), argument, offset=start)
    elif block.size:
        _check_finite(block, argument, offset=start)
    return block
