"""Nearest neighbours of dask rows: each chunk is searched for each chunk of queries, and the lists are merged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from ..neighbors import api
from ..neighbors.api import check_k, search
from ..neighbors.approximate import FEW_CELLS, Sample, first_cells, pilot_rows, plan, refines, without_itself
from ..neighbors.contract import Array, Found, Search
from ..neighbors.partition import BATCH, Cells, Coordinates, cell_count, coordinates, learn_cells, sample_rows, stacked
from ..neighbors.probing import QUERIES, Members, probe
from ..neighbors.scanning import is_binary, k_least
from ..rows import as_vectors, blocks, count, fold, gathered, is_sparse, map_rows, take
from ..validation import whole_number
from . import cluster
from .chunks import as_dask, chunk_keys, chunk_ranges, limit_chunks, split_chunks
from .tasks import FAN_IN, Tasks, cross

JOINED_BYTES = 32 * 2**20
"""Chunks of the rows searched are joined up to this size: the search of a chunk has to find its own limits for
candidates, which takes a fifth of the time where a chunk has 10,000 rows."""
TASKS = 2
"""Chunks are joined as long as there remain so many searches per thread."""
BALANCED_TASKS = 4
"""Chunks of queries are split where there would be fewer searches per thread: one more on a worker takes long then."""
LEAST_QUERIES = 2048
"""Queries that a search should have."""


def found_on_dask(
    X: Any, k: int, queries: Any | None, method: str | Search, recall: float, seed: int
) -> tuple[tuple[Any, Any], float | None]:
    """Return the lazy lists and their recall (None: not known), for dask rows or queries and a resolved method."""
    if queries is None and (method == "cells" or (method == "auto" and _prefers_cells(X, recall))):
        k = check_k(k, X.shape[0], exclude_self=True)
        found = cells_across(as_vectors(X, "X"), k, recall, whole_number(seed, "seed", 0))
        if found is not None:
            return found
        method = "exact"
    elif queries is None and getattr(method, "whole_rows", False):
        X = X.rechunk({0: -1})  # one index over all rows, in one task
    exact = method in ("auto", "exact", "tree", "hamming")
    # the chunks are compared in pairs, where "auto" is exact
    find = partial(search, method=method, recall=1 if exact else recall, seed=seed)
    return across(find, X, k, queries=queries, join_chunks=exact), 1.0 if exact else None


def _prefers_cells(X: Any, recall: float) -> bool:
    """Return whether cells are faster than comparing all pairs of dask rows, on all workers."""
    n, d = X.shape
    pair = min(2 + 0.03 * d, 60) if isinstance(X._meta, np.ndarray) else 9
    return recall < 1 and bool(1e-9 * pair * n * n / cluster.threads() > api.CELLS_SECONDS)


def across(
    find: Callable[..., Found], X: Any, k: int, *, queries: Any | None = None, join_chunks: bool = False
) -> Found:
    """Find the k nearest rows of dask rows X by searching each chunk for each chunk of the queries.

    Parameters
    ----------
    find : callable
        ``find(x, k, queries=q)`` returns what `search` returns for one chunk of X and one chunk of queries (None: the
        chunk itself, whose rows do not find themselves).  It must be picklable.
    X, k, queries
        As in `search`; at least one of X and queries is a dask array, the other may be in memory.
    join_chunks : bool
        Whether small chunks of dense rows may be searched together.

    Returns
    -------
    indices, distances : lazy (q, k) dask arrays
        With the chunks of the queries.

    Notes
    -----
    One task per pair of chunks; where these are few, the queries of a chunk are split among several.  Chunks of X and
    lists of k neighbours move between workers.
    """
    k = check_k(k, count(X), exclude_self=queries is None)
    X = as_dask(X)
    Q = X if queries is None else as_dask(queries)
    if X.numblocks[0] > 1:
        Q = limit_chunks(Q, 16 * k * FAN_IN)  # lists that one task merges
    if queries is None:
        X = Q  # a chunk of queries is then a chunk of rows, or inside one
    asked = Q
    if join_chunks and X.ndim == 2 and not is_sparse(X._meta):
        X = _joined(X, Q.numblocks[0])
        asked = _split(Q, X.numblocks[0])
    find_all = _Neighbors(find, k, itself=queries is None)
    indices, distances = cross(find_all, partial(_merged, k=k), asked, X, ((k, np.int64), (k, np.float64)))
    return indices.rechunk({0: Q.chunks[0]}), distances.rechunk({0: Q.chunks[0]})


@dataclass(frozen=True)
class _Neighbors:
    """The search of one chunk of rows for one chunk of queries; indices are row numbers of the whole array."""

    find: Callable[..., Found]
    k: int
    itself: bool

    def __call__(self, Q: Any, X: Any, q_rows: range, x_rows: range) -> Found:
        inside = self.itself and x_rows.start <= q_rows.start and q_rows.stop <= x_rows.stop
        k = min(self.k, count(X) - inside)
        if k == 0:
            return np.empty((count(Q), 0), dtype=np.int64), np.empty((count(Q), 0))
        if inside and q_rows != x_rows:  # one more, because each row finds itself
            own = np.arange(q_rows.start, q_rows.stop) - x_rows.start
            indices, distances = without_itself(*self.find(X, k + 1, queries=Q), own)
        else:
            indices, distances = self.find(X, k, queries=None if inside else Q)
        return indices + x_rows.start, distances


def _joined(X: Any, searches: int) -> Any:
    """Return X with neighbouring chunks joined, each of which is searched for ``searches`` chunks of queries."""
    n, d = X.shape
    least = -(-TASKS * cluster.threads() // searches)  # so many chunks must remain
    most = min(JOINED_BYTES // max(1, X.dtype.itemsize * d), -(-n // least))
    sizes: list[int] = []
    for size in X.chunks[0]:
        if sizes and sizes[-1] + size <= most:
            sizes[-1] += size
        else:
            sizes.append(size)
    return X if len(sizes) == X.numblocks[0] else X.rechunk({0: tuple(sizes)})


def _split(Q: Any, searches: int) -> Any:
    """Return queries with chunks split into equal parts, each of which is searched in ``searches`` chunks of rows."""
    parts = -(-BALANCED_TASKS * cluster.threads() // (searches * Q.numblocks[0]))
    return split_chunks(Q, lambda size: max(1, min(parts, size // LEAST_QUERIES)))


def _merged(found: list[Found], k: int) -> Found:
    """Merge lists of neighbours: the k least by (distance, index)."""
    indices, distances = (np.concatenate(parts, axis=1) for parts in zip(*found, strict=True))
    return k_least(indices, distances, k)


# ---------------------------------------------------------------------------------------------------------- cell chunks


def cells_across(X: Any, k: int, recall: float, seed: int) -> tuple[tuple[Any, Any], float] | None:
    """Return the lists of every row of dask rows, with the chunks of X, and their estimated recall.

    The answer is that of the rows in memory, whatever the chunks.  The lists are computed when they are; the plan, and
    passes over neighbours of neighbours where these are needed, at once.  Returns None where comparing all pairs would
    be faster.

    Notes
    -----
    Tasks: about c s, for c chunks and s = c shards; in a pass s², and 4 more for each pair of shards of which one needs
    little of the other.  Moved: every row once, the rows of cells that another shard searches, and the lists once; in a
    pass the lists and rows that the rows of a shard are compared with, or whole shards of these, once to a worker.
    Memory of a task: the rows of a shard and those, and 5 bytes per row of X in a pass.
    """
    X = limit_chunks(X, 8 * X.shape[1] + 32 * k)
    n, d = X.shape
    sparse = is_sparse(X._meta)
    binary = bool(fold(is_binary, all, X))
    place = coordinates(d, sparse=sparse, binary=binary, seed=seed)

    def placed(numbers: Array) -> Array:
        return place(place.rows(take(X, numbers)))

    cells = learn_cells(placed(sample_rows(n, cell_count(n), seed)), cell_count(n), seed)
    chosen = pilot_rows(n, seed)
    most = min(n, 2 * k + 1)
    exact = search(X, most, queries=take(X, chosen), method="hamming" if binary else "exact")
    near, distances = (np.asarray(gathered(part)) for part in exact)
    near, distances = without_itself(near, distances, chosen)
    homes = cells.nearest(placed(near.ravel()), 1)[:, 0].reshape(near.shape)
    chooses = partial(plan, cells, placed(chosen), homes, distances, k, many=True)
    tried = refines(X._meta, n, cells, binary=binary)
    scheme = chooses(recall, most=FEW_CELLS if tried else None)
    home = None
    if tried and not scheme.cells:
        from .hops import HopSearch

        home, sizes, shards = _homes(X, cells, place)
        sample = Sample(chosen, distances[:, k - 1], k, recall)
        first, wide = first_cells(chooses, k)
        found = HopSearch(cells, place, first, k, sizes, shards, wide).refined(X, home, sample)
        if found is not None:
            return found
        scheme = chooses(recall)
    if not scheme.cells:
        return None
    home, sizes, shards = (home, sizes, shards) if home is not None else _homes(X, cells, place)
    return CellSearch(cells, place, scheme.cells, k, sizes, shards).lists(X, home), scheme.recall


def _homes(X: Any, cells: Cells, place: Coordinates) -> tuple[Any, Array, Array]:
    """Return the cell of every row, which stays on the workers, the sizes of cells, and the bounds of shards."""
    (home,) = cluster.kept(map_rows(_Home(cells, place), X, None, np.int32))
    sizes = fold(_Sizes(cells.count), _total, home)
    return home, sizes, shard_bounds(sizes, len(X.chunks[0]))


@dataclass(frozen=True, eq=False)
class _Home:
    """The cell of every row of a block."""

    cells: Cells
    place: Coordinates

    def __call__(self, X: Any) -> Array:
        return self.cells.nearest(self.place(self.place.rows(X)), 1)[:, 0].astype(np.int32)


@dataclass(frozen=True)
class _Sizes:
    """The number of rows in each cell."""

    cells: int

    def __call__(self, home: Array) -> Array:
        return np.bincount(home, minlength=self.cells)


def _total(parts: list[Array]) -> Array:
    return np.asarray(np.sum(parts, axis=0))


# --------------------------------------------------------------------------------------------------------------- shards

WHOLE_SHARE = 0.5
"""A shard is sent whole, instead of the rows that another one needs, if the shards of a worker thread need more than
this share of it together: it is then on the worker once, however many of its shards need it."""


def whole_share(shards: int) -> float:
    """Return the share of a shard from which on one of so many shards receives it whole."""
    return WHOLE_SHARE * min(1.0, cluster.threads() / shards)


def shard_bounds(sizes: Array, shards: int) -> Array:
    """Return the first cell of each shard, and the number of cells at the end; shards have about equally many rows."""
    ends = np.cumsum(sizes)
    wanted = ends[-1] * np.arange(1, shards) / shards
    return np.unique(np.concatenate([[0], np.searchsorted(ends, wanted) + 1, [len(sizes)]]))


@dataclass(frozen=True, eq=False)
class CellSearch:
    """The steps of the search, each of which runs in a task.

    Attributes
    ----------
    cells : Cells
    place : Coordinates
    probes : int
        The number of cells searched for each row.
    k : int
    sizes : (C,) int array
        The number of rows in each cell.
    shards : (s + 1,) int array
        What `shard_bounds` returned.
    """

    cells: Cells
    place: Coordinates
    probes: int
    k: int
    sizes: Array
    shards: Array

    @cached_property
    def shard_rows(self) -> Array:
        """The number of rows of each shard."""
        return np.add.reduceat(self.sizes, self.shards[:-1])

    def lists(self, X: Any, home: Any) -> tuple[Any, Any]:
        """Return the lazy arrays of indices and distances."""
        shards = self.sharded(X, home)
        tasks, asked, near = self.asked(shards)
        found = [tasks.add("probe", shards[s].key, asked[s].key, near[s]) for s in range(len(shards))]
        return self.returned(tasks, found, X)

    def sharded(self, X: Any, home: Any) -> list[Any]:
        """Return the shards, `Members` on the workers; ``home`` has the cell of each row."""
        ranges = chunk_ranges(X)
        tasks = Tasks(self, X, home)
        split = [
            tasks.add("split", x, h, part.start)
            for x, h, part in zip(chunk_keys(X), chunk_keys(home), ranges, strict=True)
        ]
        places = range(len(self.shards) - 1)
        return tasks.kept([tasks.add("gather", s, [tasks.entry(piece, s) for piece in split]) for s in places])

    def asked(self, shards: list[Any], share: float = 1.0) -> tuple[Tasks, list[Any], list[list[Any]]]:
        """Return tasks over the shards, the cells that their rows search, and for each shard those cells themselves.

        The cells are what `selected` takes; shards of which more than ``share`` is searched are whole.
        """
        first = Tasks(self, *shards)
        asked = first.kept([first.add("ask", shard.key) for shard in shards])
        tasks = Tasks(self, *shards, *asked)
        # which cells each shard searches: as many booleans as shards times cells
        needs = tasks.computed([tasks.add("needs", part.key) for part in asked])
        near = []
        for need in needs:
            parts = [need[self.shards[o] : self.shards[o + 1]] for o in range(len(shards))]
            shares = [self.sizes[self.shards[o] : self.shards[o + 1]] @ part for o, part in enumerate(parts)]
            near.append(
                [
                    [o, shards[o].key, part]
                    if shares[o] > share * self.shard_rows[o]
                    else [o, tasks.add("select", o, shards[o].key, part), None]
                    for o, part in enumerate(parts)
                    if part.any()
                ]
            )
        return tasks, asked, near

    def returned(self, tasks: Tasks, found: list[Any], X: Any) -> tuple[Any, Any]:
        """Return the lists of each shard, the keys ``found``, as lazy arrays in the order and the chunks of X."""
        ranges = chunk_ranges(X)
        bounds = np.array([part.start for part in ranges] + [ranges[-1].stop])
        back = [tasks.add("back", lists, bounds) for lists in found]
        rows = [tasks.add("order", [tasks.entry(part, c) for part in back]) for c in range(len(ranges))]
        made = [tasks.array(rows, o, X.chunks[0], self.k, dtype) for o, dtype in enumerate((np.int64, np.float64))]
        return made[0], made[1]

    # -- the steps, inside tasks ---------------------------------------------------------------------------------------

    def split(self, X: Any, home: Array, start: int) -> list[tuple[Any, Array, Array]]:
        """Return for each shard its rows in a chunk, their numbers and cells."""
        X = self.place.rows(X)
        shard = np.searchsorted(self.shards, home, side="right") - 1
        order = np.argsort(shard, kind="stable")
        parts = np.split(order, np.searchsorted(shard[order], np.arange(1, len(self.shards) - 1)))
        return [(X[part], part + start, home[part]) for part in parts]

    def gather(self, shard: int, pieces: list[tuple[Any, Array, Array]]) -> Members:
        """Return the rows of a shard in the order of their cells; its first cell has number 0."""
        rows, numbers, home = (stacked(list(part)) for part in zip(*pieces, strict=True))
        home = home - self.shards[shard]
        order = np.argsort(home, kind="stable")  # pieces and their rows ascend in number
        starts = np.zeros(self.shards[shard + 1] - self.shards[shard] + 1, dtype=np.int64)
        np.cumsum(np.bincount(home, minlength=len(starts) - 1), out=starts[1:])
        return Members(rows[order], numbers[order], starts)

    def ask(self, shard: Members) -> Array:
        """Return the cells that each row of a shard searches."""
        n = len(shard.numbers)
        parts = blocks(n, self.place.row_bytes, BATCH * self.place.row_bytes)
        asked = [
            self.cells.enough(self.place(shard.rows[part]), self.probes, self.sizes, self.k, many=True)
            for part in parts
        ]
        out = np.full((n, max((part.shape[1] for part in asked), default=0)), -1, dtype=np.int32)
        start = 0
        for part in asked:  # of unequal widths, where cells have few rows
            out[start : start + len(part), : part.shape[1]] = part
            start += len(part)
        return out

    def needs(self, asked: Array) -> Array:
        """Return which cells any row of a shard searches."""
        needed = np.zeros(self.cells.count + 1, dtype=bool)
        needed[asked.ravel()] = True  # -1, for none, is the last entry
        return needed[:-1]

    def select(self, shard: int, members: Members, needed: Array) -> tuple[Array, Members]:
        """Return some cells of a shard, with their numbers among all cells."""
        sizes = np.diff(members.starts)
        taken = np.repeat(needed, sizes)
        starts = np.concatenate([[0], np.cumsum(sizes[needed])])
        numbers = np.flatnonzero(needed) + self.shards[shard]
        return numbers, Members(members.rows[taken], members.numbers[taken], starts)

    def selected(self, near: list[list[Any]]) -> Iterator[tuple[Array, Members]]:
        """Yield what `select` returns for one shard after the other, each selected already or whole with its cells."""
        for o, part, needed in near:
            yield part if needed is None else self.select(o, part, needed)

    def probe(self, shard: Members, asked: Array, near: list[list[Any]]) -> tuple[Array, Found]:
        """Search the cells near a shard for its rows; return their numbers and lists."""
        parts = list(self.selected(near))
        cells = np.concatenate([part for part, _ in parts])
        sizes = np.concatenate([np.diff(members.starts) for _, members in parts])
        members = Members(
            stacked([members.rows for _, members in parts]),
            np.concatenate([members.numbers for _, members in parts]),
            np.concatenate([[0], np.cumsum(sizes)]),
        )
        place = np.full(self.cells.count + 1, -1)
        place[cells] = np.arange(len(cells))  # the last entry stays -1, for none
        found = np.empty((len(asked), self.k), dtype=np.int64), np.empty((len(asked), self.k))
        for part in blocks(len(asked), 1, QUERIES):
            mine = shard.numbers[part]
            found[0][part], found[1][part] = probe(shard.rows[part], place[asked[part]], members, self.k, mine)
        return shard.numbers, found

    def back(self, found: tuple[Array, Found], bounds: Array) -> list[tuple[Array, Array, Array]]:
        """Return for each chunk the lists of its rows in a shard."""
        numbers, (indices, distances) = found
        order = np.argsort(numbers, kind="stable")
        parts = np.split(order, np.searchsorted(numbers[order], bounds[1:-1]))
        return [(numbers[part], indices[part], distances[part]) for part in parts]

    def order(self, pieces: list[tuple[Array, Array, Array]]) -> Found:
        """Return the lists of a chunk in the order of its rows."""
        numbers, indices, distances = (np.concatenate(part) for part in zip(*pieces, strict=True))
        order = np.argsort(numbers, kind="stable")
        return indices[order], distances[order]

    def __call__(self, step: str, *args: Any) -> Any:
        """Run a step."""
        return getattr(self, step)(*args)
