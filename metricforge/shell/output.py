"""What commands write to standard output."""

from __future__ import annotations

import json
import sys
from typing import Any


def write_line(text: str = "") -> None:
    """Write a line of text."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def write_json(value: Any) -> None:
    """Write a value as one line of JSON; NumPy arrays become lists."""
    write_line(json.dumps(value, allow_nan=False, default=_plain))


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)
