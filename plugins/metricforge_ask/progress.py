"""What a session knows after an answer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """What a session knows.

    Attributes
    ----------
    answers : int
        Answers that were not taken back, skips included.
    placed : int
        Rows in groups.
    groups : tuple of int
        The number of rows in each group.
    names : tuple of str
        The name of each group, "" for one that nobody named.
    exemplars : tuple of int
        The first row of each group.
    held_out : int
        Held-out answers.
    foretold : float or None
        The share of held-out answers that the metric predicts; None without held-out answers.
    interval : (float, float)
        Wilson interval of ``foretold``, 95 %.
    contradictions : int
        Pairs that were answered both ways as often.
    people : dict of str to int
        Answers per person.
    errors : dict of str to float
        The estimated share of wrong answers of each person who answered what somebody else did.
    agreement : float or None
        Cohen's κ of the pairs that two people answered; None if there are fewer than five.
    enough : str
        Advice to stop, or "".
    """

    answers: int
    placed: int
    groups: tuple[int, ...]
    names: tuple[str, ...]
    exemplars: tuple[int, ...]
    held_out: int
    foretold: float | None
    interval: tuple[float, float]
    contradictions: int
    people: dict[str, int]
    errors: dict[str, float]
    agreement: float | None
    enough: str
