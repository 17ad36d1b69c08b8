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
    "the experiments draw as many rows as the paper has; of the proteins they take as many of the largest "
    "superfamilies. Class sizes are in order of size, and only idealized prints them. Of the three Gaussians in kcr's "
    "Figure 1 the paper prints nothing."
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
            line = {"paper": table["paper"], "where": table["where"], "set": name, "source": source}
            sizes = sorted(theirs[3]) if len(theirs) > 3 else None
            ours = None if source is None else _counts(source, classes=theirs[2])
            line |= {"printed": theirs[:3], "ours": None if ours is None else ours[:3]}
            if sizes is not None:
                line |= {"printed_sizes": sizes, "our_sizes": None if ours is None else ours[3]}
            found.append(line)
    return found


def _counts(name: str, classes: int) -> list[Any] | None:
    """Return rows, features, classes and class sizes; of strings, those of as many of the largest classes."""
    try:
        data = datasets.load(name)
    except InputError:
        return None
    sizes = sorted(np.unique(np.asarray(data.y), return_counts=True)[1].tolist())
    shape = getattr(data.X, "shape", None)
    if shape is None or len(shape) == 1:
        sizes = sizes[-classes:]
        return [sum(sizes), None, len(sizes), sizes]
    return [int(shape[0]), int(shape[1]), len(sizes), sizes]


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
    heads = ("paper", "set", "here", "rows (paper)", "features (paper)", "classes (paper)", "class sizes (paper)")
    out += [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    for line in lines:
        here = "" if line["source"] is None else f"`{line['source']}`" + (" (drawn)" if line["source"] in DRAWN else "")
        ours = line["ours"] or [None] * 3
        cells = [_both(mine, theirs) for mine, theirs in zip(ours, line["printed"], strict=True)]
        sizes = [line.get(name) and ", ".join(map(str, line[name])) for name in ("our_sizes", "printed_sizes")]
        cells.append(_both(*sizes))
        out.append(f"| {line['paper']}, {line['where']} | {line['set']} | {here} | {' | '.join(cells)} |")
    same = sum(_agree(line) for line in lines)
    out += ["", f"{same} of {len(lines)} agree in all numbers. `metricforge reproduce data --out docs/results`"]
    return "\n".join(out) + "\n"


DRAWN = ("toy", "chessboard", "double_spiral", "xor", "three_gaussians")


def _agree(line: dict[str, Any]) -> bool:
    return line["ours"] == line["printed"] and line.get("our_sizes") == line.get("printed_sizes")


def _both(ours: int | str | None, theirs: int | str | None) -> str:
    if theirs is None:
        return ""
    if ours is None:
        return f"not available ({theirs})"
    return f"{ours} ({theirs})" if ours == theirs else f"**{ours}** ({theirs})"
