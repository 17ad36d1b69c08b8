"""``metricforge info``: what a model file holds."""

from __future__ import annotations

import json
import zipfile
from argparse import Namespace
from pathlib import Path
from typing import Any

from .. import rows as _rows
from ..metric import Metric, load
from ..validation import plural
from .evaluate import print_scores
from .output import write_json, write_line

SHOWN = 12
"""Columns that are listed; ``--json`` has all."""


def run(args: Namespace) -> None:
    """Print method, start, columns, hints, certificate, held-out scores and versions of a model file."""
    metric = load(args.metric)
    facts = described(metric, args.metric)
    if args.json:
        write_json(facts)
        return
    columns, scores = facts.pop("columns"), facts.pop("held_out")
    notes = facts.pop("notes")
    wide = max(map(len, facts))
    write_line(f"{args.metric}")
    for name, value in facts.items():
        if value not in (None, "", []):
            write_line(f"  {name:<{wide}}  {value}")
    if columns:
        write_line("\ncolumns")
        for name, what in columns[:SHOWN]:
            write_line(f"  {name}: {what}")
        if len(columns) > SHOWN:
            write_line(f"  … and {len(columns) - SHOWN} more (--json lists them)")
    for note in notes:
        write_line(f"note: {note}")
    if scores:
        write_line(f"\non rows held out when it was learned, {plural(scores[0]['folds'], 'fold')}:")
        print_scores(scores)


def described(metric: Metric, path: str) -> dict[str, Any]:
    """Return what there is to say about a metric, in the order in which it is printed."""
    report, origin = metric.report, metric.origin
    head = _head(path)
    columns: list[tuple[str, str]] = []
    if origin is not None and origin.preparation is not None:
        columns = origin.preparation.describe()
    elif metric.columns:
        shown = ", ".join(metric.columns[:SHOWN]) + (", …" if len(metric.columns) > SHOWN else "")
        columns = [(shown, "numbers as they are")]
    certificate = report.get("certificate")
    return {
        "method": report.get("method"),
        "status": str(report.get("status", "")).replace("_", " "),
        "certificate": None if certificate is None else certificate.describe(),
        "started from": report.get("kernel"),
        "hints": report.get("relations"),
        "rows": None if metric.rows is None else _rows.count(metric.rows),
        "features": metric.width,
        "labels": None if origin is None or not origin.label else f"{origin.label} ({len(origin.classes)} classes)",
        "ids": None if origin is None else origin.id,
        "radius": report.get("radius"),
        "ranks rows by": report.get("ranks_by"),
        "seconds": report.get("seconds") and float(f"{report['seconds']:.2g}"),
        "seed": report.get("seed"),
        "learned with": f"metricforge {report['version']}" if "version" in report else None,
        "format": head.get("format"),
        "size": f"{Path(path).stat().st_size / 1e6:.2g} MB",
        "columns": columns,
        "held_out": list(report.get("held_out_scores", ())),
        "notes": [*report.get("converted", ()), *report.get("notes", ())],
    }


def _head(path: str) -> dict[str, Any]:
    with zipfile.ZipFile(path) as archive:
        found: dict[str, Any] = json.loads(archive.read("metric.json"))
    return found
