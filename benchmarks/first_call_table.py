"""The table of the panel `first-call`: means over sets by half, kind of hint and metric, and who is ahead of whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .first_call_gain import BASELINES, Cell, Gains, Store, gains_of, signed
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
    """What is known of a column for one kind of hint on one half: its gains over ``splits`` splits of each set."""

    column: Column
    kind: str
    splits: int
    gains: Gains
    failures: dict[str, str] = field(default_factory=dict)  # set -> error

    @property
    def by_set(self) -> dict[str, float]:
        return self.gains.by_set[self.kind]

    @property
    def cells(self) -> list[Cell]:
        return [cell for name in self.by_set for cell in self.gains.cells[self.kind][name]]


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
) -> Table:
    """Return means over sets by half, kind of hint and metric; ``splits`` is the largest number that is used."""
    head = ["half", "hints", "metric", "splits", "sets", "1-NN err", "5-NN err", "triplets", "ARI", "gain", "worst set"]
    table = Table([*head, "< −2", "mf.learn there", "mf.learn ahead by", "CPU s, median", "most"])
    columns = [*([first] if first else []), *others]
    verdicts: list[str] = []
    everything: list[Found] = []
    for half in ("held-out", "chosen"):
        part = [name for name in names if SETS[name].half == half]
        for name in BASELINES if part else ():
            found = found_of(Column(name, base), part, "", splits, base)
            if found.by_set:
                table.add(half, "none", *_row(found, len(part), None))
        for kind in kinds if part else ():
            rows = [found_of(c, part, kind, splits, base) for c in columns if kind in c.kinds]
            leads = {}
            for found in rows:
                if first and found.column is not first and found.by_set:
                    leads[found.column.title] = lead_of(first, found, part, base)
                if found.splits or found.failures:
                    table.add(half, kind, *_row(found, len(part), leads.get(found.column.title)))
            everything += rows
            if first and rows[0].by_set:
                verdicts.append(f"{half}, {kind}: {_verdict(rows[0], leads)}")
    table.details["gains"] = _nested(everything, lambda f: {n: round(v, 2) for n, v in f.by_set.items()})
    table.details["failures"] = _nested(everything, lambda f: f.failures)
    table.notes += [*_protocol(kinds, seconds, any(c.name in PEERS["L"] for c in others)), *verdicts]
    if first:
        table.notes += [*_adult(everything, base), *_cost(everything, first), *_by_set(everything, first, names, kinds)]
    return table


def found_of(column: Column, names: Sequence[str], kind: str, most: int, base: Store) -> Found:
    """Return the gains of a column, over as many splits as all sets have on which it did not fail."""
    counts, failures = [], {}
    for name in names:
        cells = stored(column, name, kind, most)
        if cells and cells[-1]["error"]:
            failures[name] = cells[-1]["error"]
        elif cells:
            counts.append(len(cells))
    splits = min(counts, default=0)
    tried = [name for name in names if name not in failures]
    gains = gains_of(column.name, tried if splits else [], [kind], splits, column.store, base)
    return Found(column, kind, splits, gains, failures)


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


def lead_of(first: Column, other: Found, names: Sequence[str], base: Store) -> Lead | None:
    """Return how far the first call is ahead, from the same splits of the same sets; None without a common set."""
    ours = gains_of(first.name, names, [other.kind], other.splits, first.store, base).by_set[other.kind]
    both = [name for name in other.by_set if name in ours]
    if not both:
        return None
    ahead = np.array([ours[name] - other.by_set[name] for name in both])
    error = float(np.std(ahead, ddof=1) / np.sqrt(len(both))) if len(both) > 1 else float("nan")
    return Lead(float(np.mean([ours[name] for name in both])), float(ahead.mean()), error, len(both))


# ----------------------------------------------------------------------------------------------------------------- rows


def _row(found: Found, sets: int, lead: Lead | None) -> list[Any]:
    cells, kind, gains = found.cells, found.kind, found.gains
    spent = [cell["seconds"] for cell in cells]
    worst, least = gains.worst(kind)
    learned = found.column.name not in BASELINES
    return [
        found.column.title,
        found.splits,
        f"{len(found.by_set)} of {sets}",
        *(_mean([cell[score] for cell in cells]) for score in SCORES),
        f"{signed(gains.mean(kind))} ± {gains.error(kind):.1f}" if found.by_set else "none",
        f"{worst} {signed(least)}" if found.by_set else "none",
        sum(value < -2 for value in found.by_set.values()),
        f"{signed(lead.first)} ({lead.sets})" if lead else "",
        f"{signed(lead.ahead)} ± {lead.error:.1f}" if lead else "",
        f"{np.median(spent):.2f}" if spent and learned else "",
        f"{max(spent):.1f}" if spent and learned else "",
    ]


def _mean(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{np.mean(known):.1f}" if known else "none"


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
        "5-NN error down + triplet accuracy up) / 3 over standardised distances, in points; splits: of each set",
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
    for word, keep in (("ahead of", True), ("behind", False)):
        part = [
            f"{name} ({signed(lead.ahead)} ± {lead.error:.1f}, {lead.sets} sets)"
            for name, lead in known.items()
            if (lead.ahead > 0) == keep
        ]
        if part:
            text += f"; {word} {', '.join(part)}"
    return text


def _adult(everything: Sequence[Found], base: Store) -> list[str]:
    """Return the adjusted Rand index of k-means on Adult, for every metric."""
    shown: dict[str, list[str]] = {}
    for found in everything:
        if ADULT in found.by_set:
            values = [cell["ari"] for cell in found.gains.cells[found.kind][ADULT] if cell["ari"] is not None]
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
        for cell in found.gains.cells[found.kind][name]
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
