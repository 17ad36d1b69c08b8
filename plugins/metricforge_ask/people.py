"""Several people: how far they agree, and how often each of them errs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from .answers import Answer
from .groups import ERROR
from .questions import ALIKE, SKIP

FEWEST = 5
"""The least number of pairs that two people answered before their agreement is stated."""
PRIOR = 20
"""Answers that the assumed share of wrong ones counts for, beside those that were compared."""


def agreement(answers: Sequence[Answer]) -> float | None:
    """Return Cohen's κ over pairs that two people answered; None if there are fewer than `FEWEST`."""
    both = [
        (first == ALIKE, second == ALIKE) for opinions in _shared(answers) for (_, first), (_, second) in [opinions[:2]]
    ]
    if len(both) < FEWEST:
        return None
    a, b = np.asarray(both, dtype=float).T
    chance = a.mean() * b.mean() + (1 - a.mean()) * (1 - b.mean())
    return 1.0 if chance == 1 else float(((a == b).mean() - chance) / (1 - chance))


def error_rates(answers: Sequence[Answer]) -> dict[str, float]:
    """Return the estimated share of wrong answers of each person who answered what somebody else did.

    Where most say the same, the others are wrong; in a tie everybody is wrong by half.  The estimate is shrunk towards
    `ERROR`, because a few compared answers say little.
    """
    wrong: Counter[str] = Counter()
    compared: Counter[str] = Counter()
    halves: Counter[str] = Counter()
    for opinions in _shared(answers):
        votes = Counter(answer for _, answer in opinions)
        (most, count), *others = votes.most_common(2)
        tied = bool(others) and others[0][1] == count
        for by, answer in opinions:
            compared[by] += 1
            halves[by] += tied
            wrong[by] += not tied and answer != most
    return {by: (ERROR * PRIOR + wrong[by] + halves[by] / 2) / (PRIOR + compared[by]) for by in compared}


def _shared(answers: Sequence[Answer]) -> list[list[tuple[str, str | int]]]:
    """Return (person, answer) for every pair that at least two people answered; a person's first answer counts."""
    found: dict[frozenset[str], dict[str, str | int]] = defaultdict(dict)
    for answer in answers:
        if answer.kind == "pair" and answer.answer != SKIP:
            found[frozenset(answer.rows)].setdefault(answer.by, answer.answer)
    return [list(opinions.items()) for opinions in found.values() if len(opinions) > 1]
