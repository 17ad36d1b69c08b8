"""Public calls under a small memory budget: each must stay within it, intermediates included, or refuse.

Each call runs in a new process.  The growth of the peak resident size is measured from the moment before the call, with
its arguments in memory and all modules loaded by the same call on few rows.
"""

from __future__ import annotations

import ctypes
import gc
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

import metricforge as mf
from metricforge import kernels as k

from .rows import Rng
from .trial import Trial, Verdict
from .verbs import CALLS as VERBS
from .verbs import FEW, Call, labels, points, sized

BUDGET = 100_000_000
SLACK = 30_000_000
"""Heap fragmentation and buffers of BLAS."""


def _learn(method: str, n: int, d: int = 20, **options: Any) -> Call:
    def make(size: int) -> Callable[[], Any]:
        X, y = points(size, d), labels(size)
        return lambda: mf.learn(X, y, method=method, **options)

    make.n = n  # type: ignore[attr-defined]
    return make


def _used(n: int, method: str, use: Callable[[Any, Any], Any], *, rows: int = 600, d: int = 20, **options: Any) -> Call:
    """Learn from few rows, use on many."""

    def make(size: int) -> Callable[[], Any]:
        metric = mf.learn(points(min(rows, size), d), labels(min(rows, size)), method=method, **options)
        A = points(size, d)
        return lambda: use(metric, A)

    make.n = n  # type: ignore[attr-defined]
    return make


