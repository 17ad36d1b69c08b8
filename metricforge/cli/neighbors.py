"""``metricforge neighbors``, and the neighbour search of other commands.

Every pair of rows is compared where that is quick.  Where it would take long, by the rule of
`metricforge.neighbors.choose`, rows are searched by cells: the command says so, with the recall that it measured.
"""

from __future__ import annotations

import logging
from argparse import Namespace
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import neighbors as _neighbors
from .. import rows as _rows
from ..errors import InputError
from ..metric import EXACT_NEIGHBORS, Metric
from ..registry.progress import progress
from ..tables.preparation import Origin
from ..tables.table import Table
from ..validation import number
from .apply import ids_of, loaded, origin_of, output, read_for

Array = NDArray[Any]

log = logging.getLogger(__name__)

PAYS = 4
"""Cells are used if they would pay for one in so many of the rows already: up to half a minute, all pairs are compared.
Where cells only just pay, the exact answer is worth the time."""


def neighbors(args: Namespace) -> None:
    """Find the nearest training rows and write one line for each neighbour, nearest first."""
    with loaded(args) as (metric, table):
        metric = searched(metric, args)
        if metric.rows is None:
            raise InputError(f"{args.metric!r} keeps no training rows to search; name their file with --among FILE")
        own = own_rows(metric, table, args) if args.exclude_self else None
        by = ranked_by(metric, args.by)
        method = search_for(metric, table.rows, args) if args.method == "auto" else args.method
        with progress(f"neighbors of {_rows.count(table.rows)} rows among {_rows.count(metric.rows)}"):
            found = metric.neighbors(table.rows, k=args.k + (own is not None), method=method, by=by)
            if own is not None:
                found = without_own(*found, own)
            if _rows.is_dask(found[0]):  # searched while they are written
                write_neighbors(args, metric, table, found, by, say_recall(method))
                return
        write_neighbors(args, metric, table, found, by, say_recall(method))


def searched(metric: Metric, args: Namespace) -> Metric:
    """Return a metric with the rows of ``--among`` in the place of its training rows, if they were given."""
    if not args.among:
        return metric
    among = read_for(metric, args.among, args)
    return replace(metric, rows=metric.kernel.check(among.rows, "--among"), origin=origin_of(among, args))


def own_rows(metric: Metric, table: Table, args: Namespace) -> Array:
    """Return the training row that each row of a table is: by identifier if both have one, else by its number."""
    origin, ids = metric.origin or Origin(), ids_of(table, args).get("id")
    n = _rows.count(metric.rows)
    if ids is not None and len(origin.ids):
        names, trained = [str(name) for name in ids.tolist()], origin.ids.tolist()
        if names == trained:  # the file that was learned from; its identifiers may repeat
            return np.arange(n)
        known = {name: i for i, name in enumerate(trained)}
        if len(known) < len(trained):
            twice = next(name for i, name in enumerate(trained) if known[name] != i)
            raise InputError(
                f"--exclude-self: {twice!r} names several training rows, so --id {args.id!r} does not tell which row "
                "is itself; learn with a column that has no repeats"
            )
        return np.array([known.get(name, -1) for name in names])
    numbers = origin.numbers_of(np.arange(n))
    if table.rows.shape[0] != n or not np.array_equal(numbers, table.row_numbers):
        raise InputError(
            f"--exclude-self: {args.data!r} has {table.rows.shape[0]} rows and the metric keeps {n}, so they are not "
            "the same rows; give the file that was learned from, or learn and search with --id"
        )
    return np.arange(n)


def without_own(indices: Any, distances: Any, own: Array) -> tuple[Array, Array]:
    """Return neighbours without the row itself; where it is not among them, the last one goes."""
    if _rows.is_dask(indices):
        raise InputError("--exclude-self works in memory; leave --scheduler out")
    itself = indices == own[:, None]
    itself[~itself.any(axis=1), -1] = True
    shape = len(indices), indices.shape[1] - 1
    return indices[~itself].reshape(shape), distances[~itself].reshape(shape)


