"""The demonstration: every installed method on small data, before and after."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import datasets, files, plotting, report
from .cli import say, say_json
from .constraints import Labels
from .errors import InputError
from .learning import learn
from .metric import Metric
from .registry import methods

Array = NDArray[Any]

SETTINGS: dict[str, dict[str, Any]] = {"krca": {"kernel": "linear", "epsilon": 0.0}, "kcr": {"tol": 0.1}}
"""What is set beside a method's defaults: on raw features relevant component analysis wants no ridge, and the kernel
classification rule may stop within a tenth of its objective, which a demonstration waits for."""


@dataclass(frozen=True, eq=False)
class Half:
    """A data set of which one half is learned from and the other half is for scores."""

    name: str
    about: str
    X: Array
    y: Array
    seen: Array

    @property
    def learned_from(self) -> tuple[Array, Array]:
        """The rows and labels that a method sees."""
        return self.X[self.seen], self.y[self.seen]

    @property
    def held_out(self) -> tuple[Array, Array]:
        """The rows and labels for scores."""
        return self.X[~self.seen], self.y[~self.seen]


@dataclass(frozen=True, eq=False)
class Line:
    """One line of the table: a method on a data set, before (the kernel it starts from) and after."""

    data: str
    method: str
    error: tuple[float, float]
    ari: tuple[float, float]
    metric: Metric

    @property
    def optimum(self) -> str:
        """How near the optimum the fit ended."""
        off = report.relative(self.metric.report)
        return "reached" if off < report.ROUNDING else f"within {report.in_percent(off)}"

    def as_dict(self) -> dict[str, Any]:
        """Return the line for a script."""
        told = {name: self.metric.report[name] for name in ("objective", "gap", "certificate", "seconds")}
        return {"data": self.data, "method": self.method, "error": self.error, "ari": self.ari, **told}


REASONS = {
    ("wine", "kcr"): "its Gaussian sees the widest raw column only; standardise the columns first",
    ("wdbc", "krca"): "without a ridge, noise weighs as much as the rest; the default epsilon avoids most of it",
}
"""Why a method does worse on one of these data sets than the kernel it starts from, and what to do."""


def _reason(line: Line) -> str:
    reason = REASONS.get((line.data, line.method))
    return f" ({reason})" if reason else ""


def run(args: Namespace) -> None:
    """Learn on half of each data set with every method, score on the other half, and draw what changed."""
    plotting.check_installed()
    out = Path(args.out)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out: cannot make the folder {args.out!r}: {error.strerror}; choose another") from None
    pages = {"picture": out / "wine.png", "report": out / "report.html"}
    for path in pages.values():
        files.check_writable(path)
    tell = (lambda line="": None) if args.json else say
    lines: list[Line] = []
    tell("A metric is learned on one half of the rows and scored on the other, before and after.")
    for data in halves():
        tell(f"\n{data.about}")
        tell(f"  {'method':<12} {'1-NN error':>18} {'clustering (ARI)':>18} {'optimum':>15} {'seconds':>8}")
        for line in compare(data):
            lines.append(line)
            (e0, e1), (a0, a1), told = line.error, line.ari, line.metric.report
            shown = f"{100 * e0:.1f} % → {100 * e1:.1f} %", f"{a0:.2f} → {a1:.2f}"
            tell(f"  {line.method:<12} {shown[0]:>18} {shown[1]:>18} {line.optimum:>15} {told.seconds:>8.2f}")
    if worse := [line for line in lines if line.error[1] > line.error[0]]:
        tell(f"\nWorse than before: {'; '.join(f'{line.method} on {line.data}{_reason(line)}' for line in worse)}.")
    wine = next(halves())
    best = min((line for line in lines if line.data == "wine"), key=lambda line: (line.error[1], -line.ari[1]))
    draw(wine, best, pages["picture"])
    write_report(wine, best, pages["report"])
    if args.json:
        say_json({"lines": [line.as_dict() for line in lines], **{name: str(path) for name, path in pages.items()}})
        return
    tell(f"\n{best.method} on wine, as a picture: {pages['picture']}, as a page: {pages['report']}")
    tell("Your own rows: metricforge learn data.csv --label class --report report.html")


def halves() -> Iterator[Half]:
    """Yield the data sets, each split in two by a fixed seed."""
    for name, about, standardise in (
        ("wine", "wine as measured: 178 rows, 13 features whose scales differ a thousandfold, 3 classes", False),
        ("wdbc", "wdbc, breast cancer, standardised: 569 rows, 30 features, 2 classes", True),
        ("toy", "toy: 100 rows, one feature that matters and ten of louder noise, 2 classes", False),
    ):
        X, y = datasets.load(name)
        seen = np.random.default_rng(0).permutation(len(X)) < len(X) // 2
        if standardise:
            X = (X - X[seen].mean(axis=0)) / X[seen].std(axis=0)
        yield Half(name, about, X, y, seen)


def compare(data: Half) -> Iterator[Line]:
    """Learn by every installed method that learns anything, and score it beside what it started from."""
    X, y = data.learned_from
    for entry in methods():
        if entry.name == "euclidean":
            continue
        metric = learn(X, Labels(y), method=entry.name, seed=0, **SETTINGS.get(entry.name, {}))
        start = learn(X, Labels(y), method="euclidean", kernel=report.starting_kernel(metric, X), seed=0)
        (e0, a0), (e1, a1) = score(start, data), score(metric, data)
        yield Line(data.name, entry.name, (e0, e1), (a0, a1), metric)


def score(metric: Metric, data: Half) -> tuple[float, float]:
    """Return the 1-NN error and the adjusted Rand index of k-means on the rows that were held out."""
    from sklearn.cluster import KMeans
    from sklearn.metrics import adjusted_rand_score

    A, y = data.held_out
    nearest = metric.neighbors(A, k=1)[0][:, 0]
    error = float(np.mean(data.learned_from[1][nearest] != y))
    found = KMeans(len(np.unique(y)), n_init=10, random_state=0).fit_predict(metric.transform(A))
    return error, float(adjusted_rand_score(y, found))


def draw(data: Half, line: Line, path: Path) -> None:
    """Draw maps and kernel matrices of the held-out rows, before on top and after below."""
    X, y = data.learned_from
    start = learn(X, Labels(y), method="euclidean", seed=0)
    before = score(start, data)
    figure, axes = plotting.grid(2, 2)
    for row, kind, one, (error, ari) in (
        (axes[0], "before: euclidean", start, before),
        (axes[1], f"after: {line.method}", line.metric, (line.error[1], line.ari[1])),
    ):
        plotting.MapDisplay.from_metric(one, *data.held_out, ax=row[0])
        row[0].set_title(f"{kind}, 1-NN error {100 * error:.1f} %")
        plotting.KernelDisplay.from_metric(one, *data.held_out, ax=row[1])
        row[1].set_title(f"kernel, rows by class (ARI {ari:.2f})")
    files.write(path, plotting.png(figure))


def write_report(data: Half, line: Line, path: Path) -> None:
    """Write the page of the best fit."""
    _, y = data.learned_from
    report.write(path, line.metric, Labels(y), source=f"one half of {data.name}", command="metricforge demo")
