"""Questions and their answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from metricforge.errors import InputError

ALIKE, UNLIKE, SKIP, NONE, FIRST, SECOND = "alike", "unlike", "skip", "none", "first", "second"
CHOICES = {"pair": (ALIKE, UNLIKE, SKIP), "triplet": (FIRST, SECOND, SKIP)}
"""The answers to a question of each kind; a line-up is answered by a number from 1, "none" or "skip"."""


@dataclass(frozen=True)
class Question:
    """A question about rows.

    Attributes
    ----------
    kind : {"pair", "lineup", "triplet"}
        "pair": are the two rows alike?  "lineup": which of the others is the first row like?  "triplet": is the first
        row more like the second or more like the third?
    rows : tuple of int
        Row numbers.
    why : str
        "explore", "consolidate", "again" (a second member of a group), "check" (before a group is opened), "random"
        (held out of learning), "overlap" (answered before by another person), "loose" (a pair that places no row),
        "triplet".
    p : float
        The probability of "alike" that the metric gives before the answer; of "first" for a triplet.
    opens : bool
        Whether the row opens a group if the answer is "unlike" or "none".
    joins : bool
        Whether the row joins the group if the answer is "alike".
    held_out : bool
        Whether the answer is kept out of learning, to score the metric.
    """

    kind: str
    rows: tuple[int, ...]
    why: str
    p: float = 0.5
    opens: bool = False
    joins: bool = False

    @property
    def held_out(self) -> bool:
        """Whether the answer is kept out of learning, to score the metric."""
        return self.why == "random"

    @property
    def id(self) -> str:
        """A name of the question: the same rows in the same roles have the same name."""
        return f"{self.kind}:{self.why}:{'-'.join(map(str, self.rows))}"

    def check(self, answer: Any) -> str | int:
        """Return the answer, or raise InputError with the possible ones."""
        if self.kind == "lineup":
            places = len(self.rows) - 1
            whole = isinstance(answer, int) and not isinstance(answer, bool)
            if answer in (NONE, SKIP) or (whole and 1 <= answer <= places):
                return answer  # type: ignore[no-any-return]
            raise InputError(f"answer must be 1 to {places}, 'none' or 'skip', got {answer!r}")
        if answer not in CHOICES[self.kind]:
            raise InputError(f"answer must be {', '.join(map(repr, CHOICES[self.kind]))}, got {answer!r}")
        return str(answer)
