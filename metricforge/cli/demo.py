"""The demonstration: every installed method on small data, before and after."""

from __future__ import annotations

import warnings
from argparse import Namespace
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import datasets, plotting
from ..constraints import Labels
from ..errors import ConvergenceWarning, InputError
from ..files import atomic as files
from ..kernels import Linear, Standardized
from ..learning import learn, learn_named
from ..metric import Metric
from ..registry import registry
from ..report import Report
from ..reports import page as report
from ..resolve import declared_methods, find_kernel, label
from ..tasks import held_out
from .output import write_json, write_line

Array = NDArray[Any]

FIRST = "mf.learn(X, y), the first call"


@dataclass(frozen=True, eq=False)
class Half:
    """A data set that is split in two halves: one to learn from, one for scores."""

    name: str
    description: str
    X: Array
    y: Array
    training: Array  # (n,) bool
    names: tuple[str, ...] = ()

    @property
    def learned_from(self) -> tuple[Array, Array]:
        """The rows and labels to learn from."""
        return self.X[self.training], self.y[self.training]

    @property
    def held_out(self) -> tuple[Array, Array]:
        """The rows and labels for scores."""
        return self.X[~self.training], self.y[~self.training]


@dataclass(frozen=True, eq=False)
class Line:
    """One line of the table: a method with some settings on a data set, before (its start kernel) and after."""

    data: str
    method: str
    settings: Mapping[str, Any]
    error: tuple[float, float]
    ari: tuple[float, float]
    metric: Metric

    @property
    def name(self) -> str:
        """The method and its settings."""
        return label(self.method, self.settings).replace("(", " (", 1) if self.settings else self.method

    @property
    def certificate(self) -> str:
        """Kind and value of the certificate, relative if it has a scale."""
        found = self.metric.report.certificate
        return f"{found.kind} {found.value if found.relative is None else found.relative:.1e}"

    def as_dict(self) -> dict[str, Any]:
        """Return the line as JSON types."""
        fields = {name: self.metric.report[name] for name in ("objective", "gap", "certificate", "seconds")}
        settings = {name: str(value) for name, value in self.settings.items()}
        return {
            "data": self.data,
            "method": self.method,
            "settings": settings,
            "error": self.error,
            "ari": self.ari,
            **fields,
        }


def run(args: Namespace) -> None:
    """Learn on half of each data set with every method, score on the other half, and draw what changed."""
    plotting.check_installed()
    out = Path(args.out)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out: cannot create the folder {args.out!r}: {error.strerror}; choose another") from None
    pages = {"picture": out / "wine.png", "report": out / "report.html"}
    for path in pages.values():
        files.check_writable(path)
    show = (lambda line="": None) if args.json else write_line
    lines: list[Line] = []
    show(
        "A metric is learned on one half of the rows and scored on the other. Before: distance on the columns as given."
    )
    for data in halves():
        show(f"\n{data.description}")
        show(f"  {'method':<36} {'1-NN error':>20} {'clustering (ARI)':>18} {'certificate':>17} {'seconds':>8}")
        for line in compare(data):
            lines.append(line)
            (e0, e1), (a0, a1), seconds = line.error, line.ari, line.metric.report.seconds
            spread = 100 * np.sqrt(e1 * (1 - e1) / np.count_nonzero(~data.training))
            errors, indices = f"{100 * e0:.1f} → {100 * e1:.1f} ± {spread:.1f} %", f"{a0:.2f} → {a1:.2f}"
            show(f"  {line.name:<36} {errors:>20} {indices:>18} {line.certificate:>17} {seconds:>8.2f}")
    wine = next(halves())
    first = next(line for line in lines if line.data == "wine" and line.method == FIRST)
    draw(wine, first, pages["picture"])
    write_report(wine, first, pages["report"])
    if args.json:
        write_json({"lines": [line.as_dict() for line in lines], **{name: str(path) for name, path in pages.items()}})
        return
    show(f"\n{first.name} on wine, as a picture: {pages['picture']}, as a page: {pages['report']}")
    show("Your own rows: metricforge learn data.csv --label class --report report.html")


