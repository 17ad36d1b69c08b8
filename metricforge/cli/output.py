"""What commands write to standard output."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
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


def shares(score: Mapping[str, Any]) -> str:
    """Return the shares before and after of a score, each with its standard error, in two columns."""
    sides = zip(("before", "after"), score["error"], strict=True)
    return " ".join(f"{f'{100 * score[side]:.1f} ± {100 * error:.1f} %':>14}" for side, error in sides)
