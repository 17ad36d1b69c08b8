"""The command line: ``metricforge demo``."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from . import __version__, datasets, plotting
from .constraints import Labels
from .errors import InputError
from .learning import learn
from .metric import Metric
from .registry import methods


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(prog="metricforge", description="Turn hints about likeness into a distance.")
    parser.add_argument("--version", action="version", version=f"metricforge {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    show = commands.add_parser("demo", help="learn metrics on the wine data and show what they change")
    show.add_argument("--out", type=Path, default=Path("demo"), help="folder for the picture (default: demo)")
    args = parser.parse_args(argv)
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s")
    try:
        return demo(args.out)
    except InputError as error:
        sys.stderr.write(f"metricforge: {error}\n")
        return 2
    except BrokenPipeError:
        return 0


# ----------------------------------------------------------------------------------------------------------------- demo


SETTINGS: dict[str, dict[str, Any]] = {"krca": {"kernel": "linear", "epsilon": 0.0}}
"""What the demo sets beside a method's defaults: on raw features relevant component analysis wants no ridge."""


@dataclass(frozen=True)
class Score:
    """What a metric is worth on rows it has not seen."""

    name: str
    error: float
    ari: float
    metric: Metric


def demo(out: Path) -> int:
    """Learn on half of the wine data with every method, score on the other half, and draw before and after."""
    X, y = datasets.load("wine")
    half = np.random.default_rng(0).permutation(len(X)) < len(X) // 2
    say(f"wine: {len(X)} rows, {X.shape[1]} features as measured (scales differ a thousandfold), 3 classes")
    say("learned on one half of the rows, scored on the other\n")
    say(f"{'method':<12} {'1-NN error':>10} {'clustering (ARI)':>17} {'gap':>9} {'seconds':>8}")
    scores = []
    for name in sorted((entry.name for entry in methods()), key=lambda n: (n != "euclidean", n)):
        metric = learn(X[half], Labels(y[half]), method=name, seed=0, **SETTINGS.get(name, {}))
        scores.append(score(name, metric, X, y, half))
        gap, seconds = metric.report.gap, metric.report.seconds
        say(f"{name:<12} {scores[-1].error:>10.1%} {scores[-1].ari:>17.3f} {gap:>9.1e} {seconds:>8.2f}")
    before, best = scores[0], min(scores, key=lambda s: (s.error, -s.ari))
    path = draw(before, best, X[~half], y[~half], out / "wine.png")
    say(f"\nBefore ({before.name}) and after ({best.name}): {path}")
    return 0


def score(name: str, metric: Metric, X: Any, y: Any, half: Any) -> Score:
    """Return the 1-NN error and the adjusted Rand index of k-means on the rows that were held out."""
    from sklearn.cluster import KMeans
    from sklearn.metrics import adjusted_rand_score

    nearest = metric.neighbors(X[~half], k=1)[0][:, 0]
    error = float(np.mean(y[half][nearest] != y[~half]))
    found = KMeans(len(np.unique(y)), n_init=10, random_state=0).fit_predict(metric.transform(X[~half]))
    return Score(name, error, float(adjusted_rand_score(y[~half], found)), metric)


def draw(before: Score, after: Score, X: Any, y: Any, path: Path) -> Path:
    """Draw maps and kernel matrices of two metrics side by side."""
    figure, axes = plotting.grid(2, 2)
    for row, kind, one in zip(axes, ("before", "after"), (before, after), strict=True):
        plotting.plot_map(one.metric, X, y, ax=row[0]).set_title(f"{kind}: {one.name}, 1-NN error {one.error:.1%}")
        plotting.plot_kernel(one.metric, X, y, ax=row[1]).set_title(f"kernel, rows by class (ARI {one.ari:.2f})")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=110)
    except OSError as error:
        raise InputError(f"--out: cannot write {str(path)!r}: {error.strerror}; choose another folder") from None
    return path


def say(line: str) -> None:
    """Write a line to standard output."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
