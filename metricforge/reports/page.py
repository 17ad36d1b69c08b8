"""The report of a fit: one self-contained HTML page.

``write("report.html", metric, constraints)`` describes what was learned from what, shows kernel matrix and map before
and after learning, counts the satisfied relations, and lists the certificate, the settings and the versions.  Pictures
and style are inside the file, nothing is fetched, and everything that comes from the user is escaped.
"""

from __future__ import annotations

import base64
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import __version__, plotting
from .. import rows as _rows
from ..constraints import Constraint, Distances, Labels, Lines, Satisfied
from ..errors import InputError
from ..figures import MISSING, installed
from ..files import atomic as files
from ..kernels import Kernel
from ..metric import Metric
from ..report import rounded
from ..resolve import as_constraint, find_kernel
from ..validation import plural

Array = NDArray[Any]
Section = dict[str, Any]

MOST_ROWS = 1000
"""Largest number of rows in the pictures; of more, a sample is drawn."""
MOST_COLUMNS = 200
"""Largest number of columns whose preparation is listed."""


def write(path: str | os.PathLike[str], metric: Metric, constraints: Any, **options: Any) -> None:
    """Write the report of a fit to ``path``, atomically; see `html` for the arguments."""
    files.check_writable(path)
    files.write(path, html(metric, constraints, **options).encode())


def html(
    metric: Metric,
    constraints: Any,
    *,
    X: Any = None,
    y: Any = None,
    before: Metric | Kernel | str | None = None,
    names: Sequence[str] | None = None,
    source: str = "",
    command: str = "",
    counted: tuple[Sequence[Satisfied], Sequence[Satisfied]] | None = None,
) -> str:
    """Return the report of a fit as the text of an HTML page.

    Parameters
    ----------
    metric : Metric
    constraints : Constraint, or 1-d labels
        What the metric was learned from.
    X : rows, optional
        The rows of the constraints; default: the training rows that the metric keeps.
    y : 1-d labels, optional
        Classes to colour and order the rows by; default: those of the constraints, if they have any.
    before : Metric, Kernel or name, optional
        What to compare with; default: the kernel that learning started from.
    names : sequence of str, optional
        Names of the features.
    source, command : str
        The origin of the rows, and the command that was typed; both are printed.
    counted : pair, optional
        The relations satisfied before and after learning, if they were counted on these rows already; the rows are then
        not checked again.

    Notes
    -----
    Pictures show at most 1000 rows and at most 20,000 relations are counted: seconds and a few MB, for any n.
    """
    X = metric.rows if X is None else X
    if X is None:
        raise InputError(
            "X is missing: this metric keeps no training rows; pass the rows that the constraints are about"
        )
    relations = as_constraint(constraints, "constraints")
    X = metric.kernel.check(X, "X") if counted is None else X
    relations.check(_rows.count(X))
    start = starting_kernel(metric, X) if before is None else find_kernel(before).resolve(X, seed=metric.seed)
    names = names if names is not None else metric.columns or None
    classes = relations.row_classes() if y is None else Labels(y)
    subject = _Subject(metric, start, X, relations, classes, names, source, command)
    if counted is None:
        of_start, learned = Distances(start, X, metric.seed), Distances(metric.kernel, X, metric.seed)
        counted = relations.satisfied(of_start), relations.satisfied(learned)
    return _page(subject, *counted)


def starting_kernel(metric: Metric, X: Any) -> Kernel:
    """Return the kernel that learning started from."""
    if metric.start is not None:
        return metric.start
    # files of format 1 do not have it
    own = getattr(metric.kernel, "base", None)
    if isinstance(own, Kernel):
        return own
    try:
        return find_kernel(str(metric.report["kernel"])).resolve(X, seed=metric.seed)
    except (InputError, KeyError):
        raise InputError(
            "before is missing: the metric does not record the kernel it started from; pass the kernel to compare with"
        ) from None


@dataclass(frozen=True, eq=False)
class _Subject:
    """The content of a page."""

    metric: Metric
    start: Kernel
    X: Any
    relations: Constraint
    classes: Labels | None
    names: Sequence[str] | None
    source: str
    command: str

    @property
    def described_rows(self) -> str:
        """The number of rows and features, and their origin."""
        n, d = _rows.count(self.X), _rows.width(self.X)
        width = f" of {plural(d, 'feature')}" if d else ""
        return plural(n, "row") + width + (f" in {self.source}" if self.source else "")


