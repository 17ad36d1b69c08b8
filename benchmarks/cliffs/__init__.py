"""Calls that were slow beside the sizes of the other benchmarks: an earlier commit and this version in one run.

A row is a function of a split in one of the files of this folder.  It warms up, measures CPU time on one BLAS thread,
and returns test errors where a metric is learned.  Every row runs in a process of its own, once with the earlier commit
(its files in a temporary folder) and once with this version.  ``--sweep`` also runs the first call of
every method over a grid of rows and columns, and compares its CPU time with the forecast of docs/scaling.md.

All of it takes hours.  With ``--measurements FILE`` every measurement is written to a file as soon as it ends, and
those in the file are not made again, unless they were stopped and may now take longer: a run may be stopped, and
continued with other options.  ``--limit-before`` stops slow fits of the earlier commit, and ``--points N`` runs a part
of the sweep that covers all sizes; the notes say how many points were measured.

To add a row, write a function ``name(split)`` that returns a `dict` (see `rows_idealized`) and list it in `ROWS`.
"""

from __future__ import annotations

import argparse
import io
import json
import math
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
        Splits that the earlier commit runs at most: none for a row that it cannot run.
    patience : float
        CPU seconds after which the earlier commit is stopped at the latest: it takes many minutes for some rows.
    against : str
        What "before" means: the earlier commit, or this version with the options FULL of the file, which lift limits.
    """

    point: str
    what: str
    goal: str
    file: str
    function: str
    before: int = 100
    patience: float = math.inf
    against: str = "commit"


SIMPLENPKL = "rows_simplenpkl"

ROWS = [
    Row("a", "idealized, MNIST 58,000 × 784, 12,000 pairs", "<= 4", "rows_idealized", "mnist"),
    Row("a", 'the same with rank="exact": the full program', "", "rows_idealized", "mnist_full", before=0),
    Row("a", "idealized, 30,000 × 4096, 100,000 pairs", "<= 8", "rows_idealized", "wide", patience=60),
    Row("b", "idealized, Gaussian, vehicle, 300 rows from labels", "<= 1.5", "rows_idealized", "vehicle"),
    Row("b", "idealized, Gaussian, segment, 300 rows from labels", "<= 1.5", "rows_idealized", "segment"),
    Row("c", "kcr, vehicle, 500 rows", "<= 2.5", "rows_kcr", "vehicle"),
    Row("c", "kcr, pima, 500 rows", "<= 4", "rows_kcr", "pima"),
    Row("c", "kcr, segment, 700 rows", "<= 5", "rows_kcr", "segment"),
    Row("c", "kcr, digits, 1,437 rows", "<= 3", "rows_kcr", "digits"),
    Row("c", "kcr, digits, 1,797 rows", "<= 3", "rows_kcr", "digits_whole"),
    Row("c", "kcr, letter, 2,900 rows", "<= 5", "rows_kcr", "letter"),
    Row("c", "kcr, satimage, 2,900 rows", "<= 5", "rows_kcr", "satimage"),
    Row("c", "kcr, usps, 2,900 rows", "<= 5", "rows_kcr", "usps"),
    Row("c", "the same, each version with its own kernel", "<= 5", "rows_kcr", "usps_default"),
    Row("c", "the same with rank=1000, the earlier kernel", "", "rows_kcr", "usps_landmarks", before=0),
    Row("d", "transform, 200,000 × 4, 500 landmarks, 5 columns out", "3 times faster", "rows_transform", "narrow"),
    Row("d", "transform, 200,000 × 4, 500 landmarks, 500 columns out", "3 times faster", "rows_transform", "full"),
    Row("e", "exact neighbours, 10,000 × 16, k = 10", "1.1 × scikit-learn", "rows_neighbors", "narrow"),
    Row("e", "exact neighbours, 10,000 × 128, k = 10", "1.1 × scikit-learn", "rows_neighbors", "wide"),
    Row("e", "exact neighbours, 20,000 × 64, k = 10", "1.1 × scikit-learn", "rows_neighbors", "many"),
    Row("g", "simplenpkl, squared hinge, 24 rows, B = 57,600", "gap 1e-5", SIMPLENPKL, "iris_squared"),
    Row("g", "simplenpkl, hinge, 24 rows, B = 57,600", "gap 1e-3", SIMPLENPKL, "iris_hinge"),
    Row("g", "simplenpkl, squared hinge, 400 rows, B = 640,000", "gap 1e-3", SIMPLENPKL, "vehicle_squared"),
    Row("g", "simplenpkl, hinge, 400 rows, B = 40,000", "gap 1e-3", SIMPLENPKL, "vehicle_hinge"),
    Row("g", "simplenpkl, hinge, 400 rows, B = 16,000,000", "gap 1e-3", SIMPLENPKL, "vehicle_hinge_slack"),
    Row("g", "simplenpkl, squared hinge, 1,000 rows, B = 10⁸", "gap 1e-5", SIMPLENPKL, "segment_squared"),
    Row("g", "simplenpkl, hinge, 1,000 rows, B = 10⁸", "gap 1e-3", SIMPLENPKL, "segment_hinge", patience=60),
    Row("g", "simplenpkl, squared hinge, 10,000 rows, B = 10⁸", "gap 1e-3", SIMPLENPKL, "letter_squared", patience=60),
    Row("g", "simplenpkl, hinge, 10,000 rows, defaults", "its own status", SIMPLENPKL, "letter_hinge", patience=60),
    Row("h", "krca, update by two rows, Gaussian, 1,000", "mf.learn / 100", "rows_krca", "gaussian_1000"),
    Row("h", "krca, update by two rows, Gaussian, 3,000", "mf.learn / 100", "rows_krca", "gaussian_3000"),
    Row("h", "krca, update by two rows, linear, 1,000", "<= 0.0005", "rows_krca", "linear"),
    Row("i", "metricforge learn --report, 4,000 rows", "once each", "rows_command", "learn_report", before=0),
    *(
        Row("limits", f"{method}, {what}, without and with limits", "", "rows_limits", function, against="full")
        for method, what, function in (
            ("kcr", "letter, 1,000 rows", "kcr_letter"),
            ("kcr", "satimage, 2,000 rows", "kcr_satimage"),
            ("kcr", "usps, 2,000 rows", "kcr_usps"),
            ("nca", "letter, 6,000 rows", "nca_letter"),
            ("nca", "satimage, 2,900 rows", "nca_satimage"),
            ("nca", "usps, 2,900 rows of 100 components", "nca_usps"),
            ("mlkr", "boston, 340 rows", "mlkr_boston"),
            ("mlkr", "diabetes, 300 rows", "mlkr_diabetes"),
            ("mlkr", "a column of segment, 1,500 rows", "mlkr_segment"),
            ("mlkr", "a column of satimage, 4,000 rows", "mlkr_satimage"),
            ("mlkr", "a column of letter, 6,000 rows", "mlkr_letter"),
            ("lmnn", "satimage, 2,900 rows", "lmnn_satimage"),
            ("lmnn", "usps, 1,000 rows", "lmnn_usps"),
            ("lmnn", "mnist, 1,000 rows of 300 components", "lmnn_mnist"),
            ("lpdesign", "letter, 1,500 rows", "lpdesign_letter"),
            ("lpdesign", "satimage, 1,500 rows", "lpdesign_satimage"),
            ("lpdesign", "usps, 1,500 rows of 50 components", "lpdesign_usps"),
            ("itml", "satimage, 4,000 rows", "itml_satimage"),
            ("itml", "usps, 1,000 rows", "itml_usps"),
            ("itml", "mnist, 1,000 rows of 300 components", "itml_mnist"),
            ("nca", "mnist, 2,000 rows of 784 columns", "wide_nca_mnist"),
            ("nca", "usps, 2,900 rows of 256 columns", "wide_nca_usps"),
            ("nca", "digits, 1,200 rows of 64 columns", "wide_nca_digits"),
            ("nca", "synthetic, 2,000 rows of 800 columns", "wide_nca_synthetic"),
            ("lmnn", "mnist, 2,000 rows of 784 columns", "wide_lmnn_mnist"),
            ("lmnn", "usps, 2,900 rows of 256 columns", "wide_lmnn_usps"),
            ("lmnn", "digits, 1,200 rows of 64 columns", "wide_lmnn_digits"),
            ("lmnn", "synthetic, 2,000 rows of 800 columns", "wide_lmnn_synthetic"),
            ("itml", "mnist, 2,000 rows of 784 columns", "wide_itml_mnist"),
            ("itml", "usps, 2,900 rows of 256 columns", "wide_itml_usps"),
            ("itml", "digits, 1,200 rows of 64 columns", "wide_itml_digits"),
            ("itml", "synthetic, 2,000 rows of 800 columns", "wide_itml_synthetic"),
            ("lsml", "mnist, 2,000 rows of 784 columns", "wide_lsml_mnist"),
            ("lsml", "usps, 2,900 rows of 256 columns", "wide_lsml_usps"),
            ("lsml", "digits, 1,200 rows of 64 columns", "wide_lsml_digits"),
            ("lsml", "synthetic, 2,000 rows of 800 columns", "wide_lsml_synthetic"),
            ("mlkr", "mnist, 2,000 rows of 784 columns", "wide_mlkr_mnist"),
            ("mlkr", "usps, 2,900 rows of 256 columns", "wide_mlkr_usps"),
            ("mlkr", "synthetic, 2,000 rows of 800 columns", "wide_mlkr_synthetic"),
        )
    ),
]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", help="only rows whose point or function is listed here, separated by commas")
    parser.add_argument("--splits", type=int, default=3, help="splits of every row (default 3)")
    parser.add_argument("--limit", type=float, default=900, help="CPU seconds of one measurement (default 900)")
    parser.add_argument(
        "--limit-before", type=float, help="the same for the earlier commit and fits without limits (default: the same)"
    )
    parser.add_argument("--before", default=BEFORE, help=f"the earlier commit (default {BEFORE})")
    parser.add_argument("--now-only", action="store_true", help="do not run the earlier commit")
    parser.add_argument("--sweep", action="store_true", help="run the sweep over rows and columns as well")
    parser.add_argument("--step", type=float, default=1.5, help="factor between the sizes of the sweep (default 1.5)")
    parser.add_argument(
        "--points", type=int, help="only the first points of the sweep, which cover all sizes (default: the whole grid)"
    )
    parser.add_argument("--measurements", help="file that keeps all measurements, from which a stopped run continues")
    parser.add_argument(
        "--show", action="store_true", help="measure nothing, and show what the file of measurements has"
    )
    parser.add_argument("--methods", help="methods of the sweep, separated by commas (default: all)")


def run(
    quick: bool = False,
    rows: str | None = None,
    splits: int = 3,
    limit: float = 900,
    limit_before: float | None = None,
    before: str = BEFORE,
    now_only: bool = False,
    sweep: bool = False,
    step: float = 1.5,
    points: int | None = None,
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
    longest = limit if limit_before is None else limit_before
    times = ("before, CPU s", "now, CPU s", "before / now")
    table = Table(["point", "call", *times, "goal", "before, error %", "now, error %", "difference", "details"])
    with earlier(before, skip=now_only) as tree:
        for row in chosen:
            old = [] if now_only else earlier_runs(kept, row, splits, longest, tree)
            new = measured(kept, row, range(splits), limit, tree, "now")
            table.add(row.point, row.what, *compared(old, new), row.goal, *errors(old, new), details(old, new))
            print("  ".join(map(str, table.rows[-1])), file=sys.stderr, flush=True)
            table.details.setdefault("rows", {})[f"{row.point}: {row.what}"] = {"before": old, "now": new}
    table.notes += [
        f"before: commit {before}; for the rows on limits, this version without them",
        "CPU seconds of one BLAS thread, warm, median of the splits: what the system takes to provide memory is "
        "part of them, and differs between runs",
        f"error: of 1-NN on held-out rows, mean of {splits} splits (limits: 3-NN, 1-NN on all columns of wide data; "
        "mlkr: the share of the variance that 5-NN regression leaves); difference: now minus before in points, on the "
        "splits that both ran, with the standard error of the paired difference",
        f"a measurement is stopped after at most {limit:.0f} CPU s ({longest:.0f} before, 60 in rows that take many "
        "minutes there), its further splits are not run",
    ]
    if show:
        table.notes.append(
            "put together from several runs beside other work, at loads that they met, not the one below; "
            "the rest was not run"
        )
    if sweep:
        from .sweep import swept

        names = None if methods is None else methods.split(",")
        swept(table, kept, step=step, methods=names, quick=quick, points_each=points)
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
here, function, split, limit, full = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5] == "full"
resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
spec = importlib.util.spec_from_file_location("row", here)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
options = module.FULL[function.split("_")[0]] if full else {}
print(json.dumps(getattr(module, function)(split, **options)))
"""


