"""What the commands do: learn, transform, neighbors, distance, plugins, datasets."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import cluster, files, plotting, report, storage, tables
from . import datasets as _datasets
from . import rows as _rows
from .cli import say, say_json
from .constraints import Chunklets, Constraint, Labels
from .errors import InputError
from .kernels import Kernel, Spectrum, Standardized
from .learning import find_method, learn_named, make_plan
from .metric import Metric, Report, load
from .notation import parse_kernel
from .registry import methods
from .registry import plugins as _plugins
from .relations import Held, held
from .runfile import Run, settings
from .space import check_memory

Array = NDArray[Any]

PAGES = (".html", ".htm")
"""What a report may be called."""
WIDE = 30
"""How many times as wide as the typical column one must spread to be worth a word."""


# -------------------------------------------------------------------------------------------------------------- learn


def learn(args: Namespace) -> None:
    """Learn a metric from rows and hints, save it, and say what it changed."""
    run = settings(vars(args))
    _check_outputs(run)  # before the work, so that it is not lost
    with cluster.connected(run.scheduler):
        table, hint = read_hint(run)
        start, metric = fit(run, table, hint)
        before, after = (held(one, table.rows, hint, seed=run.seed) for one in (start, metric))
        page = ""
        if run.report:
            page = report.html(metric, hint, X=table.rows, before=start, source=Path(run.data).name, command=args.typed)
        metric.save(run.out)
    if run.report:
        files.write(run.report, page.encode())
    (_tell_json if args.json else _tell)(run, hint, metric, before, after)


def fit(run: Run, table: tables.Table, hint: Constraint) -> tuple[Kernel, Metric]:
    """Return the kernel that a run starts from, and the metric it learns; its report names the columns."""
    kernel = parse_kernel(run.kernel) if run.kernel else None
    if kernel is None and table.holds_strings:
        kernel = Spectrum(3).normalized()  # the methods' own kernels are for vectors
    spread = _spread(table)
    if run.standardize:
        kernel = Standardized(kernel or make_plan(run.method, None, None, hint).kernel)
    metric = learn_named(
        table.rows,
        table.names,
        hint,
        method=run.method,
        kernel=kernel,
        rank=run.rank,
        seed=run.seed,
        options=dict(run.options),
    )
    start = kernel or find_method(metric.report.method).kernel
    told = Report({**metric.report, "notes": (*metric.report.notes, *_scale_note(table, spread, metric))})
    return start.resolve(metric.kernel.check(table.rows), seed=run.seed), replace(metric, report=told)


def _check_outputs(run: Run) -> None:
    for path in filter(None, (run.out, run.report)):
        files.check_writable(path)
        _check_not_read(path, run.reads)
    if run.report:
        if Path(run.report).suffix.lower() not in PAGES:
            raise InputError(
                f"--report {run.report!r}: it is an HTML page; give a name that ends in {' or '.join(PAGES)}"
            )
        plotting.check_installed()
        if Path(run.report).resolve() == Path(run.out).resolve():
            raise InputError(f"metric and report would both be {run.out!r}; choose two names")


def _check_not_read(path: str, reads: Sequence[str]) -> None:
    if Path(path).exists() and any(Path(read).exists() and Path(path).samefile(read) for read in reads):
        raise InputError(f"cannot write {path!r}: it is what this run reads; choose another name")


def read_hint(run: Run) -> tuple[tables.Table, Constraint]:
    """Read the rows of a run and what is known about their likeness."""
    column = run.label or run.groups
    inside = () if column is None or tables.is_table(column) else (column,)
    table = tables.read(run.data, aside=inside, drop=run.drop, lazy=run.scheduler is not None)
    n = table.rows.shape[0]
    if run.pairs:
        return table, tables.read_pairs(run.pairs, n)
    if run.triplets:
        return table, tables.read_triplets(run.triplets, n)
    assert column is not None
    values = table.aside[column] if inside else tables.read_column(column)
    if len(values) != n:
        raise InputError(
            f"{column!r} has {len(values)} values for the {n} rows of {run.data!r}; give one each, "
            "below a line that names the column"
        )
    return table, Labels(values) if run.label else Chunklets(values)


def _spread(table: tables.Table) -> Array | None:
    """Return how far every column of dense rows spreads; on disk this is the pass that looks at every cell."""
    if _rows.is_dask(table.rows):
        return _rows.moments(table.rows)[1]
    return table.rows.std(axis=0) if isinstance(table.rows, np.ndarray) and not table.holds_strings else None


def _scale_note(table: tables.Table, spread: Array | None, metric: Metric) -> tuple[str, ...]:
    """Return a sentence where a few wide columns decide every distance, and the method cannot mend that itself."""
    linear = metric.report.kernel == "Linear()"
    settled = metric.report.method == "lpdesign" or metric.report.kernel.startswith("Standardized")
    if settled or spread is None:
        return ()
    typical = float(np.median(spread))
    if (metric.report.method == "krca" and linear) or not typical or spread.max() <= WIDE * typical:
        return ()
    widest = table.names[int(spread.argmax())]
    return (
        f"column {widest!r} spreads {spread.max() / typical:.0f} times as wide as the typical one and decides most "
        "distances; if that is not meant, add --standardize, or let the metric find their scales "
        "(--method lpdesign, or --method krca --kernel linear --option epsilon=0)",
    )


def _tell(run: Run, hint: Constraint, metric: Metric, before: Sequence[Held], after: Sequence[Held]) -> None:
    told = metric.report
    width = f" of {report.some(metric.width, 'feature')}" if metric.width else ""
    say(f"learned by {told.method} from {report.describe(hint)} over {report.some(told.n, 'row')}{width}")
    steps = report.some(told.n_iter, "iteration")
    say(f"{told.status.replace('_', ' ')}: {report.certified(told)}; {steps}, {told.seconds:.2g} s")
    for note in (*told.converted, *told.notes):
        say(f"note: {note}")
    wide = max((len(h.what) for h in after), default=0)
    say(f"\n{'on the rows learned from':<{wide}}   before    after")
    for b, a in zip(before, after, strict=True):
        say(f"{a.what:<{wide}} {100 * b.share:>6.1f} % {100 * a.share:>6.1f} %")
    if advice := _advice(hint, metric, before, after):
        say(advice)
    say(f"\nmetric: {run.out}" + (f"\nreport: {run.report}" if run.report else ""))
    kept = "" if not _rows.is_dask(metric.rows) else f" --among {run.data} --scheduler {run.scheduler}"
    say(f"next:   metricforge neighbors {run.out} {run.data} -k 5{kept}")


def _advice(hint: Constraint, metric: Metric, before: Sequence[Held], after: Sequence[Held]) -> str:
    """Return a sentence on what to try where less holds after learning than before; "" elsewhere.

    For labels the nearest rows count, for other hints all relations: a common threshold trades one kind for the other.
    """
    kinds = slice(1) if isinstance(hint, Labels) else slice(None)
    if sum(h.share for h in after[kinds]) >= sum(h.share for h in before[kinds]):
        return ""
    told = metric.report
    others = ", ".join(entry.name for entry in methods() if entry.name not in (told.method, "euclidean"))
    tries = [f"another --method ({others})"] if others else []
    if metric.width and "Standardized" not in told.kernel:
        tries.insert(0, "--standardize if columns are on different scales")
    if options := ", ".join(f.name for f in fields(metric.solver)):  # type: ignore[arg-type]
        tries.append(f"an --option of {told.method} ({options})")
    return f"less holds after learning than before: try {', or '.join(tries)}"


def _tell_json(run: Run, hint: Constraint, metric: Metric, before: Sequence[Held], after: Sequence[Held]) -> None:
    pairs = zip(before, after, strict=True)
    say_json(
        {
            "metric": run.out,
            "page": run.report,
            "hint": report.describe(hint),
            "held": [{"what": a.what, "before": b.share, "after": a.share, "of": a.total} for b, a in pairs],
            "report": {name: value for name, value in metric.report.items() if name != "trace"},
        }
    )


# ------------------------------------------------------------------------------------------------- with a saved metric


def transform(args: Namespace) -> None:
    """Embed rows."""
    with _opened(args) as (metric, A):
        E = metric.transform(A)
        _put(args, [f"z{c + 1}" for c in range(E.shape[1])], E, {"rows": E})


def neighbors(args: Namespace) -> None:
    """Find the nearest training rows: one line for each neighbour, nearest first."""
    with _opened(args) as (metric, A):
        if args.among:
            metric = replace(metric, rows=metric.kernel.check(_rows_for(metric, args.among, args), "--among"))
        if metric.rows is None:
            raise InputError(f"{args.metric!r} keeps no training rows to search; name their file with --among FILE")
        indices, distances = metric.neighbors(A, k=args.k)
        lines = _neighbor_lines(indices, distances)
        _put(args, ["row", "place", "neighbor", "distance"], lines, {"indices": indices, "distances": distances})


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
    """Print distances: a matrix, or one a row."""
    with _opened(args) as (metric, A):
        if args.paired and args.other is None:
            raise InputError("--paired compares row by row: give a second file of rows")
        B = None if args.other is None else _rows_for(metric, args.other, args)
        if args.paired:
            D = metric.paired_distance(A, B)[:, None]
            _put(args, ["distance"], D, {"distances": D[:, 0]})
        else:
            D = metric.distance(A, B)
            _put(args, [str(c) for c in range(D.shape[1])], D, {"distances": D})


@contextmanager
def _opened(args: Namespace) -> Iterator[tuple[Metric, Any]]:
    if args.out:
        reads = (args.metric, args.data, getattr(args, "other", None), getattr(args, "among", None))
        _check_not_read(args.out, [name for name in reads if name])
        tables.check_output(args.out)
    metric = load(args.metric)
    with cluster.connected(args.scheduler):
        yield metric, _rows_for(metric, args.data, args)


def _rows_for(metric: Metric, path: str, args: Namespace) -> Any:
    """Read rows with the columns that a metric was learned on; with a scheduler leave them on disk where possible."""
    columns = metric.report.get("columns")
    return tables.read(path, only=columns or None, width=metric.width, lazy=args.scheduler is not None).rows


def _put(args: Namespace, columns: list[str], values: Any, as_json: dict[str, Any]) -> None:
    if args.out:
        _write(args.out, columns, values)
        shape = " × ".join(map(str, values.shape))
        (say_json({"written": args.out, "shape": values.shape}) if args.json else say(f"{args.out}: {shape}"))
    elif args.json:
        say_json({name: _in_memory(part) for name, part in as_json.items()})
    else:
        sys.stdout.writelines(tables.as_text(columns, _in_memory(values)))


def _write(path: str, columns: list[str], values: Any) -> None:
    """Write what was computed; the workers write what is lazy, where the kind of file lets them."""
    if _rows.is_dask(values) and Path(path).suffix.lower() in storage.STORED:
        storage.store(values, path, columns)
    else:
        tables.write(path, columns, _in_memory(values))


def _in_memory(values: Any) -> Any:
    if _rows.is_dask(values):
        what = f"{' × '.join(map(str, values.shape))} numbers as text"
        check_memory(values.nbytes, what, f"let the workers write them: -o with {', '.join(storage.STORED)}")
    return _rows.gathered(values)


# ------------------------------------------------------------------------------------------------- what there is


def plugins(args: Namespace) -> None:
    """List plugins, what each adds, and why one was refused."""
    found = _plugins()
    if args.json:
        say_json(
            [
                {
                    "name": p.name,
                    "distribution": p.distribution,
                    "version": p.version,
                    "error": p.error,
                    "entries": [
                        {"kind": e.kind, "name": e.name, "missing": e.missing, "install": e.install} for e in p.entries
                    ],
                }
                for p in found
            ]
        )
        return
    for plugin in found:
        say(f"{plugin.name} ({' '.join(filter(None, (plugin.distribution, plugin.version))) or 'registered here'})")
        for kind in dict.fromkeys(e.kind for e in plugin.entries):
            say(f"  {kind:<12} {', '.join(e.name for e in plugin.entries if e.kind == kind)}")
        for entry in plugin.entries:
            if entry.missing:
                say(f"  {entry.kind} {entry.name} needs {', '.join(entry.missing)}: {entry.install}")
        if plugin.error:
            say(f"  {plugin.error}")


def datasets(args: Namespace) -> None:
    """List the data sets, tell about one, or write one to a file."""
    if args.out and not args.name:
        raise InputError("-o writes one data set: name it, for instance metricforge datasets wine -o wine.csv")
    if args.name and args.out:
        _write_dataset(args)
        return
    known = {entry.name: entry for entry in _datasets.table()}
    if args.name and args.name not in known:
        _datasets.load(args.name)  # raises, with the nearest name
    shown = [known[args.name]] if args.name else list(known.values())
    if args.json:
        say_json([asdict(entry) for entry in shown])
        return
    wide = max(len(e.name) for e in shown)
    say(f"{'name':<{wide}} {'rows':>6} {'features':>8} {'classes':>7}  {'where':<9}  what")
    for e in shown:
        place = e.kind if e.kind != "file" else ("here" if e.available else "to fetch")
        say(f"{e.name:<{wide}} {e.n:>6} {'-' if e.d is None else e.d:>8} {e.classes:>7}  {place:<9}  {e.description}")


def _write_dataset(args: Namespace) -> None:
    if Path(args.out).suffix.lower() not in (".csv", ".tsv"):
        raise InputError(f"cannot write {args.out!r}: its extension must be .csv or .tsv, to hold rows and labels")
    tables.check_output(args.out)
    X, y = _datasets.load(args.name)
    if isinstance(X, list):
        raise InputError(f"data set {args.name!r} holds strings, not numbers; load it with mf.datasets.load")
    X = X.toarray() if hasattr(X, "toarray") else X
    columns = [*(f"x{c + 1}" for c in range(X.shape[1])), "class"]
    tables.write(args.out, columns, np.column_stack([X, y]))
    say_json({"written": args.out}) if args.json else say(f"{args.out}: {len(X)} rows, labels in the column class")
