"""Where the command line starts; it lives in `metricforge.shell`."""

from __future__ import annotations

from .shell.main import main

__all__ = ["main"]
