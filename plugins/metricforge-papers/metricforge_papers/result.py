"""A reproduced table or figure: our numbers, those of the paper, and whether they agree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from .printed import Printed, paper_file, printed
from .verdict import Cell, Claim, Verdict, verdict


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
    seconds, cpu_seconds : float
        Time of the run by the clock, and CPU time of its process without those of other libraries.
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
    cpu_seconds: float = 0.0
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
        known["claims"] = tuple(
            Claim(**{**claim, "variants": tuple(claim.get("variants", ()))}) for claim in content["claims"]
        )
        return cls(**{**known, "notes": tuple(content["notes"]), "missing": tuple(content["missing"])})

    def verdicts(self) -> list[Verdict]:
        """Return one verdict per variant, the paper's setting first; one without a variant if there are only claims."""
        variants = list(dict.fromkeys(cell.variant for cell in self.cells if cell.variant and cell.paper is not None))
        compared = [(v, [c for c in self.cells if c.variant == v and c.paper is not None]) for v in variants]
        if not compared and self.claims:
            compared = [("", [])]
        return [
            verdict(v, cells, [c for c in self.claims if c.about(v)], self.printed, self._gains(cells))
            for v, cells in compared
        ]

    def _gains(self, compared: Sequence[Cell]) -> tuple[float | None, float | None]:
        """Return the mean gain of numbers over the baseline of the table, ours and the paper's; None without one."""
        at = {(cell.measure, cell.row, cell.column): cell.ours for cell in self.cells}
        ours, theirs = [], []
        for cell in compared:
            if cell.ours is None or cell.paper is None:
                continue
            measure, column = self.printed.measures[cell.measure], cell.column.split(", ")[0]
            sign = 1 if measure.better == "higher" else -1
            # a variant may have a baseline of its own: "learned, our default, as found" that of "baseline, as found"
            endings = (cell.column.removeprefix(column), f", {cell.column.rsplit(', ', 1)[-1]}")
            own = [at[key] for e in endings if (key := (cell.measure, cell.row, measure.baseline + e)) in at]
            for place in ((cell.row, measure.baseline), (measure.baseline, column)):
                before, printed_before = own[0] if own else at.get((cell.measure, *place)), measure.mean(*place)
                if before is not None and printed_before is not None:
                    ours.append(sign * (cell.ours - before))
                    theirs.append(sign * (cell.paper - printed_before))
                    break
        return (math.fsum(ours) / len(ours), math.fsum(theirs) / len(theirs)) if ours else (None, None)
