"""What the page shows of a row: cells in original units, those that differ first; text with a diff; a picture."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from metricforge.errors import InputError
from metricforge.rows import Array

LONGEST = 10_000
"""The most characters of a cell that are shown."""
MOST_COLUMNS = 1000
"""The most columns of a card."""
MOST_BYTES = 8 * 2**20
"""The largest picture that is sent."""
_SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}
"""The first bytes of the kinds of pictures that are shown.  SVG is not among them, because it can contain scripts."""


class Cards:
    """The cells of all rows, by column, as a person should see them.

    Parameters
    ----------
    columns : mapping of str to (n,) sequence
        Cells in original units; numbers or strings.
    text : str, optional
        A column of long text, shown below the others with the words that differ marked.
    image : str, optional
        A column of file names of pictures inside ``image_root``.
    image_root : path
        The folder of the pictures.
    """

    def __init__(
        self,
        columns: Mapping[str, Any],
        *,
        text: str | None = None,
        image: str | None = None,
        image_root: str | os.PathLike[str] = ".",
    ) -> None:
        for name, role in ((text, "text"), (image, "image")):
            if name is not None and name not in columns:
                raise InputError(f"{role}={name!r} is no column; the columns are {', '.join(map(str, columns))}")
        self._text = None if text is None else list(columns[text])
        self._image = None if image is None else list(columns[image])
        self._root = Path(image_root).resolve()
        self._columns = {str(name): _Column.of(values) for name, values in columns.items() if name not in (text, image)}

    @property
    def has_images(self) -> bool:
        """Whether rows have pictures."""
        return self._image is not None

    def shown(self, rows: Sequence[int]) -> list[dict[str, Any]]:
        """Return what the page shows of rows that are compared; the first one is compared with the others.

        All cards have the columns in one order, those in which the rows differ most first.
        """
        first = rows[0]
        against = [[other for other in rows if other != row] if row == first else [first] for row in rows]
        columns = [
            [column.field(name, row, others) for row, others in zip(rows, against, strict=True)]
            for name, column in self._columns.items()
        ]
        columns.sort(key=lambda fields: -max(field["difference"] for field in fields))
        cards = []
        for place, row in enumerate(rows):
            fields = [column[place] for column in columns[:MOST_COLUMNS]]
            card: dict[str, Any] = {"fields": fields, "more": max(0, len(columns) - MOST_COLUMNS)}
            if self._text is not None:
                reference = self._text[rows[1] if row == first else first]
                card["text"] = word_diff(_cell(self._text[row]), _cell(reference))
            card["image"] = None if self._image is None else int(row)
            cards.append(card)
        return cards

    def picture(self, row: int) -> tuple[str, bytes] | None:
        """Return content type and bytes of the picture of a row; None if there is none that may be shown.

        The name comes from the data, so it must lead to a regular file inside the folder, not through a link.
        """
        if self._image is None or not 0 <= row < len(self._image):
            return None
        name = str(self._image[row])
        path = self._root / name
        if not name or Path(name).is_absolute() or ".." in Path(name).parts or "\0" in name:
            return None
        parts = [self._root.joinpath(*Path(name).parts[: k + 1]) for k in range(len(Path(name).parts))]
        try:
            if any(part.is_symlink() for part in parts) or not path.is_file() or path.stat().st_size > MOST_BYTES:
                return None
            content = path.read_bytes()
        except OSError:
            return None
        if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
            return "image/webp", content
        found = next((kind for start, kind in _SIGNATURES.items() if content.startswith(start)), None)
        return None if found is None else (found, content)


class _Column:
    """The cells of a column, and the scale on which numbers differ."""

    def __init__(self, values: list[Any], numbers: Array | None) -> None:
        self.values, self.numbers = values, numbers
        if numbers is not None:
            finite = numbers[np.isfinite(numbers)]
            self.low, self.high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 0.0)
            self.spread = float(finite.std()) if len(finite) else 0.0

    @classmethod
    def of(cls, values: Any) -> _Column:
        """Read a column; it is numeric if every cell that is not empty is a number."""
        cells = list(values.tolist() if isinstance(values, np.ndarray) else values)
        try:
            numbers = np.asarray([np.nan if c in (None, "") else float(c) for c in cells], dtype=np.float64)
        except (TypeError, ValueError):
            return cls(cells, None)
        return cls(cells, numbers)

    def field(self, name: str, row: int, others: Sequence[int]) -> dict[str, Any]:
        """Return a cell: its text, how far it differs from the other rows, and its place in the range of the column."""
        text = _cell(self.values[row])
        if self.numbers is None:
            difference = float(any(_cell(self.values[other]) != text for other in others))
            return {"name": name, "text": text, "difference": difference, "place": None}
        own, rest = self.numbers[row], self.numbers[list(others)]
        gaps = np.abs(rest - own)
        gaps[np.isnan(gaps)] = self.spread if not np.array_equal(np.isnan(rest), [np.isnan(own)] * len(rest)) else 0.0
        width = self.high - self.low
        place = (own - self.low) / width if width > 0 and np.isfinite(own) else None
        return {
            "name": name,
            "text": text,
            "difference": float(gaps.max() / self.spread) if self.spread > 0 else 0.0,
            "place": None if place is None else round(float(place), 4),
        }


def word_diff(text: str, other: str) -> list[dict[str, Any]]:
    """Return the pieces of a text; ``differs`` marks words that the other text does not have in that place."""
    words, against = (re.findall(r"\s+|[^\s]+", one) for one in (text, other))
    matcher = difflib.SequenceMatcher(None, words, against, autojunk=len(words) > 500)
    pieces = []
    for kind, start, stop, _, _ in matcher.get_opcodes():
        if stop > start:
            pieces.append({"text": "".join(words[start:stop]), "differs": kind != "equal"})
    return pieces


def _cell(value: Any) -> str:
    """Return a cell as text, cut at `LONGEST` characters."""
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return ""
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"
