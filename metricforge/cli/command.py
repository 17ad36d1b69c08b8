"""What a plugin registers under the kind "command"."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from ..errors import InputError


def _no_arguments(parser: ArgumentParser) -> None:
    """Add no arguments."""


@dataclass(frozen=True)
class Command:
    """A command of the shell; the name under which it is registered is what users type after ``metricforge``.

    Parameters
    ----------
    help : str
        What the command does, as in "list the data sets": a line of ``metricforge --help``.
    run : str or callable
        Called with the parsed arguments.  A string ``"package.module:function"`` is imported when the command runs, so
        that ``metricforge --help`` stays fast.
    arguments : callable, optional
        ``arguments(parser)`` adds the command's arguments to an `argparse.ArgumentParser`.  It is called only if the
        command was typed.

    Notes
    -----
    ``--json`` and ``--debug`` are added to every command.  ``run`` finds ``args.json``, and the whole command line in
    ``args.typed``.  It reports bad input by raising `metricforge.errors.InputError`.
    """

    help: str
    run: str | Callable[[Namespace], None]
    arguments: Callable[[ArgumentParser], None] = _no_arguments

    def __post_init__(self) -> None:
        if not self.help or not isinstance(self.help, str):
            raise InputError(f"help must be a non-empty string, got {self.help!r}")
        if not callable(self.run) and not (isinstance(self.run, str) and all(self.run.partition(":"))):
            raise InputError(f"run must be a function or 'package.module:function', got {self.run!r}")

    def __call__(self, args: Namespace) -> None:
        """Run the command."""
        if callable(self.run):
            self.run(args)
            return
        module, _, function = self.run.partition(":")
        getattr(import_module(module), function)(args)
