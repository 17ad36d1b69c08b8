"""``metricforge transform``, ``neighbors`` and ``distance``: apply a saved metric to rows of a file."""

from __future__ import annotations

import logging
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import rows as _rows
from ..errors import InputError
from ..files import Table, as_text, check_output, read, read_again, storage, write
from ..files.origin import Origin
from ..metric import Metric, load
from ..rows import cluster
from ..space import check_memory
from .output import write_json, write_line
from .settings import check_not_input, dialect_of

Array = NDArray[Any]

log = logging.getLogger(__name__)

NEIGHBOR_COLUMNS = ("row", "place", "neighbor", "distance")


def transform(args: Namespace) -> None:
    """Embed rows."""
    with loaded(args) as (metric, table):
        E = metric.transform(table.rows)
        names = row_names(table, args)
        output(args, [f"z{c + 1}" for c in range(E.shape[1])], E, {"rows": E} | names, names)


def neighbors(args: Namespace) -> None:
    """Find the nearest training rows and write one line for each neighbour, nearest first."""
    with loaded(args) as (metric, table):
        among = None
        if args.among:
            among = read_for(metric, args.among, args)
            metric = replace(metric, rows=metric.kernel.check(among.rows, "--among"), origin=_origin_of(among, args))
        if metric.rows is None:
            raise InputError(f"{args.metric!r} keeps no training rows to search; name their file with --among FILE")
        own = own_rows(metric, table, args) if args.exclude_self else None
        indices, distances = found = metric.neighbors(table.rows, k=args.k + (own is not None), method=args.method)
        if own is not None:
            indices, distances = without_own(*found, own)
        lines = neighbor_lines(indices, distances)
        if _rows.is_dask(indices):
            output(args, NEIGHBOR_COLUMNS, lines, {"indices": indices, "distances": distances})
            return
        origin = metric.origin or Origin()
        places = np.asarray(indices, dtype=np.int64)
        lines[:, 0] = np.repeat(table.row_numbers, places.shape[1])
        lines[:, 2] = origin.numbers_of(places.ravel())
        known = {"label": origin.labels_of(places), "neighbor_id": origin.ids_of(places)}
        about = {name: values for name, values in known.items() if values is not None}
        names = {name: np.repeat(values, places.shape[1]) for name, values in _ids(table, args).items()}
        texts = names | {name: values.ravel() for name, values in about.items()}
        as_json = {"indices": origin.numbers_of(places), "distances": distances, **about, **_ids(table, args)}
        output(args, NEIGHBOR_COLUMNS, lines, as_json, texts)


def own_rows(metric: Metric, table: Table, args: Namespace) -> Array:
    """Return the training row that each row of a table is: by identifier if both have one, else by its number."""
    origin, ids = metric.origin or Origin(), _ids(table, args).get("id")
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


def distance(args: Namespace) -> None:
    """Write distances: a matrix, or one per row."""
    with loaded(args) as (metric, table):
        if args.paired and args.other is None:
            raise InputError("--paired compares row by row: give a second file of rows")
        B = None if args.other is None else read_for(metric, args.other, args).rows
        if args.paired:
            D = metric.paired_distance(table.rows, B)[:, None]
            output(args, ["distance"], D, {"distances": D[:, 0]})
        else:
            D = metric.distance(table.rows, B)
            output(args, [str(c) for c in range(D.shape[1])], D, {"distances": D})


# ------------------------------------------------------------------------------------------------- reading and writing


@contextmanager
def loaded(args: Namespace) -> Iterator[tuple[Metric, Table]]:
    """Load the metric and read the rows of a command."""
    if args.out:
        reads = (args.metric, args.data, getattr(args, "other", None), getattr(args, "among", None))
        check_not_input(args.out, [name for name in reads if name])
        check_output(args.out)
    metric = load(args.metric)
    with cluster.connected(args.scheduler):
        yield metric, read_for(metric, args.data, args)


def read_for(metric: Metric, path: str, args: Namespace, extra: Sequence[str] = ()) -> Table:
    """Read rows as those that a metric was learned from; with a scheduler, leave them on disk if possible."""
    dialect = dialect_of(args)
    wanted = [*extra, *([args.id] if args.id else [])]
    lazy = args.scheduler is not None
    preparation = None if metric.origin is None else metric.origin.preparation
    if preparation is None or lazy:
        return read(path, extra=wanted, only=metric.columns or None, width=metric.width, lazy=lazy, dialect=dialect)
    table = read_again(path, preparation, extra=wanted, dialect=dialect)
    for note in table.notes:
        log.warning("%s: %s", path, note)
    return table


def _origin_of(table: Table, args: Namespace) -> Origin:
    return Origin.of(None, kept=table.kept, identifiers=(args.id, table.extra[args.id]) if args.id else None)


def _ids(table: Table, args: Namespace) -> dict[str, Array]:
    """Return the identifiers of the rows, where a column of them was named."""
    return {"id": table.extra[args.id]} if args.id else {}


def row_names(table: Table, args: Namespace) -> dict[str, Array]:
    """Return what tells rows apart: their identifiers, and their numbers if some were dropped."""
    numbers = {} if table.kept is None else {"row": table.kept}
    return numbers | _ids(table, args)


def output(
    args: Namespace,
    columns: Sequence[str],
    values: Any,
    as_json: Mapping[str, Any],
    texts: Mapping[str, Array] | None = None,
) -> None:
    """Write a result to a file or to standard output.

    Parameters
    ----------
    args : Namespace
    columns, values
        The numbers and their names.
    as_json : mapping
        What ``--json`` prints.
    texts : mapping, optional
        Further columns that may hold text: only delimited text has them.
    """
    if args.out:
        _write(args.out, columns, values, texts or {})
        if args.json:
            write_json({"written": args.out, "shape": values.shape})
        else:
            write_line(f"{args.out}: {' × '.join(map(str, values.shape))}")
    elif args.json:
        write_json({name: _in_memory(part) for name, part in as_json.items()})
    else:
        sys.stdout.writelines(as_text([*columns, *(texts or ())], _with_texts(_in_memory(values), texts)))


def _with_texts(values: Array, texts: Mapping[str, Array] | None) -> Array:
    if not texts:
        return values
    parts = [np.asarray(values, dtype=object), *(np.asarray(part, dtype=object)[:, None] for part in texts.values())]
    return np.concatenate(parts, axis=1)


def _write(path: str, columns: Sequence[str], values: Any, texts: Mapping[str, Array]) -> None:
    """Write a result; the workers write a lazy one if the format allows it."""
    suffix = Path(path).suffix.lower()
    if _rows.is_dask(values) and suffix in storage.STORED:
        storage.store(values, path, columns)
    elif suffix in storage.STORED:
        write(path, columns, _in_memory(values))
    else:
        write(path, [*columns, *texts], _with_texts(_in_memory(values), texts))


def _in_memory(values: Any) -> Any:
    if _rows.is_dask(values):
        what = f"{' × '.join(map(str, values.shape))} numbers as text"
        check_memory(values.nbytes, what, f"let the workers write them: -o with {', '.join(storage.STORED)}")
    return _rows.gathered(values)
