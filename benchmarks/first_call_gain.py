"""The gain of a way to learn over standardised distances: for the panel, and for exploring defaults.

    from benchmarks.first_call_gain import gain

    def candidate(X, hints, seed):
        return mf.learn(X, hints, method="simplenpkl", C=8, n_components=12, seed=seed)

    print(gain("chosen", ("P5", "P1"), 2, candidate))

Splits, hints and the scores of the baselines are kept in the cache folder.  The scores of a candidate
are kept under its ``label``, when it has one; without a label they are measured each time.
"""

from __future__ import annotations

import json
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import metricforge as mf

from .first_call_scores import SCORES, euclidean_scores, scores
from .first_call_sets import CHOSEN, HELD_OUT, SETS, cache_folder
from .first_call_splits import KINDS, Split, constraint, digest, draw, split
from .first_call_worker import Ended, Worker, cpu_limit
from .run import Table

Fit = Callable[[np.ndarray, mf.Constraint, int], mf.Metric]
Cell = dict[str, Any]
"""The result of one metric on one set, kind of hint and split: scores, CPU seconds of the fit, and an error if any."""

BASELINES = ("raw", "standardised", "by range")
NOT_FINISHED = "not finished"


# ---------------------------------------------------------------------------------------------------------------- cells


def evaluate(fit: Fit, parts: Split, kind: str, seconds: float | None) -> Cell:
    """Fit on the training rows and score on the held-out rows."""
    hints = parts.hints(kind)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        started = time.process_time()
        spent = None
        try:
            with cpu_limit(seconds):
                metric = fit(parts.X, hints, parts.number)
            spent = time.process_time() - started
            return {**metric_scores(metric, parts), "seconds": spent, "error": ""}
        except Exception as error:
            spent = time.process_time() - started if spent is None else spent
            return {"error": f"{type(error).__name__}: {error}", "seconds": spent}


def metric_scores(metric: mf.Metric, parts: Split) -> dict[str, Any]:
    """Return the scores of a metric, by its own distances."""
    A = parts.X_held_out
    try:
        embedding = metric.transform(A)
    except ValueError:  # a kernel without coordinates: no Rand index
        embedding = None
    relevant = parts.y, parts.y_held_out, parts.triplets
    return scores(metric.distance(A, parts.X), metric.distance(A), embedding, *relevant)


def baseline(column: str, parts: Split) -> Cell:
    """Return the scores of Euclidean distance on rows that are raw, standardised, or divided by the columns' range."""
    scaled = {"raw": (parts.X, parts.X_held_out), "standardised": parts.standardized, "by range": parts.by_range}
    rows = scaled[column]
    return {**euclidean_scores(*rows, parts.y, parts.y_held_out, parts.triplets), "seconds": 0.0, "error": ""}


def _task(fit: Fit, name: str, number: int, kind: str, seconds: float | None, warm: str) -> Cell:
    """Evaluate inside a worker; its first fit for ``warm`` is preceded by a tiny one, so that no import is timed."""
    if warm and warm not in _warmed:
        _warmed.add(warm)
        _tiny_fit(fit, kind)
    return evaluate(fit, split(name, number), kind, seconds)


_warmed: set[str] = set()


def _tiny_fit(fit: Fit, kind: str) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    X = rng.normal(size=(90, 4)) + y[:, None]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            fit(X, constraint(kind, draw(kind, y, rng), len(y)), 0).transform(X)
        except Exception:  # the real fit will say what is wrong
            return


def _baseline_task(column: str, name: str, number: int) -> Cell:
    return baseline(column, split(name, number))


# ---------------------------------------------------------------------------------------------------------------- store


