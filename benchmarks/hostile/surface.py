"""Entries of the API part beside ``learn`` and the metric itself: comparison, indexes, scores, classic estimators."""

from __future__ import annotations

from inspect import signature
from typing import Any

import numpy as np

import metricforge as mf
from metricforge import kernels as k

from . import hints, rows
from .battery import count, in_memory
from .rows import Rng, pick
from .trial import Trial, Verdict, finite

NUMBERS = [1, 2, 3, 5, 0, -1, 2.5, None, "3", True, 10**9]
CLASSICS = ["Covariance", "ITML", "ITML_Supervised", "LFDA", "LMNN", "LSML", "LSML_Supervised", "MLKR", "MMC"]
CLASSICS += ["MMC_Supervised", "NCA", "RCA", "RCA_Supervised"]


def _small(rng: Rng) -> rows.Rows:
    """Draw rows that most calls accept."""
    return rows.draw(rng) if rng.random() < 0.4 else rows.vectors(rng, n=int(rng.integers(6, 30)))


def _metric(trial: Trial, rng: Rng, data: rows.Rows) -> Any:
    made = pick(rng, [None, k.Linear(), k.RBF("median"), k.Laplacian("median")])
    method = pick(rng, ["euclidean", "krca"])
    y = np.arange(data.n) % 2
    return trial.call(f"mf.learn by {method}, {made!r}", mf.learn, data.X, y, method=method, kernel=made)


def compare(trial: Trial, rng: Rng) -> None:
    """Compare two candidates on few rows."""
    data = _small(rng)
    trial.describe(f"X: {data.description}")
    hint = hints.draw(rng, data.n) if rng.random() < 0.5 else hints.plain(rng, data.n)
    constraint = trial.call(f"hint: {hint.description}", hint.make)
    some = pick(rng, [["euclidean"], ["krca"], ["krca", "euclidean"], ["lfda"], ["nonsense"], [3], [], "krca", [{}]])
    folds = pick(rng, [2, 2, 2, 3, 1, 0, 10**9, "x"])
    table = trial.call(
        f"mf.compare(X, hint, candidates={some!r}, folds={folds!r})",
        mf.compare,
        data.X,
        constraint,
        candidates=some,
        folds=folds,
    )
    trial.call("repr and records", lambda: (repr(table), table.records()))
    metric = trial.call("fit the best", table.fit)
    D = in_memory(trial.call("distance", metric.distance, data.X))
    trial.check(finite(D), Verdict.NAN, "distance after compare is not finite")
    trial.passed = True


def index(trial: Trial, rng: Rng) -> None:
    """Build an index and search it; its lists must be those of the metric where all rows are compared."""
    data = _small(rng)
    trial.describe(f"X: {data.description}")
    metric = _metric(trial, rng, data)
    size, recall = pick(rng, NUMBERS), pick(rng, [1.0, 1.0, 0.95, 0.5, 0, -1, 2, float("nan"), "x", None])
    path = pick(rng, [None, trial.folder / "index", trial.folder / "no" / "folder"])
    made = trial.call(
        f"metric.index(k={size!r}, recall={recall!r}, path={'given' if path else None})",
        lambda: metric.index(k=size, recall=recall, path=path),
    )
    other = pick(rng, NUMBERS)
    found, D = trial.call(f"index.search(X, k={other!r})", made.search, data.X, other)
    trial.check(finite(D), Verdict.NAN, "distances of an index are not finite")
    inside = found.size == 0 or (found.min() >= 0 and found.max() < count(metric.rows))
    trial.check(inside, Verdict.WRONG, "an index finds rows that do not exist")
    trial.passed = True


