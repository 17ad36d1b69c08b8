"""The settings of ``metricforge learn``: typed options take precedence over a TOML file, which does over the defaults.

A file holds any of the command's long options by name, and the method's options in a table, or in a list as typed
(``option = ["tol=0.01"]``)::

    data = "wine.csv"
    label = "class"
    method = "name"
    [options]
    tol = 0.01

Its paths are relative to its folder.
"""

from __future__ import annotations

import csv
import tomllib
from argparse import Namespace
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputError, UnknownNameError
from ..files.untrusted import check_regular
from ..kernels.notation import parse_value
from ..tables.preparation import MISSING
from ..tables.preparing import Choices
from ..tables.table import STANDARD_INPUT, Dialect
from ..validation import nearest, one_of

if TYPE_CHECKING:
    from ..constraints import Constraint

PATHS = ("data", "out", "report")
LISTS = ("columns", "drop", "categories", "missing_values")
"""Settings that are several texts, mostly names of columns, separated by commas."""
OWN = ("method", "kernel", "rank", "seed")
"""Settings that look like an option of a method."""
INSIDE = {
    **dict.fromkeys((".svm", ".libsvm", ".svmlight"), "; the labels inside a LIBSVM file are --label label"),
    **dict.fromkeys((".fasta", ".fa", ".faa"), "; the headings of a FASTA file are --label id and --label description"),
}
"""Where to find hints inside the file of rows, by extension."""


@dataclass(frozen=True)
class Run:
    """The settings of one run of ``metricforge learn``.

    Attributes
    ----------
    flag, hint : str
        The kind of hint, by its option, and the value of the option: a column or a file.
    others
        The long options of the command.
    """

    data: str = ""
    flag: str = ""
    hint: str = ""
    method: str = "auto"
    kernel: str | None = None
    standardize: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    rank: str | int = "auto"
    seed: int = 0
    columns: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    id: str | None = None
    missing: str = "median"
    missing_values: tuple[str, ...] = ()
    sep: str | None = None
    encoding: str | None = None
    thousands: str | None = None
    folds: int | None = None
    out: str = ""
    report: str | None = None
    scheduler: str | None = None

    @property
    def choices(self) -> Choices:
        """What the run decides about the columns of its table."""
        dialect = Dialect(self.sep, self.encoding, self.thousands, self.missing_values)
        return Choices(self.columns, self.drop, self.categories, self.missing, dialect)

    @property
    def reads(self) -> tuple[str, ...]:
        """The files that the run reads, and the hint where it is a column."""
        return tuple(filter(None, (self.data, self.hint)))


def option_names() -> list[str]:
    """Return the settings that are not hints."""
    return [f.name for f in fields(Run) if f.name not in ("flag", "hint")]


def settings(typed: Mapping[str, Any], kinds: Mapping[str, type[Constraint]]) -> Run:
    """Return the settings of a run.

    Parameters
    ----------
    typed : mapping
        The long options; None where an option was not typed.
    kinds : mapping
        The kinds of hints by their flag.
    """
    given = {name: typed[name] for name in option_names() if typed.get(name) is not None}
    hints = {flag: value for flag in kinds if (value := typed.get(_attribute(flag))) is not None}
    if typed.get("option"):
        given["options"] = dict(_option(text) for text in typed["option"])
    if "rank" in given:
        given["rank"] = parse_value(given["rank"])
    for name in LISTS:
        if name in given:
            given[name] = tuple(column for text in given[name] for column in listed(text))
    stored = _stored(typed["config"], kinds) if typed.get("config") else {}
    stored_hints = {flag: stored.pop(flag) for flag in kinds if flag in stored}
    merged = {**stored, **given, "options": {**stored.get("options", {}), **given.get("options", {})}}
    return _checked(Run(**merged), {flag: value for flag, value in (hints or stored_hints).items() if value}, kinds)


def _checked(run: Run, hints: Mapping[str, str], kinds: Iterable[str]) -> Run:
    flags = ", ".join(f"--{flag}" for flag in kinds)
    if not run.data:
        raise InputError("data is missing: give a file of rows, for instance metricforge learn data.csv --label class")
    if not hints:
        inside = INSIDE.get(Path(run.data).suffix.lower(), "")
        raise InputError(f"the hint is missing: give one of {flags}{inside}")
    own = next((name for name in run.options if name in OWN), None)
    if own is not None:
        raise InputError(f"option {own!r} is not an option of the method; write --{own}")
    if len(hints) > 1:
        first, second = list(hints)[:2]
        raise InputError(f"--{first} and --{second} were both given; a metric is learned from one of {flags}")
    run = replace(run, flag=next(iter(hints)), hint=next(iter(hints.values())))
    one_of(run.missing, "--missing", list(MISSING))
    if run.id is not None and run.id == run.hint:
        raise InputError(f"--id and --{run.flag} both name the column {run.id!r}; an identifier is not a hint")
    return run if run.out else replace(run, out=_metric_name(run.data))


