"""Files: rows and constraints in, results out, rows larger than memory, saved metrics, atomic writing.

Names are imported when first used: a metric needs `metricforge.files.model` only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..lazy import attributes

if TYPE_CHECKING:
    from .formats import read, read_column
    from .relations import read_relations
    from .storage import open_rows, store
    from .table import Selection, Table
    from .writing import as_text, check_output, write

_HOME = {
    "Selection": "table",
    "Table": "table",
    "as_text": "writing",
    "check_output": "writing",
    "open_rows": "storage",
    "read": "formats",
    "read_column": "formats",
    "read_relations": "relations",
    "store": "storage",
    "write": "writing",
}

__all__ = [
    "Selection",
    "Table",
    "as_text",
    "check_output",
    "open_rows",
    "read",
    "read_column",
    "read_relations",
    "store",
    "write",
]

__getattr__ = attributes(__name__, _HOME)
