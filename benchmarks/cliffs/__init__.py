"""Calls that were slow beside the sizes of the other benchmarks: an earlier commit and this version in one run.

A row is a function of a split in one of the files of this folder.  It warms up, measures CPU time on one BLAS thread,
and returns test errors where a metric is learned.  Every row runs in a process of its own, once with the earlier commit
(its files in a temporary folder) and once with this version.  ``--sweep`` also runs the first call of
every method over a grid of rows and columns, and compares its CPU time with the forecast of docs/scaling.md.

All of it takes hours.  With ``--measurements FILE`` every measurement is written to a file as soon as it ends, and
those in the file are not made again: a run may be stopped, and continued with other options.

To add a row, write a function ``name(split)`` that returns a `dict` (see `rows_idealized`) and list it in `ROWS`.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..run import Table
from .measurements import Measurements

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
BEFORE = "c26bda0"


@dataclass(frozen=True)
class Row:
    """One row of the table.

    Attributes
    ----------
    point : str
        The letter of the point.
    what : str
    goal : str
    file, function : str
        The file of this folder, without its suffix, and the function in it.
    before : int
        Splits that the earlier commit runs at most: one where it is slow, none for a row that is compared otherwise.
    """

    point: str
    what: str
    goal: str
    file: str
    function: str
    before: int = 100


ROWS = [
    Row("a", "idealized, MNIST 58,000 × 784, 12,000 pairs", "<= 4", "rows_idealized", "mnist", before=1),
    Row("a", 'the same with rank="exact": the full program', "", "rows_idealized", "mnist_full", before=0),
    Row("a", "idealized, 30,000 × 4096, 100,000 pairs", "<= 8", "rows_idealized", "wide", before=1),
    Row("b", "idealized, Gaussian, vehicle, 300 rows from labels", "<= 1.5", "rows_idealized", "vehicle"),
    Row("b", "idealized, Gaussian, segment, 300 rows from labels", "<= 1.5", "rows_idealized", "segment"),
    Row("c", "kcr, vehicle, 500 rows", "<= 2.5", "rows_kcr", "vehicle"),
    Row("c", "kcr, pima, 500 rows", "<= 4", "rows_kcr", "pima"),
    Row("c", "kcr, segment, 700 rows", "<= 5", "rows_kcr", "segment", before=1),
    Row("c", "kcr, digits, 1,437 rows", "<= 3", "rows_kcr", "digits", before=1),
    Row("c", "kcr, digits, 1,797 rows", "<= 3", "rows_kcr", "digits_whole", before=1),
    Row("c", "kcr, letter, 2,900 rows", "<= 5", "rows_kcr", "letter", before=1),
    Row("c", "kcr, satimage, 2,900 rows", "<= 5", "rows_kcr", "satimage", before=1),
    Row("c", "kcr, usps, 2,900 rows", "<= 5", "rows_kcr", "usps", before=1),
    Row("d", "transform, 200,000 × 4, 500 landmarks, 5 columns out", "3 times faster", "rows_transform", "narrow"),
    Row("d", "transform, 200,000 × 4, 500 landmarks, 500 columns out", "3 times faster", "rows_transform", "full"),
    Row("e", "exact neighbours, 10,000 × 16, k = 10", "1.1 × scikit-learn", "rows_neighbors", "narrow"),
    Row("e", "exact neighbours, 10,000 × 128, k = 10", "1.1 × scikit-learn", "rows_neighbors", "wide"),
    Row("e", "exact neighbours, 20,000 × 64, k = 10", "1.1 × scikit-learn", "rows_neighbors", "many"),
    Row("g", "simplenpkl, squared hinge, 24 rows, B = 57,600", "gap 1e-5", "rows_simplenpkl", "iris_squared"),
    Row("g", "simplenpkl, hinge, 24 rows, B = 57,600", "gap 1e-3", "rows_simplenpkl", "iris_hinge"),
    Row("g", "simplenpkl, squared hinge, 400 rows, B = 640,000", "gap 1e-3", "rows_simplenpkl", "vehicle_squared"),
    Row("g", "simplenpkl, hinge, 400 rows, B = 40,000", "gap 1e-3", "rows_simplenpkl", "vehicle_hinge"),
    Row("g", "simplenpkl, hinge, 400 rows, B = 16,000,000", "gap 1e-3", "rows_simplenpkl", "vehicle_hinge_slack", 0),
    Row("g", "simplenpkl, squared hinge, 1,000 rows, B = 10⁸", "gap 1e-5", "rows_simplenpkl", "segment_squared", 0),
    Row("g", "simplenpkl, hinge, 1,000 rows, B = 10⁸", "gap 1e-3", "rows_simplenpkl", "segment_hinge", 0),
    Row("h", "krca, update by two rows, Gaussian, 1,000", "mf.learn / 100", "rows_krca", "gaussian_1000"),
    Row("h", "krca, update by two rows, Gaussian, 3,000", "mf.learn / 100", "rows_krca", "gaussian_3000"),
    Row("h", "krca, update by two rows, linear, 1,000", "<= 0.0005", "rows_krca", "linear"),
]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", help="only rows whose point or function is listed here, separated by commas")
    parser.add_argument("--splits", type=int, default=3, help="splits of every row (default 3)")
    parser.add_argument("--limit", type=float, default=600, help="CPU seconds of one measurement (default 600)")
    parser.add_argument("--before", default=BEFORE, help=f"the earlier commit (default {BEFORE})")
    parser.add_argument("--now-only", action="store_true", help="do not run the earlier commit")
    parser.add_argument("--sweep", action="store_true", help="run the sweep over rows and columns as well")
    parser.add_argument("--step", type=float, default=1.5, help="factor between the sizes of the sweep (default 1.5)")
    parser.add_argument("--budget", type=float, default=900, help="CPU seconds of the sweep of a method (default 900)")
    parser.add_argument("--measurements", help="file that keeps all measurements, from which a stopped run continues")
    parser.add_argument(
        "--show", action="store_true", help="measure nothing, and show what the file of measurements has"
    )
    parser.add_argument("--methods", help="methods of the sweep, separated by commas (default: all)")


def run(
    quick: bool = False,
    rows: str | None = None,
    splits: int = 3,
    limit: float = 600,
    before: str = BEFORE,
    now_only: bool = False,
    sweep: bool = False,
    step: float = 1.5,
    budget: float = 900,
    measurements: str | None = None,
    show: bool = False,
    methods: str | None = None,
) -> Table:
    kept = Measurements(None if measurements is None else Path(measurements), complete=show)
    wanted = None if rows is None else rows.split(",")
    chosen = [row for row in ROWS if wanted is None or row.point in wanted or row.function in wanted]
    if quick:
        splits, now_only = 1, True
        chosen = [row for row in chosen if row.point == "b"]
    times = ("before, CPU s", "now, CPU s", "before / now")
    table = Table(["point", "call", *times, "goal", "before, error %", "now, error %", "difference", "details"])
    with earlier(before, skip=now_only) as tree:
        for row in chosen:
            old = [] if tree is None else measured(kept, row, range(min(row.before, splits)), limit, tree)
            new = measured(kept, row, range(splits), limit, None)
            table.add(row.point, row.what, *compared(old, new), row.goal, *errors(old, new), details(new))
            print("  ".join(map(str, table.rows[-1])), file=sys.stderr, flush=True)
            table.details.setdefault("rows", {})[f"{row.point}: {row.what}"] = {"before": old, "now": new}
    table.notes += [
        f"before: commit {before}; CPU seconds of one BLAS thread, warm, least of the splits",
        f"error: 1-NN on held-out rows, mean of {splits} splits; difference: now minus before in points, on the splits "
        "that both ran, with the standard error of the paired difference",
        "a measurement that takes too long is stopped",
    ]
    if show:
        table.notes.append("put together from several runs, on cores that other work kept busy; the rest was not run")
    if sweep:
        from .sweep import swept

        names = None if methods is None else methods.split(",")
        swept(table, kept, step=step, budget=budget, methods=names, quick=quick)
    return table


@contextmanager
def earlier(commit: str, *, skip: bool) -> Iterator[Path | None]:
    """Write the files of a commit to a temporary folder."""
    if skip:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        packed = subprocess.run(["git", "-C", str(ROOT), "archive", commit], check=True, capture_output=True).stdout
        with tarfile.open(fileobj=io.BytesIO(packed)) as files:
            files.extractall(folder, filter="data")
        yield Path(folder)


WORKER = """
import importlib.util, json, resource, sys
here, function, split, limit = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
spec = importlib.util.spec_from_file_location("row", here)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
print(json.dumps(getattr(module, function)(split)))
"""


def measured(kept: Measurements, row: Row, splits: range, limit: float, tree: Path | None) -> list[dict[str, Any]]:
    """Return the results of a row on every split; a result without ``seconds`` says why."""
    side = "now" if tree is None else "before"
    return [
        kept.get([row.file, row.function, side, split], lambda split=split: one_split(row, split, limit, tree))
        for split in splits
    ]


def one_split(row: Row, split: int, limit: float, tree: Path | None) -> dict[str, Any]:
    """Return the result of a row on one split, from a process of its own."""
    source = ROOT if tree is None else tree
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    path = os.pathsep.join([str(source), str(source / "plugins")])
    here = str(HERE / f"{row.file}.py")
    done = subprocess.run(
        [sys.executable, "-P", "-c", WORKER, here, row.function, str(split), f"{limit:.0f}"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **threads, "PYTHONPATH": path},
    )
    if done.returncode < 0:
        return {"stopped": f"over {limit:.0f} s"}
    if done.returncode:
        return {"failed": done.stderr.strip().splitlines()[-1]}
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def compared(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> tuple[Any, Any, Any]:
    """Return the least seconds of both, and their ratio."""
    before, now = (min((r["seconds"] for r in side if "seconds" in r), default=None) for side in (old, new))
    ratio: Any = before / now if before is not None and now is not None else ""
    return _shown(before, old), _shown(now, new), ratio


def _shown(seconds: float | None, side: list[dict[str, Any]]) -> Any:
    if seconds is not None:
        return seconds
    return next((r.get("stopped") or r.get("failed") for r in side), "not run")


def errors(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> tuple[str, str, str]:
    """Return mean errors in per cent and the paired difference with its standard error."""

    def values(side: list[dict[str, Any]]) -> np.ndarray:
        return np.array([100 * r["error"] for r in side if "error" in r])

    both = [
        (100 * a["error"], 100 * b["error"]) for a, b in zip(old, new, strict=False) if "error" in a and "error" in b
    ]
    shown = [f"{values(side).mean():.2f}" if len(values(side)) else "" for side in (old, new)]
    if not both:
        return shown[0], shown[1], ""
    gap = np.diff(np.array(both), axis=1)[:, 0]
    spread = f" ± {gap.std(ddof=1) / np.sqrt(len(gap)):.2f}" if len(gap) > 1 else " (one split)"
    return shown[0], shown[1], f"{gap.mean():+.2f}{spread}"


def details(new: list[dict[str, Any]]) -> str:
    return next((r["details"] for r in new if "details" in r), "")
