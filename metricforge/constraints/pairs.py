"""Pairs: rows known to be similar, and rows known to be dissimilar."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..validation import generator, whole_number
from .drawing import MOST_PAIRS, PER_ROW, draw_components, sample_pairs
from .indices import (
    all_pairs,
    check_n,
    components_of,
    cross_pairs,
    freeze,
    groups_of,
    members_of,
    pair_keys,
    partners,
    row_numbers,
    stack_pairs,
    unique_pairs,
)
from .interface import Constraint, Lines, Links
from .labels import Labels, few_groups
from .relevance import triples_of
from .scoring import Distances, Satisfied, pair_auc, satisfied_pairs

Array = NDArray[Any]

MOST_CLOSED = 50_000_000
"""Largest number of pairs in a closure: 800 MB of row numbers, plus some temporary copies."""
SIMILAR = {"1", "+1", "1.0", "true", "yes", "similar", "same"}
DISSIMILAR = {"0", "-1", "0.0", "-1.0", "false", "no", "dissimilar", "different"}
"""What the column ``similar`` of a table may hold, in any case."""


@dataclass(frozen=True, eq=False, repr=False)
class Pairs(Constraint):
    """Pairs of rows known to be similar, and pairs known to be dissimilar.

    A similar pair is satisfied when its distance is at most a threshold, a dissimilar one when it is above: the
    threshold that separates the two best or, where one side is empty, the median distance between rows.  The score is
    the area under the ROC curve: the probability that a similar pair is nearer than a dissimilar one.  Where one side
    is empty, random pairs take its place.

    Parameters
    ----------
    similar, dissimilar : sequences of (i, j)
        Either may be empty.  Order inside a pair does not matter; a pair given twice counts once (``repeated`` is the
        number of such repeats), so pairs have no weights; a row with itself, or a pair in both sets, is an error.
    n : int
        The number of rows of X.
    """

    index_fields: ClassVar[tuple[str, ...]] = ("similar", "dissimilar")
    flag: ClassVar[str | None] = "pairs"
    flag_help: ClassVar[str] = "columns i, j, similar (1 or 0); rows are counted from 0"
    table_columns: ClassVar[tuple[str, ...]] = ("i", "j")
    optional_columns: ClassVar[tuple[str, ...]] = ("similar",)
    score_name: ClassVar[str] = "held-out pairs ranked right"

    similar: Any = ()
    dissimilar: Any = ()
    n: int = None  # type: ignore[assignment]
    dropped: int = 0
    repeated: int = 0

    def __post_init__(self) -> None:
        n = check_n(self.n, "Pairs")
        similar, twice_s = unique_pairs(self.similar, n, "similar")
        dissimilar, twice_d = unique_pairs(self.dissimilar, n, "dissimilar")
        both = np.intersect1d(pair_keys(similar, n), pair_keys(dissimilar, n))
        if len(both):
            shown = ", ".join(f"({k // n}, {k % n})" for k in both[:3])
            raise InputError(
                f"similar and dissimilar both hold {len(both)} pair(s), first {shown}; "
                "decide which is right and remove the other"
            )
        freeze(self, similar=similar, dissimilar=dissimilar, n=n, repeated=self.repeated + twice_s + twice_d)

    @classmethod
    def from_relevance(
        cls, queries: Any, relevant: Any, n: int, irrelevant: Any = None, *, per_pair: int = 1, seed: int = 0
    ) -> Pairs:
        """Build from judgements of relevance: queries with relevant rows are similar, with the others dissimilar.

        The parameters are those of `Triplets.from_relevance`.
        """
        triples = triples_of(queries, relevant, n, irrelevant, per_pair, seed)
        similar, dissimilar = ({tuple(sorted(pair)) for pair in triples[:, [0, c]].tolist()} for c in (1, 2))
        return cls(sorted(similar), sorted(dissimilar - similar), n=n)

    @classmethod
    def from_labels(
        cls,
        y: Any,
        *,
        components: float | None = None,
        closure: bool = True,
        n_pairs: int | None = None,
        seed: int = 0,
    ) -> Pairs:
        """Draw pairs from labels.

        Parameters
        ----------
        components : float in (0, 1), optional
            The protocol of the papers: random same-class pairs until they leave ``components * n`` connected
            components, and as many different-class pairs.
        closure : bool
            With ``components``: add every pair that follows (all pairs inside a component, and all pairs between two
            components that a dissimilar pair joins).
        n_pairs : int, optional
            Without ``components``: the largest number of pairs of each kind to draw.  Default: ten per row, and no
            more than 200,000.
        """
        labels = Labels.of(y)
        labels.check_two_classes()
        if components is not None:
            similar, dissimilar = draw_components(labels.codes, components, seed)
            drawn = cls(similar, dissimilar, n=labels.n)
            return drawn.closed() if closure else drawn
        limit = min(PER_ROW * labels.n, MOST_PAIRS) if n_pairs is None else whole_number(n_pairs, "n_pairs")
        rng = generator(seed)
        similar, dissimilar = (sample_pairs(labels.codes, same, limit, rng) for same in (True, False))
        return cls(similar, dissimilar, n=labels.n)

    def relevance(self) -> tuple[Array, list[Array]]:
        """Return the rows of similar pairs, and their partners."""
        i, j = self.similar.T
        return partners(np.concatenate([i, j]), np.concatenate([j, i]))

    def closed(self) -> Pairs:
        """Return the closure: similar is transitive, and dissimilar holds between whole components.

        The number of pairs is quadratic in the size of components; more than 50 million are refused.
        """
        component = components_of(self.similar, self.n)
        a, b = component[self.dissimilar].T if len(self.dissimilar) else (np.empty(0, int),) * 2
        clash = np.flatnonzero(a == b)
        if len(clash):
            i, j = self.dissimilar[clash[0]]
            raise InputError(
                f"dissimilar contradicts similar: rows {i} and {j} are linked by a chain of similar pairs "
                f"({len(clash)} such pair(s)); remove one side before taking the closure"
            )
        members = members_of(component)
        edges = np.unique(np.sort(np.stack([a, b], axis=1), axis=1), axis=0)
        size = np.bincount(component)
        total = int((size * (size - 1) // 2).sum() + (size[edges[:, 0]] * size[edges[:, 1]]).sum())
        if total > MOST_CLOSED:
            raise InputError(
                f"the closure would hold {total:,} pairs, which is more than {MOST_CLOSED:,}; "
                "do not take it (closure=False), or ask for more components"
            )
        similar = [all_pairs(rows) for rows in members if len(rows) > 1]
        dissimilar = [cross_pairs(members[u], members[v]) for u, v in edges]
        return Pairs(
            stack_pairs(similar),
            stack_pairs(dissimilar),
            n=self.n,
            dropped=self.dropped,
            repeated=self.repeated,
        )

    @classmethod
    def from_table(cls, columns: Mapping[str, Array], n: int) -> Pairs:
        """Build from the columns ``i``, ``j`` and, unless all pairs are similar, ``similar``.

        ``similar`` is 1 or true for similar pairs, and 0, -1 or false for dissimilar ones.
        """
        pairs = row_numbers(columns, ("i", "j"))
        similar = np.ones(len(pairs), dtype=bool)
        if "similar" in columns:
            values = [str(value).lower() for value in columns["similar"].tolist()]
            bad = next((p for p, value in enumerate(values) if value not in SIMILAR | DISSIMILAR), None)
            if bad is not None:
                raise InputError(
                    f"column 'similar' holds {values[bad]!r} in pair {bad} (counted from 0); "
                    "write 1 for similar and 0 (or -1) for dissimilar"
                )
            similar = np.array([value in SIMILAR for value in values])
        return Pairs(pairs[similar], pairs[~similar], n=n)

    def describe(self) -> str:
        """Return the number of pairs of each kind."""
        return f"{len(self.similar)} similar and {len(self.dissimilar)} dissimilar pairs"

    def satisfied(self, distances: Distances) -> tuple[Satisfied, ...]:
        """Count similar pairs below, and dissimilar pairs above, a threshold."""
        similar, dissimilar = distances.sample(self.similar), distances.sample(self.dissimilar)
        s, d = _split(distances, similar, dissimilar)
        return satisfied_pairs(s, d, distances)

    def score(self, distances: Distances) -> float:
        """Return the area under the ROC curve of similar against dissimilar pairs, or against random ones."""
        if not self.size:
            raise self._nothing_to_score()
        similar, dissimilar = distances.sample(self.similar), distances.sample(self.dissimilar)
        if not len(dissimilar):
            dissimilar = distances.random_pairs(similar)
        elif not len(similar):
            similar = distances.random_pairs(dissimilar)
        return pair_auc(*_split(distances, similar, dissimilar))

    def remarks(self, distances: Distances) -> tuple[str, ...]:
        """Report dissimilar pairs of identical rows."""
        stuck = distances.coincident(self.dissimilar)
        if not len(stuck):
            return ()
        return (
            f"{len(stuck)} dissimilar pair(s) join identical rows, which no metric can separate "
            f"(first pair {tuple(self.dissimilar[stuck[0]].tolist())})",
        )

    def links(self) -> Links:
        """Return similar pairs as must-links and dissimilar pairs as cannot-links."""
        return Links(self.similar, self.dissimilar)

    def lines(self) -> tuple[Lines, ...]:
        """Return both kinds of pairs."""
        return Lines("similar pair", self.similar, True), Lines("dissimilar pair", self.dissimilar, False)

    def row_classes(self) -> Labels | None:
        """Return the connected components of the similar pairs, where they are few."""
        return few_groups(groups_of(self.similar, self.n))


def _split(distances: Distances, *pairs: Array) -> list[Array]:
    """Return the squared distances of several (p, 2) arrays, from one block of the kernel where possible."""
    found = distances.pairs(np.concatenate(pairs))
    return np.split(found, np.cumsum([len(part) for part in pairs])[:-1])