def earlier_runs(kept: Measurements, row: Row, splits: int, limit: float, tree: Path | None) -> list[dict[str, Any]]:
    """Return the results of a row with the earlier commit."""
    return measured(kept, row, range(min(row.before, splits)), min(limit, row.patience), tree, "before")


def measured(
    kept: Measurements, row: Row, splits: range, limit: float, tree: Path | None, side: str
) -> list[dict[str, Any]]:
    """Return the results of a row on every split; a result without ``seconds`` says why.

    After a split that was stopped, no other is run.
    """
    found: list[dict[str, Any]] = []
    for split in splits:
        if not any("stopped" in result for result in found):
            key = [row.file, row.function, side, split]
            kept.forget(key, lambda result: result.get("limit", limit) < limit)  # stopped, and may now take longer
            found.append(kept.get(key, lambda split=split: one_split(row, split, limit, tree, side)))
    return found


def one_split(row: Row, split: int, limit: float, tree: Path | None, side: str) -> dict[str, Any]:
    """Return the result of a row on one split, from a process of its own."""
    full = side == "before" and row.against == "full"
    source = ROOT if tree is None or side == "now" or full else tree
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    path = os.pathsep.join([str(source), str(source / "plugins")])
    here = str(HERE / f"{row.file}.py")
    done = subprocess.run(
        [sys.executable, "-P", "-c", WORKER, here, row.function, str(split), f"{limit:.0f}", "full" if full else ""],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **threads, "PYTHONPATH": path},
    )
    if done.returncode < 0:
        return {"stopped": f"over {limit:.0f} s", "limit": limit}
    if done.returncode:
        return {"failed": done.stderr.strip().splitlines()[-1]}
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def compared(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> tuple[Any, Any, Any]:
    """Return the median seconds of both, and their ratio."""
    seconds = ([r["seconds"] for r in side if "seconds" in r] for side in (old, new))
    before, now = (float(np.median(found)) if found else None for found in seconds)
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


def details(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> str:
    """Return what the first split says, of both versions."""
    now, before = (next((r["details"] for r in side if "details" in r), "") for side in (new, old))
    return f"{now}; before: {before}" if before else now