def halves() -> Iterator[Half]:
    """Yield the data sets, each split in two by a fixed seed."""
    for name, description, standardise in (
        ("wine", "wine as measured: 178 rows, 13 features whose scales differ a thousandfold, 3 classes", False),
        ("wdbc", "wdbc, breast cancer, standardised: 569 rows, 30 features, 2 classes", True),
        ("toy", "toy: 100 rows, one informative feature and ten noise features of larger variance, 2 classes", False),
    ):
        X, y = datasets.load(name)
        training = np.random.default_rng(0).permutation(len(X)) < len(X) // 2
        if standardise:
            X = (X - X[training].mean(axis=0)) / X[training].std(axis=0)
        yield Half(name, description, X, y, training, _feature_names(name))


def _feature_names(name: str) -> tuple[str, ...]:
    """Return the names of the columns of a data set that ships with scikit-learn."""
    from sklearn import datasets as shipped

    load = {"wine": shipped.load_wine, "wdbc": shipped.load_breast_cancer}.get(name)
    return () if load is None else tuple(map(str, load().feature_names))


def compare(data: Half) -> Iterator[Line]:
    """Learn as the first call does, then by every method that can use labelled vectors and its settings; score."""
    yield replace(fitted(data, "auto", {}), method=FIRST)
    for name, method in declared_methods()[0].items():
        usable = method.kernel.takes == "vectors" and registry.path(Labels, method.solver.accepts) is not None
        for settings in ({}, *method.settings) if usable and not method.baseline else ():
            line = fitted(data, name, settings)
            yield line
            start = line.metric.start
            if line.error[1] > line.error[0] and start is not None and not start.scale_free:
                # what its own advice says: scale the columns first
                kernel = Standardized(find_kernel(settings.get("kernel", method.kernel)))
                yield fitted(data, name, {**settings, "kernel": kernel})


def fitted(data: Half, method: str, settings: Mapping[str, Any]) -> Line:
    """Learn on one half and score on the other."""
    X, y = data.learned_from
    options = {name: value for name, value in settings.items() if name not in ("kernel", "rank")}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the table shows the certificate
        metric = learn_named(
            X,
            data.names or None,
            Labels(y),
            method=method,
            kernel=settings.get("kernel"),
            rank=settings.get("rank", "auto"),
            seed=0,
            options=options,
        )
    (e0, a0), (e1, a1) = score(plain(metric), data), score(metric, data)
    return Line(data.name, method, settings, (e0, e1), (a0, a1), metric)


def plain(metric: Metric) -> Metric:
    """Return Euclidean distance on the columns as given, over the same training rows."""
    return Metric(Linear(), Report({"method": "plain"}), rows=metric.rows, columns=metric.columns)


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
    figure, axes = plotting.grid(2, 2)
    for row, kind, one, (error, ari) in (
        (axes[0], "before: columns as given", plain(line.metric), (line.error[0], line.ari[0])),
        (axes[1], f"after: {line.metric.report.method}", line.metric, (line.error[1], line.ari[1])),
    ):
        plotting.MapDisplay.from_metric(one, *data.held_out, ax=row[0])
        row[0].set_title(f"{kind}, 1-NN error {100 * error:.1f} %")
        plotting.KernelDisplay.from_metric(one, *data.held_out, ax=row[1])
        row[1].set_title(f"kernel, rows by class (ARI {ari:.2f})")
    files.write(path, plotting.png(figure))


def write_report(data: Half, line: Line, path: Path) -> None:
    """Write the page of the first call, with its scores on rows held out of this half."""
    X, y = data.learned_from
    scores = held_out(X, Labels(y), learn, seed=0)
    metric = line.metric.with_facts(held_out_scores=tuple(score.as_dict() for score in scores))
    report.write(path, metric, Labels(y), source=f"one half of {data.name}", command="metricforge demo")
