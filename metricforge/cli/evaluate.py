"""``metricforge evaluate``: score a saved metric on the rows and hints of a later file."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import rows as _rows
from ..constraints import Constraint, Labels, Satisfied, balanced
from ..errors import InputError
from ..metric import Metric, Report, load
from ..tables.formats import is_table
from ..tables.table import Table
from ..tasks import classify, retrieval_scores, satisfied
from ..validation import plural
from .apply import read_for
from .hints import hint_from_file, hint_kinds
from .neighbors import ranked_by
from .output import shares, write_json, write_line
from .settings import dialect_of

Array = NDArray[Any]

DEPTH = 10
"""Rows of a ranking that are scored."""
QUERIES = 1000
"""Queries that are scored at the most, drawn at random."""
CLASSIFIED = 2000
"""The most rows that are classified: the share of them that is right has a standard error of at most 1.1 %."""
VOTERS = 5
"""Training rows that vote."""


def run(args: Namespace) -> None:
    """Count what holds before and after on the rows of a file, and classify them by the training rows."""
    metric = load(args.metric)
    table, hint, flag = read_hinted(metric, args)
    start, n = before(metric), table.rows.shape[0]
    lines = [
        _line(b, a)
        for b, a in zip(satisfied(start, table.rows, hint), satisfied(metric, table.rows, hint), strict=True)
    ]
    lines += ranked(metric, start, table, hint, ranked_by(metric, args.by))
    notes = []
    if flag == Labels.flag:
        found, drawn = classified(metric, start, table, hint)
        lines = [*found, *lines]
        if drawn:
            notes.append(f"{drawn} rows, drawn at random, were classified; metricforge classify takes all")
    if same_rows(metric, table):
        notes.append("these are the rows that the metric was learned from: the figures say nothing about new rows")
    if args.json:
        write_json({"rows": n, "hint": hint.describe(), "notes": notes, "scores": lines})
        return
    write_line(f"{args.data}: {hint.describe()} over {n} rows")
    for note in notes:
        write_line(f"note: {note}")
    print_scores(lines)


def print_scores(lines: list[dict[str, Any]]) -> None:
    """Write a table of shares before and after."""
    wide = max((len(line["what"]) for line in lines), default=0)
    write_line(f"\n{'':<{wide}}         before          after")
    for line in lines:
        write_line(f"{line['what']:<{wide}} {shares(line)}")


def before(metric: Metric) -> Metric:
    """Return the metric of the kernel that a fit started from, on the same training rows."""
    if metric.start is None:
        raise InputError("the metric does not know the kernel that it started from, so there is no before")
    return Metric(metric.start, Report({"method": "start"}), rows=metric.rows, columns=metric.columns)


def classified(metric: Metric, start: Metric, table: Table, hint: Constraint) -> tuple[list[dict[str, Any]], int]:
    """Return the share of the rows that the training rows classify right, where the metric keeps their labels.

    Of many rows some are drawn; their number is returned too, 0 for all rows.
    """
    labels, origin = hint.row_classes(), metric.origin
    if labels is None or origin is None or not len(origin.codes) or metric.rows is None:
        return [], 0
    y = origin.labels_of(np.arange(len(origin.codes)))
    scored = np.flatnonzero(labels.codes >= 0)
    drawn = len(scored) > CLASSIFIED
    if drawn:
        scored = np.sort(np.random.default_rng(0).choice(scored, CLASSIFIED, replace=False))
    truth = np.array([str(value) for value in labels.classes.tolist()], dtype=object)[labels.codes[scored]]
    counted: list[list[Satisfied]] = []  # before and after: by the nearest row and by the nearest rows
    voters = f"{VOTERS} nearest training rows"
    for one in (start, metric):
        found = classify(one, y, table.rows[scored], k=VOTERS)
        names = np.array([str(value) for value in found.classes.tolist()], dtype=object)
        counted.append([])
        for who, codes in (("nearest training row", found.nearest_codes), (voters, found.codes)):
            right = names[codes] == truth
            counted[-1] += [
                Satisfied(f"rows classified right by the {who}", int(right.sum()), len(right)),
                balanced(f"balanced accuracy of the {who}", right, labels.codes[scored]),
            ]
    lines = [_line(b, a) for b, a in zip(*counted, strict=True)]
    return lines, CLASSIFIED if drawn else 0


def ranked(metric: Metric, start: Metric, table: Table, hint: Constraint, by: Any) -> list[dict[str, Any]]:
    """Return how well the other rows of the file are ranked for rows whose relevant rows the hint names."""
    judged = hint.relevance()
    n = table.rows.shape[0]
    if judged is None or not len(judged[0]):
        return []
    chosen = np.sort(np.random.default_rng(0).permutation(len(judged[0]))[:QUERIES])
    queries, relevant = judged[0][chosen].tolist(), [judged[1][i].tolist() for i in chosen]
    k = min(DEPTH, n - 1)
    before, after = (retrieval_scores(one, table.rows, queries, relevant, k=k, by=by) for one in (start, metric))
    words = {"ndcg": f"nDCG@{k}", "precision": f"precision@{k}", "recall": f"recall@{k}", "mrr": f"MRR@{k}"}
    return [
        {
            "what": f"{word} of rows ranked by {by}, {plural(len(queries), 'query', 'queries')}",
            "before": getattr(before, name),
            "after": getattr(after, name),
            "error": (before.errors[name], after.errors[name]),
        }
        for name, word in words.items()
    ]


def _line(before: Satisfied, after: Satisfied) -> dict[str, Any]:
    error = (before.error, after.error)
    return {"what": after.condition, "before": before.share, "after": after.share, "error": error}


def same_rows(metric: Metric, table: Table) -> bool:
    """Return whether a table holds exactly the training rows."""
    if metric.rows is None or _rows.is_dask(metric.rows) or _rows.count(metric.rows) != table.rows.shape[0]:
        return False
    return _rows.digest(metric.rows) == _rows.digest(metric.kernel.check(table.rows, "data"))


def read_hinted(metric: Metric, args: Namespace, *, needed: bool = True) -> tuple[Table, Any, str]:
    """Read the rows of a later file and the hint that was typed: a column, or a file."""
    kinds = hint_kinds()
    typed = {flag: value for flag in kinds if (value := getattr(args, flag.replace("-", "_"), None))}
    flags = ", ".join(f"--{flag}" for flag in kinds)
    if len(typed) > 1 or (needed and not typed):
        raise InputError(f"give {'one' if needed else 'at most one'} of {flags}")
    if not typed:
        return read_for(metric, args.data, args), None, ""
    flag, source = next(iter(typed.items()))
    kind = kinds[flag]
    in_data = kind.per_row and not is_table(source)
    table = read_for(metric, args.data, args, extra=[source] if in_data else [])
    n = table.rows.shape[0]
    if in_data:
        return table, kind.from_table({kind.table_columns[0]: table.extra[source]}, n), flag
    hint = hint_from_file(kind, source, table.total or n, args.data, dialect_of(args))
    return table, hint if table.kept is None else hint[table.kept], flag
