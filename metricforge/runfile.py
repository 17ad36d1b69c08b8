"""The settings of ``metricforge learn``: what was typed, over what a TOML file says, over the defaults.

A file holds any of the command's long options by name, and the method's options in a table (or in a list, as typed:
``option = ["bound=hinge"]``)::

    data = "wine.csv"
    label = "class"
    method = "kcr"
    [options]
    bound = "hinge"

Its paths are seen from its own folder.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from .errors import InputError, UnknownNameError, nearest
from .notation import parse_value

HINTS = ("label", "pairs", "triplets", "groups")
PATHS = ("data", "pairs", "triplets", "out", "report")
OWN = ("method", "kernel", "rank", "seed")
INSIDE = {
    **dict.fromkeys((".svm", ".libsvm", ".svmlight"), "; the labels inside a LIBSVM file are --label label"),
    **dict.fromkeys((".fasta", ".fa", ".faa"), "; the headings of a FASTA file are --label id and --label description"),
}
"""What is to be said of hints that lie in the file of rows."""


@dataclass(frozen=True)
class Run:
    """What one run of ``metricforge learn`` does; the fields are its long options."""

    data: str = ""
    label: str | None = None
    pairs: str | None = None
    triplets: str | None = None
    groups: str | None = None
    method: str = "auto"
    kernel: str | None = None
    standardize: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    rank: str | int = "auto"
    seed: int = 0
    drop: tuple[str, ...] = ()
    out: str = ""
    report: str | None = None
    scheduler: str | None = None

    @property
    def reads(self) -> tuple[str, ...]:
        """The files that the run reads."""
        named = (self.data, self.label, self.pairs, self.triplets, self.groups)
        return tuple(name for name in named if name)


def settings(typed: Mapping[str, Any]) -> Run:
    """Return the settings of a run; ``typed`` maps long options to what was given, None where nothing was."""
    given = {name: typed[name] for name in _names() if typed.get(name) is not None}
    if typed.get("option"):
        given["options"] = dict(_option(text) for text in typed["option"])
    if "rank" in given:
        given["rank"] = parse_value(given["rank"])
    if "drop" in given:
        given["drop"] = tuple(given["drop"])
    stored = _stored(typed["config"]) if typed.get("config") else {}
    if any(name in given for name in HINTS):
        stored = {name: value for name, value in stored.items() if name not in HINTS}
    merged = {**stored, **given, "options": {**stored.get("options", {}), **given.get("options", {})}}
    return _checked(Run(**merged))


def _checked(run: Run) -> Run:
    hints = [name for name in HINTS if getattr(run, name)]
    flags = ", ".join(f"--{name}" for name in HINTS)
    if not run.data:
        raise InputError("which rows? Give a file, for instance metricforge learn data.csv --label class")
    if not hints:
        inside = INSIDE.get(Path(run.data).suffix.lower(), "")
        raise InputError(f"what is known about likeness? Give one of {flags}{inside}")
    own = next((name for name in run.options if name in OWN), None)
    if own is not None:
        raise InputError(f"option {own!r} is none of the method's; write --{own}")
    if len(hints) > 1:
        raise InputError(f"--{hints[0]} and --{hints[1]} were both given; a metric is learned from one of {flags}")
    return run if run.out else replace(run, out=str(Path(Path(run.data).name).with_suffix(".metric")))


def _stored(path: str) -> dict[str, Any]:
    """Return the settings in a file, with paths made whole."""
    try:
        with Path(path).open("rb") as file:
            found = tomllib.load(file)
    except OSError as error:
        raise InputError(f"--config: cannot read {path!r}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"--config: {path!r} is no TOML: {error}") from None
    if isinstance(found.get("drop"), list):
        found["drop"] = tuple(found["drop"])
    if "option" in found:
        typed, table = _pairs_of(found.pop("option"), path), found.get("options", {})
        found["options"] = {**typed, **table} if isinstance(table, dict) else table
    kinds: dict[str, Any] = {"options": dict, "rank": str | int, "seed": int, "drop": tuple, "standardize": bool}
    for name, value in found.items():
        if name not in _names():
            raise UnknownNameError(f"--config: {path!r} sets {name!r}, which is no setting; {nearest(name, _names())}")
        right = isinstance(value, kinds.get(name, str)) and isinstance(value, bool) == (name == "standardize")
        if not right or (name == "drop" and not all(isinstance(column, str) for column in value)):
            raise InputError(f"--config: {path!r} sets {name} = {value!r}, which is of a wrong kind")
    beside = Path(path).parent
    files = {name for name in found if name in PATHS or (name in HINTS and (beside / found[name]).is_file())}
    return {name: str(beside / value) if name in files else value for name, value in found.items()}


def _pairs_of(options: Any, path: str) -> dict[str, Any]:
    """Return the options of a file as it may write them: a table, or what would be typed."""
    if isinstance(options, dict):
        return options
    words = [options] if isinstance(options, str) else options
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise InputError(f'--config: {path!r} sets option = {options!r}; write option = ["name=value"] or a table')
    return dict(_option(word) for word in words)


def _option(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise InputError(f"--option {text!r}: write NAME=VALUE, for instance --option nu=0.3")
    return name.strip(), parse_value(value)


def _names() -> list[str]:
    return [f.name for f in fields(Run)]
