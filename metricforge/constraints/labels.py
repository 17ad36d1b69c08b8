"""Labels: a class per row."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import InitVar, dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..validation import plural
from .drawing import draw_components, sample_pairs
from .indices import as_column, by_first_row, deal, draw_groups, encode, freeze, is_missing, row_values
from .interface import Constraint
from .scoring import MOST_RELATIONS, Distances, Satisfied, balanced, row_auc, satisfied_pairs

Array = NDArray[Any]

NEIGHBOURS = 5
"""Number of neighbours in the second of the three accuracies."""
MOST_NUMBERS = 20
"""Largest number of distinct values that are not whole in a bare y: more of them are targets, not classes."""
MOST_GROUPS = 12
"""Largest number of groups in pictures: more colours cannot be distinguished."""


@dataclass(frozen=True, eq=False, repr=False)
class Labels(Constraint):
    """A class per row; every value is a class.

    A label is satisfied when the nearest other labelled row has the same class.  The score is the mean of the accuracy
    of one nearest neighbour, that of five, and the share of triplets (i, j of one class, k of another) with i nearer to
    j than to k.

    Parameters
    ----------
    y : array of n values
        Numbers or strings (anything that can be ordered).  NaN and None mean "unlabelled".
    unlabelled : value, optional
        A further value that means "unlabelled", for instance -1.  By default -1 is a class like any other; beside two
        or more whole numbers it is a class with a warning.
    derived : bool
        Whether y comes from another Labels, about which the warning was given.

    Attributes
    ----------
    codes : (n,) int array
        Class numbers ``0 .. len(classes) - 1``, -1 where unlabelled.
    classes : array
        The distinct values, sorted.
    """

    flag: ClassVar[str | None] = "label"
    flag_help: ClassVar[str] = "the column with a class per row, or a file of one column"
    table_columns: ClassVar[tuple[str, ...]] = ("label",)
    per_row: ClassVar[bool] = True
    score_name: ClassVar[str] = "mean accuracy of 1-NN, 5-NN and triplets on held-out rows"

    y: Any
    unlabelled: Any = None
    dropped: int = 0
    codes: Array = field(init=False)
    classes: Array = field(init=False)
    derived: InitVar[bool] = False

    def __post_init__(self, derived: bool) -> None:
        y = as_column(self.y, "y")
        missing = is_missing(y)
        if self.unlabelled is not None:
            missing |= np.asarray([v == self.unlabelled for v in y.tolist()], dtype=bool)
        codes, classes = encode(y, missing, "y")
        freeze(self, y=y, codes=codes, classes=classes)
        # -1 and 1 are how two classes are often written
        if not derived and self.unlabelled is None and classes.dtype.kind == "i" and len(classes) > 2 and -1 in classes:
            warnings.warn(
                f"y holds -1 in {np.count_nonzero(y == -1)} row(s), which is learned as a class; if it means "
                "unlabelled, give mf.Labels(y, unlabelled=-1), or leave these cells of a file empty",
                stacklevel=3,
            )

    @property
    def n(self) -> int:  # type: ignore[override]
        """The number of rows."""
        return len(self.codes)

    @property
    def size(self) -> int:
        """The number of labelled rows."""
        return int(np.count_nonzero(self.codes >= 0))

    def _select(self, rows: Array, position: Array) -> Labels:
        # a label involves one row only: the rows that stay lose nothing, so nothing counts as dropped
        return Labels(self.y[rows], unlabelled=self.unlabelled, dropped=self.dropped, derived=True)

    @classmethod
    def of(cls, y: Any) -> Labels:
        """Return ``y`` itself if it is a Labels, otherwise ``Labels(y)``."""
        return y if isinstance(y, Labels) else Labels(y)

    @classmethod
    def of_values(cls, y: Any) -> Labels:
        """Return ``Labels(y)``; an error for fractions of many values, which are a number per row, not classes."""
        labels = Labels(y)
        numbers = [v for v in labels.classes.tolist() if isinstance(v, float) and not v.is_integer()]
        if len(numbers) > MOST_NUMBERS:
            raise InputError(
                f"y holds {len(numbers)} different numbers that are not whole, such as {numbers[0]}; give "
                "mf.Targets(y) for a number per row, or mf.Labels(y) if each is a class"
            )
        return labels

    @classmethod
    def from_labels(cls, y: Any, *, components: float | None = None, seed: int = 0) -> Labels:
        """Return the labels of the rows that the papers' protocol draws (all of them without ``components``)."""
        labels = Labels.of(y)
        if components is None:
            return labels
        touched = np.unique(draw_components(labels.codes, components, seed)[0])
        hidden = np.full(labels.n, None, dtype=object)
        hidden[touched] = labels.classes[labels.codes[touched]]
        return cls(hidden)

    @classmethod
    def from_table(cls, columns: Mapping[str, Array], n: int) -> Labels:
        """Build from the column ``label``."""
        return Labels(row_values(columns, "label", n))

    def check_two_classes(self) -> None:
        """Raise if there are fewer than two classes."""
        if len(self.classes) < 2:
            raise InputError(
                f"y has {len(self.classes)} class(es), so nothing is known to be different; give at least two classes"
            )

    def describe(self) -> str:
        """Return the number of labels and classes, and the share of the largest class."""
        sizes = np.bincount(self.codes[self.codes >= 0])
        largest = f" (the largest {100 * sizes.max() / sizes.sum():.1f} %)" if len(sizes) > 1 else ""
        return f"{plural(self.size, 'label')} in {plural(len(self.classes), 'class', 'classes')}{largest}"

    def row_classes(self) -> Labels:
        """Return the labels themselves."""
        return self

    def satisfied(self, distances: Distances) -> tuple[Satisfied, ...]:
        """Count rows whose nearest row has their class, and pairs of rows on their side of a common threshold."""
        rows = distances.sample_rows(np.flatnonzero(self.codes >= 0))
        if not len(rows):
            return ()
        codes = self.codes[rows]
        tally, between = _Nearest(), _Between(codes, distances.seed)
        for part, D in distances.row_blocks(rows):
            between.add(D, part)
            tally.add(D, codes[part], codes, own=part)
        if not (counted := tally.satisfied()) or not between.known:
            return counted
        names = "pairs of one class", "pairs of two classes"
        pairs = satisfied_pairs(between.same, between.different, distances, names, decisive=False)
        return (*counted, *pairs)

    def score(self, distances: Distances) -> float:
        """Return the mean accuracy of one and of five nearest neighbours and of triplets, each row left out once."""
        rows = distances.sample_rows(np.flatnonzero(self.codes >= 0))
        codes = self.codes[rows]
        blocks = ((D, codes[part], part) for part, D in distances.row_blocks(rows)) if len(rows) else ()
        return self._accuracy(blocks, codes)

    def _accuracy(self, blocks: Iterable[tuple[Array, Array, slice | None]], others: Array) -> float:
        """Return the mean of the three accuracies.

        Parameters
        ----------
        blocks : iterable of (distances, codes of the rows, position of the rows among the others or None)
            A row is not compared with itself.
        others : codes of the other rows
        """
        found = [_row_accuracies(D, codes, others, own) for D, codes, own in blocks]
        parts = np.concatenate(found, axis=1) if found else np.empty((3, 0))
        if not parts.shape[1]:
            raise self._nothing_to_score()
        return float(np.mean([part.mean() for part in parts]))

    def some_rows(self, most: int, *, seed: int = 0) -> Array:
        """Return at most ``most`` rows of classes, drawn at random; where classes are small, whole ones."""
        return draw_groups(self.codes, most, seed)

    def folds(self, k: int = 3, seed: int = 0) -> Iterator[tuple[Array, Constraint]]:
        """Split the labelled rows, every class evenly; a held-out row is scored by its nearest training rows."""
        labelled = np.flatnonzero(self.codes >= 0)
        return self._row_folds(deal(labelled, k, seed, by=by_first_row(self.codes)[labelled]))

    def _touching(self, rows: Array) -> Constraint:
        return HeldOutLabels(self.y, unlabelled=self.unlabelled, dropped=self.dropped, derived=True, held_out=rows)


