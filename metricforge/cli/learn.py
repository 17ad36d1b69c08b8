"""``metricforge learn``: read rows and hints, fit, save, and print what changed."""

from __future__ import annotations

import shlex
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from .. import rows as _rows
from ..constraints import Constraint, Distances, Labels, Satisfied
from ..distributed import cluster
from ..errors import InputError, MemoryBudgetError
from ..figures import MISSING, installed
from ..files import atomic as files
from ..kernels import Kernel, Standardized
from ..learning import learn_named, plan_of
from ..metric import Metric
from ..reports import page as report
from ..resolve import declared_methods, find_kernel
from ..tables.preparation import ALL_COLUMNS, AS_THEY_ARE, Origin
from ..tables.table import Table, row_counters
from ..tasks import Score, held_out
from ..validation import plural
from .hints import hint_kinds, read_hint
from .output import shares, write_json, write_line
from .settings import Run, check_not_input, settings

Array = NDArray[Any]

PAGES = (".html", ".htm")
"""Extensions of a report."""


class Result(NamedTuple):
    """What `run` prints: its settings, the fit, notes on the table, and relations satisfied before and after."""

    run: Run
    hint: Constraint
    metric: Metric
    notes: Sequence[str]
    before: Sequence[Satisfied]
    after: Sequence[Satisfied]


def run(args: Namespace) -> None:
    """Learn a metric from rows and hints, save it, and print what it changed."""
    kinds = hint_kinds()
    run = settings(vars(args), kinds)
    _check_outputs(run)  # before the work, so that it is not lost
    with cluster.connected(run.scheduler):
        table, hint = read_hint(run, kinds)
        metric = replace(fit(run, table, hint), origin=origin_of(run, table, hint))
        scores, why = scored(run, table, hint)
        metric = metric.with_facts(held_out_scores=tuple(score.as_dict() for score in scores))
        assert metric.start is not None
        before, after = (counted(hint, kernel, metric) for kernel in (metric.start, metric.kernel))
        page = ""
        if run.report:
            source = Path(run.data).name
            page = report.html(metric, hint, source=source, command=args.typed, counted=(before, after))
        metric.save(run.out)
    if run.report:
        files.write(run.report, page.encode(errors="replace"))  # the command may have bytes that are no text
    if run.report and not installed():
        why = [*why, f"the report has no pictures: {MISSING}"]
    notes = [*why, *prepared_notes(table), *(_counter_note(name) for name in row_counters(table))]
    (_print_json if args.json else _print)(Result(run, hint, metric, notes, before, after))


def counted(hint: Constraint, kernel: Kernel, metric: Metric) -> Sequence[Satisfied]:
    """Count the relations that a kernel satisfies on the rows of a metric, which were checked when it learned."""
    return hint.satisfied(Distances(kernel, metric.rows, metric.seed))


def scored(run: Run, table: Table, hint: Constraint) -> tuple[tuple[Score, ...], list[str]]:
    """Return the scores on rows that are held out, and why there are none."""
    if run.folds == 0:
        return (), []
    if _rows.is_dask(table.rows):
        return (), [
            "no rows were held out: they are on the scheduler's workers; metricforge evaluate scores a later file"
        ]

    def refit(X: Any, part: Constraint) -> Metric:
        return fit(run, replace(table, rows=X), part)

    try:
        found = held_out(table.rows, hint, refit, folds=run.folds, seed=run.seed)
    except MemoryBudgetError as error:  # the metric itself is learned
        return (), [f"no rows were held out: {error}"]
    return found, [] if found else ["no rows were held out: there are too few hints to learn from the others"]


def origin_of(run: Run, table: Table, hint: Constraint) -> Origin | None:
    """Return what a metric keeps of its table: the preparation, and the labels and identifiers of the rows."""
    labels = hint.row_classes() if run.flag == Labels.flag else None
    label = None if labels is None else (run.hint, labels.y)
    identifiers = None if run.id is None else (run.id, table.extra[run.id])
    if table.preparation is None and label is None and identifiers is None:
        return None
    return Origin.of(table.preparation, kept=table.kept, label=label, identifiers=identifiers)


def prepared_notes(table: Table) -> list[str]:
    """Return what was done to the columns of a table that are not plain numbers."""
    if table.preparation is None:
        return list(table.notes)
    done = [(name, what) for name, what in table.preparation.describe() if what not in AS_THEY_ARE]
    return [*(f"{name if name == ALL_COLUMNS else f'column {name!r}'}: {what}" for name, what in done), *table.notes]


