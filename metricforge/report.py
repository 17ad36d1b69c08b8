"""The report of a fit: one HTML page that needs nothing but itself.

``write("report.html", metric, constraints)`` says what was learned from what, shows kernel matrix and map before and
after, counts the relations that hold, and prints the certificate, the settings and the versions.  Pictures and style
are inside the file, nothing is fetched, and everything that came from the user is escaped.
"""

from __future__ import annotations

import base64
import os
import platform
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import __version__, files, plotting
from . import rows as _rows
from .constraints import Chunklets, Constraint, Labels, Pairs, Triplets
from .errors import InputError
from .kernels import Kernel
from .learning import as_constraint, find_kernel
from .metric import Metric
from .notation import parse_kernel
from .relations import Held, held

Array = NDArray[Any]

MOST_ROWS = 1000
"""How many rows the pictures show; of more, a sample."""


def write(path: str | os.PathLike[str], metric: Metric, constraints: Any, **options: Any) -> None:
    """Write the report of a fit to ``path``, atomically; `html` says what the arguments are."""
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
) -> str:
    """Return the report of a fit as the text of an HTML page.

    Parameters
    ----------
    metric : Metric
    constraints : Constraint, or 1-d labels
        What it was learned from.
    X : rows, optional
        The rows that the constraints are about; default: the training rows that the metric keeps.
    y : 1-d labels, optional
        Classes to colour and order the rows by, where the constraints are not labels themselves.
    before : Metric, Kernel or name, optional
        What to compare with; default: the kernel that the fit started from, as the metric's report tells it.
    names : sequence of str, optional
        Names of the features.
    source, command : str
        Where the rows came from, and what was typed; shown as they are.

    Notes
    -----
    Pictures show at most 1000 rows and the counts look at 20,000 relations: seconds and a few MB, whatever n is.
    """
    plotting.check_installed()
    X = metric.rows if X is None else X
    if X is None:
        raise InputError(
            "X is missing: this metric keeps no training rows; give the rows that the constraints are about"
        )
    relations = as_constraint(constraints, "constraints")
    X = metric.kernel.check(X, "X")
    relations.check(_rows.count(X))
    start = starting_kernel(metric, X) if before is None else find_kernel(before).resolve(X, seed=metric.seed)
    names = names if names is not None else metric.report.get("columns")
    subject = _Subject(metric, start, X, relations, _classes(relations, y), names, source, command)
    return _page(subject)


def starting_kernel(metric: Metric, X: Any) -> Kernel:
    """Return the kernel that a fit started from."""
    own = getattr(metric.kernel, "base", None)
    if isinstance(own, Kernel):
        return own
    try:
        return parse_kernel(str(metric.report["kernel"])).resolve(X, seed=metric.seed)
    except (InputError, KeyError):
        raise InputError(
            "before is missing: what this metric was learned from cannot be told; give the kernel to compare with"
        ) from None


def describe(constraint: Constraint) -> str:
    """Return what a constraint holds, in words."""
    if isinstance(constraint, Labels):
        return f"{some(constraint.size, 'label')} in {some(len(constraint.classes), 'class', 'classes')}"
    if isinstance(constraint, Pairs):
        return f"{len(constraint.similar)} similar and {len(constraint.dissimilar)} dissimilar pairs"
    if isinstance(constraint, Chunklets):
        return f"{some(constraint.size, 'group')} of {some(int((constraint.codes >= 0).sum()), 'row')}"
    if isinstance(constraint, Triplets):
        return some(constraint.size, "triplet")
    return repr(constraint)


ROUNDING, LEAST = 1e-9, 1e-5
"""What a relative certificate may be and still be called 0, and the least that is told as a number."""


def certified(told: Mapping[str, Any]) -> str:
    """Return how near the optimum a fit ended, in words; number and formula are ``gap`` and ``certificate``."""
    gap, objective, certificate = float(told["gap"]), float(told["objective"]), str(told["certificate"])
    if gap == 0 and objective == 0:
        return certificate  # nothing was iterated, and the certificate says why
    if "residual" in certificate:
        return f"the conditions of an optimum hold {'to rounding' if gap < ROUNDING else f'to {gap:.1g}'}"
    if objective == 0:
        return f"within {gap:.2g} of the optimum"
    off = relative(told)
    return "at the optimum, to rounding" if off < ROUNDING else f"within {in_percent(off)} of the optimum"


def relative(told: Mapping[str, Any]) -> float:
    """Return the gap of a fit relative to its objective; residuals are relative already."""
    gap, objective = float(told["gap"]), float(told["objective"])
    return gap if "residual" in told["certificate"] or objective == 0 else gap / abs(objective)


def in_percent(off: float) -> str:
    """Return a bound in percent: two digits, and never less than 0.001 %."""
    bound = 100 * max(off, LEAST)
    return f"{bound:.2g} %" if bound < 10 else f"{bound:.0f} %"


