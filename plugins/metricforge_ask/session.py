"""A session: which question comes next, what the answers imply, and how well the metric predicts held-out answers."""

from __future__ import annotations

import hashlib
import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import metricforge as mf
from metricforge.checks import one_of, whole_number
from metricforge.constraints import Pairs, Triplets
from metricforge.errors import InputError

from . import groups, triplets
from .answers import Answer, Header, Log, entry_of
from .constraint import hints_of, pairs_of, rows_by_id
from .groups import Nearness, Placement, View
from .questions import ALIKE, SKIP, Question

Array = NDArray[Any]

RULES = ("groups", "triplets", "random")
POOL = 1000
"""Rows that a question can be about besides the grouped ones; more are drawn as these are placed."""
WIDEST = 256
"""The most features in which the metric of the loop learns; wider rows are represented over landmarks."""
HELD_OUT = 0.1
"""The share of questions about random rows whose answers are kept out of learning."""
OVERLAP = 0.05
"""The share of questions that repeat what another person answered."""
REFIT = 5
"""The metric is learned anew after this many answers."""
LOOK_BACK = 40
"""The number of questions that the advice to stop compares."""
FITTED = 2000
"""The most pairs of a kind from which the metric of the loop learns."""


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
    agreement : float or None
        Cohen's κ of the pairs that two people answered; None if there are fewer than five.
    enough : str
        Advice to stop, or "".
    """

    answers: int
    placed: int
    groups: tuple[int, ...]
    held_out: int
    foretold: float | None
    interval: tuple[float, float]
    contradictions: int
    people: dict[str, int]
    agreement: float | None
    enough: str


class Session:
    """Chooses questions about the rows of X, and keeps the answers in a file.

    Parameters
    ----------
    X : rows
        As for `metricforge.learn`, in memory.
    path : path, optional
        The file of answers.  An existing one is continued; without a path answers stay in memory.
    rule : {"groups", "triplets", "random"}
        "groups" compares one row after the other with groups of rows that are alike.  "triplets" asks which of two rows
        a third one is more like.  "random" asks about random pairs, as a control.
    ids : sequence, optional
        A name per row, written into the file in place of row numbers.
    id_column : str, optional
        The column that the ids come from; with it a file stays valid when rows are added or sorted.
    by : str
        The person who answers.
    lineup : bool
        Whether the rule "groups" shows up to six groups at once, from three groups on.
    held_out : float in [0, 0.5]
        The share of random questions whose answers only score the metric.
    kernel : Kernel, optional
        The kernel to start from; default: linear on columns divided by their range, or 3-mers of strings.
    seed : int
        The same seed and the same answers give the same questions.

    Examples
    --------
    >>> import metricforge as mf
    >>> X, y = mf.datasets.load("wine")
    >>> session = mf.ask.Session(X)
    >>> for _ in range(40):
    ...     question = session.next()
    ...     i, j = question.rows
    ...     progress = session.answer(question, "alike" if y[i] == y[j] else "unlike")
    >>> metric = session.metric()
    """

    def __init__(
        self,
        X: Any,
        path: str | os.PathLike[str] | None = None,
        *,
        rule: str = "groups",
        ids: Sequence[Any] | None = None,
        id_column: str | None = None,
        columns: Sequence[str] = (),
        by: str = "",
        lineup: bool = False,
        held_out: float = HELD_OUT,
        kernel: mf.Kernel | str | None = None,
        seed: int = 0,
    ) -> None:
        one_of(rule, "rule", RULES)
        self.rule, self.by, self.lineup = rule, str(by), bool(lineup)
        if not 0 <= held_out <= 0.5:
            raise InputError(f"held_out must be between 0 and 0.5, got {held_out!r}")
        self.held_out = float(held_out)
        self.seed = whole_number(seed, "seed", least=0)
        self._features = _Features(X, kernel, self.seed)
        self.X, self.n = self._features.rows, self._features.n
        if self.n < 4:
            raise InputError(f"X has {self.n} rows; questions need at least 4")
        if ids is not None and len(ids) != self.n:
            raise InputError(f"ids has {len(ids)} names for the {self.n} rows of X; give one each")
        self._ids = [str(i) for i in (range(self.n) if ids is None else ids)]
        self._row_of = rows_by_id(self._ids, id_column or "ids")
        header = Header(self.n, tuple(map(str, columns)), _digest(self.X), id_column)
        self._log = Log.open(path, header)
        self.notes: list[str] = list(self._log.notes)
        self._order = np.random.default_rng(self.seed).permutation(self.n)
        self._shown_at = time.monotonic()
        self._fitted_at = (-1, -1)
        self._learned: Any = None
        self._load()

    # -- questions and answers -----------------------------------------------------------------------------------

    def next(self) -> Question | None:
        """Return the next question, or None if nothing is left to ask.  The same state gives the same question."""
        self._log.refresh()
        self._load()
        rng = np.random.default_rng([self.seed, len(self._answers)])
        self._shown_at = time.monotonic()
        repeated = self._overlap(rng)
        if repeated is not None:
            return repeated
        if len(self._answers) >= 4 and rng.random() < self.held_out:
            return self._random(rng, "random")
        if self.rule == "random":
            return self._random(rng, "loose")
        return self._triplet(rng) if self.rule == "triplets" else self._group_question(rng)

    def answer(self, question: Question, answer: str | int) -> Progress:
        """Keep an answer and return the progress.

        Parameters
        ----------
        question : Question
            As `next` returned it.
        answer : str or int
            "alike", "unlike" or "skip" for a pair; the place (from 1), "none" or "skip" for a line-up; "first",
            "second" or "skip" for a triplet.
        """
        answer = question.check(answer)
        names = [self._ids[row] for row in question.rows]
        spent = int(1000 * (time.monotonic() - self._shown_at))
        self._log.append(
            entry_of(
                question.kind,
                names,
                answer,
                by=self.by,
                why=question.why,
                p=question.p,
                opens=question.opens,
                joins=question.joins,
                ms=spent,
            )
        )
        self._load()
        return self.progress()

    def undo(self) -> Answer | None:
        """Take back the last answer of this person that was not taken back yet; returns it, or None."""
        self._log.refresh()
        own = [answer for answer in self._log.answers() if answer.by == self.by]
        if not own:
            return None
        self._log.append({"undo": own[-1].n, "by": self.by, "t": round(time.time(), 3)})
        self._load()
        return own[-1]

    # -- results ---------------------------------------------------------------------------------------------------

    def hints(self) -> Pairs | Triplets:
        """Return what the answers imply about the rows of X: pairs, or triplets."""
        return hints_of(self._answers, self._row_of, self.n, self.seed)

    def metric(self, **options: Any) -> mf.Metric:
        """Learn a metric from all rows and the hints: ``mf.learn(X, session.hints(), **options)``."""
        return mf.learn(self.X, self.hints(), **{"seed": self.seed, **options})

    def groups(self) -> Array:
        """Return the group of every row, -1 for rows that are in none."""
        found = np.full(self.n, -1)
        for row, group in self._state.group.items():
            found[row] = group
        return found

    def progress(self) -> Progress:
        """Return what is known so far, from this person's answers and from those of others in the same file."""
        self._log.refresh()
        self._load()
        right, total = self._foretold()
        people = Counter(answer.by for answer in self._answers)
        return Progress(
            answers=len(self._answers),
            placed=len(self._state.group),
            groups=tuple(len(members) for members in self._state.members if members),
            held_out=total,
            foretold=right / total if total else None,
            interval=wilson(right, total),
            contradictions=len(self._state.contradictions),
            people=dict(people),
            agreement=self._agreement(),
            enough=self._enough(),
        )

    def export(self, path: str | os.PathLike[str]) -> None:
        """Write the hints as CSV: for ``learn --pairs``, or ``learn --triplets``."""
        from metricforge.files import atomic

        found = self.hints()
        if isinstance(found, Triplets):
            lines = ["i,j,k", *(",".join(map(str, row)) for row in found.triples.tolist())]
        else:
            lines = ["i,j,similar"]
            lines += [f"{i},{j},1" for i, j in found.similar.tolist()]
            lines += [f"{i},{j},0" for i, j in found.dissimilar.tolist()]
        atomic.write(Path(path), ("\n".join(lines) + "\n").encode())

    # -- state -----------------------------------------------------------------------------------------------------

    def _load(self) -> None:
        """Bring answers and groups up to date with the file."""
        self._answers = self._log.answers()
        self._state = Placement.of(self._answers, self._row_of)

    def _candidates(self) -> Array:
        """Return at most `POOL` rows that are in no group, in a fixed random order."""
        free: list[int] = []
        for row in self._order:
            if int(row) not in self._state.group:
                free.append(int(row))
                if len(free) == POOL:
                    break
        return np.asarray(free, dtype=np.int64)

    def _view(self, candidates: Array) -> View:
        """Embed grouped rows and candidates with the metric of the loop, which is learned every `REFIT` answers."""
        rows = np.unique(np.concatenate([candidates, np.fromiter(self._state.group, dtype=np.int64)]))
        F, learned = self._features(rows), self._loop()
        return View(rows, F if learned is None else learned.transform(F))

    def _loop(self) -> Any:
        """Return the metric of the loop (for triplets, the committee): a function of the answers, not of the session.

        It is learned from the first answers up to a multiple of `REFIT`.
        """
        count = len(self._answers) - len(self._answers) % REFIT
        seen = self._answers[count - 1].n if count else 0
        if self._fitted_at != (count, seen):
            fit = self._fit_triplets if self.rule == "triplets" else self._fit
            self._learned, self._fitted_at = fit(self._answers[:count]), (count, seen)
        return self._learned

    def _fit(self, answers: Sequence[Answer]) -> mf.Metric | None:
        """Return the metric of the loop on features, or None before both kinds of pairs are known."""
        state = Placement.of(answers, self._row_of)
        pairs = pairs_of(state, self.n, self.seed)
        if not len(pairs.similar) or not len(pairs.dissimilar):
            return None
        used = np.concatenate([pairs.similar.ravel(), pairs.dissimilar.ravel()])
        rows = np.union1d(self._order[:POOL], used)
        F = self._features(rows)
        rng = np.random.default_rng(self.seed)
        similar, dissimilar = (
            part[rng.choice(len(part), min(len(part), FITTED), replace=False)]
            for part in (pairs.similar, pairs.dissimilar)
        )
        position = np.full(self.n, -1)
        position[rows] = np.arange(len(rows))
        inside = Pairs(_inside(position[similar]), _inside(position[dissimilar]), n=len(rows))
        return mf.learn(F, inside, method="llr", kernel="linear", seed=self.seed)

    def _group_question(self, rng: np.random.Generator) -> Question | None:
        candidates = self._candidates()
        if not self._state.members:
            i, j = (int(row) for row in self._order[:2])
            if groups.ordered(i, j) in self._state.asked:  # skipped
                i, j = (int(row) for row in rng.choice(self.n, 2, replace=False))
            return Question("pair", (i, j), "explore", opens=True, joins=True)
        if not len(candidates):
            return None
        nearness = Nearness.of(self._view(candidates), self._state)
        return groups.ask(nearness, candidates, self.by, rng, self.lineup)

    def _triplet(self, rng: np.random.Generator) -> Question:
        rows = np.sort(self._order[:POOL])
        known = triplets.triplets_of(self._answers, self._row_of)
        used = np.unique(np.asarray(known, dtype=np.int64).ravel()) if known else np.empty(0, dtype=np.int64)
        rows = np.union1d(rows, used)
        E = self._features(rows) @ self._axes
        asked = {(i, *sorted((j, k))) for i, j, k in known}
        return triplets.ask(View(rows, E), self._loop(), asked, rng)

    @cached_property
    def _axes(self) -> Array:
        """The principal axes of the features in which the committee learns."""
        F = self._features(np.sort(self._order[:POOL]))
        F = F - F.mean(axis=0)
        return np.asarray(np.linalg.eigh(F.T @ F)[1][:, ::-1][:, : triplets.AXES])

    def _fit_triplets(self, answers: Sequence[Answer]) -> list[Array]:
        """Return the factors of the committee; none before there are some answers."""
        known = triplets.triplets_of(answers, self._row_of)
        if len(known) < triplets.RANDOM_FIRST:
            return []
        rows, inside = np.unique(np.asarray(known), return_inverse=True)
        E = self._features(rows) @ self._axes
        return triplets.committee(E, inside.reshape(-1, 3), np.random.default_rng(self.seed))

    def _random(self, rng: np.random.Generator, why: str) -> Question:
        if self.rule == "triplets":
            rows = np.sort(self._order[:POOL])
            return triplets.ask(View(rows, np.zeros((len(rows), 1))), [], set(), rng, "random")
        for _ in range(100):
            i, j = (int(row) for row in rng.choice(self.n, 2, replace=False))
            if groups.ordered(i, j) not in self._state.asked:
                break
        return Question("pair", (i, j), why)

    def _overlap(self, rng: np.random.Generator) -> Question | None:
        """Return a question that another person answered, now and then."""
        if rng.random() >= OVERLAP:
            return None
        own = {frozenset(a.rows) for a in self._answers if a.by == self.by}
        others = [
            a
            for a in self._answers
            if a.by != self.by and a.kind == "pair" and a.answer != SKIP and frozenset(a.rows) not in own
        ]
        others = [a for a in others if all(name in self._row_of for name in a.rows)]
        if not others:
            return None
        chosen = others[int(rng.integers(len(others)))]
        i, j = (self._row_of[name] for name in chosen.rows)
        return Question("pair", (i, j), "overlap")

    # -- scores ----------------------------------------------------------------------------------------------------

    def _foretold(self) -> tuple[int, int]:
        """Return how many held-out answers the metric of the loop predicts, and how many there are."""
        if self.rule == "triplets":
            return self._foretold_triplets()
        held = self._state.held_out
        if not held or len(self._state.members) < 2:
            return 0, 0
        rows = np.unique(np.asarray([row for i, j, _, _ in held for row in (i, j)] + list(self._state.group)))
        F = self._features(rows)
        learned = self._loop()
        E = F if learned is None else learned.transform(F)
        position = {int(row): place for place, row in enumerate(rows)}
        threshold = self._threshold(E, position)
        right = 0
        for i, j, alike, _ in held:
            near = ((E[position[i]] - E[position[j]]) ** 2).sum() < threshold
            right += bool(near) is alike
        return right, len(held)

    def _threshold(self, E: Array, position: dict[int, int]) -> float:
        """Return the squared distance that separates pairs inside groups from pairs between groups best."""
        rows = list(self._state.group)[-300:]
        at = [position[row] for row in rows]
        group = np.asarray([self._state.group[row] for row in rows])
        i, j = np.triu_indices(len(rows), 1)
        d = ((E[at][i] - E[at][j]) ** 2).sum(axis=1)
        alike = group[i] == group[j]
        order = np.argsort(d, kind="stable")
        hits = np.concatenate([[0], np.cumsum(np.where(alike[order], 1, -1))])  # alike below minus unlike below
        best = int(hits.argmax())
        if best == 0:
            return float(d[order[0]]) if len(d) else 0.0
        above = d[order[best]] if best < len(d) else d[order[best - 1]]
        return float((d[order[best - 1]] + above) / 2)

    def _foretold_triplets(self) -> tuple[int, int]:
        held = triplets.triplets_of(self._answers, self._row_of, held_out=True)
        known = triplets.triplets_of(self._answers, self._row_of)
        if not held or len(known) < triplets.RANDOM_FIRST:
            return 0, 0
        rows, inside = np.unique(np.asarray([*held, *known]), return_inverse=True)
        inside = inside.reshape(-1, 3)
        E = self._features(rows) @ self._axes
        Z = E @ triplets.learn_factor(E, inside[len(held) :]).T
        i, j, k = inside[: len(held)].T
        near, far = ((Z[i] - Z[other]) ** 2 for other in (j, k))
        return int(np.count_nonzero(near.sum(axis=1) < far.sum(axis=1))), len(held)

    def _agreement(self) -> float | None:
        """Return Cohen's κ over pairs that two people answered; None if there are fewer than five."""
        first: dict[frozenset[str], Answer] = {}
        both: list[tuple[bool, bool]] = []
        for answer in self._answers:
            if answer.kind != "pair" or answer.answer == SKIP:
                continue
            before = first.setdefault(frozenset(answer.rows), answer)
            if before.by != answer.by:
                both.append((before.answer == ALIKE, answer.answer == ALIKE))
        if len(both) < 5:
            return None
        a, b = np.asarray(both, dtype=float).T
        chance = a.mean() * b.mean() + (1 - a.mean()) * (1 - b.mean())
        return 1.0 if chance == 1 else float(((a == b).mean() - chance) / (1 - chance))

    def _enough(self) -> str:
        """Return the advice to stop, or ""."""
        shown = [right for _, why, opened, right in self._state.placed if why == "consolidate" and not opened]
        opened = [new for _, _, new, _ in self._state.placed[-30:]]
        if self.rule != "groups" or len(shown) < 2 * LOOK_BACK or any(opened):
            return ""
        last, before = np.mean(shown[-LOOK_BACK:]), np.mean(shown[-2 * LOOK_BACK : -LOOK_BACK])
        if abs(last - before) > 0.05:
            return ""
        return (
            f"the first guess was right for {100 * last:.0f} % of the last {LOOK_BACK} rows, as for the {LOOK_BACK} "
            "before, and no new group has come up: more answers will hardly change the metric"
        )


