"""Which features of colon and lymphoma idealized's paper may have learned from.

The paper names the data sets and no step between them and the kernels.  What it prints before learning depends on the
features alone: errors of the nearest neighbour (Tables 2 and 4), errors of k-means (Table 3) and alignments (Table 4),
with both kernels.  Here these numbers are computed after every sequence of usual steps, and `FOUND` names the one that
comes nearest.

k-means splits n rows into two clusters; if m of them are on the wrong side, one minus the Rand index is
m (n − m) / (n (n − 1) / 2).  The printed means over 50 repetitions are such numbers, to all digits: 22.85 % and
17.77 % are 8 and 6 of 62 rows, 20.50 % is 11 of 96.  So every repetition found the same clusters, which random starts
do not.  A start that is always the same, and that is near the classes, is their means.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from metricforge.kernels import RBF, Kernel, Linear
from metricforge.tasks import alignment

from .experiment import Run
from .printed import printed
from .scores import standardised
from .verdict import Cell

Array = NDArray[Any]

FOUND = {"colon": "logarithms, rows, columns", "lymphoma": "columns"}
"""The steps after which most of what the paper prints before learning is found."""


def rows_standardised(X: Array) -> Array:
    """Return every row with mean 0 and standard deviation 1."""
    return np.asarray((X - X.mean(axis=1, keepdims=True)) / X.std(axis=1, keepdims=True))


def norms(X: Array) -> Array:
    """Return every row with norm 1."""
    return np.asarray(X / np.linalg.norm(X, axis=1, keepdims=True))


def ranges(X: Array) -> Array:
    """Return every column between 0 and 1."""
    return np.asarray((X - X.min(axis=0)) / np.ptp(X, axis=0))


STEPS: dict[str, Callable[[Array], Array]] = {
    "logarithms": np.log,
    "rows": rows_standardised,
    "columns": standardised,
    "norms": norms,
    "ranges": ranges,
}
RAW = "none"


def sequences(X: Array) -> list[str]:
    """Return all ways to take at most two steps after each other, and logarithms before where values are positive.

    Of two steps that scale columns the first would be without effect; some others give features of one shape as well.
    """
    scale = {"columns", "ranges"}
    taken = [steps for k in range(3) for steps in permutations([s for s in STEPS if s != "logarithms"], k)]
    after = [", ".join(steps) for steps in taken if not (len(steps) == 2 and scale == set(steps))]
    logged = [f"logarithms, {steps}".removesuffix(", ") for steps in after] if X.min() > 0 else []
    return [steps or RAW for steps in after] + logged


def prepare(X: Array, steps: str) -> Array:
    """Return the rows after a sequence of steps."""
    for step in steps.split(", "):
        X = STEPS[step](X) if step != RAW else X
    return X


def class_means(Z: Array, y: Array) -> Array:
    """Return the clusters of k-means that starts from the means of the classes."""
    from sklearn.cluster import KMeans

    start = np.stack([Z[y == label].mean(axis=0) for label in np.unique(y)])
    found: Array = KMeans(len(start), init=start, n_init=1).fit_predict(Z)
    return found


# ------------------------------------------------------------------------------------------- what is printed and found

KERNELS: dict[str, Kernel] = {"linear": Linear(), "rbf": RBF("median")}
NEAREST, TRAIN, TEST, CLUSTERS = "1-NN error %", "alignment, training", "alignment, test", "k-means error %"
NEAR = {TRAIN: 0.03, TEST: 0.05, CLUSTERS: 0.01}
"""Differences from a printed number within which it counts as found; of errors of splits, two standard errors."""
HITS = "of 10 printed, found"


def aims(name: str) -> dict[str, list[float]]:
    """Return what the paper prints before learning: errors of Tables 2 and 4, of Table 3, and alignments of Table 4."""
    found: dict[str, list[float]] = {}
    for kernel in KERNELS:
        row = f"{name}, {kernel}"
        for at, table, measure, column in (
            (NEAREST, "table2", "error %", "Euclidean"),
            (NEAREST, "table4", "error %", "Euclidean"),
            (TRAIN, "table4", "alignment", "training before"),
            (TEST, "table4", "alignment", "test before"),
            (CLUSTERS, "table3", "clustering error %", "Euclidean"),
        ):
            value = printed("idealized", table).measures[measure].mean(row, column)
            assert value is not None
            found.setdefault(f"{at}, {kernel}", []).append(value)
    return found


def before_learning(Z: Array, y: Array, train: int, seeds: Sequence[int]) -> dict[str, list[float]]:
    """Return for each kernel the errors and alignments of random splits, and the error of k-means from class means.

    The nearest neighbour is the same with both kernels: a Gaussian falls with the distance.
    """
    from sklearn.metrics import rand_score

    found: dict[str, list[float]] = {}
    for name, kernel in KERNELS.items():
        K = kernel.resolve(Z)(Z)
        squared = np.diag(K)[:, None] + np.diag(K) - 2 * K
        for seed in seeds:
            a, b = np.split(np.random.default_rng(seed).permutation(len(y)), [train])
            nearest = y[a][squared[np.ix_(b, a)].argmin(axis=1)]
            for at, value in (
                (NEAREST, 100 * float(np.mean(nearest != y[b]))),
                (TRAIN, alignment(y[a], K=K[np.ix_(a, a)])),
                (TEST, alignment(y[b], K=K[np.ix_(b, b)])),
            ):
                found.setdefault(f"{at}, {name}", []).append(value)
        values, vectors = np.linalg.eigh(K)
        clusters = class_means(vectors * np.sqrt(np.maximum(values, 0)), y)
        found[f"{CLUSTERS}, {name}"] = [100 - 100 * float(rand_score(y, clusters))]
    return found


def hits(found: dict[str, list[float]], aim: dict[str, list[float]]) -> int:
    """Return how many of the printed numbers are found."""
    count = 0
    for at, values in found.items():
        measure = at.rsplit(", ", 1)[0]
        # the paper's mean has an error as well, which it does not print
        error = np.std(values, ddof=1) * np.sqrt(2 / len(values)) if len(values) > 1 else 0.0
        near = NEAR.get(measure, 2 * float(error))
        count += sum(bool(abs(np.mean(values) - value) <= near) for value in aim[at])
    return count


def table_of(name: str) -> str:
    """Return the measure of the table of a data set."""
    return f"{name} before learning, steps taken"


PRINTED_ROWS = ("printed", "printed in Table 4, again")


def add_sequences(run: Run, name: str, X: Array, y: Array, train: int) -> None:
    """Add what every sequence of steps gives before learning, under what is printed."""
    table, aim = table_of(name), aims(name)
    for at, values in aim.items():
        for row, value in zip(PRINTED_ROWS, values, strict=False):
            run.set_last(table, row, at, value)
    for steps in sequences(X):
        found = before_learning(prepare(X, steps), y, train, run.seeds())
        for at, values in found.items():
            run.set_last(table, steps, at, float(np.mean(values)))
        run.set_last(table, steps, HITS, hits(found, aim))


def sentence(cells: Sequence[Cell]) -> str:
    """Say which steps find most of the printed numbers, and what that leaves open."""
    parts = []
    for name, known in FOUND.items():
        counts = {c.row: c.ours or 0.0 for c in cells if c.measure == table_of(name) and c.column == HITS}
        if not counts:
            continue
        at = {c.column: c.ours for c in cells if c.measure == table_of(name) and c.row == known}
        linear, rbf = (at[f"{CLUSTERS}, {kernel}"] for kernel in KERNELS)
        others = max(count for steps, count in counts.items() if steps != known)
        parts.append(
            f"on {name} the steps “{known}” find {counts[known]:.0f} of 10, the other {len(counts) - 1} sequences at "
            f"most {others:.0f} and raw values {counts[RAW]:.0f} (k-means from the class means: {linear:.2f} % linear, "
            f"{rbf:.2f} % rbf)"
        )
    if not parts:
        return ""
    return (
        "Tested on colon and lymphoma: which steps between the data and the kernel find what the paper prints before "
        f"learning (tables of steps): {'; '.join(parts)}. The printed errors of k-means there are whole numbers of "
        "wrong rows, 8 and 6 of 62, 11 and 11 of 96, so that all 50 repetitions found the same clusters; random starts "
        "do not, and starts from the class means do, though on soybean these err on no row, where the paper has "
        "16.4 %. "
    )
