"""The table of the panel `first-call`: means over sets by half, kind of hint and metric, and who is ahead of whom."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from .first_call_gain import BASELINES, Cell, Gains, Store, cell_gain, signed
from .first_call_peers import PEER_SECONDS, PEERS
from .first_call_scores import SCORES
from .first_call_sets import SETS
from .first_call_splits import HELD_OUT_ROWS, KINDS, PEER_ROWS, digest
from .peers import NEEDS
from .run import Table

SMALL = 3000
"""Training rows up to which the cost of a first call is stated apart."""
ADULT = "a1a"


@dataclass(frozen=True)
class Column:
    """A metric of the table: the name of its cells, the store that has them, and what the table calls it."""

    name: str
    store: Store
    shown: str = ""
    kinds: Sequence[str] = tuple(KINDS)

    @property
    def title(self) -> str:
        return self.shown or self.name


@dataclass
class Found:
    """What is known of a column for one kind of hint on one half; sets may have different numbers of splits."""

    column: Column
    kind: str
    gains: Gains
    failures: dict[str, str] = field(default_factory=dict)  # set -> error

    @property
    def by_set(self) -> dict[str, float]:
        return self.gains.by_set[self.kind]

    @property
    def cells(self) -> dict[str, list[Cell]]:
        return self.gains.cells[self.kind]

    @property
    def refused(self) -> bool:
        """Whether nothing is known, or that the method cannot learn from this kind of hint."""
        return all(error.startswith("InputError") for error in self.failures.values())

    @property
    def splits(self) -> str:
        """The number of splits of a set, or the smallest and the largest."""
        numbers = sorted({len(cells) for cells in self.cells.values()})
        return "–".join(str(number) for number in dict.fromkeys(numbers[:1] + numbers[-1:]))


@dataclass(frozen=True)
class Earlier:
    """The rows and gains of an earlier table on the same splits, for metrics that do not depend on our code."""

    rows: Sequence[Mapping[str, Any]]
    gains: Mapping[str, Mapping[str, Mapping[str, float]]]
    titles: Sequence[str]

    @classmethod
    def of(cls, path: Path, titles: Sequence[str]) -> Earlier:
        """Read the JSON file of a table."""
        found = json.loads(path.read_text())
        return cls(found["rows"], found["details"]["gains"], titles)

    def missing(self, half: str, kind: str, known: Collection[str]) -> list[dict[str, Any]]:
        """Return the rows of a half and a kind of hint whose metrics are not known."""
        wanted = set(self.titles) - set(known)
        return [dict(r) for r in self.rows if r["half"] == half and r["hints"] == kind and r["metric"] in wanted]

    def lead(self, row: Mapping[str, Any], first: Found, base: Store) -> Lead | None:
        """Return how far the first call is ahead of the metric of a row, on its sets and as many splits."""
        gains, splits = self.gains[row["metric"]][row["hints"]], int(re.split("[^0-9]", str(row["splits"]))[0])
        ours = {n: mean_gain(cells[:splits], n, base) for n, cells in first.cells.items() if n in gains}
        return _lead(list(ours.values()), [ours[n] - gains[n] for n in ours])


@dataclass(frozen=True)
class Lead:
    """How far the first call is ahead of another metric, on the sets and splits that both have."""

    first: float
    ahead: float
    error: float
    sets: int


def table_of(
    names: Sequence[str],
    kinds: Sequence[str],
    splits: int,
    first: Column | None,
    others: Sequence[Column],
    base: Store,
    seconds: float,
    earlier: Earlier | None = None,
) -> Table:
    """Return means over sets by half, kind of hint and metric; ``splits`` is the largest number that is used."""
    head = ["half", "hints", "metric", "splits", "sets", "1-NN err", "5-NN err", "triplets", "ARI", "gain", "worst set"]
    table = Table([*head, "< −2", "mf.learn there", "mf.learn ahead by", "CPU s, median", "most"])
    columns = [*([first] if first else []), *others]
    verdicts: list[str] = []
    everything: list[Found] = []
    carried: dict[str, dict[str, dict[str, float]]] = {}
    for half in ("held-out", "chosen"):
        part = [name for name in names if SETS[name].half == half]
        for name in BASELINES if part else ():
            found = found_of(Column(name, base), part, "", splits, base)
            if found.by_set:
                table.add(half, "none", *_row(found, None))
        for kind in kinds if part else ():
            rows = [found_of(c, part, kind, splits, base) for c in columns if kind in c.kinds]
            leads = {}
            for found in rows:
                if first and found.column is not first and found.by_set:
                    leads[found.column.title] = lead_of(rows[0], found, base)
                if found.by_set or not found.refused:
                    table.add(half, kind, *_row(found, leads.get(found.column.title)))
            known = [found.column.title for found in rows if found.by_set]
            for row in earlier.missing(half, kind, known) if earlier and first else ():
                lead = earlier.lead(row, rows[0], base)
                leads[row["metric"]] = lead
                row |= {"splits": f"{row['splits']}, earlier", **_of_lead(lead)}
                table.add(*(row[name] for name in table.columns))
                carried.setdefault(row["metric"], {}).setdefault(kind, {}).update(
                    {n: gain for n, gain in earlier.gains[row["metric"]][kind].items() if n in part}
                )
            everything += rows
            if first and rows[0].by_set:
                verdicts.append(f"{half}, {kind}: {_verdict(rows[0], leads)}")
    table.details["gains"] = _nested(everything, lambda f: {n: round(v, 2) for n, v in f.by_set.items()})
    for title, by_kind in carried.items():
        for kind, gains in by_kind.items():
            table.details["gains"].setdefault(title, {}).setdefault(kind, {}).update(gains)
    table.details["failures"] = _nested(everything, lambda f: f.failures)
    table.notes += [*_protocol(kinds, seconds, any(c.name in PEERS["L"] for c in others)), *verdicts]
    if first:
        table.notes += [*_adult(everything, base), *_cost(everything, first), *_by_set(everything, first, names, kinds)]
    return table


def found_of(column: Column, names: Sequence[str], kind: str, most: int, base: Store) -> Found:
    """Return the gains of a column on the sets on which it did not fail, each over the splits that it has."""
    found = Found(column, kind, Gains([kind], {kind: {}}, {kind: {}}))
    for name in names:
        cells = stored(column, name, kind, most)
        cells = cells[: len(stored(Column("standardised", base), name, "", most))]
        if cells and cells[-1]["error"]:
            found.failures[name] = cells[-1]["error"]
        elif cells:
            found.cells[name] = cells
            found.by_set[name] = mean_gain(cells, name, base)
    return found


def mean_gain(cells: Sequence[Cell], name: str, base: Store) -> float:
    """Return the mean gain over the first splits of a set."""
    standardised = stored(Column("standardised", base), name, "", len(cells))
    return float(np.mean([cell_gain(cell, b) for cell, b in zip(cells, standardised, strict=True)]))


def stored(column: Column, name: str, kind: str, most: int) -> list[Cell]:
    """Return the cells of split 0, 1, ... up to the first that is missing or failed."""
    cells: list[Cell] = []
    for number in range(most):
        cell = column.store.get(column.name, name, kind, str(number), digest(name, number))
        if cell is None:
            break
        cells.append(cell)
        if cell["error"]:
            break
    return cells


def lead_of(first: Found, other: Found, base: Store) -> Lead | None:
    """Return how far the first call is ahead, from the splits of the sets that both have; None without a common set."""
    ours, ahead = [], []
    for name in other.cells:
        common = min(len(other.cells[name]), len(first.cells.get(name, ())))
        if common:
            ours.append(mean_gain(first.cells[name][:common], name, base))
            ahead.append(ours[-1] - mean_gain(other.cells[name][:common], name, base))
    return _lead(ours, ahead)


def _lead(ours: Sequence[float], ahead: Sequence[float]) -> Lead | None:
    if not ahead:
        return None
    error = float(np.std(ahead, ddof=1) / np.sqrt(len(ahead))) if len(ahead) > 1 else float("nan")
    return Lead(float(np.mean(ours)), float(np.mean(ahead)), error, len(ahead))


# ----------------------------------------------------------------------------------------------------------------- rows


def _row(found: Found, lead: Lead | None) -> list[Any]:
    kind, gains = found.kind, found.gains
    cells = [cell for splits in found.cells.values() for cell in splits]
    spent = [cell["seconds"] for cell in cells]
    worst, least = gains.worst(kind)
    learned = found.column.name not in BASELINES
    return [
        found.column.title,
        found.splits,
        f"{len(found.by_set)} of {len(found.by_set) + len(found.failures)}",
        *(_mean_over_sets(found, score) for score in SCORES),
        f"{signed(gains.mean(kind))} ± {gains.error(kind):.1f}" if found.by_set else "none",
        f"{worst} {signed(least)}" if found.by_set else "none",
        sum(value < -2 for value in found.by_set.values()),
        *_of_lead(lead).values(),
        f"{np.median(spent):.2f}" if spent and learned else "",
        f"{max(spent):.1f}" if spent and learned else "",
    ]


def _of_lead(lead: Lead | None) -> dict[str, str]:
    return {
        "mf.learn there": f"{signed(lead.first)} ({lead.sets})" if lead else "",
        "mf.learn ahead by": f"{signed(lead.ahead)} ± {lead.error:.1f}" if lead else "",
    }


def _mean_over_sets(found: Found, score: str) -> str:
    by_set = [[cell[score] for cell in cells if cell[score] is not None] for cells in found.cells.values()]
    means = [np.mean(values) for values in by_set if values]
    return f"{np.mean(means):.1f}" if means else "none"


def _nested(everything: Sequence[Found], of: Any) -> dict[str, dict[str, Any]]:
    """Return column -> kind -> set -> value, both halves together."""
    result: dict[str, dict[str, Any]] = {}
    for found in everything:
        if values := of(found):
            result.setdefault(found.column.title, {}).setdefault(found.kind, {}).update(values)
    return result


# ---------------------------------------------------------------------------------------------------------------- notes


def _protocol(kinds: Sequence[str], seconds: float, peers: bool) -> list[str]:
    notes = [
        "means over the sets that finished, in per cent; gain: mean ± standard error over sets of (1-NN error down + "
        "5-NN error down + triplet accuracy up) / 3 over standardised distances, in points; sets: finished of those "
        "tried; splits: the fewest and the most of a set",
        f"half of the rows for training, at most {HELD_OUT_ROWS} others are scored; < −2: sets that lose more than 2 "
        "points; hints: " + "; ".join(f"{kind} {KINDS[kind]}" for kind in kinds),
        "mf.learn there: the first call on the sets and splits that this metric has; ahead by: mean ± standard error "
        "of the difference over these sets",
        f"a fit over {seconds:g} CPU seconds counts as not finished, and the other splits of that set are not tried; "
        "CPU seconds are those of the fit, on one thread",
    ]
    if peers:
        notes.append(
            f"peers: defaults, standardised rows, at most {PEER_ROWS} training rows and {PEER_SECONDS} CPU seconds a "
            f"fit, in an environment of their own ({', '.join(NEEDS)}); the JSON file names the sets on which one "
            "does not finish or returns values that are not finite, under failures"
        )
    return notes


def _verdict(first: Found, leads: Mapping[str, Lead | None]) -> str:
    """Return in one sentence what the first call gains and who is ahead of it."""
    worst, least = first.gains.worst(first.kind)
    below = sum(value < -2 for value in first.by_set.values())
    text = f"gain {signed(first.gains.mean(first.kind))} ± {first.gains.error(first.kind):.1f}, worst set {worst} "
    text += f"{signed(least)}, {below} of {len(first.by_set)} sets below −2"
    known = {name: lead for name, lead in leads.items() if lead}
    for word, sign in (("ahead of", 1), ("level with", 0), ("behind", -1)):
        part = [
            f"{name} ({signed(lead.ahead)} ± {lead.error:.1f}, {lead.sets} sets)"
            for name, lead in known.items()
            if np.sign(round(lead.ahead, 1)) == sign
        ]
        if part:
            text += f"; {word} {', '.join(part)}"
    return text


def _adult(everything: Sequence[Found], base: Store) -> list[str]:
    """Return the adjusted Rand index of k-means on Adult, for every metric."""
    shown: dict[str, list[str]] = {}
    for found in everything:
        if ADULT in found.by_set:
            values = [cell["ari"] for cell in found.cells[ADULT] if cell["ari"] is not None]
            if values:
                shown.setdefault(found.column.title, []).append(f"{found.kind} {np.mean(values):.1f}")
    if not shown:
        return []
    plain = []
    for name in BASELINES:
        cells = stored(Column(name, base), ADULT, "", 1)
        plain += [f"{name} {cells[0]['ari']:.1f}"] if cells else []
    listed = "; ".join([*plain, *(f"{name} {', '.join(values)}" for name, values in shown.items())])
    return [f"Adult ({ADULT}), adjusted Rand index of k-means on held-out rows, in per cent: {listed}"]


def _cost(everything: Sequence[Found], first: Column) -> list[str]:
    spent = [
        (cell["seconds"], f"{name}, {found.kind}")
        for found in everything
        if found.column is first
        for name in found.by_set
        if SETS[name].n // 2 <= SMALL
        for cell in found.cells[name]
    ]
    if not spent:
        return []
    most, where = max(spent)
    return [f"most CPU seconds of a first call on at most {SMALL} training rows: {most:.1f} ({where})"]


def _by_set(everything: Sequence[Found], first: Column, names: Sequence[str], kinds: Sequence[str]) -> list[str]:
    notes = []
    for kind in kinds:
        values: dict[str, float] = {}
        failures: dict[str, str] = {}
        for found in everything:
            if found.column is first and found.kind == kind:
                values |= found.by_set
                failures |= found.failures
        if values:
            shown = ", ".join(f"{name} {signed(values[name])}" for name in names if name in values)
            lost = "".join(f"; {name}: {error[:100]}" for name, error in failures.items())
            notes.append(f"{first.title}, {kind}, gain by set: {shown}{lost}")
    return notes