@dataclass(frozen=True, eq=False, repr=False)
class HeldOutLabels(Labels):
    """Labels of which some are held out: their rows are compared with the other labelled rows only.

    Parameters
    ----------
    held_out : (n,) bool array
    """

    flag: ClassVar[str | None] = None

    held_out: Any = ()

    def __post_init__(self, derived: bool) -> None:
        super().__post_init__(derived)
        freeze(self, held_out=np.array(self.held_out, dtype=bool))

    @property
    def size(self) -> int:
        """The number of labelled rows that are held out."""
        return int(np.count_nonzero((self.codes >= 0) & self.held_out))

    def _select(self, rows: Array, position: Array) -> HeldOutLabels:
        return HeldOutLabels(
            self.y[rows],
            unlabelled=self.unlabelled,
            dropped=self.dropped,
            derived=True,
            held_out=self.held_out[rows],
        )

    def satisfied(self, distances: Distances) -> tuple[Satisfied, ...]:
        """Count held-out rows whose nearest training row has their class."""
        asked, known = self._compared(distances)
        tally = _Nearest()
        for part, D in self._blocks(distances, asked, known):
            tally.add(D, self.codes[asked[part]], self.codes[known])
        return tally.satisfied()

    def score(self, distances: Distances) -> float:
        """Return the mean accuracy of one and of five nearest training rows and of triplets for held-out rows."""
        asked, known = self._compared(distances)
        blocks = ((D, self.codes[asked[part]], None) for part, D in self._blocks(distances, asked, known))
        return self._accuracy(blocks, self.codes[known])

    def _compared(self, distances: Distances) -> tuple[Array, Array]:
        """Return the labelled rows that are held out and those that are not, or samples of them."""
        asked, known = (
            distances.sample_rows(np.flatnonzero((self.codes >= 0) & part)) for part in (self.held_out, ~self.held_out)
        )
        return asked, known

    @staticmethod
    def _blocks(distances: Distances, asked: Array, known: Array) -> Iterable[tuple[slice, Array]]:
        return distances.row_blocks(asked, known) if len(asked) and len(known) else ()


