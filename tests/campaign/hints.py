"""Difficult hints: empty, contradictory, out of range, of unusual types, over another number of rows.

A hint is drawn as a function that creates it, because its constructor is attacked too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import metricforge as mf

from .rows import Rng, pick


@dataclass
class Hint:
    """A function that creates a hint, and its description."""

    make: Callable[[], Any]
    description: str


# --------------------------------------------------------------------------------------------------------------- labels


def _classes(rng: Rng, n: int) -> Any:
    return rng.integers(0, int(rng.integers(2, 5)), size=n)


def _with_missing(rng: Rng, n: int) -> Any:
    y = _classes(rng, n).astype(float)
    y[rng.random(n) < 0.5] = np.nan
    return y


def _mixed(rng: Rng, n: int) -> Any:
    return [pick(rng, [0, 1, "a", None, 2.5, True]) for _ in range(n)]


def _objects_missing(rng: Rng, n: int) -> Any:
    return [pick(rng, ["a", "b", None, float("nan")]) for _ in range(n)]


def _frame_column(rng: Rng, n: int) -> Any:
    import pandas as pd

    return pd.Series(pd.Categorical([f"k{c}" for c in _classes(rng, n)]))


def _pandas_missing(rng: Rng, n: int) -> Any:
    import pandas as pd

    return pd.array([pick(rng, [0, 1, pd.NA]) for _ in range(n)], dtype="Int64")


def _polars_column(rng: Rng, n: int) -> Any:
    import polars as pl

    return pl.Series([pick(rng, ["u", "v", None]) for _ in range(n)])


LABELS: dict[str, Callable[[Rng, int], Any]] = {
    "random": _classes,
    "random, twice as likely": _classes,
    "list": lambda rng, n: _classes(rng, n).tolist(),
    "strings": lambda rng, n: [f"class {c}" for c in _classes(rng, n)],
    "one class": lambda rng, n: np.zeros(n, dtype=int),
    "all different": lambda rng, n: np.arange(n),
    "all different but two": lambda rng, n: np.maximum(np.arange(n), 1),
    "one row apart": lambda rng, n: (np.arange(n) == 0).astype(int),
    "half missing": _with_missing,
    "all missing": lambda rng, n: np.full(n, np.nan),
    "all None": lambda rng, n: [None] * n,
    "all -1": lambda rng, n: np.full(n, -1),
    "half -1": lambda rng, n: np.where(rng.random(n) < 0.5, -1, _classes(rng, n)),
    "one labelled": lambda rng, n: [1] + [None] * (n - 1),
    "measured": lambda rng, n: rng.normal(size=n),
    "infinite": lambda rng, n: np.where(_classes(rng, n) == 0, np.inf, 1.0),
    "truth": lambda rng, n: _classes(rng, n) > 0,
    "dates": lambda rng, n: _classes(rng, n).astype("M8[D]"),
    "NaT": lambda rng, n: np.where(_classes(rng, n) == 0, np.datetime64("NaT"), np.datetime64("2020-01-01")),
    "bytes": lambda rng, n: np.array([b"a", b"b"])[_classes(rng, n) % 2],
    "complex": lambda rng, n: _classes(rng, n) * 1j,
    "huge whole numbers": lambda rng, n: [10**30 + int(c) for c in _classes(rng, n)],
    "mixed types": _mixed,
    "objects, some missing": _objects_missing,
    "lists": lambda rng, n: [[int(c)] for c in _classes(rng, n)],
    "a column": lambda rng, n: _classes(rng, n)[:, None],
    "two columns": lambda rng, n: np.column_stack([_classes(rng, n)] * 2),
    "one more than rows": lambda rng, n: _classes(rng, n + 1),
    "one fewer than rows": lambda rng, n: _classes(rng, max(0, n - 1)),
    "none": lambda rng, n: [],
    "category": _frame_column,
    "Int64 with NA": _pandas_missing,
    "polars": _polars_column,
    "tuples": lambda rng, n: [(0, int(c)) for c in _classes(rng, n)],
    "sets": lambda rng, n: [{int(c)} for c in _classes(rng, n)],
}


# ---------------------------------------------------------------------------------------------------------------- pairs


def _some_pairs(rng: Rng, n: int, most: int = 40) -> Any:
    if n < 2:
        return np.empty((0, 2), dtype=int)
    P = rng.integers(0, n, size=(int(rng.integers(1, most)), 2))
    return P[P[:, 0] != P[:, 1]]


def _split(rng: Rng, n: int) -> tuple[Any, Any]:
    P = np.unique(np.sort(_some_pairs(rng, n), axis=1), axis=0)
    cut = rng.random(len(P)) < 0.5
    return P[cut], P[~cut]


def _every_pair(n: int) -> Any:
    return np.stack(np.triu_indices(n, 1), axis=1)


def _classes_pairs(rng: Rng, n: int) -> tuple[Any, Any]:
    y = _classes(rng, n)
    P = _every_pair(n)
    if len(P) > 200:
        P = P[rng.choice(len(P), 200, replace=False)]
    same = y[P[:, 0]] == y[P[:, 1]]
    return P[same], P[~same]


PAIRS: dict[str, Callable[[Rng, int], tuple[Any, Any]]] = {
    "of classes": _classes_pairs,
    "of classes, twice as likely": _classes_pairs,
    "random": _split,
    "similar only": lambda rng, n: (_some_pairs(rng, n), ()),
    "dissimilar only": lambda rng, n: ((), _some_pairs(rng, n)),
    "none": lambda rng, n: ((), ()),
    "one similar": lambda rng, n: ([(0, n - 1)], ()),
    "one dissimilar": lambda rng, n: ((), [(0, n - 1)]),
    "one of each": lambda rng, n: ([(0, 1)], [(0, 2)]),
    "all similar": lambda rng, n: (_every_pair(n), ()),
    "all dissimilar": lambda rng, n: ((), _every_pair(n)),
    "one in both": lambda rng, n: ([(0, 1), (1, 2)], [(1, 0)]),
    "a chain and its ends apart": lambda rng, n: ([(i, i + 1) for i in range(n - 1)], [(0, n - 1)]),
    "a row with itself": lambda rng, n: ([(0, 0)], [(0, 1)]),
    "repeated": lambda rng, n: ([(0, 1), (1, 0)] * 5, [(0, 2)] * 3),
    "row n": lambda rng, n: ([(0, n)], ()),
    "row -1": lambda rng, n: ([(-1, 0)], ()),
    "1e300": lambda rng, n: ([[1e300, 0]], ()),
    "2**63": lambda rng, n: ([[2**63, 0]], ()),
    "10**23": lambda rng, n: ([[10**23, 0]], ()),
    "NaN": lambda rng, n: ([[np.nan, 0]], ()),
    "halves": lambda rng, n: ([[0.5, 1]], ()),
    "whole floats": lambda rng, n: (_some_pairs(rng, n).astype(float), ()),
    "strings": lambda rng, n: ([["0", "1"]], ()),
    "truth": lambda rng, n: ([[True, False]], ()),
    "triples": lambda rng, n: ([[0, 1, 2]], ()),
    "one axis": lambda rng, n: ([0, 1], ()),
    "ragged": lambda rng, n: ([[0, 1], [2]], ()),
    "a set": lambda rng, n: ({(0, 1), (1, 2)}, ()),
    "a generator": lambda rng, n: (((i, i + 1) for i in range(n - 1)), ()),
    "None": lambda rng, n: (None, None),
    "a number": lambda rng, n: (5, ()),
    "uint8": lambda rng, n: (_some_pairs(rng, n).astype(np.uint8), ()),
    "complex": lambda rng, n: ([[0j, 1 + 1j]], ()),
}
NUMBERS_OF_ROWS = [0, -1, 1, 1e18, 2.5, None, True, "10", 10**30, np.int8(5), float("nan")]


# ------------------------------------------------------------------------------------------------------------- triplets


def _some_triples(rng: Rng, n: int, columns: int = 3) -> Any:
    if n < columns:
        return np.empty((0, columns), dtype=int)
    return np.stack([rng.choice(n, columns, replace=False) for _ in range(int(rng.integers(1, 40)))])


def _contradictory(rng: Rng, n: int, columns: int = 3) -> Any:
    T = _some_triples(rng, n, columns)
    back = T[:, [0, 2, 1]] if columns == 3 else T[:, [2, 3, 0, 1]]
    return np.concatenate([T, back])


TRIPLES: dict[str, Callable[[Rng, int, int], Any]] = {
    "random": _some_triples,
    "random, twice as likely": _some_triples,
    "contradictory": _contradictory,
    "repeated": lambda rng, n, c: np.repeat(_some_triples(rng, n, c)[:1], 9, axis=0),
    "none": lambda rng, n, c: [],
    "one": lambda rng, n, c: [tuple(range(c))],
    "a row twice": lambda rng, n, c: [tuple([0] * c)],
    "row n": lambda rng, n, c: [(*range(c - 1), n)],
    "1e300": lambda rng, n, c: [(*range(c - 1), 1e300)],
    "10**23": lambda rng, n, c: [(*range(c - 1), 10**23)],
    "NaN": lambda rng, n, c: [(*range(c - 1), np.nan)],
    "strings": lambda rng, n, c: [tuple("abcd"[:c])],
    "too few numbers": lambda rng, n, c: [(0, 1)],
    "None": lambda rng, n, c: None,
}


# ------------------------------------------------------------------------------------------------------------- together


def _labels(rng: Rng, n: int) -> Hint:
    what = pick(rng, LABELS)
    y = LABELS[what](rng, n)
    form = pick(rng, ["bare", "Labels", "Labels", "Labels with unlabelled"])
    if form == "bare":
        return Hint(lambda: y, f"labels, {what}")
    if form == "Labels":
        return Hint(lambda: mf.Labels(y), f"Labels, {what}")
    value = pick(rng, [-1, 0, "class 0", None, float("nan")])
    return Hint(lambda: mf.Labels(y, unlabelled=value), f"Labels(unlabelled={value!r}), {what}")


def _chunklets(rng: Rng, n: int) -> Hint:
    if rng.random() < 0.15:
        sets = pick(rng, [[[0, 1], [1, 2]], [], [[]], [[0]], [[0, n]], [[-1]], [[0.5]], [["a"]], 5, [3], [[0, 0]]])
        return Hint(lambda: mf.Chunklets.from_sets(sets, n=n), f"Chunklets.from_sets({sets!r})")
    what = pick(rng, LABELS)
    groups = LABELS[what](rng, n)
    return Hint(lambda: mf.Chunklets(groups), f"Chunklets, {what}")


def _pairs(rng: Rng, n: int) -> Hint:
    what = pick(rng, PAIRS)
    similar, dissimilar = PAIRS[what](rng, n)
    rows = n
    if rng.random() < 0.05:
        rows = pick(rng, NUMBERS_OF_ROWS)
    return Hint(lambda: mf.Pairs(similar, dissimilar, n=rows), f"Pairs(n={rows!r}), {what}")


def _triplets(rng: Rng, n: int) -> Hint:
    what = pick(rng, TRIPLES)
    triples = TRIPLES[what](rng, n, 3)
    return Hint(lambda: mf.Triplets(triples, n=n), f"Triplets, {what}")


def _drawn(rng: Rng, n: int) -> Hint:
    kind = pick(rng, [mf.Labels, mf.Pairs, mf.Chunklets, mf.Triplets])
    what = pick(rng, LABELS)
    y = LABELS[what](rng, n)
    components = pick(rng, [None, 0.5, 0.7, 0.01, 0.99, 0.0, 1.0, -1, "x", float("nan"), 1])
    return Hint(
        lambda: kind.from_labels(y, components=components, seed=int(n)),
        f"{kind.__name__}.from_labels(components={components!r}), {what}",
    )


def _sliced(rng: Rng, n: int) -> Hint:
    """Draw relations over 2 n rows and select n of these rows."""
    inner = pick(rng, [_pairs, _triplets, _chunklets])(rng, 2 * n)
    rows = rng.permutation(2 * n)[:n]
    return Hint(lambda: inner.make()[rows], f"{inner.description}, over {2 * n} rows, sliced to {n}")


def _junk(rng: Rng, n: int) -> Hint:
    junk: dict[str, Callable[[], Any]] = {
        "None": lambda: None,
        "a number": lambda: 3,
        "a string": lambda: "labels",
        "[Labels, Pairs]": lambda: [mf.Labels(np.arange(n) % 2), mf.Pairs([(0, 1)], n=n)],
        "a dict": lambda: {"similar": [(0, 1)]},
        "a class": lambda: mf.Pairs,
        "pairs of numbers": lambda: np.zeros((4, 2), dtype=int),
        "an array of three axes": lambda: np.zeros((n, 1, 1)),
        "a generator": lambda: (c for c in range(n)),
        "an object": object,
    }
    what = pick(rng, junk)
    return Hint(junk[what], what)


def _quadruplets(rng: Rng, n: int) -> Hint:
    what = pick(rng, TRIPLES)
    relations = TRIPLES[what](rng, n, 4)
    return Hint(lambda: mf.Quadruplets(relations, n=n), f"Quadruplets, {what}")


def _targets(rng: Rng, n: int) -> Hint:
    what = pick(rng, ["measured", "measured", *LABELS])
    y = LABELS[what](rng, n)
    return Hint(lambda: mf.Targets(y), f"Targets, {what}")


KINDS: dict[str, list[Callable[[Rng, int], Hint]]] = {
    "labels": [_labels, _labels, _labels],
    "chunklets": [_chunklets, _chunklets, _sliced],
    "pairs": [_pairs, _pairs, _sliced],
    "triplets": [_triplets, _triplets, _sliced],
    "quadruplets": [_quadruplets],
    "targets": [_targets],
    "other": [_drawn, _junk],
}
GROUPED = ("labels", "labels", "chunklets", "pairs")
SUITABLE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(["idealized", "itml", "krca", "llr", "simplenpkl"], GROUPED),
    **dict.fromkeys(["kcr", "lfda", "lmnn", "nca"], ("labels",)),
    **dict.fromkeys(["lpdesign", "relevance"], ("labels", "triplets", "triplets")),
    "lsml": ("labels", "triplets", "quadruplets", "quadruplets"),
    "mlkr": ("targets",),
}
"""Kinds that a method accepts or that are converted, if not all are; others are drawn rarely."""


def _kind(rng: Rng, method: str) -> str:
    suitable = SUITABLE.get(method, GROUPED) if rng.random() < 0.95 else tuple(KINDS)
    return str(pick(rng, suitable))


def draw(rng: Rng, n: int, method: str = "") -> Hint:
    """Draw a hint of any kind and content; one in four is valid and typical."""
    if rng.random() < 0.25:
        return plain(rng, n, method)
    return pick(rng, KINDS[_kind(rng, method)])(rng, n)


VALID = {
    "labels": ("list", "strings", "half missing", "truth", "dates", "bytes", "category", "objects, some missing"),
    "pairs": ("of classes", "random", "one of each", "a chain and its ends apart", "whole floats"),
    "triplets": ("random", "contradictory", "one"),
}


def valid(rng: Rng, n: int, method: str = "") -> Hint:
    """Draw a valid hint of unusual content: unlabelled rows, few or contradictory relations, odd types."""
    kind = _kind(rng, method)
    if kind not in VALID or n < 6:
        return plain(rng, n, method)
    what = pick(rng, VALID[kind])
    if kind == "labels":
        y = LABELS[what](rng, n)
        return Hint(lambda: mf.Labels(y), f"Labels, {what}")
    if kind == "pairs":
        similar, dissimilar = PAIRS[what](rng, n)
        return Hint(lambda: mf.Pairs(similar, dissimilar, n=n), f"Pairs, {what}")
    triples = TRIPLES[what](rng, n, 3)
    return Hint(lambda: mf.Triplets(triples, n=n), f"Triplets, {what}")


def plain(rng: Rng, n: int, method: str = "") -> Hint:
    """Draw a valid and typical hint, as far as n rows allow."""
    n = max(1, n)
    y = np.arange(n) % int(rng.integers(2, 4))
    rng.shuffle(y)
    kind = _kind(rng, method)
    if kind == "chunklets":
        return Hint(lambda: mf.Chunklets(y), "plain Chunklets")
    if kind == "pairs":
        return Hint(lambda: mf.Pairs.from_labels(y, n_pairs=60), "plain Pairs")
    if kind == "triplets":
        return Hint(lambda: mf.Triplets.from_labels(y, n_triplets=60), "plain Triplets")
    if kind == "targets":
        values = rng.normal(size=n)
        return Hint(lambda: mf.Targets(values), "plain Targets")
    if kind == "quadruplets" and n >= 4:
        quads = np.stack([rng.permutation(n)[:4] for _ in range(20)])
        return Hint(lambda: mf.Quadruplets(quads, n=n), "plain Quadruplets")
    return Hint(lambda: mf.Labels(y), "plain Labels")
