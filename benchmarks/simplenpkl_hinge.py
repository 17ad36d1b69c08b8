"""Number of eigenproblems until the gap of a hinge loss is closed: bundle method, L-BFGS-B and the published steps.

Each value of the dual is one eigenproblem.  The published projected gradient with steps 1/t (Algorithm 1), the best
response of eq. (14), L-BFGS-B on the dual, and the bundle method of `simplenpkl` are compared on a1a, or on generated
rows if the data are missing.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress

import numpy as np
from metricforge_plugins.simplenpkl.graph import graph_of
from metricforge_plugins.simplenpkl.hinge import Dual
from metricforge_plugins.simplenpkl.pairs import signed_pairs
from metricforge_plugins.simplenpkl.published import RULES, climb

import metricforge as mf
from metricforge import neighbors

from .run import Table

LEVELS = (1e-3, 1e-5)


def problem(n: int | None):
    if n is None:
        X, y = mf.datasets.load("a1a")
    else:
        rng = np.random.default_rng(0)
        y = rng.integers(2, size=n)
        X = rng.normal(size=(n, 4)) + 2 * y[:, None]
    return graph_of(neighbors.graph(neighbors.search(X, 50 if n is None else 8)[0])).operator, mf.Pairs.from_labels(
        y, components=0.7, seed=0
    )


class Enough(Exception):  # noqa: N818 - not an error: it unwinds the line search
    """Raised when the gap is closed or the limit reached."""


def quasi_newton(dual: Dual, limit: int) -> None:
    """L-BFGS-B on the dual, in units in which its quadratic part is spherical."""
    from scipy.optimize import minimize

    weight = dual.C * dual.pairs.w
    unit = np.sqrt(weight)

    def down(beta):
        gradient = dual.evaluate(unit * beta)
        if dual.closed() or len(dual.trace) >= limit:
            raise Enough
        return -dual.value, -unit * gradient

    bounds = [(0.0, None if dual.squared else float(u)) for u in unit]
    options = {"maxcor": 20, "ftol": 0.0, "gtol": 0.0}
    with suppress(Enough):
        minimize(down, np.minimum(1.0, weight) / unit, jac=True, method="L-BFGS-B", bounds=bounds, options=options)


def needed(dual: Dual, limit: int) -> list[str]:
    found = []
    for level in LEVELS:
        reached = [i + 1 for i, (value, gap) in enumerate(dual.trace) if gap <= level * max(1.0, abs(value))]
        found.append(str(reached[0]) if reached else f"> {limit}")
    return found


def run(quick: bool = False) -> Table:
    counts = [f"eigenproblems to {x:g}" for x in LEVELS]
    table = Table(["loss", "weights", "C", "B", "rule", *counts, "value", "gap", "CPU s"])
    small = quick or not os.environ.get("METRICFORGE_DATA")
    L, hints = problem(200 if small else None)
    n = hints.n
    limit = 20 if quick else 60
    settings = (
        ("squared_hinge", "uniform", 1.0, "n"),
        ("squared_hinge", "uniform", 1.0, "n²/100"),
        ("squared_hinge", "uniform", 1.0, "n²/4"),
        ("squared_hinge", "uniform", 10.0, "n"),
        ("squared_hinge", "degree", 2.0, "n²/4"),
        ("hinge", "degree", 2.0, "n"),
        ("hinge", "degree", 2.0, "n²/4"),
    )
    for loss, weights, C, B in settings[:2] if quick else settings:
        bound = {"n": n, "n²/100": n * n / 100, "n²/4": n * n / 4}[B]
        squared = loss == "squared_hinge"
        for rule in (*RULES, "L-BFGS-B", "bundle") if squared else ("L-BFGS-B", "bundle"):
            dual = Dual(L, signed_pairs(hints, weights), C, float(bound), squared, tol=LEVELS[-1])
            began = time.process_time()
            if rule == "bundle":
                dual.solve(limit)
            elif rule == "L-BFGS-B":
                quasi_newton(dual, limit)
            else:
                climb(dual, rule, limit)
            spent = time.process_time() - began
            table.add(loss, weights, C, B, rule, *needed(dual, limit), dual.upper, dual.gap, spent)
    table.notes += [
        f"{'generated rows' if small else 'a1a'}: {n} rows, {hints.size} pairs; gap relative to the value, from bounds "
        "that hold whatever part of the spectrum was found; at most "
        f"{limit} eigenproblems",
        "CPU s: until the gap is closed or the limit reached",
        "target: 1e-5 in 10 eigenproblems at B <= n, in 40 at B <= n²/4",
    ]
    return table