def _page(about: _Subject, before: Sequence[Satisfied], after: Sequence[Satisfied]) -> str:
    report = about.metric.report
    learned = f"Learned from {about.relations.describe()} over {about.described_rows}, starting from "
    if kept_out := report.get("held_out_scores"):
        tiles = [_held_out_tile(score) for score in kept_out]
    else:
        tiles = [
            (f"{100 * b.share:.1f} % → {100 * a.share:.1f} %", f"{a.condition}, on the rows learned from")
            for b, a in zip(before, after, strict=True)
        ]
    if "status" in report:
        tiles.append((str(report["status"]).replace("_", " "), report["certificate"].describe()))
        tiles.append((f"{report['seconds']:.2g} s", plural(report["n_iter"], "iteration")))
    return rendered(
        f"A metric learned by {report.get('method', 'hand')}",
        f"{learned}{rounded(repr(about.start))}.",
        [
            *_pictures(about),
            _counts(about.relations, before, after),
            *_convergence(about.metric),
            *_weights(about.metric, about.names),
            *_columns(about.metric),
            _report(report),
            _provenance(about),
        ],
        tiles,
        [str(note) for note in (*report.get("converted", ()), *report.get("notes", ()))],
    )


def rendered(
    title: str,
    lead: str,
    sections: Sequence[Section],
    tiles: Sequence[tuple[str, str]] = (),
    notes: Sequence[str] = (),
) -> str:
    """Return a whole page as HTML, with everything escaped.

    Parameters
    ----------
    title, lead : str
    sections : sequence of mappings
        ``heading``, ``text``, ``command``, ``pictures`` of `picture`, ``counts`` (name, before, after) and ``lines``
        (name, value), each optional.
    tiles : (value, label)
        Values in large type.
    notes : sequence of str
    """
    from jinja2 import Environment, PackageLoader  # only where a page is made

    page = Environment(loader=PackageLoader("metricforge.reports", ""), autoescape=True).get_template("page.html")
    return page.render(title=title, lead=lead, sections=sections, tiles=tiles, notes=notes) + "\n"


def picture(figure: Any, alt: str, caption: str = "") -> dict[str, str]:
    """Return a figure as a part of the page."""
    return {"data": base64.b64encode(plotting.png(figure, dpi=140)).decode(), "alt": alt, "caption": caption}


def _held_out_tile(score: Mapping[str, Any]) -> tuple[str, str]:
    sides = zip(("before", "after"), score["error"], strict=True)
    # spaces that do not break: a narrow tile breaks at the arrow only
    b, a = (f"{100 * score[side]:.1f}\u00a0±\u00a0{100 * error:.1f}\u00a0%" for side, error in sides)
    return f"{b} → {a}", f"{score['what']}, on rows held out ({plural(score['folds'], 'fold')})"


def _pictures(about: _Subject) -> list[Section]:
    if not installed():
        return [{"text": f"This page has no pictures: {MISSING}"}]
    n = _rows.count(about.X)
    chosen = _rows.draw(n, MOST_ROWS, about.metric.seed)
    rows = _rows.take(about.X, chosen)
    labels = None if about.classes is None else about.classes[chosen]
    relations = about.relations[chosen]
    kinds = (("before", about.start), ("after", about.metric))
    maps = [plotting.MapDisplay.from_metric(one, rows, labels, constraint=relations) for _, one in kinds]
    if labels is None:  # no classes: in the order of the map, which shows blocks if there are any
        rows = rows[np.argsort(maps[1].points[:, 0], kind="stable")]
    sampled = f" A sample of {len(chosen)} of the {n} rows." if len(chosen) < n else ""
    order = "rows in the order of the learned map" if labels is None else "rows ordered by class or group"
    matrices = [
        _figure(plotting.KernelDisplay.from_metric(one, rows, labels), f"kernel matrix {kind}", f"{kind}: {order}")
        for kind, one in kinds
    ]
    planes = [
        _figure(drawn, f"map {kind}", f"{kind}: the plane with the largest variance")
        for (kind, _), drawn in zip(kinds, maps, strict=True)
    ]
    meaning = "Similarity of any two rows, relative to the mean: bright is similar, dark is opposite."
    return [
        {
            "heading": "Kernel matrix",
            "text": f"{meaning} Rows that belong together should form bright blocks.{sampled}",
            "pictures": matrices,
        },
        {
            "heading": "Map",
            "text": f"Each point is a row; near means similar.{_lines(relations.lines())}",
            "pictures": planes,
        },
    ]


