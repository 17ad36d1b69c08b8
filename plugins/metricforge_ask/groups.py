"""The rule "groups": rows are compared with groups of rows that are known to be alike, one row at a time.

What is known is computed from the answers alone (`Placement.of`); the metric only decides what is asked next.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from metricforge.kernels import squared_euclidean
from metricforge.rows import Array

from .answers import Answer
from .questions import ALIKE, NONE, SKIP, UNLIKE, Question

ERROR = 0.1
"""The assumed share of wrong answers."""
CONFIDENT = 0.85
"""A row joins a group at one "alike" if its membership is at least so probable; otherwise a second member is shown."""
EXPLORED = 6
"""Exploration ends when this many rows in a row have opened no group."""
CHECKED_FROM = 8
"""From this many grouped rows on, two groups are asked about a second time before a group is opened."""
CHECKS = 2
NEAREST = 3
"""The members of a group that its distance from a row is the mean over."""
UNIFORM = 0.02
"""The weight of the uniform distribution in the probabilities of groups."""
NEGLIGIBLE = 0.02
"""Groups that together are less probable than this are not asked about, from `CHECKED_FROM` rows per group on."""
SHARPNESS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Temperatures τ that are tried, relative to the median distance to the nearest group."""
SKIPS = 3
"""After this many skips in a row another region is explored."""
SELECT = ("random", "uncertain")
"""Which rows are asked about once the groups are found."""
DRAWN = 200
"""Candidates among which the most uncertain row is looked for."""
LINEUP = 6
"""The most groups in a line-up."""


@dataclass
class Placing:
    """A row that is being placed by one person: what was answered about it so far."""

    row: int
    why: str
    yes: Counter[int] = field(default_factory=Counter)
    no: Counter[int] = field(default_factory=Counter)
    again: int | None = None
    checks: list[int] = field(default_factory=list)