@sized(1500)
def _update(size: int) -> Callable[[], Any]:
    metric = mf.learn(points(size), np.arange(size) // 2, method="krca")
    X, y = points(size), np.arange(size) // 2
    return lambda: metric.update(X, mf.Chunklets(y))


@sized(4000)
def _precomputed(size: int) -> Callable[[], Any]:
    X = points(size)
    K = X @ X.T
    return lambda: mf.learn(K, labels(size), method="krca", kernel=k.Precomputed())


@sized(40_000)
def _closed(size: int) -> Callable[[], Any]:
    pairs = mf.Pairs([(i, i + 1) for i in range(size - 1)], n=size)
    return pairs.closed


@sized(2_000_000)
def _from_labels(size: int) -> Callable[[], Any]:
    y = labels(size)
    return lambda: mf.Pairs.from_labels(y)


@sized(2_000_000)
def _to_triplets(size: int) -> Callable[[], Any]:
    given = mf.Labels(labels(size))
    return lambda: given.to(mf.Triplets)


@sized(300_000)
def _kmeans(size: int) -> Callable[[], Any]:
    Z = points(size, 5)
    return lambda: mf.tasks.constrained_kmeans(Z, min(60, size), n_init=1, max_iter=3)


@sized(20_000)
def _linked_kmeans(size: int) -> Callable[[], Any]:
    Z = points(size, 5)
    pairs = mf.Pairs((), np.stack([np.arange(0, size - 1, 2), np.arange(1, size, 2)], axis=1), n=size)
    return lambda: mf.tasks.constrained_kmeans(Z, min(200, size // 2), pairs, n_init=1, max_iter=2)


@sized(8000)
def _alignment(size: int) -> Callable[[], Any]:
    Z, y = points(size, 5), labels(size)
    return lambda: mf.tasks.alignment(y, Z=Z)


@sized(20_000)
def _retrieval(size: int) -> Callable[[], Any]:
    X, y = points(size, 5), labels(size)
    return lambda: mf.tasks.retrieval_auc(k.RBF(0.1), X, y, queries=np.arange(min(300, size)))


@sized(300_000)
def _triplet_accuracy(size: int) -> Callable[[], Any]:
    X, triplets = points(2000, 50), mf.Triplets.from_labels(labels(2000), n_triplets=size)
    return lambda: mf.tasks.triplet_accuracy(k.RBF(0.1), X, triplets)


@sized(8000)
def _eigen(size: int) -> Callable[[], Any]:
    A = sparse.random_array((size, size), density=5 / size, rng=np.random.default_rng(0), format="csr")
    A = A + A.T
    return lambda: mf.eigen.top(A, min(1200, size // 2), tol=1e-2)


@sized(3000)
def _eigen_dense(size: int) -> Callable[[], Any]:
    A = points(size, size)
    A = A + A.T
    return lambda: mf.eigen.top(A, 4)


@sized(40_000)
def _search(size: int) -> Callable[[], Any]:
    X = points(size, 30)
    return lambda: mf.neighbors.search(X, 10)


@sized(40_000)
def _search_sparse(size: int) -> Callable[[], Any]:
    X = sparse.random_array((size, 3000), density=0.002, rng=np.random.default_rng(0), format="csr")
    return lambda: mf.neighbors.search(X, 5, queries=X[:500])


@sized(2_000_000)
def _graph(size: int) -> Callable[[], Any]:
    indices = np.random.default_rng(0).integers(0, size, size=(size, 5))
    indices = np.where(indices == np.arange(size)[:, None], (indices + 1) % size, indices)
    return lambda: mf.neighbors.graph(indices)


@sized(3000)
def _project(size: int) -> Callable[[], Any]:
    A = points(size, size)
    A = A + A.T
    return lambda: mf.psd.project(A)


@sized(30_000)
def _represent(size: int) -> Callable[[], Any]:
    X = points(size)
    return lambda: mf.space.represent(k.RBF(0.01), X, 400).features


@sized(12_000)
def _rule(size: int) -> Callable[[], Any]:
    X, y = points(size, 5), labels(size)
    metric = mf.learn(X[:400], y[:400], method="kcr", rank=40)
    rule = mf.tasks.KernelRule(metric, radius=1.0).fit(X, y)
    return lambda: rule.predict_proba(X)


@sized(40_000)
def _learner(size: int) -> Callable[[], Any]:
    X, y = points(size), labels(size)
    return lambda: mf.MetricLearner("krca", rank=200, random_state=0).fit(X, y).transform(X)


@sized(6000)
def _strings(size: int) -> Callable[[], Any]:
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("ACDEFGHIKL"), size=60)) for _ in range(size)]
    return lambda: mf.learn(words, labels(size), method="krca", kernel=k.Spectrum(3).normalized(), rank=200)


@sized(200_000)
def _sparse_fit(size: int) -> Callable[[], Any]:
    X = sparse.random_array((size, 500), density=0.01, rng=np.random.default_rng(0), format="csr")
    return lambda: mf.learn(X, labels(size), method="krca", kernel=k.Linear())


@sized(3_000_000)
def _sparse_wide(size: int) -> Callable[[], Any]:
    X = sparse.random_array((200, size), density=1e-5, rng=np.random.default_rng(0), format="csr")
    y = labels(200)
    return lambda: mf.learn(X, y, method="euclidean", kernel=k.Linear()).distance(X)


@sized(20_000)
def _manhattan(size: int) -> Callable[[], Any]:
    metric = mf.learn(points(500), labels(500), method="euclidean", kernel=k.Laplacian("median"))
    A = points(size)
    return lambda: metric.neighbors(A, k=3)


@sized(200_000)
def _csv(size: int) -> Callable[[], Any]:
    from metricforge.cli.program import main

    path = Path(os.environ["HOSTILE_FOLDER"]) / f"rows{size}.csv"
    row = ",".join(["1.2345"] * 8)
    path.write_text("a,b,c,d,e,f,g,h,class\n" + "".join(f"{row},k{i % 2}\n" for i in range(size)))
    out = str(path.with_suffix(".metric"))
    return lambda: main(["learn", str(path), "--label", "class", "--method", "euclidean", "-o", out])


@sized(60_000)
def _save(size: int) -> Callable[[], Any]:
    path = Path(os.environ["HOSTILE_FOLDER"]) / "big.metric"
    metric = mf.learn(points(size, 60), labels(size), method="euclidean")
    return lambda: (metric.save(path), mf.load(path))


@sized(3000)
def _mixture(size: int) -> Callable[[], Any]:
    made = k.Mixture([k.RBF(0.1 * i) for i in range(1, 6)], [1.0] * 5)
    X = points(size)
    return lambda: made(X)


CALLS: dict[str, Call] = {
    "learn krca, exact": _learn("krca", 3000),
    "learn krca, landmarks": _learn("krca", 100_000, rank=300),
    "learn krca, linear and wide": _learn("krca", 3000, 900, kernel=k.Linear()),
    "learn idealized": _learn("idealized", 20_000),
    "learn idealized, RBF": _learn("idealized", 3000, kernel=k.RBF("median"), rank=300, tol=1e-2),
    "learn kcr": _learn("kcr", 20_000, rank=300),
    "learn kcr, all pairs": _learn("kcr", 2500, pairs="all", rank=40, max_iter=5),
    "learn kcr, neighbours": _learn("kcr", 20_000, pairs="neighbors", rank=40, max_iter=5),
    "learn lpdesign": _learn("lpdesign", 20_000),
    "learn lpdesign, dominance": _learn("lpdesign", 2000, 6, cone="dd", max_iter=5),
    "learn lpdesign, change of basis": _learn("lpdesign", 1000, 6, cone="change-of-basis", max_iter=2),
    "learn simplenpkl": _learn("simplenpkl", 30_000),
    "learn simplenpkl, many components": _learn("simplenpkl", 20_000, n_components=None),
    "learn simplenpkl, Nyström": _learn("simplenpkl", 30_000, extension="nystrom"),
    "learn simplenpkl, hinge": _learn("simplenpkl", 5000, loss="squared_hinge", max_iter=3),
    "learn euclidean, exact": _learn("euclidean", 4000, kernel=k.RBF("median"), rank="exact"),
    "learn auto": _learn("auto", 20_000),
    "distance": _used(6000, "krca", lambda metric, A: metric.distance(A)),
    "distance, linear": _used(3000, "euclidean", lambda metric, A: metric.distance(A)),
    "distance to few": _used(100_000, "krca", lambda metric, A: metric.distance(A, A[:40])),
    "paired_distance": _used(100_000, "krca", lambda metric, A: metric.paired_distance(A, A[::-1])),
    "paired_distance, landmarks": _used(100_000, "kcr", lambda metric, A: metric.paired_distance(A, A[::-1])),
    "paired_distance, Laplacian": _used(
        100_000, "euclidean", lambda metric, A: metric.paired_distance(A, A[::-1]), kernel=k.Laplacian("median")
    ),
    "transform": _used(50_000, "krca", lambda metric, A: metric.transform(A), rank=60),
    "transform, few columns of many landmarks": _used(100_000, "kcr", lambda metric, A: metric.transform(A)),
    "transform, extension": _used(100_000, "simplenpkl", lambda metric, A: metric.transform(A)),
    "transform, Nyström": _used(20_000, "simplenpkl", lambda metric, A: metric.transform(A), extension="nystrom"),
    "transform, mixture": _used(20_000, "lpdesign", lambda metric, A: metric.transform(A)),
    "neighbors": _used(50_000, "krca", lambda metric, A: metric.neighbors(A, k=5)),
    "neighbors, mixture": _used(20_000, "lpdesign", lambda metric, A: metric.neighbors(A, k=5)),
    "neighbors, k large": _used(50_000, "euclidean", lambda metric, A: metric.neighbors(A, k=500)),
    "neighbors, Laplacian": _manhattan,
    "kernel call": _used(3000, "krca", lambda metric, A: metric.kernel(A)),
    "kernel call, mixture": _mixture,
    "update": _update,
    "learn, Gram matrix given": _precomputed,
    "learn, strings": _strings,
    "learn, sparse": _sparse_fit,
    "learn, sparse and very wide": _sparse_wide,
    "Pairs.closed": _closed,
    "Pairs.from_labels": _from_labels,
    "Labels.to(Triplets)": _to_triplets,
    "constrained_kmeans": _kmeans,
    "constrained_kmeans, cannot-links": _linked_kmeans,
    "alignment": _alignment,
    "retrieval_auc": _retrieval,
    "triplet_accuracy": _triplet_accuracy,
    "eigen.top, many": _eigen,
    "eigen.top, dense": _eigen_dense,
    "neighbors.search": _search,
    "neighbors.search, sparse": _search_sparse,
    "neighbors.graph": _graph,
    "psd.project": _project,
    "space.represent": _represent,
    "KernelRule.predict_proba": _rule,
    "MetricLearner.transform": _learner,
    "save and load": _save,
    "metricforge learn rows.csv": _csv,
}


def _table(lines: Callable[[int], Any], n: int, *words: str, suffix: str = ".csv") -> Call:
    """Run a command on a delimited file of n lines."""

    @sized(n)
    def make(size: int) -> Callable[[], Any]:
        import gzip

        from metricforge.cli.program import main

        path = Path(os.environ["HOSTILE_FOLDER"]) / f"table{size}{suffix}"
        text = "\n".join(lines(size)) + "\n"
        path.write_bytes(gzip.compress(text.encode()) if suffix.endswith(".gz") else text.encode())
        out = str(path.parent / "table.metric")
        return lambda: main(["learn", str(path), "--label", "class", "--method", "euclidean", "-o", out, *words])

    return make


def _genes(d: int, n: int) -> Callable[[int], Any]:
    """Return lines of a table of n rows and d columns; a table of fewer rows has few columns too."""

    def lines(size: int) -> Any:
        wide = d if size == n else 30
        yield ",".join([*(f"gene{i}" for i in range(wide)), "class"])
        for i in range(size):
            yield ",".join(np.random.default_rng(i).integers(0, 9, size=wide).astype(str).tolist()) + f",k{i % 2}"

    return lines


def _words(size: int) -> Any:
    yield "a,b,c,d,e,class"
    for i in range(size):
        side, day = ("left", "right", "up", "down")[i % 4], f"2020-01-{i % 28 + 1:02d}"
        yield f"{i % 7},{side},some text {i % 40},name {i},{day},k{i % 2}"


def _digits(size: int) -> Any:
    yield "a,b,class"
    for i in range(size):
        yield f"{i % 9},{i % 7},k{i % 2}"


@sized(60_000)
def _asked(size: int) -> Callable[[], Any]:
    X = points(size)
    return lambda: mf.ask.Session(X).next()


@sized(20_000)
def _judged(size: int) -> Callable[[], Any]:
    queries = list(range(min(size, 2000) // 4))
    relevant = [[q + len(queries), q + 2 * len(queries)] for q in queries]
    return lambda: mf.Triplets.from_relevance(queries, relevant, max(size, 200), per_pair=min(size, 2000) // 10)


@sized(40_000, few=20_000)  # fewer rows take no compiled code: loading numba and LLVM would count as growth
def _cells(size: int) -> Callable[[], Any]:
    X = points(size, 16)
    return lambda: mf.neighbors.search(X, 10, method="cells")


@sized(60_000)
def _index_by_kernel(size: int) -> Callable[[], Any]:
    metric = mf.learn(points(size, 16), labels(size), method="euclidean", kernel=k.Linear())
    return lambda: metric.index(k=5, by="kernel").search(points(50, 16), k=5)


@sized(1500)
def _factor(size: int) -> Callable[[], Any]:
    A = points(size, size)
    A = A @ A.T
    return lambda: (mf.psd.factor(A), mf.psd.smallest_eigenvalue(A))


WIDE = 20_000
CALLS |= {
    "psd.factor": _factor,
    "learn genes.csv": _table(_genes(50_000, 6), 6),
    "learn many genes.csv": _table(_genes(20_000, 150), 150),
    "learn words.csv": _table(_words, 60_000),
    "learn words.csv, categories": _table(_words, 60_000, "--categories", "b,c"),
    "learn words.csv.gz": _table(_words, 60_000, suffix=".csv.gz"),
    "learn long.csv": _table(_digits, 1_200_000),
    "learn long.csv.gz": _table(_digits, 1_200_000, suffix=".csv.gz"),
    "ask": _asked,
    "from_relevance": _judged,
    "neighbors.search by cells": _cells,
    "index by kernel": _index_by_kernel,
    **{f"learn {e.name}, wide": _learn(e.name, 150, WIDE) for e in mf.methods()},
    "distance, wide": _used(150, "euclidean", lambda metric, A: metric.distance(A), rows=150, d=WIDE),
    "transform, wide": _used(150, "euclidean", lambda metric, A: metric.transform(A), rows=150, d=WIDE),
    "neighbors, wide": _used(150, "euclidean", lambda metric, A: metric.neighbors(A, k=5), rows=150, d=WIDE),
    "save and load, wide": _used(
        150,
        "euclidean",
        lambda metric, A: (metric.save(Path(os.environ["HOSTILE_FOLDER"]) / "w.metric"), len(A)),
        rows=150,
        d=WIDE,
    ),
}


def _from_kind(method: str, kind: str) -> Call:
    @sized(6000)
    def make(size: int) -> Callable[[], Any]:
        X, y = points(size), labels(size)
        hints: dict[str, Callable[[], Any]] = {
            "Pairs": lambda: mf.Pairs.from_labels(y, n_pairs=size),
            "Chunklets": lambda: mf.Chunklets(np.arange(size) // 3),
            "Triplets": lambda: mf.Triplets.from_labels(y, n_triplets=size),
            "Quadruplets": lambda: mf.Triplets.from_labels(y, n_triplets=size).to(mf.Quadruplets),
            "Targets": lambda: mf.Targets(X[:, 0]),
        }
        hint = hints[kind]()
        options = {"max_iter": 3} if "solver__max_iter" in mf.MetricLearner(method).get_params() else {}
        return lambda: mf.learn(X, hint, method=method, **options)

    return make


KINDS = ("Pairs", "Chunklets", "Triplets", "Quadruplets", "Targets")
CALLS |= {f"learn {e.name} from {kind}": _from_kind(e.name, kind) for e in mf.methods() for kind in KINDS}
CALLS |= VERBS


def attack(trial: Trial, rng: Rng, number: int) -> None:
    """Measure one call, chosen by ``number``."""
    name = list(CALLS)[number % len(CALLS)]
    make = CALLS[name]
    size = make.n  # type: ignore[attr-defined]
    trial.describe(f"{name}, {size} rows, METRICFORGE_MEMORY={BUDGET}")
    usual = os.environ["METRICFORGE_MEMORY"]
    os.environ["HOSTILE_FOLDER"] = str(trial.folder)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            os.environ["METRICFORGE_MEMORY"] = "100GB"
            few = getattr(make, "few", FEW)
            make(few if size > few else size - 1)()
            call = make(size)
            os.environ["METRICFORGE_MEMORY"] = str(BUDGET)
            _measure(trial, name, call)
    finally:
        os.environ.pop("HOSTILE_FOLDER")
        os.environ["METRICFORGE_MEMORY"] = usual


def _measure(trial: Trial, name: str, call: Callable[[], Any]) -> None:
    from .worker import peak_memory, reset_peak

    gc.collect()
    trim()
    before = reset_peak()
    try:
        answer = trial.call(name, call)
        del answer
    finally:
        growth = peak_memory() - before
        trial.figure(f"MB: {name}", growth / 1e6)
        if growth > BUDGET + SLACK:
            trial.find(Verdict.BUDGET, name, f"{growth / 1e6:.0f} MB where {BUDGET / 1e6:.0f} are allowed")


def trim() -> None:
    """Return freed memory to the system, so that it does not hide allocations."""
    ctypes.CDLL("libc.so.6").malloc_trim(0)
