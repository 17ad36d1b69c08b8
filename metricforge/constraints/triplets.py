"""Triplets: "i is more similar to j than to k"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..rows import check_memory
from ..validation import generator, whole_number
from .drawing import MOST_TRIPLETS, PER_ROW, ClassIndex, draw_components, sample_pairs
from .indices import as_indices, check_n, freeze, partners
from .interface import Constraint
from .labels import Labels
from .relevance import TRIPLE_BYTES, graded, triples_of
from .scoring import Distances, Satisfied

Array = NDArray[Any]


@dataclass(frozen=True, eq=False, repr=False)
class Triplets(Constraint):
    """Judgements "i is more similar to j than to k".

    A triplet is satisfied when i is nearer to j than to k; the score is the share satisfied.

    Parameters
    ----------
    triples : sequence of (i, j, k)
        Three different rows each.  Repeated and contradicting judgements are kept: people disagree, and each counts.
        So a judgement of twice the weight is given twice.
    n : int
        The number of rows of X.
    """

    index_fields: ClassVar[tuple[str, ...]] = ("triples",)
    flag: ClassVar[str | None] = "triplets"
    flag_help: ClassVar[str] = "columns i, j, k: row i is more like j than like k"
    table_columns: ClassVar[tuple[str, ...]] = ("i", "j", "k")
    score_name: ClassVar[str] = "held-out triplets satisfied"

    triples: Any
    n: int = None  # type: ignore[assignment]
    dropped: int = 0

    def __post_init__(self) -> None:
        n = check_n(self.n, "Triplets")
        triples = as_indices(self.triples, n, "triples", 3)
        i, j, k = triples.T
        same = np.flatnonzero((i == j) | (i == k) | (j == k))
        if len(same):
            raise InputError(
                f"triples: {len(same)} name a row twice, first triple {same[0]} = {tuple(triples[same[0]].tolist())}; "
                "each needs three different rows: remove them"
            )
        freeze(self, triples=triples, n=n)

    @classmethod
    def from_labels(
        cls, y: Any, *, components: float | None = None, n_triplets: int | None = None, seed: int = 0
    ) -> Triplets:
        """Draw triplets from labels: i and j of one class, k of another.

        Without ``components``: ``n_triplets`` random ones, with replacement (default: ten per row, and no more than
        20,000).  With it: one triplet for each similar pair of the papers' protocol.
        """
        labels = Labels.of(y)
        labels.check_two_classes()
        rng = generator(seed)
        if components is not None:
            pairs = draw_components(labels.codes, components, seed, dissimilar=False)[0]
        else:
            size = min(PER_ROW * labels.n, MOST_TRIPLETS)
            size = size if n_triplets is None else whole_number(n_triplets, "n_triplets", most=2**63 - 1)
            check_memory(TRIPLE_BYTES * size, f"{size} triplets", "lower n_triplets")
            pairs = sample_pairs(labels.codes, True, size, rng, repeat=True)
        if not len(pairs):
            raise InputError("y: no class has two labelled rows, so no triplet can be drawn; label more rows")
        third = ClassIndex(labels.codes).other_class(pairs[:, 0], rng)
        return cls(np.column_stack([pairs, third]), n=labels.n)

    @classmethod
    def from_relevance(
        cls,
        queries: Any,
        relevant: Any,
        n: int,
        irrelevant: Any = None,
        *,
        grades: Any = None,
        per_pair: int = 5,
        seed: int = 0,
    ) -> Triplets:
        """Build from judgements of relevance: (query, relevant row, row that is not relevant).

        Parameters
        ----------
        queries : sequence of int
            Row numbers; queries and documents are rows of one X.
        relevant : sequence of sequences of int
            The relevant rows of each query.
        n : int
            The number of rows of X.
        irrelevant : sequence of sequences of int, optional
            Rows of each query that are not relevant, for instance from `metricforge.tasks.hard_negatives`; default:
            random rows that are neither the query nor relevant.
        grades : sequence of sequences of int, optional
            How relevant each row of ``relevant`` is, from 1; other rows have the grade 0.  Rows of a query are then
            also compared with each other, and a triplet is repeated as often as its two grades differ, so that large
            differences count more.
        per_pair : int
            Random rows for each relevant one.
        """
        triples = triples_of(queries, relevant, n, irrelevant, per_pair, seed)
        if grades is not None:
            triples = graded(triples, queries, relevant, grades, n)
        return cls(triples, n=n)

    def relevance(self) -> tuple[Array, list[Array]]:
        """Return the rows i, and the rows j of each."""
        return partners(self.triples[:, 0], self.triples[:, 1])

    def satisfied(self, distances: Distances) -> tuple[Satisfied, ...]:
        """Count the triplets with i nearer to j than to k."""
        T = distances.sample(self.triples)
        if not len(T):
            return ()
        near, far = np.split(distances.pairs(np.concatenate([T[:, :2], T[:, ::2]])), 2)
        return (Satisfied("triplets with i nearer to j than to k", int((near < far).sum()), len(T)),)