def _counter_note(name: str) -> str:
    return (
        f"column {name!r} numbers the rows, and the metric uses it like any other feature; if it is an identifier, "
        f"leave it out with --drop {shlex.quote(name)}"
    )


def fit(run: Run, table: Table, hint: Constraint) -> Metric:
    """Return the metric that a run learns; it has the names of the columns."""
    kernel = find_kernel(run.kernel) if run.kernel else None
    if run.standardize:
        own = kernel or plan_of(run.method, None, None, hint, dict(run.options), table.rows).kernel
        kernel = replace(own, by="std") if isinstance(own, Standardized) else Standardized(own)
    return learn_named(
        table.rows,
        table.names,
        hint,
        method=run.method,
        kernel=kernel,
        rank=run.rank,
        seed=run.seed,
        options=dict(run.options),
    )


def _check_outputs(run: Run) -> None:
    for path in filter(None, (run.out, run.report)):
        files.check_writable(path)
        check_not_input(path, run.reads)
    if run.report:
        if Path(run.report).suffix.lower() not in PAGES:
            raise InputError(
                f"--report {run.report!r}: it is an HTML page; give a name that ends in {' or '.join(PAGES)}"
            )
        if Path(run.report).resolve() == Path(run.out).resolve():
            raise InputError(f"metric and report would both be {run.out!r}; choose two names")


def _print(result: Result) -> None:
    run, hint, metric, notes, before, after = result
    facts = metric.report
    width = f" of {plural(metric.width, 'feature')}" if metric.width else ""
    write_line(f"learned by {facts.method} from {hint.describe()} over {plural(facts.n, 'row')}{width}")
    steps = plural(facts.n_iter, "iteration")
    write_line(f"{facts.status.replace('_', ' ')}: {facts.certificate.describe()}; {steps}, {facts.seconds:.2g} s")
    if "choice" in facts:
        write_line(facts.choice)
    shown = facts.held_out_scores
    wide = max((len(text) for text in (*(h.condition for h in after), *(s["what"] for s in shown))), default=0)
    if shown:
        folds = shown[0]["folds"]
        title = "on rows held out" if folds == 1 else f"on rows held out, {folds} folds"
        write_line(f"\n{title:<{max(wide, len(title))}}         before          after")
        for score in shown:
            write_line(f"{score['what']:<{wide}} {shares(score)}")
    elif after:
        write_line(f"\n{'on the rows learned from':<{wide}}   before    after")
        for b, a in zip(before, after, strict=True):
            write_line(f"{a.condition:<{wide}} {100 * b.share:>6.1f} % {100 * a.share:>6.1f} %")
    if advice := _advice(metric, before, after):
        write_line(advice)
    if said := (*facts.converted, *facts.notes, *notes):
        write_line()
    for note in said:
        write_line(f"note: {note}")
    write_line(f"\nmetric: {run.out}" + (f"\nreport: {run.report}" if run.report else ""))
    command = ["metricforge", "neighbors", run.out, run.data, "-k", "5"]
    if _rows.is_dask(metric.rows):
        command += ["--among", run.data, "--scheduler", str(run.scheduler)]
    write_line(f"next:   {shlex.join(command)}")


def _advice(metric: Metric, before: Sequence[Satisfied], after: Sequence[Satisfied]) -> str:
    """Return a sentence on what to try if fewer relations are satisfied after learning than before; "" otherwise."""
    was, now = (sum(part.share for part in parts if part.decisive) for parts in (before, after))
    if shown := metric.report.get("held_out_scores"):  # new rows count, not the old ones
        was, now = (sum(score[side] for score in shown) for side in ("before", "after"))
    if now >= was:
        return ""
    used = metric.report.method
    others = ", ".join(n for n, method in declared_methods()[0].items() if n != used and not method.baseline)
    tries = [f"another --method ({others})"] if others else []
    if metric.width and not (metric.start and metric.start.scale_free):
        tries.insert(0, "--standardize if columns are on different scales")
    if options := ", ".join(f.name for f in fields(metric.solver)):  # type: ignore[arg-type]
        tries.append(f"an --option of {used} ({options})")
    return f"less holds after learning than before: try {', or '.join(tries)}"


def _print_json(result: Result) -> None:
    run, hint, metric, notes, before, after = result
    pairs = zip(before, after, strict=True)
    write_json(
        {
            "metric": run.out,
            "page": run.report,
            "hint": hint.describe(),
            "notes": notes,
            "held_out": metric.report.held_out_scores,
            "held": [{"what": a.condition, "before": b.share, "after": a.share, "of": a.total} for b, a in pairs],
            "report": {n: value for n, value in metric.report.items() if n not in ("trace", "held_out_scores")},
        }
    )
