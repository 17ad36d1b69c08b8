"""Hints about likeness, as typed index sets over the rows of X.

Four kinds: `Labels` (a class per row), `Pairs` (similar and dissimilar), `Chunklets` (groups known to belong together)
and `Triplets` ("i is more like j than like k").  All of them slice by row: ``len(c)`` is the number of rows and
``c[rows]`` keeps the relations inside ``rows``, renumbered, so scikit-learn's splitters and metadata routing carry them
like any array of length n.  What slicing or conversion leaves out is counted in ``dropped``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from .errors import InputError, first_rows, whole_number
from .rows import ComparedByContent

Array = NDArray[Any]
C = TypeVar("C", bound="Constraint")

PER_ROW = 10
"""How many pairs of a kind, or triplets, are drawn from labels for each row when taking all would be quadratic."""
MOST_PAIRS, MOST_TRIPLETS = 200_000, 20_000
"""How many are drawn at the most when no number is asked for: what the solvers take in seconds."""
MOST_CLOSED = 50_000_000
"""How many pairs a closure may have: 800 MB of row numbers, and some copies on the way."""


class Constraint(ComparedByContent, ABC):
    """Relations over ``n`` rows.

    A kind of its own needs ``n``, ``size``, ``_select`` and, so that conversions can say what they lost, ``dropped``.
    """

    n: int
    dropped: int

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of relations."""

    @abstractmethod
    def _select(self, rows: Array, position: Array) -> Self:
        """Keep the relations inside ``rows``; ``position[i]`` is the new number of old row i, or -1."""

    __iter__ = None  # c[0] is a constraint over one row, so iterating would never make sense

    def __len__(self) -> int:
        return self.n

    @property
    def shape(self) -> tuple[int]:
        """``(n,)``: what scikit-learn looks at to decide that an argument is sliced with X."""
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
        # Backwards, so that a row chosen twice (a bootstrap) keeps its first place.
        position[chosen[::-1]] = np.arange(len(chosen))[::-1]
        return self._select(chosen, position)

    def check(self, n: int, name: str = "constraints") -> None:
        """Raise unless this constraint is about exactly ``n`` rows and says anything at all."""
        if self.n != n:
            raise InputError(
                f"{name} is about {self.n} rows, but X has {n}; build it with n=len(X), "
                "and slice both alike (c[rows] beside X[rows])"
            )

    def to(self, kind: type[C], *, seed: int = 0) -> C:
        """Convert to another kind along the conversions that are registered; what is lost is in ``dropped``."""
        if not (isinstance(kind, type) and issubclass(kind, Constraint)):
            raise InputError(f"kind must be a class of constraints, got {kind!r}; write for instance .to(mf.Pairs)")
        from .registry import convert  # the one upward import: conversions are edges in the registry

        return convert(self, kind, seed=seed)

    def __repr__(self) -> str:
        lost = f", {self.dropped} dropped" if self.dropped else ""
        return f"{type(self).__name__}({self.size} relations over {self.n} rows{lost})"


# ---------------------------------------------------------------------------------------------------------- the kinds


@dataclass(frozen=True, eq=False, repr=False)
class Labels(Constraint):
    """A class per row; every value is a class.

    Parameters
    ----------
    y : array of n values
        Numbers or strings (anything that can be ordered).  NaN and None mean "unlabelled".
    unlabelled : value, optional
        A further value that means "unlabelled", for instance -1.  By default -1 is a class like any other.

    Attributes
    ----------
    codes : (n,) int array
        Class numbers ``0 .. len(classes) - 1``, -1 where unlabelled.
    classes : array
        The distinct values, sorted.
    """

    y: Any
    unlabelled: Any = None
    dropped: int = 0
    codes: Array = field(init=False)
    classes: Array = field(init=False)

    def __post_init__(self) -> None:
        y = _as_column(self.y, "y")
        missing = _is_missing(y)
        if self.unlabelled is not None:
            missing |= np.asarray([v == self.unlabelled for v in y.tolist()], dtype=bool)
        codes, classes = _encode(y, missing, "y")
        _freeze(self, y=y, codes=codes, classes=classes)

    @property
    def n(self) -> int:  # type: ignore[override]
        """The number of rows."""
        return len(self.codes)

    @property
    def size(self) -> int:
        """The number of labelled rows."""
        return int(np.count_nonzero(self.codes >= 0))

    def _select(self, rows: Array, position: Array) -> Labels:
        # a label is a relation with oneself: leaving its row out takes nothing from the rows that stay
        return Labels(self.y[rows], unlabelled=self.unlabelled, dropped=self.dropped)

    @classmethod
    def from_labels(cls, y: Any, *, components: float | None = None, seed: int = 0) -> Labels:
        """Return the labels of the rows that the papers' protocol touches (all of them without ``components``)."""
        labels = _labels(y)
        if components is None:
            return labels
        touched = np.unique(_draw_pairs(labels, components, seed)[0])
        hidden = np.full(labels.n, None, dtype=object)
        hidden[touched] = labels.classes[labels.codes[touched]]
        return cls(hidden)


