"""``metricforge index``: build the index of a saved metric's rows, or search it for the neighbours of new rows."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from .command import Command
from .commands import add_by, add_output


def _arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("metric", help="a metric that metricforge learn or metric.save wrote")
    add("data", nargs="?", help="rows whose neighbours to find (default: build the index only)")
    add("-k", type=int, default=10, help="how many neighbours (default: 10)")
    add("--recall", type=float, default=0.95, help="the share of true neighbours to find (default: 0.95)")
    add_by(parser)
    add("--among", metavar="FILE", help="rows to index (default: the training rows the metric keeps)")
    add("--folder", metavar="FOLDER", help="where the index is (default: the metric's name with .index)")
    add_output(parser)


def run(args: Namespace) -> None:
    """Build or open the index, and search it if there are rows to search for."""
    from ..distributed import cluster
    from ..errors import InputError
    from ..metric import load
    from ..rows import gathered
    from .apply import read_for
    from .neighbors import ranked_by, searched, write_neighbors
    from .output import write_json, write_line

    metric = load(args.metric)
    folder = args.folder or f"{args.metric}.index"
    by = ranked_by(metric, args.by)
    with cluster.connected(args.scheduler):
        metric = searched(metric, args)
        if metric.rows is None and not Path(folder).exists():
            raise InputError(f"{args.metric!r} keeps no training rows to index; name their file with --among FILE")
        index = metric.index(k=args.k, recall=args.recall, by=by, path=folder)
        if args.data:
            table = read_for(metric, args.data, args)
            write_neighbors(args, metric, table, index.search(gathered(table.rows), k=args.k), by, index.recall)
            return
    facts = {"index": str(folder), "rows": index.cells.n, "cells": index.cells.cells.count, "recall": index.recall}
    if args.json:
        write_json(facts)
    else:
        write_line(f"{folder}: {index.cells.n} rows in {index.cells.cells.count} cells, recall {index.recall:.3f}")


INDEX = Command("index rows for fast neighbours under a metric, or search the index", f"{__name__}:run", _arguments)
