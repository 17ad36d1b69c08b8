"""The cost model of docs/scaling.md: CPU time of each phase as constants times counts, fitted and checked.

Each phase runs at several sizes on one thread.  Its constants are the non-negative numbers that minimise the relative
squared error of the CPU time.  One run, larger than all fitted ones, is left out and predicted.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import metricforge as mf
from metricforge import neighbors
from metricforge.kernels import RBF
from metricforge.problem import Problem
from metricforge.space import choose_landmarks, landmark_map, represent

from .run import Table

SAMPLE = 20_000


@dataclass(frozen=True)
class Phase:
    """A timed call at sizes (n, d, m, p), and the counts in its cost model."""

    name: str
    counts: dict[str, Callable[..., float]]
    prepare: Callable[..., Callable[[], Any]]
    sizes: list[tuple[int, int, int, int]]
    left_out: tuple[int, int, int, int]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--phases", help="only phases whose name contains one of these, separated by commas")


def run(quick: bool = False, phases: str | None = None) -> Table:
    from threadpoolctl import threadpool_limits

    result = ("predicted s", "measured s", "measured / predicted")
    table = Table(["phase", "model, nanoseconds", "left out (n, d, m, p)", *result])
    with threadpool_limits(1):
        for phase in PHASES:
            if phases is not None and not any(word in phase.name for word in phases.split(",")):
                continue
            shrink = 10 if quick else 1
            sizes = [(max(600, n // shrink), d, m, max(600, p // shrink)) for n, d, m, p in phase.sizes]
            n, d, m, p = phase.left_out
            held = (max(1200, n // shrink), d, m, max(1200, p // shrink))
            constants = fitted(phase, sizes)
            predicted = float(constants @ counted(phase, held))
            measured = seconds(phase, held)
            terms = zip(constants, phase.counts, strict=True)
            model = " + ".join(f"{1e9 * c:.3g} {name}" for c, name in terms if c > 0)
            table.add(phase.name, model, str(held), predicted, measured, measured / predicted)
    table.notes += [
        "CPU seconds on one thread; n rows, d columns, m landmarks, p relations, s = min(n, 20,000) rows searched for "
        "landmarks",
        "graph: exact search, of which each pair of chunks is one task; dominance: one pass over all pairs of rows "
        "and 30 kernels",
    ]
    return table


def counted(phase: Phase, size: tuple[int, ...]) -> np.ndarray:
    return np.array([count(*size) for count in phase.counts.values()], dtype=float)


def seconds(phase: Phase, size: tuple[int, ...]) -> float:
    call = phase.prepare(*size)
    times = []
    for _ in range(2):
        started = time.process_time()
        call()
        times.append(time.process_time() - started)
    return min(times)


def fitted(phase: Phase, sizes: list[tuple[int, int, int, int]]) -> np.ndarray:
    """Return the non-negative constants with the least relative squared error."""
    from scipy.optimize import nnls

    y = np.array([seconds(phase, size) for size in sizes])
    A = np.array([counted(phase, size) for size in sizes])
    scale = A.max(axis=0)
    return nnls(A / scale / y[:, None], np.ones(len(y)))[0] / scale


# --------------------------------------------------------------------------------------------------------------- phases


def data(n: int, d: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(n, d))


def landmarks(n: int, d: int, m: int, p: int) -> Callable[[], Any]:
    X, kernel = data(n, d), RBF(0.5 / d)
    return lambda: landmark_map(kernel, X[choose_landmarks(kernel, X, m)])


def features(n: int, d: int, m: int, p: int) -> Callable[[], Any]:
    X = data(n, d)
    map = landmark_map(RBF(0.5 / d), X[:m])
    return lambda: map(X)


def scatter(n: int, d: int, m: int, p: int) -> Callable[[], Any]:
    from metricforge_plugins.krca.chunklets import groups_of
    from metricforge_plugins.krca.scatter import scatter as scattered

    X = data(n, d)
    map = landmark_map(RBF(0.5 / d), X[:m])
    groups = groups_of(mf.Chunklets(np.arange(n) % 10))
    return lambda: scattered(map, X, groups)


def graph(n: int, d: int, m: int, p: int) -> Callable[[], Any]:
    X = data(n, d)
    return lambda: neighbors.search(X, 10, method="exact")


def hints(n: int, p: int) -> mf.Pairs:
    rng = np.random.default_rng(1)
    i, j = rng.integers(n, size=(2, 2 * p))
    apart = i != j
    i, j = i[apart][:p], j[apart][:p]
    pairs = np.unique(np.sort(np.c_[i, j], axis=1), axis=0)
    alike = (pairs[:, 0] % 4) == (pairs[:, 1] % 4)
    return mf.Pairs(similar=pairs[alike], dissimilar=pairs[~alike], n=n)


def classes(n: int, d: int) -> np.ndarray:
    X = data(n, d)
    X[np.arange(n), np.arange(n) % 4] += 2
    return X


def idealized(n: int, d: int, m: int, p: int) -> Callable[[], Any]:
    from metricforge_plugins.idealized import proximal
    from metricforge_plugins.idealized.hints import prepare
    from metricforge_plugins.idealized.solver import Idealized

    X, pairs = classes(n, d), hints(n, p)
    program = prepare(Idealized(nu=0.2), Problem(represent(RBF(0.5 / d), X, m), pairs)).program
    return lambda: proximal.solve(program, psd=True, tol=1e-3, max_iter=1000)


def kcr(n: int, d: int, m: int, p: int) -> Callable[[], Any]:
    X = classes(n, d)
    y = np.arange(n) % 4
    return lambda: mf.learn(X, y, method="kcr", kernel=RBF(0.5 / d), rank=m, pairs="random", n_pairs=p)


def dominance(n: int, d: int, m: int, p: int) -> Callable[[], Any]:
    X = classes(n, d)
    t = mf.Labels(np.arange(n) % 4).to(mf.Triplets, seed=0)
    return lambda: mf.learn(X, t, method="lpdesign", kernel=RBF("median"), bases="weak", cone="dd")


def simplenpkl(n: int, d: int, m: int, p: int) -> Callable[[], Any]:
    X, pairs = classes(n, d), hints(n, p)
    return lambda: mf.learn(X, pairs, method="simplenpkl", kernel="linear")


PHASES = [
    Phase(
        "landmarks",
        {
            "s m d": lambda n, d, m, p: min(n, SAMPLE) * m * d,
            "s m²": lambda n, d, m, p: min(n, SAMPLE) * m * m,
            "s m": lambda n, d, m, p: min(n, SAMPLE) * m,
            "m³": lambda n, d, m, p: m**3,
        },
        landmarks,
        [(5000, 8, 100, 0), (20_000, 8, 100, 0), (20_000, 64, 200, 0), (10_000, 16, 400, 0), (20_000, 16, 400, 0)],
        (30_000, 32, 600, 0),
    ),
    Phase(
        "features",
        {
            "n m d": lambda n, d, m, p: n * m * d,
            "n m²": lambda n, d, m, p: n * m * m,
            "n m": lambda n, d, m, p: n * m,
        },
        features,
        [(20_000, 8, 100, 0), (20_000, 64, 100, 0), (40_000, 8, 300, 0), (20_000, 64, 300, 0), (10_000, 16, 600, 0)],
        (100_000, 32, 400, 0),
    ),
    Phase(
        "scatter (krca)",
        {
            "n m d": lambda n, d, m, p: n * m * d,
            "n m²": lambda n, d, m, p: n * m * m,
            "n m": lambda n, d, m, p: n * m,
        },
        scatter,
        [(20_000, 8, 100, 0), (20_000, 64, 100, 0), (40_000, 8, 300, 0), (20_000, 64, 300, 0), (10_000, 16, 600, 0)],
        (100_000, 32, 400, 0),
    ),
    Phase(
        "graph",
        {"n² d": lambda n, d, m, p: n * n * d, "n²": lambda n, d, m, p: n * n},
        graph,
        [(5000, 16, 0, 0), (10_000, 16, 0, 0), (10_000, 64, 0, 0), (20_000, 32, 0, 0)],
        (40_000, 32, 0, 0),
    ),
    Phase(
        "idealized, a solve",
        {"p m²": lambda n, d, m, p: p * m * m, "m³": lambda n, d, m, p: m**3, "10⁹": lambda n, d, m, p: 1.0},
        idealized,
        [
            *((600, 16, m, p) for m, p in ((30, 600), (60, 600), (60, 1200), (100, 1500), (150, 1500))),  # few pairs
            *((5000, 16, m, p) for m, p in ((50, 10_000), (100, 20_000), (100, 50_000), (200, 10_000))),
        ],
        (10_000, 16, 150, 60_000),
    ),
    Phase(
        "kcr, a whole fit",
        {"p m": lambda n, d, m, p: p * m, "p": lambda n, d, m, p: p, "n m²": lambda n, d, m, p: n * m * m},
        kcr,
        [(5000, 16, 50, 50_000), (5000, 16, 100, 100_000), (20_000, 16, 100, 200_000), (20_000, 16, 200, 100_000)],
        (40_000, 16, 200, 300_000),
    ),
    Phase(
        "lpdesign with dominance, a whole fit",
        {"n² d": lambda n, d, m, p: n * n * d, "n d": lambda n, d, m, p: n * d},
        dominance,
        [(2000, 10, 0, 0), (4000, 10, 0, 0), (8000, 10, 0, 0), (6000, 5, 0, 0)],
        (16_000, 10, 0, 0),
    ),
    Phase(
        "simplenpkl, a whole fit",
        {"n² d": lambda n, d, m, p: n * n * d, "n²": lambda n, d, m, p: n * n, "n": lambda n, d, m, p: n},
        simplenpkl,
        [(4000, 16, 0, 4000), (8000, 16, 0, 8000), (8000, 32, 0, 8000), (16_000, 16, 0, 16_000)],
        (30_000, 16, 0, 30_000),
    ),
]
