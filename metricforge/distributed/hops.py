"""Passes over neighbours of neighbours among dask rows: the answer of `approximate`, shard by shard.

A row is known by its position: the rows of the first cell come first, then those of the second, whatever the shards.  A
pass is three exchanges between shards: who lists a row; the lists of the rows that it lists, or that list it; and the
rows in those lists.  A shard of which another one needs much is sent whole, once to each worker; what is needed of it
is picked there.

Only tasks import `neighbors.loops`: the compiler takes some 25 MB, which the client need not have.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from ..neighbors.approximate import LISTING, MOST_PASSES, Sample, centred, fits_single
from ..neighbors.contract import Array, Found, HopLists
from ..neighbors.probing import Members
from ..neighbors.scanning import k_least, pair_distances
from ..rows import take
from .neighbors import CellSearch, whole_share
from .tasks import Tasks

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
        tasks, asked, near = self.asked(shards, whole_share(len(shards)))
        if not all(tasks.computed([tasks.add("single", shard.key) for shard in shards])):
            return None
        lists = tasks.kept([tasks.add("first", s, shard.key, asked[s].key, near[s]) for s, shard in enumerate(shards)])
        del tasks, asked, near  # of the cells that rows search, nothing is needed any more
        rows, best, wide = np.asarray(take(X, sample.rows)), 0.0, self.wide
        for _ in range(MOST_PASSES + 1):
            shares = sample.shares(self.sampled(shards, lists, sample, rows))
            if sample.reached(shares):
                return self.nearest_rows(shards, lists, X), sample.estimate(shares)
            wider = sample.next_width(wide, float(shares.mean()), best)
            if wider is None:
                return None
            best = float(shares.mean())
            if wider > wide:
                tasks = Tasks(self, *shards, *lists)
                lists = tasks.kept([tasks.add("widened", part.key, wider) for part in lists])
                wide, best = wider, 0.0  # as in memory
                del tasks
            lists = self.passed(shards, lists)
        return None

    def passed(self, shards: list[Any], lists: list[Any]) -> list[Any]:
        """Return the lists after a pass, which stay on the workers."""
        places, tasks = range(len(shards)), Tasks(self, *shards, *lists)
        sent = [tasks.add("ends", s, lists[s].key) for s in places]
        who = [tasks.add("listing", s, [tasks.entry(part, s) for part in sent]) for s in places]
        made = tasks.kept([*who, *(tasks.add("wanted", s, lists[s].key, who[s]) for s in places)])
        listing, wanted = made[: len(shards)], made[len(shards) :]
        tasks = Tasks(self, *shards, *lists, *made)
        counts, whole = self.amounts(tasks, wanted)
        joined = []
        for s in places:
            asked = wanted[s].key
            others = self.moved(tasks, "lists_of", asked, lists, whole[s], counts[s])
            compared = tasks.add("compared", s, asked, others)
            rows = self.moved(tasks, "rows_of", compared, shards, whole[s])
            own = shards[s].key, lists[s].key, listing[s].key
            joined.append(tasks.add("join", s, *own, asked, others, compared, rows))
        return tasks.kept(joined)

    def nearest_rows(self, shards: list[Any], lists: list[Any], X: Any) -> tuple[Any, Any]:
        """Return the k nearest in all lists, lazy with the chunks of X."""
        tasks = Tasks(self, *shards, *lists)
        listed = tasks.kept([tasks.add("listed", s, part.key) for s, part in enumerate(lists)])
        tasks = Tasks(self, *shards, *lists, *listed)
        counts, whole = self.amounts(tasks, listed)
        found = []
        for s, (shard, part, asked) in enumerate(zip(shards, lists, listed, strict=True)):
            rows = self.moved(tasks, "rows_of", asked.key, shards, whole[s], counts[s])
            found.append(tasks.add("nearest", s, shard.key, part.key, asked.key, rows))
        return self.returned(tasks, found, X)

    def amounts(self, tasks: Tasks, asked: list[Any]) -> tuple[Array, Array]:
        """Return how many rows of each shard (columns) each shard asks for, and which shards are sent to it whole."""
        counts = np.array(tasks.computed([tasks.add("counts", part.key) for part in asked]))
        return counts, counts > whole_share(len(asked)) * self.shard_rows

    def moved(
        self, tasks: Tasks, step: str, asked: Any, sources: list[Any], whole: Array, counts: Array | None = None
    ) -> list[Any]:
        """Return what a step takes from the sources of all shards at the positions asked for, or whole sources.

        None where the counts, if they are known, say that nothing is asked for.
        """
        made: list[Any] = []
        for o, source in enumerate(sources):
            if counts is not None and not counts[o]:
                made.append(None)
            else:
                made.append(source.key if whole[o] else tasks.add(step, source.key, tasks.entry(asked, o)))
        return made

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

    def by_shard(self, positions: Iterable[Array], without: int | None = None) -> Pieces:
        """Return the distinct positions of some arrays, -1 left out, within each shard; without those of one shard."""
        there = np.zeros(self.bases[-1] + 1, dtype=bool)  # the last entry is for -1
        for part in positions:
            there[part] = True
        every = np.flatnonzero(there[:-1])  # in linear time: lists of wide entries repeat most rows many times
        cuts = np.searchsorted(every, self.bases)
        bounds = zip(pairwise(cuts), self.bases[:-1], strict=True)
        parts = [(every[i:j] - base).astype(np.int32) for (i, j), base in bounds]
        if without is not None:
            parts[without] = parts[without][:0]
        return parts

    # -- the steps, inside tasks ---------------------------------------------------------------------------------------

    def single(self, shard: Members) -> bool:
        """Return whether float32 holds the squares of the rows of a shard."""
        return fits_single(shard.rows, self.centre)

    def first(self, s: int, shard: Members, asked: Array, near: list[list[Any]]) -> HopLists:
        """Return the lists of a shard among the cells near it."""
        from ..neighbors import loops

        cells, d = np.flatnonzero(self.needs(asked)), shard.rows.shape[1]  # as in near: both ascend
        sizes = self.sizes[cells]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        # the positions of the rows of each cell
        positions = np.arange(starts[-1]) + np.repeat(self.firsts[cells] - starts[:-1], sizes)
        # shard by shard: this array may have an entry for every row of X
        columns, end = np.empty(starts[-1] * d, dtype=np.float32), 0
        for _, members in self.selected(near):
            start, end = end, end + members.rows.size
            columns[start:end] = loops.in_columns(centred(members.rows, self.centre), members.starts)
        place = np.full(self.cells.count + 1, -1)
        place[cells] = np.arange(len(cells))  # the last entry stays -1, for none
        own = np.arange(self.bases[s], self.bases[s + 1])
        queries = centred(shard.rows, self.centre)
        return loops.first_lists(queries, own, columns, starts, positions, place[asked], self.wide)

    def widened(self, lists: HopLists, wide: int) -> HopLists:
        """Return lists of more entries."""
        from ..neighbors import loops

        return loops.widened(lists, wide)

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
        """Return what `loops.listing_rows` does, for the rows of a shard."""
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

    def counts(self, pieces: Pieces) -> Array:
        """Return the number of positions in each shard."""
        return np.array([len(part) for part in pieces])

    def lists_of(self, lists: HopLists, where: Array) -> tuple[Array, Array]:
        """Return some lists of a shard, and which entries are fresh; a pass needs the squares of its own rows only."""
        return lists.positions[where], lists.fresh[where]

    def compared(self, s: int, wanted: Pieces, others: list[Any]) -> Pieces:
        """Return the rows of other shards that the pass of a shard compares: those wanted, then those in their lists.

        Those of its own lists are wanted.
        """
        parts = [(part, where) for part, where in zip(others, wanted, strict=True) if len(where)]
        listed = self.by_shard((self.picked_lists(part, where)[0] for part, where in parts), without=s)
        return [np.concatenate([a, np.setdiff1d(b, a)]) for a, b in zip(wanted, listed, strict=True)]

    def listed(self, s: int, lists: HopLists) -> Pieces:
        """Return the rows of other shards in the lists of one."""
        return self.by_shard([lists.positions], without=s)

    def rows_of(self, shard: Members, where: Array) -> tuple[Array, Array]:
        """Return some rows of a shard, and their numbers."""
        return shard.rows[where], shard.numbers[where]

    def picked_lists(self, part: Any, where: Array) -> tuple[Array, Array]:
        """Return what `lists_of` does, of a shard that came whole; otherwise what came."""
        return self.lists_of(part, where) if isinstance(part, HopLists) else part

    def picked_rows(self, part: Any, where: Array) -> tuple[Array, Array]:
        """Return what `rows_of` does, of a shard that came whole; otherwise what came."""
        return self.rows_of(part, where) if isinstance(part, Members) else part

    def join(
        self,
        s: int,
        shard: Members,
        lists: HopLists,
        who: tuple[Array, Array],
        wanted: Pieces,
        others: list[Any],
        compared: Pieces,
        rows: list[Any],
    ) -> HopLists:
        """Return the lists of a shard after a pass; ``others`` and ``rows`` are what came from each shard."""
        from ..neighbors import loops

        own, split = np.arange(self.bases[s], self.bases[s + 1]), [len(part) for part in wanted]
        bases = self.bases[:-1]
        # first the rows of the shard, then those whose lists are read, then all others
        with_lists = [part[:m] + base for part, m, base in zip(compared, split, bases, strict=True)]
        without = [part[m:] + base for part, m, base in zip(compared, split, bases, strict=True)]
        every = np.concatenate([own, *with_lists, *without])
        number = np.full(self.bases[-1] + 1, -1, dtype=np.int32)  # the last entry is for -1
        number[every] = np.arange(len(every))
        # part by part: these arrays may have an entry for every row of X, and the parts are still there
        X = np.empty((len(every), shard.rows.shape[1]), dtype=np.float32)
        X[: len(own)] = centred(shard.rows, self.centre)
        end, later = len(own), len(own) + sum(split)
        for part, where, m in zip(rows, compared, split, strict=True):
            picked = centred(self.picked_rows(part, where)[0], self.centre)
            start, end, middle, later = end, end + m, later, later + len(where) - m
            X[start:end], X[middle:later] = picked[:m], picked[m:]
        shape = (len(own) + sum(split), lists.positions.shape[1])
        positions, fresh = np.empty(shape, dtype=np.int32), np.empty(shape, dtype=np.bool_)
        positions[: len(own)], fresh[: len(own)] = number[lists.positions], lists.fresh
        end = len(own)
        for part, where in zip(others, wanted, strict=True):
            if not len(where):
                continue
            start, end = end, end + len(where)
            listed, fresh[start:end] = self.picked_lists(part, where)
            positions[start:end] = number[listed]
        near = HopLists(positions, lists.squares, fresh)
        found = loops.one_pass(X, near, (number[who[0]], who[1]))
        names = np.append(every, -1).astype(np.int32)
        return HopLists(names[found.positions], found.squares, found.fresh)

    def nearest(self, s: int, shard: Members, lists: HopLists, listed: Pieces, rows: list[Any]) -> tuple[Array, Found]:
        """Return the numbers of the rows of a shard, and the k nearest in their lists by (distance, number)."""
        flat, wide = lists.positions.ravel(), lists.positions.shape[1]
        order = np.argsort(flat, kind="stable")
        cuts = np.searchsorted(flat[order], self.bases)  # entries of -1, for none, come first
        names, distances = np.full(len(flat), -1, dtype=np.int64), np.full(len(flat), np.inf)
        for o, (i, j) in enumerate(pairwise(cuts)):
            if i == j:
                continue
            entries = order[i:j]
            place = flat[entries] - self.bases[o]
            if o == s or isinstance(rows[o], Members):
                members = shard if o == s else rows[o]
                X, numbers = members.rows, members.numbers
            else:
                (X, numbers), place = rows[o], np.searchsorted(listed[o], place)
            distances[entries] = pair_distances(X, shard.rows, entries // wide, place)
            names[entries] = numbers[place]
        return shard.numbers, k_least(names.reshape(-1, wide), distances.reshape(-1, wide), self.k)
