"""Figures and axes: the one file that imports matplotlib.

New figures live outside pyplot: no window, no global state.
"""

from __future__ import annotations

import importlib.util
import io
import textwrap
import warnings
from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from . import rows as _rows
from .constraints import Lines
from .errors import InputError

Array = NDArray[Any]


MISSING = "pictures need matplotlib, which is not installed; pip install 'metricforge[plot]'"


def installed() -> bool:
    """Return whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def check_installed() -> None:
    """Raise if matplotlib is not installed."""
    if not installed():
        raise InputError(MISSING)


def grid(rows: int, columns: int, *, width: float = 5.0, height: float = 4.6) -> tuple[Any, Any]:
    """Return a new figure and its (rows, columns) axes; ``width`` and ``height`` are of one axes, in inches."""
    check_installed()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def png(figure: Any, dpi: int = 110) -> bytes:
    """Return a figure as the bytes of a PNG file."""
    out = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # a name in a script that the font lacks
        figure.savefig(out, dpi=dpi, format="png")
    return out.getvalue()


def colour(code: int, classes: int) -> Any:
    """Return the colour of a class: matplotlib's cycle for ten classes or fewer, else evenly from a colour map."""
    if classes <= 10:
        return f"C{code}"
    from matplotlib import colormaps

    return colormaps["turbo"](0.05 + 0.9 * code / (classes - 1))


def draw_lines(ax: Any, points: Array, lines: Sequence[Lines], limit: int) -> None:
    """Draw at most ``limit`` lines of each kind between points, below the points, with a legend above the axes."""
    from matplotlib.collections import LineCollection

    drawn = []
    for part in lines:
        if len(part.pairs):
            ends = part.pairs[_rows.draw(len(part.pairs), limit, 0)]
            shade, style = ("0.2", "solid") if part.short else ("C3", (0, (4, 3)))
            segments = LineCollection(
                list(points[ends]), colors=shade, linestyles=[style], linewidths=0.8, alpha=0.6, zorder=0.5
            )
            segments.set_label(part.label)
            drawn.append(ax.add_collection(segments, autolim=False))
    if drawn:
        above = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "ncols": 2, "handlelength": 3}
        ax.legend(handles=drawn, frameon=False, **above)


def legend_text(name: Any, limit: int = 24) -> str:
    """Return a name that matplotlib shows as it is, at most ``limit`` characters long."""
    # matplotlib sets text between dollar signs as mathematics, and hides a legend entry that starts with _
    text = str(name).replace("$", r"\$")
    text = text if len(text) <= limit else text[: limit - 1] + "…"
    return f" {text}" if text.startswith("_") else text


def wrapped(text: str, width: int = 26) -> str:
    """Return text broken into lines."""
    return "\n".join(textwrap.wrap(text, width))
