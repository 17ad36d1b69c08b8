"""Chunklets: groups of rows known to belong together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..validation import generator, plural, wrong
from .drawing import MOST_PAIRS, PER_ROW, draw_components, sample_pairs
from .indices import (
    all_pairs,
    as_column,
    as_indices,
    by_first_row,
    check_n,
    components_of,
    deal,
    draw_groups,
    encode,
    freeze,
    groups_of,
    is_missing,
    members_of,
    row_values,
    stack_pairs,
    unique_pairs,
)
from .interface import Constraint, Links
from .labels import Labels, few_groups
from .scoring import Distances, Satisfied, pair_auc, satisfied_pairs

Array = NDArray[Any]


@dataclass(frozen=True, eq=False, repr=False)
class Chunklets(Constraint):
    """Groups of rows known to belong together; nothing is known about rows of different groups.

    A pair of rows of one group is satisfied when it is nearer than the median distance between rows.  The score is the
    probability that such a pair is nearer than a random pair.

    Parameters
    ----------
    groups : array of n ids
        Any ids, numbers or strings.  -1, NaN and None mean "in no group".

    Attributes
    ----------
    codes : (n,) int array
        Group numbers ``0 .. len(ids) - 1``, -1 where in no group.
    ids : array
        The distinct ids, sorted.
    """

    flag: ClassVar[str | None] = "groups"
    flag_help: ClassVar[str] = "the column with a group per row, -1 or empty for none"
    table_columns: ClassVar[tuple[str, ...]] = ("groups",)
    per_row: ClassVar[bool] = True
    score_name: ClassVar[str] = "held-out groups ranked right against random pairs"

    groups: Any
    dropped: int = 0
    codes: Array = field(init=False)
    ids: Array = field(init=False)

    def __post_init__(self) -> None:
        groups = as_column(self.groups, "groups")
        missing = is_missing(groups)
        if groups.dtype.kind in "iuf":
            missing |= groups == -1
        elif groups.dtype == object:
            missing |= np.asarray([not isinstance(g, str) and g == -1 for g in groups.tolist()], dtype=bool)
        codes, ids = encode(groups, missing, "groups")
        freeze(self, groups=groups, codes=codes, ids=ids)

    @property
    def n(self) -> int:  # type: ignore[override]
        """The number of rows."""
        return len(self.codes)

    @property
    def size(self) -> int:
        """The number of groups."""
        return len(self.ids)

    def _select(self, rows: Array, position: Array) -> Chunklets:
        kept = Chunklets(self.groups[rows])
        return replace(kept, dropped=self.dropped + self.size - kept.size)

    def inner_pairs(self, seed: int = 0) -> Array:
        """Return every pair inside a group; where these are too many, spanning chains and random pairs."""
        members = members_of(self.codes)
        sizes = np.array([len(m) for m in members], dtype=np.int64)
        limit = min(PER_ROW * self.n, MOST_PAIRS)
        if int((sizes * (sizes - 1) // 2).sum()) <= limit:
            drawn = stack_pairs([all_pairs(m) for m in members if len(m) > 1])
        else:
            chains = stack_pairs([np.stack([m[:-1], m[1:]], axis=1) for m in members if len(m) > 1])
            drawn = np.concatenate([chains, sample_pairs(self.codes, True, limit, generator(seed))])
        return unique_pairs(drawn, self.n, "groups")[0]

    @classmethod
    def from_sets(cls, sets: Iterable[Iterable[int]], *, n: int) -> Chunklets:
        """Build from lists of row numbers; lists that share a row are one group."""
        n = check_n(n, "Chunklets.from_sets")
        if not isinstance(sets, Iterable):
            raise wrong("sets", "a list of lists of row numbers", sets)
        chains = [as_indices(s, n, f"sets[{i}]", 1).ravel() for i, s in enumerate(sets)]
        links = stack_pairs([np.stack([c[:-1], c[1:]], axis=1) for c in chains if len(c) > 1])
        component = components_of(links, n)
        grouped = np.zeros(n, dtype=bool)
        for c in chains:
            grouped[c] = True
        return cls(np.where(grouped, component, -1))

    @classmethod
    def from_labels(cls, y: Any, *, components: float | None = None, seed: int = 0) -> Chunklets:
        """Return one group per class or, with ``components``, the groups that the papers' protocol leaves."""
        labels = Labels.of(y)
        if components is None:
            return cls(labels.codes)
        similar, _ = draw_components(labels.codes, components, seed, dissimilar=False)
        return cls(groups_of(similar, labels.n))

    @classmethod
    def from_table(cls, columns: Mapping[str, Array], n: int) -> Chunklets:
        """Build from the column ``groups``."""
        return Chunklets(row_values(columns, "groups", n))

    def describe(self) -> str:
        """Return the number of groups and of their rows."""
        return f"{plural(self.size, 'group')} of {plural(int((self.codes >= 0).sum()), 'row')}"

    def satisfied(self, distances: Distances) -> tuple[Satisfied, ...]:
        """Count pairs of rows of one group that are nearer than the median distance between rows."""
        pairs = distances.sample(self.inner_pairs(distances.seed))
        return satisfied_pairs(distances.pairs(pairs), np.empty(0), distances, ("pairs of a group", ""))

    def score(self, distances: Distances) -> float:
        """Return the area under the ROC curve of pairs inside groups against random pairs."""
        pairs = distances.sample(self.inner_pairs(distances.seed))
        if not len(pairs):
            raise self._nothing_to_score()
        both = np.concatenate([pairs, distances.random_pairs(pairs)])
        return pair_auc(*np.split(distances.pairs(both), [len(pairs)]))

    def some_rows(self, most: int, *, seed: int = 0) -> Array:
        """Return at most ``most`` rows of groups, drawn at random; where groups are small, whole ones."""
        return draw_groups(self.codes, most, seed)

    def folds(self, k: int = 3, seed: int = 0) -> Iterator[tuple[Array, Constraint]]:
        """Split the groups of two or more rows: a held-out group has no row among the training rows."""
        codes = by_first_row(self.codes)
        size = np.bincount(codes[codes >= 0], minlength=self.size)
        groups = np.flatnonzero(size > 1)
        parts = deal(groups, k, seed, by=size[groups], what="group")
        return self._row_folds([np.flatnonzero(np.isin(codes, part)) for part in parts])

    def _touching(self, rows: Array) -> Constraint:
        return Chunklets(np.where(rows, self.codes, -1), dropped=self.dropped)

    def links(self) -> Links:
        """Return must-links from every row of a group to the first one."""
        grouped = np.flatnonzero(self.codes >= 0)
        _, first, group = np.unique(self.codes[grouped], return_index=True, return_inverse=True)
        return Links(must=np.stack([grouped, grouped[first[group]]], axis=1))

    def row_classes(self) -> Labels | None:
        """Return the groups, where they are few."""
        return few_groups(self.codes)
