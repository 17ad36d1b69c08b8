"""The command line: what can be typed, and what happens when it goes wrong.

Bad input is one sentence on standard error and exit code 2, an interrupted run exits with 130, a fault in metricforge
or in a plugin with 1; tracebacks are for ``--debug``.  What the commands do is in `metricforge.commands` and
`metricforge.demo`, imported once it is known which one was asked for: ``metricforge --help`` loads neither NumPy nor
anything heavier.
"""

from __future__ import annotations

import argparse
import logging
import os
import shlex
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, NoReturn

from . import __version__
from .errors import InputError


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words
    try:
        args, beyond = make_parser().parse_known_args(words)
        if beyond:
            raise InputError(f"unrecognized arguments: {shlex.join(beyond)}; see metricforge {args.command} --help")
        args.typed = shlex.join(["metricforge", *words])
        logging.basicConfig(level=logging.WARNING, format="metricforge: %(message)s")
        module, _, function = args.run.partition(":")
        with _plain_warnings():
            getattr(import_module(f".{module}", __package__), function)(args)
            sys.stdout.flush()
    except KeyboardInterrupt:
        return _end("interrupted; nothing is left half-written", 130, debug)
    except InputError as error:
        return _end(str(error), 2, debug)
    except BrokenPipeError:
        # whoever read our output has seen enough; Python would complain once more when it closes the stream
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:
        told = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
        return _end(f"a fault, not your input: {told}{notes}; run again with --debug to see where", 1, debug)
    return 0


