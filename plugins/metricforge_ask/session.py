"""A session: which question comes next, what the answers imply, and how well the metric predicts held-out answers."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

import metricforge as mf
from metricforge.constraints import Pairs, Triplets
from metricforge.errors import InputError
from metricforge.rows import Array
from metricforge.validation import number, one_of, shown, whole_number

from . import groups, people, scores, triplets
from .answers import Answer, Header, Log, entry_of, name_entry
from .constraint import hints_of, pairs_of, rows_by_id
from .features import Features, digest
from .groups import Nearness, Placement, View
from .progress import Progress
from .questions import SKIP, Question

RULES = ("groups", "triplets", "random")
POOL = 1000
"""Rows that a question can be about besides the grouped ones; more are drawn as these are placed."""
HELD_OUT = 0.1
"""The share of questions about random rows whose answers are kept out of learning."""
OVERLAP = 0.05
"""The share of questions that repeat what another person answered."""
REFIT = 5
"""The metric is learned anew after this many answers."""
LONGEST_NAME = 80
"""The most characters of the name of a group."""
FITTED = 2000
"""The most pairs of a kind from which the metric of the loop learns."""


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
    select : {"random", "uncertain"}
        The rows that the rule "groups" asks about once it has found the groups: random ones, which make the share of
        right first guesses an honest figure, or those whose group is least certain for the questions that it takes.
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
        select: str = "random",
        held_out: float = HELD_OUT,
        kernel: mf.Kernel | str | None = None,
        seed: int = 0,
    ) -> None:
        one_of(rule, "rule", RULES)
        self.rule, self.by, self.lineup = rule, str(by), bool(lineup)
        self.select = one_of(select, "select", groups.SELECT)
        self.held_out = number(held_out, "held_out", least=0, most=0.5)
        self.seed = whole_number(seed, "seed", least=0)
        self._features = Features(X, kernel, self.seed)
        self.X, self.n = self._features.rows, self._features.n
        if self.n < 4:
            raise InputError(f"X has {self.n} rows; questions need at least 4")
        ids, named = _listed(ids, "ids"), _listed(columns, "columns")
        if ids is not None and len(ids) != self.n:
            raise InputError(f"ids has {len(ids)} names for the {self.n} rows of X; give one each")
        self._ids = [str(i) for i in (range(self.n) if ids is None else ids)]
        self._row_of = rows_by_id(self._ids, id_column or "ids")
        header = Header(self.n, tuple(map(str, named or ())), digest(self.X), id_column)
        self._log = Log.open(path, header)
        self.notes: list[str] = list(self._log.notes)
        self._order = np.random.default_rng(self.seed).permutation(self.n)
        self._shown_at = time.monotonic()
        self._fits: dict[tuple[int, int], Any] = {}
        self._loaded = -1
        self._load()

    @property
    def folder(self) -> Path | None:
        """The folder of the file of answers; None without a file."""
        return None if self._log.path is None else self._log.path.parent

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
        members = [rows for rows in self._state.members if rows]
        return Progress(
            answers=len(self._answers),
            placed=len(self._state.group),
            groups=tuple(len(rows) for rows in members),
            names=tuple(self._names()[g] for g, rows in enumerate(self._state.members) if rows),
            exemplars=tuple(rows[0] for rows in members),
            held_out=total,
            foretold=right / total if total else None,
            interval=scores.wilson(right, total),
            contradictions=len(self._state.contradictions),
            people=dict(Counter(answer.by for answer in self._answers)),
            errors=people.error_rates(self._answers),
            agreement=people.agreement(self._answers),
            enough=self._enough(),
        )

    def contradictions(self) -> list[tuple[str, str]]:
        """Return the ids of the pairs that were answered both ways as often; they are in no hint."""
        return [(self._ids[i], self._ids[j]) for i, j in self._state.contradictions]

    def name_group(self, row: int, name: str) -> None:
        """Give the group of a row a name; the last one given counts, and "" takes it away."""
        if whole_number(row, "row", least=0) not in self._state.group:
            raise InputError(f"row {row} is in no group yet, so its group cannot be named")
        if not isinstance(name, str) or len(name) > LONGEST_NAME:
            raise InputError(f"name must be a text of at most {LONGEST_NAME} characters, got {name!r:.100}")
        self._log.append(name_entry(self._ids[row], name.strip(), by=self.by))
        self._load()

    def export(self, path: str | os.PathLike[str], what: str = "hints") -> None:
        """Write what is known as CSV.

        Parameters
        ----------
        path : path
        what : {"hints", "groups"}
            "hints": pairs for ``learn --pairs``, or triplets for ``learn --triplets``.  "groups": one line per row with
            the name or number of its group, empty for none, for ``learn --groups`` or ``learn --label``.
        """
        from metricforge.files import atomic

        found = self.hints() if one_of(what, "what", ("hints", "groups")) == "hints" else None
        if found is None:
            lines = ["group", *map(_quoted, self._group_texts())]
        elif isinstance(found, Triplets):
            lines = ["i,j,k", *(",".join(map(str, row)) for row in found.triples.tolist())]
        else:
            lines = ["i,j,similar"]
            lines += [f"{i},{j},1" for i, j in found.similar.tolist()]
            lines += [f"{i},{j},0" for i, j in found.dissimilar.tolist()]
        atomic.write(Path(path), ("\n".join(lines) + "\n").encode())

    def _group_texts(self) -> list[str]:
        """Return the name or number of each row's group, "" for none."""
        names = [name or f"group {g + 1}" for g, name in enumerate(self._names())]
        return [names[g] if g >= 0 else "" for g in self.groups()]

    def _names(self) -> list[str]:
        """Return the name of every group, "" where there is none: the last one given to a row that is in it."""
        found = [""] * len(self._state.members)
        for name_of, name in self._log.names():
            group = self._state.group.get(self._row_of.get(name_of, -1))
            if group is not None:
                found[group] = name
        return found

    # -- state -----------------------------------------------------------------------------------------------------

    def _load(self) -> None:
        """Bring answers and groups up to date with the lines of the file, which only grows."""
        if len(self._log.entries) != self._loaded:
            self._answers = self._log.answers()
            self._state = Placement.of(self._answers, self._row_of)
            self._loaded = len(self._log.entries)

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
        return View(rows, self._embedded(rows))

    def _embedded(self, rows: Array) -> Array:
        """Return the embedding of rows in the metric of the loop; before there is one, their features."""
        F, learned = self._features(rows), self._loop()
        return F if learned is None else np.asarray(learned.transform(F))

    def _loop(self) -> Any:
        """Return the metric of the loop (for triplets, the committee): a function of the answers, not of the session.

        It is learned from the first answers up to a multiple of `REFIT`.
        """
        return self._fitted(len(self._answers) - len(self._answers) % REFIT)

    def _fitted(self, count: int) -> Any:
        """Return what was learned from the first answers; the last few fits are kept."""
        key = (count, self._answers[count - 1].n if count else 0)
        if key not in self._fits:
            fit = self._fit_triplets if self.rule == "triplets" else self._fit
            self._fits[key] = fit(self._answers[:count])
            for old in list(self._fits)[: -scores.LOOK_BACK // REFIT - 2]:
                del self._fits[old]
        return self._fits[key]

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
        return mf.learn(F, inside, method="llr", kernel="linear", prior="independent", seed=self.seed)

    def _group_question(self, rng: np.random.Generator) -> Question | None:
        candidates = self._candidates()
        if not self._state.members:
            i, j = (int(row) for row in self._order[:2])
            if groups.ordered(i, j) in self._state.asked:  # skipped
                i, j = (int(row) for row in rng.choice(self.n, 2, replace=False))
            return Question("pair", (i, j), "explore", opens=True, joins=True)
        if not len(candidates):
            return None
        error = people.error_rates(self._answers).get(self.by, groups.ERROR)
        nearness = Nearness.of(self._view(candidates), self._state, error)
        return groups.ask(nearness, candidates, self.by, rng, lineup=self.lineup, select=self.select)

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
            held = triplets.triplets_of(self._answers, self._row_of, held_out=True)
            known = triplets.triplets_of(self._answers, self._row_of)
            if not held or len(known) < triplets.RANDOM_FIRST:
                return 0, 0
            return scores.triplets_foretold(held, known, lambda rows: self._features(rows) @ self._axes)
        if not self._state.held_out or len(self._state.members) < 2:
            return 0, 0
        return scores.pairs_foretold(self._state.held_out, self._state.group, self._embedded)

    def _enough(self) -> str:
        """Return the advice to stop, or ""."""
        right = scores.settled(self._state.placed) if self.rule == "groups" else None
        if right is None:
            return ""
        count = len(self._answers) - len(self._answers) % REFIT
        if scores.change(self._fitted(count), self._fitted(count - scores.LOOK_BACK)) > scores.MOVED:
            return ""
        return (
            f"the first guess was right for {100 * right:.0f} % of the last {scores.LOOK_BACK} rows, as for the "
            f"{scores.LOOK_BACK} before, no new group has come up and the metric hardly moves"
        )


def _listed(values: Any, name: str) -> list[Any] | None:
    """Return several values as a list, None as it is, or raise InputError."""
    if isinstance(values, str | bytes | dict) or not (values is None or hasattr(values, "__len__")):
        raise InputError(f"{name} must be a list, got {shown(values)}")
    if getattr(values, "ndim", 1) != 1:
        raise InputError(f"{name} must be 1-d, got shape {values.shape}")
    return None if values is None else list(values)


def _inside(pairs: Array) -> Array:
    """Return the pairs whose rows are both there."""
    return np.asarray(pairs[(pairs >= 0).all(axis=1)])


def _quoted(text: str) -> str:
    """Return the only cell of a line of a CSV file; an empty one needs quotes, because empty lines are passed over."""
    return '"' + text.replace('"', '""') + '"' if not text or any(c in text for c in ',"\r\n') else text