class CommandSearch:
    """A search for `Metric.neighbors` that compares every pair of rows, or searches cells where that would take long.

    Parameters
    ----------
    wanted : float in (0, 1]
        The share of true neighbours to find; 1 compares every pair.

    Attributes
    ----------
    recall : float
        The share that the last search found, estimated on 200 rows; 1 if every pair was compared.
    """

    def __init__(self, wanted: float) -> None:
        self.wanted = wanted
        self.recall = 1.0

    def __call__(self, X: Any, k: int, *, queries: Any, seed: int = 0) -> tuple[Array, Array]:
        """Return the k nearest rows of each query; the parameters are those of `metricforge.neighbors.search`."""
        self.recall = 1.0
        part = queries[: max(1, queries.shape[0] // PAYS)]
        if _neighbors.choose(X, part, itself=True, recall=self.wanted) != "cells":
            return _neighbors.search(X, k, queries=queries, seed=seed)
        found = _neighbors.search(X, k, queries=queries, method="cells", recall=self.wanted, seed=seed)
        self.recall = _neighbors.recall(found[0], X, queries=queries, seed=seed)
        return found


def say_recall(method: CommandSearch | str) -> float | None:
    """Say that a search was approximate, if it was; return its recall, None if it is not known."""
    if not isinstance(method, CommandSearch):
        return None
    if method.recall < 1:
        log.warning(
            "approximate: about %.0f %% of the nearest rows were found; --recall 1 compares every pair of rows",
            100 * method.recall,
        )
    return method.recall


def search_for(metric: Metric, rows: Any, args: Namespace) -> CommandSearch | str:
    """Return the search of a command for the neighbours of some rows, as `Metric.neighbors` takes it."""
    wanted = number(args.recall, "--recall", above=0, most=1)
    if args.scheduler is not None or metric.rows is None:
        return "auto"
    exact = metric.embedding_is_exact
    if not exact and (_rows.count(metric.rows) * _rows.count(rows) <= EXACT_NEIGHBORS or not _embeds(metric)):
        return "auto"
    return CommandSearch(wanted)


def _embeds(metric: Metric) -> bool:
    """Return whether a metric has an embedding; that of an indefinite kernel has none."""
    try:
        return metric.embedding is not None
    except InputError:
        return False


def ranked_by(metric: Metric, typed: str | None) -> str:
    """Return what rows are ranked by: what was typed, or what the method of the metric declares."""
    return typed or str(metric.report.get("ranks_by", "distance"))


def write_neighbors(
    args: Namespace, metric: Metric, table: Table, found: tuple[Any, Any], by: str, recall: float | None = None
) -> None:
    """Write one line for each neighbour, nearest first, with its label and identifier where the metric has them."""
    indices, distances = found
    lines = neighbor_lines(indices, distances)
    columns = ("row", "place", "neighbor", by)
    values = "distances" if by == "distance" else "kernel"
    if _rows.is_dask(indices):
        output(args, columns, lines, {"indices": indices, values: distances})
        return
    origin = metric.origin or Origin()
    places = np.asarray(indices, dtype=np.int64)
    lines[:, 0] = np.repeat(table.row_numbers, places.shape[1])
    lines[:, 2] = origin.numbers_of(places.ravel())
    known = {"label": origin.labels_of(places), "neighbor_id": origin.ids_of(places)}
    about = {name: values for name, values in known.items() if values is not None}
    own = ids_of(table, args)
    texts = {name: np.repeat(ids, places.shape[1]) for name, ids in own.items()}
    texts |= {name: values.ravel() for name, values in about.items()}
    as_json = {"indices": origin.numbers_of(places), values: distances, **about, **own}
    if recall is not None:
        as_json["recall"] = recall
    output(args, columns, lines, as_json, texts)


def neighbor_lines(indices: Any, distances: Any) -> Any:
    """Return one line for each neighbour: row, place, neighbour, distance."""
    if not _rows.is_dask(indices):
        return _lines(indices, distances)
    chunks = tuple(size * indices.shape[1] for size in indices.chunks[0]), (4,)
    return indices.map_blocks(_lines, distances, chunks=chunks, dtype=np.float64, meta=np.empty((0, 0)))


def _lines(indices: Array, distances: Array, block_info: Any = None) -> Array:
    n, k = indices.shape
    first = block_info[0]["array-location"][0][0] if block_info else 0
    row, place = np.repeat(np.arange(first, first + n), k), np.tile(np.arange(1, k + 1), n)
    return np.column_stack([row, place, indices.ravel(), distances.ravel()])
