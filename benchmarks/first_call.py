"""What the first call ``mf.learn(X, hints)`` gains over standardised distances, beside every method and the peers.

Sets: `first-call-sets`, the held-out half first.  On every split a metric learns from half of the rows and is scored on
the others: 1-NN error, 5-NN error, accuracy on triplets drawn from labels, and the adjusted Rand index of k-means.  The
gain is the mean of 1-NN error down, 5-NN error down and triplet accuracy up, in points, over standardised Euclidean
distance on the same split.

A run can be stopped and continued: every result is appended at once to a file of JSON lines in the cache folder.
Results of metricforge are kept per state of its code.  Needs METRICFORGE_DATA or the network, as `metricforge.datasets`
does.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import importlib.util
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import metricforge as mf

from .first_call_gain import (
    BASELINES,
    NOT_FINISHED,
    Fit,
    Gains,
    Job,
    Store,
    baselines,
    gains_of,
    kinds_of,
    run_jobs,
    sets_of,
    signed,
)
from .first_call_peers import PEER_SECONDS, PEERS, run_peers
from .first_call_scores import SCORES
from .first_call_sets import SETS, cache_folder
from .first_call_splits import HELD_OUT_ROWS, KINDS, PEER_ROWS
from .peers import NEEDS
from .run import Table

FIRST = "mf.learn"
COLUMNS = ("first", "methods", "peers")
QUICK = ("wine", "heart", "glass")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sets", default="all", help="all, held-out, chosen, or names with commas")
    parser.add_argument("--kinds", default="all", help="all, or some of L,P5,P1,T,C")
    parser.add_argument("--splits", type=int, default=5, help="splits of each set")
    parser.add_argument("--columns", default=",".join(COLUMNS), help="some of first,methods,peers")
    parser.add_argument("--seconds", type=float, default=60, help="CPU seconds of a fit of metricforge")
    parser.add_argument("--processes", type=int, default=1, help="1 or 2")
    parser.add_argument("--cache", type=Path, help="folder of the results; default: in the user's cache")
    parser.add_argument("--code", help="name of the state of the code; default: a digest of its files")


def run(
    quick: bool = False,
    *,
    sets: str = "all",
    kinds: str = "all",
    splits: int = 5,
    columns: str = ",".join(COLUMNS),
    seconds: float = 60,
    processes: int = 1,
    cache: Path | None = None,
    code: str | None = None,
) -> Table:
    names, wanted = sets_of(QUICK if quick else sets), kinds_of(kinds)
    parts = ("first",) if quick else tuple(columns.split(","))
    if unknown := set(parts) - set(COLUMNS):
        raise SystemExit(f"unknown columns {', '.join(sorted(unknown))}; known: {', '.join(COLUMNS)}")
    splits = 1 if quick else splits
    folder = cache or cache_folder() / "cells"
    said = partial(print, flush=True)
    base = baselines(names, splits, folder, processes=processes, said=said)
    cells = Store(folder / f"metricforge-{code or code_digest()}.jsonl")
    ours: dict[str, Fit] = {FIRST: first_call} if "first" in parts else {}
    if "methods" in parts:
        ours |= {entry.name: partial(named, entry.name) for entry in mf.methods()}
    by_size = sorted(names, key=lambda name: SETS[name].n * SETS[name].d)  # most results come early
    jobs = [Job(column, name, kind, fit) for column, fit in ours.items() for name in by_size for kind in wanted]
    run_jobs(jobs, splits, cells, seconds=seconds, processes=processes, said=said)
    peers = Store(folder / "peers.jsonl")
    if "peers" in parts and not run_peers(by_size, wanted, splits, peers, said):
        print("the environment of the peers cannot be made on this machine")
    return table_of(names, wanted, splits, list(ours), base, cells, peers if "peers" in parts else None, seconds)


def first_call(X: np.ndarray, hints: mf.Constraint, seed: int) -> mf.Metric:
    return mf.learn(X, hints)


def named(method: str, X: np.ndarray, hints: mf.Constraint, seed: int) -> mf.Metric:
    return mf.learn(X, hints, method=method)


def code_digest() -> str:
    """Return a digest of the source of metricforge and of its installed plugins."""
    modules = {"metricforge"} | {e.value.split(".")[0] for e in importlib.metadata.entry_points(group="metricforge")}
    found = hashlib.sha256()
    for module in sorted(modules):
        spec = importlib.util.find_spec(module)
        for folder in sorted((spec.submodule_search_locations if spec else None) or []):
            for path in sorted(Path(folder).rglob("*.py")):
                found.update(str(path.relative_to(folder)).encode() + path.read_bytes())
    return found.hexdigest()[:12]


# ---------------------------------------------------------------------------------------------------------------- table


def table_of(
    names: Sequence[str],
    kinds: Sequence[str],
    splits: int,
    ours: Sequence[str],
    base: Store,
    cells: Store,
    peers: Store | None,
    seconds: float,
) -> Table:
    """Return means over sets by half, kind of hint and metric."""
    head = ["half", "hints", "metric", "sets", "1-NN err", "5-NN err", "triplets", "ARI", "gain", "worst set", "< −2"]
    table = Table([*head, "mf.learn on these sets", "CPU s, median", "most"])
    gains: dict[str, dict[str, dict[str, float]]] = {}
    for half in ("held-out", "chosen"):
        part = [name for name in names if SETS[name].half == half]
        if not part:
            continue
        first = gains_of(FIRST, part, kinds, splits, cells, base)
        for kind in kinds:
            rows = {column: _of_baseline(column, part, kind, splits, base) for column in BASELINES}
            rows |= {column: gains_of(column, part, [kind], splits, cells, base) for column in ours}
            if peers is not None:
                rows |= {peer: gains_of(peer, part, [kind], splits, peers, base) for peer in PEERS[kind]}
            for column, found in rows.items():
                compared = first if column in PEERS[kind] and peers is not None else None
                table.add(half, kind, column, *_cells_of(found, kind, part, compared))
                gains.setdefault(column, {}).setdefault(kind, {}).update(found.by_set[kind])
    table.details["gains"] = {
        column: {kind: {name: round(value, 2) for name, value in sets.items()} for kind, sets in by_kind.items()}
        for column, by_kind in gains.items()
        if column != "standardised"
    }
    table.notes += _notes(splits, seconds, names, kinds, gains, peers is not None)
    return table


def _of_baseline(column: str, names: Sequence[str], kind: str, splits: int, base: Store) -> Gains:
    """Return a baseline as if it had learned from this kind of hint."""
    found = gains_of(column, names, [""], splits, base, base)
    return Gains([kind], {kind: found.by_set[""]}, {kind: found.cells[""]}, found.base)


def _cells_of(found: Gains, kind: str, names: Sequence[str], first: Gains | None) -> list[Any]:
    finished = found.by_set[kind]
    splits = [found.cells[kind][name] for name in finished]
    means = [_mean([cell[score] for some in splits for cell in some]) for score in SCORES]
    spent = [cell["seconds"] for some in splits for cell in some]
    worst, least = found.worst(kind)
    beside = ""
    if first is not None:
        both = [name for name in finished if name in first.by_set[kind]]
        shared = Gains([kind], {kind: {name: first.by_set[kind][name] for name in both}})
        beside = f"{signed(shared.mean(kind))} ({len(both)})" if both else "none"
    return [
        f"{len(finished)} of {len(names)}",
        *means,
        f"{signed(found.mean(kind))} ± {found.error(kind):.1f}" if finished else "none",
        f"{worst} {signed(least)}" if finished else "none",
        sum(value < -2 for value in finished.values()),
        beside,
        f"{np.median(spent):.2f}" if spent else "",
        f"{max(spent):.1f}" if spent else "",
    ]


def _mean(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{np.mean(known):.1f}" if known else "none"


def _notes(
    splits: int,
    seconds: float,
    names: Sequence[str],
    kinds: Sequence[str],
    gains: Mapping[str, Mapping[str, Mapping[str, float]]],
    peers: bool,
) -> list[str]:
    notes = [
        f"means over the sets that finished on all {splits} splits, in per cent; gain: mean ± standard error over sets "
        "of (1-NN error down + 5-NN error down + triplet accuracy up) / 3 over standardised distances, in points",
        f"half of the rows for training, at most {HELD_OUT_ROWS} others are scored; < −2: sets that lose more than 2 "
        "points; hints: " + "; ".join(f"{kind} {KINDS[kind]}" for kind in kinds),
        f"a fit over {seconds:g} CPU seconds counts as not finished, and the other splits of that set are not tried",
    ]
    if peers:
        notes.append(
            f"peers: defaults, standardised rows, at most {PEER_ROWS} training rows and {PEER_SECONDS} CPU seconds a "
            f"fit, in an environment of their own ({', '.join(NEEDS)}); beside them the first call on the sets where "
            "both finish"
        )
    for kind in kinds:
        values = gains.get(FIRST, {}).get(kind, {})
        if values:
            shown = ", ".join(f"{name} {signed(values[name])}" for name in names if name in values)
            missing = [name for name in names if name not in values]
            lost = f"; {NOT_FINISHED}: {', '.join(missing)}" if missing else ""
            notes.append(f"{FIRST}, {kind}, gain by set: {shown}{lost}")
    return notes
