"""Commands of the shell, and the tasks behind them, for the walk under a small memory budget (see `memory`)."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import metricforge as mf
from metricforge import kernels as k

Call = Callable[[int], Callable[[], Any]]
"""Takes a number of rows, creates the arguments and returns the call to measure."""
FEW = 200
"""Rows with which every command must succeed, so that a wrong argument is not taken for a refusal."""


def points(n: int, d: int = 20) -> Any:
    return np.random.default_rng(0).normal(size=(n, d))


def labels(n: int) -> Any:
    return np.arange(n) % 3


def sized(n: int, few: int = FEW) -> Callable[[Any], Call]:
    """Mark a call with the number of rows that it is measured with, and with the few that load its modules."""

    def mark(make: Any) -> Call:
        make.n, make.few = n, few
        return make  # type: ignore[no-any-return]

    return mark


# --------------------------------------------------------------------------------------------------------------- tasks


def _task(n: int, use: Callable[[Any, Any, Any], Any], *, d: int = 20, rows: int = 600, **options: Any) -> Call:
    """Learn from few rows; use the metric, many rows and their labels."""

    @sized(n)
    def make(size: int) -> Callable[[], Any]:
        few = min(rows, size)
        metric = mf.learn(points(few, d), labels(few), **{"method": "krca", **options})
        A, y = points(size, d), labels(size)
        return lambda: use(metric, A, y)

    return make


@sized(20_000)
def _compare(size: int) -> Callable[[], Any]:
    X, y = points(size), labels(size)
    return lambda: mf.compare(X, y, candidates=["krca", "euclidean"], folds=2)


@sized(60_000)
def _index(size: int) -> Callable[[], Any]:
    metric = mf.learn(points(size, 16), labels(size), method="euclidean")
    return lambda: metric.index(k=5).search(points(50, 16), k=5)


@sized(60_000)
def _index_on_disk(size: int) -> Callable[[], Any]:
    metric = mf.learn(points(size, 16), labels(size), method="euclidean")
    path = Path(os.environ["HOSTILE_FOLDER"]) / f"index{size}"
    return lambda: metric.index(k=5, path=path).search(points(50, 16), k=5)


@sized(100_000)
def _median(size: int) -> Callable[[], Any]:
    X = points(size)
    return lambda: [kernel("median").resolve(X) for kernel in (k.RBF, k.Laplacian, k.Cauchy)]


def _pairs(n: int) -> Any:
    i = np.arange(0, n - 3, 3)
    return mf.Pairs(np.stack([i, i + 3], axis=1), np.stack([i, i + 1], axis=1), n=n)


TASKS: dict[str, Call] = {
    "compare": _compare,
    "index and search": _index,
    "index on disk": _index_on_disk,
    'gamma="median"': _median,
    "classify": _task(30_000, lambda metric, A, y: mf.tasks.classify(metric, y[:600], A, k=5)),
    "candidates": _task(3000, lambda metric, A, y: mf.tasks.candidates(metric, A, 5)),
    "candidates, many": _task(40_000, lambda metric, A, y: mf.tasks.candidates(metric, A, 5), method="euclidean"),
    "calibrate": _task(60_000, lambda metric, A, y: mf.tasks.calibrate(metric, A, _pairs(len(A)))),
    "satisfied": _task(60_000, lambda metric, A, y: mf.tasks.satisfied(metric, A, _pairs(len(A)))),
    "clusters_by_silhouette": _task(20_000, lambda metric, A, y: mf.tasks.clusters_by_silhouette(A, tried=(2, 3))),
    "retrieval_scores": _task(
        40_000,
        lambda metric, A, y: mf.tasks.retrieval_scores(metric, A, np.arange(100), [[i + 100] for i in range(100)]),
    ),
    "hard_negatives": _task(
        40_000, lambda metric, A, y: mf.tasks.hard_negatives(A, np.arange(50), [[i + 50] for i in range(50)])
    ),
    "neighbors by kernel": _task(40_000, lambda metric, A, y: metric.neighbors(A, k=5, by="kernel")),
    "truncated": _task(600, lambda metric, A, y: metric.truncated(3).transform(points(50_000))),
    "mahalanobis and adapter": _task(
        2000, lambda metric, A, y: (metric.mahalanobis(), metric.adapter("both")), d=700, kernel=k.Linear()
    ),
}


# ------------------------------------------------------------------------------------------------------------ commands


def _command(n: int, *words: str, d: int = 20) -> Call:
    """Run a command on a table of n rows; names of files stand for files of a folder that holds them all."""

    @sized(n)
    def make(size: int) -> Callable[[], Any]:
        folder = Path(os.environ["HOSTILE_FOLDER"]) / f"verbs{size}"
        folder.mkdir(exist_ok=True)
        X, y = points(size, d), labels(size) // 2  # of three rows, the first two are of one class, and nearly equal
        X[1::3] = X[: size - 1 : 3] + 0.01 * X[1::3]
        np.save(folder / "rows.npy", X)
        np.save(folder / "y.npy", y)
        few = min(size, 600)
        mf.learn(X[:few], y[:few], method="krca").save(folder / "saved.metric")
        i = np.arange(0, size - 3, 3)[:2000]
        lines = [f"{a},{a + 1},1\n{a},{a + 2},0\n" for a in i]
        (folder / "pairs.csv").write_text("i,j,similar\n" + "".join(lines))
        header = ",".join(map(str, range(d))) + ",class\n"
        known = [",".join(map(str, row)) + f",k{label}\n" for row, label in zip(X[:few], y[:few], strict=True)]
        (folder / "among.csv").write_text(header + "".join(known))
        files = ("rows.npy", "y.npy", "saved.metric", "pairs.csv", "among.csv")
        given = [str(folder / word) if word in files or word.startswith("out") else word for word in words]
        return lambda: _run(given, size)

    return make


def _run(words: list[str], size: int) -> None:
    """Run a command; exit code 2 is a refusal, which is allowed for many rows only."""
    from metricforge.cli.program import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
    if code not in ((0,) if size <= FEW else (0, 2)):
        raise RuntimeError(f"exit {code}: {err.getvalue()[-300:]}")


SHELL: dict[str, Call] = {
    "shell: learn": _command(60_000, "learn", "rows.npy", "--label", "y.npy", "-o", "out.metric"),
    "shell: learn from pairs": _command(40_000, "learn", "rows.npy", "--pairs", "pairs.csv", "-o", "out.metric"),
    "shell: compare": _command(10_000, "compare", "rows.npy", "--label", "y.npy", "--folds", "2"),
    "shell: evaluate": _command(40_000, "evaluate", "saved.metric", "rows.npy", "--label", "y.npy"),
    "shell: evaluate pairs": _command(40_000, "evaluate", "saved.metric", "rows.npy", "--pairs", "pairs.csv"),
    "shell: classify": _command(
        30_000, "classify", "saved.metric", "rows.npy", "--among", "among.csv", "--label", "class", "-o", "out.csv"
    ),
    "shell: cluster": _command(40_000, "cluster", "saved.metric", "rows.npy", "-k", "3", "-o", "out.csv"),
    "shell: match": _command(
        10_000, "match", "saved.metric", "rows.npy", "--pairs", "pairs.csv", "--precision", "0.3", "-o", "out.csv"
    ),
    "shell: neighbors": _command(40_000, "neighbors", "saved.metric", "rows.npy", "-k", "3", "-o", "out.csv"),
    "shell: transform": _command(60_000, "transform", "saved.metric", "rows.npy", "-o", "out.npy"),
    "shell: transform to .csv": _command(20_000, "transform", "saved.metric", "rows.npy", "-o", "out.csv"),
    "shell: distance": _command(3000, "distance", "saved.metric", "rows.npy", "-o", "out.npy"),
    "shell: distance paired": _command(
        60_000, "distance", "saved.metric", "rows.npy", "rows.npy", "--paired", "-o", "out.npy"
    ),
    "shell: index": _command(40_000, "index", "saved.metric", "--among", "rows.npy", "--folder", "out.index"),
    "shell: info": _command(1000, "info", "saved.metric"),
}

CALLS = TASKS | SHELL
