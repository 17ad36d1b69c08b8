"""A kind of constraint: rows a and b are more alike than rows c and d."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

import metricforge as mf
from metricforge.constraints import Lines, Satisfied, as_indices, check_n, freeze


@dataclass(frozen=True, eq=False, repr=False)
class Comparisons(mf.Constraint):
    """Comparisons of two pairs of rows.

    Parameters
    ----------
    quads : sequence of (a, b, c, d)
        Rows a and b are more alike than rows c and d.
    n : int
        The number of rows of X.
    """

    quads: Any = ()
    n: int = None
    dropped: int = 0

    index_fields: ClassVar = ("quads",)
    flag: ClassVar = "comparisons"
    flag_help: ClassVar = "columns a, b, c, d: rows a and b are more alike than rows c and d"
    table_columns: ClassVar = ("a", "b", "c", "d")

    def __post_init__(self):
        n = check_n(self.n, "Comparisons")
        quads = as_indices(self.quads, n, "quads", 4)
        same = np.flatnonzero((quads[:, 0] == quads[:, 1]) | (quads[:, 2] == quads[:, 3]))
        if len(same):
            raise mf.errors.InputError(
                f"quads: {len(same)} comparison(s) pair a row with itself, first quads[{same[0]}]; remove them"
            )
        freeze(self, quads=quads, n=n)

    def satisfied(self, distances):
        """Count the comparisons whose first distance is the smaller one."""
        quads = distances.sample(self.quads)  # all of them, or as many as a report needs
        closer = distances.pairs(quads[:, :2]) < distances.pairs(quads[:, 2:])
        return (Satisfied("comparisons whose first pair is closer", int(closer.sum()), len(closer)),)

    def lines(self):
        """Draw the first pair of a comparison as a short line and the second as a long one."""
        return (
            Lines("more alike pair", self.quads[:, :2], short=True),
            Lines("less alike pair", self.quads[:, 2:], short=False),
        )

    @classmethod
    def from_labels(cls, y, *, n_comparisons=200, seed=0):
        """Draw comparisons of a pair inside a class with a pair across classes."""
        return from_triplets(mf.Triplets.from_labels(y, n_triplets=n_comparisons, seed=seed))


def from_triplets(triplets, *, seed=0):
    """Convert triplets: "i is more like j than like k" compares (i, j) with (i, k)."""
    i, j, k = triplets.triples.T
    return Comparisons(np.column_stack([i, j, i, k]), n=triplets.n, dropped=triplets.dropped)
