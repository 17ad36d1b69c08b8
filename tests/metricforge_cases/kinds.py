"""Kinds of constraint that the core does not know: the least that a stranger writes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

import metricforge as mf


@dataclass(frozen=True, eq=False, repr=False)
class Ranks(mf.Constraint):
    """A rank per row, and nothing that is optional."""

    values: Any
    dropped: int = 0

    @property
    def n(self):
        return len(self.values)

    @property
    def size(self):
        return len(self.values)

    def _select(self, rows, position):
        return replace(self, values=np.asarray(self.values)[rows])


@dataclass(frozen=True, eq=False, repr=False)
class Links(mf.Constraint):
    """Pairs of similar rows."""

    pairs: Any = ()
    n: int = 0
    dropped: int = 0

    index_fields: ClassVar = ("pairs",)


def links_to_pairs(links, *, seed=0):
    return mf.Pairs(links.pairs, n=links.n)
