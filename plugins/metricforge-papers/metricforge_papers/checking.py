"""What ``metricforge reproduce --check`` verifies.

Published pages follow from their JSON, and verdicts from their rule.
"""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from metricforge.errors import InputError

from . import pages, statistics
from .entries import ENTRIES
from .result import Result


def problems(folder: Path) -> list[str]:
    """Return a sentence for everything in a folder of results that does not follow from another part of it."""
    found = []
    for entry in ENTRIES:
        name = f"{entry.paper}-{entry.name}"
        if not (folder / f"{name}.json").is_file():
            found.append(f"{name}: not in {folder}")
            continue
        found += [f"{name}: {what}" for what in _entry(folder, name)]
    if not _same(folder / "summary.md", pages.summary(pages.read(folder))):
        found.append("summary.md does not follow from the results")
    lines = statistics.read(folder)
    if lines is not None and not _same(folder / f"{statistics.NAME}.md", statistics.page(lines)):
        found.append(f"{statistics.NAME}.md does not follow from {statistics.NAME}.json")
    return found


def repair(folder: Path) -> None:
    """Rewrite the pages, the verdicts and the summary from the results."""
    pages.refresh(folder)
    lines = statistics.read(folder)
    if lines is not None:
        (folder / f"{statistics.NAME}.md").write_text(statistics.page(lines), encoding="utf-8")


def _entry(folder: Path, name: str) -> list[str]:
    content = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    result = Result.from_dict(content)
    found = []
    if not _close(content["verdicts"], result.as_dict()["verdicts"]):
        found.append("its verdicts do not follow from the rule")
    drawn = (folder / f"{name}.png").is_file()
    if not _same(folder / f"{name}.md", pages.markdown(replace(result, picture=b"drawn" if drawn else b""))):
        found.append("its page does not follow from its JSON")
    return found


def _same(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text


def _close(a: Any, b: Any) -> bool:
    """Return whether two trees agree, numbers to nine digits: versions of NumPy add up in different orders."""
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(_close, a, b))
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(_close(a[key], b[key]) for key in a)
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)
    return bool(a == b)


def check_folder(folder: Path) -> Path:
    """Return the folder, if it exists."""
    if not folder.is_dir():
        raise InputError(
            f"--out: there is no folder {str(folder)!r}; name the one with the results, such as docs/results"
        )
    return folder
