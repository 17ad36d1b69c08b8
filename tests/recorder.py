"""Record what the library answers, and compare it with what another commit answered.

Run it before and after a change that must not change any answer::

    python tests/recorder.py record FOLDER
    python tests/recorder.py compare FOLDER     # exit 1 and one line for every answer that differs

Only public names are used, so the same file runs on both commits.  Arrays and numbers are equal to ``CLOSE`` of the
largest entry; texts, orders of neighbours, types of errors and flags are equal exactly.  Times are not recorded, and
peaks of memory may grow by ``GROWTH``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import scipy.sparse as sp

import metricforge as mf

CLOSE = 1e-12
GROWTH = 1.15
FACTS = (
    "method",
    "status",
    "objective",
    "gap",
    "n_iter",
    "representation",
    "rank",
    "relations",
    "dropped",
    "converted",
)
WORDS = ("choice", "notes", "scaling", "kernel", "solver")
PARTS: dict[str, Callable[[], Iterator[tuple[str, Any]]]] = {}


def part(function: Callable[[], Iterator[tuple[str, Any]]]) -> Callable[[], Iterator[tuple[str, Any]]]:
    """Add a generator of named answers to the recorder."""
    PARTS[function.__name__] = function
    return function


# ---------------------------------------------------------------------------------------------------------------- data


def blobs(n: int, d: int, classes: int, seed: int = 0, spread: float = 1.0) -> tuple[Any, Any]:
    """Return rows around one centre per class, with columns of unlike scales, and their classes."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, n)
    X = spread * rng.normal(size=(n, d)) + rng.normal(size=(classes, d))[y]
    return X * np.logspace(0, 1, d), y


