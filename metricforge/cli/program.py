"""The entry point of the command line: the parser, and what happens when a command fails.

Bad input, or too little memory for it, is one sentence on standard error and exit code 2.  A run that is stopped by a
signal removes its temporary files and exits with 130 (SIGINT), 143 (SIGTERM) or 129 (SIGHUP).  A fault in metricforge
or in a plugin exits with 1.  ``--debug`` adds the traceback.

Commands are entries of the registry.  Only the module of the command that was typed is imported:
``metricforge --help`` loads neither NumPy nor anything heavier, and a command that cannot be loaded does not affect
the others.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import shlex
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import copy_context
from typing import Any, NoReturn

from .. import __version__
from ..errors import InputError, PluginError, UnknownNameError
from ..registry import Entry, progress, registry
from .command import Command

DISTRIBUTIONS = {"reproduce": "metricforge-papers"}
"""Commands of the project that a distribution of its own has."""
_NEGATIVE = re.compile(r"-[.0-9]")
"""The beginning of a negative number; no option begins so."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in words
    handler = _BelowTheBar()
    handler.setFormatter(_OneLine("metricforge: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    try:
        with _stoppable(), _plain_warnings():
            _run(words)
    except _Stopped as stop:
        return _fail(f"stopped by {stop.signal.name}; nothing is left half-written", 128 + stop.signal, debug)
    except KeyboardInterrupt:
        return _fail("interrupted; nothing is left half-written", 130, debug)
    except InputError as error:
        return _fail(str(error), 2, debug)
    except MemoryError as error:
        return _fail(f"there is not enough memory ({describe(error)}); give fewer rows or columns", 2, debug)
    except BrokenPipeError:
        # the reader of our output has closed it; Python would complain once more when it closes the stream
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:
        return _fail(f"a fault, not your input: {describe(error)}; run again with --debug to see where", 1, debug)
    return 0


def _joined(words: list[str]) -> list[str]:
    """Return the words with ``--option -200,NA`` as ``--option=-200,NA``: argparse takes the value for an option."""
    found: list[str] = []
    for word in words:
        if found and _NEGATIVE.match(word) and found[-1].startswith("--") and "=" not in found[-1]:
            found[-1] += f"={word}"
        else:
            found.append(word)
    return found


def _run(words: list[str]) -> None:
    # options before the command take no value, so the first other word is the command
    if sys.stdout is None:
        raise InputError("standard output is closed, and results are written there; send it to a file or /dev/null")
    typed = next((word for word in words if not word.startswith("-")), None)
    if typed is None:
        make_parser().parse_args(words)  # --help, --version, or no command
        return
    entry = _entry(typed)
    with _noted(entry):
        command = load(entry)
        args, unknown = make_parser(typed, command).parse_known_args(_joined(words))
        if unknown:
            raise InputError(f"unrecognized arguments: {shlex.join(unknown)}; see metricforge {typed} --help")
        args.typed = shlex.join(["metricforge", *words])
        copy_context().run(command, args)  # what it holds in memory counts until it ends
        sys.stdout.flush()


def _entry(typed: str) -> Entry:
    """Return the entry of a command, or raise with the distribution that has it, or with the nearest name."""
    try:
        return registry.entry("command", typed)
    except UnknownNameError:
        if typed not in DISTRIBUTIONS:
            raise
        name = DISTRIBUTIONS[typed]
        raise InputError(
            f"{typed!r} is a command of {name}, which is not installed: "
            f"pip install ./plugins/{name} in the folder of the project's source"
        ) from None


@contextmanager
def _noted(entry: Entry) -> Iterator[None]:
    """Add a note that names the plugin to an exception of its command; not for what ships with metricforge."""
    try:
        yield
    except Exception as error:
        if registry.plugin(entry.plugin).distribution != "metricforge":
            error.add_note(f"in command {entry.name!r} of plugin {entry.plugin!r}")
        raise


def describe(error: BaseException) -> str:
    """Return an error and its notes on one line."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return text + "".join(f" ({note})" for note in getattr(error, "__notes__", ()))


def _fail(sentence: str, code: int, debug: bool) -> int:
    with suppress(OSError):  # the terminal may be gone
        progress.clear()
        if debug:
            traceback.print_exc()
        sys.stderr.write(f"metricforge: {_one_line(sentence)}\n")
    return code


def _one_line(text: str) -> str:
    return " ".join(text.split())


class _BelowTheBar(logging.StreamHandler):  # type: ignore[type-arg]
    """Removes the progress bar before it writes a record."""

    def emit(self, record: logging.LogRecord) -> None:
        progress.clear()
        super().emit(record)


class _OneLine(logging.Formatter):
    """Writes a record on one line: a message may quote the error of a plugin, which may have several."""

    def format(self, record: logging.LogRecord) -> str:
        return _one_line(super().format(record))


class _Stopped(KeyboardInterrupt):
    """A signal asked the process to end; what Ctrl-C cleans up is cleaned up."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = signal.Signals(number)


@contextmanager
def _stoppable() -> Iterator[None]:
    """Raise `_Stopped` on SIGTERM, which Slurm, Docker and ``kill`` send, and on SIGHUP, sent by a closing terminal."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    known = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    caught = [number for number in known if signal.getsignal(number) is signal.SIG_DFL]  # nohup ignores SIGHUP

    def stop(number: int, _: Any) -> None:
        for other in caught:  # a second signal, which timeout(1) sends, must not interrupt the removal of files
            signal.signal(other, signal.SIG_IGN)
        raise _Stopped(number)

    for number in caught:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in caught:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Print a warning as one line, without the file in which it was raised."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        progress.clear()
        sys.stderr.write(f"metricforge: {_one_line(str(message))}\n")

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield


# ----------------------------------------------------------------------------------------------------------- commands


def command_entries() -> list[Entry]:
    """Return the registered commands in the order of their registration: the core's own first."""
    return [entry for plugin in registry.plugins() for entry in plugin.entries if entry.kind == "command"]


def load(entry: Entry) -> Command:
    """Return the command of an entry."""
    try:
        command = entry.load()
    except SystemExit as error:  # must end neither --help nor this run without a message
        raise PluginError(f"loading command {entry.name!r} raised {describe(error)}") from error
    if not isinstance(command, Command):
        raise PluginError(
            f"command {entry.name!r} of plugin {entry.plugin!r} is a {type(command).__name__}; "
            "its target must be a mf.Command"
        )
    return command


class _Parser(argparse.ArgumentParser):
    """Reports wrong arguments like any other bad input: in one sentence."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}; see {self.prog} --help")


def make_parser(name: str | None = None, command: Command | None = None) -> argparse.ArgumentParser:
    """Return the parser of one command, or, for ``metricforge --help``, one that lists all commands."""
    listed = "" if command else _listed(command_entries())
    parser = _Parser(
        prog="metricforge",
        description="Turn hints about likeness into a distance.",
        epilog=listed,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"metricforge {__version__}")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    inside = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", help="one of those below")
    if name is None or command is None:
        for entry in command_entries():
            inside.add_parser(entry.name)
        return parser
    sub = inside.add_parser(name, description=f"{command.help[0].upper()}{command.help[1:]}.")
    command.arguments(sub)
    sub.add_argument("--json", action="store_true", help="print JSON, for a script to read")
    sub.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help="show the traceback of errors")
    return parser


def _listed(entries: Sequence[Entry]) -> str:
    """Return the commands with a line of help each."""
    wide = max((len(entry.name) for entry in entries), default=0)
    lines = (f"  {entry.name:<{wide}}  {_help(entry)}\n" for entry in entries)
    return f"commands:\n{''.join(lines)}\nmetricforge COMMAND --help says more about each."


def _help(entry: Entry) -> str:
    """Return the help of a command, or why it cannot be loaded."""
    try:
        return load(entry).help
    except Exception as error:
        return f"cannot be loaded from plugin {entry.plugin!r}: {' '.join(describe(error).split())}"
