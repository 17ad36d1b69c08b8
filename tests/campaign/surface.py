"""Entries of the API part beside ``learn`` and the metric itself: comparison, indexes, scores, classic estimators."""

from __future__ import annotations

from inspect import signature
from typing import Any

import numpy as np

import metricforge as mf
from metricforge import kernels as k

from . import hints, rows
from .battery import check_reference, check_report, count, in_memory
from .rows import Rng, pick
from .trial import Trial, Verdict, finite

NUMBERS = [1, 2, 3, 5, 0, -1, 2.5, None, "3", True, 10**9]
CLASSICS = ["Covariance", "ITML", "ITML_Supervised", "LFDA", "LMNN", "LSML", "LSML_Supervised", "MLKR", "MMC"]
CLASSICS += ["MMC_Supervised", "NCA", "RCA", "RCA_Supervised"]


def _small(rng: Rng) -> rows.Rows:
    """Draw rows that most calls accept."""
    return rows.draw(rng) if rng.random() < 0.25 else rows.mild(rng, n=int(rng.integers(6, 30)))


def _metric(trial: Trial, rng: Rng, data: rows.Rows) -> Any:
    made = pick(rng, [None, k.Linear(), k.RBF("median"), k.Laplacian("median")])
    method = pick(rng, ["euclidean", "krca"])
    y = np.arange(data.n) % 2
    return trial.call(f"mf.learn by {method}, {made!r}", mf.learn, data.X, y, method=method, kernel=made)


def compare(trial: Trial, rng: Rng) -> None:
    """Compare two candidates on few rows."""
    data = _small(rng)
    trial.describe(f"X: {data.description}")
    hint = hints.draw(rng, data.n) if rng.random() < 0.3 else hints.plain(rng, data.n, "krca")
    constraint = trial.call(f"hint: {hint.description}", hint.make)
    good = [["euclidean"], ["krca"], ["krca", "euclidean"], ["llr"]]
    some = pick(rng, [*good * 4, ["lfda"], ["nonsense"], [3], [], "krca", [{}]])
    folds = pick(rng, [*[2, 2, 3] * 4, 1, 0, 10**9, "x"])
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
    size = pick(rng, NUMBERS)
    recall = pick(rng, [*[1.0, 1.0, 0.95, 0.5] * 3, 0, -1, 2, float("nan"), "x", None])
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


def searching(trial: Trial, rng: Rng) -> None:
    """Search by cells: rows that are found must exist, have their true distances, and be in order."""
    data = _small(rng)
    trial.describe(f"X: {data.description}")
    size = pick(rng, [*[1, 2, 3, data.n - 1] * 3, *NUMBERS])
    share = pick(rng, [*[0.5, 0.95, 1.0] * 3, 0, -1, 2, float("nan"), "x"])
    # without pynndescent, which compiles for 30 to 60 CPU seconds in a process: more than the limit of a case
    method = pick(rng, ["cells", "cells", "auto", "cells"])
    asked = pick(rng, [None, None, data.X])
    found, D = trial.call(
        f"neighbors.search(X, {size!r}, method={method!r}, recall={share!r}), {'queries' if asked is not None else ''}",
        lambda: mf.neighbors.search(data.X, size, method=method, recall=share, queries=asked),
    )
    found, D = (np.asarray(in_memory(part)) for part in (found, D))
    trial.passed = True
    if not trial.check(finite(D), Verdict.NAN, f"neighbors.search ({method}): a distance is not finite"):
        return
    inside = ((found >= 0) & (found < data.n)).all()
    if not trial.check(inside, Verdict.WRONG, f"neighbors.search ({method}) finds rows that do not exist"):
        return
    trial.check((np.diff(D, axis=1) >= 0).all(), Verdict.WRONG, f"neighbors.search ({method}): not in order")
    if data.truth is not None:
        truth = np.take_along_axis(rows.distances(data.truth), found, axis=1)
        check_reference(trial, D, truth, single=data.single, what=f"neighbors.search ({method}): distances are off")


