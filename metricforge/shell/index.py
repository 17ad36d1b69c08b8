"""``metricforge index``: build the index of a saved metric's rows, or search it for the neighbours of new rows."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from .command import Command
from .commands import _output


def _arguments(parser: ArgumentParser) -> None:
    add = parser.add_argument
    add("metric", help="a metric that metricforge learn or metric.save wrote")
    add("data", nargs="?", help="rows whose neighbours to find (default: build the index only)")
    add("-k", type=int, default=10, help="how many neighbours (default: 10)")
    add("--recall", type=float, default=0.95, help="the share of true neighbours to find (default: 0.95)")
    add("--by", choices=("distance", "kernel"), default="distance", help="what to rank by (default: distance)")
    add("--among", metavar="FILE", help="rows to index (default: the training rows the metric keeps)")
    add("--folder", metavar="FOLDER", help="where the index is (default: the metric's name with .index)")
    _output(parser)


def run(args: Namespace) -> None:
    """Build or open the index, and search it if there are rows to search for."""
    from dataclasses import replace

    from ..metric import load
    from ..rows import cluster, gathered
    from .apply import NEIGHBOR_COLUMNS, neighbor_lines, output, read_for
    from .output import write_json, write_line

    metric = load(args.metric)
    folder = args.folder or f"{args.metric}.index"
    with cluster.connected(args.scheduler):
        if args.among:
            metric = replace(metric, rows=metric.kernel.check(read_for(metric, args.among, args).rows, "--among"))
        index = metric.index(k=args.k, recall=args.recall, by=args.by, path=folder)
        if args.data:
            rows = read_for(metric, args.data, args).rows
            indices, distances = index.search(gathered(rows), k=args.k)
            found = {"indices": indices, "distances": distances}
            output(args, NEIGHBOR_COLUMNS, neighbor_lines(indices, distances), found)
            return
    facts = {"index": str(folder), "rows": index.cells.n, "cells": index.cells.cells.count, "recall": index.recall}
    if args.json:
        write_json(facts)
    else:
        write_line(f"{folder}: {index.cells.n} rows in {index.cells.cells.count} cells, recall {index.recall:.3f}")


INDEX = Command("index rows for fast neighbours under a metric, or search the index", f"{__name__}:run", _arguments)
