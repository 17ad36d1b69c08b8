"""Quadruplets: "a and b are more similar than c and d"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..rows import check_memory
from ..validation import generator, whole_number
from .drawing import MOST_TRIPLETS, PER_ROW, draw_components, sample_pairs
from .indices import as_indices, check_n, freeze
from .interface import Constraint, Lines
from .labels import Labels
from .scoring import Distances, Satisfied

QUADRUPLET_BYTES = 160
"""Memory of a quadruplet while it is drawn."""

Array = NDArray[Any]


@dataclass(frozen=True, eq=False, repr=False)
class Quadruplets(Constraint):
    """Judgements "a and b are more similar than c and d".

    A quadruplet is satisfied when a is nearer to b than c to d; the score is the share satisfied.

    Parameters
    ----------
    quads : sequence of (a, b, c, d)
        Two different pairs of different rows; the pairs may share a row.  Repeated and contradicting judgements are
        kept and weigh more, as in `Triplets`.
    n : int
        The number of rows of X.
    """

    index_fields: ClassVar[tuple[str, ...]] = ("quads",)
    flag: ClassVar[str | None] = "quadruplets"
    flag_help: ClassVar[str] = "columns a, b, c, d: rows a and b are more alike than rows c and d"
    table_columns: ClassVar[tuple[str, ...]] = ("a", "b", "c", "d")

    quads: Any
    n: int = None  # type: ignore[assignment]
    dropped: int = 0

    def __post_init__(self) -> None:
        n = check_n(self.n, "Quadruplets")
        quads = as_indices(self.quads, n, "quads", 4)
        first, second = np.sort(quads[:, :2], axis=1), np.sort(quads[:, 2:], axis=1)
        itself = (first[:, 0] == first[:, 1]) | (second[:, 0] == second[:, 1])
        for bad, fault in ((itself, "join a row with itself"), ((first == second).all(axis=1), "name one pair twice")):
            found = np.flatnonzero(bad)
            if len(found):
                raise InputError(
                    f"quads: {len(found)} {fault}, first quadruplet {found[0]} = {tuple(quads[found[0]].tolist())}; "
                    "each needs two different pairs of different rows: remove them"
                )
        freeze(self, quads=quads, n=n)

    @classmethod
    def from_labels(
        cls, y: Any, *, components: float | None = None, n_quadruplets: int | None = None, seed: int = 0
    ) -> Quadruplets:
        """Draw quadruplets from labels: a and b of one class, c and d of two classes.

        Without ``components``: ``n_quadruplets`` random ones, with replacement (default: ten per row, and no more than
        20,000).  With it: one quadruplet for each similar pair of the papers' protocol.
        """
        labels = Labels.of(y)
        labels.check_two_classes()
        rng = generator(seed)
        if components is not None:
            near = draw_components(labels.codes, components, seed, dissimilar=False)[0]
        else:
            size = min(PER_ROW * labels.n, MOST_TRIPLETS)
            size = size if n_quadruplets is None else whole_number(n_quadruplets, "n_quadruplets", most=2**63 - 1)
            check_memory(QUADRUPLET_BYTES * size, f"{size} quadruplets", "lower n_quadruplets")
            near = sample_pairs(labels.codes, True, size, rng, repeat=True)
        if not len(near):
            raise InputError("y: no class has two labelled rows, so no quadruplet can be drawn; label more rows")
        far = sample_pairs(labels.codes, False, len(near), rng, repeat=True)
        return cls(np.column_stack([near, far]), n=labels.n)

    def satisfied(self, distances: Distances) -> tuple[Satisfied, ...]:
        """Count the quadruplets with a nearer to b than c to d."""
        Q = distances.sample(self.quads)
        if not len(Q):
            return ()
        near, far = np.split(distances.pairs(np.concatenate([Q[:, :2], Q[:, 2:]])), 2)
        return (Satisfied("quadruplets with a nearer to b than c to d", int((near < far).sum()), len(Q)),)

    def lines(self) -> tuple[Lines, ...]:
        """Return the first pairs as short lines and the second pairs as long ones."""
        return Lines("nearer pair", self.quads[:, :2], True), Lines("further pair", self.quads[:, 2:], False)