@dataclass(frozen=True, eq=False)
class _Subject:
    """What the page is about."""

    metric: Metric
    start: Kernel
    X: Any
    relations: Constraint
    classes: Labels | None
    names: Sequence[str] | None
    source: str
    command: str

    @property
    def rows_in_words(self) -> str:
        n, d = _rows.count(self.X), _rows.width(self.X)
        width = f" of {some(d, 'feature')}" if d else ""
        return some(n, "row") + width + (f" in {self.source}" if self.source else "")


def _classes(relations: Constraint, y: Any) -> Labels | None:
    """Return what the pictures are ordered and coloured by; None where nothing tells rows apart."""
    if y is not None:
        return Labels(y)
    if isinstance(relations, Labels):
        return relations
    if isinstance(relations, Pairs):
        relations = relations.to(Chunklets)
    # many small groups would be lines and colours that nobody can tell apart
    if isinstance(relations, Chunklets) and 1 < relations.size <= plotting.MOST_NAMED:
        return Labels(relations.codes, unlabelled=-1)
    return None


# ------------------------------------------------------------------------------------------------------------- the page

STYLE = """
:root { color-scheme: light; --ink: #1c2430; --soft: #5b6675; --line: #dfe3e8; --accent: #1f77b4; }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.2rem 1rem 3rem; max-width: 62rem; color: var(--ink); background: #fff;
       font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.55rem; line-height: 1.25; margin: .2rem 0 .6rem; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 .4rem; padding-top: .8rem; border-top: 1px solid var(--line); }
p { margin: .4rem 0; max-width: 46rem; } .soft { color: var(--soft); }
.tiles, .pictures { display: grid; gap: .8rem; grid-template-columns: repeat(auto-fit, minmax(min(17rem, 100%), 1fr)); }
.tiles { margin: 1rem 0; }
.tile { border: 1px solid var(--line); border-radius: .5rem; padding: .6rem .8rem; }
.tile b { display: block; font-size: 1.35rem; } .tile span { color: var(--soft); font-size: .9rem; }
figure { margin: 0; min-width: 0; } figcaption { color: var(--soft); font-size: .92rem; }
img { display: block; width: 100%; height: auto; } .single { max-width: 36rem; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem .3rem 0; border-bottom: 1px solid var(--line); }
th { font-weight: 600; } td.number, th.number { text-align: right; white-space: nowrap; }
table.told th { width: 12rem; font-weight: 400; color: var(--soft); } td { overflow-wrap: anywhere; }
pre { background: #f5f6f8; border-radius: .4rem; padding: .7rem .9rem; white-space: pre-wrap; overflow-wrap: anywhere; }
@media (max-width: 30rem) { body { padding: .8rem .8rem 2rem; } h1 { font-size: 1.3rem; }
  table.told th { width: 8rem; } }
"""


def _page(about: _Subject) -> str:
    before = held(about.start, about.X, about.relations, seed=about.metric.seed)
    after = held(about.metric, about.X, about.relations, seed=about.metric.seed)
    title = f"A metric learned by {about.metric.report.get('method', 'hand')}"
    sections = [
        _lead(about, title, before, after),
        _pictures(about),
        _held(before, after),
        _convergence(about.metric),
        _weights(about.metric, about.names),
        _told(about.metric.report),
        _provenance(about),
    ]
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        # nothing is fetched, and a browser is told to allow nothing else
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; img-src data:; '
        "style-src 'unsafe-inline'\">"
        f'<link rel="icon" href="data:,"><title>{escape(title)}</title><style>{STYLE}</style>'
    )
    body = "\n".join(section for section in sections if section)
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n</body></html>\n'


def _lead(about: _Subject, title: str, before: Sequence[Held], after: Sequence[Held]) -> str:
    report = about.metric.report
    start = _rounded(repr(about.start))
    learned = f"Learned from {describe(about.relations)} over {about.rows_in_words}, starting from {start}."
    tiles = [_tile(f"{_percent(b.share)} → {_percent(a.share)}", a.what) for b, a in zip(before, after, strict=True)]
    if "status" in report:
        tiles.append(_tile(str(report["status"]).replace("_", " "), certified(report)))
        tiles.append(_tile(f"{report['seconds']:.2g} s", some(report["n_iter"], "iteration")))
    notes = [f"<li>{escape(str(note))}</li>" for note in (*report.get("converted", ()), *report.get("notes", ()))]
    said = f'<ul class="soft">{"".join(notes)}</ul>' if notes else ""
    return f'<h1>{escape(title)}</h1><p>{escape(learned)}</p>{said}<div class="tiles">{"".join(tiles)}</div>'


def _tile(value: str, label: str) -> str:
    return f'<div class="tile"><b>{escape(value)}</b><span>{escape(label)}</span></div>'


def _pictures(about: _Subject) -> str:
    n = _rows.count(about.X)
    chosen = _rows.draw(n, MOST_ROWS, about.metric.seed)
    rows = _rows.take(about.X, chosen)
    labels = None if about.classes is None else about.classes[chosen]
    pairs = about.relations[chosen] if isinstance(about.relations, Pairs) else None
    kinds = (("before", about.start), ("after", about.metric))
    maps = [plotting.MapDisplay.from_metric(one, rows, labels, pairs=pairs) for _, one in kinds]
    if labels is None:  # nothing tells rows apart: in the order of the map, so that blocks show if there are any
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
    return (
        "<h2>Kernel matrix</h2><p class='soft'>How alike any two rows are, seen from the mean: bright is alike, dark "
        f"is opposite. Rows that belong together should form bright blocks.{escape(sampled)}</p>"
        f'<div class="pictures">{"".join(matrices)}</div>'
        f"<h2>Map</h2><p class='soft'>Each point is a row; near means alike.{escape(_joined(pairs))}</p>"
        f'<div class="pictures">{"".join(planes)}</div>'
    )