@dataclass
class Placement:
    """Groups of rows, and the rows that are being placed, as they follow from the answers.

    Attributes
    ----------
    group : dict of row to group
    members : list of lists of rows
    placing : dict of person to `Placing`
    asked : set of pairs of rows, smaller number first
    similar, dissimilar : list of pairs
        The answers themselves, held-out ones excluded.
    held_out : list of (i, j, alike, p)
    placed : list of (row, why, opened, right)
        Rows in the order in which they were placed; ``right`` is whether the first group shown was the row's.
    skipped : dict of row to number of skips
    contradictions : list of pairs
        Pairs that were answered both ways as often.
    left : dict of pair to (row, group)
        The rows that contradictions took out of their groups.
    """

    group: dict[int, int] = field(default_factory=dict)
    members: list[list[int]] = field(default_factory=list)
    placing: dict[str, Placing] = field(default_factory=dict)
    asked: set[tuple[int, int]] = field(default_factory=set)
    similar: list[tuple[int, int]] = field(default_factory=list)
    dissimilar: list[tuple[int, int]] = field(default_factory=list)
    held_out: list[tuple[int, int, bool, float]] = field(default_factory=list)
    placed: list[tuple[int, str, bool, bool]] = field(default_factory=list)
    skipped: Counter[int] = field(default_factory=Counter)
    skips_in_a_row: int = 0
    contradictions: list[tuple[int, int]] = field(default_factory=list)
    votes: dict[tuple[int, int], Counter[bool]] = field(default_factory=lambda: defaultdict(Counter))
    left: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, answers: Sequence[Answer], row_of: dict[str, int]) -> Placement:
        """Replay answers; those about rows that are no longer there are passed over."""
        state = cls()
        for answer in answers:
            rows = [row_of.get(name) for name in answer.rows]
            if answer.kind in ("pair", "lineup") and None not in rows:
                state.learn(answer, [row for row in rows if row is not None])
        state._settle()
        return state

    # -- what an answer changes ----------------------------------------------------------------------------------

    def learn(self, answer: Answer, rows: list[int]) -> None:
        """Take one answer into account."""
        row, others = rows[0], rows[1:]
        for other in others:
            self.asked.add(ordered(row, other))
        if answer.answer == SKIP:
            self.skipped[row] += 1
            self.skips_in_a_row += 1
            self.placing.pop(answer.by, None)
            return
        self.skips_in_a_row = 0
        for other, alike in verdicts(answer, others):
            self._vote(ordered(row, other), alike)
            if answer.held_out:
                self.held_out.append((row, other, alike, answer.p))
            else:
                (self.similar if alike else self.dissimilar).append(ordered(row, other))
        if answer.held_out or answer.why in ("overlap", "loose"):
            return
        if not self.members:  # the first question makes the first group of the row that is shown second
            self._open(others[0])
        place = self.placing.get(answer.by)
        if place is None or place.row != row:
            place = self.placing[answer.by] = Placing(row, answer.why)
        if row in self.group:  # placed meanwhile by somebody else
            self.placing.pop(answer.by)
        elif answer.kind == "lineup":
            self._after_lineup(answer, place, others)
        else:
            self._after_pair(answer, place, others[0])

    def _vote(self, pair: tuple[int, int], alike: bool) -> None:
        """Count an answer about a pair: a tie takes the row that came later out of the group, a majority puts it back.

        The row is then asked about again, so this cannot wait for the last answer.
        """
        votes = self.votes[pair]
        votes[alike] += 1
        i, j = (self.group.get(row) for row in pair)
        if votes[True] == votes[False] and i is not None and i == j:
            row = max(pair, key=self.members[i].index)
            self.members[i].remove(row)
            del self.group[row]
            self.left[pair] = row, i
        elif votes[True] > votes[False] and pair in self.left:
            row, before = self.left.pop(pair)
            if row not in self.group:
                self.group[row] = before
                self.members[before].append(row)

    def _after_lineup(self, answer: Answer, place: Placing, others: list[int]) -> None:
        found = [self.group.get(other) for other in others]  # None: the answer that grouped the row was taken back
        if isinstance(answer.answer, int):
            chosen = found[answer.answer - 1]
            if chosen is not None:
                self._join(answer.by, place, chosen, right=not place.no and answer.answer == 1)
            return
        place.no.update(g for g in found if g is not None)
        if answer.opens:
            self._new(answer.by, place)

    def _after_pair(self, answer: Answer, place: Placing, other: int) -> None:
        found = self.group.get(other)
        if found is None:  # the member left its group by a contradiction, or the answer that grouped it was taken back
            return
        first = not place.no and not place.yes
        if answer.why == "check":
            place.checks.append(found)
        place.again = None
        if answer.answer == ALIKE:
            place.yes[found] += 1
            if answer.joins or place.yes[found] > max(1, place.no[found]):
                self._join(answer.by, place, found, right=first or (place.yes[found] > 1 and not place.no))
                return
            place.again = found
        else:
            place.no[found] += 1
        if answer.opens and answer.answer == UNLIKE:
            self._new(answer.by, place)

    def _join(self, by: str, place: Placing, found: int, *, right: bool) -> None:
        self.group[place.row] = found
        self.members[found].append(place.row)
        self.placed.append((place.row, place.why, False, right))
        self.placing.pop(by)

    def _new(self, by: str, place: Placing) -> None:
        self._open(place.row)
        self.placed.append((place.row, place.why, True, False))
        self.placing.pop(by)

    def _open(self, row: int) -> None:
        self.group[row] = len(self.members)
        self.members.append([row])

    def _settle(self) -> None:
        """Keep what most answers about a pair say; it is a contradiction if both ways were answered as often."""
        for (i, j), votes in self.votes.items():
            if len(votes) < 2:
                continue
            alike, unlike = votes[True], votes[False]
            kept = None if alike == unlike else alike > unlike
            self.similar = [p for p in self.similar if p != (i, j) or kept is True]
            self.dissimilar = [p for p in self.dissimilar if p != (i, j) or kept is False]
            if kept is None:
                self.contradictions.append((i, j))

    # -- what is known --------------------------------------------------------------------------------------------

    @property
    def exploring(self) -> bool:
        """Whether rows far from all groups are asked about."""
        last = [opened for _, _, opened, _ in self.placed[-EXPLORED:]]
        return len(last) < EXPLORED or any(last) or self.skips_in_a_row >= SKIPS


def ordered(i: int, j: int) -> tuple[int, int]:
    """Return a pair with the smaller number first."""
    return (i, j) if i < j else (j, i)


def verdicts(answer: Answer, others: list[int]) -> list[tuple[int, bool]]:
    """Return (row, alike) for every row that the answer compares with the first one."""
    if answer.kind == "pair":
        return [(others[0], answer.answer == ALIKE)]
    if answer.answer == NONE:
        return [(other, False) for other in others]
    return [(other, place == answer.answer) for place, other in enumerate(others, start=1)]


# ----------------------------------------------------------------------------------------------------------- questions


