"""``metricforge transform``, ``neighbors`` and ``distance``: apply a saved metric to rows of a file."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import rows as _rows
from ..errors import InputError
from ..files import as_text, check_output, read, storage, write
from ..metric import Metric, load
from ..rows import cluster
from ..space import check_memory
from .output import write_json, write_line
from .settings import check_not_input

Array = NDArray[Any]


def transform(args: Namespace) -> None:
    """Embed rows."""
    with _loaded(args) as (metric, A):
        E = metric.transform(A)
        _output(args, [f"z{c + 1}" for c in range(E.shape[1])], E, {"rows": E})


def neighbors(args: Namespace) -> None:
    """Find the nearest training rows and write one line for each neighbour, nearest first."""
    with _loaded(args) as (metric, A):
        if args.among:
            metric = replace(metric, rows=metric.kernel.check(_rows_for(metric, args.among, args), "--among"))
        if metric.rows is None:
            raise InputError(f"{args.metric!r} keeps no training rows to search; name their file with --among FILE")
        indices, distances = metric.neighbors(A, k=args.k, method=args.method)
        lines = _neighbor_lines(indices, distances)
        _output(args, ["row", "place", "neighbor", "distance"], lines, {"indices": indices, "distances": distances})


def _neighbor_lines(indices: Any, distances: Any) -> Any:
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
    with _loaded(args) as (metric, A):
        if args.paired and args.other is None:
            raise InputError("--paired compares row by row: give a second file of rows")
        B = None if args.other is None else _rows_for(metric, args.other, args)
        if args.paired:
            D = metric.paired_distance(A, B)[:, None]
            _output(args, ["distance"], D, {"distances": D[:, 0]})
        else:
            D = metric.distance(A, B)
            _output(args, [str(c) for c in range(D.shape[1])], D, {"distances": D})


@contextmanager
def _loaded(args: Namespace) -> Iterator[tuple[Metric, Any]]:
    if args.out:
        reads = (args.metric, args.data, getattr(args, "other", None), getattr(args, "among", None))
        check_not_input(args.out, [name for name in reads if name])
        check_output(args.out)
    metric = load(args.metric)
    with cluster.connected(args.scheduler):
        yield metric, _rows_for(metric, args.data, args)


def _rows_for(metric: Metric, path: str, args: Namespace) -> Any:
    """Read rows with the columns that a metric was learned on; with a scheduler, leave them on disk if possible."""
    return read(path, only=metric.columns or None, width=metric.width, lazy=args.scheduler is not None).rows


def _output(args: Namespace, columns: list[str], values: Any, as_json: dict[str, Any]) -> None:
    if args.out:
        _write(args.out, columns, values)
        if args.json:
            write_json({"written": args.out, "shape": values.shape})
        else:
            write_line(f"{args.out}: {' × '.join(map(str, values.shape))}")
    elif args.json:
        write_json({name: _in_memory(part) for name, part in as_json.items()})
    else:
        sys.stdout.writelines(as_text(columns, _in_memory(values)))


def _write(path: str, columns: list[str], values: Any) -> None:
    """Write a result; the workers write a lazy one if the format allows it."""
    if _rows.is_dask(values) and Path(path).suffix.lower() in storage.STORED:
        storage.store(values, path, columns)
    else:
        write(path, columns, _in_memory(values))


def _in_memory(values: Any) -> Any:
    if _rows.is_dask(values):
        what = f"{' × '.join(map(str, values.shape))} numbers as text"
        check_memory(values.nbytes, what, f"let the workers write them: -o with {', '.join(storage.STORED)}")
    return _rows.gathered(values)
