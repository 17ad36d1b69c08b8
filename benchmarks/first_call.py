"""What the first call ``mf.learn(X, hints)`` gains over standardised distances, beside every method and the peers.

Sets: `first-call-sets`, the held-out half first.  On every split a metric learns from half of the rows and is scored on
the others: 1-NN error, 5-NN error, accuracy on triplets drawn from labels, and the adjusted Rand index of k-means.  The
gain is the mean of 1-NN error down, 5-NN error down and triplet accuracy up, in points, over standardised Euclidean
distance on the same split.

A run can be stopped and continued: every result is appended at once to a file of JSON lines in the cache folder.
Results of metricforge are kept per state of its code.  A run of hours can be made in parts, for instance

    python -m benchmarks.run first-call --columns peers --sets held-out --splits 3 --label part
    python -m benchmarks.run first-call --columns first --splits 5 --label part
    python -m benchmarks.run first-call --stored

where the last makes the table of all that is there.  ``--earlier`` takes peers that are not stored from the JSON file
of an earlier table: they run for hours, and do not depend on the code of metricforge.

Needs METRICFORGE_DATA or the network, as `metricforge.datasets` does.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import importlib.util
from functools import partial
from pathlib import Path

import numpy as np

import metricforge as mf

from .first_call_gain import Fit, Job, Store, baselines, kinds_of, run_jobs, sets_of
from .first_call_peers import PEERS, named_peer, run_peers
from .first_call_sets import SETS, cache_folder
from .first_call_table import Column, Earlier, table_of
from .run import Table

FIRST = "mf.learn"
COLUMNS = ("first", "methods", "peers")
QUICK = ("wine", "heart", "glass")
HOW = (
    "to rerun in parts, each of which continues where it stopped: `python -m benchmarks.run first-call --label part "
    "--columns peers --sets held-out --splits 3`, then with `--columns first --splits 5` and `--columns methods "
    "--splits 1`; `--stored` makes this table of what is there"
)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--sets", default="all", help="all, held-out, chosen, or names with commas")
    parser.add_argument("--kinds", default="all", help="all, or some of L,P5,P1,T,C")
    parser.add_argument("--splits", type=int, default=5, help="splits of each set")
    parser.add_argument("--columns", default=",".join(COLUMNS), help="some of first,methods,peers")
    parser.add_argument("--seconds", type=float, default=60, help="CPU seconds of a fit of metricforge")
    parser.add_argument("--processes", type=int, default=1, help="1 or 2")
    parser.add_argument("--cache", type=Path, help="folder of the results; default: in the user's cache")
    parser.add_argument("--code", help="name of the state of the code; default: a digest of its files")
    parser.add_argument("--before", help="also show the first call of the code that was measured under this name")
    parser.add_argument("--earlier", type=Path, help="JSON of an earlier table: its peers, where none are stored")
    parser.add_argument("--stored", action="store_true", help="measure nothing; show all that earlier runs stored")


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
    before: str | None = None,
    earlier: Path | None = None,
    stored: bool = False,
) -> Table:
    names, wanted = sets_of(QUICK if quick else sets), kinds_of(kinds)
    parts = ("first",) if quick else tuple(columns.split(","))
    if unknown := set(parts) - set(COLUMNS):
        raise SystemExit(f"unknown columns {', '.join(sorted(unknown))}; known: {', '.join(COLUMNS)}")
    splits = 1 if quick else splits
    folder = cache or cache_folder() / "cells"
    cells = Store(folder / f"metricforge-{code or code_digest()}.jsonl")
    peers = Store(folder / "peers.jsonl")
    calls: dict[str, Fit] = {FIRST: first_call} if "first" in parts else {}
    if "methods" in parts:
        calls |= {entry.name: partial(named, entry.name) for entry in mf.methods()}
    if stored:
        base = Store(folder / "baselines.jsonl")
    else:
        said = partial(print, flush=True)
        base = baselines(names, splits, folder, processes=processes, said=said)
        by_size = sorted(names, key=lambda name: SETS[name].n * SETS[name].d)  # most results come early
        jobs = [Job(column, name, kind, fit) for column, fit in calls.items() for name in by_size for kind in wanted]
        run_jobs(jobs, splits, cells, seconds=seconds, processes=processes, said=said)
        if "peers" in parts and not run_peers(by_size, wanted, splits, peers, said):
            print("the environment of the peers cannot be made on this machine")
    columns = [Column(name, cells) for name in calls if name != FIRST]
    if before:
        columns.insert(0, Column(FIRST, Store(folder / f"metricforge-{before}.jsonl"), f"{FIRST} before"))
    if "peers" in parts:
        every = dict.fromkeys(peer for found in PEERS.values() for peer in found)
        columns += [Column(p, peers, named_peer(p), tuple(kind for kind in PEERS if p in PEERS[kind])) for p in every]
    peer_titles = [named_peer(peer) for found in PEERS.values() for peer in found]
    kept = Earlier.of(earlier, [*peer_titles, f"{FIRST} before"]) if earlier else None
    table = table_of(names, wanted, splits, Column(FIRST, cells), columns, base, seconds, kept)
    if kept:
        table.notes.append(
            "earlier: peers measured by an earlier run on the same splits, which do not depend on our code"
        )
    if before:
        table.notes.append(f"{FIRST} before: the first call of the code at {before}")
    table.notes.append(HOW)
    return table


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
