"""The cells of dask rows in shards, and their search: rows move to the worker that has their cells, lists move back.

A *shard* is the rows of consecutive cells, about as many as a chunk has.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..rows import Tasks, blocks, chunk_ranges, cluster
from .contract import Array, Found
from .coordinates import Coordinates, stacked
from .partition import BATCH, Cells
from .probing import QUERIES, Members, probe

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
            for x, h, part in zip(tasks.chunks(X), tasks.chunks(home), ranges, strict=True)
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