@dataclass(frozen=True, eq=False)
class View:
    """The rows that a question can be about, as the current metric embeds them.

    Attributes
    ----------
    rows : (m,) int array
        Row numbers: grouped rows and candidates.
    E : (m, r) array
        Their embedding.
    """

    rows: Array
    E: Array

    def place(self) -> dict[int, int]:
        """Return the position of every row."""
        return {int(row): position for position, row in enumerate(self.rows)}


@dataclass(frozen=True, eq=False)
class Nearness:
    """Distances from grouped rows and candidates to groups, and what follows from them.

    Attributes
    ----------
    tau : float
        The temperature of the probabilities of groups.
    error : float
        The share of wrong answers of the person who is asked.
    """

    view: View
    state: Placement
    tau: float
    error: float
    _position: dict[int, int]

    @classmethod
    def of(cls, view: View, state: Placement, error: float = ERROR) -> Nearness:
        """Fit the temperature to the grouped rows, leaving each out in turn."""
        position = view.place()
        return cls(view, state, _temperature(view, state, position), error, position)

    def probabilities(self, row: int, place: Placing | None) -> Array:
        """Return the probability of every group to be the row's, among the groups that there are."""
        p = _softmax(_to_groups(self.view, self.state, self._position, [row])[0], self.tau)
        odds = self.error / (1 - self.error)
        if place is not None:
            for g, count in place.no.items():
                p[g] *= odds**count
            for g, count in place.yes.items():
                p[g] /= odds**count
        return np.asarray(p / p.sum())

    def open_members(self, row: int, group: int, besides: int | None = None) -> int:
        """Return how many members of a group a row was not compared with yet."""
        members = self.state.members[group]
        return sum(m != besides and ordered(row, m) not in self.state.asked for m in members)

    def member(self, row: int, group: int) -> int | None:
        """Return the nearest member of a group that the row was not compared with yet; None if there is none."""
        open_ = [m for m in self.state.members[group] if ordered(row, m) not in self.state.asked]
        if not open_:
            return None
        x = self.view.E[self._position[row]]
        d = ((self.view.E[[self._position[m] for m in open_]] - x) ** 2).sum(axis=1)
        return open_[int(d.argmin())]

    def most_uncertain(self, candidates: Array) -> int:
        """Return the candidate with the largest entropy of its group for each question that placing it takes."""
        p = _softmax(_to_groups(self.view, self.state, self._position, candidates.tolist()), self.tau)
        entropy = -(p * np.log(p)).sum(axis=1)
        questions = -np.sort(-p, axis=1) @ np.arange(1, p.shape[1] + 1)
        return int(candidates[(entropy / questions).argmax()])

    def farthest(self, candidates: Array) -> int:
        """Return the candidate that is farthest from the grouped rows."""
        at = [self._position[int(c)] for c in candidates]
        known = [self._position[row] for row in self.state.group]
        return int(candidates[squared_euclidean(self.view.E[at], self.view.E[known]).min(axis=1).argmax()])


def ask(
    nearness: Nearness,
    candidates: Array,
    by: str,
    rng: np.random.Generator,
    *,
    lineup: bool = False,
    select: str = "random",
) -> Question | None:
    """Return the next question about groups; None if every candidate was compared with all it can be."""
    state = nearness.state
    place = state.placing.get(by)
    if place is not None and place.row in nearness._position:
        found = _about(nearness, place, lineup)
        if found is not None:
            return found
    taken = {p.row for p in state.placing.values()}
    free = np.asarray([c for c in candidates if int(c) not in taken and not state.skipped[int(c)]], dtype=np.int64)
    if not len(free):  # only rows that were skipped are left
        free = np.asarray([c for c in candidates if int(c) not in taken], dtype=np.int64)
    exploring = state.exploring
    for _ in range(min(len(free), 20)):
        if exploring:
            row = nearness.farthest(free)
        elif select == "uncertain":
            row = nearness.most_uncertain(rng.permutation(free)[:DRAWN])
        else:
            row = int(free[rng.integers(len(free))])
        found = _about(nearness, Placing(row, "explore" if exploring else "consolidate"), lineup)
        if found is not None:
            return found
        free = free[free != row]
    return None


