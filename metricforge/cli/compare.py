"""``metricforge compare``: every method that can learn from some hints, scored on rows held out."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from .. import plotting
from ..errors import InputError
from ..evaluation import FOLDS, Comparison, compare
from ..files import atomic as files
from ..kernels import Standardized
from ..reports import page as report
from ..resolve import find_kernel
from ..rows import take
from ..validation import whole_number
from .hints import hint_kinds, read_hint
from .output import write_json, write_line
from .settings import check_not_input, settings

PAGES = (".html", ".htm")


def run(args: Namespace) -> None:
    """Print the candidates, the best first, and draw them."""
    kinds = hint_kinds()
    run = settings(vars(args), kinds)
    if run.report:
        files.check_writable(run.report)
        check_not_input(run.report, run.reads)
        if Path(run.report).suffix.lower() not in PAGES:
            raise InputError(f"--report {run.report!r}: it is an HTML page; give a name that ends in .html")
        plotting.check_installed()
    table, hint = read_hint(run, kinds)
    kernel = find_kernel(run.kernel) if run.kernel else None
    if run.standardize:
        kernel = Standardized(kernel or find_kernel("linear"))
    rows, about = table.rows, f"{hint.describe()} over {table.rows.shape[0]} rows of {run.data}"
    if 0 < whole_number(args.sample, "--sample", least=0) < hint.n:
        chosen = hint.some_rows(args.sample, seed=run.seed)
        rows, hint = take(rows, chosen), hint[chosen]
        about += f"; compared on {len(chosen)} of the rows, drawn at random (--sample 0 takes all)"
    found = compare(rows, hint, kernel=kernel, rank=run.rank, folds=run.folds or FOLDS, seed=run.seed)
    if run.report:
        files.write(run.report, page(found, run.data, about, args.typed).encode(errors="replace"))
    if args.json:
        facts = {"best": found.best, "hint": hint.describe(), "rows": hint.n, "page": run.report}
        write_json(facts | {"candidates": found.records()})
        return
    write_line(f"{about}\n")
    write_line(str(found))
    write_line(f"\nbest: {found.best}" + (f"\nreport: {run.report}" if run.report else ""))


def page(found: Comparison, data: str, about: str, command: str) -> str:
    """Return a page with the table and its picture; ``about`` says what was compared."""
    about = f"{about}. {found.constraint.score_name.capitalize()}, mean and standard error of {found.folds} folds."
    lines = [(one.name, _score(one.mean, one.error, one.failure)) for one in found.scores]
    sections: list[report.Section] = [
        {"pictures": [report.picture(found.plot().figure, "scores on rows held out")]},
        {"heading": "Candidates", "lines": lines},
        {"heading": "How to reproduce this", "command": command},
    ]
    return report.rendered(f"Methods compared on {data}", about, sections)


def _score(mean: float, error: float, failure: str) -> str:
    return failure or f"{100 * mean:.1f} ± {100 * error:.1f} %"
