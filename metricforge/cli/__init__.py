"""The command line.  Plugins that add a command use `Command`, `write_line` and `write_json`."""

from __future__ import annotations

from .command import Command
from .output import write_json, write_line

__all__ = ["Command", "write_json", "write_line"]