def _joined(pairs: Pairs | None) -> str:
    """Return what the lines in a map are."""
    if pairs is None:
        return ""
    some = max(len(pairs.similar), len(pairs.dissimilar)) > plotting.MOST_LINES
    sampled = f" At most {plotting.MOST_LINES} of a kind are drawn." if some else ""
    return f" Lines join the pairs: solid ones should be short, dashed ones long.{sampled}"


def _held(before: Sequence[Held], after: Sequence[Held]) -> str:
    if not after:
        return ""
    lines = [
        f"<tr><td>{escape(a.what)}</td><td class='number'>{b.holds} of {b.total}</td>"
        f"<td class='number'>{a.holds} of {a.total}</td></tr>"
        for b, a in zip(before, after, strict=True)
    ]
    bars = _figure(plotting.RelationsDisplay(after, before).plot(), "relations that hold before and after", "")
    return (
        "<h2>Relations that hold</h2><p class='soft'>Counted on the rows that were learned from: how well the hints "
        "are met, not how well new rows will fare.</p>"
        f"<div class='single'>{bars}</div><table><tr><th>relation</th><th class='number'>before</th>"
        f"<th class='number'>after</th></tr>{''.join(lines)}</table>"
    )


def _convergence(metric: Metric) -> str:
    report = metric.report
    if "certificate" not in report:
        return ""
    told = f"Ended {report['status']} after {some(report['n_iter'], 'iteration')}. "
    told += f"The certificate ({report['certificate']}) is {report['gap']:.3g}: {certified(report)}."
    if len(report["trace"]) < 2:
        return f"<h2>Certificate</h2><p>{escape(told)}</p>"
    picture = _figure(plotting.ConvergenceDisplay.from_metric(metric), "the gap over the iterations", "")
    return f"<h2>Convergence</h2><p>{escape(told)}</p><div class='single'>{picture}</div>"


def _weights(metric: Metric, names: Sequence[str] | None) -> str:
    weights = plotting.feature_weights(metric)
    if weights is None:
        return ""
    used = int(np.count_nonzero(weights > 1e-9))
    fits = names if names is not None and len(names) == len(weights) else None
    picture = _figure(plotting.WeightsDisplay.from_metric(metric, fits), "the weights of features", "")
    return (
        f"<h2>Features</h2><p class='soft'>{used} of {len(weights)} features carry weight"
        f"{'; the twenty heaviest are shown' if len(weights) > 20 else ''}.</p><div class='single'>{picture}</div>"
    )


def _told(report: Mapping[str, Any]) -> str:
    hidden = {"trace", "notes", "converted", "columns", "parts"}
    components = {"kernel", "solver"}
    shown = {name: value for name, value in report.items() if name not in hidden}
    lines = [(name, _rounded(value) if name in components else _short(value)) for name, value in shown.items()]
    return f"<h2>Everything the fit told</h2>{_table(lines)}"


def _provenance(about: _Subject) -> str:
    lines = [
        ("metricforge", __version__),
        *((name, _version(name)) for name in ("numpy", "scipy", "scikit-learn", "dask", "primme")),
        ("Python", platform.python_version()),
        ("system", f"{platform.system()} {platform.machine()}"),
        ("written", time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())),
    ]
    command = f"<pre>{escape(about.command)}</pre>" if about.command else ""
    return f"<h2>How to get this again</h2>{command}{_table(lines)}"


# --------------------------------------------------------------------------------------------------------------- pieces


def _figure(display: Any, alt: str, caption: str) -> str:
    data = base64.b64encode(plotting.png(display.figure_, dpi=140)).decode()
    below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return f'<figure><img alt="{escape(alt)}" src="data:image/png;base64,{data}">{below}</figure>'


def _table(lines: Iterable[tuple[str, str]]) -> str:
    inside = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in lines)
    return f'<table class="told">{inside}</table>'


def _short(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"array of shape {value.shape}"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, tuple | list):
        return ", ".join(map(_short, value[:20])) + (", …" if len(value) > 20 else "")
    return str(value)


def _rounded(text: str) -> str:
    """Return a component's text with its numbers to four digits, without what is not set and what arrays hold."""
    text = re.sub(r"array\((?:[^()]|\([^()]*\))*\)", "array(…)", text)
    digits = re.sub(r"\d+\.\d{4,}(e[-+]?\d+)?", lambda number: f"{float(number[0]):.4g}", text)
    return re.sub(r"(, )?\w+=None", "", digits)


def some(count: int, what: str, more: str = "") -> str:
    """Return a count with its noun in the right number."""
    return f"{count} {what if count == 1 else more or what + 's'}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
