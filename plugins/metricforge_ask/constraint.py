"""Answers as a hint: what ``metricforge learn --answers`` reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from metricforge.constraints import Constraint, Pairs, Triplets
from metricforge.errors import InputError

from .answers import Answer, read_answers
from .groups import Placement, ordered
from .triplets import triplets_of

MOST = 20_000
"""The most pairs of a kind that are taken from groups."""


@dataclass(frozen=True, eq=False, repr=False)
class Answers(Pairs):
    """Pairs that follow from answers to ``metricforge ask``; a file of answers may also hold triplets."""

    flag: ClassVar[str | None] = "answers"
    flag_help: ClassVar[str] = "answers that metricforge ask wrote (several files: with commas)"
    own_format: ClassVar[bool] = True

    @classmethod
    def from_file(cls, path: str, n: int, column: Callable[[str], Any]) -> Constraint:
        """Read files of answers over n rows; ``column(name)`` returns a column of the data, for rows with ids."""
        answers: list[Answer] = []
        row_of: dict[str, int] = {}
        for one in path.split(","):
            header, found, _ = read_answers(one)
            if header.id is None and header.rows != n:
                raise InputError(f"{one!r} holds answers about {header.rows} rows, the data have {n}")
            row_of = rows_by_id(np.arange(n) if header.id is None else column(header.id), header.id)
            answers += found
        return hints_of(answers, row_of, n)


def rows_by_id(ids: Any, name: str | None) -> dict[str, int]:
    """Return the number of each row by its id; ids must differ."""
    texts = [str(value) for value in np.asarray(ids).tolist()]
    found = {text: row for row, text in enumerate(texts)}
    if len(found) < len(texts):
        twice = next(text for row, text in enumerate(texts) if found[text] != row)
        raise InputError(f"column {name!r} names rows, but {twice!r} occurs twice; give a column without repeats")
    return found


def hints_of(answers: list[Answer], row_of: dict[str, int], n: int, seed: int = 0) -> Pairs | Triplets:
    """Return the pairs, or the triplets, that follow from answers; answers held out of learning are left out."""
    triples = triplets_of(answers, row_of)
    if triples:
        return Triplets(np.asarray(triples), n=n)
    return pairs_of(Placement.of(answers, row_of), n, seed)


def pairs_of(state: Placement, n: int, seed: int = 0) -> Pairs:
    """Return pairs inside groups as similar, and as many between groups as dissimilar, beside the answers themselves.

    A group of many rows gives many pairs: at most `MOST` are drawn of each kind.
    """
    rng = np.random.default_rng(seed)
    alike = {pair for pair in state.similar if _agrees(state, pair, True)}
    unlike = {pair for pair in state.dissimilar if _agrees(state, pair, False)}
    alike |= {ordered(a, b) for members in state.members for a, b in _inside(members, rng)}
    rows = np.asarray(sorted(state.group), dtype=np.int64)
    groups = np.asarray([state.group[int(row)] for row in rows], dtype=np.int64)
    wanted = min(MOST, max(len(alike), 1))
    if len(state.members) > 1 and len(rows) > 1:
        for _ in range(20):
            if len(unlike) >= wanted:
                break
            draw = rng.integers(len(rows), size=(2 * wanted, 2))
            apart = draw[groups[draw[:, 0]] != groups[draw[:, 1]]][: wanted - len(unlike)]
            unlike |= {ordered(int(rows[a]), int(rows[b])) for a, b in apart}
    both = alike & unlike
    return Pairs(_array(alike - both), _array(unlike - both), n=n)


def _agrees(state: Placement, pair: tuple[int, int], alike: bool) -> bool:
    """Return whether an answer agrees with the groups; groups decide where both rows are in one."""
    i, j = (state.group.get(row) for row in pair)
    return i is None or j is None or (i == j) is alike


def _inside(members: list[int], rng: np.random.Generator) -> list[tuple[int, int]]:
    """Return the pairs of a group; of a large one at most `MOST`."""
    count = len(members)
    if count * (count - 1) // 2 <= MOST:
        return [(members[a], members[b]) for a in range(count) for b in range(a)]
    draw = rng.integers(count, size=(MOST, 2))
    return [(members[int(a)], members[int(b)]) for a, b in draw if a != b]


def _array(pairs: set[tuple[int, int]]) -> Any:
    return np.asarray(sorted(pairs), dtype=np.int64).reshape(-1, 2)
