"""Judgements of relevance as relations: for a query, some rows are relevant and others are not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..rows import check_memory
from ..validation import generator, shown, whole_number

Array = NDArray[Any]

TRIPLE_BYTES = 160
"""Memory of a triplet while it is drawn."""


def check_relevance(queries: Any, relevant: Any, n: int) -> tuple[Array, list[Array]]:
    """Return queries and the relevant rows of each as int arrays, or raise InputError.

    ``relevant`` may also be one row per query.
    """
    q = listed_rows(queries, "queries", n)
    if not len(q):
        raise InputError("queries is empty; give at least one")
    _check_lists(relevant, "relevant")
    if len(relevant) != len(q):
        raise InputError(f"relevant has {len(relevant)} entries for {len(q)} queries; give one list for each query")
    lists = [listed_rows(np.atleast_1d(rows), f"relevant[{number}]", n) for number, rows in enumerate(relevant)]
    for number, rows in enumerate(lists):
        if not len(rows):
            raise InputError(f"relevant[{number}] is empty; leave out queries without a relevant row")
        if (rows == q[number]).any():
            raise InputError(f"relevant[{number}] names the query itself, row {q[number]}; remove it")
    return q, lists


def _check_lists(given: Any, name: str) -> None:
    if not isinstance(given, list | tuple | np.ndarray):
        raise InputError(f"{name} must be a list with one entry for each query, got {shown(given)}")


def triples_of(queries: Any, relevant: Any, n: int, irrelevant: Any, per_pair: int, seed: int) -> Array:
    """Return (query, relevant, not relevant) for every relevant row and ``per_pair`` others.

    Others are those of ``irrelevant``, or random rows that are neither the query nor relevant.
    """
    n, per_pair = whole_number(n, "n"), whole_number(per_pair, "per_pair")
    q, good = check_relevance(queries, relevant, n)
    if irrelevant is not None:
        _check_lists(irrelevant, "irrelevant")
    if irrelevant is not None and len(irrelevant) != len(q):
        raise InputError(f"irrelevant has {len(irrelevant)} entries for {len(q)} queries; give one list for each query")
    if irrelevant is None:
        total = sum(map(len, good)) * per_pair
        check_memory(TRIPLE_BYTES * total, f"{total} triplets", "lower per_pair")
    rng = generator(seed)
    parts = []
    for number, (query, rows) in enumerate(zip(q, good, strict=True)):
        if irrelevant is None:
            bad = _others(query, rows, n, len(rows) * per_pair, rng)
        else:
            bad = listed_rows(np.atleast_1d(irrelevant[number]), f"irrelevant[{number}]", n)
            both = np.intersect1d(bad, [query, *rows])
            if len(both):
                raise InputError(f"irrelevant[{number}] names row {both[0]}, which is the query or relevant; remove it")
        if len(bad):
            pairs = [(j, k) for j in rows for k in (bad if irrelevant is not None else rng.choice(bad, per_pair))]
            parts.append(np.column_stack([np.full(len(pairs), query), np.asarray(pairs)]))
    if not parts:
        raise InputError("no query has a row that is not relevant, so no triplet follows; give irrelevant=...")
    return np.concatenate(parts)


def check_grades(relevant: list[Array], grades: Any) -> list[Array]:
    """Return the grade of every relevant row as int arrays, or raise InputError."""
    _check_lists(grades, "grades")
    if len(grades) != len(relevant):
        raise InputError(f"grades has {len(grades)} entries for {len(relevant)} queries; give one list for each query")
    found = []
    for number, (rows, values) in enumerate(zip(relevant, grades, strict=True)):
        given = np.atleast_1d(np.asarray(values))
        if given.shape != rows.shape or given.dtype.kind not in "iu" or given.min(initial=1) < 1:
            raise InputError(
                f"grades[{number}] must be whole numbers from 1, one for each of the {len(rows)} rows of "
                f"relevant[{number}], got {given.dtype} of shape {given.shape}; leave out rows of grade 0"
            )
        found.append(given.astype(np.int64))
    return found


def graded(triples: Array, queries: Any, relevant: Any, grades: Any, n: int) -> Array:
    """Add the comparisons of relevant rows with each other, and repeat each triplet by the difference of its grades."""
    q, good = check_relevance(queries, relevant, n)
    given = check_grades(good, grades)
    grade = {
        (int(i), int(j)): int(g)
        for i, rows, own in zip(q, good, given, strict=True)
        for j, g in zip(rows, own, strict=True)
    }
    among = [
        (i, j, k)
        for i, rows, own in zip(q, good, given, strict=True)
        for j, a in zip(rows, own, strict=True)
        for k, b in zip(rows, own, strict=True)
        if a > b
    ]
    both = np.concatenate([triples, np.asarray(among, dtype=np.int64).reshape(-1, 3)])
    apart = [grade[i, j] - grade.get((i, k), 0) for i, j, k in both.tolist()]
    check_memory(TRIPLE_BYTES * sum(apart), f"{sum(apart)} triplets", "use grades from 1 to a few")
    return np.repeat(both, apart, axis=0)


def _others(query: int, rows: Array, n: int, size: int, rng: np.random.Generator) -> Array:
    """Return random rows that are neither the query nor relevant; fewer where there are few."""
    out = {int(query), *rows.tolist()}
    if len(out) >= n:
        return np.empty(0, dtype=np.int64)
    if n <= 4 * (len(out) + size):
        left = np.setdiff1d(np.arange(n), list(out))
        return np.asarray(rng.permutation(left)[:size])
    draw = rng.integers(n, size=2 * size + len(out))
    return np.asarray([row for row in dict.fromkeys(draw.tolist()) if row not in out][:size], dtype=np.int64)


def listed_rows(values: Sequence[int] | Array, name: str, n: int) -> Array:
    """Return row numbers as an int array, or raise InputError."""
    try:
        found = np.asarray(values)
    except ValueError:
        raise InputError(f"{name} must be row numbers, got lists of unequal lengths") from None
    if found.ndim != 1 or (found.size and found.dtype.kind not in "iu"):
        raise InputError(f"{name} must be row numbers, got {found.dtype} of shape {found.shape}")
    wrong = np.flatnonzero((found < 0) | (found >= n))
    if len(wrong):
        raise InputError(f"{name} names row {found[wrong[0]]}, but there are {n} rows, counted from 0")
    return found.astype(np.int64)
