"""What a row container is, and how a function runs over it: in memory by blocks, or on dask by chunks.

Four containers are rows: a dense 2-d float array, a CSR matrix, a 1-d object array (strings, or whatever a kernel
takes), and a dask array of any of these.  Everything above this file treats them alike.  Beside `cluster`, which runs
what is built here, this is the only file of the core that imports dask.
"""

from __future__ import annotations

import hashlib
import operator
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import cluster
from .errors import InputError, first_rows

Array = NDArray[Any]

BLOCK_BYTES = 64 * 2**20
"""What one block of a blocked loop may allocate; large enough for GEMM to run at full speed."""
FAN_IN = 8
"""How many partial results one dask task joins."""


# ---------------------------------------------------------------------------------------------- recognising rows


def is_dask(X: Any) -> bool:
    """Tell a dask collection without importing dask (nothing can be one before dask is loaded)."""
    return "dask" in sys.modules and hasattr(X, "__dask_graph__")


def is_sparse(X: Any) -> bool:
    """Tell a SciPy sparse matrix or array without importing SciPy."""
    if "scipy.sparse" not in sys.modules:
        return False
    from scipy.sparse import issparse

    return bool(issparse(X))


def count(X: Any) -> int:
    """Return the number of rows."""
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def width(X: Any) -> int | None:
    """Return the number of features, or None where rows have none (strings, objects)."""
    shape: tuple[int, ...] = getattr(X, "shape", ())
    return int(shape[1]) if len(shape) == 2 else None


def as_float64(X: Any) -> Any:
    """Return float32 rows as float64, and any other rows as they are."""
    return X.astype(np.float64) if getattr(X, "dtype", None) == np.float32 else X


def float_dtype(X: Any) -> np.dtype[Any]:
    """Return float32 for float32 rows and float64 for everything else."""
    return np.dtype(np.float32 if getattr(X, "dtype", None) == np.float32 else np.float64)


def column_names(X: Any) -> tuple[str, ...] | None:
    """Return what a frame calls its columns, where all are called by strings; None for other rows."""
    # of the type: a Delayed has an attribute of any name
    names = tuple(X.columns) if hasattr(type(X), "columns") else ()
    return names if names and all(isinstance(name, str) for name in names) else None


# --------------------------------------------------------------------------------------------------- checking rows