def scores(trial: Trial, rng: Rng) -> None:
    """Compute the scores and tasks that take a metric."""
    data = _small(rng)
    n = data.n
    trial.describe(f"X: {data.description}")
    hint = hints.draw(rng, n) if rng.random() < 0.4 else hints.plain(rng, n)
    constraint = trial.call(f"hint: {hint.description}", hint.make)
    metric = _metric(trial, rng, data)
    queries = pick(rng, [[0], [0, 1], [], [n], [-1], None, "x", [0.5], [[0]], range(n)])
    relevant = pick(rng, [[[1]], [[1], [0]], [], [[n]], [[0]], None, [[]], [["a"]], [[1]] * n])
    size = pick(rng, NUMBERS)
    y = hints.LABELS[pick(rng, hints.LABELS)](rng, n) if rng.random() < 0.5 else np.arange(n) % 3
    calls: dict[str, Any] = {
        "satisfied": lambda: mf.tasks.satisfied(metric, data.X, constraint),
        "retrieval_scores": lambda: mf.tasks.retrieval_scores(metric, data.X, queries, relevant, k=size),
        "hard_negatives": lambda: mf.tasks.hard_negatives(data.X, queries, relevant, per_query=size),
        "from_relevance": lambda: mf.Triplets.from_relevance(queries, relevant, n),
        "classify": lambda: mf.tasks.classify(metric, y, data.X, k=size),
        "calibrate": lambda: mf.tasks.calibrate(metric, data.X, constraint),
        "candidates": lambda: mf.tasks.candidates(metric, data.X, size),
        "clusters_by_silhouette": lambda: mf.tasks.clusters_by_silhouette(data.X, constraint, tried=(2, size)),
        "truncated": lambda: metric.truncated(size).transform(data.X),
        "mahalanobis": metric.mahalanobis,
        "adapter": lambda: metric.adapter(pick(rng, ["query", "both", "x"]), n_components=size),
        "repr": lambda: (repr(metric), str(metric.report), metric._repr_html_()),
        "by kernel": lambda: metric.neighbors(data.X, k=size, by="kernel"),
    }
    what = pick(rng, calls)
    answer = trial.call(f"{what}: queries {queries!r}, relevant {relevant!r}, {size!r}", calls[what])
    if isinstance(answer, tuple | np.ndarray):
        parts = answer if isinstance(answer, tuple) else (answer,)
        ok = all(finite(in_memory(part)) for part in parts if isinstance(part, np.ndarray))
        trial.check(ok, Verdict.NAN, f"{what} is not finite")
    trial.passed = True


def classics(trial: Trial, rng: Rng) -> None:
    """Fit an estimator with metric-learn's name, on rows and labels or on tuples of rows."""
    data = _small(rng)
    trial.describe(f"X: {data.description}")
    name = pick(rng, CLASSICS)
    y = hints.LABELS[pick(rng, hints.LABELS)](rng, data.n) if rng.random() < 0.5 else np.arange(data.n) % 2
    cls = getattr(mf.classics, name)
    # without a seed they draw from NumPy's global generator, as scikit-learn's estimators do
    seeded = {"random_state": 0} if "random_state" in signature(cls).parameters else {}
    made = trial.call(f"classics.{name}({seeded})", cls, **seeded)
    given: tuple[Any, ...] = (data.X, y)
    if name in ("ITML", "MMC", "LSML") and rng.random() < 0.8:
        width = 4 if name == "LSML" else 2
        tuples = rng.normal(size=(8, width, 3)) * pick(rng, [1.0, 1.0, 0.0, 1e150, 1e-150, float("nan")])
        given = (tuples,) if name == "LSML" else (tuples, np.where(np.arange(8) % 2, 1, -1))
        trial.describe(f"tuples of shape {tuples.shape}")
    trial.call("fit", made.fit, *given)
    E = trial.call("transform", made.transform, data.X)
    trial.check(finite(in_memory(E)), Verdict.NAN, f"classics.{name}.transform is not finite")
    M = trial.call("get_mahalanobis_matrix", made.get_mahalanobis_matrix)
    trial.check(finite(M), Verdict.NAN, f"classics.{name}: M is not finite")
    trial.passed = True


ENTRIES = [compare, index, scores, scores, scores, classics, classics]