def hints(y: Any) -> dict[str, Any]:
    """Return a constraint of every kind that can be drawn from classes, and numbers."""
    n = len(y)
    numbers = mf.Targets(np.asarray(y) + 0.1 * np.random.default_rng(5).normal(size=n))
    return {
        "labels": mf.Labels(y),
        "pairs": mf.Pairs.from_labels(y, n_pairs=5 * n, seed=0),
        "few_pairs": mf.Pairs.from_labels(y, n_pairs=n // 2, seed=0),
        "chunklets": mf.Chunklets.from_labels(y, seed=0),
        "triplets": mf.Triplets.from_labels(y, n_triplets=5 * n, seed=0),
        "quadruplets": mf.Quadruplets.from_labels(y, n_quadruplets=5 * n, seed=0),
        "targets": numbers,
    }


def told(metric: Any) -> dict[str, Any]:
    """Return what a report says, without times and sizes."""
    report = metric.report
    found = {name: report.get(name) for name in (*FACTS, *WORDS)}
    return {**found, "certificate": report.certificate.describe(), "columns": list(metric.columns)}


def measured(metric: Any, X: Any, Q: Any) -> Iterator[tuple[str, Any]]:
    """Yield distances, coordinates and neighbours of some rows."""
    yield "distance", metric.distance(Q, X[:40])
    yield "paired", metric.paired_distance(Q, X[: len(Q)])
    with contextlib.suppress(mf.errors.InputError):  # an indefinite kernel has no coordinates
        Z = np.asarray(metric.transform(Q))
        yield "coordinates", Z @ Z.T
    if metric.rows is not None:  # a sum of metrics keeps none
        lists, distances = metric.neighbors(Q, k=5)
        yield "neighbors", lists
        yield "nearest", distances


def named(prefix: str, pairs: Iterator[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    return ((f"{prefix} {name}", value) for name, value in pairs)


# --------------------------------------------------------------------------------------------------------------- parts


@part
def neighbors() -> Iterator[tuple[str, Any]]:
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(3000, 16))
    copies = np.repeat(rng.integers(0, 3, size=(200, 5)).astype(float), 4, axis=0)
    sets = {
        "dense": dense,
        "single precision": dense[:1000].astype(np.float32),
        "wide": rng.normal(size=(400, 600)) + 1e6,
        "copies": copies,
        "binary": (rng.random((1500, 120)) < 0.15).astype(float),
        "sparse": sp.random_array((400, 6000), density=0.004, format="csr", rng=rng),
        "clusters": blobs(4000, 8, 40, spread=0.05)[0],
    }
    for name, X in sets.items():
        for method in ("auto", "exact", "cells"):
            yield f"{name} {method}", mf.neighbors.search(X, 6, method=method, seed=0)
        yield f"{name} queries", mf.neighbors.search(X, 6, queries=X[:50], seed=0)
    for rows in (250, 700, 1000):
        chunked = da.from_array(dense[:2000], chunks=(rows, -1))
        lists, distances = mf.neighbors.search(chunked, 6)
        yield f"chunks of {rows}", (np.asarray(lists), np.asarray(distances))
    yield "graph", mf.neighbors.graph(mf.neighbors.search(dense[:500], 5)[0]).toarray()


@part
def kernels() -> Iterator[tuple[str, Any]]:
    k, X = mf.kernels, blobs(60, 4, 3)[0]
    words = np.array(["ACDE" * 3, "ACFG" * 3, "WYVL" * 2, "ACDEWYVL"], dtype=object)
    made = [
        k.Linear(), k.RBF(0.01), k.RBF("median"), k.Polynomial(2, 1.0), k.Laplacian(0.1), k.Cauchy(0.1),
        k.Weak(k.RBF(1.0), feature=3), k.Mixture((k.Linear(), k.RBF(0.1)), (0.5, 2.0)), k.RBF(0.1, base=k.Linear()),
        k.Standardized(k.RBF(1.0)), k.Linear() + 2 * k.RBF(0.1), k.Linear() * k.RBF(0.1), k.Linear().normalized(),
    ]  # fmt: skip
    for kernel in made:
        resolved = kernel.resolve(X, seed=0)
        yield f"{kernel!r} block", resolved(X, X[:20])
        yield f"{kernel!r} distance", resolved.distance(X[:20], X)
        features = mf.space.represent(resolved, X, 10, seed=0).features
        yield f"{kernel!r} rank 10", np.asarray(features) @ np.asarray(features).T
    yield "strings", k.Spectrum(3).normalized()(words, words)


@part
def methods() -> Iterator[tuple[str, Any]]:
    X, y = blobs(150, 6, 3)
    given, Q = hints(y), blobs(12, 6, 3, seed=9)[0]
    for entry in mf.methods():
        for kind, constraint in given.items():
            for kernel in (None, "rbf"):
                try:
                    metric = mf.learn(X, constraint, method=entry.name, kernel=kernel)
                except (mf.errors.InputError, mf.errors.SolverError) as error:
                    yield f"{entry.name} {kind} {kernel}", type(error).__name__
                    continue
                yield f"{entry.name} {kind} {kernel} report", told(metric)
                yield from named(f"{entry.name} {kind} {kernel}", measured(metric, X, Q))


@part
def choices() -> Iterator[tuple[str, Any]]:
    names = ["wine", "toy"] + (["iris", "sonar", "glass"] if os.environ.get("METRICFORGE_DATA") else [])
    for name in names:
        X, y = mf.datasets.load(name)
        for kind, constraint in hints(y).items():
            metric = mf.learn(X, constraint)
            yield f"{name} {kind} report", told(metric)
            yield from named(f"{name} {kind}", measured(metric, X, X[:10] + 0.01))
        scores = mf.compare(X, y, candidates=["krca", "kcr", "llr", "lmnn"]).scores
        yield f"{name} compared", [[one.name, list(one.scores), one.failure] for one in scores]


@part
def large() -> Iterator[tuple[str, Any]]:
    X, y = blobs(12_000, 12, 5)
    for kind in ("labels", "pairs", "triplets"):
        metric = mf.learn(X, hints(y)[kind])
        yield f"{kind} report", told(metric)
        yield from named(kind, measured(metric, X, X[:10] + 0.01))


@part
def update_and_files() -> Iterator[tuple[str, Any]]:
    X, y = blobs(150, 6, 3)
    metric = mf.learn(X, mf.Chunklets.from_labels(y, seed=0), method="krca", kernel="rbf")
    more, classes = blobs(20, 6, 3, seed=3)
    updated = metric.update(more, mf.Chunklets(classes))
    yield "update report", told(updated)
    yield from named("update", measured(updated, X, X[:10] + 0.01))
    with tempfile.TemporaryDirectory() as folder:
        for name, one in (("learned", metric), ("updated", updated), ("sum", 0.7 * metric + 0.3 * updated)):
            first, second = Path(folder, f"{name}.1.metric"), Path(folder, f"{name}.2.metric")
            one.save(first)
            one.save(second)
            yield f"{name} saved twice alike", first.read_bytes() == second.read_bytes()
            yield from named(f"{name} loaded", measured(mf.load(first), X, X[:10] + 0.01))
        index = metric.index(k=5, recall=1.0, path=Path(folder, "index"))
        yield "index", index.search(X[:10], k=5)
        yield "index opened", metric.index(k=5, recall=1.0, path=Path(folder, "index")).search(X[:10], k=5)
    yield "adapter", np.asarray(mf.learn(X, y, method="krca", kernel="linear").adapter("query").A)


@part
def errors() -> Iterator[tuple[str, Any]]:
    X, y = blobs(40, 3, 2)
    hole = X.copy()
    hole[3, 1] = np.nan
    calls: dict[str, Callable[[], Any]] = {
        "missing cell": lambda: mf.learn(hole, y),
        "one class": lambda: mf.learn(X, np.zeros(40, dtype=int)),
        "too few labels": lambda: mf.learn(X, y[:-1]),
        "no hints": lambda: mf.learn(X, None),
        "row out of range": lambda: mf.Pairs([(0, 99)], n=40),
        "row with itself": lambda: mf.Pairs([(1, 1)], n=40),
        "unknown method": lambda: mf.learn(X, y, method="krcc"),
        "unknown option": lambda: mf.learn(X, y, method="krca", epsilom=1.0),
        "unknown kernel": lambda: mf.learn(X, y, kernel="rbff"),
        "wrong option": lambda: mf.learn(X, y, method="krca", epsilon=-1.0),
        "wrong rank": lambda: mf.learn(X, y, method="krca", rank=0),
        "wrong seed": lambda: mf.learn(X, y, seed=-1),
        "no conversion": lambda: mf.learn(X, mf.Targets(np.linspace(0, 1, 40)), method="krca"),
        "overflow": lambda: mf.learn(X * 1e200, y, method="krca", kernel="linear"),
        "no update": lambda: mf.learn(X, y, method="kcr").update(X, y),
        "too many neighbours": lambda: mf.learn(X, y, method="krca").neighbors(X, k=41),
        "wrong width": lambda: mf.learn(X, y, method="krca").distance(X[:, :2]),
        "strings for vectors": lambda: mf.learn(["ab", "cd"], [0, 1], kernel="rbf"),
        "file that is none": lambda: mf.load("no such file.metric"),
    }
    for name, call in calls.items():
        try:
            call()
            yield name, "no error"
        except Exception as error:  # the type is what is recorded
            yield name, [type(error).__name__, str(error)]


@part
def shell() -> Iterator[tuple[str, Any]]:
    X, y = blobs(120, 4, 3)
    rng = np.random.default_rng(2)
    lines = ["a,b,c,d,shade,day,class"]
    for i, (row, label) in enumerate(zip(np.round(X, 3), y, strict=True)):
        cells = [*map(str, row), ["red", "blue", ""][i % 3], f"2024-{1 + i % 12:02d}-03", "pqr"[label]]
        lines.append(",".join("" if j < 4 and rng.random() < 0.02 else cell for j, cell in enumerate(cells)))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "t.csv").write_text("\n".join(lines) + "\n")
        Path(folder, "pairs.csv").write_text("i,j,similar\n" + "".join(f"{i},{i + 3},{i % 2}\n" for i in range(60)))
        Path(folder, "bad.csv").write_text("a,b,class\n1,2,x\n2,two,y\n3,4,x\n")
        for typed in (
            "learn t.csv --label class -o t.metric",
            "learn t.csv --label class --method krca --kernel rbf -o k.metric --report k.html",
            "learn t.csv --pairs pairs.csv --drop class -o p.metric",
            "evaluate t.metric t.csv --label class",
            "classify t.metric t.csv",
            "neighbors t.metric t.csv -k 3",
            "distance k.metric t.csv t.csv",
            "transform k.metric t.csv -o z.npy",
            "cluster t.metric t.csv -k 3",
            "info k.metric",
            "compare t.csv --label class",
            "learn bad.csv --label class",
            "learn missing.csv --label class",
            "learn t.csv --label clas",
            "plugins",
            "--help",
        ):
            done = subprocess.run(
                [sys.executable, "-m", "metricforge", *typed.split()],
                cwd=folder, capture_output=True, text=True, check=False,
            )  # fmt: skip
            times = r"\d+(\.\d+)? ?(ms|s|MB|GB|kB)\b|\b\d+\.\d\d\b|seconds +\d\S*"
            text = re.sub(times, "TIME", done.stdout + done.stderr)
            yield typed, [done.returncode, re.sub(r"[ ─-]{2,}", " ", text).splitlines()]


@part
def cluster() -> Iterator[tuple[str, Any]]:
    from distributed import Client, LocalCluster

    X, y = blobs(1200, 6, 3)
    rows, Q = da.from_array(X, chunks=(250, -1)), X[:10] + 0.01
    for workers in (1, 2):
        with (
            LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None, silence_logs=50) as local,
            Client(local),
        ):
            for method in ("krca", "kcr", "idealized", "simplenpkl", "llr", "lpdesign"):
                metric = mf.learn(rows, y, method=method, rank=50 if method != "simplenpkl" else "auto")
                lists = metric.neighbors(Q, k=5)
                yield f"{method} {workers} workers report", told(metric)
                yield f"{method} {workers} workers", [np.asarray(metric.distance(Q[:5], Q)), *map(np.asarray, lists)]