class Store:
    """Cells in a file of JSON lines, to which every new one is appended at once; in memory only without a path."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.lock = threading.Lock()
        self.cells: dict[tuple[str, ...], Cell] = {}
        if path is not None and path.exists():
            for line in path.read_text().splitlines():
                try:
                    cell = json.loads(line)
                except ValueError:  # the last line of a run that was stopped
                    continue
                self.cells[tuple(cell.pop("key"))] = cell

    def get(self, *key: str) -> Cell | None:
        return self.cells.get(key)

    def put(self, cell: Cell, *key: str) -> Cell:
        with self.lock:
            self.cells[key] = cell
            if self.path is not None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with self.path.open("a") as out:
                    out.write(json.dumps({"key": key, **cell}) + "\n")
        return cell


@dataclass(frozen=True)
class Job:
    """One column of the table on one set and kind of hint: its splits run in order, in one worker."""

    column: str
    name: str
    kind: str
    fit: Fit | None  # None: a baseline


def run_jobs(
    jobs: Iterable[Job], splits: int, store: Store, *, seconds: float | None, processes: int, said: Callable[[str], Any]
) -> None:
    """Fill the store with the cells of all jobs, at most ``processes`` at a time."""
    waiting = _locked(jobs)
    failures: list[BaseException] = []

    def lane() -> None:
        worker = Worker()
        try:
            for job in waiting:
                if failures:
                    return
                _run_job(job, splits, store, worker, seconds, said)
        except BaseException as error:
            failures.append(error)
        finally:
            worker.close()

    lanes = [threading.Thread(target=lane, daemon=True) for _ in range(max(1, min(processes, 2)))]
    for thread in lanes:
        thread.start()
    for thread in lanes:
        thread.join()
    if failures:
        raise failures[0]


def _locked(jobs: Iterable[Job]) -> Iterator[Job]:
    """Return an iterator that several threads may share."""
    lock, source = threading.Lock(), iter(jobs)

    def one() -> Job | None:
        with lock:
            return next(source, None)

    return iter(one, None)


def _run_job(
    job: Job, splits: int, store: Store, worker: Worker, seconds: float | None, said: Callable[[str], Any]
) -> None:
    """Run the splits of a job; after one that does not finish, the others are not tried."""
    for number in range(splits):
        key = (job.column, job.name, job.kind, str(number), digest(job.name, number))
        cell = store.get(*key)
        if cell is None:
            if job.fit is None:
                task = partial(_baseline_task, job.column, job.name, number)
            else:
                task = partial(_task, job.fit, job.name, number, job.kind, seconds, f"{job.column} {job.kind}")
            try:
                cell = worker.result(task)
            except Ended as error:
                cell = {"error": NOT_FINISHED if error.over_limit else str(error), "seconds": seconds}
            store.put(cell, *key)
            said(f"{job.column} {job.name} {job.kind} {number}: {described(cell)}")
        if cell["error"]:
            return


def described(cell: Cell) -> str:
    if cell["error"]:
        return cell["error"][:150]
    shown = " ".join(f"{name} {cell[name]:.1f}" for name in SCORES if cell[name] is not None)
    return f"{shown}, {cell['seconds']:.2f} s"


# ----------------------------------------------------------------------------------------------------------------- gain


@dataclass
class Gains:
    """Gains over standardised distances, in points, of one way to learn; sets without a value did not finish."""

    kinds: Sequence[str]
    by_set: dict[str, dict[str, float]]  # kind -> set -> mean over splits
    cells: dict[str, dict[str, list[Cell]]] = field(default_factory=dict)  # kind -> set -> splits
    base: dict[str, list[Cell]] = field(default_factory=dict)  # set -> splits of standardised distances

    def mean(self, kind: str) -> float:
        return float(np.mean(list(self.by_set[kind].values()))) if self.by_set[kind] else float("nan")

    def error(self, kind: str) -> float:
        """Return the standard error of the mean over sets."""
        values = list(self.by_set[kind].values())
        return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")

    def worst(self, kind: str) -> tuple[str, float]:
        return min(self.by_set[kind].items(), key=lambda item: item[1], default=("none", float("nan")))

    def __str__(self) -> str:
        names = sorted({name for found in self.by_set.values() for name in found})
        table = Table(["set", *self.kinds])
        for name in names:
            table.add(name, *(signed(self.by_set[kind].get(name)) for kind in self.kinds))
        table.add("mean", *(f"{signed(self.mean(kind))} ± {self.error(kind):.1f}" for kind in self.kinds))
        table.add("median CPU s of a fit", *(self._seconds(kind) for kind in self.kinds))
        missing = {
            f"{name} {kind}: {splits[-1]['error'][:100]}"
            for kind, found in self.cells.items()
            for name, splits in found.items()
            if splits and splits[-1]["error"]
        }
        return "\n".join([table.markdown(), *(f"- {text}" for text in sorted(missing))])

    def _seconds(self, kind: str) -> str:
        spent = [c["seconds"] for splits in self.cells.get(kind, {}).values() for c in splits if not c["error"]]
        return f"{np.median(spent):.2f}" if spent else "none"


def signed(value: float | None) -> str:
    return "none" if value is None or np.isnan(value) else f"{value:+.1f}".replace("-", "−")


def cell_gain(cell: Cell, base: Cell) -> float:
    """Return the mean of 1-NN error down, 5-NN error down and triplet accuracy up, in points."""
    down = base["one"] - cell["one"] + base["five"] - cell["five"]
    return (down + cell["triplets"] - base["triplets"]) / 3


def gains_of(column: str, names: Sequence[str], kinds: Sequence[str], splits: int, cells: Store, base: Store) -> Gains:
    """Return the gains of a column from the cells that there are."""
    result = Gains(kinds, {kind: {} for kind in kinds}, {kind: {} for kind in kinds})
    for name in names:
        digests = [digest(name, number) for number in range(splits)]
        std = [base.get("standardised", name, "", str(i), digest) for i, digest in enumerate(digests)]
        result.base[name] = [cell for cell in std if cell is not None]
        for kind in kinds:
            found = [cells.get(column, name, kind, str(i), digest) for i, digest in enumerate(digests)]
            result.cells[kind][name] = have = [cell for cell in found if cell is not None]
            if len(have) == splits == len(result.base[name]) and not any(cell["error"] for cell in have):
                pairs = zip(have, result.base[name], strict=True)
                result.by_set[kind][name] = float(np.mean([cell_gain(cell, b) for cell, b in pairs]))
    return result


def sets_of(words: str | Sequence[str]) -> list[str]:
    """Return the names that "chosen", "held-out", "all" or a list of names stand for, in the panel's order."""
    halves = {"chosen": CHOSEN, "held-out": HELD_OUT, "all": tuple(SETS)}
    wanted: set[str] = set()
    for word in words.split(",") if isinstance(words, str) else words:
        if word not in halves and word not in SETS:
            raise ValueError(f"unknown set {word!r}; known: {', '.join([*halves, *SETS])}")
        wanted |= set(halves.get(word, (word,)))
    return [name for name in SETS if name in wanted]


