"""The interface of a constraint: relations over the rows of X, and what reports, scores and pictures ask of them."""

from __future__ import annotations

import re
from abc import ABC
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, cast, overload

import numpy as np
from numpy.typing import NDArray

from .. import names
from ..errors import InputError, NotAcceptedError
from ..rows import ComparedByContent, draw
from ..validation import generator, plural, shown
from .indices import deal, inside, row_numbers

if TYPE_CHECKING:
    from .labels import Labels
    from .scoring import Distances, Satisfied

Array = NDArray[Any]
C = TypeVar("C", bound="Constraint")


def _no_pairs() -> Array:
    return np.empty((0, 2), dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Links:
    """A constraint as must-links and cannot-links, two (p, 2) arrays of row numbers."""

    must: Array = field(default_factory=_no_pairs)
    cannot: Array = field(default_factory=_no_pairs)


@dataclass(frozen=True, eq=False)
class Lines:
    """Lines between rows in a picture.

    Attributes
    ----------
    label : str
        What one line is, for the legend: "similar pair".
    pairs : (p, 2) int array
    short : bool
        Whether a good metric makes these lines short (drawn solid) rather than long (drawn dashed).
    """

    label: str
    pairs: Array
    short: bool


class Constraint(ComparedByContent, ABC):
    """Relations over ``n`` rows; subclass it to add a kind.

    A kind is a frozen dataclass, ``@dataclass(frozen=True, eq=False, repr=False)``.  Its fields are ``n`` (the number
    of rows), ``dropped`` (the number of relations lost so far) and its index arrays, which it names in
    ``index_fields``.  Then slicing, ``size``, ``describe`` and ``folds`` need no further code.  A kind that is stored
    otherwise (for instance a value per row) defines ``size`` and ``_select`` instead, and ``folds`` for
    cross-validation.

    Everything else is optional: ``satisfied`` lets reports, displays and ``score`` work; ``flag`` and
    ``table_columns`` let the command line read the kind from a file; ``links``, ``lines`` and ``row_classes`` let
    clustering and pictures use it, ``relevance`` lets rankings be scored.  `metricforge.testing.check_constraint`
    checks all of these.

    Attributes
    ----------
    index_fields : tuple of str
        Fields that hold (p, k) arrays of row numbers, one relation per line.
    flag : str or None
        The option of ``metricforge learn`` that reads this kind, without the dashes; None for no option.
    flag_help : str
        The help text of the option.
    table_columns, optional_columns : tuple of str
        The columns that `from_table` needs, and those it may use.
    per_row : bool
        Whether the table has one line per row of X (the option then also accepts a column of the data) instead of one
        line per relation.
    own_format : bool
        Whether `from_file` reads files of a format of its own, instead of `from_table` a table.
    score_name : str
        What `score` measures, for reports: "held-out pairs ranked right".
    """

    n: int
    dropped: int

    index_fields: ClassVar[tuple[str, ...]] = ()
    flag: ClassVar[str | None] = None
    flag_help: ClassVar[str] = ""
    table_columns: ClassVar[tuple[str, ...]] = ()
    optional_columns: ClassVar[tuple[str, ...]] = ()
    per_row: ClassVar[bool] = False
    own_format: ClassVar[bool] = False
    score_name: ClassVar[str] = "held-out relations satisfied"

    # -- size and slicing ----------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        """The number of relations."""
        return sum(len(getattr(self, name)) for name in self._declared("size and _select"))

    def _select(self, rows: Array, position: Array) -> Self:
        """Return the relations inside ``rows``, renumbered; ``constraint[rows]`` calls this.

        Parameters
        ----------
        rows : (m,) int array
            The selected rows, in their new order.
        position : (n,) int array
            The new number of every row, or -1 if it is not selected.

        Notes
        -----
        The default handles the arrays of ``index_fields``.  A kind that is stored otherwise defines this method, and
        adds the relations it leaves out to ``dropped``.
        """
        kept = {name: inside(getattr(self, name), position) for name in self._declared("size and _select")}
        lost = self.size - sum(map(len, kept.values()))
        return self._with(kept, n=len(rows), dropped=self.dropped + lost)

    def _declared(self, instead: str) -> tuple[str, ...]:
        if not self.index_fields:
            raise InputError(
                f"{type(self).__name__} names no index_fields; name the fields that hold row numbers, "
                f"or define {instead}"
            )
        return self.index_fields

    def _with(self, indices: Mapping[str, Array], **fields: Any) -> Self:
        return replace(self, **indices, **fields)  # type: ignore[type-var]

    __iter__ = None  # c[0] is a constraint over one row, so iterating would never make sense

    def __len__(self) -> int:
        return self.n

    @property
    def shape(self) -> tuple[int]:
        """``(n,)``, by which scikit-learn decides to slice an argument together with X."""
        return (self.n,)

    def __getitem__(self, rows: Any) -> Self:
        if isinstance(rows, tuple) and len(rows) == 2 and rows[1] is Ellipsis:
            rows = rows[0]  # scikit-learn writes array[key, ...]
        if not isinstance(rows, slice):
            rows = np.atleast_1d(np.asarray(rows))
            rows = rows if rows.size else np.empty(0, dtype=int)
        try:
            chosen = np.arange(self.n)[rows]
        except (IndexError, ValueError) as error:
            raise InputError(f"rows: cannot select them from a constraint over {self.n} rows: {error}") from None
        if chosen.ndim != 1 or not len(chosen):
            raise InputError(f"rows must be a non-empty 1-d selection, got one of shape {chosen.shape}")
        position = np.full(self.n, -1)
        # Backwards, so that a row chosen twice (a bootstrap) keeps its first position.
        position[chosen[::-1]] = np.arange(len(chosen))[::-1]
        return self._select(chosen, position)

    def check(self, n: int, name: str = "constraints") -> None:
        """Raise unless this constraint is about exactly ``n`` rows."""
        if self.n != n:
            raise InputError(
                f"{name} is about {self.n} rows, but X has {n}; build it with n=len(X), "
                "and slice both by the same rows (X[rows] and c[rows])"
            )

    @classmethod
    def of_values(cls, y: Any) -> Constraint:
        """Return what one bare value per row means to a method for this kind; default: `Labels`."""
        from .labels import Labels

        return Labels.of_values(y)

    @classmethod
    def expect(cls, value: Any, name: str) -> Self:
        """Return ``value`` if it is of this kind, or raise naming the argument."""
        if not isinstance(value, cls):
            raise NotAcceptedError(
                f"{name} must be {cls.__name__}, got {type(value).__name__}; build one with mf.{cls.__name__}(...), "
                f"or convert a constraint with .to(mf.{cls.__name__})"
            )
        return value

    @overload
    def to(self, kind: type[C], *, seed: int = 0) -> C: ...

    @overload
    def to(self, kind: str, *, seed: int = 0) -> Constraint: ...

    def to(self, kind: type[C] | str, *, seed: int = 0) -> C | Constraint:
        """Convert to another kind along the registered conversions; ``dropped`` counts the relations lost.

        Parameters
        ----------
        kind : Constraint class, or the name of a registered one
        seed : int
            For conversions that draw relations.
        """
        if isinstance(kind, str):
            kind = cast(type[C], names.find("constraint", kind, (), "kind"))
        if not (isinstance(kind, type) and issubclass(kind, Constraint)):
            raise InputError(
                f"kind must be a class of constraints, got {shown(kind)}; write for instance .to(mf.Pairs)"
            )
        from ..registry import convert

        return convert(self, kind, seed=seed)

    # -- reports and scores --------------------------------------------------------------------------------------

    def describe(self) -> str:
        """Return what the constraint holds, for reports: "12 quadruplets" by default, from the name of the class."""
        noun = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", type(self).__name__).lower()
        return plural(self.size, noun.removesuffix("s"), noun if noun.endswith("s") else "")

    def satisfied(self, distances: Distances) -> tuple[Satisfied, ...]:
        """Count the relations that a metric satisfies, one entry per type of relation.

        The number and order of entries depend on the constraint alone, so that two metrics can be compared.  The
        default returns none: reports then count nothing.
        """
        return ()

    def score(self, distances: Distances) -> float:
        """Return how well a metric fits the relations, in [0, 1]; larger is better.

        The default is the mean share of `satisfied`.
        """
        found = self.satisfied(distances)
        if not found:
            if type(self).satisfied is Constraint.satisfied:
                raise InputError(
                    f"constraints: {type(self).__name__} cannot be scored; define satisfied(distances) in the class, "
                    "or score(distances)"
                )
            raise self._nothing_to_score()
        return float(np.mean([part.share for part in found]))

    def _nothing_to_score(self) -> InputError:
        return InputError(f"constraints: no relation of {self.describe()} can be scored; give more relations")

    def remarks(self, distances: Distances) -> tuple[str, ...]:
        """Return sentences about relations that no metric can satisfy, or that are unusual; default: none."""
        return ()

    def folds(self, k: int = 3, seed: int = 0) -> Iterator[tuple[Array, Constraint]]:
        """Split for cross-validation over rows; yield (training rows, held-out constraint) ``k`` times.

        Learn from ``X[rows]`` and ``self[rows]``: the relations inside the training rows.  Score the held-out
        constraint, which is over all n rows and has the relations that touch a row outside the training rows.  Each row
        that occurs in a relation is outside the training rows once; other rows never are.
        """
        fields = self._declared("folds")
        touched = np.unique(np.concatenate([getattr(self, name).ravel() for name in fields]))
        return self._row_folds(deal(touched, k, seed))

    def _row_folds(self, parts: list[Array]) -> Iterator[tuple[Array, Constraint]]:
        for part in parts:
            out = np.zeros(self.n, dtype=bool)
            out[part] = True
            yield np.flatnonzero(~out), self._touching(out)

    def _touching(self, rows: Array) -> Constraint:
        """Return the relations that name at least one row of a (n,) mask."""
        arrays = {name: getattr(self, name) for name in self.index_fields}
        return self._with({name: array[rows[array].any(axis=1)] for name, array in arrays.items()})

    def sampled(self, most: int, *, seed: int = 0) -> Self:
        """Return at most ``most`` of the relations, drawn at random, all types of relation alike.

        A kind that has no ``index_fields`` returns itself.
        """
        if not self.index_fields or self.size <= most:
            return self
        rng = generator(seed)
        share, kept = most / self.size, {}
        for name in self.index_fields:
            array = getattr(self, name)
            chosen = rng.permutation(len(array))[: max(1, int(share * len(array)))]
            kept[name] = array[np.sort(chosen)]
        lost = self.size - sum(map(len, kept.values()))
        return self._with(kept, dropped=self.dropped + lost)

    def some_rows(self, most: int, *, seed: int = 0) -> Array:
        """Return at most ``most`` rows in ascending order, drawn at random such that they have relations.

        Of kinds with ``index_fields``, these are the rows of relations drawn at random; of others, any rows.
        """
        if not self.index_fields:
            return draw(self.n, most, seed)
        wide = max(getattr(self, name).shape[1] for name in self.index_fields)
        few = self.sampled(max(1, most // wide), seed=seed)
        return np.unique(np.concatenate([getattr(few, name).ravel() for name in self.index_fields]))

    # -- files ---------------------------------------------------------------------------------------------------

    @classmethod
    def from_table(cls, columns: Mapping[str, Array], n: int) -> Self:
        """Build from the columns of a table by name, over ``n`` rows.

        The default reads one index array from ``table_columns``.
        """
        if len(cls.index_fields) != 1:
            raise InputError(f"{cls.__name__} cannot be read from a table: it does not define from_table(columns, n)")
        return cls(**{cls.index_fields[0]: row_numbers(columns, cls.table_columns), "n": n})

    @classmethod
    def from_file(cls, path: str, n: int, column: Callable[[str], Array]) -> Constraint:
        """Read a file of the kind's own format over ``n`` rows; called if ``own_format`` is set.

        ``column(name)`` returns a column of the data, for files that name rows by the values of a column.
        """
        raise InputError(f"{cls.__name__} cannot be read from a file: it does not define from_file(path, n, column)")

    # -- clustering and pictures ---------------------------------------------------------------------------------

    def links(self) -> Links | None:
        """Return the must-links and cannot-links with the same meaning; None (the default) where there are none."""
        return None

    def relevance(self) -> tuple[Array, list[Array]] | None:
        """Return rows that serve as queries, and the rows that are relevant for each; None (the default) for none."""
        return None

    def lines(self) -> tuple[Lines, ...]:
        """Return the lines that a map of the rows draws; default: none."""
        return ()

    def row_classes(self) -> Labels | None:
        """Return classes to colour and order the rows by in pictures; None (the default) for no classes."""
        return None

    def __repr__(self) -> str:
        lost = f", {self.dropped} dropped" if self.dropped else ""
        return f"{type(self).__name__}({self.size} relations over {self.n} rows{lost})"