PEAK = """
import resource, numpy as np, metricforge as mf
X = np.random.default_rng(0).normal(size=(20_000, 30)); y = np.arange(20_000) % 4
m = mf.learn(X, y, method={method!r}); m.neighbors(X[:500], k=5)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


@part
def memory() -> Iterator[tuple[str, Any]]:
    for method in ("krca", "kcr", "idealized", "simplenpkl", "lpdesign"):
        done = subprocess.run(
            [sys.executable, "-c", PEAK.format(method=method)],
            env={**os.environ, "METRICFORGE_MEMORY": "600MB"}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        yield f"{method} peak MB", {"at most": int(done.stdout)} if done.returncode == 0 else done.stderr[-200:]


# ----------------------------------------------------------------------------------------------------- record, compare


def plain(value: Any) -> Any:
    """Return a value as JSON holds it; arrays as lists of their kind and content."""
    if isinstance(value, np.ndarray):
        return {"array": value.tolist(), "whole": value.dtype.kind in "iub"}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {str(name): plain(one) for name, one in value.items()}
    if isinstance(value, tuple | list):
        return [plain(one) for one in value]
    return value if isinstance(value, str | int | float | bool | type(None)) else str(value)


def differences(old: Any, new: Any, close: float) -> Iterator[str]:
    """Yield how two answers differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        if "array" in old and "array" in new:
            yield from _arrays(old, new, close)
        elif "at most" in old and "at most" in new:
            if new["at most"] > GROWTH * old["at most"]:
                yield f"{old['at most']} -> {new['at most']}"
        else:
            for name in {**old, **new}:
                for line in differences(old.get(name), new.get(name), close):
                    yield f"{name}: {line}"
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for position, pair in enumerate(zip(old, new, strict=True)):
            for line in differences(*pair, close):
                yield f"[{position}] {line}"
    elif isinstance(old, float) and isinstance(new, float):
        if not np.isclose(old, new, rtol=close, atol=1e-300, equal_nan=True):
            yield f"{old!r} -> {new!r}"
    elif old != new:
        yield f"{old!r} -> {new!r}"


