"""Runs in processes of their own, one for each setting; a file of finished ones lets a long benchmark be resumed."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MOST = 4_000_000


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--measurements", type=Path, help="a file of runs done so far, to which new ones are added")
    parser.add_argument("--most", type=int, default=MOST, help="leave out runs of more rows")


def measured(plan: Sequence[tuple[Any, ...]], code: str, measurements: Path | None) -> dict[tuple[Any, ...], Any]:
    """Return what the code prints for every setting of a plan, of which those in the file are not run again."""
    done = {}
    if measurements is not None and measurements.exists():
        done = {tuple(key): found for key, found in map(json.loads, measurements.read_text().splitlines())}
    for key in plan:
        if key not in done:
            done[key] = measure(code, *key)
            if measurements is not None:
                with measurements.open("a") as out:
                    out.write(json.dumps([list(key), done[key]]) + "\n")
    return done


def measure(code: str, *settings: Any) -> dict[str, Any]:
    """Run code with one setting, and return the JSON that it prints last."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "one.py"  # a file, because worker processes import it
        path.write_text(code)
        command = [sys.executable, str(path), *map(str, settings)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-4000:])
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def left_out(most: int) -> list[str]:
    """Return the note on runs that were left out."""
    return [f"runs of more than {most:,} rows were left out"] if most < MOST else []
