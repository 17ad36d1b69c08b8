"""Cells of a table: what is a number, what is missing, and the error messages for the rest."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from .table import Selection, quoted

Array = NDArray[Any]

MISSING = {"?", "-", "na", "n/a", "nan", "null"}
"""Marks of a missing number, in any case."""
BOOLEAN = {"true": "1", "yes": "1", "false": "0", "no": "0"}
"""Numbers for the cells of a column that holds nothing else."""

LONG = 256
"""Characters from which texts are Python objects: an array of strings has the width of its longest one in every row."""

GROUPED = re.compile(r"[+-]?[1-9][0-9]{0,2}(,[0-9]{3})+(\.[0-9]*)?")
"""Digits with a comma between groups of three."""


def is_number(cell: str) -> bool:
    """Return whether a cell is a number; ``1_0``, which Python accepts, is not."""
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell


def is_missing(cell: str, marks: Sequence[str] = ()) -> bool:
    """Return whether a cell is empty or marked as missing, by one of the usual marks or of those given."""
    text = cell.strip()
    return not text or text.lower() in MISSING or text in marks


def with_point(cell: str) -> str:
    """Return a cell with its commas replaced by points."""
    return cell.replace(",", ".")


def as_finite(cells: Sequence[Sequence[str]]) -> Array | None:
    """Return rows of cells as numbers, or None unless all of them are finite numbers."""
    if "_" in " ".join(map(" ".join, cells)):
        return None  # NumPy reads 1_0 as ten
    try:
        A = np.array(cells, dtype=np.float64)
    except ValueError:
        return None
    return A if np.isfinite(A).all() else None


def as_values(cells: Sequence[str]) -> Array:
    """Return cells as integers or floats if all are, else as strings; None for empty cells and nan."""
    texts = [cell.strip() for cell in cells]
    missing = [not text or text.lower() == "nan" for text in texts]
    known = [text for text, gone in zip(texts, missing, strict=True) if not gone]
    convert: Callable[[str], Any] = str
    for kind in (int, float):
        try:
            for text in known:
                kind(text)
        except ValueError:
            continue
        if not any("_" in text for text in known):  # Python reads 1_0 as ten
            convert = kind
        break
    if convert is int and any(abs(int(text)) >= 2**63 for text in known):
        return _as_objects(int, texts, missing)  # NumPy would round some of them to floats
    long = convert is str and max(map(len, known), default=0) > LONG
    if len(known) == len(texts) and not long:
        return np.array([convert(text) for text in texts])
    return _as_objects(convert, texts, missing)


def _as_objects(convert: Callable[[str], Any], texts: Sequence[str], missing: Sequence[bool]) -> Array:
    values = np.empty(len(texts), dtype=object)
    values[:] = [None if gone else convert(text) for text, gone in zip(texts, missing, strict=True)]
    return values


# -------------------------------------------------------------------------------------------------------------- checks


def check_array(rows: Array, names: Sequence[str], path: Path, selection: Selection, first: int = 0) -> None:
    """Raise if an array holds a number that is not finite; ``first`` is the number of its first row."""
    if not np.isfinite(rows).all():
        r, c = np.argwhere(~np.isfinite(rows))[0]
        check_cell(rows[r, c], names[c], f"row {first + r} (counted from 0)", path, selection)


def check_cell(cell: Any, name: str, where: str, path: Path, selection: Selection) -> None:
    """Raise unless a cell is a finite number; the message has the column, the position and the repair."""
    text = "" if cell is None else str(int(cell) if isinstance(cell, bool) else cell).strip()
    at = f"{quoted(path)}, {where}: column {name!r}"
    if not is_missing(text) and not is_number(text):
        if has_comma(text):
            raise InputError(f"{at} holds {text!r} {_without_comma(text)}")
        raise InputError(f"{at} holds the text {_clipped(text)!r}; {_instead_of_text([name], selection)}")
    if is_missing(text) or not np.isfinite(float(text)):
        repairs = filter(None, ("fill it in", "remove the row", selection.how_to_drop(name)))
        raise InputError(f"{at} {f'holds {text!r}' if text else 'is empty'}; {_either(*repairs)}")


def check_text(row: dict[str, str], line: int, path: Path, selection: Selection) -> None:
    """Raise if several cells of a line are text: one message with one repair for all of them."""
    texts = [name for name, cell in row.items() if not (is_missing(cell) or is_number(cell) or has_comma(cell.strip()))]
    if len(texts) > 1:
        raise InputError(
            f"{quoted(path)}, line {line}: columns {', '.join(map(repr, texts))} hold text (first "
            f"{_clipped(row[texts[0]].strip())!r}); {_instead_of_text(texts, selection)}"
        )


def has_comma(text: str) -> bool:
    """Return whether a text is a number with a decimal comma, or with commas between thousands."""
    return is_number(with_point(text)) or GROUPED.fullmatch(text) is not None


def _without_comma(text: str) -> str:
    decimal, grouped = with_point(text), text.replace(",", "")
    if not GROUPED.fullmatch(text):
        return f"with a decimal comma; write a point, as in {decimal}"
    if not is_number(decimal):
        return f"with commas between thousands; write {grouped}"
    return f"with a comma; write {grouped} if it separates thousands, or {decimal} if it is a decimal comma"


def _instead_of_text(names: Sequence[str], selection: Selection) -> str:
    if selection.only is not None:
        return "the metric was learned on numbers there; write numbers"
    it = "it" if len(names) == 1 else "one"
    hint = f"name {it} as {' or '.join(selection.flags)}" if selection.flags else ""
    return _either(*filter(None, (selection.how_to_drop(*names), hint)))


def _either(*repairs: str) -> str:
    *first, last = repairs
    return f"{', '.join(first)}, or {last}" if first else last


def _clipped(text: str, most: int = 40) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
