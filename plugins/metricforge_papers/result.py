"""A reproduced table or figure: our numbers, those of the paper, and whether they agree."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from metricforge import datasets
from metricforge.checks import whole_number
from metricforge.errors import InputError
from metricforge.registry import registry
from metricforge.registry.progress import Event

T = TypeVar("T")

PRINTED, DEFAULT, TUNED = "the paper's setting", "our default", "tuning"
"""Variants of a method that are compared with the paper's numbers."""
SURE = 2.0
"""Standard errors that a difference must exceed to count."""


# -------------------------------------------------------------------------------------------------------- the paper


@dataclass(frozen=True)
class Measure:
    """One measure of a printed table: its values by row and column, each a number or [mean, standard deviation].

    ``better`` is "higher" or "lower"; differences below ``grain`` do not count; ``marks`` names the column that the
    paper marks in a row.
    """

    better: str
    grain: float
    digits: int
    values: dict[str, dict[str, Any]]
    marks: dict[str, str] = field(default_factory=dict)

    def mean(self, row: str, column: str) -> float | None:
        """Return the printed value, or None if there is none or it is illegible."""
        value = self.values.get(row, {}).get(column)
        return value[0] if isinstance(value, list) else value

    def std(self, row: str, column: str) -> float | None:
        """Return the printed standard deviation, if there is one."""
        value = self.values.get(row, {}).get(column)
        return value[1] if isinstance(value, list) else None


@dataclass(frozen=True)
class Printed:
    """A table or figure as printed: its place, repeats and measures, and what the text claims about it."""

    where: str
    about: str
    repeats: int | None = None
    measures: dict[str, Measure] = field(default_factory=dict)
    says: tuple[str, ...] = ()


@cache
def paper_file(paper: str) -> dict[str, Any]:
    """Return the data file of a paper: its reference, and its tables and figures by name."""
    content: dict[str, Any] = json.loads(
        Path(__file__).with_name("papers").joinpath(f"{paper}.json").read_text(encoding="utf-8")
    )
    return content


def printed(paper: str, name: str) -> Printed:
    """Return a table or figure as printed."""
    content = dict(paper_file(paper)["entries"][name])
    measures = {key: Measure(**value) for key, value in content.pop("measures", {}).items()}
    return Printed(**{**content, "measures": measures, "says": tuple(content.get("says", ()))})


# ------------------------------------------------------------------------------------------------------- our results


@dataclass(frozen=True)
class Cell:
    """One of our numbers, and the corresponding one of the paper.

    Attributes
    ----------
    measure, row, column : str
    ours, std : float or None
        Mean and standard deviation over the repeats; no deviation for a single repeat.
    repeats : int
    paper, paper_std : float or None
    mark, paper_mark : bool
        Whether the column outperforms the others of its row at the 95 % level, in our results and in the paper.
    variant : str
        The variant of the paper's method; "" for baselines and for numbers that are not judged.
    timed : bool
        Whether the number is a time, which differs between runs.
    """

    measure: str
    row: str
    column: str
    ours: float | None
    std: float | None
    repeats: int
    paper: float | None = None
    paper_std: float | None = None
    mark: bool = False
    paper_mark: bool = False
    variant: str = ""
    timed: bool = False


@dataclass(frozen=True)
class Claim:
    """A statement of the paper about a table or figure, and whether it holds here."""

    says: str
    holds: bool
    ours: str


@dataclass(frozen=True)
class Verdict:
    """How one variant of the method compares with the paper.

    ``word`` is "better", "reproduced", "in part" or "not"; ``good`` of ``total`` numbers and claims are no worse than
    the paper's; ``ours`` and ``paper`` are the means of the numbers compared.
    """

    variant: str
    word: str
    good: int
    total: int
    ours: float | None
    paper: float | None