def matching(trial: Trial, rng: Rng) -> None:
    """Calibrate probabilities of matches on judged pairs, and use them."""
    data = _small(rng)
    trial.describe(f"X: {data.description}")
    metric = _metric(trial, rng, data)
    if rng.random() < 0.2:
        hint = hints.draw(rng, data.n)
        constraint = trial.call(f"hint: {hint.description}", hint.make)
    else:
        constraint = mf.Pairs.from_labels(np.arange(data.n) // 2, n_pairs=40)
    known = trial.call("calibrate", mf.tasks.calibrate, metric, data.X, constraint)
    precision = pick(rng, [*[0.1, 0.3, 0.5, 0.9] * 3, 1.0, 0, -1, 2, float("nan"), None, "x", True])
    confidence = pick(rng, [*[None, 0.95, 0.5] * 3, 0, 1, -1, float("nan"), "x"])
    odd = [[-1.0], [float("nan")], [float("inf")], "x", None, [[1.0]], []]
    given = pick(rng, [*[[0.0], [1.0, 2.0], [1e300]] * 4, *odd])
    P = trial.call(f"probability({given!r})", known.probability, given)
    ok = finite(P) and (np.asarray(P) >= 0).all() and (np.asarray(P) <= 1).all()
    trial.check(ok, Verdict.WRONG, "a probability of a match is not in [0, 1]", repr(P)[:200])
    trial.call(f"coverage({given!r})", known.coverage, given)
    limit = trial.call(f"threshold({precision!r}, {confidence!r})", known.threshold, precision, confidence)
    trial.check(finite(limit), Verdict.NAN, "the threshold of matches is not finite")
    share = trial.call("recall of the threshold", known.recall, limit)
    trial.check(0 <= share <= 1, Verdict.WRONG, "the recall of matches is not in [0, 1]")
    size = pick(rng, NUMBERS)
    pairs, D = trial.call(f"candidates(k={size!r})", mf.tasks.candidates, metric, data.X, size)
    trial.check(finite(D), Verdict.NAN, "distances of candidates are not finite")
    ok = len(pairs) == 0 or (pairs.min() >= 0 and pairs.max() < data.n and (pairs[:, 0] != pairs[:, 1]).all())
    trial.check(ok, Verdict.WRONG, "candidates that are no pairs of rows")
    trial.passed = True


def relevance(trial: Trial, rng: Rng) -> None:
    """Draw triplets from judgements of relevance, with grades and irrelevant rows, and learn from them."""
    n = int(rng.integers(3, 30))
    X = rows.mild(rng, n=n)
    trial.describe(f"X: {X.description}")
    asked = rng.permutation(n)[: int(rng.integers(1, min(n, 6)))].tolist()
    lists = [[row for row in rng.permutation(n)[:4].tolist() if row != query][:3] for query in asked]
    grades: Any = [[int(rng.integers(1, 4)) for _ in one] for one in lists]
    given: dict[str, Any] = {"queries": asked, "relevant": lists, "n": n}
    if rng.random() < 0.5:
        given["grades"] = grades
    if rng.random() < 0.3:
        given["irrelevant"] = [
            [row for row in range(n) if row not in (query, *one)][:2] for query, one in zip(asked, lists, strict=True)
        ]
    if rng.random() < 0.3:
        given["per_pair"] = pick(rng, NUMBERS)
    if rng.random() < 0.25:
        name = pick(rng, given)
        junk = [None, 3, "x", [], [[]], [[n]], [[-1]], [[0.5]], [["a"]], [[float("nan")]], {0: [1]}]
        given[name] = pick(rng, [*junk, [[10**18]] * len(asked)])
    words = ", ".join(f"{name}={value!r}"[:120] for name, value in given.items())
    made = trial.call(f"Triplets.from_relevance({words})", lambda: mf.Triplets.from_relevance(**given))
    trial.passed = True
    metric = trial.call("mf.learn by relevance", mf.learn, X.X, made, method="relevance")
    check_report(trial, metric)
    size = pick(rng, [1, 2, n, n + 1])
    _, values = trial.call(
        f"metric.neighbors(X, {size}, by='kernel')", lambda: metric.neighbors(X.X, size, by="kernel")
    )
    values = np.asarray(in_memory(values))
    trial.check(finite(values), Verdict.NAN, "scores are not finite")
    trial.check((np.diff(values, axis=1) <= 0).all(), Verdict.WRONG, "scores are not in order")
    E = in_memory(trial.call("transform", metric.transform, X.X))
    trial.check(finite(E), Verdict.NAN, "transform of relevance is not finite")


def chunked(trial: Trial, rng: Rng) -> None:
    """Learn from and ask with dask arrays: what is answered must be what rows in memory give."""
    import dask.array as da

    data = rows.mild(rng, n=int(rng.integers(4, 40)))
    A = data.truth
    if A is None:
        return
    n, d = A.shape
    X = da.from_array(A, chunks=(int(rng.integers(1, n + 1)), int(rng.integers(1, d + 1))))
    trial.describe(f"X: {data.description.partition(',')[0]}, {data.description}, in chunks {X.chunks}")
    method = pick(rng, [entry.name for entry in mf.methods()])
    made = pick(rng, [None, k.Linear(), k.RBF("median")])
    hint = hints.plain(rng, n, method)
    constraint = trial.call(f"hint: {hint.description}", hint.make)
    lazy = trial.call(
        f"mf.learn(dask, {method!r}, {made!r})", lambda: mf.learn(X, constraint, method=method, kernel=made)
    )
    D = trial.call("lazy distance", lambda: in_memory(lazy.distance(X)))
    trial.check(finite(D), Verdict.NAN, "distances of chunks are not finite")
    E = trial.call("lazy transform", lambda: in_memory(lazy.transform(X)))
    trial.check(finite(E), Verdict.NAN, "transform of chunks is not finite")
    size = pick(rng, [1, n, n + 1])
    indices, near = trial.call(f"lazy neighbors, k={size}", lambda: tuple(map(in_memory, lazy.neighbors(X, k=size))))
    trial.check(finite(near), Verdict.NAN, "neighbors among chunks: a distance is not finite")
    trial.check(((indices >= 0) & (indices < n)).all(), Verdict.WRONG, "neighbors among chunks that do not exist")
    truth = np.asarray(in_memory(trial.call("distance of rows in memory", lazy.distance, A)), dtype=float)
    top = float(truth.max(initial=0)) + 1e-6 * float(np.sqrt(np.abs(in_memory(lazy.kernel(A))).max(initial=0)))
    notes = " ".join(map(str, lazy.report.get("notes", ())))
    if not any(word in notes for word in ("digits", "rounding")):
        off = float(np.abs(D - truth).max(initial=0))
        trial.check(off <= 1e-5 * top, Verdict.WRONG, "distances of chunks are others", f"by {off:.3g} of {top:.3g}")
        if size <= n:
            off = float(np.abs(np.sort(truth, axis=1)[:, :size] - near).max(initial=0))
            trial.check(off <= 1e-5 * top, Verdict.WRONG, "neighbors among chunks are others", f"{off:.3g}, {top:.3g}")
    path = trial.folder / "lazy.metric"
    trial.call("save", lazy.save, path)
    copy = trial.call("load", mf.load, path)
    again = in_memory(trial.call("distance of the loaded copy", copy.distance, A))
    trial.check(np.array_equal(again, truth), Verdict.WRONG, "a loaded copy of a lazy fit measures other distances")
    trial.passed = True


def products(trial: Trial, rng: Rng) -> None:
    """Compute eigenpairs of a symmetric matrix in chunks, by products with its blocks."""
    import dask.array as da
    from scipy import sparse

    n, size = int(rng.integers(8, 250)), int(rng.integers(1, 6))
    A = rng.normal(size=(n, n)) * (rng.random((n, n)) < pick(rng, [0.03, 0.2, 1.0]))
    A = A + A.T
    rows, columns = int(rng.integers(3, n + 1)), int(rng.integers(3, n + 1))
    X = da.from_array(A, chunks=(rows, columns))
    if rng.random() < 0.5:
        X = X.rechunk((rows, -1)).map_blocks(sparse.csr_array, dtype=A.dtype)
    solver = pick(rng, ["auto", "lanczos"])
    what = f"eigen.top({n} × {n} in chunks {X.chunks}, {size}, solver={solver!r})"
    found = trial.call(what, mf.eigen.top, X, size, solver=solver)
    w, V = (np.asarray(in_memory(part)) for part in found)
    trial.passed = True
    truth = np.linalg.eigvalsh(A)[::-1][:size]
    off, top = float(np.abs(w - truth).max()), float(np.abs(A).sum(axis=1).max()) + 1e-300
    trial.check(off <= 1e-6 * top, Verdict.WRONG, "eigenvalues of chunks are off", f"by {off:.3g}, {top:.3g}")
    off = float(np.abs(A @ V - V * w).max())
    trial.check(off <= 1e-5 * top, Verdict.WRONG, "eigenvectors of chunks are off", f"by {off:.3g}, {top:.3g}")


def classics(trial: Trial, rng: Rng) -> None:
    """Fit an estimator with metric-learn's name, on rows and labels or on tuples of rows."""
    data = _small(rng)
    trial.describe(f"X: {data.description}")
    name = pick(rng, CLASSICS)
    y = hints.LABELS[pick(rng, hints.LABELS)](rng, data.n) if rng.random() < 0.2 else np.arange(data.n) % 2
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


ENTRIES = [compare, index, scores, scores, scores, classics, classics, searching, matching, relevance, chunked, chunked]
ENTRIES += [products]
