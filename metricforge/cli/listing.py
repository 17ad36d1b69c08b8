"""``metricforge plugins`` and ``datasets``: list what is installed and which data sets there are."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict
from pathlib import Path

import numpy as np

from .. import datasets as _datasets
from ..errors import InputError
from ..registry import plugins as _plugins
from ..tables.writing import check_output, write
from .output import write_json, write_line


def plugins(args: Namespace) -> None:
    """List plugins with what each adds, or why it was refused."""
    found = _plugins()
    if args.json:
        write_json(
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
        write_line(
            f"{plugin.name} ({' '.join(filter(None, (plugin.distribution, plugin.version))) or 'registered here'})"
        )
        for kind in dict.fromkeys(e.kind for e in plugin.entries):
            write_line(f"  {kind:<12} {', '.join(e.name for e in plugin.entries if e.kind == kind)}")
        for entry in plugin.entries:
            if entry.missing:
                write_line(f"  {entry.kind} {entry.name} needs {', '.join(entry.missing)}: {entry.install}")
        if plugin.error:
            write_line(f"  {plugin.error}")


def datasets(args: Namespace) -> None:
    """List the data sets, describe one, or write one to a file."""
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
        write_json([asdict(entry) for entry in shown])
        return
    wide = max(len(e.name) for e in shown)
    write_line(f"{'name':<{wide}} {'rows':>6} {'features':>8} {'classes':>7}  {'where':<9}  what")
    for e in shown:
        place = e.kind if e.kind != "file" else ("here" if e.available else "to fetch")
        write_line(
            f"{e.name:<{wide}} {e.n:>6} {'-' if e.d is None else e.d:>8} {e.classes:>7}  {place:<9}  {e.description}"
        )


def _write_dataset(args: Namespace) -> None:
    if Path(args.out).suffix.lower() not in (".csv", ".tsv"):
        raise InputError(f"cannot write {args.out!r}: its extension must be .csv or .tsv, to hold rows and labels")
    check_output(args.out)
    X, y = _datasets.load(args.name)
    if isinstance(X, list):
        raise InputError(f"data set {args.name!r} holds strings, not numbers; load it with mf.datasets.load")
    X = X.toarray() if hasattr(X, "toarray") else X
    columns = [*(f"x{c + 1}" for c in range(X.shape[1])), "class"]
    write(args.out, columns, np.column_stack([X, y]))
    write_json({"written": args.out}) if args.json else write_line(
        f"{args.out}: {len(X)} rows, labels in the column class"
    )
