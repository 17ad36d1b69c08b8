"""What an experiment receives: repeats, seed and size.  It collects the numbers of each repeat, and can be resumed."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from metricforge import datasets
from metricforge.errors import InputError
from metricforge.registry import registry
from metricforge.registry.progress import Event
from metricforge.validation import whole_number

from .printed import printed
from .result import Result
from .verdict import Cell, Claim

T = TypeVar("T")

PRINTED, DEFAULT, TUNED = "the paper's setting", "our default", "tuning"
"""Variants of a method that are compared with the paper's numbers."""


class Run:
    """The argument of an experiment: repeats, seed and size; it collects the numbers of each repeat.

    With ``partial``, a file, the numbers of every finished job are appended to it, and jobs that it holds are not run
    again.  Numbers of other libraries, which do not depend on this one, may be those of an ``earlier`` result.
    """

    def __init__(
        self,
        paper: str,
        name: str,
        repeats: int,
        seed: int = 0,
        quick: bool = False,
        peers: bool = False,
        partial: Path | None = None,
        earlier: Result | None = None,
    ) -> None:
        self.paper, self.name = paper, name
        self.repeats = whole_number(repeats, "repeats")
        self.seed = whole_number(seed, "seed", least=0)
        self.quick, self.peers = quick, peers
        self.printed = printed(paper, name)
        self.missing: list[str] = []
        self.samples: dict[tuple[str, str, str], list[float]] = {}
        self.variants: dict[str, str] = {}  # variant by column
        self.baselines: set[str] = set()  # rows in which nothing is learned
        self.timed: set[str] = set()
        self.shown: set[str] = set()  # measures that are shown, but not compared
        self.partial = partial
        self.earlier = earlier
        self.carried: list[Cell] = []
        self.resumed_seconds = 0.0  # CPU time of the jobs that were read from the file
        self._log: list[list[Any]] = []  # what the current job has added
        self._named: set[str] = set()  # the jobs so far, by which the file knows them

    @property
    def command(self) -> str:
        """The command that gives the same numbers."""
        flags = "".join(f" --{flag}" for flag in ("quick", "peers") if getattr(self, flag))
        return f"metricforge reproduce {self.paper} {self.name} --repeats {self.repeats} --seed {self.seed}{flags}"

    def seeds(self) -> range:
        """Return one seed for each repeat."""
        return range(self.seed, self.seed + self.repeats)

    def each(self, jobs: Sequence[T], *, resumable: bool = True) -> Iterator[T]:
        """Yield the jobs and report progress; finished ones are read from the file of a run that was interrupted.

        Not ``resumable`` is a loop that keeps more than the numbers that it adds.
        """
        task = f"{self.paper} {self.name}"
        done = self._read() if resumable else {}
        try:
            for step, job in enumerate(jobs):
                registry.step(Event(task, step, len(jobs)))
                key = repr(job)
                if resumable:
                    if key in self._named:  # the file would give it the numbers of the other
                        raise ValueError(f"two jobs of {task} are called {key}")
                    self._named.add(key)
                if key in done:
                    self._replay(done[key])
                    continue
                self._log, start = [], time.process_time()
                yield job
                if resumable and self.partial is not None:
                    content = {"job": key, "seconds": time.process_time() - start, "added": self._log}
                    with self.partial.open("a", encoding="utf-8") as out:
                        out.write(json.dumps({"command": self.command, **content}) + "\n")
        finally:
            registry.step(Event(task, done=True))

    def _read(self) -> dict[str, dict[str, Any]]:
        if self.partial is None or not self.partial.is_file():
            return {}
        lines = [json.loads(line) for line in self.partial.read_text(encoding="utf-8").splitlines()]
        # more repeats of the same experiment only add jobs
        settings = (self.seed, self.quick, self.peers)
        same = [line for line in lines if _settings(line["command"]) == settings]
        return {line["job"]: line for line in same}

    def _replay(self, line: dict[str, Any]) -> None:
        self.resumed_seconds += line["seconds"]
        for what, *content in line["added"]:
            getattr(self, what)(*content)

    def load(self, name: str, needed_for: str = "") -> datasets.Dataset | None:
        """Return a data set; if it is not available, return None and add a sentence to ``missing``."""
        try:
            return datasets.load(name)
        except InputError as error:
            self.lack(f"{needed_for or name}: {error}")
            return None

    def lack(self, sentence: str) -> None:
        """Add a sentence to ``missing``, once."""
        self._log.append(["lack", sentence])
        if sentence not in self.missing:
            self.missing.append(sentence)

    def add(self, measure: str, row: str, column: str, value: float) -> None:
        """Add the number of one repeat."""
        self._log.append(["add", measure, row, column, float(value)])
        self.samples.setdefault((measure, row, column), []).append(float(value))

    def set_last(self, measure: str, row: str, column: str, value: float) -> None:
        """Set a number that is the same in every repeat, and place it after the others of its row."""
        self._log.append(["set_last", measure, row, column, float(value)])
        self.samples.pop((measure, row, column), None)
        self.samples[measure, row, column] = [float(value)]

    def carry(self, columns: Sequence[str]) -> bool:
        """Take columns of other libraries from the earlier result, and say so; return whether it has them.

        What it says of numbers that they lack is taken with them.
        """
        cells = [] if self.earlier is None else [c for c in self.earlier.cells if c.column in columns]
        self.carried += cells
        for sentence in self.earlier.missing if self.earlier is not None else ():
            if sentence.startswith(tuple(f"{column} on " for column in columns)):
                self.lack(sentence)
        return bool(cells)

    def cells(self, marks: dict[str, str] | None = None) -> tuple[Cell, ...]:
        """Return mean and standard deviation of the numbers added; ``marks`` names the best column of a row."""
        own = [self._cell(*key, values, marks or {}) for key, values in self.samples.items()]
        return (*own, *self.carried)

    def _carried_note(self) -> list[str]:
        if not self.carried:
            return []
        columns = ", ".join(dict.fromkeys(cell.column for cell in self.carried))
        repeats = max(cell.repeats for cell in self.carried)
        return [f"{columns}: from an earlier run with --peers on the same splits, {repeats} repeats."]

    def _cell(self, measure: str, row: str, column: str, values: list[float], marks: dict[str, str]) -> Cell:
        mean = math.fsum(values) / len(values)
        spread = math.fsum((v - mean) ** 2 for v in values)
        theirs = self.printed.measures.get(measure)
        judged = theirs is not None and row not in self.baselines and measure not in self.timed | self.shown
        # a variant of a column ("LL, our default") is compared with the printed column
        source = column.split(", ")[0]
        return Cell(
            measure,
            row,
            column,
            mean,
            math.sqrt(spread / (len(values) - 1)) if len(values) > 1 else None,
            len(values),
            theirs.mean(row, source) if theirs else None,
            theirs.std(row, source) if theirs else None,
            mark=theirs is not None and marks.get(row) == column,
            paper_mark=theirs is not None and theirs.marks.get(row) == column,
            variant=self.variants.get(column, "") if judged else "",
            timed=measure in self.timed,
        )

    def result(
        self,
        protocol: str,
        *,
        claims: Sequence[Claim] = (),
        why: str = "",
        notes: Sequence[str] = (),
        marks: dict[str, str] | None = None,
        picture: bytes = b"",
    ) -> Result:
        """Return the result of the run."""
        return Result(
            self.paper,
            self.name,
            self.repeats,
            self.seed,
            self.command,
            protocol,
            self.cells(marks),
            tuple(claims),
            why,
            (*notes, *self._carried_note()),
            tuple(self.missing),
            picture=picture,
        )


def _settings(command: str) -> tuple[int, bool, bool]:
    """Return seed, quick and peers of a `Run.command`."""
    words = command.split()
    return int(words[words.index("--seed") + 1]), "--quick" in words, "--peers" in words