def _arrays(old: Any, new: Any, close: float) -> Iterator[str]:
    before, after = np.array(old["array"]), np.array(new["array"])
    if before.shape != after.shape:
        yield f"shape {before.shape} -> {after.shape}"
    elif old["whole"]:
        if (before != after).any():
            yield f"{int((before != after).sum())} of {before.size} whole numbers differ"
    elif before.size:
        worst, largest = float(np.abs(before - after).max()), float(np.abs(before).max()) or 1.0
        if not worst <= close * largest:
            yield f"differs by {worst / largest:.1e} of its largest entry"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("do", choices=("record", "compare"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--parts", default=",".join(PARTS), help="names, with commas")
    parser.add_argument("--close", type=float, default=CLOSE, help="relative difference that is still equal")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    for name in args.parts.split(","):
        started = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            answers = json.loads(json.dumps({key: plain(value) for key, value in PARTS[name]()}))
        path = args.folder / f"{name}.json"
        if args.do == "record":
            path.write_text(json.dumps(answers))
        else:
            recorded = json.loads(path.read_text())
            lines = list(differences(recorded, answers, args.close))
            failed += len(lines)
            for line in lines:
                sys.stdout.write(f"{name}: {line[:400]}\n")
        sys.stdout.write(f"{name}: {len(answers)} answers, {time.process_time() - started:.0f} CPU s\n")
        sys.stdout.flush()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