@dataclass(frozen=True, eq=False, repr=False)
class Pairs(Constraint):
    """Pairs of rows known to be similar, and pairs known to be dissimilar.

    Parameters
    ----------
    similar, dissimilar : sequences of (i, j)
        Either may be empty.  Order inside a pair does not matter; a pair given twice counts once (``repeated`` says
        how often that happened); a row with itself, or a pair in both sets, is an error.
    n : int
        The number of rows of X.
    """

    similar: Any = ()
    dissimilar: Any = ()
    n: int = None  # type: ignore[assignment]
    dropped: int = 0
    repeated: int = 0

    def __post_init__(self) -> None:
        n = _check_n(self.n, "Pairs")
        similar, twice_s = _unique_pairs(self.similar, n, "similar")
        dissimilar, twice_d = _unique_pairs(self.dissimilar, n, "dissimilar")
        both = np.intersect1d(_pair_keys(similar, n), _pair_keys(dissimilar, n))
        if len(both):
            shown = ", ".join(f"({k // n}, {k % n})" for k in both[:3])
            raise InputError(
                f"similar and dissimilar both hold {len(both)} pair(s), first {shown}; "
                "decide which is right and remove the other"
            )
        _freeze(self, similar=similar, dissimilar=dissimilar, n=n, repeated=self.repeated + twice_s + twice_d)

    @property
    def size(self) -> int:
        """The number of relations."""
        return len(self.similar) + len(self.dissimilar)

    def _select(self, rows: Array, position: Array) -> Pairs:
        similar, dissimilar = _inside(self.similar, position), _inside(self.dissimilar, position)
        lost = self.size - len(similar) - len(dissimilar)
        return Pairs(similar, dissimilar, n=len(rows), dropped=self.dropped + lost, repeated=self.repeated)

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
            Without ``components``: how many pairs of each kind to draw at the most.  Default: ten a row, and no
            more than 200,000.
        """
        labels = _labels(y)
        _check_two_classes(labels)
        if components is not None:
            similar, dissimilar = _draw_pairs(labels, components, seed)
            drawn = cls(similar, dissimilar, n=labels.n)
            return drawn.closed() if closure else drawn
        limit = min(PER_ROW * labels.n, MOST_PAIRS) if n_pairs is None else whole_number(n_pairs, "n_pairs")
        rng = np.random.default_rng(seed)
        return cls(_sample_pairs(labels, True, limit, rng), _sample_pairs(labels, False, limit, rng), n=labels.n)

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
        members = np.split(np.argsort(component, kind="stable"), np.cumsum(np.bincount(component))[:-1])
        edges = np.unique(np.sort(np.stack([a, b], axis=1), axis=1), axis=0)
        size = np.bincount(component)
        total = int((size * (size - 1) // 2).sum() + (size[edges[:, 0]] * size[edges[:, 1]]).sum())
        if total > MOST_CLOSED:
            raise InputError(
                f"the closure would hold {total:,} pairs, which is more than {MOST_CLOSED:,}; "
                "leave it out (closure=False), or ask for more components"
            )
        similar = [_all_pairs(rows) for rows in members if len(rows) > 1]
        dissimilar = [_grid(members[u], members[v]) for u, v in edges]
        return Pairs(
            _concatenate(similar),
            _concatenate(dissimilar),
            n=self.n,
            dropped=self.dropped,
            repeated=self.repeated,
        )


@dataclass(frozen=True, eq=False, repr=False)
class Chunklets(Constraint):
    """Groups of rows known to belong together; nothing is said about rows of different groups.

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

    groups: Any
    dropped: int = 0
    codes: Array = field(init=False)
    ids: Array = field(init=False)

    def __post_init__(self) -> None:
        groups = _as_column(self.groups, "groups")
        missing = _is_missing(groups)
        if groups.dtype.kind in "iuf":
            missing |= groups == -1
        elif groups.dtype == object:
            missing |= np.asarray([not isinstance(g, str) and g == -1 for g in groups.tolist()], dtype=bool)
        codes, ids = _encode(groups, missing, "groups")
        _freeze(self, groups=groups, codes=codes, ids=ids)

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

    @classmethod
    def from_sets(cls, sets: Iterable[Iterable[int]], *, n: int) -> Chunklets:
        """Build from lists of row numbers; lists that share a row are one group."""
        n = _check_n(n, "Chunklets.from_sets")
        chains = [_as_indices(s, n, f"sets[{i}]", 1).ravel() for i, s in enumerate(sets)]
        links = _concatenate([np.stack([c[:-1], c[1:]], axis=1) for c in chains if len(c) > 1])
        component = components_of(links, n)
        grouped = np.zeros(n, dtype=bool)
        for c in chains:
            grouped[c] = True
        return cls(np.where(grouped, component, -1))

    @classmethod
    def from_labels(cls, y: Any, *, components: float | None = None, seed: int = 0) -> Chunklets:
        """Return one group per class or, with ``components``, the groups the papers' protocol leaves."""
        labels = _labels(y)
        if components is None:
            return cls(labels.codes)
        similar, _ = _draw_pairs(labels, components, seed, dissimilar=False)
        return pairs_to_chunklets(Pairs(similar, n=labels.n))