def _lines(lines: Sequence[Lines]) -> str:
    """Return a sentence on the lines in a map."""
    if not lines:
        return ""
    sampled = any(len(part.pairs) > plotting.MOST_LINES for part in lines)
    limit = f" At most {plotting.MOST_LINES} of a kind are drawn." if sampled else ""
    return f" Lines join the pairs: solid ones should be short, dashed ones long.{limit}"


def _counted(part: Satisfied) -> str:
    return f"{100 * part.share:.1f} %" if part.by_class else f"{part.count} of {part.total}"


def _counts(constraint: Constraint, before: Sequence[Satisfied], after: Sequence[Satisfied]) -> Section:
    section: Section = {"heading": "Satisfied relations"}
    if not after:
        name = type(constraint).__name__
        return section | {"text": f"{name} has no relation that can be counted, or does not define satisfied()."}
    fit = "these numbers describe how well the metric fits the constraints, not how well it does on new rows."
    bars = _drawn(plotting.RelationsDisplay(after, before).plot, "satisfied relations before and after learning")
    return section | {
        "text": f"Counted on the training rows: {fit}",
        "pictures": bars,
        "counts": [(a.condition, _counted(b), _counted(a)) for b, a in zip(before, after, strict=True)],
    }


def _convergence(metric: Metric) -> list[Section]:
    report = metric.report
    if "certificate" not in report:
        return []
    text = f"Status {report['status']} after {plural(report['n_iter'], 'iteration')}. "
    text += f"The certificate ({report['certificate']}) is {report['gap']:.3g}: {report['certificate'].describe()}."
    if len(report["trace"]) < 2:
        return [{"heading": "Certificate", "text": text}]
    shown = _drawn(lambda: plotting.ConvergenceDisplay.from_metric(metric), "the certificate over the iterations")
    return [{"heading": "Convergence", "text": text, "pictures": shown}]


def _weights(metric: Metric, names: Sequence[str] | None) -> list[Section]:
    weights = plotting.feature_weights(metric)
    if weights is None:
        return []
    used = int(np.count_nonzero(weights > 1e-9))
    fits = names if names is not None and len(names) == len(weights) else None
    text = f"{used} of {len(weights)} features have a weight"
    text += "; the twenty heaviest are shown." if len(weights) > 20 else "."
    shown = _drawn(lambda: plotting.WeightsDisplay.from_metric(metric, fits), "the weights of the features")
    return [{"heading": "Features", "text": text, "pictures": shown}]


def _columns(metric: Metric) -> list[Section]:
    """Return what was done to the columns of the table, where they were more than plain numbers."""
    preparation = None if metric.origin is None else metric.origin.preparation
    if preparation is None:
        return []
    text = "What was done to each column before learning; the metric does the same to every later file."
    return [{"heading": "Columns", "text": text, "lines": preparation.describe()[:MOST_COLUMNS]}]


def _report(report: Mapping[str, Any]) -> Section:
    hidden = {"trace", "notes", "converted", "columns", "parts", "held_out_scores"}
    components = {"kernel", "solver"}
    shown = {name: value for name, value in report.items() if name not in hidden}
    lines = [(name, rounded(value) if name in components else _short(value)) for name, value in shown.items()]
    return {"heading": "Report of the fit", "lines": lines}


def _provenance(about: _Subject) -> Section:
    lines = [
        ("metricforge", __version__),
        *((name, _version(name)) for name in ("numpy", "scipy", "scikit-learn", "dask", "primme")),
        ("Python", platform.python_version()),
        ("system", f"{platform.system()} {platform.machine()}"),
        ("written", time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())),
    ]
    return {"heading": "How to reproduce this", "command": about.command, "lines": lines}


def _drawn(draw: Callable[[], Any], alt: str) -> list[dict[str, str]]:
    """Return a picture on a line of its own; nothing without matplotlib."""
    return [_figure(draw(), alt, "")] if installed() else []


def _figure(display: Any, alt: str, caption: str) -> dict[str, str]:
    return picture(display.figure_, alt, caption)


def _short(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"array of shape {value.shape}"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, tuple | list):
        return ", ".join(map(_short, value[:20])) + (", …" if len(value) > 20 else "")
    return str(value)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