def _end(sentence: str, code: int, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    sys.stderr.write(f"metricforge: {' '.join(sentence.split())}\n")
    return code


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Print a warning as one line that a user can read, without the file it was raised in."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        sys.stderr.write(f"metricforge: {' '.join(str(message).split())}\n")

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


# ------------------------------------------------------------------------------------------------- what can be typed


@dataclass(frozen=True)
class Command:
    """One word after ``metricforge``: its help, its arguments, and the function that runs it (``module:name``)."""

    name: str
    help: str
    arguments: Callable[[argparse.ArgumentParser], None]
    run: str


class _Parser(argparse.ArgumentParser):
    """Ends on wrong arguments as on any other bad input: with one sentence."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}; see {self.prog} --help")


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = _Parser(
        prog="metricforge",
        description="Turn hints about likeness into a distance.",
        formatter_class=lambda prog: argparse.HelpFormatter(prog, max_help_position=14),
    )
    parser.add_argument("--version", action="version", version=f"metricforge {__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    inside = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        sub = inside.add_parser(
            command.name, help=command.help, description=f"{command.help[0].upper()}{command.help[1:]}."
        )
        command.arguments(sub)
        sub.add_argument("--json", action="store_true", help="print JSON, for a script to read")
        sub.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="show the traceback of errors")
        sub.set_defaults(run=command.run)
    return parser


def _demo(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", metavar="FOLDER", default="demo", help="where report and picture go (default: demo)")


def _learn(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("data", nargs="?", help="rows: .csv, .tsv, .parquet, .npy, .zarr, .npz (sparse), .svm (LIBSVM) or .fasta")
    hints = parser.add_argument_group("hints (one of them)")
    hints.add_argument("--label", metavar="COLUMN", help="the column with a class per row, or a file of one column")
    hints.add_argument("--pairs", metavar="FILE", help="columns i, j, similar (1 or 0); rows are counted from 0")
    hints.add_argument("--triplets", metavar="FILE", help="columns i, j, k: row i is more like j than like k")
    hints.add_argument("--groups", metavar="COLUMN", help="the column with a group per row, -1 or empty for none")
    add("--method", help="see metricforge plugins (default: auto, by the kind of hint)")
    add("--kernel", help="to start from, such as rbf or 'rbf(gamma=0.5)' (default: the method's own)")
    add("--standardize", action="store_true", default=None, help="bring every column to mean 0 and spread 1 first")
    add("--option", metavar="NAME=VALUE", action="append", help="an option of the method; may be repeated")
    add("--rank", help="auto, exact or a number (default: auto)")
    add("--seed", type=int, help="same seed, same answer (default: 0)")
    add("--drop", metavar="COLUMN", action="append", help="a column to leave out; may be repeated")
    add("-o", "--out", metavar="FILE", help="the metric (default: the data's name with .metric)")
    add("--report", metavar="FILE", help="write a page on what was learned, as .html")
    _cluster(parser)
    add("--config", metavar="FILE", help="a TOML file with any of these settings; what is typed wins")


def _cluster(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="run on this dask scheduler, such as tcp://host:8786; its workers read .npy, .parquet and .zarr files",
    )


def _saved(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("metric", help="a metric that metricforge learn or metric.save wrote")
    parser.add_argument("data", help="rows, with the columns the metric was learned on; others are ignored")


def _transform(parser: argparse.ArgumentParser) -> None:
    _saved(parser)
    _output(parser)


def _neighbors(parser: argparse.ArgumentParser) -> None:
    _saved(parser)
    parser.add_argument("-k", type=int, default=10, help="how many (default: 10)")
    parser.add_argument("--among", metavar="FILE", help="rows to search (default: the training rows the metric keeps)")
    _output(parser)


def _distance(parser: argparse.ArgumentParser) -> None:
    _saved(parser)
    parser.add_argument("other", nargs="?", help="rows to compare with (default: the same)")
    parser.add_argument("--paired", action="store_true", help="row by row instead of all with all")
    _output(parser)


def _output(parser: argparse.ArgumentParser) -> None:
    kinds = ".csv, .tsv, .npy, .parquet or .zarr"
    parser.add_argument("-o", "--out", metavar="FILE", help=f"{kinds} (default: CSV to standard output)")
    _cluster(parser)


def _plugins(parser: argparse.ArgumentParser) -> None:
    """Take no arguments."""


def _datasets(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="tell about this one only")
    parser.add_argument("-o", "--out", metavar="FILE", help="write it as .csv, with its labels in the column class")


def _reproduce(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("paper", nargs="?", help="idealized, kcr, krca, lpdesign, simplenpkl or all (default: list what there is)")
    add("name", nargs="?", help="such as table4 or figure1 (default: all of the paper)")
    add("--repeats", type=int, metavar="N", help="how often (default: what the list says)")
    add("--seed", type=int, default=0, help="same seed, same numbers, times aside (default: 0)")
    add("--quick", action="store_true", help="few rows and repeats, to see that it runs; without a paper: everything")
    add("--peers", action="store_true", help="run methods of metric-learn too, in an environment made for them")
    add("--out", metavar="FOLDER", help="where Markdown, JSON and pictures go (default: results; --quick: nowhere)")


COMMANDS: tuple[Command, ...] = (
    Command("demo", "learn metrics on small data and show what they change", _demo, "demo:run"),
    Command("learn", "learn a metric from rows and hints about their likeness", _learn, "commands:learn"),
    Command("transform", "embed rows so that Euclidean distances are the metric's", _transform, "commands:transform"),
    Command("neighbors", "find the nearest training rows of each row", _neighbors, "commands:neighbors"),
    Command("distance", "print the distances between rows", _distance, "commands:distance"),
    Command("plugins", "list what is installed, and what failed to load and why", _plugins, "commands:plugins"),
    Command("datasets", "list the data sets that can be loaded by name", _datasets, "commands:datasets"),
    Command("reproduce", "recompute tables and figures of the papers", _reproduce, "reproduce.command:run"),
)
"""Every command there is; a further one is a line here, a function for its arguments and a function that runs it."""


def say(line: str = "") -> None:
    """Write a line to standard output."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def say_json(value: Any) -> None:
    """Write a value as one line of JSON."""
    import json

    say(json.dumps(value, allow_nan=False, default=_plain))


def _plain(value: Any) -> Any:
    """Return what NumPy holds as what JSON knows."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return str(value)
