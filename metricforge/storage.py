"""Rows that stay on disk: files opened as dask arrays whose chunks are read by the tasks that use them.

Only names, shapes and types pass through this process.  On a cluster every worker must see the path.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from . import cluster
from .errors import InputError, UnknownNameError, first_rows, nearest, whole_number

Array = NDArray[Any]

CHUNK_BYTES = 64 * 2**20
"""What a chunk holds unless told otherwise."""


class _Source(Protocol):
    """What a task needs to read rows ``start:stop``."""

    def __call__(self, start: int, stop: int) -> Array: ...


def open_rows(path: str | os.PathLike[str], *, columns: list[str] | None = None, chunk_rows: int | None = None) -> Any:
    """Open a file of numeric rows as a dask array, without reading it.

    Parameters
    ----------
    path : path
        ``.npy`` (2-d), ``.parquet`` (a file, or a folder of them) or ``.zarr`` (2-d).
    columns : list of str, optional
        Which columns of a Parquet file, in this order; default: all.
    chunk_rows : int, optional
        Rows a chunk; default: 64 MiB, or less where workers are small.

    Returns
    -------
    (n, d) dask array
        To be given to `learn`, or to ``transform``, ``distance`` and ``neighbors`` of a metric.
    """
    path = Path(path)
    if not path.exists():
        raise InputError(f"path: there is no file {str(path)!r}; on a cluster it must be seen from here too")
    opener = _OPENERS.get(path.suffix.lower())
    if opener is None:
        raise UnknownNameError(
            f"path: {path.name!r} is of no kind that can be read in parts; {nearest(path.suffix, list(_OPENERS))}"
        )
    if columns is not None and path.suffix.lower() != ".parquet":
        raise InputError(f"columns chooses among those of a Parquet file, and {path.name!r} has no names")
    if chunk_rows is not None:
        chunk_rows = whole_number(chunk_rows, "chunk_rows", least=1)
    source, (n, d), dtype = opener(path, columns)
    if n == 0 or d == 0:
        raise InputError(f"path: {path.name!r} holds {n} rows of {d} columns; give at least one of each")
    limit = min(CHUNK_BYTES, cluster.task_bytes())
    step = chunk_rows or max(1, limit // (d * dtype.itemsize))
    return _lazy(source, n, d, dtype, step)


def _lazy(source: _Source, n: int, d: int, dtype: np.dtype[Any], step: int) -> Any:
    import dask
    import dask.array as da

    read = dask.delayed(source, pure=True, traverse=False)
    starts = range(0, n, step)
    parts = [da.from_delayed(read(a, min(n, a + step)), (min(n, a + step) - a, d), dtype) for a in starts]
    return da.concatenate(parts, axis=0)


# ------------------------------------------------------------------------------------------------------------------ npy


@dataclass(frozen=True)
class _Npy:
    path: str

    def __call__(self, start: int, stop: int) -> Array:
        return np.array(np.load(self.path, mmap_mode="r")[start:stop])


def _open_npy(path: Path, columns: list[str] | None) -> tuple[_Source, tuple[int, int], np.dtype[Any]]:
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError) as error:
        raise InputError(f"path: {path.name!r} is no NumPy file of numbers ({error})") from None
    return _Npy(str(path.resolve())), _two(found.shape, path), _number(found.dtype, path)


# -------------------------------------------------------------------------------------------------------------- parquet


@dataclass(frozen=True)
class _Parquet:
    """Row groups of one or several files: (file, group, first row) each."""

    groups: tuple[tuple[str, int, int], ...]
    columns: tuple[str, ...]
    dtype: np.dtype[Any]

    def __call__(self, start: int, stop: int) -> Array:
        import pyarrow.parquet as pq

        result = np.empty((stop - start, len(self.columns)), dtype=self.dtype)
        firsts = [first for _, _, first in self.groups]
        at = max(0, int(np.searchsorted(firsts, start, side="right")) - 1)
        for file, group, first in self.groups[at:]:
            if first >= stop:
                break
            table = pq.ParquetFile(file).read_row_group(group, columns=list(self.columns))
            a, b = max(start, first), min(stop, first + table.num_rows)
            part = table.slice(a - first, b - a)
            for c, name in enumerate(self.columns):
                values = part.column(name)
                if values.null_count:
                    missing = np.flatnonzero(values.is_null().to_numpy()) + a
                    raise InputError(
                        f"column {name!r} is empty in {first_rows(missing)} of the Parquet file; fill or drop them"
                    )
                result[a - start : b - start, c] = values.to_numpy()
        return result


def _open_parquet(path: Path, columns: list[str] | None) -> tuple[_Source, tuple[int, int], np.dtype[Any]]:
    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise InputError("path: reading Parquet needs pyarrow; install it with pip install pyarrow") from None
    files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not files:
        raise InputError(f"path: the folder {path.name!r} holds no .parquet file")
    groups: list[tuple[str, int, int]] = []
    kinds: dict[str, np.dtype[Any]] = {}
    n = 0
    for file in files:
        try:
            found = pq.ParquetFile(file)
        except Exception as error:
            raise InputError(f"path: {file.name!r} is no Parquet file ({error})") from None
        fields = {f.name: f.type for f in found.schema_arrow}
        chosen = columns or list(kinds or fields)
        unknown = [name for name in chosen if name not in fields]
        if unknown:
            raise UnknownNameError(f"columns: {file.name!r} has no {unknown[0]!r}; {nearest(unknown[0], list(fields))}")
        kinds = {name: _number(np.dtype(fields[name].to_pandas_dtype()), path, name) for name in chosen}
        for g in range(found.metadata.num_row_groups):
            groups.append((str(file.resolve()), g, n))
            n += found.metadata.row_group(g).num_rows
    dtype = np.dtype(np.float32 if set(kinds.values()) == {np.dtype(np.float32)} else np.float64)
    return _Parquet(tuple(groups), tuple(kinds), dtype), (n, len(kinds)), dtype


# ----------------------------------------------------------------------------------------------------------------- zarr


@dataclass(frozen=True)
class _Zarr:
    path: str

    def __call__(self, start: int, stop: int) -> Array:
        import zarr

        return np.asarray(zarr.open_array(self.path, mode="r")[start:stop])


def _open_zarr(path: Path, columns: list[str] | None) -> tuple[_Source, tuple[int, int], np.dtype[Any]]:
    try:
        import zarr
    except ImportError:
        raise InputError("path: reading zarr needs zarr; install it with pip install zarr") from None
    try:
        found = zarr.open_array(str(path), mode="r")
    except Exception as error:
        raise InputError(f"path: {path.name!r} is no zarr array ({error})") from None
    return _Zarr(str(path.resolve())), _two(found.shape, path), _number(np.dtype(found.dtype), path)


def _two(shape: tuple[int, ...], path: Path) -> tuple[int, int]:
    if len(shape) != 2:
        raise InputError(f"path: {path.name!r} must hold a 2-d array (rows × features), got shape {shape}")
    return int(shape[0]), int(shape[1])


def _number(dtype: np.dtype[Any], path: Path, column: str | None = None) -> np.dtype[Any]:
    if dtype.kind not in "fiub":
        where = f"column {column!r} of {path.name!r}" if column else f"{path.name!r}"
        raise InputError(f"path: {where} holds {dtype}, which are no numbers; leave it out, or encode it first")
    return dtype


_OPENERS = {".npy": _open_npy, ".parquet": _open_parquet, ".zarr": _open_zarr}