def as_vectors(X: Any, name: str = "X") -> Any:
    """Return numeric rows: dense or CSR (or dask of these), float32 kept, everything else float64, all finite.

    Accepts lists, arrays, pandas and polars frames, any SciPy sparse container and dask arrays.  No copy is made of an
    array that is already right.
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
        raise InputError(f"{name} must be a 2-d array with one row per item, got the scalar {A.item()!r}")
    if A.ndim == 1:
        if A.dtype.kind in "US" or (A.dtype == object and len(A) and isinstance(A[0], str)):
            raise InputError(f"{name} holds text; use a kernel on strings, for instance kernel=mf.kernels.Spectrum(3)")
        raise InputError(
            f"{name} must be 2-d, got shape {A.shape}. Reshape your data with {name}.reshape(-1, 1) "
            f"if it has one feature, or {name}.reshape(1, -1) if it is one row"
        )
    if A.ndim != 2:
        raise InputError(f"{name} must be 2-d (rows × features), got shape {A.shape}; flatten each row first")
    _check_not_empty(A, name)
    if A.dtype not in (np.float32, np.float64):
        if A.dtype.kind in "mM":
            raise InputError(f"{name} must hold numbers, got dates or times; convert them, for instance to days")
        try:
            A = A.astype(np.float64)
        except (TypeError, ValueError, OverflowError):
            raise _not_numbers(A, name, columns) from None
    _check_finite(A, name)
    return A


def as_strings(X: Any, name: str = "X") -> Any:
    """Return string rows as a 1-d object array (or a dask array of such)."""
    if is_dask(X):
        return _dask_rows(X, name, ndim=1)
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
    A = np.empty(len(items), dtype=object)
    A[:] = items
    return A


def as_objects(X: Any, name: str = "X") -> Any:
    """Return arbitrary rows untouched, as a 1-d object array; for kernels that look inside them themselves."""
    if is_dask(X):
        return _dask_rows(X, name, ndim=None)
    if hasattr(X, "shape") and len(X.shape):
        if X.shape[0] == 0:
            raise InputError(f"{name} has 0 sample(s); give at least one row")
        return X
    items = _items(X, name)
    if not items:
        raise InputError(f"{name} has 0 sample(s); give at least one row")
    A = np.empty(len(items), dtype=object)
    A[:] = items
    return A


def _items(X: Any, name: str) -> list[Any]:
    if hasattr(X, "to_numpy"):
        X = X.to_numpy()
    try:
        return list(X)
    except TypeError:
        raise InputError(f"{name} must be a sequence with one item per row, got {X!r}") from None


def check_widths(X: Any, Y: Any, names: tuple[str, str] = ("X", "Y")) -> None:
    """Raise when two row containers have different numbers of features."""
    a, b = width(X), width(Y)
    if a is not None and b is not None and a != b:
        raise InputError(
            f"{names[0]} has {a} features, but {names[1]} has {b}; both must have the columns the metric was learned on"
        )


def _not_numbers(A: Array, name: str, columns: list[Any] | None) -> InputError:
    """Return what to say of rows that are not all numbers: which columns, and the first cell."""
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
    # min and max propagate NaN and need no n × d temporary.
    with np.errstate(invalid="ignore"):
        size = max(A.max(), -A.min())
    if np.isfinite(size):
        _check_size(float(size), A.dtype, name)
        return
    bad = np.flatnonzero(~np.isfinite(A).all(axis=1)) + offset
    kind = "NaN" if np.isnan(A).any() else "infinity"
    raise InputError(
        f"{name} contains {kind} in {len(bad)} row(s), first {first_rows(bad)}; "
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


def _csr_vectors(X: Any, name: str) -> Any:
    if X.dtype.kind == "c":
        raise InputError(f"Complex data not supported: {name} has dtype {X.dtype}; give real numbers")
    A = X.tocsr()
    if A.ndim != 2:
        raise InputError(f"{name} must be 2-d (rows × features), got a sparse array of shape {A.shape}")
    _check_not_empty(A, name)
    if A.dtype not in (np.float32, np.float64):
        A = A.astype(np.float64)
    if not np.isfinite(A.data).all():
        entries = np.flatnonzero(~np.isfinite(A.data))
        bad = np.unique(np.searchsorted(A.indptr, entries, side="right") - 1)
        kind = "NaN" if np.isnan(A.data).any() else "infinity"
        raise InputError(
            f"{name} contains {kind} in {len(bad)} row(s), first {first_rows(bad)}; drop or fill those rows"
        )
    if A.nnz:
        _check_size(float(max(A.data.max(), -A.data.min())), A.dtype, name)
    if not A.has_canonical_format:
        A = A.copy() if A is X else A
        A.sum_duplicates()
    return A


def _dask_rows(X: Any, name: str, ndim: int | None) -> Any:
    """Return a dask array of chunks of whole rows, each with some: a filter leaves chunks without any."""
    import dask.array as da

    if not isinstance(X, da.Array):
        frame = "convert with .to_dask_array(lengths=True)"
        how = frame if hasattr(type(X), "to_dask_array") else "see dask.array.from_delayed"
        raise InputError(f"{name} must be a dask array, got {type(X).__name__}; {how}")
    if ndim is not None and X.ndim != ndim:
        raise InputError(f"{name} must be {ndim}-d, got a dask array of shape {X.shape}")
    if any(np.isnan(size) for sizes in X.chunks for size in sizes):
        raise InputError(f"{name} is a dask array with unknown chunk sizes; call {name}.compute_chunk_sizes() first")
    if X.shape[0] == 0:
        raise InputError(f"{name} has 0 sample(s); give at least one row")
    if not all(X.chunks[0]) or any(count > 1 for count in X.numblocks[1:]):
        X = X.rechunk({0: tuple(size for size in X.chunks[0] if size), **dict.fromkeys(range(1, X.ndim), -1)})
    return X


def _dask_vectors(X: Any, name: str) -> Any:
    X = _dask_rows(X, name, ndim=2)
    _check_not_empty(X, name)
    if X.dtype.kind not in "fiub":
        raise InputError(f"{name} must hold real numbers, got a dask array of dtype {X.dtype}")
    if X.dtype not in (np.float32, np.float64):
        X = X.astype(np.float64)
    meta = np.empty((0, 0), dtype=X.dtype) if isinstance(X._meta, np.ma.MaskedArray) else X._meta
    return X.map_blocks(_finite_block, name=None, argument=name, dtype=X.dtype, meta=meta, enforce_ndim=False)


def _finite_block(block: Any, argument: str, block_info: Any = None) -> Any:
    start = block_info[0]["array-location"][0][0] if block_info else 0
    if isinstance(block, np.ma.MaskedArray):
        _check_unmasked(block, argument)
        block = block.data
    if is_sparse(block):
        if np.isfinite(block.data).all():
            return block
        raise InputError(
            f"{argument} contains NaN or infinity in the block that starts at row {start}; drop or fill it"
        )
    if block.size:
        _check_finite(block, argument, offset=start)
    return block


# ---------------------------------------------------------------------------------------------------- moving rows


def take(X: Any, index: Array) -> Any:
    """Return the rows ``X[index]`` in memory; from a dask array only the chunks that hold them are computed."""
    if not is_dask(X):
        return X[index]
    order = np.argsort(index, kind="stable")
    (sorted_rows,) = cluster.compute(_picked(X, np.asarray(index)[order]))
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    return sorted_rows[back]


def _picked(X: Any, index: Array) -> Any:
    """Return the dask rows ``X[index]`` for an ascending index, by one task for each chunk that holds some of them.

    dask's own selection shuffles, with several tasks where one will do.
    """
    if not len(index):
        return X[:0]
    import dask.array as da
    from dask.base import tokenize
    from dask.highlevelgraph import HighLevelGraph

    X = X.rechunk(dict.fromkeys(range(1, X.ndim), -1))
    name = f"picked-{tokenize(X.name, index)}"
    ends = np.cumsum(X.chunks[0])
    owner = np.searchsorted(ends, index, side="right")
    keys, chosen, sizes = _keys(X), *np.unique(owner, return_counts=True)
    inner = (0,) * (X.ndim - 1)
    tasks = {
        (name, i, *inner): (operator.getitem, keys[c], index[owner == c] - (ends[c] - X.chunks[0][c]))
        for i, c in enumerate(chosen)
    }
    graph = HighLevelGraph.from_collections(name, tasks, dependencies=[X])
    return da.Array(graph, name, chunks=(tuple(map(int, sizes)), *X.chunks[1:]), meta=X._meta)


def gathered(X: Any) -> Any:
    """Return rows or results in memory: a dask array computed, anything else as it is."""
    return cluster.compute(X)[0] if is_dask(X) else X


def spread(X: Any) -> Any:
    """Return rows in memory as a dask array on the workers of the active client; without a client X as it is.

    The scheduler keeps the rows too, so that a worker that dies takes nothing with it.
    """
    at = cluster.client()
    if at is None or is_dask(X) or not (isinstance(X, np.ndarray) or is_sparse(X)):
        return X
    n = count(X)
    # two tasks a thread even out unequal workers
    step = min(-(-n // (2 * cluster.threads())), max(1, cluster.task_bytes() // (8 * (width(X) or 1))))
    return cluster.persisted(at, split(X, step))


def stack(X: Any, Y: Any) -> Any:
    """Return the rows of X followed by the rows of Y."""
    if is_dask(X) or is_dask(Y):
        import dask.array as da

        return da.concatenate([as_dask(X), as_dask(Y)], axis=0)
    if is_sparse(X) or is_sparse(Y):
        from scipy import sparse

        return sparse.vstack([X, Y], format="csr")
    return np.concatenate([X, Y], axis=0)


def as_dask(X: Any, chunks: Any = None) -> Any:
    """Return X as a dask array with the given chunks; by default one chunk, whose data is a single graph node."""
    if is_dask(X):
        return X
    import dask
    import dask.array as da

    if chunks is not None:
        return da.from_array(X, chunks=chunks)
    meta = X[:0]
    return da.from_delayed(dask.delayed(X, pure=True, traverse=False), shape=X.shape, dtype=X.dtype, meta=meta)


def split(X: Any, step: int) -> Any:
    """Return rows in memory as a dask array with chunks of ``step`` rows."""
    import dask.array as da

    parts = [X[start : start + step] for start in range(0, count(X), step)]
    return da.concatenate([as_dask(part) for part in parts], axis=0)


def fitted(X: Any, row_bytes: int) -> Any:
    """Return dask rows in chunks small enough for a task that allocates ``row_bytes`` a row; larger ones are split."""
    most = max(1, cluster.task_bytes() // max(1, row_bytes))
    if max(X.chunks[0]) <= most:
        return X
    sizes: list[int] = []
    for size in X.chunks[0]:
        pieces = -(-size // most)
        sizes += [size // pieces + (i < size % pieces) for i in range(pieces)]
    return X.rechunk({0: tuple(sizes)})


def draw(n: int, size: int, seed: int) -> Array:
    """Return ``min(n, size)`` distinct row numbers, sorted: the same for the same n and seed wherever the rows live."""
    if size >= n:
        return np.arange(n)
    return np.sort(np.random.default_rng(seed).choice(n, size=size, replace=False))


def blocks(n: int, row_bytes: int, limit: int = BLOCK_BYTES) -> Iterator[slice]:
    """Yield slices that cover ``range(n)`` so that each slice times ``row_bytes`` stays below ``limit``."""
    step = max(1, limit // max(1, row_bytes))
    for start in range(0, n, step):
        yield slice(start, min(n, start + step))


def moments(X: Any) -> tuple[Array, Array]:
    """Return mean and standard deviation of every column, in one pass and without a copy of X."""
    _, mean, squares = fold(_block_moments, _joined_moments, X)
    return mean, np.sqrt(squares / count(X))


def _block_moments(X: Any) -> tuple[int, Array, Array]:
    """Return rows, mean and squared deviations of a block, itself a block at a time."""
    parts = []
    for part in blocks(count(X), 16 * max(1, width(X) or 1)):
        block = X[part].astype(np.float64)
        n = block.shape[0]
        mean = np.asarray(block.mean(axis=0)).ravel()
        if is_sparse(block):
            apart = np.square(block.data - mean[block.indices])
            squares = np.bincount(block.indices, weights=apart, minlength=len(mean))
            squares += (n - np.bincount(block.indices, minlength=len(mean))) * mean**2
        else:
            squares = np.square(block - mean).sum(axis=0)
        parts.append((n, mean, squares))
    return _joined_moments(parts)


def _joined_moments(parts: list[tuple[int, Array, Array]]) -> tuple[int, Array, Array]:
    total, mean, squares = parts[0]
    for n, other, more in parts[1:]:
        shift = other - mean
        squares = squares + more + shift**2 * (total * n / (total + n))
        mean = mean + shift * (n / (total + n))
        total += n
    return total, mean, squares


# -------------------------------------------------------------------------------------- running a function over rows


def map_rows(function: Callable[[Any], Array], X: Any, columns: int | None, dtype: Any) -> Any:
    """Apply ``function(block) -> (rows, columns)`` to every block of X and stack the results.

    ``columns=None`` is for functions that give one number a row.  In memory the result is an array filled block by
    block; on dask it is a lazy dask array with the chunks of X, split where a chunk of the result would not fit a
    worker.  ``function`` must be picklable for the latter, and goes into the graph once, not once a task.
    """
    if is_dask(X):
        X = fitted(X, np.dtype(dtype).itemsize * (columns or 1))
        out = "i" if columns is None else "ic"
        shape = {} if columns is None else {"new_axes": {"c": columns}}
        call = _RowCall(columns, np.dtype(dtype))
        return _blockwise(call, function, out, ((X, "ik"[: X.ndim]),), dtype, **shape)
    n = count(X)
    result = np.empty(n if columns is None else (n, columns), dtype=dtype)
    row_bytes = 8 * max(columns or 1, width(X) or 1)
    for rows in blocks(n, row_bytes):
        result[rows] = function(X[rows])
    return result


def map_taken(function: Callable[[Any], Array], X: Any, index: Array, columns: int | None, dtype: Any) -> Array:
    """Return ``function`` of the rows ``X[index]``, in memory; on dask it runs where the rows are."""
    if not is_dask(X):
        everything = len(index) == count(X) and np.array_equal(index, np.arange(len(index)))
        return np.asarray(map_rows(function, X if everything else X[index], columns, dtype))
    order = np.argsort(index, kind="stable")
    result = np.empty(len(index) if columns is None else (len(index), columns), dtype=dtype)
    result[order] = gathered(map_rows(function, _picked(X, np.asarray(index)[order]), columns, dtype))
    return result


def map_pairs(function: Callable[[Any, Any], Array], X: Any, Y: Any, dtype: Any) -> Any:
    """Apply ``function(x_block, y_block) -> (rows, columns)`` to every pair of blocks: the outer product of X and Y.

    In memory this is one call (the result is dense anyway); on dask a lazy array with chunks along both axes, split
    where a block of the result would not fit a worker.
    """
    if not (is_dask(X) or is_dask(Y)):
        return function(X, Y)
    X, Y = as_dask(X), as_dask(Y)
    # the block itself and the temporaries of the usual kernel
    entry = 3 * np.dtype(dtype).itemsize
    if entry * max(X.chunks[0]) * max(Y.chunks[0]) > cluster.task_bytes():
        side = int((entry * cluster.task_bytes()) ** 0.5)
        X, Y = fitted(X, side), fitted(Y, side)
    # one chunk along features, so the contraction needs no sum
    ends = ((X, "ik"[: X.ndim]), (Y, "jk"[: Y.ndim]))
    return _blockwise(_PairCall(np.dtype(dtype)), function, "ij", ends, dtype)


def map_paired(function: Callable[[Any, Any], Array], X: Any, Y: Any, dtype: Any) -> Any:
    """Apply ``function(x_block, y_block) -> (rows,)`` to equal slices of X and Y, which have as many rows."""
    if is_dask(X) or is_dask(Y):
        X, Y = as_dask(X), as_dask(Y)
        Y = Y.rechunk({0: X.chunks[0]}) if X.numblocks[0] > 1 else Y
        X = X.rechunk({0: Y.chunks[0]})
        ends = ((X, "ik"[: X.ndim]), (Y, "ik"[: Y.ndim]))
        return _blockwise(_PairCall(np.dtype(dtype)), function, "i", ends, dtype)
    n = count(X)
    result = np.empty(n, dtype=dtype)
    for part in blocks(n, 64 * (width(X) or 1)):
        result[part] = function(X[part], Y[part])
    return result


def map_relations(function: Callable[[Any, Any], Array], X: Any, pairs: Array) -> Array:
    """Return ``function(X[i], X[j])`` for an (p, 2) array of row numbers, a block of pairs at a time."""
    result = np.empty(len(pairs))
    for part in blocks(len(pairs), 32 * (width(X) or 32)):
        result[part] = function(take(X, pairs[part, 0]), take(X, pairs[part, 1]))
    return result


def fold(function: Callable[..., Any], join: Callable[[list[Any]], Any], X: Any, *along: Array) -> Any:
    """Apply ``function(block, *parts)`` to every chunk of X and ``join`` the results to one, pairwise over a tree.

    ``along`` are arrays with one entry a row of X; each call gets the part that belongs to its block.  In memory X is
    one block (``function`` splits it as it likes).  What moves between workers are results, never rows.
    """
    if not is_dask(X):
        return join([function(X, *along)])
    graph = _Graph(function, join, X)
    results = [
        graph.call(_named(part), block, *(a[part.start : part.stop] for a in along))
        for block, part in zip(_keys(X), chunk_ranges(X), strict=True)
    ]
    return cluster.compute(graph.value(graph.joined(results)))[0]


def cross(
    function: Callable[..., tuple[Array, ...]],
    join: Callable[[list[Any]], tuple[Array, ...]],
    X: Any,
    Y: Any,
    outputs: tuple[tuple[int, Any], ...],
) -> tuple[Any, ...]:
    """Apply ``function(x, y, x_rows, y_rows)`` to every pair of chunks, and ``join`` the results over the chunks of Y.

    ``function`` and ``join`` return as many arrays as ``outputs`` names (columns, dtype); what is returned are lazy
    arrays of these columns, with the chunks of X.
    """
    graph = _Graph(function, join, X, Y)
    ends = list(zip(_keys(Y), chunk_ranges(Y), strict=True))
    made = [
        graph.joined([graph.call(_named(x_rows, y_rows), x, y, x_rows, y_rows) for y, y_rows in ends])
        for x, x_rows in zip(_keys(X), chunk_ranges(X), strict=True)
    ]
    return tuple(graph.array(made, o, X.chunks[0], *shape) for o, shape in enumerate(outputs))


class _Graph:
    """Tasks over the chunks of dask arrays.

    Written out, because `dask.delayed` forgets the futures behind persisted rows, and with them the rows.
    """

    def __init__(self, function: Callable[..., Any], join: Callable[[list[Any]], Any], *arrays: Any) -> None:
        import dask
        from dask.base import tokenize

        held = dask.delayed((function, join), pure=True, traverse=False)
        self.name = f"{type(self).__name__.strip('_').lower()}-{tokenize(held.key, *(a.name for a in arrays))}"
        self.held, self.sources = held.key, [held, *arrays]
        self.tasks: dict[Any, Any] = {}

    def _add(self, *task: Any) -> Any:
        key = (self.name, len(self.tasks))
        self.tasks[key] = task
        return key

    def call(self, where: str, *args: Any) -> Any:
        """Add the function of chunks (by their keys) and of other arguments."""
        return self._add(_apply, self.held, where, *args)

    def joined(self, results: list[Any]) -> Any:
        """Add the tree that joins results."""
        while len(results) > FAN_IN:
            results = [self._add(_join, self.held, results[i : i + FAN_IN]) for i in range(0, len(results), FAN_IN)]
        return self._add(_join, self.held, results)

    def _high(self, name: str, tasks: dict[Any, Any]) -> Any:
        from dask.highlevelgraph import HighLevelGraph

        own = HighLevelGraph.from_collections(self.name, self.tasks, dependencies=self.sources)
        return HighLevelGraph({**own.layers, name: tasks}, {**own.dependencies, name: {self.name}})

    def value(self, key: Any) -> Any:
        """Return the delayed value of one task."""
        from dask.delayed import Delayed

        name = f"{self.name}-value"
        return Delayed(name, self._high(name, {name: (_itself, key)}))

    def array(self, keys: list[Any], output: int, sizes: tuple[int, ...], columns: int, dtype: Any) -> Any:
        """Return the lazy array whose chunks are one of the arrays that each of these tasks returns."""
        import dask.array as da

        name = f"{self.name}-array-{output}"
        parts = {(name, i, 0): (operator.getitem, key, output) for i, key in enumerate(keys)}
        return da.Array(self._high(name, parts), name, chunks=(sizes, (columns,)), dtype=dtype)


def _keys(X: Any) -> list[Any]:
    from dask.core import flatten

    return list(flatten(X.__dask_keys__()))


def _apply(held: tuple[Callable[..., Any], Any], where: str, *args: Any) -> Any:
    return _in_block(held[0], where, *args)


def _join(held: tuple[Any, Callable[[list[Any]], Any]], results: list[Any]) -> Any:
    return held[1](results)


def _itself(value: Any) -> Any:
    return value


def chunk_ranges(X: Any) -> list[range]:
    """Return the row numbers of each chunk of a dask array."""
    ends = np.cumsum(X.chunks[0])
    return [range(int(end - size), int(end)) for end, size in zip(ends, X.chunks[0], strict=True)]


def _blockwise(call: Any, function: Any, out: str, ends: tuple[tuple[Any, str], ...], dtype: Any, **how: Any) -> Any:
    """Return the lazy array of ``call(slices, *blocks, function)``; ``slices`` are the rows of the blocks."""
    import dask
    import dask.array as da
    from dask.layers import ArraySliceDep

    held = dask.delayed(function, pure=True, traverse=False)
    rows = {index[0]: X.chunks[0] for X, index in ends}
    where = ArraySliceDep(tuple(rows.values()))
    meta = np.empty((0,) * len(out), dtype=dtype)
    joined = [part for end in ends for part in end]
    # not concatenated, as dask's own reductions are not: only then does it fuse ``kernel(X).sum(axis=1)`` into one task
    # a block, which keeps a few numbers where it would otherwise keep the block
    how |= {"function": held, "concatenate": None, "align_arrays": False, "dtype": dtype, "meta": meta}
    return da.blockwise(call, out, where, "".join(rows), *joined, **how)


def _in_block(function: Callable[..., Any], where: str, *args: Any) -> Any:
    """Call a function inside a task; its error keeps its type and says which rows it was about."""
    try:
        return function(*args)
    except Exception as error:
        error.add_note(f"in the block of {where}")
        raise


def _named(*where: range | slice) -> str:
    return " and ".join(f"rows {part.start} to {part.stop - 1}" for part in where)


@dataclass(frozen=True)
class _RowCall:
    """What a task of `map_rows` does: the same loop over blocks as in memory, so that temporaries stay small."""

    columns: int | None
    dtype: np.dtype[Any]

    def __call__(self, where: tuple[slice, ...], X: Any, function: Callable[[Any], Array]) -> Array:
        result: Array = _in_block(map_rows, _named(*where), function, _only(X), self.columns, self.dtype)
        return result


@dataclass(frozen=True)
class _PairCall:
    """What a task of `map_pairs` and `map_paired` does."""

    dtype: np.dtype[Any]

    def __call__(self, where: tuple[slice, ...], X: Any, Y: Any, function: Callable[[Any, Any], Array]) -> Array:
        block: Array = _in_block(function, _named(*where), _only(X), _only(Y))
        return block.astype(self.dtype, copy=False)


def _only(chunks: Any) -> Any:
    """Return the one chunk along features, which dask hands over in a list."""
    return chunks[0] if isinstance(chunks, list) else chunks


# ------------------------------------------------------------------------------------------------ equality by content


def digest(value: Any) -> bytes:
    """Return a hash of the content of arrays, numbers, strings, and dataclasses of these."""
    state = hashlib.blake2b(digest_size=16)
    _feed(state, value)
    return state.digest()


def _feed(state: Any, value: Any) -> None:
    if is_dask(value):
        state.update(f"dask:{value.name}".encode())
    elif is_sparse(value):
        for part in (value.indptr, value.indices, value.data, np.asarray(value.shape)):
            _feed(state, part)
    elif isinstance(value, np.ndarray) and value.dtype != object:
        state.update(f"array:{value.dtype.str}:{value.shape}".encode())
        state.update(np.ascontiguousarray(value).data.cast("B") if value.size else b"")
    elif isinstance(value, np.ndarray | list | tuple):
        state.update(f"sequence:{len(value)}".encode())
        for item in value:
            _feed(state, item)
    elif isinstance(value, dict):
        for key in sorted(value, key=str):
            _feed(state, str(key))
            _feed(state, value[key])
    elif is_dataclass(value) and not isinstance(value, type):
        state.update(f"{type(value).__module__}.{type(value).__qualname__}".encode())
        for field in fields(value):
            _feed(state, getattr(value, field.name))
    elif isinstance(value, bool | np.bool_ | str | bytes) or value is None:
        state.update(f"{type(value).__name__.rstrip('_')}:{value!r};".encode())
    elif isinstance(value, int | float | np.number):
        # 1, 1.0 and np.float64(1) are one number
        number = float(value)
        state.update(f"number:{number if abs(number) < 2**53 else value!r};".encode())
    else:
        state.update(f"{type(value).__name__}:{value!r};".encode())


class ComparedByContent:
    """Equality and hash by a digest of the fields, for frozen dataclasses that hold arrays (``eq=False``)."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and digest(self) == digest(other)

    def __hash__(self) -> int:
        return int.from_bytes(digest(self)[:8], "little")
