"""The hints of ``metricforge learn``: one option for each registered constraint with a ``flag``."""

from __future__ import annotations

import logging
import re
from argparse import ArgumentParser
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from ..constraints import Constraint
from ..errors import InputError
from ..registry import Entry, registry
from ..rows import hold
from ..tables.formats import all_columns, existing, is_table, read_column, read_relations
from ..tables.preparing import read_prepared
from ..tables.table import Dialect, Table
from ..validation import nearest
from .settings import Run, option_names

Array = NDArray[Any]

log = logging.getLogger(__name__)

Kinds = Mapping[str, type[Constraint]]
"""Kinds of constraints by their flag."""
OTHERS = ("option", "config", "help", "json", "debug", "sample", "by", "clusters")
"""Options, besides those of a run, of commands that read hints."""
_FLAG = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


def hint_kinds() -> dict[str, type[Constraint]]:
    """Return the registered constraints that have a flag, in the order of their registration.

    A constraint that cannot be loaded, or whose flag is taken, is left out with a warning.
    """
    found: dict[str, type[Constraint]] = {}
    for plugin in registry.plugins():
        for entry in plugin.entries:
            if entry.kind == "constraint" and not entry.missing:
                kind = _loaded(entry)
                if kind is not None and kind.flag is not None and _is_free(kind.flag, found, entry):
                    found[kind.flag] = kind
    return found


def _loaded(entry: Entry) -> type[Constraint] | None:
    try:
        kind = entry.load()
    except Exception as error:  # a plugin must not take the other hints away
        log.warning("constraint %r of plugin %r cannot be loaded: %s", entry.name, entry.plugin, error)
        return None
    return kind if isinstance(kind, type) and issubclass(kind, Constraint) else None


def _is_free(flag: str, found: Kinds, entry: Entry) -> bool:
    taken = {*option_names(), *found, *OTHERS}
    if flag in taken or not _FLAG.fullmatch(flag):
        why = "is taken" if flag in taken else "is not an option of lower-case letters, digits and hyphens"
        log.warning("constraint %r of plugin %r cannot be read: --%s %s", entry.name, entry.plugin, flag, why)
        return False
    return True


def add_flags(parser: ArgumentParser, *, required: bool = True) -> None:
    """Add an option for every kind of hint."""
    group = parser.add_argument_group(f"hints ({'one' if required else 'at most one'} of them)")
    for flag, kind in hint_kinds().items():
        metavar = "COLUMN" if kind.per_row else "FILE"
        group.add_argument(f"--{flag}", metavar=metavar, help=kind.flag_help.replace("%", "%%"))


def _column(data: str, name: str, dialect: Dialect) -> Array:
    """Return a column of the data by name."""
    columns = all_columns(existing(data), dialect)
    if name not in columns:
        raise InputError(
            f"{data!r} has no column {name!r}, by which the hint names rows; {nearest(name, list(columns))}"
        )
    return columns[name]


def read_hint(run: Run, kinds: Kinds) -> tuple[Table, Constraint]:
    """Read the rows of a run and its hint."""
    kind, source = kinds[run.flag], run.hint
    in_data = kind.per_row and not is_table(source)
    flags = [f"--{flag}" for flag, other in kinds.items() if other.per_row] if in_data else []
    extra = [name for name in (source if in_data else None, run.id) if name is not None]
    table = read_prepared(run.data, run.choices, extra=extra, flags=flags, lazy=run.scheduler is not None)
    hold(table.nbytes)
    if in_data:
        return table, kind.from_table({kind.table_columns[0]: table.extra[source]}, table.rows.shape[0])
    hint = hint_from_file(kind, source, table.total or table.rows.shape[0], run.data, run.choices.dialect)
    return table, hint if table.kept is None else hint[table.kept]


def hint_from_file(kind: type[Constraint], source: str, n: int, data: str, dialect: Dialect) -> Constraint:
    """Read a hint about the n rows of a file of data, written in some dialect, from a file of its own."""
    if kind.own_format:
        return kind.from_file(source, n, lambda name: _column(data, name, dialect))
    if not kind.per_row or len(kind.table_columns) > 1:
        return read_relations(source, kind, n)
    values = read_column(source)
    if len(values) != n:
        raise InputError(
            f"{source!r} has {len(values)} values for the {n} rows of {data!r}; give one each, "
            "below a line that names the column"
        )
    return kind.from_table({kind.table_columns[0]: values}, n)