def _metric_name(data: str) -> str:
    """Return the name of the metric that is learned from a file."""
    if data == STANDARD_INPUT:
        return "stdin.metric"
    name = Path(data).name.removesuffix(".gz")
    return str(Path(name).with_suffix(".metric"))


def check_not_input(path: str, reads: Sequence[str]) -> None:
    """Raise if a file to be written is one that the command reads."""
    if Path(path).exists() and any(Path(read).exists() and Path(path).samefile(read) for read in reads):
        raise InputError(f"cannot write {path!r}: this run reads it; choose another name")


def _stored(path: str, kinds: Mapping[str, type[Constraint]]) -> dict[str, Any]:
    """Return the settings in a file, with paths relative to the current folder."""
    check_regular(Path(path))
    try:
        with Path(path).open("rb") as file:
            found = tomllib.load(file)
    except OSError as error:
        raise InputError(f"--config: cannot read {path!r}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"--config: {path!r} is not TOML: {error}") from None
    except RecursionError:
        raise InputError(f"--config: {path!r} is nested too deeply; settings are one table") from None
    own = option_names()
    found = {plain if (plain := _attribute(name)) in own else name: value for name, value in found.items()}
    for name in LISTS:
        if isinstance(found.get(name), list):
            found[name] = tuple(found[name])
    if isinstance(marks := found.get("missing_values"), tuple):  # which may be numbers
        found["missing_values"] = tuple(str(mark) if isinstance(mark, int | float) else mark for mark in marks)
    if "option" in found:
        typed, table = _options_of(found.pop("option"), path), found.get("options", {})
        found["options"] = {**typed, **table} if isinstance(table, dict) else table
    known = [*option_names(), *kinds]
    types: dict[str, Any] = {"options": dict, "rank": str | int, "seed": int, "folds": int, "standardize": bool}
    types |= dict.fromkeys(LISTS, tuple)
    for name, value in found.items():
        if name not in known:
            raise UnknownNameError(f"--config: {path!r} sets {name!r}, which is no setting; {nearest(name, known)}")
        right = isinstance(value, types.get(name, str)) and isinstance(value, bool) == (name == "standardize")
        if not right or (name in LISTS and not all(isinstance(column, str) for column in value)):
            raise InputError(f"--config: {path!r} sets {name} = {value!r}, which has the wrong type")
    folder = Path(path).parent

    def is_path(name: str) -> bool:
        hint = name in kinds and (not kinds[name].per_row or (folder / found[name]).is_file())
        return name in PATHS or hint

    return {name: str(folder / value) if is_path(name) else value for name, value in found.items()}


def dialect_of(args: Namespace) -> Dialect:
    """Return how the delimited files of a command are written."""
    return Dialect(args.sep, args.encoding, args.thousands)


def choices_of(args: Namespace) -> Choices:
    """Return what a command with the options of `metricforge.cli.commands.add_table` decides about columns."""
    columns, drop, categories, marks = (
        tuple(column for text in getattr(args, name) or () for column in listed(text)) for name in LISTS
    )
    missing = one_of(args.missing or Choices.missing, "--missing", list(MISSING))
    return Choices(columns, drop, categories, missing, replace(dialect_of(args), missing_values=marks))


def listed(text: str) -> list[str]:
    """Return the names in a text such as ``a,b``; a name that holds a comma is written in quotes."""
    return next(csv.reader([text], skipinitialspace=True), [""])


def _options_of(options: Any, path: str) -> dict[str, Any]:
    """Return the method's options of a file: a table, or texts as typed."""
    if isinstance(options, dict):
        return options
    texts = [options] if isinstance(options, str) else options
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise InputError(f'--config: {path!r} sets option = {options!r}; write option = ["name=value"] or a table')
    return dict(_option(text) for text in texts)


def _option(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise InputError(f"--option {text!r}: write NAME=VALUE, for instance --option nu=0.3")
    return name.strip(), parse_value(value)


def _attribute(flag: str) -> str:
    """Return the attribute in which argparse stores an option."""
    return flag.replace("-", "_")