def few_groups(codes: Array) -> Labels | None:
    """Return groups as Labels, numbered from 0, if there are 2 to `MOST_GROUPS` of them, else None."""
    found = Labels(codes, unlabelled=-1)
    return Labels(found.codes, unlabelled=-1) if 1 < len(found.classes) <= MOST_GROUPS else None


class _Nearest:
    """Counts the rows whose nearest other row has their class, among the rows for which there is such a row."""

    def __init__(self) -> None:
        self.right: list[Array] = []
        self.codes: list[Array] = []

    def add(self, D: Array, codes: Array, others: Array, own: slice | None = None) -> None:
        """Count a block of distances; ``own`` is the position of its rows among the columns."""
        same = codes[:, None] == others
        if own is not None:
            at = np.arange(len(D)), np.arange(own.start, own.stop)
            D = D.copy()
            D[at], same[at] = np.inf, False
        possible = same.any(axis=1)
        nearest = D.argmin(axis=1)[possible]
        self.right.append(others[nearest] == codes[possible])
        self.codes.append(codes[possible])

    def satisfied(self) -> tuple[Satisfied, ...]:
        right, codes = (np.concatenate([np.empty(0, int), *part]) for part in (self.right, self.codes))
        if not len(codes):
            return ()
        nearest = Satisfied("rows whose nearest other row is of their class", int(right.sum()), len(right))
        return nearest, balanced("balanced accuracy of the nearest other row", right.astype(bool), codes)


class _Between:
    """Squared distances of drawn pairs of one class (``same``) and of two (``different``), found block by block."""

    def __init__(self, codes: Array, seed: int) -> None:
        self.known = 1 < len(np.unique(codes)) < len(codes)
        rng = np.random.default_rng(seed)
        kinds = (True, False) if self.known else ()
        self.pairs = [np.sort(sample_pairs(codes, same, MOST_RELATIONS, rng), axis=1) for same in kinds]
        self.same, self.different = (np.empty(len(part)) for part in self.pairs) if self.known else (np.empty(0),) * 2

    def add(self, D: Array, rows: slice) -> None:
        """Keep the distances of the pairs whose first row is in a block."""
        for part, values in zip(self.pairs, (self.same, self.different), strict=False):
            here = (rows.start <= part[:, 0]) & (part[:, 0] < rows.stop)
            values[here] = D[part[here, 0] - rows.start, part[here, 1]]


def _row_accuracies(D: Array, codes: Array, others: Array, own: slice | None) -> Array:
    """Return the three accuracies of every row that has another one of its class and one of another class: (3, rows).

    The parameters are those of `Labels._accuracy`.
    """
    same = codes[:, None] == others
    different = ~same
    if own is not None:
        same[np.arange(len(D)), np.arange(own.start, own.stop)] = False
    scored = same.any(axis=1) & different.any(axis=1)
    if not scored.any():
        return np.empty((3, 0))
    D, codes, same, different = D[scored], codes[scored], same[scored], different[scored]
    k = min(NEIGHBOURS, len(others) - (own is not None))
    order = np.argsort(np.where(same | different, D, np.inf), axis=1, kind="stable")
    near = others[order[:, :k]]  # (rows, k) classes, nearest first
    votes = (near[:, :, None] == near[:, None, :]).sum(axis=2)
    # argmax finds the first of the largest: among classes with equal votes, the one with the nearest row
    chosen = np.take_along_axis(near, votes.argmax(axis=1)[:, None], axis=1)[:, 0]
    return np.stack([near[:, 0] == codes, chosen == codes, row_auc(D, same, different)])
