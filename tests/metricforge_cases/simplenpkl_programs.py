"""Semidefinite programs for the other choices of the simplenpkl paper, to compare optima with.

A similarity of the user's own (eq. 3), the problem without a bound (eq. 4) and the steps of Algorithm 1, on random
weighted graphs.
"""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np

import metricforge as mf

TOL = 1e-5


class Case(NamedTuple):
    X: np.ndarray
    pairs: mf.Pairs
    S: object
    C: float
    weights: str


def case(seed: int) -> Case:
    """Rows of two classes, pairs, and random weights between some of the rows."""
    from scipy.sparse import csr_array, random_array

    rng = np.random.default_rng(seed)
    n = int(rng.integers(12, 26))
    y = rng.integers(2, size=n)
    X = rng.normal(size=(n, 3)) + 2 * y[:, None]
    half = random_array((n, n), density=0.2, rng=rng)
    weights = ("degree", "uniform")[seed % 2]
    C = float(rng.choice([6.0, 10.0, 20.0] if weights == "degree" else [0.5, 1.0, 3.0]))
    return Case(X, mf.Pairs.from_labels(y, components=0.6, seed=seed), csr_array(half + half.T), C, weights)


def laplacian(S) -> np.ndarray:
    """The definition, eq. (3); a row without weights has a Laplacian of 0."""
    S = S.toarray()
    degrees = S.sum(axis=1)
    scale = np.divide(1.0, np.sqrt(degrees), out=np.zeros(len(S)), where=degrees > 0)
    return np.diag((degrees > 0).astype(float)) - scale[:, None] * S * scale


def optimum(case: Case, loss: str, B: float | None) -> float:
    """The least value over K ⪰ 0, with tr(KK) <= B unless B is None."""
    import cvxpy as cp

    n = len(case.X)
    both = np.concatenate([case.pairs.similar, case.pairs.dissimilar])
    t = np.repeat([1.0, -1.0], [len(case.pairs.similar), len(case.pairs.dissimilar)])
    count = np.bincount(both.ravel(), minlength=n)
    w = np.ones(len(t)) if case.weights == "uniform" else 1 / np.sqrt(count[both[:, 0]] * count[both[:, 1]])
    K = cp.Variable((n, n), PSD=True)
    agreement = cp.multiply(t, K[both[:, 0], both[:, 1]])
    data = {
        "linear": lambda: -(w @ agreement),
        "hinge": lambda: w @ cp.pos(1 - agreement),
        "squared_hinge": lambda: w @ cp.square(cp.pos(1 - agreement)) / 2,
    }[loss]()
    bound = [] if B is None else [cp.norm(K, "fro") <= np.sqrt(B)]
    problem = cp.Problem(cp.Minimize(cp.trace(laplacian(case.S) @ K) + case.C * data), bound)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        problem.solve(solver="CLARABEL")
    assert problem.status in ("optimal", "optimal_inaccurate")
    return float(problem.value)


def learned(case: Case, loss: str, tol: float = TOL, **options):
    """Return the report of a fit on the similarity of a case; every eigenvector is kept."""
    whole = {"n_components": None, "normalize": False, "pair_weights": case.weights, "tol": tol}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        metric = mf.learn(
            case.X, case.pairs, method="simplenpkl", similarity=case.S, loss=loss, C=case.C, **whole, **options
        )
    return metric.report


def compared(seed: int, loss: str, **options) -> tuple[float, float, float, bool]:
    """Return objective and lower bound above the optimum, the gap (all relative), and whether the gap was closed."""
    at = case(seed)
    report = learned(at, loss, **options)
    unbounded = options.get("B") == "unbounded"
    least = optimum(at, loss, None if unbounded else float(options.get("B", len(at.X))))
    scale = max(1.0, abs(least))
    met = str(report.status) == "optimal"
    return (report.objective - least) / scale, (report.lower_bound - least) / scale, report.gap / scale, met


CASES = {
    "similarity, linear": ("linear", {}),
    "similarity, squared hinge": ("squared_hinge", {}),
    "similarity, hinge": ("hinge", {}),
    'similarity, squared hinge, B="unbounded"': ("squared_hinge", {"B": "unbounded"}),
    'similarity, hinge, B="unbounded", tol=1e-3': ("hinge", {"B": "unbounded", "tol": 1e-3}),
    'similarity, squared hinge, steps="harmonic"': ("squared_hinge", {"steps": "harmonic", "max_iter": 60}),
    'similarity, squared hinge, steps="best-response"': ("squared_hinge", {"steps": "best-response", "max_iter": 60}),
    'similarity, hinge, steps="harmonic"': ("hinge", {"steps": "harmonic", "max_iter": 60}),
}