def _about(nearness: Nearness, place: Placing, lineup: bool) -> Question | None:
    """Return the next question about a row that is being placed; None if nothing is left to ask."""
    state, row = nearness.state, place.row
    p = nearness.probabilities(row, place)
    if place.again is not None and (found := _pair(nearness, place, p, place.again, "again", joins=True)) is not None:
        return found
    if lineup and len(state.members) >= 3 and (groups := _open_groups(nearness, place, p, all_of_them=True)):
        part = groups[:LINEUP]
        shown = (nearness.member(row, g) for g in part)
        rows = (row, *(member for member in shown if member is not None))
        return Question("lineup", rows, place.why, float(p[part[0]]), opens=len(groups) <= LINEUP, joins=True)
    if groups := _open_groups(nearness, place, p):
        g = groups[0]
        right, wrong = p[g] * (1 - nearness.error), (1 - p[g]) * nearness.error
        sure = right / (right + wrong) >= CONFIDENT
        return _pair(nearness, place, p, g, place.why, joins=bool(sure))
    checks = _checks(nearness, place, p)
    return _pair(nearness, place, p, checks[0], "check", joins=False) if checks else None


def _pair(nearness: Nearness, place: Placing, p: Array, g: int, why: str, *, joins: bool) -> Question | None:
    """Return the question whether a row is like the nearest member of a group."""
    member = nearness.member(place.row, g)
    if member is None:
        return None
    others = [h for h in _open_groups(nearness, place, p) if h != g]
    done = [*place.checks, *([g] if why == "check" else [])]
    more = bool(others or _checks(nearness, Placing(place.row, why, checks=done), p, besides=member))
    alone = nearness.open_members(place.row, g) == 1
    return Question("pair", (place.row, member), why, float(p[g]), opens=not more, joins=joins or alone)


def _open_groups(nearness: Nearness, place: Placing, p: Array, *, all_of_them: bool = False) -> list[int]:
    """Return the groups that a row was not compared with yet, the most probable first.

    Once groups are well known, those that together are improbable are left out, unless ``all_of_them`` are wanted.
    """
    state = nearness.state
    found = [g for g in np.argsort(-p, kind="stable").tolist() if not place.no[g] and not place.yes[g]]
    found = [g for g in found if nearness.open_members(place.row, g)]
    if found and not all_of_them and len(state.group) >= CHECKED_FROM * len(state.members):
        beyond = p[found].sum() - np.cumsum(p[found])  # of the groups after each one
        found = found[: 1 + int(np.count_nonzero(beyond[:-1] > NEGLIGIBLE))]
    return found


def _checks(nearness: Nearness, place: Placing, p: Array, besides: int | None = None) -> list[int]:
    """Return the groups of which a second member is shown before a row opens a group, the most probable first."""
    if len(nearness.state.group) < CHECKED_FROM or len(place.checks) >= CHECKS:
        return []
    found = [g for g in np.argsort(-p, kind="stable").tolist() if g not in place.checks]
    return [g for g in found if nearness.open_members(place.row, g, besides)]


def _temperature(view: View, state: Placement, position: dict[int, int]) -> float:
    """Return the temperature with the largest likelihood of the grouped rows, each left out in turn."""
    known = [row for row in state.group if len(state.members[state.group[row]]) > 1][:400]
    if len(known) < 2 or len(state.members) < 2:
        return 1.0
    own = np.asarray([state.group[row] for row in known])
    S = _to_groups(view, state, position, known)
    scale = float(np.median(S[np.arange(len(own)), own])) or 1.0
    likelihood = [np.log(_softmax(S, factor * scale)[np.arange(len(own)), own]).sum() for factor in SHARPNESS]
    return SHARPNESS[int(np.argmax(likelihood))] * scale


def _to_groups(view: View, state: Placement, position: dict[int, int], rows: Sequence[int]) -> Array:
    """Return s(x, g), (rows, groups): the mean of the `NEAREST` smallest squared distances to other members of g."""
    at = np.asarray([position[row] for row in rows])
    S = np.full((len(at), len(state.members)), np.inf)
    for g, members in enumerate(state.members):
        if not members:
            continue
        inside = np.asarray([position[m] for m in members])
        D = squared_euclidean(view.E[at], view.E[inside])
        D[at[:, None] == inside[None]] = np.inf
        near = np.sort(D, axis=1)[:, :NEAREST]
        count = np.isfinite(near).sum(axis=1)
        total = np.where(np.isfinite(near), near, 0.0).sum(axis=1)
        S[:, g] = np.where(count > 0, total / np.maximum(count, 1), np.inf)
    return S


def _softmax(s: Array, tau: float) -> Array:
    """Return exp(−s/τ) normalised over groups (the last axis), mixed with the uniform distribution."""
    low = s.min(axis=-1, keepdims=True)
    w = np.exp(-(s - np.where(np.isfinite(low), low, 0.0)) / tau)
    w = w / w.sum(axis=-1, keepdims=True)
    return np.asarray((1 - UNIFORM) * w + UNIFORM / s.shape[-1])
