"""Rows on disk as dask arrays: the task that uses a chunk reads it, and the task that computes a chunk writes it.

Only names, shapes and types pass through this process.  On a cluster every worker must have access to the path.
"""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError, UnknownNameError
from ..files.untrusted import check_array_size, check_distinct, check_regular
from ..rows import check_memory
from ..rows.memory import requested_budget
from ..validation import nearest, whole_number
from . import cluster

Array = NDArray[Any]

MOST_CHUNKS = 20_000
"""More make graphs that take minutes to build: 1.3 TB in chunks of the default size."""
CHUNK_BYTES = 64 * 2**20
"""The default size of a chunk."""
PARQUET_COPIES = 3
"""Copies of a column while it is read: as decoded, as an array, and among the rows."""
BATCH_BYTES = 4 * 2**20
"""Rows of a Parquet file that are decoded at a time; a row group may hold the whole file."""
ZARR_COPIES = 2
"""Copies of a chunk of a zarr array while it is read: as decoded, and as rows."""


class _Source(Protocol):
    """Reads rows ``start:stop`` inside a task."""

    def __call__(self, start: int, stop: int) -> Array: ...


_Opened = tuple[_Source, tuple[int, int], np.dtype[Any], int]
"""What an opener returns: the source, its shape and type, and how many rows are always decoded together."""


