"""The search by cells of dask rows: rows move to the worker that has their cells, lists move back.

A *shard* is the rows of consecutive cells, about as many as a chunk has.  The cells are learned in this process from a
sample drawn by row number; everything with as many entries as rows stays on the workers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..rows import Tasks, blocks, chunk_ranges, fold, gathered, is_sparse, limit_chunks, map_rows, take
from .api import search
from .approximate import pilot_rows, plan, without_itself
from .contract import Array, Found
from .coordinates import Coordinates, coordinates, stacked
from .distances import is_binary
from .partition import BATCH, Cells, cell_count, learn_cells, sample_rows
from .probing import QUERIES, Members, probe


def cells_across(X: Any, k: int, recall: float, seed: int) -> tuple[tuple[Any, Any], float] | None:
    """Return the lists of every row of dask rows, with the chunks of X, and their estimated recall.

    The answer is that of the rows in memory, whatever the chunks.  The lists are computed when they are; the plan is
    computed at once.  Returns None where comparing all pairs would be faster.

    Notes
    -----
    Tasks: about c s, for c chunks and s = c shards.  Moved: every row once, the rows of cells that another shard
    searches, and the lists once.  Memory of a task: the rows of a shard and of the cells near it.
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
    scheme = plan(cells, placed(chosen), homes, distances, k, recall, many=True)
    if not scheme.cells:
        return None
    home = map_rows(_Home(cells, place), X, None, np.int32)
    sizes = fold(_Sizes(cells.count), _total, home)
    shards = _shards(sizes, len(X.chunks[0]))
    return _Search(cells, place, scheme.cells, k, sizes, shards).lists(X, home), scheme.recall


def _shards(sizes: Array, shards: int) -> Array:
    """Return the first cell of each shard, and the number of cells at the end; shards have about equally many rows."""
    ends = np.cumsum(sizes)
    wanted = ends[-1] * np.arange(1, shards) / shards
    return np.unique(np.concatenate([[0], np.searchsorted(ends, wanted) + 1, [len(sizes)]]))


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


@dataclass(frozen=True, eq=False)
class _Search:
    """The steps of the search, each of which runs in a task."""

    cells: Cells
    place: Coordinates
    probes: int
    k: int
    sizes: Array
    shards: Array

    def lists(self, X: Any, home: Any) -> tuple[Any, Any]:
        """Return the lazy arrays of indices and distances."""
        ranges, places = chunk_ranges(X), range(len(self.shards) - 1)
        first = Tasks(self, X, home)
        split = [
            first.add("split", x, h, part.start)
            for x, h, part in zip(first.chunks(X), first.chunks(home), ranges, strict=True)
        ]
        gathered_rows = [first.add("gather", s, [first.entry(piece, s) for piece in split]) for s in places]
        shards = first.kept(gathered_rows)
        second = Tasks(self, *shards)
        asked = second.kept([second.add("ask", shard.key) for shard in shards])
        third = Tasks(self, *shards, *asked)
        # which cells each shard searches: as many booleans as shards times cells
        needs = third.computed([third.add("needs", part.key) for part in asked])
        bounds = np.array([part.start for part in ranges] + [ranges[-1].stop])
        back = []
        for s in places:
            parts = [needs[s][self.shards[o] : self.shards[o + 1]] for o in places]
            near = [third.add("select", o, shards[o].key, parts[o]) for o in places if parts[o].any()]
            back.append(third.add("back", third.add("probe", shards[s].key, asked[s].key, near), bounds))
        rows = [third.add("order", [third.entry(part, c) for part in back]) for c in range(len(ranges))]
        made = [third.array(rows, o, X.chunks[0], self.k, dtype) for o, dtype in enumerate((np.int64, np.float64))]
        return made[0], made[1]

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

    def probe(self, shard: Members, asked: Array, near: list[tuple[Array, Members]]) -> tuple[Array, Found]:
        """Search the cells near a shard for its rows; return their numbers and lists."""
        cells = np.concatenate([part for part, _ in near])
        sizes = np.concatenate([np.diff(members.starts) for _, members in near])
        members = Members(
            stacked([members.rows for _, members in near]),
            np.concatenate([members.numbers for _, members in near]),
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
        return getattr(self, step)(*args)