@dataclass(frozen=True, eq=False)
class Result:
    """A reproduced table or figure.

    Attributes
    ----------
    protocol : str
        How the numbers were computed where the paper leaves a choice.
    cells, claims
    why : str
        One sentence on why the result differs from the paper, if it does.
    missing : tuple of str
        Data sets and peers that were not available.
    picture : bytes
        A PNG; empty for tables.
    """

    paper: str
    name: str
    repeats: int
    seed: int
    command: str
    protocol: str
    cells: tuple[Cell, ...] = ()
    claims: tuple[Claim, ...] = ()
    why: str = ""
    notes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    title: str = ""
    seconds: float = 0.0
    picture: bytes = b""

    @property
    def printed(self) -> Printed:
        """The table or figure as printed."""
        return printed(self.paper, self.name)

    def as_dict(self) -> dict[str, Any]:
        """Return the content of the JSON file: everything but the picture."""
        content = {key: value for key, value in asdict(self).items() if key != "picture"}
        extra = {
            "reference": paper_file(self.paper)["reference"],
            "where": self.printed.where,
            "paper_repeats": self.printed.repeats,
            "verdicts": [asdict(v) for v in self.verdicts()],
        }
        return {**content, **extra}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Result:
        """Return the result of an `as_dict`, without its picture."""
        known = {name: value for name, value in content.items() if name in cls.__dataclass_fields__}
        known["cells"] = tuple(Cell(**cell) for cell in content["cells"])
        known["claims"] = tuple(Claim(**claim) for claim in content["claims"])
        return cls(**{**known, "notes": tuple(content["notes"]), "missing": tuple(content["missing"])})

    def verdicts(self) -> list[Verdict]:
        """Return one verdict per variant, the paper's setting first; one without a variant if there are only claims."""
        variants = list(dict.fromkeys(cell.variant for cell in self.cells if cell.variant and cell.paper is not None))
        compared = [(v, [c for c in self.cells if c.variant == v and c.paper is not None]) for v in variants]
        if not compared and self.claims:
            compared = [("", [])]
        return [self._verdict(variant, cells) for variant, cells in compared]

    def _verdict(self, variant: str, cells: list[Cell]) -> Verdict:
        gains = [self._gain(cell) for cell in cells]
        good = sum(gain >= 0 for gain in gains) + sum(claim.holds for claim in self.claims)
        total = len(cells) + len(self.claims)
        word = "not"
        if good == total:
            word = "better" if sum(gain > 0 for gain in gains) > len(gains) / 2 else "reproduced"
        elif good >= total / 2:
            word = "in part"
        ours = [cell.ours for cell in cells if cell.ours is not None]
        theirs = [cell.paper for cell in cells if cell.ours is not None and cell.paper is not None]
        means = (sum(ours) / len(ours), sum(theirs) / len(theirs)) if ours else (None, None)
        return Verdict(variant, word, good, total, *means)

    def _gain(self, cell: Cell) -> int:
        """Return 1 if we are better than the paper, −1 if worse, 0 if the difference may be chance."""
        if cell.ours is None or cell.paper is None:
            return -1
        measure = self.printed.measures[cell.measure]
        std = cell.std or 0.0
        theirs = cell.paper_std if cell.paper_std is not None else std
        error = math.sqrt(std**2 / cell.repeats + theirs**2 / (self.printed.repeats or cell.repeats))
        gain = cell.ours - cell.paper if measure.better == "higher" else cell.paper - cell.ours
        return 0 if abs(gain) <= max(SURE * error, measure.grain) else (1 if gain > 0 else -1)


# ---------------------------------------------------------------------------------------------------------- running


class Run:
    """The argument of an experiment: repeats, seed and size; it collects the numbers of each repeat."""

    def __init__(
        self, paper: str, name: str, repeats: int, seed: int = 0, quick: bool = False, peers: bool = False
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

    @property
    def command(self) -> str:
        """The command that gives the same numbers."""
        flags = "".join(f" --{flag}" for flag in ("quick", "peers") if getattr(self, flag))
        return f"metricforge reproduce {self.paper} {self.name} --repeats {self.repeats} --seed {self.seed}{flags}"

    def seeds(self) -> range:
        """Return one seed for each repeat."""
        return range(self.seed, self.seed + self.repeats)

    def each(self, jobs: Sequence[T]) -> Iterator[T]:
        """Yield the jobs and report progress."""
        task = f"{self.paper} {self.name}"
        try:
            for step, job in enumerate(jobs):
                registry.step(Event(task, step, len(jobs)))
                yield job
        finally:
            registry.step(Event(task, done=True))

    def load(self, name: str, needed_for: str = "") -> datasets.Dataset | None:
        """Return a data set; if it is not available, return None and add a sentence to ``missing``."""
        try:
            return datasets.load(name)
        except InputError as error:
            self.lack(f"{needed_for or name}: {error}")
            return None

    def lack(self, sentence: str) -> None:
        """Add a sentence to ``missing``, once."""
        if sentence not in self.missing:
            self.missing.append(sentence)

    def add(self, measure: str, row: str, column: str, value: float) -> None:
        """Add the number of one repeat."""
        self.samples.setdefault((measure, row, column), []).append(float(value))

    def cells(self, marks: dict[str, str] | None = None) -> tuple[Cell, ...]:
        """Return mean and standard deviation of the numbers added; ``marks`` names the best column of a row."""
        return tuple(self._cell(*key, values, marks or {}) for key, values in self.samples.items())

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
            tuple(notes),
            tuple(self.missing),
            picture=picture,
        )
