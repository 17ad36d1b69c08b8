"""An index of rows by cells: plain arrays, in memory or memory-mapped from a folder."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError, ModelFileError
from ..rows import blocks, gathered, is_dask, quiet, show_bytes, take
from ..validation import number, whole_number
from .api import check_k, check_rows, search
from .approximate import pilot_rows, plan, without_itself
from .contract import Array, Found
from .partition import BATCH, Cells, index_count, learn_cells, sample_rows
from .probing import Coarse, Members, prepared, probe, search_float

FORMAT = 3
ARRAYS = ("rows", "bounds", "numbers", "starts", "centres", "groups", "group_starts", "checksums")
MAPPED = ("rows", "bounds", "numbers")
"""Arrays that are mapped into memory, not read, when an index is opened.  Their checksums, one for each cell, are
compared when a search first reads the cell."""
LATER = ("rows", "bounds")
"""Arrays that are not read at all when an index is opened."""
DESCRIPTION = "index.json"
PILOT = 1200
"""Rows whose true neighbours are searched when an index is built: three times those of a search that is done once."""
JUDGES, MARGIN = 1000, 1.645
"""How many of these rows choose the number of cells, and by how many standard errors their recall exceeds the one asked
for: that of new queries then reaches it with a confidence of 95 %.  A cell more costs little."""


@dataclass(frozen=True, eq=False)
class CellIndex:
    """Rows in the order of their cells, and how many cells to search for a query.

    Attributes
    ----------
    cells : Cells
    members : Members
    coarse : Coarse
        The rows as float32 operands, which propose the candidates.
    probes : int
        Cells searched for each query.
    recall : float
        The share of the true ``k`` neighbours that these contain, estimated on rows that took no part in the choice.
    k : int
        The number of neighbours for which ``probes`` was chosen.
    checksums : (C, 3) uint32 array, optional
        Those of the rows, bounds and numbers of each cell, where they are in a folder.
    """

    cells: Cells
    members: Members
    coarse: Coarse
    probes: int
    recall: float
    k: int
    checksums: Array | None = None

    @property
    def n(self) -> int:
        """The number of rows."""
        return len(self.members.numbers)

    def search(self, queries: Any, k: int) -> Found:
        """Return the k nearest rows of each query, as `metricforge.neighbors.search` does; approximate.

        Cells are added for queries whose cells have fewer than k rows.  Time per query: the distances to the rows of
        ``probes`` cells; only these rows are read.
        """
        k = check_k(k, self.n, exclude_self=False)
        Q = check_rows(queries, "queries")
        if Q.shape[1] != self.cells.centres.shape[1]:
            raise InputError(f"queries have {Q.shape[1]} columns, but the index has {self.cells.centres.shape[1]}")
        found = np.empty((len(Q), k), dtype=np.int64), np.empty((len(Q), k))
        if not len(Q):
            return found
        with quiet():
            for part in blocks(len(Q), 1, BATCH):
                probes = self.cells.enough(Q[part], self.probes, np.diff(self.members.starts), k)
                self._check_cells(probes)
                near = search_float(Q[part], probes, self.members, self.coarse, k)
                found[0][part], found[1][part] = probe(Q[part], probes, self.members, k) if near is None else near
        if not np.isfinite(found[1]).all():  # rows of a folder are mapped, and not checked when it is opened
            raise ModelFileError("the index holds rows that are not finite, so it is damaged; build it again")
        return found

    def _check_cells(self, probes: Array) -> None:
        """Raise if the rows of cells that no search has read before are not those that were written."""
        if self.checksums is None:
            return
        cells = probes[probes >= 0]
        for cell in np.unique(cells[~self._checked[cells]]).tolist():
            if (_cell_checksums(self, cell) != self.checksums[cell]).any():
                raise ModelFileError("the index holds damaged rows; build it again")
            self._checked[cell] = True

    @cached_property
    def _checked(self) -> Array:
        return np.zeros(self.cells.count, dtype=bool)

    def rows_of(self, numbers: Array) -> Array:
        """Return the indexed rows of these numbers."""
        return np.asarray(self.members.rows[self._places[numbers]])

    @cached_property
    def _places(self) -> Array:
        if not _numbers_rows(self.members.numbers, self.n):
            raise ModelFileError("the index holds damaged numbers of rows; build it again")
        places = np.full(self.n, -1)
        places[self.members.numbers] = np.arange(self.n)
        if places.min() < 0:  # mapped numbers may have been damaged since the index was opened
            raise ModelFileError("the index holds a number of a row twice, so it is damaged; build it again")
        return places

    def save(self, folder: str | os.PathLike[str], **description: Any) -> None:
        """Write the index to a folder, which is complete or not there; one that is there is replaced."""
        target, arrays = Path(folder), _arrays(self)
        temporary = _temporary(target, sum(array.nbytes for array in arrays.values()))
        try:
            for name, array in arrays.items():
                np.save(temporary / f"{name}.npy", array, allow_pickle=False)
            _finish(self, temporary, target, description)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise


def build(
    Z: Any,
    *,
    k: int = 10,
    recall: float = 0.95,
    seed: int = 0,
    folder: str | os.PathLike[str] | None = None,
    as_query: Callable[[Array], Array] | None = None,
    **description: Any,
) -> CellIndex:
    """Index rows for the search of new rows.

    Parameters
    ----------
    Z : (n, d) dense array, or a dask array of dense chunks
        The rows; those of a dask array are read one chunk at a time.
    k : int
        The number of neighbours for which the recall is to hold.
    recall : float in (0, 1]
        The share of true neighbours to find, estimated on a sample.
    seed : int
    folder : path, optional
        Write the rows there, and map them into memory: an index can then be larger than memory.
    as_query : callable, optional
        ``as_query(rows)`` returns what rows would be as queries, if they differ; the recall is that of such queries.
    **description
        What else to write into the folder's description, as JSON.

    Notes
    -----
    Time: three passes over the rows, and O(√n n d).  Memory: 24 bytes per row; without a folder, also the rows, and
    4 (d + 2) bytes per row.
    """
    if not is_dask(Z):
        Z = check_rows(Z)
    n, d = Z.shape
    k = check_k(k, n, exclude_self=n > 1)
    recall, seed = number(recall, "recall", above=0, most=1), whole_number(seed, "seed", 0)
    count = index_count(n)
    cells = learn_cells(np.asarray(take(Z, sample_rows(n, count, seed))), count, seed)
    probes, estimate = _probes(Z, cells, k, recall, seed, as_query)
    home = np.empty(n, dtype=np.int64)
    for part, rows in _parts(Z):
        home[part] = cells.nearest(rows, 1)[:, 0]
    starts = np.zeros(cells.count + 1, dtype=np.int64)
    np.cumsum(np.bincount(home, minlength=cells.count), out=starts[1:])
    order = np.argsort(home, kind="stable")
    place = np.empty(n, dtype=np.int64)
    place[order] = np.arange(n)
    needed = n * (d * Z.dtype.itemsize + 4 * (d + 2) + 8)
    temporary = None if folder is None else _temporary(Path(folder), needed)
    try:
        stored = _empty(temporary, "rows", (n, d), Z.dtype)
        bounds = _empty(temporary, "bounds", (n, d + 2), np.float32)
        middle, largest = cells.centres.mean(axis=0), 0.0
        for part, rows in _parts(Z):
            stored[place[part]] = rows
            bounds[place[part]], norm = prepared(rows, middle)
            largest = max(largest, norm)
        coarse = Coarse(bounds, largest, middle)
        index = CellIndex(cells, Members(stored, order, starts), coarse, probes, estimate, k)
        if temporary is None or folder is None:
            return index
        for name, array in _arrays(index).items():
            if name not in LATER:
                np.save(temporary / f"{name}.npy", array, allow_pickle=False)
        for written in (stored, bounds):
            written.flush()  # type: ignore[attr-defined]
        _finish(index, temporary, Path(folder), description)
    except BaseException:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
        raise
    return opened(folder)[0]


def opened(folder: str | os.PathLike[str]) -> tuple[CellIndex, Mapping[str, Any]]:
    """Return the index in a folder and its description; rows are mapped into memory, not read.

    Raises
    ------
    ModelFileError
        If the folder has no index, or an incomplete or damaged one.
    """
    where = Path(folder)
    try:
        if not (where / DESCRIPTION).is_file():
            raise ValueError(f"there is no file {DESCRIPTION}")
        described = json.loads((where / DESCRIPTION).read_text())
        for name in ARRAYS:
            if not (where / f"{name}.npy").is_file():  # opening a pipe would wait for ever
                raise ValueError(f"there is no file {name}.npy")
        arrays = {name: np.load(where / f"{name}.npy", mmap_mode="r", allow_pickle=False) for name in ARRAYS}
    except Exception as error:  # NumPy raises errors of many types on broken headers
        raise ModelFileError(f"{str(where)!r} has no complete index: {error}; build it again") from None
    try:
        small = {name: np.array(arrays[name]) for name in ARRAYS if name not in MAPPED}
        if not isinstance(described, dict) or not all(array.size for array in arrays.values()):
            raise ValueError("a part is empty")
        if described["format"] != FORMAT:
            raise ModelFileError(
                f"{str(where)!r} has an index of format {described['format']}, and this version reads {FORMAT}; "
                "build it again"
            )
        written = described.pop("checksums")
        for name, checksum in _file_checksums(where, described).items():
            if written[name] != checksum:
                raise ValueError(f"{name} is not as it was written")
        cells = Cells(small["centres"], small["groups"], small["group_starts"])
        members = Members(arrays["rows"], arrays["numbers"].view(np.ndarray), small["starts"])
        with quiet():
            middle = cells.centres.mean(axis=0)
        largest, recall = (number(described[name], name, least=0) for name in ("largest", "recall"))
        coarse = Coarse(arrays["bounds"].view(np.ndarray), largest, middle)
        probes, k = (whole_number(described[name], name) for name in ("probes", "k"))
        index = CellIndex(cells, members, coarse, probes, number(recall, "recall", most=1), k, small["checksums"])
        _check(index)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        if isinstance(error, ModelFileError):
            raise
        raise ModelFileError(f"{str(where)!r} has a damaged index: {error}; build it again") from None
    return index, described


def _check(index: CellIndex) -> None:
    """Raise ValueError if the arrays of an index do not fit together."""
    cells, members = index.cells, index.members
    n, d = members.rows.shape
    whole, real = (np.int64,), (np.float32, np.float64)
    kinds = {"starts": (members.starts, whole), "group_starts": (cells.starts, whole), "centres": (cells.centres, real)}
    for name, (array, allowed) in (kinds | {"groups": (cells.groups, real)}).items():
        if array.dtype not in allowed:
            raise ValueError(f"{name} holds {array.dtype}")
    checks = {
        "starts": members.starts.shape == (cells.count + 1,) and _ascends(members.starts, n),
        "group_starts": cells.starts.shape == (len(cells.groups) + 1,) and _ascends(cells.starts, cells.count),
        "numbers": members.numbers.shape == (n,) and _numbers_rows(members.numbers, n),
        "centres": cells.centres.shape[1] == d and _has_squares(cells.centres),
        "groups": cells.groups.shape[1] == d and _has_squares(cells.groups),
        "rows": members.rows.dtype in (np.float32, np.float64),
        "bounds": index.coarse.rows.shape == (n, d + 2) and index.coarse.rows.dtype == np.float32,
        "probes": 1 <= index.probes <= cells.count,
        "checksums": index.checksums is not None and index.checksums.shape == (cells.count, len(MAPPED)),
    }
    wrong = [name for name, right in checks.items() if not right]
    if wrong:
        raise ValueError(f"{wrong[0]} does not fit the other parts")


def _cell_checksums(index: CellIndex, cell: int) -> Array:
    """Return the checksums of the rows of a cell, of their bounds and of their numbers."""
    part = slice(*index.members.starts[cell : cell + 2].tolist())
    read = index.members.rows[part], index.coarse.rows[part], index.members.numbers[part]
    return np.array([zlib.crc32(array.tobytes()) for array in read], dtype=np.uint32)


def _file_checksums(folder: Path, described: Mapping[str, Any]) -> dict[str, int]:
    """Return the checksums of the description, and of the files that are read when an index is opened."""
    found = {DESCRIPTION: zlib.crc32(json.dumps(described, sort_keys=True).encode())}
    for name in ARRAYS:
        if name not in LATER:
            with (folder / f"{name}.npy").open("rb") as file:
                checksum = 0
                while part := file.read(2**20):
                    checksum = zlib.crc32(part, checksum)
            found[f"{name}.npy"] = checksum
    return found


def _has_squares(points: Array) -> bool:
    """Return whether squared distances between points are finite."""
    with quiet():
        return bool(np.isfinite(4 * np.vecdot(points, points)).all())


def _numbers_rows(numbers: Array, n: int) -> bool:
    """Return whether mapped numbers are those of rows, a block at a time."""
    if numbers.dtype != np.int64:
        return False
    parts = (numbers[part] for part in blocks(n, 8))
    return all(part.min() >= 0 and part.max() < n for part in parts)


def _ascends(starts: Array, end: int) -> bool:
    return bool(starts[0] == 0 and starts[-1] == end and (np.diff(starts) >= 0).all())


def _probes(
    Z: Any, cells: Cells, k: int, recall: float, seed: int, as_query: Callable[[Array], Array] | None
) -> tuple[int, float]:
    """Return how many cells to search, and the recall to expect; all cells if fewer would not do."""
    n = Z.shape[0]
    if n == 1 or recall == 1:
        return cells.count, 1.0
    # in random order, because rows may be sorted, and the first of them choose
    chosen = np.random.default_rng(seed).permutation(pilot_rows(n, seed, PILOT))
    Q = np.asarray(take(Z, chosen))
    Q = Q if as_query is None else as_query(Q)
    # one more than wanted: the row itself is among them
    most = min(n, 2 * k + 1)
    near, distances = (np.asarray(gathered(part)) for part in search(Z, most, queries=Q, method="exact"))
    near, distances = without_itself(near, distances, chosen)
    homes = cells.nearest(np.asarray(take(Z, near.ravel())), 1)[:, 0].reshape(near.shape)
    k = min(k, near.shape[1])
    scheme = plan(cells, Q, homes, distances, k, recall, judges=JUDGES, margin=MARGIN)
    return (scheme.cells, scheme.recall) if scheme.cells else (cells.count, 1.0)


def _parts(Z: Any) -> Iterator[tuple[slice, Array]]:
    """Yield consecutive rows with their row numbers."""
    if is_dask(Z):
        from ..distributed.chunks import chunk_ranges

        for part in chunk_ranges(Z):
            yield slice(part.start, part.stop), gathered(Z[part.start : part.stop])
    else:
        for where in blocks(len(Z), 1, BATCH):
            yield where, Z[where]


def _empty(folder: Path | None, name: str, shape: tuple[int, int], dtype: Any) -> Array:
    """Return an array to fill: in memory, or mapped to a file in the folder."""
    if folder is None:
        return np.empty(shape, dtype=dtype)
    return np.lib.format.open_memmap(folder / f"{name}.npy", "w+", dtype=dtype, shape=shape)


def _arrays(index: CellIndex) -> dict[str, Array]:
    cells, members, checksums = index.cells, index.members, index.checksums
    if checksums is None:
        checksums = np.array([_cell_checksums(index, cell) for cell in range(cells.count)])
    values = (
        *(members.rows, index.coarse.rows, members.numbers, members.starts),
        *(cells.centres, cells.groups, cells.starts, checksums),
    )
    return dict(zip(ARRAYS, values, strict=True))


def _temporary(target: Path, needed: int) -> Path:
    """Make the folder in which an index of so many bytes is written before it is moved to its place."""
    if target.exists() and not (target / DESCRIPTION).exists():
        raise InputError(f"cannot write an index to {str(target)!r}: something else is there; choose another name")
    if not target.resolve().parent.is_dir():
        raise InputError(f"cannot write {str(target)!r}: there is no folder {str(target.parent)!r}; create it first")
    made = target.resolve().with_name(f".{target.name}.{secrets.token_hex(6)}.part")
    try:
        made.mkdir()
        # mapped files are written without an error to catch: a full disk would end the process
        free = shutil.disk_usage(made).free
    except OSError as error:
        raise InputError(f"cannot write {str(target)!r}: {error.strerror}; choose another folder") from None
    if needed > free:
        made.rmdir()
        raise InputError(
            f"cannot write {str(target)!r}: the index takes {show_bytes(needed)}, and {show_bytes(free)} are free; "
            "make room, or choose another folder"
        )
    return made


def _finish(index: CellIndex, temporary: Path, target: Path, description: Mapping[str, Any]) -> None:
    """Write the description, and move the folder to its place."""
    figures = {"probes": index.probes, "recall": index.recall, "k": index.k, "largest": index.coarse.largest}
    values = {"format": FORMAT, **figures, **description}
    values["checksums"] = _file_checksums(temporary, values)
    (temporary / DESCRIPTION).write_text(json.dumps(values, indent=1))
    place = target.resolve()
    if not place.exists():
        temporary.replace(place)
        return
    before = temporary.with_suffix(".before")  # removed last, so that a whole index is there all the time
    place.replace(before)
    try:
        temporary.replace(place)
    except BaseException:
        before.replace(place)
        raise
    shutil.rmtree(before)
