"""The quick part of the panel: eight small sets that need no download, for a regression test of the first call.

``python -m benchmarks.first_call_quick`` prints the gains of the installed code.  `quick_gains` returns them, and
`shortfalls` names the kinds of hint whose mean gain is more than ``MARGIN`` below ``EXPECTED``.  No set of the held-out
half is among them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from .first_call import first_call
from .first_call_gain import Fit, baseline, cell_gain, evaluate
from .first_call_sets import cleaned, gauss_corr, heavy_tail, madelon_like
from .first_call_splits import KINDS, split_of

EXPECTED: dict[str, float | None] = {"L": 8.6, "P5": 7.2, "P1": 7.3, "T": 7.5, "C": 5.6}
"""Mean gain over the eight sets by kind of hint, in points, with the defaults as they were measured."""
MARGIN = 1.5
"""Points that a mean gain may fall below ``EXPECTED``."""
SPLITS = 2

Rows = tuple[np.ndarray, np.ndarray]


def many_classes(classes: int = 26, each: int = 12, d: int = 8, seed: int = 0) -> Rows:
    """Many small classes; the scales of the columns differ by up to a thousand, and half of them carry no class."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(classes), each)
    means = np.hstack([rng.normal(0, 3, (classes, d // 2)), np.zeros((classes, d - d // 2))])
    return (means[y] + rng.normal(size=(len(y), d))) * 10.0 ** rng.uniform(-1, 2, d), y


def bits(n: int = 300, d: int = 40, classes: int = 3, seed: int = 0) -> Rows:
    """Binary columns, of which the first ten have frequencies that depend on the class."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    frequency = np.full((classes, d), 0.3)
    frequency[:, :10] = rng.uniform(0.05, 0.95, (classes, 10))
    return (rng.random((n, d)) < frequency[y]).astype(float), y


def _of_sklearn(name: str, most: int) -> Rows:
    from sklearn import datasets

    X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    kept = np.sort(np.random.default_rng(0).permutation(len(X))[:most])
    return X[kept], y[kept]


QUICK_SETS: dict[str, Callable[[], Rows]] = {
    "wine": lambda: _of_sklearn("wine", 300),
    "wdbc": lambda: _of_sklearn("breast_cancer", 300),
    "digits": lambda: _of_sklearn("digits", 400),
    "gauss_corr": lambda: gauss_corr(300),
    "heavy_tail": lambda: heavy_tail(300),
    "madelon_like": lambda: madelon_like(300),
    "many_classes": many_classes,
    "bits": bits,
}


def quick_gains(
    fit: Fit = first_call, kinds: Sequence[str] = tuple(KINDS), names: Sequence[str] = tuple(QUICK_SETS)
) -> dict[str, dict[str, float]]:
    """Return the gain over standardised distances by kind of hint and set, in points; an error of a fit is raised."""
    found: dict[str, dict[str, float]] = {kind: {} for kind in kinds}
    for name in names:
        X, y = cleaned(*QUICK_SETS[name]())
        splits = [split_of(X, y, name, number) for number in range(SPLITS)]
        base = [baseline("standardised", parts) for parts in splits]
        for kind in kinds:
            cells = [evaluate(fit, parts, kind, None) for parts in splits]
            for cell in cells:
                if cell["error"]:
                    raise RuntimeError(f"{name}, {kind}: {cell['error']}")
            found[kind][name] = float(np.mean([cell_gain(c, b) for c, b in zip(cells, base, strict=True)]))
    return found


def means(gains: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Return the mean gain over sets by kind of hint."""
    return {kind: float(np.mean(list(sets.values()))) for kind, sets in gains.items()}


def shortfalls(gains: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return a sentence for each kind of hint whose mean gain fell; none is right."""
    found = []
    for kind, mean in means(gains).items():
        expected = EXPECTED[kind]
        if expected is None:
            raise ValueError(f"EXPECTED[{kind!r}] is not measured yet; run python -m benchmarks.first_call_quick")
        if mean < expected - MARGIN:
            found.append(f"{kind}: mean gain {mean:+.1f}, expected {expected:+.1f} within {MARGIN}")
    return found


if __name__ == "__main__":
    started = time.process_time()
    measured = quick_gains()
    for kind, by_set in measured.items():
        shown = ", ".join(f"{name} {value:+.1f}" for name, value in by_set.items())
        sys.stdout.write(f"{kind} {means(measured)[kind]:+.2f}: {shown}\n")
    sys.stdout.write(f"{time.process_time() - started:.1f} CPU s\n")