class _Features:
    """Features of rows under the start kernel: computed for the rows that are asked about only, and kept."""

    def __init__(self, X: Any, kernel: mf.Kernel | str | None, seed: int) -> None:
        from metricforge.learning import find_kernel
        from metricforge.space import represent

        if kernel is None:
            strings = isinstance(X, list | tuple | np.ndarray) and len(X) and isinstance(X[0], str)
            start = (
                mf.kernels.Spectrum(3).normalized()
                if strings
                else mf.kernels.Standardized(mf.kernels.Linear(), by="range")
            )
        else:
            start = find_kernel(kernel)
        self.rows = start.check(X, "X")
        self.n = len(self.rows) if start.takes != "vectors" else self.rows.shape[0]
        resolved = start.resolve(self.rows, seed=seed)
        wide = start.takes != "vectors" or self.rows.shape[1] > WIDEST
        space = represent(resolved, self.rows, min(WIDEST, self.n) if wide else "auto", seed=seed)
        self._map = space.map
        self._kept: dict[int, Array] = {}

    def __call__(self, rows: Array) -> Array:
        """Return the (len(rows), m) features of some rows."""
        new = [row for row in rows.tolist() if row not in self._kept]
        if new:
            F = self._map.of_rows(self.rows, np.asarray(new, dtype=np.int64))
            self._kept.update(zip(new, F, strict=True))
        return np.stack([self._kept[row] for row in rows.tolist()])


def wilson(right: int, total: int, z: float = 1.96) -> tuple[float, float]:
    """Return the Wilson interval of a share."""
    if total == 0:
        return 0.0, 1.0
    p, zz = right / total, z * z
    centre = (p + zz / (2 * total)) / (1 + zz / total)
    half = z / (1 + zz / total) * float(np.sqrt(p * (1 - p) / total + zz / (4 * total * total)))
    return max(0.0, centre - half), min(1.0, centre + half)


def _inside(pairs: Array) -> Array:
    """Return the pairs whose rows are both there."""
    return np.asarray(pairs[(pairs >= 0).all(axis=1)])


def _digest(X: Any) -> str:
    """Return a digest of the rows, by which a file recognises its data."""
    if hasattr(X, "tocsr"):
        parts = [np.asarray(X.shape).tobytes(), X.indptr.tobytes(), X.indices.tobytes(), X.data.tobytes()]
    elif isinstance(X, np.ndarray) and X.dtype != object:
        parts = [repr(X.shape).encode(), np.ascontiguousarray(X).tobytes()]
    else:
        parts = ["\0".join(map(str, X)).encode()]
    found = hashlib.sha256()
    for part in parts:
        found.update(part)
    return found.hexdigest()
