"""Tables: rows and constraints are read from files, and results written.  Names are imported when first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..names import attributes

if TYPE_CHECKING:
    from .formats import read, read_column, read_relations
    from .preparing import Choices, read_again, read_prepared
    from .table import Dialect, Selection, Table
    from .writing import as_text, check_output, write

_HOME = {
    "Choices": "preparing",
    "Dialect": "table",
    "Selection": "table",
    "Table": "table",
    "as_text": "writing",
    "check_output": "writing",
    "read": "formats",
    "read_again": "preparing",
    "read_column": "formats",
    "read_prepared": "preparing",
    "read_relations": "formats",
    "write": "writing",
}

__all__ = [
    "Choices",
    "Dialect",
    "Selection",
    "Table",
    "as_text",
    "check_output",
    "read",
    "read_again",
    "read_column",
    "read_prepared",
    "read_relations",
    "write",
]

__getattr__ = attributes(__name__, _HOME)
