"""Passes over neighbours of neighbours among dask rows: the answer of `refining`, shard by shard.

A row is known by its position: the rows of the first cell come first, then those of the second, whatever the shards.  A
pass is three exchanges between shards: who lists a row; the lists of the rows that it lists, or that list it; and the
rows in those lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from ..rows import Tasks, take
from .contract import Array, Found
from .distances import pair_distances
from .hops import HopLists, first_lists, in_columns, one_pass, widened
from .probing import Members
from .refining import LISTING, MOST_PASSES, Sample, centred, fits_single
from .scanning import least
from .shards import CellSearch

Pieces = list[Array]
"""Positions within each shard, one array per shard."""


@dataclass(frozen=True, eq=False)
class HopSearch(CellSearch):
    """The steps of `CellSearch`, and those of the passes.

    Attributes
    ----------
    wide : int
        The entries of the first lists.
    """

    wide: int

    @cached_property
    def firsts(self) -> Array:
        """The position of the first row of each cell, and the number of rows."""
        return np.concatenate([[0], np.cumsum(self.sizes)])

    @cached_property
    def bases(self) -> Array:
        """The position of the first row of each shard, and the number of rows."""
        return np.asarray(self.firsts[self.shards])

    @cached_property
    def centre(self) -> Array:
        """The point about which rows are in float32."""
        return np.asarray(self.cells.centres.mean(axis=0))

    def refined(self, X: Any, home: Any, sample: Sample) -> tuple[tuple[Any, Any], float] | None:
        """Return the lists of all rows, lazy with the chunks of X, and their recall; None where it is not reached."""
        shards = self.sharded(X, home)
        keys, places = [shard.key for shard in shards], range(len(shards))
        tasks, asked, near = self.asked(shards)
        if not all(tasks.computed([tasks.add("single", key) for key in keys])):
            return None
        lists = tasks.kept([tasks.add("first", s, keys[s], asked[s].key, near[s]) for s in places])
        rows, best, wide = np.asarray(take(X, sample.rows)), 0.0, self.wide
        for _ in range(MOST_PASSES + 1):
            shares = sample.shares(self.sampled(shards, lists, sample, rows))
            tasks = Tasks(self, *shards, *lists)
            if sample.reached(shares):
                listed = [tasks.add("listed", s, part.key) for s, part in enumerate(lists)]
                moved = self.moved(tasks, "rows_of", listed, keys)
                found = [tasks.add("nearest", s, keys[s], lists[s].key, listed[s], moved[s]) for s in places]
                return self.returned(tasks, found, X), sample.estimate(shares)
            wider = sample.next_width(wide, float(shares.mean()), best)
            if wider is None:
                return None
            best = float(shares.mean())
            if wider > wide:
                lists = tasks.kept([tasks.add("widened", part.key, wider) for part in lists])
                tasks, wide, best = Tasks(self, *shards, *lists), wider, 0.0  # as in memory
            lists = self.passed(tasks, keys, [part.key for part in lists])
        return None

    def passed(self, tasks: Tasks, shards: list[Any], lists: list[Any]) -> list[Any]:
        """Return the lists after a pass, which stay on the workers."""
        places = range(len(shards))
        sent = [tasks.add("ends", s, lists[s]) for s in places]
        who = [tasks.add("listing", s, [tasks.entry(part, s) for part in sent]) for s in places]
        asked = [tasks.add("wanted", s, lists[s], who[s]) for s in places]
        others = self.moved(tasks, "lists_of", asked, lists)
        compared = [tasks.add("compared", s, asked[s], others[s]) for s in places]
        rows = self.moved(tasks, "rows_of", compared, shards)
        return tasks.kept(
            [
                tasks.add("join", s, shards[s], lists[s], who[s], asked[s], others[s], compared[s], rows[s])
                for s in places
            ]
        )

    def moved(self, tasks: Tasks, step: str, asked: list[Any], sources: list[Any]) -> list[list[Any]]:
        """Return for each shard what a step takes from the sources of all shards, at the positions asked for."""
        return [
            [tasks.add(step, source, tasks.entry(wanted, o)) for o, source in enumerate(sources)] for wanted in asked
        ]

    def sampled(self, shards: list[Any], lists: list[Any], sample: Sample, rows: Array) -> Array:
        """Return the distances of sampled rows to those in their lists; infinite where there is none."""
        tasks = Tasks(self, *lists, *shards)  # another order of sources, another name than that of the pass
        keys = [(shard.key, part.key) for shard, part in zip(shards, lists, strict=True)]
        parts = tasks.computed([tasks.add("lists_at", *key, sample.rows) for key in keys])
        who, positions = (np.concatenate(part) for part in zip(*parts, strict=True))
        positions = positions[np.argsort(who)]  # in the order of the sample, whose rows are all somewhere
        pieces = self.by_shard([positions])
        asked = [tasks.add("rows_of", shard.key, piece) for shard, piece in zip(shards, pieces, strict=True)]
        near = np.concatenate([part[0] for part in tasks.computed(asked)])
        distances = np.full(positions.shape, np.inf)
        i, j = np.nonzero(positions >= 0)
        every = np.concatenate([piece + base for piece, base in zip(pieces, self.bases[:-1], strict=True)])
        distances[i, j] = pair_distances(near, rows, i, np.searchsorted(every, positions[i, j]))
        return distances

    def by_shard(self, positions: Sequence[Array], without: int | None = None) -> Pieces:
        """Return the distinct positions of some arrays, -1 left out, within each shard; without those of one shard."""
        there = np.zeros(self.bases[-1] + 1, dtype=bool)  # the last entry is for -1
        for part in positions:
            there[part] = True
        every = np.flatnonzero(there[:-1])  # in linear time: lists of wide entries repeat most rows many times
        cuts = np.searchsorted(every, self.bases)
        parts = [every[i:j] - base for (i, j), base in zip(pairwise(cuts), self.bases[:-1], strict=True)]
        if without is not None:
            parts[without] = parts[without][:0]
        return parts

    # -- the steps, inside tasks ---------------------------------------------------------------------------------------

    def single(self, shard: Members) -> bool:
        """Return whether float32 holds the squares of the rows of a shard."""
        return fits_single(shard.rows, self.centre)

    def first(self, s: int, shard: Members, asked: Array, near: list[tuple[Array, Members]]) -> HopLists:
        """Return the lists of a shard among the cells near it."""
        cells = np.concatenate([part for part, _ in near])
        sizes = self.sizes[cells]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        # the positions of the rows of each cell
        positions = np.arange(starts[-1]) + np.repeat(self.firsts[cells] - starts[:-1], sizes)
        rows = centred(np.concatenate([members.rows for _, members in near]), self.centre)
        place = np.full(self.cells.count + 1, -1)
        place[cells] = np.arange(len(cells))  # the last entry stays -1, for none
        own = np.arange(self.bases[s], self.bases[s + 1])
        columns, queries = in_columns(rows, starts), centred(shard.rows, self.centre)
        return first_lists(queries, own, columns, starts, positions, place[asked], self.wide)

    def widened(self, lists: HopLists, wide: int) -> HopLists:
        """Return lists of more entries."""
        return widened(lists, wide)

    def lists_at(self, shard: Members, lists: HopLists, numbers: Array) -> tuple[Array, Array]:
        """Return which of some row numbers a shard has, by their places in ``numbers``, and the lists of these."""
        here = np.flatnonzero(np.isin(shard.numbers, numbers))
        return np.searchsorted(numbers, shard.numbers[here]), lists.positions[here]

    def ends(self, s: int, lists: HopLists) -> list[tuple[Array, ...]]:
        """Return for each shard its positions that the lists of this one have, who lists them, where, and if new."""
        near = lists.positions.T  # by place in the list, as in memory
        place, who = np.nonzero(near >= 0)
        ends = near[place, who]
        order = np.argsort(ends, kind="stable")
        cuts = np.searchsorted(ends[order], self.bases)
        made: list[tuple[Array, ...]] = []
        for (i, j), base in zip(pairwise(cuts), self.bases[:-1], strict=True):
            mine = order[i:j]
            rows = (who[mine] + self.bases[s]).astype(np.int32)
            fresh = lists.fresh[who[mine], place[mine]]
            made.append(((ends[mine] - base).astype(np.int32), rows, place[mine].astype(np.int16), fresh))
        return made

    def listing(self, s: int, pieces: list[tuple[Array, ...]]) -> tuple[Array, Array]:
        """Return what `hops.listing_rows` does, for the rows of a shard."""
        ends, who, place, fresh = (np.concatenate(part) for part in zip(*pieces, strict=True))
        order = np.lexsort((who, place, ends))
        n = int(self.bases[s + 1] - self.bases[s])
        counts = np.bincount(ends, minlength=n)
        rank = np.arange(len(ends)) - np.repeat(np.cumsum(counts) - counts, counts)
        order, rank = order[rank < LISTING], rank[rank < LISTING]
        rows, new = np.full((n, LISTING), -1, dtype=np.int32), np.zeros((n, LISTING), dtype=np.bool_)
        rows[ends[order], rank], new[ends[order], rank] = who[order], fresh[order]
        return rows, new

    def wanted(self, s: int, lists: HopLists, who: tuple[Array, Array]) -> Pieces:
        """Return the rows of other shards whose lists the pass of a shard reads."""
        return self.by_shard([lists.positions, who[0]], without=s)

    def lists_of(self, lists: HopLists, where: Array) -> tuple[Array, Array]:
        """Return some lists of a shard, and which entries are fresh; a pass needs the squares of its own rows only."""
        return lists.positions[where], lists.fresh[where]

    def compared(self, s: int, wanted: Pieces, others: list[tuple[Array, Array]]) -> Pieces:
        """Return the rows of other shards that the pass of a shard compares: those wanted, then those in their lists.

        Those of its own lists are wanted.
        """
        listed = self.by_shard([positions for positions, _ in others], without=s)
        return [np.concatenate([a, np.setdiff1d(b, a)]) for a, b in zip(wanted, listed, strict=True)]

    def listed(self, s: int, lists: HopLists) -> Pieces:
        """Return the rows of other shards in the lists of one."""
        return self.by_shard([lists.positions], without=s)

    def rows_of(self, shard: Members, where: Array) -> tuple[Array, Array]:
        """Return some rows of a shard, and their numbers."""
        return shard.rows[where], shard.numbers[where]

    def join(
        self,
        s: int,
        shard: Members,
        lists: HopLists,
        who: tuple[Array, Array],
        wanted: Pieces,
        others: list[tuple[Array, Array]],
        compared: Pieces,
        rows: list[tuple[Array, Array]],
    ) -> HopLists:
        """Return the lists of a shard after a pass."""
        own, split = np.arange(self.bases[s], self.bases[s + 1]), [len(part) for part in wanted]
        bases = self.bases[:-1]
        # first the rows of the shard, then those whose lists are read, then all others
        with_lists = [part[:m] + base for part, m, base in zip(compared, split, bases, strict=True)]
        without = [part[m:] + base for part, m, base in zip(compared, split, bases, strict=True)]
        every = np.concatenate([own, *with_lists, *without])
        parts = [part[0][:m] for part, m in zip(rows, split, strict=True)]
        parts += [part[0][m:] for part, m in zip(rows, split, strict=True)]
        number = np.full(self.bases[-1] + 1, -1, dtype=np.int32)  # the last entry is for -1
        number[every] = np.arange(len(every))
        # part by part: these arrays may have an entry for every row of X, and the parts are still there
        X, end = np.empty((len(every), shard.rows.shape[1]), dtype=np.float32), 0
        for part in (shard.rows, *parts):
            start, end = end, end + len(part)
            X[start:end] = centred(part, self.centre)
        own_lists, end = (lists.positions, lists.fresh), 0
        shape = (len(own) + sum(split), lists.positions.shape[1])
        positions, fresh = np.empty(shape, dtype=np.int32), np.empty(shape, dtype=np.bool_)
        for listed, new in (own_lists, *others):
            start, end = end, end + len(listed)
            positions[start:end], fresh[start:end] = number[listed], new
        near = HopLists(positions, lists.squares, fresh)
        found = one_pass(X, near, (number[who[0]], who[1]))
        names = np.append(every, -1).astype(np.int32)
        return HopLists(names[found.positions], found.squares, found.fresh)

    def nearest(
        self, s: int, shard: Members, lists: HopLists, listed: Pieces, rows: list[tuple[Array, Array]]
    ) -> tuple[Array, Found]:
        """Return the numbers of the rows of a shard, and the k nearest in their lists by (distance, number)."""
        own, k = np.arange(self.bases[s], self.bases[s + 1]), self.k
        every = np.concatenate([own, *(part + base for part, base in zip(listed, self.bases[:-1], strict=True))])
        X = np.concatenate([shard.rows, *(part[0] for part in rows)])
        numbers = np.concatenate([shard.numbers, *(part[1] for part in rows), [-1]])
        number = np.full(self.bases[-1] + 1, -1, dtype=np.int32)  # the last entry is for -1
        number[every] = np.arange(len(every))
        place = number[lists.positions]
        distances = np.full(place.shape, np.inf)
        i, j = np.nonzero(place >= 0)
        distances[i, j] = pair_distances(X, shard.rows, i, place[i, j])
        names = numbers[place]
        best = least(distances, names, k)
        return shard.numbers, (np.take_along_axis(names, best, axis=1), np.take_along_axis(distances, best, axis=1))
