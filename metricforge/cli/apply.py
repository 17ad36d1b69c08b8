"""``metricforge transform`` and ``distance``, and what commands with a saved metric read and write."""

from __future__ import annotations

import logging
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from .. import rows as _rows
from ..distributed import cluster, storage
from ..errors import InputError
from ..metric import Metric, load
from ..space import check_memory
from ..tables import Table, as_text, check_output, read, read_again, write
from ..tables.preparation import Origin
from .output import write_json, write_line
from .settings import check_not_input, dialect_of

Array = NDArray[Any]

log = logging.getLogger(__name__)


def transform(args: Namespace) -> None:
    """Embed rows."""
    with loaded(args) as (metric, table):
        E = metric.transform(table.rows)
        names = row_names(table, args)
        output(args, [f"z{c + 1}" for c in range(E.shape[1])], E, {"rows": E} | names, names)


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
        only = metric.columns or None
        table = read(path, extra=wanted, only=only, width=metric.width, lazy=lazy, dialect=dialect)
    else:
        table = read_again(path, preparation, extra=wanted, dialect=dialect)
    _rows.hold(table.nbytes)
    for note in table.notes:
        log.warning("%s: %s", path, note)
    return table


def origin_of(table: Table, args: Namespace) -> Origin:
    """Return what is known of the rows of a table that are searched: their numbers and identifiers."""
    return Origin.of(None, kept=table.kept, identifiers=(args.id, table.extra[args.id]) if args.id else None)


def ids_of(table: Table, args: Namespace) -> dict[str, Array]:
    """Return the identifiers of the rows, where a column of them was named."""
    return {"id": table.extra[args.id]} if args.id else {}


def row_names(table: Table, args: Namespace) -> dict[str, Array]:
    """Return what tells rows apart: their identifiers, and their numbers if some were dropped."""
    numbers = {} if table.kept is None else {"row": table.kept}
    return numbers | ids_of(table, args)


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
        sys.stdout.writelines(as_text(columns, _in_memory(values), texts))


def _write(path: str, columns: Sequence[str], values: Any, texts: Mapping[str, Array]) -> None:
    """Write a result; the workers write a lazy one if the format allows it."""
    suffix = Path(path).suffix.lower()
    if _rows.is_dask(values) and suffix in storage.STORED:
        storage.store(values, path, columns)
    else:
        write(path, columns, _in_memory(values), texts)


def _in_memory(values: Any) -> Any:
    if _rows.is_dask(values):
        what = f"{' × '.join(map(str, values.shape))} numbers as text"
        check_memory(values.nbytes, what, f"let the workers write them: -o with {', '.join(storage.STORED)}")
    return _rows.gathered(values)