@dataclass(frozen=True, eq=False, repr=False)
class Triplets(Constraint):
    """Judgements "i is more like j than like k".

    Parameters
    ----------
    triples : sequence of (i, j, k)
        Three different rows each.  Repeated and contradicting judgements are kept: people disagree, and each counts.
    n : int
        The number of rows of X.
    """

    triples: Any
    n: int = None  # type: ignore[assignment]
    dropped: int = 0

    def __post_init__(self) -> None:
        n = _check_n(self.n, "Triplets")
        triples = _as_indices(self.triples, n, "triples", 3)
        i, j, k = triples.T
        same = np.flatnonzero((i == j) | (i == k) | (j == k))
        if len(same):
            raise InputError(
                f"triples: {len(same)} name a row twice, first triple {same[0]} = {tuple(triples[same[0]].tolist())}; "
                "each needs three different rows: remove them"
            )
        _freeze(self, triples=triples, n=n)

    @property
    def size(self) -> int:
        """The number of relations."""
        return len(self.triples)

    def _select(self, rows: Array, position: Array) -> Triplets:
        triples = _inside(self.triples, position)
        return Triplets(triples, n=len(rows), dropped=self.dropped + self.size - len(triples))

    @classmethod
    def from_labels(
        cls, y: Any, *, components: float | None = None, n_triplets: int | None = None, seed: int = 0
    ) -> Triplets:
        """Draw triplets from labels: i and j of one class, k of another.

        Without ``components``: ``n_triplets`` random ones, with repeats (default: ten a row, and no more than 20,000).
        With it: one triplet for each similar pair of the papers' protocol.
        """
        labels = _labels(y)
        _check_two_classes(labels)
        rng = np.random.default_rng(seed)
        if components is not None:
            pairs = _draw_pairs(labels, components, seed, dissimilar=False)[0]
        else:
            size = min(PER_ROW * labels.n, MOST_TRIPLETS)
            size = size if n_triplets is None else whole_number(n_triplets, "n_triplets")
            pairs = _sample_pairs(labels, True, size, rng, repeat=True)
        if not len(pairs):
            raise InputError("y: no class has two labelled rows, so no triplet can be drawn; label more rows")
        third = _Classes(labels).stranger(pairs[:, 0], rng)
        return cls(np.column_stack([pairs, third]), n=labels.n)


# -------------------------------------------------------------------------------------------------------- conversions
# Each is registered under the name "source->target"; seeded where it draws.


def labels_to_pairs(labels: Labels, *, seed: int = 0) -> Pairs:
    """All same-class and different-class pairs, or `Pairs.from_labels`'s random draw where there are too many."""
    return replace(Pairs.from_labels(labels, seed=seed), dropped=labels.dropped)


def labels_to_chunklets(labels: Labels, *, seed: int = 0) -> Chunklets:
    """One group per class."""
    return replace(Chunklets(labels.codes), dropped=labels.dropped)


def labels_to_triplets(labels: Labels, *, seed: int = 0) -> Triplets:
    """Draw as `Triplets.from_labels` does."""
    return replace(Triplets.from_labels(labels, seed=seed), dropped=labels.dropped)


