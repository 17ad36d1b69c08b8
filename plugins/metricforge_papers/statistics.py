"""The data sets of the five papers: rows, features and classes as printed, and as they are here, on one page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from metricforge import datasets
from metricforge.errors import InputError
from metricforge.files import atomic as files

NAME = "data"
INTRODUCTION = (
    "Rows, features and classes of the data sets as the papers print them, and of those that experiments load here. "
    "Sets that are drawn by a rule of ours are marked; numbers that differ are in bold. Of USPS, letter and satellite "
    "the experiments draw as many rows as the paper has."
)


@cache
def printed() -> list[dict[str, Any]]:
    """Return the tables as printed: paper, where, and for each name its data set here, rows, features and classes."""
    path = Path(__file__).with_name("papers") / "statistics.json"
    content: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return content


def measured() -> list[dict[str, Any]]:
    """Return a line for each printed set with our numbers; None for those of a set that is not available."""
    found = []
    for table in printed():
        for name, (source, *theirs) in table["sets"].items():
            found.append({"paper": table["paper"], "where": table["where"], "set": name, "source": source})
            found[-1] |= {"printed": theirs, "ours": _counts(source)}
    return found


def _counts(name: str) -> list[int] | None:
    try:
        data = datasets.load(name)
    except InputError:
        return None
    return [int(data.X.shape[0]), int(data.X.shape[1]), len(np.unique(np.asarray(data.y)))]


def write(folder: Path) -> None:
    """Write data.json and data.md."""
    lines = measured()
    text = ",\n ".join(json.dumps(line, ensure_ascii=False) for line in lines)
    files.write(folder / f"{NAME}.json", f"[\n {text}\n]\n".encode())
    files.write(folder / f"{NAME}.md", page(lines).encode())


def read(folder: Path) -> list[dict[str, Any]] | None:
    """Return the lines that were written, if they were."""
    path = folder / f"{NAME}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def page(lines: Sequence[dict[str, Any]]) -> str:
    """Return the page: one row for each set of each paper, ours beside theirs."""
    out = ["# The data sets of the five papers", "", INTRODUCTION, ""]
    out += ["| paper | set | here | rows (paper) | features (paper) | classes (paper) |", "| --- " * 6 + "|"]
    for line in lines:
        here = f"`{line['source']}`" + (" (drawn)" if line["source"] in DRAWN else "")
        ours = line["ours"] or [None] * 3
        cells = [_both(mine, theirs) for mine, theirs in zip(ours, line["printed"], strict=True)]
        out.append(f"| {line['paper']}, {line['where']} | {line['set']} | {here} | {' | '.join(cells)} |")
    same = sum(line["ours"] == line["printed"] for line in lines)
    out += ["", f"{same} of {len(lines)} agree in all three numbers. `metricforge reproduce data --out docs/results`"]
    return "\n".join(out) + "\n"


DRAWN = ("toy", "chessboard", "double_spiral", "xor", "three_gaussians")


def _both(ours: int | None, theirs: int) -> str:
    if ours is None:
        return f"not available ({theirs})"
    return f"{ours} ({theirs})" if ours == theirs else f"**{ours}** ({theirs})"
