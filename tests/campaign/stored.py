"""Entries of the API part that save what they made: adapters, updated metrics."""

from __future__ import annotations

import numpy as np

import metricforge as mf
from metricforge import kernels as k

from . import hints, rows
from .battery import count, in_memory
from .rows import Rng, pick
from .trial import Trial, Verdict, finite

# ------------------------------------------------------------------------------------------------- adapters, updates


def adapter(trial: Trial, rng: Rng) -> None:
    """Turn a metric into a linear map, compare it with the kernel, and save it."""
    data = rows.vectors(rng) if rng.random() < 0.3 else rows.mild(rng)
    trial.describe(f"X: {data.description}")
    start = pick(rng, [*[k.Linear(), k.Standardized(k.Linear()), k.Polynomial(1, 1.0), None] * 2, k.RBF("median")])
    method = pick(rng, ["euclidean", "krca", "idealized", "relevance", "lfda"])
    metric = trial.call(
        f"mf.learn by {method}, {start!r}", mf.learn, data.X, np.arange(data.n) % 2, method=method, kernel=start
    )
    side = pick(rng, ["query", "both"])
    size = pick(rng, [*[None] * 9, 1, 2, 0, 10**9, "x"]) if side == "both" or rng.random() < 0.1 else None
    made = trial.call(f"metric.adapter({side!r}, n_components={size!r})", metric.adapter, side, n_components=size)
    trial.check(finite(made.A) and finite(made.b), Verdict.NAN, "the adapter is not finite")
    trial.passed = True
    notes = " ".join(map(str, metric.report.get("notes", ())))
    if data.truth is not None and size is None and "digits" not in notes and not data.single:
        X = np.asarray(data.truth, dtype=float)
        K = np.asarray(in_memory(metric.kernel(X)), dtype=float)
        mapped = made(X)
        own = mapped @ (X.T if side == "query" else mapped.T)
        off = K - own
        if side == "query":
            off -= off.mean(axis=1, keepdims=True)  # what does not depend on x does not change a ranking
        size_of = np.abs(mapped) @ np.abs(X.T if side == "query" else mapped.T)  # of the terms of the sums
        allowed = 1e-6 * np.abs(K).max(initial=0) + 1e-10 * float(size_of.max(initial=0)) + 1e-280
        worst = float(np.abs(off).max(initial=0))
        trial.check(worst <= allowed, Verdict.WRONG, f"the adapter ({side}) is not the kernel", f"{worst:.3g}")
    path = trial.folder / pick(rng, ["map.npy", "map.onnx", "map.txt", "no/folder/map.npy"])
    trial.call(f"adapter.save({path.name!r})", made.save, path)


def update_after_load(trial: Trial, rng: Rng) -> None:
    """Save, load and update: the loaded copy must learn what the metric itself learns, bit by bit."""
    n, d = int(rng.integers(4, 30)), int(rng.integers(1, 5))
    X = rng.normal(size=(n, d))
    start = pick(rng, [None, k.Linear(), k.RBF("median"), k.Laplacian("median")])
    method = pick(rng, ["krca", "krca-weighted"])
    rank = pick(rng, ["auto", "exact", 3])
    groups = mf.Chunklets(np.arange(n) // 2)
    metric = trial.call(
        f"{method} on {n} × {d}, {start!r}, rank={rank!r}",
        lambda: mf.learn(X, groups, method=method, kernel=start, rank=rank),
    )
    trial.call("save", metric.save, trial.folder / "updated.metric")
    copy = trial.call("load", mf.load, trial.folder / "updated.metric")
    data = rows.vectors(rng, d=d, content=pick(rng, [None, *rows.MILD]))
    trial.describe(f"A: {data.description}")
    hint = hints.draw(rng, data.n) if rng.random() < 0.3 else hints.plain(rng, data.n, "krca")
    constraint = trial.call(f"hint: {hint.description}", hint.make)
    newer = trial.call("update of the loaded copy", copy.update, data.X, constraint)
    own = trial.call("update of the metric", metric.update, data.X, constraint)
    D, truth = (in_memory(trial.call("distance", one.distance, X)) for one in (newer, own))
    trial.check(finite(D), Verdict.NAN, "distance after an update of a loaded metric is not finite")
    trial.check(np.array_equal(D, truth), Verdict.WRONG, "a loaded copy learns something else from an update")
    trial.passed = True
    E = in_memory(trial.call("transform", newer.transform, X))
    trial.check(finite(E), Verdict.NAN, "transform after an update of a loaded metric is not finite")
    trial.call("save again", newer.save, trial.folder / "updated.metric")
    again = trial.call("load again", mf.load, trial.folder / "updated.metric")
    same = np.array_equal(in_memory(again.distance(X)), D)
    trial.check(same, Verdict.WRONG, "a saved copy of an updated metric measures other distances")
    trial.check(count(X) == n, Verdict.STATE, "rows changed")


ENTRIES = [adapter, adapter, update_after_load]