def chunklets_to_pairs(chunklets: Chunklets, *, seed: int = 0) -> Pairs:
    """Every pair inside a group; where those are too many, a spanning chain and random pairs beside it."""
    order = np.argsort(chunklets.codes, kind="stable")
    order = order[chunklets.codes[order] >= 0]
    members = np.split(order, np.cumsum(np.bincount(chunklets.codes[order], minlength=chunklets.size))[:-1])
    sizes = np.array([len(m) for m in members])
    limit = min(PER_ROW * chunklets.n, MOST_PAIRS)
    if int((sizes * (sizes - 1) // 2).sum()) <= limit:
        similar = _concatenate([_all_pairs(m) for m in members if len(m) > 1])
        return Pairs(similar, n=chunklets.n, dropped=chunklets.dropped)
    chains = _concatenate([np.stack([m[:-1], m[1:]], axis=1) for m in members if len(m) > 1])
    drawn = _sample_pairs(Labels(chunklets.codes, unlabelled=-1), True, limit, np.random.default_rng(seed))
    return replace(Pairs(np.concatenate([chains, drawn]), n=chunklets.n, dropped=chunklets.dropped), repeated=0)


def pairs_to_chunklets(pairs: Pairs, *, seed: int = 0) -> Chunklets:
    """Return the connected components of the similar pairs; dissimilar pairs are dropped and counted."""
    component = components_of(pairs.similar, pairs.n)
    touched = np.zeros(pairs.n, dtype=bool)
    touched[pairs.similar.ravel()] = True
    return Chunklets(np.where(touched, component, -1), dropped=pairs.dropped + len(pairs.dissimilar))


def triplets_to_pairs(triplets: Triplets, *, seed: int = 0) -> Pairs:
    """(i, j) similar and (i, k) dissimilar; pairs that come out as both are dropped and counted."""
    n = triplets.n
    similar = np.unique(_pair_keys(np.sort(triplets.triples[:, :2], axis=1), n))
    dissimilar = np.unique(_pair_keys(np.sort(triplets.triples[:, ::2], axis=1), n))
    both = np.intersect1d(similar, dissimilar)
    keep = [np.setdiff1d(keys, both) for keys in (similar, dissimilar)]
    s, d = (np.stack([k // n, k % n], axis=1) for k in keep)
    return Pairs(s, d, n=n, dropped=triplets.dropped + len(both))


# ------------------------------------------------------------------------------------------------------------- pieces


def components_of(pairs: Array, n: int) -> Array:
    """Return the connected component of each of ``n`` rows in the graph of ``pairs``, numbered by first row."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    i, j = pairs.T if len(pairs) else (np.empty(0, int), np.empty(0, int))
    graph = coo_array((np.ones(len(i), dtype=np.int8), (i, j)), shape=(n, n))
    component: Array = connected_components(graph, directed=False)[1].astype(np.int64)
    return component


def _freeze(target: Any, **values: Any) -> None:
    for name, value in values.items():
        if isinstance(value, np.ndarray) and value.dtype != object:
            value.setflags(write=False)
        object.__setattr__(target, name, value)


def _check_n(n: Any, kind: str) -> int:
    if n is None:
        raise InputError(f"n is missing: {kind} needs the number of rows, write {kind}(..., n=len(X))")
    return whole_number(n, "n")


def _as_column(values: Any, name: str) -> Array:
    """Return a 1-d array of n values; a column (n, 1) is taken as one."""
    if hasattr(values, "to_numpy"):
        values = values.to_numpy()
    A = np.array(values) if not isinstance(values, np.ndarray) else values.copy()
    if A.dtype.kind in "US" and not isinstance(values, np.ndarray) and not all(isinstance(v, str) for v in values):
        A = np.array(values, dtype=object)  # NumPy would have written 'None' and 'nan'
    if A.ndim == 2 and A.shape[1] == 1:
        A = A.ravel()
    if A.ndim != 1 or len(A) == 0:
        raise InputError(f"{name} must be 1-d with one value per row, got shape {A.shape}")
    return A


def _is_missing(values: Array) -> Array:
    if values.dtype.kind == "f":
        return np.isnan(values)
    if values.dtype.kind in "mM":
        return np.isnat(values)
    if values.dtype == object:
        # NaN and NaT differ from themselves; pandas' NA will not even say
        return np.asarray([v is None or (v != v) is not False for v in values.tolist()], dtype=bool)
    return np.zeros(len(values), dtype=bool)


def _encode(values: Array, missing: Array, name: str) -> tuple[Array, Array]:
    """Return class numbers (-1 where missing) and the sorted distinct values."""
    codes = np.full(len(values), -1, dtype=np.int64)
    try:
        classes, inverse = np.unique(values[~missing], return_inverse=True)
    except TypeError:
        kinds = sorted({type(v).__name__ for v in values[~missing].tolist()})
        raise InputError(f"{name} mixes {' and '.join(kinds)}, which cannot be ordered; convert all to str") from None
    codes[~missing] = inverse
    return codes, classes


def _as_indices(values: Any, n: int, name: str, columns: int) -> Array:
    """Return an (m, columns) int64 array of row numbers inside ``range(n)``."""
    try:
        A = np.asarray(sorted(values) if isinstance(values, set | frozenset) else values)
        A = A if A.ndim else np.asarray(list(values))
    except (TypeError, ValueError):
        raise InputError(f"{name} must be a list of {columns} row numbers each, got {values!r}") from None
    if A.size == 0:
        return np.empty((0, columns), dtype=np.int64)
    if columns == 1 and A.ndim == 1:
        A = A[:, None]
    if A.ndim != 2 or A.shape[1] != columns:
        shape = ", ".join("ijk"[:columns])
        raise InputError(f"{name} must be a list of ({shape}) row numbers, got an array of shape {A.shape}")
    if A.dtype.kind not in "iu" and not (A.dtype.kind == "f" and np.array_equal(A, np.rint(A))):
        raise InputError(f"{name} must hold whole row numbers, got dtype {A.dtype}; convert names to positions first")
    A = A.astype(np.int64)
    bad = np.flatnonzero(((A < 0) | (n <= A)).any(axis=1))
    if len(bad):
        raise InputError(
            f"{name}: {len(bad)} of {len(A)} name a row outside 0 .. {n - 1}, first entry {bad[0]} = "
            f"{tuple(A[bad[0]].tolist())}; rows are counted from 0, and n is the number of rows of X"
        )
    return A


def _unique_pairs(values: Any, n: int, name: str) -> tuple[Array, int]:
    """Return the distinct pairs with i < j in lexicographic order, and how many were repeats."""
    pairs = np.sort(_as_indices(values, n, name, 2), axis=1)
    itself = np.flatnonzero(pairs[:, 0] == pairs[:, 1])
    if len(itself):
        raise InputError(
            f"{name}: {len(itself)} pair(s) join a row with itself, first {first_rows(pairs[itself, 0])}; remove them"
        )
    keys = np.unique(_pair_keys(pairs, n))
    return np.stack([keys // n, keys % n], axis=1), len(pairs) - len(keys)


def _pair_keys(pairs: Array, n: int) -> Array:
    return pairs[:, 0] * np.int64(n) + pairs[:, 1]


def _inside(relations: Array, position: Array) -> Array:
    moved: Array = position[relations]
    return moved[(moved >= 0).all(axis=1)]


def _concatenate(parts: list[Array]) -> Array:
    return np.concatenate(parts) if parts else np.empty((0, 2), dtype=np.int64)


def _all_pairs(rows: Array) -> Array:
    i, j = np.triu_indices(len(rows), k=1)
    return np.stack([rows[i], rows[j]], axis=1)


def _grid(a: Array, b: Array) -> Array:
    return np.stack([np.repeat(a, len(b)), np.tile(b, len(a))], axis=1)


def _labels(y: Any) -> Labels:
    return y if isinstance(y, Labels) else Labels(y)


def _check_two_classes(labels: Labels) -> None:
    if len(labels.classes) < 2:
        raise InputError(
            f"y has {len(labels.classes)} class(es), so nothing is known to be different; give at least two classes"
        )


class _Classes:
    """Labelled rows grouped by class, so that a random partner costs O(1)."""

    def __init__(self, labels: Labels) -> None:
        order = np.argsort(labels.codes, kind="stable")
        self.rows = order[labels.codes[order] >= 0]  # labelled rows, class by class
        self.counts = np.bincount(labels.codes[self.rows], minlength=len(labels.classes))
        self.starts = np.concatenate([[0], np.cumsum(self.counts)])[:-1]
        self.codes = labels.codes

    def partner(self, rows: Array, rng: np.random.Generator) -> Array:
        """Return a random row of the same class (possibly the row itself)."""
        c = self.codes[rows]
        return np.asarray(self.rows[self.starts[c] + (rng.random(len(rows)) * self.counts[c]).astype(np.int64)])

    def stranger(self, rows: Array, rng: np.random.Generator) -> Array:
        """Return a random row of another class."""
        c = self.codes[rows]
        outside = len(self.rows) - self.counts[c]
        place = (rng.random(len(rows)) * outside).astype(np.int64)
        # skip over the own class, which is contiguous
        place += np.where(place >= self.starts[c], self.counts[c], 0)
        return self.rows[place]

    def all_pairs(self) -> Array:
        """Return every pair of the same class."""
        members = [self.rows[s : s + c] for s, c in zip(self.starts, self.counts, strict=True)]
        return _concatenate([_all_pairs(m) for m in members if len(m) > 1])

    def all_strangers(self) -> Array:
        """Return every pair of different classes."""
        ends = self.starts + self.counts
        halves = [(self.rows[s:e], self.rows[e:]) for s, e in zip(self.starts, ends, strict=True)]
        return _concatenate([_grid(own, later) for own, later in halves if len(later)])


def _sample_pairs(labels: Labels, same: bool, limit: int, rng: np.random.Generator, *, repeat: bool = False) -> Array:
    """Return up to ``limit`` random pairs of the same (or of different) class; all of them when there are fewer.

    Every pair is equally likely.  With ``repeat`` exactly ``limit`` draws are made and repeats stay.
    """
    groups = _Classes(labels)
    counts = groups.counts.astype(np.int64)
    inside = int((counts * (counts - 1) // 2).sum())
    total = inside if same else int(counts.sum() * (counts.sum() - 1) // 2) - inside
    if total == 0:
        return np.empty((0, 2), dtype=np.int64)
    if not repeat and total <= 4 * limit:
        every = groups.all_pairs() if same else groups.all_strangers()
        return every if total <= limit else every[np.sort(rng.choice(total, size=limit, replace=False))]
    # A row starts a pair in proportion to its number of partners, so pairs are uniform.
    weight = (counts - 1 if same else counts.sum() - counts)[labels.codes[groups.rows]].astype(float)
    cumulative = np.cumsum(weight)
    found = np.empty((0, 2), dtype=np.int64)
    while len(found) < limit:
        draws = max(64, int(1.2 * (limit - len(found))))
        i = groups.rows[np.searchsorted(cumulative, rng.random(draws) * cumulative[-1], side="right")]
        j = groups.partner(i, rng) if same else groups.stranger(i, rng)
        pairs = np.stack([i, j], axis=1)[i != j]
        found = np.concatenate([found, pairs])
        if not repeat:
            keys = _pair_keys(np.sort(found, axis=1), labels.n)
            found = found[np.sort(np.unique(keys, return_index=True)[1])]
    return found[:limit]


def _draw_pairs(labels: Labels, components: float, seed: int, *, dissimilar: bool = True) -> tuple[Array, Array]:
    """Draw same-class pairs until ``components * n`` components are left, and as many different-class pairs.

    The protocol of Xing et al. (2002) that the papers share.  Unlabelled rows stay alone, each its own component.
    """
    if not (isinstance(components, float | np.floating) and 0 < components < 1):
        raise InputError(
            f"components must be between 0 and 1 (the share of rows left as components), got {components!r}"
        )
    rng = np.random.default_rng(seed)
    groups = _Classes(labels)
    n = labels.n
    target = max(round(components * n), len(labels.classes) + n - len(groups.rows))
    pairable = groups.rows[groups.counts[labels.codes[groups.rows]] > 1]
    parent = np.arange(n)
    left, seen, similar = n, set(), []
    while left > target and len(pairable):
        start = pairable[rng.integers(len(pairable), size=max(64, left - target))]
        for i, j in zip(start.tolist(), groups.partner(start, rng).tolist(), strict=True):
            key = (min(i, j), max(i, j))
            if i == j or key in seen:
                continue
            seen.add(key)
            similar.append(key)
            a, b = _root(parent, i), _root(parent, j)
            if a != b:
                parent[max(a, b)] = min(a, b)
                left -= 1
                if left <= target:
                    break
    s = np.asarray(similar, dtype=np.int64).reshape(-1, 2)
    d = _sample_pairs(labels, False, len(s), rng) if dissimilar and len(s) else np.empty((0, 2), dtype=np.int64)
    return s, d


def _root(parent: Array, i: int) -> int:
    while parent[i] != i:
        parent[i] = parent[parent[i]]  # path halving
        i = int(parent[i])
    return i