def kinds_of(words: str | Sequence[str]) -> list[str]:
    """Return kinds of hint from "all", "L,P5" or a list."""
    found = words.split(",") if isinstance(words, str) else list(words)
    unknown = set(found) - {*KINDS, "all"}
    if unknown:
        raise ValueError(f"unknown kind of hint {', '.join(sorted(unknown))}; known: all, {', '.join(KINDS)}")
    return list(KINDS) if "all" in found else [kind for kind in KINDS if kind in found]


def gain(
    sets: str | Sequence[str],
    kinds: str | Sequence[str],
    splits: int,
    fit: Fit,
    *,
    label: str | None = None,
    seconds: float | None = 60,
    processes: int = 2,
    held_out: bool = False,
    folder: Path | None = None,
    said: Callable[[str], Any] = lambda text: None,
) -> Gains:
    """Return the gains of a way to learn over standardised distances.

    Parameters
    ----------
    sets : "chosen", "held-out", "all", or names
    kinds : "all", or some of L, P5, P1, T, C
    splits : int
        How many splits of each set: 0, 1, ...
    fit : callable
        ``fit(X, hints, seed) -> Metric``; it runs in another process, to which it is sent by value.
    label : str, optional
        Keep the results in the cache folder under this name, and use those there are.  Change the label when the code
        of the candidate changes.
    seconds : float, optional
        CPU seconds of a fit; a set where a fit takes more counts as not finished.
    processes : int
        1 or 2; each uses one BLAS thread.
    held_out : bool
        Allow held-out sets.  Only for final figures: nothing may be chosen on them.
    folder : Path, optional
        Where results are kept; default: a folder of the user's cache.
    said : callable
        Receives a line for each result, for instance ``print``.
    """
    names, wanted = sets_of(sets), kinds_of(kinds)
    forbidden = [name for name in names if name in HELD_OUT]
    if forbidden and not held_out:
        raise ValueError(f"nothing is chosen on held-out sets ({', '.join(forbidden)}); final figures: held_out=True")
    folder = folder or cache_folder() / "cells"
    base = baselines(names, splits, folder, processes=processes, said=said)
    column = label or "candidate"
    cells = Store(folder / f"candidate-{label}.jsonl" if label else None)
    jobs = [Job(column, name, kind, fit) for name in names for kind in wanted]
    run_jobs(jobs, splits, cells, seconds=seconds, processes=processes, said=said)
    return gains_of(column, names, wanted, splits, cells, base)


def baselines(names: Sequence[str], splits: int, folder: Path, *, processes: int, said: Callable[[str], Any]) -> Store:
    """Return the baselines on these sets, from the cache as far as they are there."""
    base = Store(folder / "baselines.jsonl")
    jobs = [Job(column, name, "", None) for name in names for column in BASELINES]
    run_jobs(jobs, splits, base, seconds=None, processes=processes, said=said)
    return base