def open_rows(path: str | os.PathLike[str], *, columns: list[str] | None = None, chunk_rows: int | None = None) -> Any:
    """Open a file of numeric rows as a dask array, without reading it.

    Parameters
    ----------
    path : path
        ``.npy`` (2-d), ``.parquet`` (a file, or a folder of files) or ``.zarr`` (2-d).
    columns : list of str, optional
        The columns of a Parquet file, in this order; default: all.
    chunk_rows : int, optional
        Rows per chunk; default: 64 MiB, or less if the workers have little memory or the memory budget is small.

    Returns
    -------
    (n, d) dask array
        For `learn`, or for ``transform``, ``distance`` and ``neighbors`` of a metric.
    """
    path = Path(path)
    if not path.exists():
        raise InputError(f"path: there is no file {str(path)!r}; on a cluster this process needs access to it too")
    check_regular(path)
    opener = _OPENERS.get(path.suffix.lower())
    if opener is None:
        raise UnknownNameError(
            f"path: {path.name!r} has a format that cannot be read in parts; {nearest(path.suffix, list(_OPENERS))}"
        )
    if columns is not None and path.suffix.lower() != ".parquet":
        raise InputError(f"columns selects columns of a Parquet file, but {path.name!r} has no column names")
    if chunk_rows is not None:
        chunk_rows = whole_number(chunk_rows, "chunk_rows", least=1)
    source, (n, d), dtype, unit = opener(path, columns)
    if n == 0 or d == 0:
        raise InputError(f"path: {path.name!r} holds {n} rows of {d} columns; give at least one of each")
    limit, budget = min(CHUNK_BYTES, cluster.task_bytes()), requested_budget()
    if budget is not None:
        limit = min(limit, budget // (cluster.TASK_SHARE * cluster.threads()))
    step = chunk_rows or max(1, limit // (d * dtype.itemsize * unit)) * unit
    check_memory(min(step, n) * d * dtype.itemsize, f"a chunk of {path.name!r}", "give a smaller chunk_rows")
    if n / step > MOST_CHUNKS:
        raise InputError(
            f"path: {path.name!r} declares {n} rows of {d} columns, which would be {n // step} chunks; if that is what "
            "it holds, give a larger chunk_rows"
        )
    files = [path, *(path.iterdir() if path.is_dir() else ())]
    written = [(str(file), file.stat().st_mtime_ns, file.stat().st_size) for file in sorted(files)]
    return _lazy(source, n, d, dtype, step, written)


def _lazy(source: _Source, n: int, d: int, dtype: np.dtype[Any], step: int, written: list[Any]) -> Any:
    """Return the array that a source reads, as one layer with one task per chunk, so that dask drops unused chunks.

    ``written`` enters the keys: a scheduler may still have the chunks of a file that was written again.
    """
    import dask
    import dask.array as da
    from dask.base import tokenize
    from dask.highlevelgraph import HighLevelGraph

    reader = dask.delayed(source, pure=True, traverse=False)
    name = f"read-{tokenize(reader.key, n, step, written)}"
    starts = range(0, n, step)
    tasks = {(name, i, 0): (_read, reader.key, start, min(n, start + step)) for i, start in enumerate(starts)}
    graph = HighLevelGraph.from_collections(name, tasks, dependencies=[reader])
    sizes = tuple(min(n, start + step) - start for start in starts)
    return da.Array(graph, name, chunks=(sizes, (d,)), meta=np.empty((0, 0), dtype=dtype))


def _read(source: _Source, start: int, stop: int) -> Array:
    return source(start, stop)


# ------------------------------------------------------------------------------------------------------------------ npy


@dataclass(frozen=True)
class _Npy:
    path: str

    def __call__(self, start: int, stop: int) -> Array:
        with _on_worker(self.path):
            return np.array(np.load(self.path, mmap_mode="r")[start:stop])


def _open_npy(path: Path, columns: list[str] | None) -> _Opened:
    try:
        with path.open("rb") as file:
            check_array_size(file, path.stat().st_size)
        found = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise InputError(f"path: {path.name!r} is not a NumPy file of numbers ({error})") from None
    return _Npy(str(path.resolve())), _two_axes(found.shape, path), _numeric(found.dtype, path), 1


# -------------------------------------------------------------------------------------------------------------- parquet


@dataclass(frozen=True)
class _Parquet:
    """Row groups of one or several files, as tuples (file, group, first row)."""

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
            with _on_worker(file), pq.ParquetFile(file, buffer_size=2**16) as opened:
                size = max(1, BATCH_BYTES // (8 * len(self.columns)))
                for batch in opened.iter_batches(size, [group], list(self.columns)):
                    a, b = max(start, first), min(stop, first + batch.num_rows)
                    if a < b:
                        self._fill(result[a - start : b - start], batch.slice(a - first, b - a), file, a)
                    first += batch.num_rows
                    if first >= stop:
                        break
        return result

    def _fill(self, rows: Array, batch: Any, file: str, start: int) -> None:
        """Copy a batch, whose first row has the number ``start``."""
        for c, name in enumerate(self.columns):
            values = batch.column(name)
            if values.null_count:
                missing = int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0]) + start
                raise InputError(
                    f"{file!r}, row {missing} (counted from 0): column {name!r} is empty; fill it in, remove the "
                    "row, or leave the column out"
                )
            rows[:, c] = values.to_numpy(zero_copy_only=False)


def parquet_files(path: Path) -> list[Path]:
    """Return the files behind a Parquet file or a folder of them, in the order of their rows."""
    found = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if not found:
        raise InputError(f"path: the folder {path.name!r} holds no .parquet file")
    for file in found:
        check_regular(file)
    return found


def parquet_columns(path: Path) -> dict[str, bool]:
    """Return the columns of a Parquet file or folder: {name: whether it holds numbers}."""
    import pyarrow.parquet as pq

    file = parquet_files(path)[0]
    try:
        schema = pq.read_schema(file)
    except Exception as error:  # parsers raise errors of many types on broken files
        raise InputError(f"{str(path)!r} is not a Parquet file: {' '.join(str(error).split())[:100]}") from None
    check_distinct(schema.names, path)
    return {found.name: _arrow_dtype(found.type).kind in "fiub" for found in schema}


def check_parquet_size(path: Path, only: Sequence[str] | None = None) -> None:
    """Raise if the memory budget does not allow to read the rows of a Parquet file: compression can hide their size."""
    import pyarrow.parquet as pq

    needed, n = 0, 0
    for file in parquet_files(path):
        about = pq.read_metadata(file)
        n += about.num_rows
        wanted = None if only is None else set(only)
        for group in map(about.row_group, range(about.num_row_groups)):
            for column in map(group.column, range(group.num_columns)):
                if wanted is None or column.path_in_schema in wanted:
                    # repeated values take no space in the file
                    needed += PARQUET_COPIES * max(column.total_uncompressed_size, 8 * group.num_rows)
    check_memory(needed, f"reading {n} rows of {str(path)!r}", "give a part of them, or fewer columns")


def _arrow_dtype(kind: Any) -> np.dtype[Any]:
    """Return the NumPy type of an Arrow type; object if there is none, as for categories."""
    try:
        found: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
    except (NotImplementedError, TypeError):
        return np.dtype(object)
    return found


def _open_parquet(path: Path, columns: list[str] | None) -> _Opened:
    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise InputError("path: reading Parquet needs pyarrow; install it with pip install pyarrow") from None
    groups: list[tuple[str, int, int]] = []
    kinds: dict[str, np.dtype[Any]] = {}
    n = 0
    for file in parquet_files(path):
        try:
            found = pq.ParquetFile(file)
        except Exception as error:
            raise InputError(f"path: {file.name!r} is not a Parquet file ({error})") from None
        fields = {f.name: f.type for f in found.schema_arrow}
        chosen = columns or list(kinds or fields)
        unknown = [name for name in chosen if name not in fields]
        if unknown:
            raise UnknownNameError(f"columns: {file.name!r} has no {unknown[0]!r}; {nearest(unknown[0], list(fields))}")
        kinds = {name: _numeric(_arrow_dtype(fields[name]), path, name) for name in chosen}
        for g in range(found.metadata.num_row_groups):
            groups.append((str(file.resolve()), g, n))
            n += found.metadata.row_group(g).num_rows
    dtype = np.dtype(np.float32 if set(kinds.values()) == {np.dtype(np.float32)} else np.float64)
    return _Parquet(tuple(groups), tuple(kinds), dtype), (n, len(kinds)), dtype, 1


# ----------------------------------------------------------------------------------------------------------------- zarr


@dataclass(frozen=True)
class _Zarr:
    path: str

    def __call__(self, start: int, stop: int) -> Array:
        import zarr

        with _on_worker(self.path):
            found = zarr.open_array(self.path, mode="r")
            height, width = found.shards or found.chunks
            for i in range(start // height, -(-stop // height)):
                for j in range(-(-found.shape[1] // width)):
                    name = found.metadata.encode_chunk_key((i, j))
                    if not (Path(self.path) / name).is_file():  # zarr would return its fill value
                        raise InputError(
                            f"{self.path!r} has no file {name!r}, with rows from {i * height} on; restore it from a "
                            "copy, or write the array again after zarr.config.set({'array.write_empty_chunks': True}), "
                            "because zarr leaves out chunks of zeros"
                        )
            return np.asarray(found[start:stop])


def _open_zarr(path: Path, columns: list[str] | None) -> _Opened:
    try:
        import zarr
    except ImportError:
        raise InputError("path: reading zarr needs zarr; install it with pip install zarr") from None
    try:
        found = zarr.open_array(str(path), mode="r")
    except Exception as error:
        raise InputError(f"path: {path.name!r} is not a zarr array ({error})") from None
    shape, dtype = _two_axes(found.shape, path), _numeric(np.dtype(found.dtype), path)
    if min(*found.chunks, *(found.shards or found.chunks)) < 1:
        raise InputError(f"path: {path.name!r} is not a zarr array (its chunks are {found.chunks})")
    check_memory(
        ZARR_COPIES * math.prod(found.chunks) * dtype.itemsize,
        f"reading {path.name!r}, whose chunks are {found.chunks[0]} × {found.chunks[1]},",
        "write it again with smaller chunks",
    )
    return _Zarr(str(path.resolve())), shape, dtype, min(found.chunks[0], max(1, shape[0]))


# -------------------------------------------------------------------------------------------------------------- storing


def store(X: Any, path: str | os.PathLike[str], names: Sequence[str]) -> None:
    """Write a lazy 2-d array; the task that computes a chunk writes it.

    Parameters
    ----------
    X : (n, d) dask array
    path : path
        ``.npy``, ``.zarr``, or ``.parquet``, which becomes a folder with one file per chunk of rows.
    names : d strings
        The columns of a Parquet file.

    Notes
    -----
    The file has a hidden name until it is complete.  The cost is that of X; no chunk passes through this process.
    """
    import dask.array as da

    target = Path(path).resolve()
    check_storable(target)
    begin = _WRITERS[target.suffix.lower()]
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}.part")
    try:
        with cluster.finishing() as pool:
            X, writer = pool.submit(begin, X, temporary, tuple(names)).result()
            cluster.compute(da.store(X, writer, lock=False, compute=False))
        temporary.replace(target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            shutil.rmtree(temporary) if temporary.is_dir() else temporary.unlink()
        if isinstance(error, OSError):
            raise InputError(f"cannot write {str(path)!r}: {error.strerror or error}; choose another folder") from None
        raise


def check_storable(path: str | os.PathLike[str]) -> None:
    """Raise if `store` cannot write a file; called before the work begins."""
    suffix = Path(path).suffix.lower()
    if suffix != ".npy" and Path(path).exists():
        raise InputError(f"cannot write {str(path)!r}: it becomes a folder, and this name exists; remove it first")
    package = {".parquet": "pyarrow", ".zarr": "zarr"}.get(suffix)
    if package and not installed(package):
        raise InputError(f"cannot write {str(path)!r}: it needs {package}; pip install {package}, or write .npy")


def installed(package: str) -> bool:
    """Return whether a package is installed, without importing it."""
    import importlib.util

    return importlib.util.find_spec(package) is not None


@dataclass(frozen=True)
class _NpyWriter:
    """Writes blocks into an .npy file; not through a memmap, because a full disk would then kill the process."""

    path: str
    offset: int
    columns: int

    def __setitem__(self, where: tuple[slice, slice], block: Array) -> None:
        rows, columns = where
        block = np.ascontiguousarray(block)
        whole = block.shape[1] == self.columns
        with _on_worker(self.path), Path(self.path).open("r+b") as file:
            for i, line in enumerate((block,) if whole else block):
                file.seek(self.offset + ((rows.start + i) * self.columns + columns.start) * block.itemsize)
                file.write(line.data)


def _begin_npy(X: Any, path: Path, names: tuple[str, ...]) -> tuple[Any, Any]:
    with path.open("xb") as file:
        header = {"descr": X.dtype.str, "fortran_order": False, "shape": X.shape}
        np.lib.format.write_array_header_1_0(file, header)
        offset = file.tell()
        file.truncate(offset + X.nbytes)
    return X, _NpyWriter(str(path), offset, X.shape[1])


@dataclass(frozen=True)
class _ParquetWriter:
    """Writes every block to its own file; the names sort in the order of the rows."""

    folder: str
    names: tuple[str, ...]

    def __setitem__(self, where: tuple[slice, slice], block: Array) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = Path(self.folder) / f"{where[0].start:015d}.parquet"
        with _on_worker(self.folder):
            # A task may run twice, on two workers.  Each writes a hidden file, which readers of folders skip, and
            # renames it when it is complete.
            part = path.with_name(f".{path.stem}.{secrets.token_hex(6)}")
            pq.write_table(pa.table(dict(zip(self.names, block.T, strict=True))), part)
            part.replace(path)


def _begin_parquet(X: Any, path: Path, names: tuple[str, ...]) -> tuple[Any, Any]:
    path.mkdir()
    return X.rechunk({1: -1}), _ParquetWriter(str(path), names)


@dataclass(frozen=True)
class _ZarrWriter:
    path: str

    def __setitem__(self, where: tuple[slice, slice], block: Array) -> None:
        import zarr

        with _on_worker(self.path):
            zarr.open_array(self.path, mode="r+")[where] = block


def _begin_zarr(X: Any, path: Path, names: tuple[str, ...]) -> tuple[Any, Any]:
    import zarr

    # equal chunks, so that no two tasks write to the same file
    sides = tuple(max(sizes) for sizes in X.chunks)
    X = X.rechunk(sides)
    # chunks of the fill value are not written, and a reader cannot tell them from lost ones
    fill = np.iinfo(X.dtype).min if X.dtype.kind == "i" else np.nan if X.dtype.kind == "f" else None
    zarr.open_array(str(path), mode="w", shape=X.shape, chunks=sides, dtype=X.dtype, fill_value=fill)
    return X, _ZarrWriter(str(path))


_WRITERS = {".npy": _begin_npy, ".parquet": _begin_parquet, ".zarr": _begin_zarr}
STORED = tuple(_WRITERS)
"""The extensions that `store` writes."""


@contextlib.contextmanager
def _on_worker(path: str) -> Iterator[None]:
    """Explain that a worker has no access to a path that the client has."""
    try:
        yield
    except FileNotFoundError:
        raise InputError(
            f"a worker has no access to {path!r}; on a cluster every worker must have the same files"
        ) from None
    except OSError as error:
        raise InputError(f"{path!r} cannot be read or written on a worker: {error.strerror or error}") from None
    except InputError:
        raise
    except (RuntimeError, ValueError) as error:  # of a decoder
        raise InputError(f"{path!r} is damaged: {error}; restore it from a copy, or write it again") from None


def _two_axes(shape: tuple[int, ...], path: Path) -> tuple[int, int]:
    if len(shape) != 2:
        raise InputError(f"path: {path.name!r} must hold a 2-d array (rows × features), got shape {shape}")
    return int(shape[0]), int(shape[1])


def _numeric(dtype: np.dtype[Any], path: Path, column: str | None = None) -> np.dtype[Any]:
    if dtype.kind not in "fiub":
        where = f"column {column!r} of {path.name!r}" if column else f"{path.name!r}"
        raise InputError(f"path: {where} holds {dtype}, not numbers; leave it out, or encode it first")
    return dtype


_OPENERS = {".npy": _open_npy, ".parquet": _open_parquet, ".zarr": _open_zarr}
